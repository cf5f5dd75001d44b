"""
What a simulated cluster answers to `GET /metrics`: each engine, the router, and the GPU exporters, at any moment.

``at(moment)`` is the text of a page scraped at that moment (µs UTC of the simulation). It is a function of the moment alone, so
any number of readers may ask in any order. Pages are made of lives, which are told whole, or of a ``Pod`` that is told piece by
piece: then of the moments it keeps, and empty as long as nothing is told. Several pages of one cluster cost less memory when they
are given the same ``Meter`` of each life (``metered``), or the same pods, instead of the lives.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from prometheus_client.utils import floatToGoString

from lora_watch import names
from lora_watch.model import SECOND
from lora_watch.simulate.engines import Life, pins_of
from lora_watch.simulate.gpus import COLLECT, MEMORY_MIB, SHOWN, Gpu, whole_seconds
from lora_watch.simulate.meters import BOUNDS, ENGINE, FINISHED_REASONS, MODEL, Counts, Meter, Times
from lora_watch.simulate.piecewise import CAME, ENDED, LOST, Pod, Process, Standing
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.scrapes import attempt_labels
from lora_watch.simulate.traffic import Catalogue

Lives = Sequence[Life] | Sequence[Meter]
Family = tuple[str, str, list[tuple[str, float]]]
"""Name and type of a metric family, and its samples: what follows the name on their lines, labels included, and the value."""
Clock = Callable[[int], int]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
POOL_REFRESH = 5_000_000
"""µs between two looks of the router at its pool's averages, by default."""
_NOT_SHOWN = -1
_LOST = "ModelServerError"
"""The router's word for a request whose engine went away."""


def metered(lives: Sequence[Life | Meter], speed: float = 1.0) -> list[Meter]:
    """The meters of the lives, pod by pod and in the order of their begins; what is a meter already stays that one."""
    meters = [one if isinstance(one, Meter) else Meter(one, speed) for one in lives]
    return sorted(meters, key=lambda meter: (meter.life.pool.name, meter.life.pod, meter.life.begin))


def pods_of(lives: Lives, known: Catalogue, speed: float = 1.0) -> list[Pod]:
    """The pods whose whole lives these are, by name of the pool and number."""
    pods = []
    for (pool, number), meters in groupby(metered(lives, speed), key=lambda meter: (meter.life.pool.name, meter.life.pod)):
        pod = Pod(pool, f"{pool}-{number}", len(known))
        for meter in meters:
            pod.whole(meter)
        pods.append(pod)
    return pods


class EnginePages:
    """
    The page of one pod's engine, through all the lives of the pod: a process that starts anew counts from 0.

    ``residency``: the engine is one that has the residency gauges of an open proposal, ``vllm-54830`` (adapters by name) or
    ``vllm-45820`` (counts by tier). ``clock`` turns a moment into what the pod's clock shows (µs UTC), for the gauge whose value
    is a time stamp; ``speed`` is how much faster the simulation is played, by which durations shrink. ``most_series``: of the
    gauge's series a page has only about so many, those that were set last; a real engine shows all that it ever had.
    """

    def __init__(
        self,
        lives: Lives | Pod,
        known: Catalogue,
        *,
        residency: bool = False,
        upstream: Literal["vllm-54830", "vllm-45820"] = "vllm-54830",
        clock: Clock = int,
        speed: float = 1.0,
        most_series: int | None = None,
    ) -> None:
        self._pod = lives if isinstance(lives, Pod) else pods_of(lives, known, speed)[0]
        self._known, self._clock, self._speed = known, clock, speed
        self._residency, self._upstream, self._most_series = residency, upstream, most_series
        self._gauge: _Gauge | None = None
        self._lock = threading.Lock()

    def at(self, moment: int) -> str:
        """The page at a moment; of the process that runs then, before the first one that of its start."""
        process = self._pod.at(moment)
        if process is None:
            return ""
        engine = process.at(moment)
        families = [*self._stock(engine)]
        if self._residency:
            families += self._named(engine) if self._upstream == "vllm-54830" else self._by_tier(engine)
        with self._lock:
            if self._gauge is None or self._gauge.process is not process:
                self._gauge = _Gauge(process, engine.life.pool.slots, self._known, self._clock, self._most_series)
            return _text(families) + self._gauge.at(engine)

    def _stock(self, engine: Standing) -> Iterator[Family]:
        """What any release since 0.20 shows of requests."""
        running, capacity, deferred = engine.queues()
        waiting = {"capacity": capacity, "deferred": deferred}
        yield names.REQUESTS_RUNNING, "gauge", [(_labels(ENGINE), running)]
        yield names.REQUESTS_WAITING, "gauge", [(_labels(ENGINE), capacity + deferred)]
        by_reason = [(_labels({**ENGINE, "reason": reason}), float(count)) for reason, count in waiting.items()]
        yield names.WAITING_BY_REASON, "gauge", by_reason
        for name in (names.PROMPT_TOKENS, names.GENERATION_TOKENS):
            yield name, "counter", [(_labels(ENGINE), int(engine.count(name)[0]))]
        ended = {FINISHED_REASONS[0]: int(engine.count(names.REQUEST_SUCCESS)[0])}
        of_reasons = [
            (_labels({**ENGINE, "finished_reason": reason}), float(ended.get(reason, 0))) for reason in FINISHED_REASONS
        ]
        yield names.REQUEST_SUCCESS, "counter", of_reasons
        for name in names.HISTOGRAMS:
            yield name, "histogram", list(self._buckets(name, ENGINE, engine.count(name)))

    def _named(self, engine: Standing) -> Iterator[Family]:
        """The residency gauges of vllm-54830: a series for each adapter and tier, gone when the adapter is."""
        in_slots, cached = engine.slots().values(), engine.cached()
        pinned = set(pins_of(engine.life.pool, engine.life.pod))
        loaded = []
        for level, codes in (("gpu", in_slots), ("cpu", cached)):
            for code in sorted(codes):
                own = {"adapter_name": self._known.names[code], "level": level, "pinned": str(code in pinned).lower()}
                loaded.append((_labels({**ENGINE, **own, "rank": str(self._known.rank[code])}), 1.0))
        yield names.ADAPTER_LOADED, "gauge", loaded
        yield names.GPU_ADAPTERS, "gauge", [(_labels(ENGINE), len(in_slots))]
        yield names.CPU_ADAPTERS, "gauge", [(_labels(ENGINE), len(cached))]
        yield names.MAX_GPU_ADAPTERS, "gauge", [(_labels(ENGINE), engine.life.pool.slots)]
        seconds = [
            sample
            for transition, observed in zip(("load", "activate"), engine.count(names.LOAD_SECONDS), strict=True)
            for sample in self._buckets(names.LOAD_SECONDS, {**ENGINE, "transition": transition}, observed)
        ]
        yield names.LOAD_SECONDS, "histogram", seconds

    def _by_tier(self, engine: Standing) -> Iterator[Family]:
        """The cache metrics of vllm-45820: how full each tier is, and how often a use found its adapter there."""
        held = {"gpu": len(engine.slots()), "cpu": len(engine.cached())}
        most = {"gpu": engine.life.pool.slots, "cpu": engine.life.pool.cpu_capacity or engine.life.pool.slots}
        hot, warm, cold = engine.count(names.CACHE_LOOKUPS).tolist()
        hits, lookups = {"gpu": hot, "cpu": warm}, {"gpu": hot + warm + cold, "cpu": warm + cold}
        for name, kind, values in (
            (names.CACHE_USAGE, "gauge", {tier: held[tier] / most[tier] for tier in held}),
            (names.CACHE_ADAPTERS, "gauge", held),
            (names.CACHE_HITS, "counter", hits),
            (names.CACHE_LOOKUPS, "counter", lookups),
        ):
            yield name, kind, [(_labels({**ENGINE, "tier": tier}), float(value)) for tier, value in values.items()]

    def _buckets(self, name: str, labels: Mapping[str, str], observed: Counts) -> Iterator[tuple[str, float]]:
        *counts, micros = observed.tolist()
        for bound, count in zip((*map(_number, BOUNDS[name]), "+Inf"), counts, strict=True):
            yield f"_bucket{_labels({**labels, 'le': bound})}", count
        yield f"_count{_labels(labels)}", counts[-1]
        yield f"_sum{_labels(labels)}", micros / (SECOND * self._speed)


class _Gauge:
    """
    The stock gauge of adapters of one process, with its habits.

    Its value is the time it was set, at every step; each combination of adapters in flight is a series, that stays for good
    with the time it was set last; both lists hold the same names; until the first step there is none. After hours of thrash there
    are tens of thousands, of which few were set since somebody asked last: the lines of the others are kept. With ``most`` those
    are shown that were set last, about so many.
    """

    def __init__(self, process: Process, slots: int, known: Catalogue, clock: Clock, most: int | None) -> None:
        self.process = process
        self._slots, self._known, self._clock, self._most = slots, known, clock, most
        self._set_at: Times = np.empty(0, dtype=np.int64)
        self._lines: dict[int, str] = {}

    def at(self, engine: Standing) -> str:
        """The family's lines."""
        combinations, shown = self.process.combinations(engine)
        if self._most is not None and len(shown) > self._most:
            shown = np.where(shown >= np.partition(shown, -self._most)[-self._most], shown, _NOT_SHOWN)
        before = np.full(len(shown), _NOT_SHOWN, dtype=np.int64)
        before[: len(self._set_at)] = self._set_at[: len(shown)]
        for number in range(len(shown), len(self._set_at)):
            self._lines.pop(number, None)
        for number in np.flatnonzero(shown != before).tolist():
            self._lines.pop(number, None)
            if shown[number] != _NOT_SHOWN:
                self._lines[number] = self._line(combinations[number], int(shown[number]))
        self._set_at = shown
        lines = [self._lines[number] for number in np.flatnonzero(shown != _NOT_SHOWN).tolist()]
        return f"# TYPE {names.LORA_REQUESTS_INFO} gauge\n" + "".join(lines)

    def _line(self, codes: Sequence[int], set_at: int) -> str:
        flying = ",".join(self._known.names[code] for code in codes)
        lists = {"running_lora_adapters": flying, "waiting_lora_adapters": flying}
        labels = _labels({"max_lora": str(self._slots), **lists})
        return f"{names.LORA_REQUESTS_INFO}{labels} {_number(self._clock(set_at) / SECOND)}\n"


class RouterPage:
    """
    The page of the router in front of all pods.

    ``spelling``: the names of llm-d's router, those of the Gateway API's last one that had a router (``gaie``: the endpoint is
    then called ``pod_name``), or ``both``, as the releases of llm-d's have it, where the second set is a twin of the first.

    Attempts count a request when it comes to its pod; where a pool for prefill stands before one for decode, the router counts
    those of the one for decode. Averages are those of the router's last look at the pool.
    """

    def __init__(
        self,
        scenario: Scenario,
        known: Catalogue,
        lives: Lives | Sequence[Pod],
        *,
        spelling: Literal["llm-d", "gaie", "both"] = "both",
    ) -> None:
        self._scenario, self._known, self._spelling = scenario, known, spelling
        self._pods = _pods(lives, known)

    def at(self, moment: int) -> str:
        """The page at a moment."""
        if not all(pod.processes for pod in self._pods):
            return ""
        spellings = {"llm-d": (0,), "gaie": (2,), "both": (0, 2)}[self._spelling]
        return _text([family for spelling in spellings for family in self._families(moment, spelling)])

    def _families(self, moment: int, old: int) -> Iterator[Family]:
        """The families in one spelling: of a metric's names that of this place."""
        totals = self._by_adapter(moment, self._scenario.pools[0].name)[0]
        came, ended, lost = self._by_adapter(moment, self._scenario.pools[-1].name)
        first, tail = ({}, {}) if old else ({"fairness_id": ""}, {"priority": "0"})
        whose = {code: self._known.names[code - 1] if code else MODEL for code in np.flatnonzero(totals).tolist()}
        models = {code: {"model_name": name, "target_model_name": name} for code, name in whose.items()}
        requests = [(_labels({**first, **own, "priority": "0"}), float(totals[code])) for code, own in models.items()]
        yield names.EPP_REQUESTS[old], "counter", requests
        if lost.any():
            errors = [
                (_labels({"error_code": _LOST, **first, **models[code], **tail}), float(lost[code]))
                for code in np.flatnonzero(lost).tolist()
            ]
            yield names.EPP_ERRORS[old], "counter", errors
        running = [
            (_labels({"model_name": whose[code]} if old else {**first, **own, **tail}), float(came[code] - ended[code]))
            for code, own in models.items()
        ]
        yield names.EPP_RUNNING[old], "gauge", running
        yield names.EPP_ATTEMPTS[old], "counter", list(self._attempts(moment, "pod_name" if old else "endpoint_name"))
        pool = {"name": self._scenario.pools[-1].name}
        endpoint = "model_server_pod" if old else "model_server_endpoint"
        queues = [
            (_labels({endpoint: f"{pod.name}-rank-0", **pool}), float(sum(_queues(pod, moment)[1:])))
            for pod in self._of(pool["name"])
        ]
        yield names.EPP_POD_QUEUE[old], "gauge", queues
        looked = max(moment - (moment - self._scenario.begin) % POOL_REFRESH, self._scenario.begin)
        seen = np.array([_queues(pod, looked) for pod in self._of(pool["name"])])
        yield names.EPP_POOL_QUEUE[old], "gauge", [(_labels(pool), float(seen[:, 1:].sum(axis=1).mean()))]
        yield names.EPP_POOL_RUNNING[old], "gauge", [(_labels(pool), float(seen[:, 0].mean()))]
        yield names.EPP_READY[old], "gauge", [(_labels(pool), float(len(seen)))]

    def _of(self, pool: str) -> list[Pod]:
        return [pod for pod in self._pods if pod.pool == pool]

    def _attempts(self, moment: int, endpoint: str) -> Iterator[tuple[str, float]]:
        for pod in self._of(self._scenario.pools[-1].name):
            counts = self._counted(pod, CAME, moment)
            for code in np.flatnonzero(counts).tolist():
                model = self._known.names[code - 1] if code else MODEL
                yield _labels(attempt_labels(pod.name, model, endpoint)), float(counts[code])

    def _by_adapter(self, moment: int, pool: str) -> tuple[Counts, Counts, Counts]:
        """By adapter's code plus 1: requests of a pool that have come, that have ended, and of these the ones that got lost."""
        came, ended, lost = (
            np.sum([self._counted(pod, name, moment) for pod in self._of(pool)], axis=0) for name in (CAME, ENDED, LOST)
        )
        return came, ended, lost

    def _counted(self, pod: Pod, name: str, moment: int) -> Counts:
        counts = np.zeros(len(self._known) + 1, dtype=np.int64)
        for process in pod.processes:
            if process.begin <= moment:
                counts += process.at(moment).count(name)
        return counts


class GpuPage:
    """
    The page of the exporters of some pods' GPUs, one GPU a pod; see gpus.py for what its values are.

    Without ``kubernetes`` labels don't say which pod a GPU works for, but its host is called ``node-of-<pod>``. ``sm_active``:
    the exporter was asked for it. ``interval`` (µs, whole seconds): between two collections.
    """

    def __init__(
        self,
        scenario: Scenario,
        known: Catalogue,
        lives: Lives | Sequence[Pod],
        *,
        kubernetes: bool = True,
        sm_active: bool = False,
        interval: int = COLLECT,
    ) -> None:
        self._wanted = (*SHOWN, names.GPU_SM_ACTIVE) if sm_active else SHOWN
        self._gpus = [(Gpu(scenario, known, pod.name, interval), pod) for pod in _pods(lives, known)]
        self._labels = [_labels(gpu.labels(kubernetes=kubernetes)) for gpu, _ in self._gpus]

    def at(self, moment: int) -> str:
        """The page at a moment."""
        samples: dict[str, list[tuple[str, float]]] = {metric: [] for metric in (*self._wanted, names.GPU_MEMORY_USED)}
        for (gpu, pod), labels in zip(self._gpus, self._labels, strict=True):
            process = pod.at(moment)
            if process is None:
                return ""
            at = np.array([process.at(moment).moment])
            seconds = whole_seconds(*(int(edge[0]) for edge in gpu.collected(at)))
            values = gpu.values(at, seconds, _spent(gpu, pod, seconds))
            for metric in self._wanted:
                samples[metric].append((labels, float(values[metric][0])))
            samples[names.GPU_MEMORY_USED].append((labels, float(MEMORY_MIB)))
        return _text((metric, "gauge", of) for metric, of in samples.items())


def _pods(lives: Lives | Sequence[Pod], known: Catalogue) -> list[Pod]:
    pods = [one for one in lives if isinstance(one, Pod)]
    return pods or pods_of(metered([one for one in lives if not isinstance(one, Pod)]), known)


def _queues(pod: Pod, moment: int) -> tuple[int, int, int]:
    process = pod.at(moment)
    return (0, 0, 0) if process is None else process.at(moment).queues()


def _spent(gpu: Gpu, pod: Pod, seconds: Times) -> NDArray[np.int64]:
    """How a GPU's time was spent up to each of the seconds, from the first of them on."""
    spent = np.zeros((3, len(seconds)), dtype=np.int64)
    for process in pod.processes:
        for piece in process.pieces:
            edges = np.clip(seconds, piece.window.start, piece.window.end)
            if edges[0] < edges[-1]:
                told = gpu.spent([piece.meter], edges)
                spent += told - told[:, :1]
    return spent


def _number(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]  # the library has no types there


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items()) + "}"


def _text(families: Iterable[Family]) -> str:
    lines = []
    for name, kind, samples in families:
        lines.append(f"# TYPE {name} {kind}")
        lines += [f"{name}{rest} {_number(value)}" for rest, value in samples]
    return "\n".join(lines) + "\n"
