"""What is true of a simulation: what happened when, to whom, and hour by hour how each pod spent its time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import HOUR
from lora_watch.simulate.engines import Life
from lora_watch.simulate.scenario import AnyEvent, Burst, Onboard, Reload, Restart, Retire, Scan, Scenario, Split
from lora_watch.simulate.traffic import Catalogue


def truth(scenario: Scenario, known: Catalogue, pods: Mapping[str, Any], until: int, seed: int) -> dict[str, Any]:
    """
    A JSON object; times are µs UTC.

    ``events`` say kind, start, end (null: for good), adapters and pods. ``findings`` is what a diagnosis must and must not say.
    ``pods`` are those of :func:`pods_truth`.
    """
    return {
        "scenario": scenario.name,
        "about": scenario.about,
        "seed": seed,
        "window": [scenario.begin, until],
        "cluster": scenario.cluster,
        "findings": scenario.truth.model_dump(mode="json"),
        "events": [_event(scenario, event, known, until) for event in scenario.events if event.during(scenario.begin)[0] < until],
        "pods": dict(pods),
    }


def pods_truth(scenario: Scenario, lives: Sequence[Life], until: int) -> dict[str, dict[str, Any]]:
    """
    By pod, from all its lives: pool, role, and by hour from ``hour`` (hours since the epoch) on:

    ``up_seconds``, ``busy_share`` (what a GPU utilisation of any kind shows: steps, and the loads inside them),
    ``inference_share`` (without the loads), ``requests`` served, ``loads``, of them ``cold``, and ``swaps``. A share is null
    where the pod was not up. Hours in which the process changed are sums of both.
    """
    pods: dict[str, list[Life]] = {}
    for life in sorted(lives, key=lambda life: (life.pool.name, life.pod, life.begin)):
        pods.setdefault(f"{life.pool.name}-{life.pod}", []).append(life)
    return {name: _pod(scenario, of_pod, until) for name, of_pod in pods.items()}


def _event(scenario: Scenario, event: AnyEvent, known: Catalogue, until: int) -> dict[str, Any]:
    start, end = event.during(scenario.begin)
    codes: Sequence[int] = ()
    if isinstance(event, Split):
        codes = [code for code, name in enumerate(known.names) if name.endswith(event.suffix)]
    elif isinstance(event, Onboard):
        codes = np.flatnonzero(known.born == start).tolist()
    elif isinstance(event, (Retire, Burst)):
        codes = event.adapters
    elif isinstance(event, Scan):
        codes = range(scenario.traffic.adapters)
    elif isinstance(event, Reload):
        codes = [event.adapter]
    pods = [f"{scenario.pools[event.pool].name}-{event.pod}"] if isinstance(event, (Restart, Reload)) else []
    return {
        "kind": event.kind,
        "start": start,
        "end": end if end < until else None,
        "adapters": [known.names[code] for code in codes],
        "pods": pods,
    }


def _pod(scenario: Scenario, lives: Sequence[Life], until: int) -> dict[str, Any]:
    first = scenario.begin // HOUR
    count = -(-until // HOUR) - first
    sums: NDArray[np.int64] = np.zeros((7, count), dtype=np.int64)
    for life in lives:
        pace, loaded = life.pace, life.loaded
        for row, times in enumerate((pace.up, pace.busy, pace.stalled)):
            sums[row, pace.hour - first : pace.hour - first + len(times)] += times
        last = min(life.end, until)
        cold = loaded.done[life.lookup[loaded.place] == 2]
        for row, times in enumerate((life.ready, loaded.done, cold, loaded.done[loaded.victim >= 0]), start=3):
            sums[row] += np.bincount(times[times < last] // HOUR - first, minlength=count)
    up, busy, stalled = sums[0], sums[1], sums[2]
    return {
        "pool": lives[0].pool.name,
        "role": lives[0].pool.role,
        "hour": first,
        "up_seconds": (up / 1e6).tolist(),
        "busy_share": _share(busy, up),
        "inference_share": _share(busy - stalled, up),
        "requests": sums[3].tolist(),
        "loads": sums[4].tolist(),
        "cold": sums[5].tolist(),
        "swaps": sums[6].tolist(),
    }


def _share(part: NDArray[np.int64], up: NDArray[np.int64]) -> list[float | None]:
    return [round(int(a) / int(b), 6) if b else None for a, b in zip(part, up, strict=True)]
