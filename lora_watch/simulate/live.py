"""
A simulated cluster behind the real interfaces: each pod's sidecar and its engine's ``/metrics`` page, on loopback.

What was simulated is played as a recording is: logs of event log v1 that grow as the moments come, and pages in vLLM's
exposition. ``speed`` presses time together: ten simulated seconds become one, with every duration in them; what reads must
look that much more often.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from lora_watch import names
from lora_watch.model import DAY, SECOND, PodId
from lora_watch.simulate.engines import Life, lives
from lora_watch.simulate.recorded import Playing, Recording, playing
from lora_watch.simulate.rows import Part, Rows
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.traffic import Catalogue, catalogue, everything
from lora_watch.sources.base import parse_stream

LONGEST_DAYS = 1.0
"""A longer simulation is not played: its logs and pages are held in memory."""
_TIMES = ("at", "arrived", "queued", "scheduled", "first_token", "finished")
_SECONDS = ("seconds", "wall_seconds", "execute_seconds", "adapter_seconds")
_LEFT_OUT = ("date", "bucket", "cluster", "pool", "role", "pod", "stream", "provenance", "source", "detail")


@dataclass(frozen=True, slots=True)
class Served:
    """Where a pod of the simulated cluster is served."""

    pod: PodId
    playing: Playing


@contextmanager
def serving(scenario: Scenario, days: float, seed: int, *, ahead: float, speed: float = 1.0) -> Iterator[tuple[Served, ...]]:
    """
    Serve ``days`` days of a scenario, pressed together by ``speed``, so that they end ``ahead`` seconds from now.

    What lies in the past is there at once, the rest comes in its time, until the block is left. The pods' clocks agree within a
    few ms, as well as those of real ones do. ValueError where it is longer than ``LONGEST_DAYS`` or a speed is not positive.
    """
    if not 0 < days <= LONGEST_DAYS or speed <= 0:
        raise ValueError(f"what is played takes up to {LONGEST_DAYS:g} day at a positive speed, not {days:g} days at {speed:g}")
    cluster = recordings(scenario, days, seed, speed)
    last = max(recording.window.end for recording in cluster.values())
    with ExitStack() as stack:
        yield tuple(
            Served(pod, stack.enter_context(playing(recording, ahead=ahead - (last - recording.window.end) / SECOND)))
            for pod, recording in cluster.items()
        )


def recordings(scenario: Scenario, days: float, seed: int, speed: float = 1.0) -> dict[PodId, Recording]:
    """What each pod's agents wrote and its engine's page said, as recordings with a common clock."""
    known, until = catalogue(scenario, seed), scenario.begin + round(days * DAY)
    served = list(lives(scenario, known, everything(scenario, known, days, seed), days, seed))
    logs: dict[PodId, dict[str, list[dict[str, Any]]]] = {}
    for part in Rows(scenario, known, served, until, seed).parts():
        for pod, boot, record in _records(part):
            logs.setdefault(pod, {}).setdefault(f"{boot}.{1:012}.jsonl", []).append(_pressed(record, scenario.begin, speed))
    pages: dict[str, list[tuple[int, str]]] = {}
    for life in served:
        name = f"{life.pool.name}-{life.pod}"
        pages.setdefault(name, []).extend(
            (scenario.begin + round((at - scenario.begin) / speed), text)
            for at, text in _pages(life, known, scenario.begin, speed)
        )
    return {
        pod: Recording(
            {name: sorted(records, key=lambda record: record["seq"]) for name, records in segments.items()},
            tuple(sorted(pages[pod.pod])),
        )
        for pod, segments in sorted(logs.items(), key=lambda entry: (entry[0].pool, entry[0].pod))
    }


def _records(part: Part) -> Iterator[tuple[PodId, str, dict[str, Any]]]:
    """Rows as the records of event log v1 they would have come from: what is null is absent, ``detail`` is spread out."""
    for frame, kind in ((part.events, None), (part.requests, "request")):
        for row in frame.iter_rows(named=True):
            boot = parse_stream(row["stream"])[-1]
            record = {"v": 1, "boot": boot, "seq": row["seq"], "at": row["at"], "kind": kind or row["kind"], "tp_rank": 0}
            record |= {name: value for name, value in row.items() if name not in _LEFT_OUT and value is not None}
            record |= json.loads(row.get("detail") or "{}")
            yield PodId(row["cluster"], row["pod"], row["pool"], row["role"]), boot, record


def _pressed(record: dict[str, Any], begin: int, speed: float) -> dict[str, Any]:
    """The record on a clock that runs ``speed`` times as fast from ``begin`` on."""
    moved = {name: begin + round((record[name] - begin) / speed) for name in _TIMES if name in record}
    return {**record, **moved, **{name: record[name] / speed for name in _SECONDS if name in record}}


def _pages(life: Life, known: Catalogue, begin: int, speed: float) -> Iterator[tuple[int, str]]:
    """
    The engine's page at each sample of the life: when it was, and its text.

    With the habits of vLLM's gauge: the value is a time stamp, each combination of names is a series that stays for good, both
    labels hold the adapters in flight, and an engine that nobody has asked for anything has no series.
    """
    pace = life.pace
    opened = life.ready[life.opens]
    seen: dict[str, float] = {}
    for n, at in enumerate(pace.sampled_at.tolist()):
        there = np.flatnonzero((opened <= at) & (life.closes > at))
        in_flight = sorted({known.names[code] for code in life.adapter[life.opens[there]].tolist()})
        if len(opened) and at >= opened[0]:
            labels = {name: ",".join(in_flight) for name in ("running_lora_adapters", "waiting_lora_adapters")}
            seen[_labels({"max_lora": str(life.pool.slots), **labels})] = (begin + (at - begin) / speed) / SECOND
        capacity, deferred = int(pace.capacity[n]), int(pace.deferred[n])
        engine = {"engine": "0", "model_name": "simulated"}
        values = [
            (names.REQUESTS_RUNNING, engine, int(pace.running[n])),
            (names.REQUESTS_WAITING, engine, capacity + deferred),
            (names.WAITING_BY_REASON, {**engine, "reason": "capacity"}, capacity),
            (names.WAITING_BY_REASON, {**engine, "reason": "deferred"}, deferred),
        ]
        lines = [f"# TYPE {names.LORA_REQUESTS_INFO} gauge"]
        lines += [f"{names.LORA_REQUESTS_INFO}{text} {value!r}" for text, value in seen.items()]
        for name, labels, value in values:
            lines += [f"# TYPE {name} gauge", f"{name}{_labels(labels)} {float(value)}"]
        yield at, "\n".join(dict.fromkeys(lines)) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items()) + "}"
