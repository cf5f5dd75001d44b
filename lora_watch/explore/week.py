"""
What a week is told from: hours, adapters and costs of each pool, day by day, so that a week of any size is held a day at a time.

Counts and seconds of days add up to those of their week; percentiles do not, and are asked of the whole.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from lora_watch.config import CostSettings
from lora_watch.derive.cost import cost
from lora_watch.derive.groups import POD, POOL, ranked_provenance
from lora_watch.derive.little import little
from lora_watch.derive.misses import request_lookups
from lora_watch.derive.shards import bucket_ranges, shards_for
from lora_watch.derive.swaps import swaps
from lora_watch.derive.timeline import timeline
from lora_watch.explore.around import Around
from lora_watch.explore.heard import losses, lost
from lora_watch.explore.queries import Past
from lora_watch.explore.timeline import reading
from lora_watch.explore.view import days
from lora_watch.model import DAY, HOUR, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, MEASURED, REQUESTS, Table
from lora_watch.store.tables import Store

LOOKED_UP = ("cluster", "pool", "role", "pod", "engine", "adapter", "stream", "seq", "at", "provenance")
TIMES = ("queued", "scheduled", "first_token", "finished")
"""What a lookup reads of a request."""
LEAST = 20
"""With fewer requests than these the slowest would be their 95th percentile."""
KNOWN_BACK = 30 * DAY
"""So far before a week the loads of residents and first requests are looked for: what nobody evicts may sit there for weeks."""
FOUND = ("hot", "warm", "cold", "unknown")
ADAPTER = (*POOL, "adapter")


@dataclass(frozen=True, slots=True)
class Counted:
    """
    What was counted in a window.

    ``hours``: a row a pool and hour (``at``) in which anything happened: pods, requests, loads, swaps, provenance, and where
    requests found their adapters (hot, warm, cold, unknown). ``adapters``: a row a pool and adapter: requests, the ``first``
    (µs UTC), where they found it, loads, swaps (times that it left for another), ``stall_seconds`` (a lower bound where
    ``unknown_loads`` is above 0). ``pools``: a row a pool: loads, unknown_loads, ``stall_seconds`` likewise, ``gpu_hours``,
    gpu_hours_lost, money_lost, currency, occupied_slot_seconds, residual_slot_seconds, provenance. ``lost``: as
    :func:`~lora_watch.explore.heard.lost`. ``rows``: a row a table and provenance.
    """

    hours: pl.DataFrame
    adapters: pl.DataFrame
    pools: pl.DataFrame
    lost: pl.DataFrame
    rows: pl.DataFrame


class Onward(Past):
    """
    Goes on from day to day, so that who was loaded once and never left is known a week later: nothing is read anew, since all of
    the week's events are there.
    """

    def until(self, moment: int) -> pl.DataFrame:
        """As the parent's."""
        self._read_anew = moment
        return super().until(moment)


class Day(Around):
    """A day, with what the days before it left behind."""

    def __init__(self, store: Store, window: Window, lookback: int, past: Past) -> None:
        super().__init__(store, window, lookback)
        self._past = past


def held(store: Store, window: Window) -> Window | None:
    """The part of a window between its first row and its last one; None where it has none. StoreError where one is damaged."""
    firsts, lasts = [], []
    for table in MEASURED:
        with reading(store):
            at = pl.col("at")
            first, last = store.scan(table, window).select(first=at.min(), last=at.max()).collect(engine="streaming").row(0)
        if first is not None:
            firsts.append(first)
            lasts.append(last)
    return Window(min(firsts), max(lasts) + 1) if firsts else None


def counted(
    store: Store,
    window: Window,
    lookback: int,
    priced: CostSettings,
    progress: Callable[[float], None] | None = None,
) -> Counted:
    """The counts of a window, day by day. ``progress`` is told the share that is done. StoreError where a table is damaged."""
    parts = []
    whole = days(window)
    shards = max(shards_for(store.count(ADAPTER_EVENTS, day) // 4 + store.count(REQUESTS, day)) for day in whole)
    some = [store] if shards == 1 else [store.part(range(*edges)) for edges in bucket_ranges(shards)]
    for place, one in enumerate(some):
        past = Onward(one, max(lookback, KNOWN_BACK), brief=True)
        for number, day in enumerate(whole, start=1):
            parts.append(_part(one, day, lookback, past, priced))
            if progress is not None:
                progress((place + number / len(whole)) / len(some))
    return Counted(
        _summed([part.hours for part in parts], (*POOL, "at")).sort(*POOL, "at"),
        _summed([part.adapters for part in parts], ADAPTER, minimum=("first",)).sort(ADAPTER),
        _summed([part.pools for part in parts], POOL, maximum=("currency",)).sort(POOL),
        losses([part.lost for part in parts]),
        pl.concat([part.rows for part in parts])
        .group_by("table", "provenance")
        .agg(pl.col("rows").sum())
        .sort("table", "provenance"),
    )


def totals(store: Store, window: Window) -> pl.DataFrame:
    """
    Of each pool: ``requests`` for adapters that finished, ``loads`` into slots and ``swaps``; only counted, so a week takes
    seconds.
    """
    kind, gpu = pl.col("kind"), pl.col("tier") == "gpu"
    load = (
        (kind == "load")
        & gpu
        & pl.col("ok").ne_missing(False)
        & ~pl.col("reason").is_in(["inplace", "warmup"]).fill_null(value=False)
    )
    swap = (kind == "evict") & gpu & (pl.col("reason") == "lru").fill_null(value=False)
    with reading(store):
        asked = store.scan(REQUESTS, window).group_by(POOL).agg(requests=pl.col("adapter").is_not_null().sum().cast(pl.Int64))
        moved = (
            store.scan(ADAPTER_EVENTS, window)
            .filter(kind.is_in(["load", "evict"]))
            .group_by(POOL)
            .agg(loads=load.sum().cast(pl.Int64), swaps=swap.sum().cast(pl.Int64))
        )
        found = [part.collect(engine="streaming") for part in (asked, moved)]
    whole = found[0].join(found[1], on=list(POOL), how="full", coalesce=True, nulls_equal=True)
    return whole.with_columns(pl.col("requests", "loads", "swaps").fill_null(0)).sort(POOL)


def before(store: Store, moment: int) -> pl.DataFrame:
    """When each adapter of each pool was asked for ``first`` (µs UTC) in the ``KNOWN_BACK`` before a moment."""
    scanned = store.scan(REQUESTS, Window(max(moment - KNOWN_BACK, 0), max(moment, 1)))
    with reading(store):
        return scanned.group_by(ADAPTER).agg(first=pl.col("at").min()).collect(engine="streaming")


def latency(store: Store, window: Window) -> pl.DataFrame:
    """
    Of each pool, over the whole window: ``requests`` that told their time to the first token, ``p50_seconds``,
    ``p95_seconds``.
    """
    return _latency(store, window, ())


def latency_by_hour(store: Store, window: Window) -> pl.DataFrame:
    """The same by hour (``at``) in which requests finished."""
    return _latency(store, window, ("at",))


def _latency(store: Store, window: Window, further: tuple[str, ...]) -> pl.DataFrame:
    seconds = (pl.col("first_token") - pl.coalesce("arrived", "queued")) / SECOND
    enough = pl.len() >= LEAST
    with reading(store):
        return (
            store.scan(REQUESTS, window)
            .select(*POOL, at=pl.col("at") // HOUR * HOUR, seconds=seconds)
            .filter(pl.col("seconds").is_not_null())
            .group_by(*POOL, *further)
            .agg(
                requests=pl.len().cast(pl.Int64),
                p50_seconds=pl.col("seconds").median(),
                p95_seconds=pl.when(enough).then(pl.col("seconds").quantile(0.95, "linear")),
            )
            .sort(*POOL, *further)
            .collect(engine="streaming")
        )


def _part(store: Store, day: Window, lookback: int, past: Past, priced: CostSettings) -> Counted:
    """Of one day and some whole pods."""
    read = Day(store, day, lookback, past)
    first = day.start // HOUR * HOUR
    grid = Window(first, day.end)  # hours are counted from the window's start
    with reading(store):
        hours = timeline(read.events, store.scan(REQUESTS, day), grid, HOUR, POOL, moves=read.moves, stored=True).collect(
            engine="streaming"
        )
        asked = store.scan(REQUESTS, day).select(LOOKED_UP + TIMES).collect(engine="streaming")
    looked = request_lookups(asked.lazy(), read.stays).select(*ADAPTER, "at", "lookup").collect()
    found = [
        (pl.col("lookup").eq_missing(pl.lit(None if one == "unknown" else one))).sum().cast(pl.Int64).alias(one) for one in FOUND
    ]
    by_hour = looked.group_by(*POOL, at=pl.col("at") // HOUR * HOUR).agg(found)
    by_adapter = looked.group_by(ADAPTER).agg(*found, requests=pl.len().cast(pl.Int64), first=pl.col("at").min())
    swapped = swaps(read.events, day, ADAPTER, moves=read.moves).select(*ADAPTER, "swaps").collect()
    options = {"gpus_per_pod": priced.gpus_per_pod, "gpu_hour_price": priced.gpu_hour_price, "currency": priced.currency}
    paid = cost(read.events, day, ADAPTER, **options).collect()  # type: ignore[arg-type]  # one dict for three types
    pools = cost(read.events, day, POOL, **options).collect()  # type: ignore[arg-type]
    adds_up = little(read.events, day, POD, boots=read.boots, stays=read.stays, moves=read.moves).collect()
    adds_up = adds_up.group_by(POOL).agg(pl.col("occupied_slot_seconds", "residual_slot_seconds").sum())
    adapters = by_adapter
    for part in (swapped, paid.select(*ADAPTER, "loads", "unknown_loads", stall_seconds="stall_seconds_lower_bound")):
        adapters = adapters.join(part, on=list(ADAPTER), how="full", coalesce=True, nulls_equal=True)
    return Counted(
        hours.select(*POOL, "at", "pods", "requests", "loads", "swaps", "provenance").join(
            by_hour, on=[*POOL, "at"], how="left", nulls_equal=True
        ),
        adapters.filter(pl.col("adapter").is_not_null()),
        pools.select(
            *POOL,
            "loads",
            "unknown_loads",
            "gpu_hours",
            "currency",
            "provenance",
            stall_seconds="stall_seconds_lower_bound",
            gpu_hours_lost="gpu_hours_lost_lower_bound",
            money_lost="money_lost_lower_bound",
        ).join(adds_up, on=list(POOL), how="left", nulls_equal=True),
        lost(day, store),
        pl.concat([_rows(store, day, table) for table in MEASURED]),
    )


def _rows(store: Store, day: Window, table: Table) -> pl.DataFrame:
    with reading(store):
        told = store.scan(table, day).group_by("provenance").agg(rows=pl.len().cast(pl.Int64)).collect(engine="streaming")
    return told.select(pl.lit(table.name).alias("table"), "provenance", "rows")


def _summed(
    parts: Sequence[pl.DataFrame], keys: Sequence[str], *, maximum: Sequence[str] = (), minimum: Sequence[str] = ()
) -> pl.DataFrame:
    """Rows of the same keys added up; what nobody counted stays null. Of ``provenance`` the worst."""
    whole = pl.concat(parts)
    numbers = [name for name in whole.columns if name not in (*keys, *maximum, *minimum, "provenance")]
    summed = [pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name) for name in numbers]
    ends = [pl.col(name).max() for name in maximum] + [pl.col(name).min() for name in minimum]
    worst = [ranked_provenance().max().cast(pl.String).alias("provenance")] if "provenance" in whole.columns else []
    return whole.group_by(keys).agg(*summed, *ends, *worst)
