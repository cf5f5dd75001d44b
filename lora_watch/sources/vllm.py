"""
What a vLLM `/metrics` page says, as rows of `samples`. vLLM 0.9.2 … 0.33.0, and the two open proposals for residency gauges.

Tells, observed: queue depths, KV cache, token and request counters, latency histograms (by engine, never by adapter); residency
where a proposal is built in. Tells, as activity: adapters in flight, from the stock gauge. Does not tell, without a proposal:
which adapter sits in a slot, loads, evictions, misses. Those come from the agent.

The stock gauge ``vllm:lora_requests_info`` has its own rules (each seen in a real server):

* its value is the time of the last update, every combination of names is a series, and none ever goes away: only the newest
counts;
* both lists hold the adapters **in flight**; the newest series with empty lists says that nobody is, and nothing about residency;
* an idle server has no sample at all: unknown, so no row;
* N API servers add up their time stamps: ``gauge_time`` takes the sum apart;
* names are joined with commas: ``adapter_names`` uses known names to keep a name with a comma whole.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import polars as pl

from lora_watch import names
from lora_watch.model import MINUTE, SECOND, PodId, Provenance
from lora_watch.sources.base import printable
from lora_watch.sources.exposition import Page
from lora_watch.sources.series import is_finite, sample_row

RESIDENCY_GAUGES = (
    names.ADAPTER_LOADED,
    names.GPU_ADAPTERS,
    names.CPU_ADAPTERS,
    names.MAX_GPU_ADAPTERS,
    names.CACHE_INFO,
    names.CACHE_USAGE,
    names.CACHE_ADAPTERS,
    names.CACHE_HITS,
    names.CACHE_LOOKUPS,
)
"""Residency as either proposal exports it. The first two mean that residents are named: then the stock gauge is not read."""

PLAIN = (
    names.REQUESTS_RUNNING,
    names.REQUESTS_WAITING,
    names.WAITING_BY_REASON,
    names.KV_CACHE_USAGE,
    names.KV_CACHE_USAGE_OLD,
    names.REQUEST_SUCCESS,
    names.PREEMPTIONS,
    names.PROMPT_TOKENS,
    names.GENERATION_TOKENS,
    names.PREFIX_CACHE_QUERIES,
    names.PREFIX_CACHE_HITS,
    names.SLEEP_STATE,
)
"""Gauges and counters kept as they are."""

HISTOGRAMS = (*names.HISTOGRAMS, names.LOAD_SECONDS)
"""Histograms, of which ``_sum``, ``_count`` and ``_bucket`` are kept."""

SERIES = (
    *RESIDENCY_GAUGES,
    *PLAIN,
    *(histogram + suffix for histogram in HISTOGRAMS for suffix in ("_sum", "_count", "_bucket")),
)
"""Every name stored as it is read. ``vllm:gpu_cache_usage_perc`` is stored under its present name."""

WANTED = frozenset({*SERIES, names.LORA_REQUESTS_INFO})
"""Every name that is read of a page."""

RENAMED: Mapping[str, str] = {names.KV_CACHE_USAGE_OLD: names.KV_CACHE_USAGE}

MAX_API_SERVERS = 64
"""Beyond this a value is no sum of time stamps."""
_YEAR_SECONDS = 366 * 86_400.0
AHEAD_SECONDS = 60.0
"""How far a pod's clock may be ahead of ours."""
STALE = 10 * MINUTE
"""A newest time stamp older than this while requests run: the gauge is not being set."""


def gauge_time(value: float, now: float) -> float | None:
    """
    The time (seconds UTC) that a value of ``vllm:lora_requests_info`` stands for, at ``now``; None if it stands for none.

    A value near k · ``now`` is the sum of k API servers' time stamps; its k-th part is their mean. k is ``round(value / now)``.
    A series that only some servers set has a smaller k than its neighbours, so parts are comparable where sums are not. None:
    NaN, infinite, k outside 1 … MAX_API_SERVERS, more than AHEAD_SECONDS ahead or a year behind (a pod whose clock says 1970 or
    2100).

    >>> gauge_time(1.8e9, 1.8e9 + 5), gauge_time(3.6e9, 1.8e9 + 5), gauge_time(12.0, 1.8e9)
    (1800000000.0, 1800000000.0, None)
    """
    if not is_finite(value) or now <= 0:
        return None
    servers = round(value / now)
    if not 1 <= servers <= MAX_API_SERVERS:
        return None
    time = value / servers
    return time if now - _YEAR_SECONDS <= time <= now + AHEAD_SECONDS else None


def gauge_times(value: pl.Expr, now: pl.Expr) -> pl.Expr:
    """``gauge_time`` for columns: seconds UTC, null where the value is no time stamp."""
    servers = (value / now).round()
    time = value / servers
    near = (time >= now - _YEAR_SECONDS) & (time <= now + AHEAD_SECONDS)
    return pl.when(value.is_finite() & (now > 0) & servers.is_between(1, MAX_API_SERVERS) & near).then(time)


def adapter_names(text: str, known: Collection[str] = ()) -> tuple[tuple[str, ...], str | None]:
    """
    The adapters of a comma-joined list, and a problem where a comma may belong to a name.

    Known names are matched first, the longest one at each place. What no known name covers is split at its commas, unless some
    known name has a comma: then it is kept whole, and said. Order is kept, repetitions go.

    >>> adapter_names("a,b,c", {"a,b", "c"})
    (('a,b', 'c'), None)
    >>> adapter_names("a,b")
    (('a', 'b'), None)
    """
    if not text:
        return (), None
    with_comma = {name for name in known if "," in name}
    if not with_comma:
        return tuple(dict.fromkeys(part for part in text.split(",") if part)), None
    whole = frozenset(known)
    longest = max(name.count(",") for name in with_comma) + 1
    parts = text.split(",")
    found: list[str] = []
    unknown: list[str] = []
    unclear: list[str] = []

    def flush() -> None:
        if unknown:
            found.append(",".join(unknown))
            if len(unknown) > 1:
                unclear.append(found[-1])
            unknown.clear()

    start = 0
    while start < len(parts):
        ends = range(min(len(parts), start + longest), start, -1)
        end = next((end for end in ends if ",".join(parts[start:end]) in whole), None)
        if end is None:
            unknown.append(parts[start])
            start += 1
        else:
            flush()
            found.append(",".join(parts[start:end]))
            start = end
    flush()
    problem = f"{names.LORA_REQUESTS_INFO}: one name or several? kept whole: {printable(unclear[0])}" if unclear else None
    return tuple(dict.fromkeys(name for name in found if name)), problem


@dataclass(frozen=True, slots=True)
class InFlight:
    """
    What the stock gauge's newest series says: adapters running, adapters that only wait (vLLM ≤ 0.10.2), slots, and problems.
    """

    running: tuple[str, ...]
    waiting: tuple[str, ...]
    slots: float | None
    problems: tuple[str, ...]


def in_flight(labels: Mapping[str, str], known: Collection[str] = ()) -> InFlight:
    """
    The newest series of the stock gauge, read.

    Since 0.11 both lists are the same and one set comes out; before, the waiting list was one of its own: who is only on it is
    ``waiting``.
    """
    running, first = adapter_names(labels.get("running_lora_adapters", ""), known)
    waiting, second = adapter_names(labels.get("waiting_lora_adapters", ""), known)
    problems = list(dict.fromkeys(problem for problem in (first, second) if problem))
    slots: float | None = None
    try:
        slots = float(labels["max_lora"])
    except (KeyError, ValueError):
        problems.append(f"{names.LORA_REQUESTS_INFO}: label max_lora is no number: {printable(labels.get('max_lora', 'absent'))}")
    if slots is not None and not (is_finite(slots) and slots >= 0):
        slots = None
    return InFlight(running, tuple(name for name in waiting if name not in running), slots, tuple(problems))


def in_flight_rows(
    pod: PodId, at: int, seen: InFlight, source: str, *, adapters: bool = True, labels: Mapping[str, str] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """
    Rows of one look at the stock gauge: slots (observed), and with ``adapters`` one row per adapter with value 1 (activity).

    An adapter that only waits has the label ``state="waiting"``. Nobody in flight is one row without adapter and with value 0: it
    was looked, and nobody was there. That is no word on who is resident. ``labels`` are added to every row.
    """
    rows = []
    if seen.slots is not None:
        rows.append(sample_row(pod, at, names.SAMPLE_MAX_LORA, seen.slots, labels, source))
    if not adapters:
        return rows

    def row(value: float, more: Mapping[str, str], adapter: str | None) -> dict[str, Any]:
        own = {**labels, **more}
        return sample_row(pod, at, names.SAMPLE_IN_FLIGHT, value, own, source, adapter=adapter, provenance=Provenance.ACTIVITY)

    rows += [row(1.0, {}, adapter) for adapter in seen.running]
    rows += [row(1.0, {"state": "waiting"}, adapter) for adapter in seen.waiting]
    if not seen.running and not seen.waiting:
        rows.append(row(0.0, {}, None))
    return rows


def read_page(
    page: Page, pod: PodId, at: int, now: int, source: str, known: Collection[str] = ()
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """
    The rows of one scrape at ``at`` (µs UTC), and what was wrong with it.

    ``now`` (µs UTC) is the clock the gauge's time stamps are held against. Values that are not finite are left out and counted:
    unknown is no row. A page parsed without ``newest`` is understood too: the newest series is picked here.
    """
    rows: list[dict[str, Any]] = []
    problems = list(page.problems)
    infinite = 0
    gauge: tuple[float, Mapping[str, str]] | None = None
    residents_named = False
    requests_running = 0.0
    engines = {sample.labels["engine"] for sample in page.samples if "engine" in sample.labels}
    for sample in page.samples:
        if sample.name == names.LORA_REQUESTS_INFO:
            time = gauge_time(sample.value, now / SECOND)
            if time is None:
                problems.append(f"{names.LORA_REQUESTS_INFO}: {sample.value:g} is not a time stamp: is the pod's clock right?")
            elif gauge is None or time >= gauge[0]:
                gauge = (time, sample.labels)
            continue
        if not is_finite(sample.value):
            infinite += 1
            continue
        if sample.name == names.REQUESTS_RUNNING:
            requests_running += sample.value
        residents_named = residents_named or sample.name in (names.ADAPTER_LOADED, names.GPU_ADAPTERS)
        rows.append(sample_row(pod, at, RENAMED.get(sample.name, sample.name), sample.value, sample.labels, source))
    if infinite:
        problems.append(f"{infinite} values are NaN or infinite and were left out")
    if not rows and gauge is None:
        problems.append(
            "no metric of vLLM is on the page: is this a vLLM server, and are its statistics on (--disable-log-stats)?"
        )
    if gauge is not None:
        age = now / SECOND - gauge[0]
        if age * SECOND > STALE and requests_running > 0 and not residents_named:
            problems.append(f"{names.LORA_REQUESTS_INFO} is stale: last set {age / 60:.0f} min ago while requests run")
        seen = in_flight(gauge[1], known)
        problems += seen.problems
        whose = {"engine": engines.pop()} if len(engines) == 1 else {}  # the gauge has no such label
        rows += in_flight_rows(pod, at, seen, source, adapters=not residents_named, labels=whose)
    return _once(rows, problems), tuple(problems)


def _once(rows: Iterable[dict[str, Any]], problems: list[str]) -> list[dict[str, Any]]:
    """One row per series: an engine that exports both names of a renamed metric has it once."""
    kept: dict[str, dict[str, Any]] = {}
    for row in rows:
        first = kept.setdefault(row["series"], row)
        if first is not row and not math.isclose(first["value"], row["value"]):
            problems.append(f"{row['metric']} is exported twice with different values: the first one counts")
    return list(kept.values())
