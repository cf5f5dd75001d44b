"""
How long `lora-watch recommend` takes over a month, and its memory: ``python benchmarks/recommend_speed.py FOLDER``.

Thirty days, 11 million requests, 8 pods with 4 slots, 79 adapters: no simulation of engines, but the month of ``--workload`` of
``backtest_workloads`` written as rows, a day at a time, through the store: requests, the loads of a replay and the starts of the
pods. It is written once; a folder that is there is read as it is. ``--requests 1e6`` makes a small run.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from backtest_workloads import WORKLOADS, history

from lora_watch.model import DAY
from lora_watch.recommend.history import History
from lora_watch.replay.cluster import replay
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, Batch, Table
from lora_watch.store.layout import Layout
from lora_watch.store.tables import Ledger, Store

BYTES, RANK = 65_536_000, 16


def lay(folder: Path, made: History) -> None:
    """Write a month: a commit a day and table, then each day in the order of a closed one."""
    told = replay(made.trace, made.fleet())
    store = Store(folder)
    ledgers = {table.name: store.ledger(table) for table in (REQUESTS, ADAPTER_EVENTS)}
    _commit(ledgers, ADAPTER_EVENTS, _starts(made), made.window.start)
    names, pods = np.array(made.names), np.array(made.pods)
    finish = made.trace.at + made.trace.hold
    order = np.argsort(finish, kind="stable")
    days = (finish[order] - made.window.start) // DAY
    for day in range(made.days):
        rows = order[np.searchsorted(days, day) : np.searchsorted(days, day + 1)]
        common = {
            "cluster": "bench",
            "pool": "vllm",
            "role": "",
            "engine": "0",
            "pod": pods[made.trace.pod[rows]],
            "adapter": names[made.trace.adapter[rows]],
            "provenance": "observed",
            "source": "bench",
        }
        came = made.trace.at[rows]
        _commit(
            ledgers,
            REQUESTS,
            pl.DataFrame(
                {
                    **common,
                    "at": finish[rows],
                    "stream": pl.Series("agent/bench/" + pods + "/api")[made.trace.pod[rows]],
                    "seq": np.arange(len(rows)) + 1 + day * 10_000_000,
                    "request_id": pl.Series(rows).cast(pl.String),
                    **dict.fromkeys(("arrived", "queued", "scheduled"), came),
                    "first_token": came + 50_000,
                    "finished": finish[rows],
                    "prompt_tokens": np.full(len(rows), 200),
                    "generated_tokens": np.full(len(rows), 100),
                }
            ),
            made.window.start + (day + 1) * DAY,
        )
        loaded = rows[told.lookup[rows] > 0]
        loads = pl.DataFrame(
            {
                **{name: value for name, value in common.items() if name not in {"pod", "adapter"}},
                "pod": pods[made.trace.pod[loaded]],
                "adapter": names[made.trace.adapter[loaded]],
                "at": made.trace.at[loaded],
                "stream": pl.Series("agent/bench/" + pods + "/worker")[made.trace.pod[loaded]],
                "seq": np.arange(len(loaded)) + 2 + day * 10_000_000,
                "kind": "load",
                "tier": "gpu",
                "from_tier": "cpu",
                "seconds": np.full(len(loaded), 0.02),
                "rank": np.full(len(loaded), RANK),
                "bytes": np.full(len(loaded), BYTES),
                "reason": "demand",
                "in_step": True,
                "ok": True,
            }
        )
        _commit(ledgers, ADAPTER_EVENTS, loads, made.window.start + (day + 1) * DAY)
    Layout(store, retention_days=10_000).maintain(made.window.end + DAY)


def _starts(made: History) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "cluster": "bench",
            "pool": "vllm",
            "role": "",
            "engine": "0",
            "pod": list(made.pods),
            "provenance": "observed",
            "source": "bench",
            "at": made.window.start,
            "stream": [f"agent/bench/{pod}/worker" for pod in made.pods],
            "seq": 1,
            "kind": "start",
            "slots": list(made.slots),
            "cpu_capacity": 64,
            "clock": "cuda",
            "detail": '{"max_rank":16,"model":"meta-llama/Llama-3.1-70B-Instruct","role":"worker","vllm":"0.32.0"}',
        }
    )


def _commit(ledgers: dict[str, Ledger], table: Table, rows: pl.DataFrame, at: int) -> None:
    if rows.is_empty():
        return
    whole = table.conform(rows)
    ends = dict(whole.group_by("stream").agg(pl.col("seq").max()).iter_rows())
    ledgers[table.name].append(Batch(whole, ends), at=at)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--requests", type=float, default=11e6)
    parser.add_argument("--workload", default="no sessions", choices=list(WORKLOADS))
    parser.add_argument("--runs", type=int, default=2)
    asked = parser.parse_args()
    if not asked.folder.exists():
        begun = time.perf_counter()
        lay(asked.folder, history(replace(WORKLOADS[asked.workload], requests=int(asked.requests)), 1))
        print(f"laid in {time.perf_counter() - begun:.0f} s")
    program = Path(sys.executable).with_name("lora-watch")
    for _ in range(asked.runs):
        begun = time.perf_counter()
        child = subprocess.Popen([program, "recommend", "--data", asked.folder, "--last", "30d"], stdout=subprocess.PIPE)
        assert child.stdout is not None
        told = child.stdout.read().decode()
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begun
        print(told if status == 0 else f"exit {status}: {told}")
        processor, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / (1 << 20)
        print(f"{wall:.1f} s, {processor:.1f} s of processor time, {peak:.2f} GiB at its peak")


if __name__ == "__main__":
    main()
