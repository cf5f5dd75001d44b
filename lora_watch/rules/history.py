"""
What the recorded series would have been over stored history, minute by minute, so that rules can be judged without Prometheus.

The formulas are those of the raw install, with exact counts in place of rates between scrapes: a window of ten minutes here is
the ten whole minutes before the mark. Series that no table can tell (such as those of the watcher itself) are absent.
A request is known once it has ended, so rates by adapter in the last minute of what is stored are a little low.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch import names
from lora_watch.derive.groups import POD, POOL
from lora_watch.derive.saturation import MOST_SHARE
from lora_watch.derive.slow_loads import FEWEST
from lora_watch.model import DAY, MINUTE, SECOND, Window
from lora_watch.rules import adapters, configuration, new_adapters, saturation, slow_load
from lora_watch.rules.lines import Line, earlier, joined, quantile, ratio, rolling
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.store.tables import Store

Case = tuple[str, ...]
"""The labels of one series, in the order of its level."""
LEVELS: Mapping[str, tuple[str, ...]] = {"pod": POD, "pool": POOL, "pool_phase": (*POOL, "phase"), "watch": ()}
"""By the first part of a recorded name: the labels that tell its series apart."""
_SPAN, _HOUR = 10, 60
_WARM = (_SPAN + _HOUR) * MINUTE
_LATE = 10 * MINUTE
"""A request is stored when it has ended; so long after it came, at most, it counts."""
MOST = 1e9
"""Seconds in one row, or records lost: more is no figure."""
_GONE = 10 * MINUTE
"""A process of which nothing is heard for so long is no longer there."""


@dataclass
class History:
    """
    Recorded series on the minutes of a window: ``lines[name][case]``; ``marks`` are the minutes, µs UTC, shape (n,).

    Series of labels beside their level (W(T) and M(T) by T) are left out.
    """

    marks: NDArray[np.int64]
    lines: dict[str, dict[Case, Line]] = field(default_factory=dict)

    def of(self, name: str, labels: Mapping[str, str]) -> Line | None:
        """The line of a series for the labels of its level, None where there is none."""
        level = LEVELS[name.partition(":")[0]]
        return self.lines.get(name, {}).get(tuple(labels[label] for label in level))

    def put(self, name: str, case: Case, line: Line) -> None:
        """Keep a line, unless nothing of it is known."""
        if not np.isnan(line).all():
            self.lines.setdefault(name, {})[case] = line


def replayed(store: Store, window: Window, progress: Callable[[float], None] | None = None) -> History:
    """
    The recorded series of a window, read a day at a time; ``progress`` is told the share that is done.

    Memory is that of a day's counts by pod, adapter and minute. StoreError where a table can't be read.
    """
    first = -(-window.start // MINUTE) * MINUTE
    marks = np.arange(first, window.end + 1, MINUTE, dtype=np.int64)
    history = History(marks)
    if not len(marks):
        return history
    seats = _Seats(store, window)
    news = _News()
    parts: dict[tuple[str, Case], list[tuple[int, Line]]] = {}
    for start in range(0, len(marks), DAY // MINUTE):
        day = marks[start : start + DAY // MINUTE]
        for name, case, line in _day(store, day, seats, news):
            parts.setdefault((name, case), []).append((start, line))
        if progress is not None:
            progress(min(start + len(day), len(marks)) / len(marks))
    for (name, case), pieces in parts.items():
        whole = np.full(len(marks), np.nan)
        for start, line in pieces:
            whole[start : start + len(line)] = line
        history.put(name, case, whole)
    _over_pods(history)
    _over_days(history)
    return history


class _Seats:
    """Slots and engines of each pod at any minute: those of each engine's newest process that is still heard of."""

    def __init__(self, store: Store, window: Window) -> None:
        heard = Window(window.start - 30 * DAY, window.end + 1)
        rows = (
            store.scan(ADAPTER_EVENTS, heard)
            .filter(pl.col("kind").is_in(["start", "steps", "stop"]))
            .group_by(*POD, "engine", "stream")
            .agg(first=pl.col("at").min(), last=pl.col("at").max(), slots=pl.col("slots").max())
            .filter(pl.col("slots").is_not_null())
            .sort("first")
            .collect(engine="streaming")
        )
        self._lives: dict[Case, list[list[tuple[int, int, int]]]] = {}
        for key, lives in _by(rows, (*POD, "engine")):
            spans = list(lives.select("first", "last", "slots").iter_rows())
            ends = [begun for begun, _, _ in spans[1:]] + [heard.end + _GONE]
            told = [(begun, min(last + _GONE, end), slots) for (begun, last, slots), end in zip(spans, ends, strict=True)]
            self._lives.setdefault(key[:-1], []).append(told)

    def at(self, day: NDArray[np.int64]) -> Iterator[tuple[Case, Line, Line]]:
        """Pods, their slots and their number of engines at these minutes; NaN where the pod is not there."""
        for pod, engines in self._lives.items():
            slots, count = np.zeros(len(day)), np.zeros(len(day))
            for lives in engines:
                for begun, end, own in lives:
                    there = (day >= begun) & (day < end)
                    slots[there] += own
                    count[there] += 1
            if count.any():
                yield pod, np.where(count > 0, slots, np.nan), np.where(count > 0, count, np.nan)


class _News:
    """Who was asked for when, carried from day to day."""

    def __init__(self) -> None:
        self._last: dict[tuple[Case, str], int] = {}
        self._since: dict[tuple[Case, str], int] = {}
        self._began: dict[Case, int] = {}

    def share(self, pool: Case, who: list[str], rates: Line, day: NDArray[np.int64]) -> Line:
        """The share of the requests that is for new adapters; NaN while the pool is learning, and without requests."""
        asked = rates > 0
        fresh = np.zeros_like(asked)
        for column, name in enumerate(who):
            moments = day[asked[:, column]]
            if not len(moments):
                continue
            key = pool, name
            forgotten = _micros(new_adapters.FORGOTTEN)
            if moments[0] - self._last.get(key, moments[0] - forgotten - 1) > forgotten:
                self._since[key] = int(moments[0])
            self._last[key] = int(moments[-1])
            fresh[:, column] = asked[:, column] & (day - self._since[key] < _micros(new_adapters.NEW))
        whole = rates.sum(axis=1)
        if pool not in self._began and whole.any():
            self._began[pool] = int(day[whole > 0][0])
        learned = day >= self._began.get(pool, day[-1] + DAY) + _micros(new_adapters.LEARNING)
        return np.where(learned, ratio((rates * fresh).sum(axis=1), whole), np.nan)


def _day(store: Store, day: NDArray[np.int64], seats: _Seats, news: _News) -> Iterator[tuple[str, Case, Line]]:
    """Series of one day that need no more than the hour before it."""
    begin, end = int(day[0]) - _WARM, int(day[-1])
    bins = len(day) - 1 + _WARM // MINUTE
    warm = _WARM // MINUTE

    def minutes(rows: pl.DataFrame, value: str = "n") -> Line:
        """Sums by whole minute from ``begin`` on."""
        out = np.zeros(bins)
        np.add.at(out, rows["minute"].to_numpy(), rows[value].fill_null(0).to_numpy())
        return out

    def rate(counted: Line, span: int = _SPAN) -> Line:
        """Per second over the ``span`` minutes before each mark; shape (minutes of the day, …)."""
        total = np.concatenate([np.zeros((1, *counted.shape[1:])), counted.cumsum(axis=0)])
        ends = np.arange(warm, warm + len(day))
        return np.asarray(np.maximum(total[ends] - total[ends - span], 0.0) / (60.0 * span), np.float64)

    def binned(time: str) -> pl.Expr:
        return ((pl.col(time) - begin) // MINUTE).alias("minute")

    inside = pl.col("minute").is_between(0, bins - 1)
    asked = (
        store.scan(REQUESTS, Window(begin, end + _LATE))
        .select(*POD, "adapter", binned("arrived"))
        .filter(inside & pl.col("adapter").is_not_null())
        .group_by(*POD, "adapter", "minute")
        .agg(n=pl.len())
        .collect(engine="streaming")
    )
    took = pl.col("finished") - pl.col("scheduled")
    took = took.filter(took.is_between(0, MOST * SECOND))
    ended = (
        store.scan(REQUESTS, Window(begin, end))
        .group_by(*POD, binned("at"))
        .agg(n=pl.len(), timed=took.count(), seconds=took.sum() / SECOND)
        .collect(engine="streaming")
    )
    moved = _moved(store, Window(begin, end), binned("at"))
    kv = _gauge(store, Window(begin, end), binned("at"), names.KV_CACHE_USAGE, names.KV_CACHE_USAGE_OLD)
    busy = _gauge(store, Window(begin, end), binned("at"), names.GPU_UTIL, names.GPU_ENGINE_ACTIVE)
    deferred = _gauge(store, Window(begin, end), binned("at"), names.WAITING_BY_REASON, reason="deferred", each="sum")
    room = _gauge(store, Window(begin, end), binned("at"), names.WAITING_BY_REASON, reason="capacity", least=True, each="sum")
    of_pod = {name: dict(_by(rows, POD)) for name, rows in (("ended", ended), ("moved", moved), ("asked", asked))}
    gauges = {name: dict(_by(rows, POD)) for name, rows in (("kv", kv), ("busy", busy), ("deferred", deferred), ("room", room))}

    def gauge(name: str, pod: Case, how: str = "mean") -> Line:
        rows = gauges[name].get(pod)
        line = np.full(bins, np.nan)
        if rows is not None:
            line[rows["minute"].to_numpy()] = rows["value"].to_numpy()
        return rolling(line, _SPAN, how)[warm - 1 : warm - 1 + len(day)]

    for pod, slots, engines in seats.at(day):
        there = np.where(np.isnan(slots), np.nan, 0.0)
        yield names.POD_SLOTS_RECORD, pod, slots
        rows = of_pod["moved"].get(pod, moved.clear())
        lines = {name: rate(minutes(rows, name)) + there for name in ("loads", "cold", "swaps", "stalled", "executed", "lost")}
        yield names.POD_LOADS_RECORD, pod, lines["loads"]
        yield names.POD_COLD_LOADS_RECORD, pod, lines["cold"]
        yield names.POD_SWAPS_RECORD, pod, lines["swaps"]
        yield names.POD_LOADING_RECORD, pod, lines["stalled"] / engines
        yield names.POD_INFERENCE_RECORD, pod, (lines["executed"] - lines["stalled"]) / engines
        yield "pod:lost", pod, lines["lost"] * 60 * _SPAN
        for phase in slow_load.PHASES:
            yield f"pod:{phase}_seconds", pod, rate(minutes(rows, f"{phase}_seconds")) * 60 * _SPAN
            yield f"pod:{phase}_count", pod, rate(minutes(rows, f"{phase}_count")) * 60 * _SPAN
        over = of_pod["ended"].get(pod, ended.clear())
        requests = rate(minutes(over)) + there
        service = ratio(rate(minutes(over, "seconds")), rate(minutes(over, "timed")))
        yield names.POD_REQUESTS_RECORD, pod, requests
        yield names.POD_SERVICE_RECORD, pod, service
        _, rates = _by_adapter(of_pod["asked"].get(pod, asked.clear()), bins, rate)
        flying = (1 - np.exp(-rates * np.nan_to_num(service)[:, None])).sum(axis=1)
        yield names.POD_IN_FLIGHT_RECORD, pod, ratio(flying, slots)
        yield names.POD_KV_CACHE_RECORD, pod, gauge("kv", pod)
        yield names.POD_GPU_BUSY_RECORD, pod, gauge("busy", pod)
        yield names.POD_SWAP_QUEUE_RECORD, pod, gauge("deferred", pod)
        free = 1 - np.minimum(np.nan_to_num(lines["stalled"] / engines), MOST_SHARE)
        yield names.POD_QUEUED_REQUESTS_RECORD, pod, np.where(gauge("room", pod, "min") >= 1, requests / free, np.nan)
    for pool, rows in _by(asked, POOL):
        who, rates = _by_adapter(rows, bins, rate)
        yield names.POOL_NEWMASS_RECORD, pool, news.share(pool, who, rates, day)
        recently = rate(_spread(rows, who, bins), _SPAN + _HOUR) > 0
        yield names.POOL_ACTIVE_RECORD, pool, np.where(recently.any(axis=1), recently.sum(axis=1), np.nan)
        for seconds in sorted((*adapters.HORIZONS, adapters.PRESSURE_SECONDS)):
            left = np.exp(-seconds * rates)
            yield f"pool:w{seconds}", pool, (1 - left).sum(axis=1)
            yield f"pool:m{seconds}", pool, (rates * left).sum(axis=1)
        yield "pool:asked", pool, rates.sum(axis=1)


def _moved(store: Store, window: Window, minute: pl.Expr) -> pl.DataFrame:
    """By pod and minute: loads, swaps, seconds of both clocks, and loads by phase."""
    kind, tier, well = pl.col("kind"), pl.col("tier"), pl.col("ok").ne_missing(False)
    load = (kind == "load") & well
    into = load & (tier == "gpu") & pl.col("reason").ne_missing("inplace")
    counts = {
        "loads": into,
        "cold": load & (tier == "gpu") & (pl.col("from_tier") == "disk"),
        "swaps": (kind == "evict") & (tier == "gpu") & (pl.col("reason") == "lru"),
    }
    phases = {phase: load & (tier == own) & _told("seconds") for phase, (own, _) in slow_load.PHASES.items()}
    return (
        store.scan(ADAPTER_EVENTS, window)
        .filter(kind.is_in(["load", "evict", "steps", "lost"]))
        .group_by(*POD, minute)
        .agg(
            *(when.sum().cast(pl.Int64).alias(name) for name, when in counts.items()),
            *(when.sum().cast(pl.Int64).alias(f"{phase}_count") for phase, when in phases.items()),
            *(pl.col("seconds").filter(when).sum().alias(f"{phase}_seconds") for phase, when in phases.items()),
            stalled=pl.col("adapter_seconds").filter((kind == "steps") & _told("adapter_seconds")).sum(),
            executed=pl.col("execute_seconds").filter((kind == "steps") & _told("execute_seconds")).sum(),
            lost=pl.col("count").filter((kind == "lost") & _told("count")).sum(),
        )
        .collect(engine="streaming")
    )


def _told(column: str) -> pl.Expr:
    """Whether a row tells a figure: one that is no number, or that nothing can last, would spoil every sum that it is part of."""
    return pl.col(column).is_between(0, MOST)


def _gauge(
    store: Store,
    window: Window,
    minute: pl.Expr,
    *metrics: str,
    reason: str | None = None,
    least: bool = False,
    each: str = "max",
) -> pl.DataFrame:
    """A gauge by pod and minute: the mean (or least) of each series, then over a pod's series; the first metric that it has."""
    rows = store.scan(SAMPLES, window).filter(pl.col("metric").is_in(metrics) & pl.col("value").is_finite())
    if reason is not None:
        rows = rows.filter(pl.col("labels").str.json_path_match("$.reason") == reason)
    value = pl.col("value").min() if least else pl.col("value").mean()
    by_series = rows.group_by(*POD, "metric", "series", minute).agg(value=value)
    told = by_series.group_by(*POD, "metric", "minute").agg(value=getattr(pl.col("value"), each)()).collect(engine="streaming")
    told = told.with_columns(
        value=pl.when(pl.col("metric") == names.GPU_UTIL).then(pl.col("value") / 100).otherwise("value"),
        order=pl.col("metric").replace_strict({name: number for number, name in enumerate(metrics)}, return_dtype=pl.Int64),
    )
    return told.sort("order").unique([*POD, "minute"], keep="first", maintain_order=True)


def _over_pods(history: History) -> None:
    """The series of pools that are sums and means of their pods'."""
    for name, pool_name, how in (
        (names.POD_SLOTS_RECORD, names.POOL_SLOTS_RECORD, "sum"),
        (names.POD_SLOTS_RECORD, names.POOL_PODS_RECORD, "count"),
        (names.POD_SWAPS_RECORD, names.POOL_SWAPS_RECORD, "mean"),
        (names.POD_LOADS_RECORD, names.POOL_LOADS_RECORD, "mean"),
        (names.POD_REQUESTS_RECORD, names.POOL_REQUESTS_RECORD, "sum"),
        (names.POD_LOADING_RECORD, names.POOL_LOADING_RECORD, "mean"),
        (names.POD_INFERENCE_RECORD, names.POOL_INFERENCE_RECORD, "mean"),
        (names.POD_GPU_BUSY_RECORD, names.POOL_GPU_BUSY_RECORD, "mean"),
        (names.POD_KV_CACHE_RECORD, names.POOL_KV_CACHE_RECORD, "max"),
        (names.POD_SWAP_QUEUE_RECORD, names.POOL_SWAP_QUEUE_RECORD, "sum"),
        (names.POD_IN_FLIGHT_RECORD, names.POOL_IN_FLIGHT_RECORD, "max"),
        (names.POD_IN_FLIGHT_RECORD, "pool:in_flight", "mean"),
        (names.POD_LOADS_RECORD, "pool:loads", "sum"),
        (names.POD_COLD_LOADS_RECORD, "pool:cold", "sum"),
        ("pod:lost", names.POOL_LOST_RECORD, "sum"),
        *((f"pod:{phase}_{what}", f"pool:{phase}_{what}", "sum") for phase in slow_load.PHASES for what in ("seconds", "count")),
    ):
        for pool, lines in _pools(history, name):
            history.put(pool_name, pool, joined(lines, how))
    for pod, loads in list(history.lines.get(names.POD_LOADS_RECORD, {}).items()):
        requests, slots = history.lines[names.POD_REQUESTS_RECORD].get(pod), history.lines[names.POD_SLOTS_RECORD][pod]
        if requests is not None:
            history.put(names.POD_MISSES_RECORD, pod, ratio(loads, requests))
        history.put(names.POD_RESIDENCY_RECORD, pod, ratio(slots, loads))
    for pool, lines in _pools(history, names.POD_GPU_BUSY_RECORD):
        told = _pods_of(history, names.POD_INFERENCE_RECORD, pool)
        both = [np.maximum(line - told[pod], 0) for pod, line in lines.items() if pod in told]
        if both:
            history.put(names.POOL_NOT_INFERRING_RECORD, pool, joined(dict(enumerate(both)), "mean"))


def _over_days(history: History) -> None:
    """The series of pools that follow from others, some of them over days."""
    for pool, slots in list(history.lines.get(names.POOL_SLOTS_RECORD, {}).items()):

        def line(name: str, pool: Case = pool) -> Line:
            found = history.lines.get(name, {}).get(pool)
            return np.full(len(history.marks), np.nan) if found is None else found

        loads, requests = line("pool:loads"), line(names.POOL_REQUESTS_RECORD)
        history.put(names.POOL_MISSES_RECORD, pool, ratio(loads, requests))
        history.put(names.POOL_RESIDENCY_RECORD, pool, ratio(slots, loads))
        history.put(names.POOL_ACTIVE_PER_SLOT_RECORD, pool, ratio(line(names.POOL_ACTIVE_RECORD), slots))
        history.put(names.POOL_PRESSURE_RECORD, pool, ratio(line(f"pool:w{adapters.PRESSURE_SECONDS}"), slots))
        history.put(names.POOL_PREDICTED_RECORD, pool, _predicted(line, slots))
        hour = _minutes(configuration.HOUR)
        cold = rolling(line("pool:cold"), hour, "mean"), rolling(loads, hour, "mean")
        history.put(names.POOL_COLD_RECORD, pool, ratio(*cold))
        for phase in slow_load.PHASES:
            count = line(f"pool:{phase}_count")
            mean = np.where(count >= FEWEST, ratio(line(f"pool:{phase}_seconds"), count), np.nan)
            history.put(names.POOL_LOAD_SECONDS_RECORD, (*pool, phase), mean)
            usual = quantile(mean, _minutes(slow_load.USUAL), 0.5)
            history.put(names.POOL_SLOWDOWN_RECORD, (*pool, phase), ratio(mean, usual))
        week, ahead = _minutes(saturation.WEEK), _minutes(saturation.HORIZON)
        highest = rolling(requests, ahead, "max")
        a_day = _minutes(saturation.DAY)
        past = earlier(highest, week - ahead)
        past = np.where(np.isnan(past), earlier(highest, a_day - ahead), past)
        peak = np.fmax(past, requests)
        history.put(names.POOL_PEAK_RECORD, pool, np.where(np.isnan(requests), np.nan, peak))
        queued = [
            quantile(one, _minutes(saturation.LEARNED), 0.95)
            for one in _pods_of(history, names.POD_QUEUED_REQUESTS_RECORD, pool).values()
        ]
        if queued:
            history.put(names.POOL_CAPACITY_RECORD, pool, joined(dict(enumerate(queued)), "mean"))
        history.put(names.POOL_SATURATION_RECORD, pool, _fullest(line, np.ones(len(requests))))
        history.put(names.POOL_RHO_PEAK_RECORD, pool, _fullest(line, ratio(peak, requests)))
    for name in [name for name in history.lines if name.split(":")[1] in _OWN or name.split(":")[1][0] in "wm"]:
        if name not in _RECORDED:
            del history.lines[name]


_OWN = ("lost", "in_flight", "loads", "cold", "asked", *(f"{p}_{w}" for p in slow_load.PHASES for w in ("seconds", "count")))
_RECORDED = {value for name, value in vars(names).items() if name.endswith("_RECORD")}


def _predicted(line: Callable[[str], Line], slots: Line) -> Line:
    """The interpolation of :mod:`~lora_watch.rules.predicted_misses`."""
    grid = sorted((*adapters.HORIZONS, adapters.PRESSURE_SECONDS))
    whole = line("pool:asked")
    wide = np.array([np.zeros(len(slots)), *(line(f"pool:w{seconds}") for seconds in grid)])
    loads = np.array([whole, *(line(f"pool:m{seconds}") for seconds in grid)])
    fits = wide <= slots
    last = fits.sum(axis=0) - 1  # W grows with T, so those that fit come first
    more = np.minimum(last + 1, len(grid))
    here = np.arange(len(slots))
    low, high = wide[last, here], wide[more, here]
    part = np.where(high > low, (slots - low) / np.where(high > low, high - low, 1), 0)
    told = loads[last, here] - (loads[last, here] - loads[more, here]) * part
    return ratio(np.where(last == len(grid), 0.0, told), whole)


def _fullest(line: Callable[[str], Line], growth: Line) -> Line:
    """The fullest of what can run out, with ``growth`` times as many requests."""
    loading, pods_there = line(names.POOL_LOADING_RECORD) * growth, line(names.POOL_PODS_RECORD)
    free = 1 - np.minimum(np.nan_to_num(loading), MOST_SHARE)
    filled = 1 - (1 - np.minimum(line("pool:in_flight"), 1)) ** growth
    asked = line(names.POOL_REQUESTS_RECORD) * growth / pods_there
    return np.asarray(np.fmax.reduce([loading, filled, ratio(asked, line(names.POOL_CAPACITY_RECORD) * free)]))


def _by_adapter(rows: pl.DataFrame, bins: int, rate: Callable[[Line], Line]) -> tuple[list[str], Line]:
    """The adapters, and their rates at each minute of the day: shape (minutes, adapters)."""
    who = rows["adapter"].unique().sort().to_list()
    return who, rate(_spread(rows, who, bins))


def _spread(rows: pl.DataFrame, who: list[str], bins: int) -> Line:
    """Counts by minute and adapter."""
    number = {name: column for column, name in enumerate(who)}
    counts = np.zeros((bins, len(who)))
    columns = rows["adapter"].replace_strict(number, return_dtype=pl.Int64).to_numpy() if len(who) else np.zeros(0, np.int64)
    np.add.at(counts, (rows["minute"].to_numpy(), columns), rows["n"].to_numpy())
    return counts


def _by(rows: pl.DataFrame, keys: tuple[str, ...]) -> Iterator[tuple[Case, pl.DataFrame]]:
    for key, part in rows.group_by(keys, maintain_order=True):
        yield tuple("" if text is None else str(text) for text in key), part


def _pools(history: History, name: str) -> Iterator[tuple[Case, dict[Any, Line]]]:
    of: dict[Case, dict[Any, Line]] = {}
    for pod, line in history.lines.get(name, {}).items():
        of.setdefault(pod[: len(POOL)], {})[pod] = line
    yield from of.items()


def _pods_of(history: History, name: str, pool: Case) -> dict[Case, Line]:
    return {pod: line for pod, line in history.lines.get(name, {}).items() if pod[: len(POOL)] == pool}


def _minutes(length: timedelta) -> int:
    return round(length / timedelta(minutes=1))


def _micros(length: timedelta) -> int:
    return round(length.total_seconds() * SECOND)
