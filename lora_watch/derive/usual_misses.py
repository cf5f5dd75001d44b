"""What share of its requests a pool usually misses, and the limit of its misses that this history teaches."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import polars as pl

from lora_watch.derive.cusum import Pool
from lora_watch.derive.groups import POOL
from lora_watch.derive.hysteresis import Limits, calibrated
from lora_watch.model import DAY, MINUTE, Window

BIN = 10 * MINUTE
"""What a ratio is taken over, as the predicted one is."""
LEAST_REQUESTS = 30
"""Requests for an adapter in a bin, below which its ratio is chance and counts as unknown."""
LEAST = 0.1
"""No limit is learned below this: a tenth of requests that wait for a load is felt by the P95 at most."""
DAYS = 7.0
"""Days of history from which a limit is learned: every hour of the week was seen."""


@dataclass(frozen=True, slots=True)
class MissLimit:
    """The limit of a pool's miss ratio, and why it is this: ``days`` of its history held; ``learned`` from them, else fixed."""

    limits: Limits
    days: float
    learned: bool


def miss_history(events: pl.LazyFrame, requests: pl.LazyFrame, window: Window) -> pl.DataFrame:
    """
    The miss ratio of each pool in bins of ten minutes (``BIN``), from stored rows, which are unique.

    Columns: the pool's, ``at`` (µs UTC, begin of the bin), ``requests`` (for an adapter, counted when they finish), ``misses``
    (loads into a slot that a request needed, one a request at most), ``miss_ratio`` (null below ``LEAST_REQUESTS``).

    From the first to the last such load of a pool only: before and after it nobody may have told loads, and that is no health.
    """
    inside = pl.col("at").is_between(window.start, window.end, closed="left")
    at = (pl.col("at") // BIN * BIN).alias("at")
    needed = (pl.col("kind") == "load") & (pl.col("tier") == "gpu") & pl.col("reason").eq_missing("demand")
    loads = (
        events.filter(inside & needed & pl.col("ok").ne_missing(False))
        .group_by(*POOL, at)
        .agg(misses=pl.len().cast(pl.Int64))
        .collect(engine="streaming")
    )
    told = loads.group_by(*POOL).agg(first=pl.col("at").min(), last=pl.col("at").max())
    asked = (
        requests.filter(inside & pl.col("adapter").is_not_null())
        .group_by(*POOL, at)
        .agg(requests=pl.len().cast(pl.Int64))
        .collect(engine="streaming")
    )
    return (
        asked.join(told, on=POOL, nulls_equal=True)
        .filter(pl.col("at").is_between("first", "last"))
        .join(loads, on=[*POOL, "at"], how="left", nulls_equal=True)
        .with_columns(misses=pl.min_horizontal(pl.col("misses").fill_null(0), "requests"))
        .select(
            *POOL,
            "at",
            "requests",
            "misses",
            miss_ratio=pl.when(pl.col("requests") >= LEAST_REQUESTS).then(pl.col("misses") / pl.col("requests")),
        )
        .sort(*POOL, "at")
    )


def miss_limits(
    history: pl.DataFrame, fixed: Limits, harmed: Mapping[Pool, Collection[tuple[int, int]]] | None = None
) -> dict[Pool, MissLimit]:
    """
    The limit of each pool of ``history`` (:func:`miss_history`): learned where ``DAYS`` are held, else ``fixed``.

    Learned is the lowest limit that would have begun one alarm a week at most, never below ``LEAST``
    (:func:`~lora_watch.derive.hysteresis.calibrated`). Times in ``harmed`` (from, to in µs UTC, by pool, whose missing words are
    '') are left out: what users felt is not usual. Nothing caps it, since a pool that always misses much is told as thrashing by
    a limit that is fixed.
    """
    told: dict[Pool, MissLimit] = {}
    for key, rows in history.partition_by(POOL, as_dict=True).items():
        bad = (harmed or {}).get(tuple(part or "" for part in key), ())
        values = [
            (at, None if any(begin < at + BIN and at < end for begin, end in bad) else value)
            for at, value in rows.sort("at").select("at", "miss_ratio").iter_rows()
        ]
        known = [at for at, value in values if value is not None]
        days = (known[-1] - known[0]) / DAY if known else 0.0
        own = calibrated(values, fallback=fixed.enter, least=LEAST, keep=fixed.keep, days=DAYS)  # one bin is as long as any alarm
        limits = fixed if days < DAYS else replace(own, for_=fixed.for_)
        told[key] = MissLimit(limits, days, days >= DAYS)
    return told
