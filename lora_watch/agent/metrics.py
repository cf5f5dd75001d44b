"""
The sidecar's ``/metrics``: our counters, the residency gauges under the names proposed upstream, and the engine's own page
beside them.
"""

import http.client
import re
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from lora_watch import names
from lora_watch.agent.state import LOAD_BOUNDS, Histogram, State

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_ADAPTERS = 1000
"""Adapters named in labels; the others are summed up as ``other``."""
ENGINE_PAGE_BYTES = 32 << 20
ENGINE_SECONDS = 5.0
"""To connect, between two bytes, and, within twice as long, for the page in all."""
_PIECE = 1 << 16

_DECLARES = re.compile(rb"^# TYPE (\S+) ", re.MULTILINE)


class _Families:
    """What ``generate_latest`` asks of a collector: the families, ready made."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """The families."""
        return self._families


def page(
    states: Mapping[str, State], log_bytes: int, forgotten: int = 0, *, engine: bytes | None = None, engine_up: bool | None = None
) -> bytes:
    """
    The whole page: ours, then the ``engine``'s as it came.

    A family that the engine's page declares is left to it, so no TYPE or HELP stands twice. ``engine_up`` is None where no
    engine page is asked for.
    """
    declared = {name.decode("utf-8", "replace") for name in _DECLARES.findall(engine or b"")}
    families = [
        family
        for family in (*counters(states), *residency(states), *_health(log_bytes, forgotten, engine_up))
        if not _names_of(family) & declared
    ]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    ours = generate_latest(registry)
    return ours if engine is None else ours + engine + (b"" if engine.endswith(b"\n") or not engine else b"\n")


def _names_of(family: Metric) -> set[str]:
    return {family.name, f"{family.name}_total"} if family.type == "counter" else {family.name}


def counters(states: Mapping[str, State]) -> Iterator[Metric]:
    """Our counters, summed over every process whose log is here: a dead engine's loads stay counted."""
    all_states = list(states.values())
    loads = CounterMetricFamily(names.AGENT_LOADS, "Loads that ended well.", labels=["tier", "from_tier", "reason"])
    _fill(loads, (state.loads for state in all_states))
    failed = CounterMetricFamily(
        names.AGENT_FAILED_LOADS, "Loads that failed: nothing entered.", labels=["tier", "from_tier", "reason"]
    )
    _fill(failed, (state.failed_loads for state in all_states))
    evictions = CounterMetricFamily(names.AGENT_EVICTIONS, "Weights that left a tier.", labels=["tier", "reason"])
    _fill(evictions, (state.evictions for state in all_states))
    uses = CounterMetricFamily(
        names.AGENT_USES, "Adapters that entered the running batch, by where they were found.", labels=["lookup"]
    )
    _fill(uses, (state.uses for state in all_states))
    requests = CounterMetricFamily(names.AGENT_REQUESTS, "Finished requests.", labels=["finish_reason"])
    _fill(requests, (state.requests for state in all_states))
    lost = CounterMetricFamily(names.AGENT_LOST, "Records that could not be kept.", labels=["reason"])
    _fill(lost, (state.lost for state in all_states))
    execute = CounterMetricFamily(
        names.AGENT_EXECUTE_SECONDS, "Time spent in engine steps, by the clock that measured it.", labels=["clock"]
    )
    _fill(execute, (state.execute_seconds for state in all_states))
    adapter = CounterMetricFamily(names.AGENT_ADAPTER_SECONDS, "The part of step time spent on adapters.", labels=["clock"])
    _fill(adapter, (state.adapter_seconds for state in all_states))
    steps = CounterMetricFamily(names.AGENT_STEPS, "Engine steps.", value=sum(state.steps for state in all_states))
    seconds = HistogramMetricFamily(names.AGENT_LOAD_SECONDS, "Time of a load.", labels=["tier", "from_tier"])
    for key, histogram in sorted(_histograms(all_states).items()):
        seconds.add_metric(key, _buckets(histogram), sum_value=histogram.total)
    yield from (loads, failed, evictions, uses, requests, lost, steps, execute, adapter, seconds)


def _fill(family: CounterMetricFamily, counted: Iterable[Mapping[Any, float]]) -> None:
    total: dict[tuple[str, ...], float] = {}
    for counter in counted:
        for key, count in counter.items():
            labels = tuple(_label(text) for text in (key if isinstance(key, tuple) else (key,)))
            total[labels] = total.get(labels, 0) + count
    for labels, value in sorted(total.items()):
        family.add_metric(labels, value)


def _label(text: str) -> str:
    """``text`` as a label may hold it: half of a surrogate pair, which UTF-8 cannot hold, becomes ``?``."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _histograms(states: Iterable[State]) -> dict[tuple[str, str], Histogram]:
    total: dict[tuple[str, str], Histogram] = {}
    for state in states:
        for key, histogram in state.load_seconds.items():
            total.setdefault((_label(key[0]), _label(key[1])), Histogram()).merge(histogram)
    return total


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative, as the exposition wants them."""
    bounds = [*(str(bound) for bound in LOAD_BOUNDS), "+Inf"]
    running, buckets = 0, []
    for bound, count in zip(bounds, histogram.counts, strict=True):
        running += count
        buckets.append((bound, float(running)))
    return buckets


def residency(states: Mapping[str, State]) -> Iterator[Metric]:
    """
    Who is resident in the workers that live, under the names proposed upstream.

    An adapter that left has no series. Adapters past ``MAX_ADAPTERS`` (by name, so the choice is steady) are one series
    ``other`` with their number as its value.
    """
    workers = [state for state in states.values() if state.role == "worker" and state.alive]
    where = ["model_name", "engine"]
    loaded = GaugeMetricFamily(
        names.ADAPTER_LOADED, "Adapters whose weights are in a tier.", labels=[*where, "adapter_name", "level", "pinned", "rank"]
    )
    gpu = GaugeMetricFamily(names.GPU_ADAPTERS, "Adapters in GPU slots.", labels=where)
    cpu = GaugeMetricFamily(names.CPU_ADAPTERS, "Adapters in the CPU cache.", labels=where)
    slots = GaugeMetricFamily(names.MAX_GPU_ADAPTERS, "GPU slots for adapters.", labels=where)
    seconds = HistogramMetricFamily(
        names.LOAD_SECONDS, "Time of a load: load is disk to CPU, activate is CPU to GPU.", labels=[*where, "transition"]
    )
    everyone = {slot.adapter for state in workers for slot in state.gpu.values()}
    everyone.update(name for state in workers for name in state.cpu.values())
    named = set(sorted(everyone)[:MAX_ADAPTERS])
    series: Counter[tuple[str, ...]] = Counter()
    for state in workers:
        at = (_label(state.model or ""), _label(state.engine))
        tiers = (("gpu", ((key, slot.adapter) for key, slot in state.gpu.items())), ("cpu", iter(state.cpu.items())))
        for level, adapters in tiers:
            for adapter_id, name in adapters:
                pinned = str(adapter_id in state.pinned).lower()
                series[(*at, _label(name) if name in named else "other", level, pinned, "0")] += 1
        gpu.add_metric(at, len(state.gpu))
        cpu.add_metric(at, len(state.cpu))
        if state.slots is not None:
            slots.add_metric(at, state.slots)
        for tier, transition in (("cpu", "load"), ("gpu", "activate")):
            merged = Histogram()
            for key, histogram in state.load_seconds.items():
                if key[0] == tier:
                    merged.merge(histogram)
            seconds.add_metric((*at, transition), _buckets(merged), sum_value=merged.total)
    for labels, count in sorted(series.items()):
        # two ids under one name (registered, withdrawn, registered again) are still one adapter that is loaded
        loaded.add_metric(labels, count if labels[2] == "other" else 1)
    yield from (loaded, gpu, cpu, slots, seconds)


def _health(log_bytes: int, forgotten: int, engine_up: bool | None) -> Iterator[Metric]:  # noqa: FBT001 - private, one call
    yield GaugeMetricFamily(names.AGENT_LOG_BYTES, "Bytes of event log on disk.", value=log_bytes)
    yield CounterMetricFamily(
        names.AGENT_FORGOTTEN, "Processes that ended and whose logs were deleted whole, read or not.", value=forgotten
    )
    if engine_up is not None:
        yield GaugeMetricFamily(names.AGENT_ENGINE_UP, "Could the engine's own page be read: 1 or 0.", value=float(engine_up))


class EnginePage:
    """The engine's own ``/metrics`` at ``url``."""

    def __init__(self, url: str, *, seconds: float = ENGINE_SECONDS, max_bytes: int = ENGINE_PAGE_BYTES) -> None:
        self._request = urllib.request.Request(url, headers={"Accept": "text/plain"})
        self._seconds = seconds
        self._max_bytes = max_bytes
        # never through a proxy: the engine is our neighbour
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def read(self) -> bytes | None:
        """
        The page whole, or None where the engine does not answer in time, answers an error or no HTTP, breaks off in the middle,
        or sends more than we would pass on.
        """
        end = time.monotonic() + self._seconds
        body = bytearray()
        try:
            with self._open(self._request, timeout=self._seconds) as answer:
                while piece := answer.read1(_PIECE):
                    body += piece
                    if len(body) > self._max_bytes or time.monotonic() > end:
                        return None
                promised = answer.headers.get("Content-Length")
        except (OSError, ValueError, urllib.error.URLError, http.client.HTTPException):
            return None
        return bytes(body) if promised is None or promised == str(len(body)) else None
