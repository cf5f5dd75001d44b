"""
What a simulated cluster answers to `GET /metrics`: each engine, the router, and the GPU exporters, at any moment.

``at(moment)`` is the text of a page scraped at that moment (µs UTC of the simulation). It is a function of the moment alone, so
any number of readers may ask in any order. Pages tell of whole lives, from the begin of a simulation on; several pages of one
cluster cost less memory when they are given the same ``Meter`` of each life (``metered``) instead of the lives.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from prometheus_client.utils import floatToGoString

from lora_watch import names
from lora_watch.model import SECOND
from lora_watch.simulate.engines import Life, pins_of
from lora_watch.simulate.gpus import COLLECT, MEMORY_MIB, SHOWN, Gpu, whole_seconds
from lora_watch.simulate.meters import BOUNDS, ENGINE, FINISHED_REASONS, MODEL, Meter, Observed
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.scrapes import attempt_labels, attempts
from lora_watch.simulate.traffic import Catalogue

Lives = Sequence[Life] | Sequence[Meter]
Family = tuple[str, str, list[tuple[str, float]]]
"""Name and type of a metric family, and its samples: what follows the name on their lines, labels included, and the value."""
Clock = Callable[[int], int]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
POOL_REFRESH = 5_000_000
"""µs between two looks of the router at its pool's averages, by default."""
_LOST = "ModelServerError"
"""The router's word for a request whose engine went away."""


def metered(lives: Lives, speed: float = 1.0) -> list[Meter]:
    """The meters of the lives, pod by pod and in the order of their begins; what is a meter already stays that one."""
    meters = [one if isinstance(one, Meter) else Meter(one, speed) for one in lives]
    return sorted(meters, key=lambda meter: (meter.life.pool.name, meter.life.pod, meter.life.begin))


class EnginePages:
    """
    The page of one pod's engine, through all the lives of the pod: a process that starts anew counts from 0.

    ``residency``: the engine is one that has the residency gauges of an open proposal, ``vllm-54830`` (adapters by name) or
    ``vllm-45820`` (counts by tier). ``clock`` turns a moment into what the pod's clock shows (µs UTC), for the gauge whose value
    is a time stamp; ``speed`` is how much faster the simulation is played, by which durations shrink.
    """

    def __init__(
        self,
        lives: Lives,
        known: Catalogue,
        *,
        residency: bool = False,
        upstream: Literal["vllm-54830", "vllm-45820"] = "vllm-54830",
        clock: Clock = int,
        speed: float = 1.0,
    ) -> None:
        self._lives = [_Engine(meter, known, clock, speed) for meter in metered(lives, speed)]
        self._residency = residency
        self._upstream = upstream

    def at(self, moment: int) -> str:
        """The page at a moment; of the process that runs then, before the first one that of its start."""
        engine = next((one for one in reversed(self._lives) if one.life.begin <= moment), self._lives[0])
        families = [*engine.stock(moment)]
        if self._residency:
            families += engine.named(moment) if self._upstream == "vllm-54830" else engine.by_tier(moment)
        return _text(families)


class _Engine:
    """One process."""

    def __init__(self, meter: Meter, known: Catalogue, clock: Clock, speed: float) -> None:
        self.life, self._meter = meter.life, meter
        self._known, self._clock, self._speed = known, clock, speed

    def stock(self, moment: int) -> Iterator[Family]:
        """What any release since 0.20 shows of requests."""
        at, meter = np.array([moment]), self._meter
        running, capacity, deferred = (int(queue[0]) for queue in meter.queues(at))
        waiting = {"capacity": capacity, "deferred": deferred}
        yield names.REQUESTS_RUNNING, "gauge", [(_labels(ENGINE), running)]
        yield names.REQUESTS_WAITING, "gauge", [(_labels(ENGINE), capacity + deferred)]
        by_reason = [(_labels({**ENGINE, "reason": reason}), float(count)) for reason, count in waiting.items()]
        yield names.WAITING_BY_REASON, "gauge", by_reason
        yield names.PROMPT_TOKENS, "counter", [(_labels(ENGINE), int(meter.prompt_tokens(at)[0]))]
        yield names.GENERATION_TOKENS, "counter", [(_labels(ENGINE), int(meter.generation_tokens(at)[0]))]
        ended = {FINISHED_REASONS[0]: int(meter.successes(at)[0])}
        of_reasons = [
            (_labels({**ENGINE, "finished_reason": reason}), float(ended.get(reason, 0))) for reason in FINISHED_REASONS
        ]
        yield names.REQUEST_SUCCESS, "counter", of_reasons
        for name in names.HISTOGRAMS:
            yield name, "histogram", list(self._buckets(name, ENGINE, meter.observed(name, at)))
        yield names.LORA_REQUESTS_INFO, "gauge", self._gauge(moment)

    def named(self, moment: int) -> Iterator[Family]:
        """The residency gauges of vllm-54830: a series for each adapter and tier, gone when the adapter is."""
        in_slots, cached = self._meter.slots(moment), self._meter.cached(moment)
        pinned = set(pins_of(self.life.pool, self.life.pod))
        loaded = []
        for level, codes in (("gpu", in_slots), ("cpu", cached)):
            for code in sorted(codes):
                own = {"adapter_name": self._known.names[code], "level": level, "pinned": str(code in pinned).lower()}
                loaded.append((_labels({**ENGINE, **own, "rank": str(self._known.rank[code])}), 1.0))
        yield names.ADAPTER_LOADED, "gauge", loaded
        yield names.GPU_ADAPTERS, "gauge", [(_labels(ENGINE), len(in_slots))]
        yield names.CPU_ADAPTERS, "gauge", [(_labels(ENGINE), len(cached))]
        yield names.MAX_GPU_ADAPTERS, "gauge", [(_labels(ENGINE), self.life.pool.slots)]
        observed = self._meter.load_seconds(np.array([moment]))
        seconds = [
            sample
            for transition, one in observed.items()
            for sample in self._buckets(names.LOAD_SECONDS, {**ENGINE, "transition": transition}, one)
        ]
        yield names.LOAD_SECONDS, "histogram", seconds

    def by_tier(self, moment: int) -> Iterator[Family]:
        """The cache metrics of vllm-45820: how full each tier is, and how often a use found its adapter there."""
        held = {"gpu": len(self._meter.slots(moment)), "cpu": len(self._meter.cached(moment))}
        most = {"gpu": self.life.pool.slots, "cpu": self.life.pool.cpu_capacity or self.life.pool.slots}
        hot, warm, cold = (int(count) for count in self._meter.lookups(np.array([moment]))[:, 0])
        hits, lookups = {"gpu": hot, "cpu": warm}, {"gpu": hot + warm + cold, "cpu": warm + cold}
        for name, kind, values in (
            (names.CACHE_USAGE, "gauge", {tier: held[tier] / most[tier] for tier in held}),
            (names.CACHE_ADAPTERS, "gauge", held),
            (names.CACHE_HITS, "counter", hits),
            (names.CACHE_LOOKUPS, "counter", lookups),
        ):
            yield name, kind, [(_labels({**ENGINE, "tier": tier}), float(value)) for tier, value in values.items()]

    def _buckets(self, name: str, labels: Mapping[str, str], observed: Observed) -> Iterator[tuple[str, float]]:
        counts = observed.counts[0].tolist()
        for bound, count in zip((*map(_number, BOUNDS[name]), "+Inf"), counts, strict=True):
            yield f"_bucket{_labels({**labels, 'le': bound})}", count
        yield f"_count{_labels(labels)}", counts[-1]
        yield f"_sum{_labels(labels)}", int(observed.micros[0]) / (SECOND * self._speed)

    def _gauge(self, moment: int) -> list[tuple[str, float]]:
        """
        The stock gauge of adapters, with its habits.

        Its value is the time it was set, at every step; each combination of adapters in flight is a series, that stays for good
        with the time it was set last; both lists hold the same names; until the first step there is none.
        """
        since, which, combinations = self._combinations
        count = int(np.searchsorted(since, moment, side="right"))
        if not count:
            return []
        last = np.full(len(combinations), -1, dtype=np.int64)
        last[which[:count]] = np.arange(count)  # of a combination that came again the last time counts
        set_at = np.append(since[1:count] - 1, max(self._meter.last_step(moment), int(since[count - 1])))
        return [
            (self._combination(number), self._clock(int(set_at[change])) / SECOND)
            for number, change in enumerate(last.tolist())
            if change >= 0
        ]

    @cached_property
    def _combinations(self) -> tuple[NDArray[np.int64], NDArray[np.int64], list[tuple[int, ...]]]:
        """When who is in flight changed, to which combination, and the combinations, in the order in which they came."""
        life = self.life
        if not len(life.ready):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), []
        codes = life.adapter[life.opens].tolist()
        moves = [*zip(life.opened.tolist(), codes, strict=True), *zip(life.closes.tolist(), codes, strict=True)]
        states: dict[int, tuple[int, ...]] = {int(life.ready[0]): ()}
        there: set[int] = set()
        for at, code in sorted(moves):
            there ^= {code}
            states[at] = tuple(sorted(there))
        combinations = {state: number for number, state in enumerate(dict.fromkeys(states.values()))}
        which = np.array([combinations[state] for state in states.values()], dtype=np.int64)
        return np.array(list(states), dtype=np.int64), which, list(combinations)

    def _combination(self, number: int) -> str:
        if number not in self._texts:
            flying = ",".join(self._known.names[code] for code in self._combinations[2][number])
            lists = {"running_lora_adapters": flying, "waiting_lora_adapters": flying}
            self._texts[number] = _labels({"max_lora": str(self.life.pool.slots), **lists})
        return self._texts[number]

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {}


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
        lives: Lives,
        *,
        spelling: Literal["llm-d", "gaie", "both"] = "both",
    ) -> None:
        self._scenario, self._known, self._spelling = scenario, known, spelling
        self._pods: dict[tuple[str, int], list[Meter]] = {}
        for meter in metered(lives):
            self._pods.setdefault((meter.life.pool.name, meter.life.pod), []).append(meter)

    def at(self, moment: int) -> str:
        """The page at a moment."""
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
            (_labels({endpoint: f"{name}-{pod}-rank-0", **pool}), float(sum(self._queues(meters, moment)[1:])))
            for (name, pod), meters in self._pods.items()
            if name == pool["name"]
        ]
        yield names.EPP_POD_QUEUE[old], "gauge", queues
        looked = max(moment - (moment - self._scenario.begin) % POOL_REFRESH, self._scenario.begin)
        seen = np.array([self._queues(meters, looked) for (name, _), meters in self._pods.items() if name == pool["name"]])
        yield names.EPP_POOL_QUEUE[old], "gauge", [(_labels(pool), float(seen[:, 1:].sum(axis=1).mean()))]
        yield names.EPP_POOL_RUNNING[old], "gauge", [(_labels(pool), float(seen[:, 0].mean()))]
        yield names.EPP_READY[old], "gauge", [(_labels(pool), float(len(seen)))]

    def _attempts(self, moment: int, endpoint: str) -> Iterator[tuple[str, float]]:
        for (pool, pod), meters in self._pods.items():
            if pool != self._scenario.pools[-1].name:
                continue
            counts = attempts([meter.came for meter in meters], np.array([moment]), len(self._known))[0]
            for code in np.flatnonzero(counts).tolist():
                model = self._known.names[code - 1] if code else MODEL
                yield _labels(attempt_labels(f"{pool}-{pod}", model, endpoint)), float(counts[code])

    def _queues(self, meters: Sequence[Meter], moment: int) -> tuple[int, int, int]:
        meter = next((one for one in reversed(meters) if one.life.begin <= moment), meters[0])
        running, capacity, deferred = (int(queue[0]) for queue in meter.queues(np.array([moment])))
        return running, capacity, deferred

    def _by_adapter(self, moment: int, pool: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """By adapter's code plus 1: requests of a pool that have come, that have ended, and of these the ones that got lost."""
        came, ended, lost = (np.zeros(len(self._known) + 1, dtype=np.int64) for _ in range(3))
        for (name, _), meters in self._pods.items():
            if name != pool:
                continue
            came += attempts([meter.came for meter in meters], np.array([moment]), len(self._known))[0]
            for meter in meters:
                life = meter.life
                over = meter.finish_order[: np.searchsorted(meter.finishes, moment, side="right")]
                codes = np.maximum(life.adapter[over].astype(np.int64), -1) + 1
                ended += np.bincount(codes, minlength=len(ended))
                lost += np.bincount(codes[life.cut[over]], minlength=len(lost))
                if life.end <= moment:
                    refused = np.maximum(life.asked.adapter[life.refused].astype(np.int64), -1) + 1
                    ended += np.bincount(refused, minlength=len(ended))
                    lost += np.bincount(refused, minlength=len(lost))
        return came, ended, lost


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
        lives: Lives,
        *,
        kubernetes: bool = True,
        sm_active: bool = False,
        interval: int = COLLECT,
    ) -> None:
        self._wanted = (*SHOWN, names.GPU_SM_ACTIVE) if sm_active else SHOWN
        pods: dict[str, list[Meter]] = {}
        for meter in metered(lives):
            pods.setdefault(f"{meter.life.pool.name}-{meter.life.pod}", []).append(meter)
        self._gpus = [(Gpu(scenario, known, pod, interval), meters) for pod, meters in pods.items()]
        self._labels = [_labels(gpu.labels(kubernetes=kubernetes)) for gpu, _ in self._gpus]

    def at(self, moment: int) -> str:
        """The page at a moment."""
        at = np.array([moment])
        samples: dict[str, list[tuple[str, float]]] = {metric: [] for metric in self._wanted}
        for (gpu, meters), labels in zip(self._gpus, self._labels, strict=True):
            start, end = (int(edge[0]) for edge in gpu.collected(at))
            seconds = whole_seconds(start, end)
            values = gpu.values(at, seconds, gpu.spent(meters, seconds))
            for metric in self._wanted:
                samples[metric].append((labels, float(values[metric][0])))
        memory = [(labels, float(MEMORY_MIB)) for labels in self._labels]
        return _text([*((metric, "gauge", of) for metric, of in samples.items()), (names.GPU_MEMORY_USED, "gauge", memory)])


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
