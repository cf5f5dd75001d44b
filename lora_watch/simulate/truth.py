"""What is true of a simulation: what happened when, to whom, and hour by hour how each pod spent its time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import HOUR, Window
from lora_watch.simulate.engines import Life
from lora_watch.simulate.scenario import AnyEvent, Burst, Onboard, Reload, Restart, Retire, Scan, Scenario, Split
from lora_watch.simulate.traffic import Catalogue


def truth(scenario: Scenario, known: Catalogue, pods: Mapping[str, Any], until: int, seed: int) -> dict[str, Any]:
    """
    A JSON object; times are µs UTC.

    ``events`` say kind, start, end (null: for good), adapters and pods. ``findings`` is what a diagnosis must and must not say.
    ``pods`` are those of :class:`Hours`.
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


class Hours:
    """
    By pod, from all its lives: pool, role, and by hour from ``hour`` (hours since the epoch) on:

    ``up_seconds``, ``busy_share`` (what a GPU utilisation of any kind shows: steps, and the loads inside them),
    ``inference_share`` (without the loads), ``requests`` served, ``loads``, of them ``cold``, and ``swaps``. A share is null
    where the pod was not up. Hours in which the process changed are sums of both.
    """

    def __init__(self, scenario: Scenario, until: int) -> None:
        self._first = scenario.begin // HOUR
        self._until = until
        self._sums: dict[str, tuple[str, str, NDArray[np.int64]]] = {}

    def count(self, lives: Sequence[Life], window: Window) -> None:
        """Add what the lives, whole or pieces that hold the window, did in it."""
        for life in lives:
            name = f"{life.pool.name}-{life.pod}"
            if name not in self._sums:
                hours = -(-self._until // HOUR) - self._first
                self._sums[name] = (life.pool.name, life.pool.role, np.zeros((7, hours), dtype=np.int64))
            _count(self._sums[name][2], self._first, life, Window(window.start, min(window.end, self._until)))

    def told(self) -> dict[str, dict[str, Any]]:
        """The sums so far as JSON objects, in the order in which the pods were counted."""
        return {name: _told(self._first, *sums) for name, sums in self._sums.items()}


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


def _count(sums: NDArray[np.int64], first: int, life: Life, window: Window) -> None:
    pace, loaded = life.pace, life.loaded
    for row, times in enumerate((pace.up, pace.busy, pace.stalled)):
        sums[row, pace.hour - first : pace.hour - first + len(times)] += times
    cold = loaded.done[life.lookup[loaded.place] == 2]
    for row, times in enumerate((life.ready, loaded.done, cold, loaded.done[loaded.victim >= 0]), start=3):
        inside = times[(times >= window.start) & (times < min(life.end, window.end))]
        sums[row] += np.bincount(inside // HOUR - first, minlength=sums.shape[1])


def _told(first: int, pool: str, role: str, sums: NDArray[np.int64]) -> dict[str, Any]:
    up, busy, stalled = sums[0], sums[1], sums[2]
    return {
        "pool": pool,
        "role": role,
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
