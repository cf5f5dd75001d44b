"""
What scrapes of a simulated cluster store: of engines, GPUs and the router, the rows that reading their pages would give.

Told window by window and pod by pod, each window right behind the last, so that counters go on from one to the next.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from prometheus_client.utils import floatToGoString

from lora_watch import names
from lora_watch.model import SECOND, PodId, Provenance, Window
from lora_watch.simulate.engines import Life
from lora_watch.simulate.gpus import SHOWN, Gpu, whole_seconds
from lora_watch.simulate.meters import BOUNDS, ENGINE, FINISHED_REASONS, MODEL, Meter
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.traffic import Catalogue
from lora_watch.sources.dcgm import Dcgm
from lora_watch.sources.epp import Epp
from lora_watch.sources.placed import Place
from lora_watch.sources.series import labels_json, series_id

Times = NDArray[np.int64]
Numbers = NDArray[np.int32] | NDArray[np.int64] | NDArray[np.float64]

ROUTER = "epp"
"""The name of the router's own pod."""
NAMESPACE, PORT = "llm", "8000"
"""Where the router finds the pods."""


@dataclass(frozen=True, slots=True)
class _Spent:
    """What a GPU's time went into, up to each of the last ``seconds`` (µs UTC), and in ``total`` up to where it was told."""

    seconds: Times
    spent: NDArray[np.int64]
    total: NDArray[np.int64]


class Scrapes:
    """
    Samples of a cluster, one a ``sample_seconds``: columns at, value, series, adapter, metric, labels, provenance, engine.

    Of engines: requests running and waiting, tokens, slots, and adapters in flight as the stock gauge tells them; with
    ``whole_pages`` the other counters and the histograms too. Of GPUs: what an exporter shows by default, with ``sm_active`` also
    that. With ``router_attempts`` what the router tells of each pod: attempts by adapter, and its queue.
    """

    def __init__(self, scenario: Scenario, known: Catalogue) -> None:
        self._scenario, self._known = scenario, known
        self._series: dict[tuple[str, str, str, str | None], str] = {}
        self._meters: dict[tuple[str, int], Meter] = {}
        self._gpus: dict[str, tuple[Gpu, _Spent]] = {}
        self._before: dict[tuple[str, int, str], NDArray[np.int64]] = {}
        self._stepped: set[tuple[str, int]] = set()
        self._dcgm, self._epp = Dcgm(), Epp({MODEL})

    def of(self, life: Life, where: PodId, window: Window) -> pl.DataFrame:
        """The samples of one life in the window: an engine's page at each moment, without adapters until its first step."""
        pace, meter, key = life.pace, self._meter(life), (where.pod, life.boot)
        inside = slice(*np.searchsorted(pace.sampled_at, [window.start, window.end]))
        at = pace.sampled_at[inside]
        running, capacity, deferred = pace.running[inside], pace.capacity[inside], pace.deferred[inside]

        def counted(name: str, values: Callable[[Times], NDArray[np.int64]]) -> NDArray[np.int64]:
            return self._since((*key, name), values, at, window)

        said: list[tuple[str, Mapping[str, str], Numbers]] = [
            (names.REQUESTS_RUNNING, ENGINE, running),
            (names.REQUESTS_WAITING, ENGINE, capacity + deferred),
            (names.WAITING_BY_REASON, {**ENGINE, "reason": "capacity"}, capacity),
            (names.WAITING_BY_REASON, {**ENGINE, "reason": "deferred"}, deferred),
            (names.PROMPT_TOKENS, ENGINE, counted(names.PROMPT_TOKENS, meter.prompt_tokens)),
            (names.GENERATION_TOKENS, ENGINE, counted(names.GENERATION_TOKENS, meter.generation_tokens)),
        ]
        if self._scenario.whole_pages:
            well = counted(names.REQUEST_SUCCESS, meter.successes)
            for reason in FINISHED_REASONS:
                ended = well if reason == FINISHED_REASONS[0] else np.zeros(len(at))
                said.append((names.REQUEST_SUCCESS, {**ENGINE, "finished_reason": reason}, ended))
            for name in names.HISTOGRAMS:
                said += self._histogram(name, meter, key, at, window)
        frames = [self._column(where, at, metric, labels, values) for metric, labels, values in said]
        stepped = at[len(at) :]
        if key in self._stepped:
            stepped = at
        elif len(life.ready):
            stepped = at[np.searchsorted(at, life.ready[0]) :]
            if life.ready[0] < window.end:
                self._stepped.add(key)
        slots = np.full(len(stepped), life.pool.slots)
        frames.append(self._column(where, stepped, names.SAMPLE_MAX_LORA, {"engine": "0"}, slots))
        looks, code = meter.in_flight(stepped)
        return pl.concat([*frames, self._in_flight(where, stepped[looks], code)])

    def of_pod(self, lives: Sequence[Life], where: PodId, window: Window) -> pl.DataFrame:
        """The samples of a pod's GPU, and what the router says of the pod, from its lives in the window in their order."""
        at = np.concatenate([life.pace.sampled_at for life in lives])
        at = at[slice(*np.searchsorted(at, [window.start, window.end]))]
        frames = [self._gpu(lives, where, at, window)]
        if self._scenario.router_attempts and where.pool == self._scenario.pools[-1].name:
            frames += [*self._attempts(lives, where, at, window), self._queue(lives, where, window)]
        return pl.concat(frames)

    def _gpu(self, lives: Sequence[Life], where: PodId, at: Times, window: Window) -> pl.DataFrame:
        gpu, told = self._gpus.get(where.pod) or self._first_look(where.pod, window.start)
        seconds = whole_seconds(int(told.seconds[-1]) + SECOND, window.end)
        edges = np.concatenate([[window.start], seconds, [window.end]])
        spent = gpu.spent([self._meter(life) for life in lives], edges)
        spent = told.total[:, None] + spent - spent[:, :1]
        told = _Spent(np.concatenate([told.seconds, seconds]), np.concatenate([told.spent, spent[:, 1:-1]], axis=1), spent[:, -1])
        shown = gpu.values(at, told.seconds, told.spent)
        kept = int(gpu.collected(np.array([window.end]))[0][0] - told.seconds[0]) // SECOND
        self._gpus[where.pod] = gpu, _Spent(told.seconds[kept:], told.spent[:, kept:], told.total)
        frames = []
        for metric in (*SHOWN, names.GPU_SM_ACTIVE) if self._scenario.sm_active else SHOWN:
            place = self._dcgm.place(metric, gpu.labels(), PodId(where.cluster, "", where.pool, where.role))
            frames.append(self._placed(place, at, metric, shown[metric]))
        return pl.concat(frames)

    def _first_look(self, pod: str, begin: int) -> tuple[Gpu, "_Spent"]:
        """Before its first life the GPU did nothing."""
        gpu = Gpu(self._scenario, self._known, pod)
        seconds = whole_seconds(int(gpu.collected(np.array([begin]))[0][0]), begin - 1)
        return gpu, _Spent(seconds, np.zeros((3, len(seconds)), dtype=np.int64), np.zeros(3, dtype=np.int64))

    def _attempts(self, lives: Sequence[Life], where: PodId, at: Times, window: Window) -> list[pl.DataFrame]:
        came = [self._meter(life).came for life in lives]
        total = self._since(
            (where.pod, 0, names.EPP_ATTEMPTS[0]), lambda moments: attempts(came, moments, len(self._known)), at, window
        )
        frames = []
        for code in np.flatnonzero(total.any(axis=0)).tolist():
            labels = attempt_labels(where.pod, self._known.names[code - 1] if code else MODEL)
            place = self._epp.place(names.EPP_ATTEMPTS[0], labels, PodId(where.cluster, ROUTER, where.pool, where.role))
            some = total[:, code] > 0
            frames.append(self._placed(place, at[some], names.EPP_ATTEMPTS[0], total[some, code]))
        return frames

    def _queue(self, lives: Sequence[Life], where: PodId, window: Window) -> pl.DataFrame:
        labels = {"name": where.pool, "model_server_endpoint": f"{where.pod}-rank-0"}
        place = self._epp.place(names.EPP_POD_QUEUE[0], labels, PodId(where.cluster, ROUTER, where.pool, where.role))
        insides = [slice(*np.searchsorted(life.pace.sampled_at, [window.start, window.end])) for life in lives]
        at, capacity, deferred = (
            np.concatenate([getattr(life.pace, name)[inside] for life, inside in zip(lives, insides, strict=True)])
            for name in ("sampled_at", "capacity", "deferred")
        )
        return self._placed(place, at, names.EPP_POD_QUEUE[0], capacity + deferred)

    def _histogram(
        self, name: str, meter: Meter, key: tuple[str, int], at: Times, window: Window
    ) -> list[tuple[str, Mapping[str, str], Numbers]]:
        counts = self._since((*key, name), lambda moments: meter.observed(name, moments).counts, at, window)
        micros = self._since((*key, f"{name}_sum"), lambda moments: meter.observed(name, moments).micros, at, window)
        bounds = [*map(floatToGoString, BOUNDS[name]), "+Inf"]
        return [
            *((f"{name}_bucket", {**ENGINE, "le": bound}, counts[:, n]) for n, bound in enumerate(bounds)),
            (f"{name}_count", ENGINE, counts[:, -1]),
            (f"{name}_sum", ENGINE, micros / SECOND),
        ]

    def _meter(self, life: Life) -> Meter:
        key = (f"{life.pool.name}-{life.pod}", life.boot)
        if key not in self._meters or self._meters[key].life is not life:
            self._meters[key] = Meter(life)
        return self._meters[key]

    def _since(
        self,
        key: tuple[str, int, str],
        values: Callable[[Times], NDArray[np.int64]],
        at: Times,
        window: Window,
    ) -> NDArray[np.int64]:
        """A count at the moments, over all windows so far: what it grew by in this one, on top of where the last one left it."""
        told = values(np.concatenate([[window.start - 1], at, [window.end - 1]]))
        total = self._before.get(key, 0) + told - told[0]
        self._before[key] = total[-1]
        return np.asarray(total[1:-1])

    def _placed(self, place: Place | str, at: Times, metric: str, values: Numbers) -> pl.DataFrame:
        if isinstance(place, str):
            raise TypeError(place)
        text = labels_json(place.labels)
        return pl.DataFrame({"at": at, "value": values.astype(np.float64)}).select(
            "at",
            "value",
            series=pl.lit(self._series_of(place.pod, metric, text, place.adapter)),
            adapter=pl.lit(place.adapter, dtype=pl.String),
            metric=pl.lit(metric),
            labels=pl.lit(text),
            provenance=pl.lit(str(place.provenance)),
            engine=pl.lit(place.labels.get("engine"), dtype=pl.String),
        )

    def _column(self, where: PodId, at: Times, metric: str, labels: Mapping[str, str], values: Numbers) -> pl.DataFrame:
        return self._placed(Place(where, labels), at, metric, values)

    def _in_flight(self, where: PodId, at: Times, code: NDArray[np.int64]) -> pl.DataFrame:
        """The stock gauge's newest series: a row for each adapter, or one without an adapter where there is none."""
        labels = {"engine": "0"}
        text = labels_json(labels)
        codes, place = np.unique(code, return_inverse=True)
        adapters = [self._known.names[one] if one >= 0 else None for one in codes]
        series = [self._series_of(where, names.SAMPLE_IN_FLIGHT, text, adapter) for adapter in adapters]
        return pl.DataFrame({"at": at, "value": (code >= 0).astype(np.float64)}).select(
            "at",
            "value",
            series=pl.Series(series, dtype=pl.String).gather(place),
            adapter=pl.Series(adapters, dtype=pl.String).gather(place),
            metric=pl.lit(names.SAMPLE_IN_FLIGHT),
            labels=pl.lit(text),
            provenance=pl.lit(str(Provenance.ACTIVITY)),
            engine=pl.lit("0"),
        )

    def _series_of(self, where: PodId, metric: str, labels: str, adapter: str | None) -> str:
        key = (where.pod, metric, labels, adapter)
        if key not in self._series:
            self._series[key] = series_id(where.cluster, where.pod, metric, labels, adapter)
        return self._series[key]


def attempt_labels(pod: str, model: str, endpoint: str = "endpoint_name") -> dict[str, str]:
    """The router's labels of the attempts that sent requests for a model (an adapter, or the base model) to a pod."""
    return {endpoint: pod, "namespace": NAMESPACE, "port": PORT, "status": "success", "target_model_name": model}


def attempts(came: Sequence[tuple[Times, NDArray[np.int64]]], at: Times, adapters: int) -> NDArray[np.int64]:
    """Requests that had come, by moment and by adapter's code plus 1 (0: the base model); ``came`` are times and codes."""
    counts = np.zeros((len(at), adapters + 1), dtype=np.int64)
    for times, codes in came:
        count = int(np.searchsorted(times, at[-1], side="right"))
        flat = np.searchsorted(at, times[:count]) * (adapters + 1) + codes[:count] + 1
        counts += np.bincount(flat, minlength=counts.size).reshape(counts.shape)
    return counts.cumsum(axis=0)
