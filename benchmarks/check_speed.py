"""
Time and memory of one look at a day of a hundred pods: ``python benchmarks/check_speed.py FOLDER``.

The folder gets the day (4 million requests of 200 adapters, as many events, 3 million samples) once and keeps it. Then, each in
a process of its own and ``--rounds`` times: ``lora-watch check --last 24h``, and what anybody would have to do at least: read
the columns of requests that it looks at, once, and count them by pod and adapter, with polars and with DuckDB. ``--days`` and
``--pods`` make it smaller; ``--adapters`` more diverse. Memory is the process's high-water mark. Counts are compared.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl
from deltalake import DeltaTable

from lora_watch.explore.around import ASKED
from lora_watch.schema import REQUESTS
from lora_watch.simulate.scenario import Pool, Scenario, Traffic, Truth
from lora_watch.simulate.write import give_memory_back, simulate
from lora_watch.store.tables import Store

RATE = 0.46
"""Requests a second and pod in the mean of the day."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process took."""

    wall: float
    cpu: float
    peak: float

    def __str__(self) -> str:
        return f"{self.wall:6.1f} s wall {self.cpu:6.1f} s CPU {self.peak:6.2f} GiB"


def cost(*command: str) -> tuple[Cost, str]:
    """Run a command; what it took with its children, and what it printed. Its failure is ours."""
    began = os.times().elapsed
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    wall = os.times().elapsed - began
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / (1 << 20)), told


def laid(folder: Path, days: float, pods: int, adapters: int) -> None:
    """The tables of the day, unless they are there."""
    if (folder / REQUESTS.name).is_dir():
        return
    scenario = Scenario(
        name="day",
        about="A day of many pods.",
        days=days,
        pools=(Pool(name="vllm", pods=pods, slots=4, cpu_capacity=64),),
        traffic=Traffic(requests_per_second=RATE * pods, adapters=adapters, zipf=1.0, daily_swing=0.5),
        truth=Truth(),
    )
    give_memory_back()
    simulate(scenario, days, 1, folder)


def counted_by_polars(folder: Path) -> int:
    """Groups of pod and adapter, from one read of the columns that check looks at."""
    rows = Store(folder).rows(REQUESTS, columns=ASKED)
    who = ("cluster", "pod", "adapter")
    return rows.lazy().group_by(who).agg(pl.all().exclude(who).max()).collect().height


def counted_by_duckdb(folder: Path) -> int:
    """The same, by DuckDB over the same files."""
    rest = ", ".join(f'max("{name}")' for name in ASKED if name not in ("cluster", "pod", "adapter"))
    files = DeltaTable(folder / REQUESTS.name).file_uris()
    query = f"select count(*) from (select cluster, pod, adapter, {rest} from read_parquet($files) group by all)"
    row = duckdb.execute(query, {"files": files}).fetchone()
    assert row is not None
    return int(row[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--adapters", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rival", choices=["polars", "duckdb"], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rival:
        print((counted_by_polars if asked.rival == "polars" else counted_by_duckdb)(asked.folder))
        return
    laid(asked.folder, asked.days, asked.pods, asked.adapters)
    check = (sys.executable, "-m", "lora_watch.cli", "check", "--data", str(asked.folder), "--last", f"{round(asked.days * 24)}h")
    rival = (sys.executable, __file__, str(asked.folder), "--rival")
    best: dict[str, Cost] = {}
    counts: dict[str, str] = {}
    for _ in range(asked.rounds):
        for name, command in (("check", check), ("polars", (*rival, "polars")), ("duckdb", (*rival, "duckdb"))):
            took, told = cost(*command)
            print(f"{name:8}{took}", flush=True)
            counts[name] = told
            best[name] = min(best.get(name, took), took, key=lambda one: one.cpu)
    if counts["polars"] != counts["duckdb"]:
        raise SystemExit(f"polars and DuckDB count differently: {counts['polars'].strip()} and {counts['duckdb'].strip()}")
    for name in ("polars", "duckdb"):
        ratio = best["check"].cpu / best[name].cpu
        print(
            f"check takes {ratio:.1f} times the CPU of {name}'s count, {best['check'].peak / best[name].peak:.2f} of its memory"
        )


if __name__ == "__main__":
    main()
