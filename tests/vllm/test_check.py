"""
`lora-watch check` on a real vLLM that thrashes, and whether what it foretells of more slots comes true.

Four engines are started with 2, 3, 4 and 6 slots, a place in the CPU cache for each of twelve adapters, and nothing else between
them. All get the same seeded requests, in the same order and at the same pace, a few at a time. `check` looks at the one with 2
slots, through its sidecar and its page, as a user would. The effect that it foretells of +1, +2 and +4 slots is a share of the
loads; what the engines with so many slots did is counted in their own agents' logs, from the same request on. Every load there
evicts one adapter but those into slots that were free, so a share of the loads is a share of the swaps.

The replay behind the prediction takes the first quarter of its requests to fill the slots, so that quarter is not counted here.
"""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import tiny_server
from story import Sidecar
from tiny_client import Traffic

from lora_watch.model import SECOND

pytestmark = pytest.mark.vllm

ADAPTERS = tuple(f"adapter-{i:02d}" for i in range(12))
SLOTS = 2
MORE = (1, 2, 4)
WITHIN = 0.10
"""Of the loads of the engine that was looked at: by so much at most a prediction may be off."""
GROUPS = 150
FOUR_MINUTES = 240
"""Swaps have to be high in four minutes in a row, of which the first and the last may be cut."""


@dataclass(frozen=True)
class Group:
    """Requests that are sent together, ``at`` seconds after the first: (adapter, tokens) of each."""

    at: float
    requests: tuple[tuple[str, int], ...]


def planned(seed: int) -> list[Group]:
    """1 to 3 requests of 1 to 24 tokens every 0.5 to 1.3 s, by Zipf's law."""
    draw, at, groups = random.Random(seed), 0.0, []
    weights = [1 / (i + 1) for i in range(len(ADAPTERS))]
    for _ in range(GROUPS):
        names = draw.choices(ADAPTERS, weights, k=draw.randint(1, 3))
        groups.append(Group(at, tuple((name, draw.randint(1, 24)) for name in names)))
        at += draw.uniform(0.5, 1.3)
    return groups


async def drive(port: int, plan: Sequence[Group]) -> Traffic:
    """Every group at its time, or when the one before has been answered: a slow machine gets no more at once than a fast one."""
    traffic, begin = Traffic(port, seed=0), time.monotonic()
    for group in plan:
        await asyncio.sleep(max(0.0, begin + group.at - time.monotonic()))
        await asyncio.gather(*(traffic.ask(name, tokens) for name, tokens in group.requests))
    return traffic


def logs(events: Path) -> dict[str, list[dict[str, Any]]]:
    """Records of an engine's worker and of its API server."""
    told = {}
    for boot in sorted({file.name.split(".")[0] for file in events.glob("*.jsonl")}):
        lines = [line for file in sorted(events.glob(f"{boot}.*.jsonl")) for line in file.read_text().splitlines()]
        records = [json.loads(line) for line in lines]
        told[records[0]["role"]] = records
    return told


@dataclass(frozen=True)
class Engine:
    """What one engine was asked and did; ``counted_from`` (µs UTC) is when the first request came that the replay counts."""

    slots: int
    answers: tuple[int | None, ...]
    records: Mapping[str, list[dict[str, Any]]]
    counted_from: int

    def moves(self, kind: str) -> int:
        """Loads or evictions of GPU slots since then."""
        return sum(
            r["kind"] == kind and r["tier"] == "gpu" and r.get("ok", True) and r["at"] >= self.counted_from
            for r in self.records["worker"]
        )


@dataclass(frozen=True)
class Run:
    """The engines by slots, and what `check` said of the first."""

    engines: Mapping[int, Engine]
    told: dict[str, Any]

    @property
    def finding(self) -> dict[str, Any]:
        """That of a thrash."""
        (found,) = (one for one in self.told["findings"] if one["kind"] == "thrash")
        return dict(found)

    def remedy(self, more: int) -> dict[str, Any]:
        """So many more slots."""
        text = f"(--max-loras {SLOTS} → {SLOTS + more})"
        (found,) = (one for one in self.finding["remedies"] if one["lever"] == "slots" and text in one["text"])
        return dict(found)

    def removed(self, more: int, kind: str) -> float:
        """The share of its moves that the engine with more slots did without."""
        return 1 - self.engines[SLOTS + more].moves(kind) / self.engines[SLOTS].moves(kind)


def check(port: int, sidecar: int, end: int, seconds: int) -> dict[str, Any]:
    """What the command says of the ``seconds`` before ``end`` (µs UTC)."""
    at = datetime.fromtimestamp(end / SECOND, UTC).isoformat()
    command = [Path(sys.executable).with_name("lora-watch"), "check", "--watch", "0", "--format", "json", "--last", f"{seconds}s"]
    targets = ["--agent", f"http://127.0.0.1:{sidecar}", "--pod", f"http://127.0.0.1:{port}/metrics", "--at", at]
    done = subprocess.run([*command, *targets], capture_output=True, check=True, text=True)
    return dict(json.loads(done.stdout))


def tell(venv: Path, model: Path, directory: Path) -> Run:
    """All four engines at once, so that they share the quiet and the noise of the machine: three minutes on two cores."""
    modules = {name: model / "adapters" / name for name in ADAPTERS}
    plan = planned(seed=1)
    sizes = [SLOTS, *(SLOTS + more for more in MORE)]
    folders = {slots: directory / f"{slots}-slots" for slots in sizes}
    ports = {slots: tiny_server.free_port() for slots in sizes}
    for folder in folders.values():
        (folder / "events").mkdir(parents=True, mode=0o700)

    processes: list[tiny_server.Process] = []

    def start(slots: int) -> None:
        environment = {"LORA_WATCH_LOG_DIR": str(folders[slots] / "events")}
        log, tiers = folders[slots] / "server.log", {"slots": slots, "cpu_places": len(ADAPTERS)}
        processes.append(tiny_server.serve(venv, model / "model", ports[slots], log, environment, modules, **tiers))

    async def ask() -> list[Traffic]:
        return await asyncio.gather(*(drive(ports[slots], plan) for slots in sizes))

    try:
        with ThreadPoolExecutor(len(sizes)) as pool:
            list(pool.map(start, sizes))
        sidecar = Sidecar(venv, folders[SLOTS])
        processes.append(sidecar.process)
        asked = asyncio.run(ask())
        begin, end = (round(edge * SECOND) for edge in edges(asked[0]))
        seconds = (end - begin) / SECOND
        told = check(ports[SLOTS], sidecar.port, end, round(max(seconds, (seconds + FOUR_MINUTES) / 2)))
    finally:
        with ThreadPoolExecutor() as pool:
            list(pool.map(tiny_server.Process.stop, processes))
    engines, skipped = {}, 0
    for slots, traffic in zip(sizes, asked, strict=True):
        records = logs(folders[slots] / "events")
        queued = sorted(r["queued"] for r in records["api"] if r["kind"] == "request")
        skipped = skipped or sum(at < begin + (end - begin) // 4 for at in queued)
        answers = tuple(one.status for one in traffic.asked)
        engines[slots] = Engine(slots, answers, records, queued[skipped])
    return Run(engines, told)


def edges(traffic: Traffic) -> tuple[float, float]:
    """When the first request was sent and when the last answer was there, seconds since the epoch."""
    return min(one.sent for one in traffic.asked), max(one.finished or one.sent for one in traffic.asked)


@pytest.fixture(scope="module")
def run(venv: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run."""
    return tell(venv, model, tmp_path_factory.mktemp("check"))


def test_every_request_was_answered_and_most_of_them_swapped(run: Run):
    for engine in run.engines.values():
        assert set(engine.answers) == {200}
        assert len(engine.answers) == sum(len(group.requests) for group in planned(seed=1))
    assert run.engines[SLOTS].moves("evict") > 100


def test_check_names_the_thrash_with_its_slots_and_adapters(run: Run):
    assert f"{len(ADAPTERS)} adapters are in use on {SLOTS} slots" in run.finding["summary"]
    assert run.finding["provenance"] == "observed"


@pytest.mark.parametrize("more", MORE)
def test_more_slots_remove_the_share_of_loads_that_check_foretells(run: Run, more: int):
    told = run.remedy(more)["effect"]
    measured = run.removed(more, "load")
    print(f"+{more}: foretold {told:.3f}, loads {measured:.3f}, swaps {run.removed(more, 'evict'):.3f}")
    assert told == pytest.approx(measured, abs=WITHIN)


@pytest.mark.parametrize("more", MORE)
def test_it_is_a_share_of_the_swaps_as_well(run: Run, more: int):
    assert run.remedy(more)["of"] == "swaps"
    assert run.remedy(more)["effect"] == pytest.approx(run.removed(more, "evict"), abs=WITHIN)
