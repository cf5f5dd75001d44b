"""
Pages of engines, the router and GPUs whose lives are told piece by piece: what they need of the pieces before is kept here.

Pieces are windows that follow each other. A page is of the newest sample that is not later than the moment; a moment behind the
last window has the page of that window's end, one before all of them an empty page. Counts begin with the first window, as those
of a process that began then do.
"""

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lora_watch import names
from lora_watch.model import HOUR, SECOND, Window
from lora_watch.simulate.engines import Life
from lora_watch.simulate.gpus import SHOWN, Gpu, whole_seconds
from lora_watch.simulate.meters import ENGINE, MODEL, Meter
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.scrapes import attempt_labels, attempts
from lora_watch.simulate.traffic import Catalogue

KEPT_PAGES = 200
"""Of the router."""
KEPT = HOUR
"""How much of the past a GPU's page can still be of, beside the last window."""
_COUNTED: tuple[tuple[str, Mapping[str, str], Callable[[Meter, NDArray[np.int64]], NDArray[np.int64]]], ...] = (
    (names.PROMPT_TOKENS, ENGINE, Meter.prompt_tokens),
    (names.GENERATION_TOKENS, ENGINE, Meter.generation_tokens),
    (names.REQUEST_SUCCESS, {**ENGINE, "finished_reason": "stop"}, Meter.successes),
)


class EnginePages:
    """
    One pod's page at each of its samples: requests running, waiting and done, tokens, and the gauge of adapters.

    With the habits of vLLM's gauge: the value is a time stamp, each combination of names is a series that stays for good, both
    labels hold the adapters in flight, and an engine that nobody has asked for anything has no series. Of the past the pages of
    ``keep`` µs before the last window are kept: after an hour of thrash each has a hundred kB.
    """

    def __init__(self, known: Catalogue, keep: int) -> None:
        self._known, self._keep = known, keep
        self._boot = -1
        self._seen: dict[str, float] = {}
        self._counts = np.zeros(len(_COUNTED), dtype=np.int64)
        self._pages: deque[tuple[int, str]] = deque()

    def at(self, moment: int) -> str:
        """The newest page that is not later than ``moment``; nothing where there is none."""
        pages = list(self._pages)
        index = bisect_right(pages, moment, key=lambda page: page[0])
        return pages[index - 1][1] if index else ""

    def go_on(self, life: Life, window: Window) -> None:
        """Add the pages of the samples in the next window."""
        pace, meter = life.pace, Meter(life)
        if life.boot != self._boot:
            self._boot, self._seen, self._counts = life.boot, {}, np.zeros(len(_COUNTED), dtype=np.int64)
        first, last = np.searchsorted(pace.sampled_at, [window.start, window.end])
        moments = np.concatenate([[window.start - 1], pace.sampled_at[first:last], [window.end - 1]])
        counts = np.stack([count(meter, moments) for _, _, count in _COUNTED])
        counts += (self._counts - counts[:, 0])[:, None]
        self._counts = counts[:, -1]
        while len(self._pages) > 1 and self._pages[1][0] <= window.start - self._keep:
            self._pages.popleft()
        for n in range(first, last):
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
            for (name, labels, _), value in zip(_COUNTED, counts[:, n - first + 1].tolist(), strict=True):
                lines += [f"# TYPE {name.removesuffix('_total')} counter", f"{name}{_labels(labels)} {float(value)}"]
            self._pages.append((at, "\n".join(dict.fromkeys(lines)) + "\n"))


class RouterPages:
    """The router's page at each sample of the engines behind it, in the names of llm-d: requests, attempts, and queues."""

    def __init__(self, scenario: Scenario, known: Catalogue) -> None:
        pool = scenario.pools[-1]
        self._pool, self._known = pool.name, known
        self._pods = tuple(f"{pool.name}-{pod}" for pod in range(pool.pods))
        self._counts = np.zeros((pool.pods, len(known) + 1), dtype=np.int64)
        self._seen: deque[tuple[int, NDArray[np.int64], NDArray[np.int64]]] = deque(maxlen=KEPT_PAGES)

    def at(self, moment: int) -> str:
        """The page at a moment (µs UTC)."""
        seen = list(self._seen)
        index = bisect_right(seen, moment, key=lambda one: one[0])
        if not index:
            return ""
        _, counts, queues = seen[index - 1]
        models = {code: self._known.names[code - 1] if code else MODEL for code in np.flatnonzero(counts.any(axis=0)).tolist()}
        own = {code: {"model_name": name, "target_model_name": name, "priority": "0"} for code, name in models.items()}
        requests = [({"fairness_id": "", **own[code]}, int(counts[:, code].sum())) for code in models]
        sent = [
            (attempt_labels(pod, models[code]), int(counts[place, code]))
            for place, pod in enumerate(self._pods)
            for code in np.flatnonzero(counts[place]).tolist()
        ]
        pool = {"name": self._pool}
        waiting = [
            ({"model_server_endpoint": f"{pod}-rank-0", **pool}, int(n)) for pod, n in zip(self._pods, queues, strict=True)
        ]
        families = (
            (names.EPP_REQUESTS[0], "counter", requests),
            (names.EPP_ATTEMPTS[0], "counter", sent),
            (names.EPP_POD_QUEUE[0], "gauge", waiting),
            (names.EPP_READY[0], "gauge", [(pool, len(self._pods))]),
        )
        lines = []
        for name, kind, samples in families:
            lines.append(f"# TYPE {name.removesuffix('_total')} {kind}")
            lines += [f"{name}{_labels(labels)} {float(value)}" for labels, value in samples]
        return "\n".join(lines) + "\n"

    def go_on(self, lives: Sequence[Life], window: Window) -> None:
        """Add the next window."""
        behind: dict[str, list[Life]] = {pod: [] for pod in self._pods}
        for life in lives:
            if life.pool.name == self._pool:
                behind[f"{life.pool.name}-{life.pod}"].append(life)
        inside = [life.pace.sampled_at for life in lives]
        at = np.unique(np.concatenate(inside)) if inside else np.empty(0, dtype=np.int64)
        at = at[slice(*np.searchsorted(at, [window.start, window.end]))]
        moments = np.concatenate([[window.start - 1], at, [window.end - 1]])
        came = [attempts([Meter(life).came for life in behind[pod]], moments, len(self._known)) for pod in self._pods]
        counts = np.stack(came)
        counts += (self._counts - counts[:, 0])[:, None]
        self._counts = counts[:, -1]
        for n, moment in enumerate(at.tolist()):
            queues = [sum(_waiting(life, moment) for life in behind[pod]) for pod in self._pods]
            self._seen.append((moment, counts[:, n + 1], np.array(queues, dtype=np.int64)))


def _waiting(life: Life, moment: int) -> int:
    place = int(np.searchsorted(life.pace.sampled_at, moment))
    if place == len(life.pace.sampled_at) or life.pace.sampled_at[place] != moment:
        return 0
    return int(life.pace.capacity[place]) + int(life.pace.deferred[place])


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
        for pod, (first, spent) in list(self._spent.items()):
            gpu = self._gpus[pod]
            at = np.array([min(moment, first + (spent.shape[1] - 1) * SECOND)])
            start, end = (int(edge[0]) for edge in gpu.collected(at))
            if start < first:
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
