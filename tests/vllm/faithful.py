"""
The same requests on the real vLLM and on the replay: what is asked of the engine, what its agent says it did, and how the two
are laid side by side.

Time goes in *instants*, the seams between two engine steps: requests finish with the step before the seam and are scheduled for
the step behind it, so times of both kinds that lie within ``SEAM`` are one instant, unless a step lies between. A request that
was in the queue when others finished, and is the next to be scheduled, is scheduled at that same seam, however long the engine
took, and so is who is scheduled with it. The replay gets instants instead of µs, since an engine decides at instants only.

A *move* is a load or an eviction: kind, tier, adapter, and the slot where the tier is the GPU. A cold load is two moves. Moves of
one step are a bag: the log has them in the engine's order, ``Outcome`` does not say in which order a step did its loads.
"""

import asyncio
import bisect
import difflib
import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import tiny_server
from tiny_client import Traffic, call

from lora_watch.replay.cluster import Outcome, replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.policies import LRU, Policy
from lora_watch.replay.trace import BASE, Trace

ADAPTERS = tuple(f"adapter-{i:02d}" for i in range(12))
LATE = "adapter-late"
NAMES = (*ADAPTERS, LATE)
PINNED = ADAPTERS[0]
SINGLES, BURSTS = 150, 40
SEAM = 1_500  # µs; a step takes 3,000 at least
EXPONENT = 0.8


class Move(NamedTuple):
    """``load`` or ``evict``, ``cpu`` or ``gpu``, the adapter, its slot in the GPU tier and −1 in the other."""

    kind: str
    tier: str
    adapter: str
    slot: int


class Step(NamedTuple):
    """The moves of one engine step, sorted, and when it began: µs in the engine's log, an instant in the replay's."""

    at: int
    moves: tuple[Move, ...]


@dataclass(frozen=True)
class Run:
    """What one engine was asked and did. Up to ``boundary`` (µs UTC) requests came one by one, then in bursts."""

    worker: list[dict[str, Any]]
    requests: list[dict[str, Any]]
    hashes: list[int]
    pins: tuple[str, ...]
    boundary: int
    answers: dict[str, int]

    def fleet(self, *, policy: Policy = LRU, hashes: Sequence[int] | None = None) -> Fleet:
        """The engine as the replay knows it."""
        pins = [(0, NAMES.index(name)) for name in self.pins]
        slots, places = self.worker[0]["slots"], self.worker[0]["cpu_capacity"]
        return Fleet(slots, places, tiny_server.SEATS, policy, pins, name_hashes=hashes)

    @property
    def preloads(self) -> list[dict[str, Any]]:
        """Loads that an API call asked for; the first of them are those of the start."""
        loads = [r for r in self.worker if r["kind"] == "load" and r["tier"] == "gpu" and r["reason"] == "preload"]
        return [r for r in loads if r["adapter"] not in self.pins]


async def singles(traffic: Traffic, adapters: Sequence[str]) -> None:
    """One request at a time, of 1 to 8 tokens."""
    for _ in range(SINGLES):
        await traffic.ask(traffic.choose(adapters, EXPONENT), traffic.random.randint(1, 8))


def burst(traffic: Traffic, adapters: Sequence[str]) -> list[asyncio.Task[Any]]:
    """2 to 6 requests at once, of 1 to 24 tokens; one in twelve is for the base model."""
    asked = []
    for _ in range(traffic.random.randint(2, 6)):
        name = "tiny" if traffic.random.random() < 1 / 12 else traffic.choose(adapters, EXPONENT)
        asked.append(asyncio.create_task(traffic.ask(name, traffic.random.randint(1, 24))))
    return asked


async def free_for_all(traffic: Traffic, port: int, model: Path, answers: dict[str, int]) -> None:
    """Bursts one after the other; then an adapter is loaded by hand; then bursts that overlap."""
    for _ in range(BURSTS):
        await asyncio.gather(*burst(traffic, ADAPTERS))
    body = {"lora_name": LATE, "lora_path": str(model / "adapters" / ADAPTERS[3])}
    answers["late"], _ = await call(port, "/v1/load_lora_adapter", body)
    running: list[asyncio.Task[Any]] = []
    for _ in range(BURSTS):
        running += burst(traffic, NAMES)
        await asyncio.sleep(traffic.random.uniform(0.02, 0.2))
    await asyncio.gather(*running)


async def beside_a_pin(traffic: Traffic, slots: int) -> None:
    """Bursts for the pinned adapter and as many others as there are slots without it: more in one batch, and the engine dies."""
    for _ in range(2 * BURSTS):
        others = traffic.random.sample(ADAPTERS[1:], slots - 1)
        await asyncio.gather(*burst(traffic, [*others, PINNED]))


async def one_too_many(port: int, slots: int, answers: dict[str, int]) -> None:
    """
    As many adapters at once as there are slots, one of which is pinned for yet another: until the engine dies of it, for on a
    busy machine they may come one after the other.
    """
    bodies = [
        {"model": name, "prompt": "which adapter", "max_tokens": 100, "ignore_eos": True} for name in ADAPTERS[1 : slots + 1]
    ]
    for _ in range(20):
        given = await asyncio.gather(*(call(port, "/v1/completions", body) for body in bodies))
        answers["one too many"] = max(status for status, _ in given)
        if answers["one too many"] >= 500:
            return


async def preload(port: int, model: Path, answers: dict[str, int], *, pin: bool) -> None:
    """Register the adapters one by one, which loads each; the first is pinned at once."""
    for number, name in enumerate(ADAPTERS, 1):
        body = {"lora_name": name, "lora_path": str(model / "adapters" / name)}
        answers[name], _ = await call(port, "/v1/load_lora_adapter", body)
        if pin and name == PINNED:
            answers["pin"], _ = await call(port, "/collective_rpc", {"method": "pin_lora", "args": [number]})


def tell(venv: Path, model: Path, directory: Path, *, slots: int, cpu_places: int, pin: bool, seed: int) -> Run:
    """Serve, ask, stop, and read what the agent wrote. The order of the engine's sets is known by its hash seed."""
    directory.mkdir()
    events, port, answers = directory / "events", tiny_server.free_port(), dict[str, int]()
    environment = {"LORA_WATCH_LOG_DIR": str(events), "PYTHONHASHSEED": str(seed)}
    traffic = Traffic(port, seed)

    async def drive() -> tuple[int, int]:
        await preload(port, model, answers, pin=pin)
        await singles(traffic, ADAPTERS)
        boundary = round(max(asked.finished or 0.0 for asked in traffic.asked) * 1e6)
        if pin:
            await beside_a_pin(traffic, slots)
        else:
            await free_for_all(traffic, port, model, answers)
        end = time.time_ns() // 1000
        if pin:
            await one_too_many(port, slots, answers)
        return boundary, end

    tiers = {"slots": slots, "cpu_places": cpu_places}
    server = tiny_server.serve(venv, model / "model", port, directory / "server.log", environment, {}, **tiers)
    try:
        boundary, end = asyncio.run(drive())
    finally:
        server.stop()
    logs = []
    for boot in sorted({file.name.split(".")[0] for file in events.glob("*.jsonl")}):
        texts = [file.read_text() for file in sorted(events.glob(f"{boot}.*.jsonl"))]
        logs.append([json.loads(line) for text in texts for line in text.splitlines()])
    worker, api = ([r for r in log if r["at"] < end] for role in ("worker", "api") for log in logs if log[0]["role"] == role)
    requests = [r for r in api if r["kind"] == "request"]
    answers |= {asked.request_id: asked.status or 0 for asked in traffic.asked}
    code = "import json, sys; print(json.dumps([hash(name) for name in sys.argv[1:]]))"
    hashes = subprocess.run(
        [venv / "bin/python", "-c", code, *NAMES], env={"PYTHONHASHSEED": str(seed)}, capture_output=True, check=True
    )
    return Run(worker, requests, json.loads(hashes.stdout), (PINNED,) if pin else (), boundary, answers)


# --- what the engine did -------------------------------------------------------------------------------------------------------


def engine_steps(run: Run) -> list[Step]:
    """
    Its moves in steps: a step's uses come behind its loads in the log, and an API call's load is a step of its own.

    Without the first load of what was pinned then, which the replay takes for granted.
    """
    steps, moves, at = [], list[Move](), 0
    pinned_at = max((r["at"] for r in run.worker if r["kind"] == "pin"), default=0)
    for record in run.worker:
        if record["kind"] in ("load", "evict") and record.get("ok", True) and record["at"] > pinned_at:
            at = at if moves else record["at"]
            moves.append(Move(record["kind"], record["tier"], record["adapter"], record.get("slot", -1)))
        preloaded = record.get("reason") == "preload" and record["kind"] == "load" and record["tier"] == "gpu"
        if moves and (preloaded or record["kind"] == "use"):
            steps.append(Step(at, tuple(sorted(moves))))
            moves = []
    return steps


# --- what the replay does ------------------------------------------------------------------------------------------------------


def one_by_one(run: Run, **fleet: Any) -> tuple[Trace, Outcome]:
    """
    The requests up to the boundary as nothing but an order of adapters: no times, no lengths. The loads of the start come first.

    ``fleet`` as for ``Run.fleet``.
    """
    asked = sorted((r["queued"], r["adapter"]) for r in run.requests if r["queued"] < run.boundary)
    loads = [r["adapter"] for r in run.preloads if r["at"] < asked[0][0]]
    trace = Trace([NAMES.index(name) for name in (*loads, *(name for _, name in asked))], adapters=len(NAMES))
    return trace, replay(trace, run.fleet(**fleet))


def instants(requests: Sequence[dict[str, Any]]) -> tuple[list[int], list[int], list[int]]:
    """
    Where each request was scheduled and where it finished, as instants from 0; and the µs at which each instant was over.
    """
    order = sorted(range(len(requests)), key=lambda i: int(requests[i]["scheduled"]))
    longest = [r["queued"] for r in requests]  # since when the longest waiting of those scheduled together had been queued
    for one, other in [*pairwise(order), *pairwise(order[::-1])]:
        if abs(requests[one]["scheduled"] - requests[other]["scheduled"]) <= SEAM:
            longest[other] = min(longest[one], longest[other])
    marks = sorted(
        [(r["finished"], False, i) for i, r in enumerate(requests)] + [(r["scheduled"], True, i) for i, r in enumerate(requests)]
    )
    scheduled, finished, over = [0] * len(requests), [0] * len(requests), list[int]()
    for k, (at, begins, i) in enumerate(marks):
        before = marks[k - 1] if k else None
        apart = before is None or at - before[0] > SEAM
        if before is not None and begins and not before[1]:
            apart = apart and longest[i] > before[0]
        elif before is not None and before[1] and not begins:
            apart = True
        if apart:
            over.append(at)
        over[-1] = at
        (scheduled if begins else finished)[i] = len(over) - 1
    return scheduled, finished, over


@dataclass(frozen=True)
class Batched:
    """
    A replay in instants: time ``LENGTH`` · k is instant k. ``scheduled`` is, for each request of the trace, the time at which the
    engine scheduled it; −1 for a load by hand. From ``boundary`` on, requests come in bursts.
    """

    trace: Trace
    told: Outcome
    scheduled: list[int]
    boundary: int


LENGTH = 1_000


def in_batches(run: Run, **fleet: Any) -> Batched:
    """
    Every request, in the order in which the API server passed it on, from the instant at which the engine could first have
    scheduled it, for as many instants as it ran. When it starts is the replay's word.

    A load by hand is a use without a length, at a time of its own between two instants. ``fleet`` as for ``Run.fleet``.
    """
    scheduled, finished, over = instants(run.requests)
    asked = []
    for k, r in enumerate(run.requests):
        first = min(bisect.bisect_left(over, r["queued"]), scheduled[k])
        code = BASE if r["adapter"] is None else NAMES.index(r["adapter"])
        hold = (finished[k] - scheduled[k]) * LENGTH
        asked.append((first * LENGTH, r["arrived"], code, hold, scheduled[k] * LENGTH))
    for k, r in enumerate(run.preloads):
        at = bisect.bisect_left(over, r["at"]) * LENGTH - LENGTH // 2 + k
        asked.append((at, r["at"], NAMES.index(r["adapter"]), 0, -1))
    at, _, adapter, hold, starts = (list(column) for column in zip(*sorted(asked), strict=True))
    trace = Trace(adapter, adapters=len(NAMES), at=at, hold=hold)
    boundary = bisect.bisect_left(over, run.boundary) * LENGTH - LENGTH // 2
    return Batched(trace, replay(trace, run.fleet(**fleet)), starts, boundary)


def replay_steps(trace: Trace, told: Outcome, pins: Sequence[str]) -> list[Step]:
    """The replay's moves in steps. An adapter leaves the slot that it was in before the step; pins came before all."""
    again = told.reloads
    columns = [
        (told.start, trace.adapter, told.lookup, told.slot, told.victim, told.cpu_victim),
        (again.at, again.adapter, again.lookup, again.slot, again.victim, again.cpu_victim),
    ]
    loads = sorted(row for part in columns for row in zip(*(c.tolist() for c in part), strict=True) if row[2] > 0)
    table = {name: slot for slot, name in enumerate(pins)}
    steps: list[Step] = []
    for at in sorted({load[0] for load in loads}):
        moves, entered = list[Move](), dict[str, int]()
        for _, adapter, lookup, slot, victim, cpu_victim in (load for load in loads if load[0] == at):
            entered[NAMES[adapter]] = slot
            moves.append(Move("load", "gpu", NAMES[adapter], slot))
            moves += [Move("load", "cpu", NAMES[adapter], -1)] * (lookup == 2)
            moves += [Move("evict", "cpu", NAMES[cpu_victim], -1)] * (cpu_victim >= 0)
            moves += [Move("evict", "gpu", NAMES[victim], table[NAMES[victim]])] if victim >= 0 else []
        table = {**{n: s for n, s in table.items() if Move("evict", "gpu", n, s) not in moves}, **entered}
        steps.append(Step(at, tuple(sorted(moves))))
    return steps


# --- side by side --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """How many moves are the same, in order, of how many on the side that has more; and every difference in words."""

    same: int
    total: int
    differences: str

    @property
    def ratio(self) -> float:
        return self.same / self.total if self.total else 1.0


def side_by_side(engine: Sequence[Step], model: Sequence[Step]) -> Agreement:
    """The longest way through both sequences of moves, step by step."""
    left, right = ([move for step in steps for move in step.moves] for steps in (engine, model))
    same, said = 0, []
    for what, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if what == "equal":
            same += b - a
        else:
            said.append(
                f"after {a} moves the engine did {list(map(tuple, left[a:b]))}, the replay {list(map(tuple, right[c:d]))}"
            )
    return Agreement(same, max(len(left), len(right)), "\n".join(said))
