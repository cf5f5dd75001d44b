"""
Pages of engines and GPUs whose lives are told piece by piece: what they need of the pieces before is kept here.

Pieces are windows that follow each other; a page of a moment that lies in none is empty.
"""

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lora_watch import names
from lora_watch.model import HOUR, SECOND, Window
from lora_watch.simulate.engines import Life
from lora_watch.simulate.gpus import SHOWN, Gpu, whole_seconds
from lora_watch.simulate.meters import ENGINE, Meter
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.traffic import Catalogue

KEPT_PAGES = 200
KEPT = HOUR


class EnginePages:
    """
    One pod's page at each of its samples: requests running and waiting, and the gauge of adapters.

    With the habits of vLLM's gauge: the value is a time stamp, each combination of names is a series that stays for good, both
    labels hold the adapters in flight, and an engine that nobody has asked for anything has no series.
    """

    def __init__(self, known: Catalogue) -> None:
        self._known = known
        self._boot = -1
        self._seen: dict[str, float] = {}
        self._pages: deque[tuple[int, str]] = deque(maxlen=KEPT_PAGES)

    def at(self, moment: int) -> str:
        """The newest page that is not later than ``moment``; nothing where there is none."""
        pages = list(self._pages)
        index = bisect_right(pages, moment, key=lambda page: page[0])
        return pages[index - 1][1] if index else ""

    def go_on(self, life: Life, window: Window) -> None:
        """Add the pages of the samples in the next window."""
        pace = life.pace
        if life.boot != self._boot:
            self._boot, self._seen = life.boot, {}
        for n in range(*np.searchsorted(pace.sampled_at, [window.start, window.end])):
            at = int(pace.sampled_at[n])
            there = np.flatnonzero((life.opened <= at) & (life.closes > at))
            flying = sorted({self._known.names[code] for code in life.adapter[life.opens[there]].tolist()})
            if flying or self._seen:
                lists = {name: ",".join(flying) for name in ("running_lora_adapters", "waiting_lora_adapters")}
                self._seen[_labels({"max_lora": str(life.pool.slots), **lists})] = at / SECOND
            capacity, deferred = int(pace.capacity[n]), int(pace.deferred[n])
            values = (
                (names.REQUESTS_RUNNING, ENGINE, int(pace.running[n])),
                (names.REQUESTS_WAITING, ENGINE, capacity + deferred),
                (names.WAITING_BY_REASON, {**ENGINE, "reason": "capacity"}, capacity),
                (names.WAITING_BY_REASON, {**ENGINE, "reason": "deferred"}, deferred),
            )
            lines = [f"# TYPE {names.LORA_REQUESTS_INFO} gauge"]
            lines += [f"{names.LORA_REQUESTS_INFO}{text} {value!r}" for text, value in self._seen.items()]
            for name, labels, value in values:
                lines += [f"# TYPE {name} gauge", f"{name}{_labels(labels)} {float(value)}"]
            self._pages.append((at, "\n".join(dict.fromkeys(lines)) + "\n"))


class GpuPages:
    """The page of the exporter of all pods' GPUs; what the values are is in gpus.py."""

    def __init__(self, scenario: Scenario, known: Catalogue) -> None:
        self._gpus = {
            f"{pool.name}-{pod}": Gpu(scenario, known, f"{pool.name}-{pod}")
            for pool in scenario.pools
            for pod in range(pool.pods)
        }
        self._spent: dict[str, tuple[int, NDArray[np.int64]]] = {}

    def at(self, moment: int) -> str:
        """The page at a moment (µs UTC): of each GPU what was collected last."""
        samples: dict[str, list[str]] = {metric: [] for metric in SHOWN}
        at = np.array([moment])
        for pod, (first, spent) in list(self._spent.items()):
            gpu = self._gpus[pod]
            start, end = (int(edge[0]) for edge in gpu.collected(at))
            if start < first or (end - first) // SECOND >= spent.shape[1]:
                continue
            inside = slice((start - first) // SECOND, (end - first) // SECOND + 1)
            values = gpu.values(at, whole_seconds(start, end), spent[:, inside])
            for metric, lines in samples.items():
                lines.append(f"{metric}{_labels(gpu.labels())} {float(values[metric][0])}")
        return "".join(f"# TYPE {metric} gauge\n" + "\n".join(lines) + "\n" for metric, lines in samples.items() if lines)

    def go_on(self, lives: Sequence[Life], window: Window) -> None:
        """Add the next window, which begins and ends with a whole second: how its seconds were spent."""
        seconds = whole_seconds(window.start, window.end)
        for pod, gpu in self._gpus.items():
            meters = [Meter(life) for life in lives if f"{life.pool.name}-{life.pod}" == pod]
            more = gpu.spent(meters, seconds)
            first, before = self._spent.get(pod, (window.start, np.zeros((3, 1), dtype=np.int64)))
            joined = np.concatenate([before, before[:, -1:] + more[:, 1:] - more[:, :1]], axis=1)
            forgotten = max(joined.shape[1] - KEPT // SECOND - len(seconds), 0)
            self._spent[pod] = first + forgotten * SECOND, joined[:, forgotten:]


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items()) + "}"
