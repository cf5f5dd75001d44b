"""Engines whose KV cache is nearly full, how far, and what becomes of their slots meanwhile."""

import polars as pl

from lora_watch import names
from lora_watch.derive.found import NONE_NAMED, structures
from lora_watch.derive.groups import ENGINE, POD, ranked_provenance
from lora_watch.derive.step_function import held_samples
from lora_watch.model import MINUTE, SECOND, Window

TIERS = (0.85, 0.90, 0.95)
"""Soft, hard and critical pressure, as the article has them."""
FLAGGED_SECONDS = MINUTE // SECOND
"""A cache that fills for a moment at a peak is what it is for."""


def kv_pressure(samples: pl.LazyFrame, window: Window, *, stays: pl.LazyFrame | None = None) -> pl.LazyFrame:
    """
    How full the KV cache of each engine was, one row per engine with a sample in the window.

    Columns, between the head (pods: the one; start and end: first and last time at 85 % or more) and provenance: ``engine``,
    ``tier`` (0 none, 1 soft 85 %, 2 hard 90 %, 3 critical 95 %: the highest that lasted a minute or more in all),
    ``soft_seconds``, ``hard_seconds``, ``critical_seconds`` (time at or above each), ``observed_seconds`` (that samples cover),
    ``mean_ratio``, ``max_ratio`` (of the cache in use), and with ``stays`` ``residents_under_pressure``, ``residents_otherwise``
    (mean adapters in slots at 85 % or more, and below) and ``slots_squeezed`` (otherwise − under pressure, not below 0; null
    where the window holds only one of the two).

    Flagged: tier 2 or more. vLLM sets its slots and its KV cache apart at the start, so there slots are squeezed by nobody and
    pressure shows as preemptions and waiting; engines with one pool of memory for both give up slots.

    Edge cases. Samples are a step function (:func:`~lora_watch.derive.step_function.held_samples`): what a gap hides is in no
    tier. A value over 1 (a percentage from an exporter that multiplies) is left out, for its meaning is not known.
    """
    usage = samples.filter((pl.col("metric") == names.KV_CACHE_USAGE) & pl.col("value").is_between(0.0, 1.0))
    lasted = (pl.col("end") - pl.col("start")) / SECOND
    held = held_samples(usage, window).with_columns(lasted=lasted).cache()
    at_least = [pl.col("lasted").filter(pl.col("value") >= tier).sum() for tier in TIERS]
    tight = pl.col("value") >= TIERS[0]
    engines = held.group_by(ENGINE).agg(
        start=pl.col("start").filter(tight).min(),
        end=pl.col("end").filter(tight).max(),
        soft_seconds=at_least[0],
        hard_seconds=at_least[1],
        critical_seconds=at_least[2],
        observed_seconds=pl.col("lasted").sum(),
        mean_ratio=(pl.col("value") * pl.col("lasted")).sum() / pl.col("lasted").sum(),
        max_ratio=pl.col("value").max(),
        ranked=ranked_provenance().max(),
    )
    if stays is not None:
        engines = engines.join(_residents(held.with_columns(tight=tight), stays), on=ENGINE, how="left", nulls_equal=True)
    else:
        unknown = ("residents_under_pressure", "residents_otherwise")
        engines = engines.with_columns(pl.lit(None, dtype=pl.Float64).alias(name) for name in unknown)
    squeezed = (pl.col("residents_otherwise") - pl.col("residents_under_pressure")).clip(lower_bound=0)
    reached = [(pl.col(name) >= FLAGGED_SECONDS).cast(pl.Int64) for name in ("soft_seconds", "hard_seconds", "critical_seconds")]
    return structures(
        engines.with_columns(
            pods=pl.concat_list("pod"),
            adapters=NONE_NAMED,
            start=pl.col("start").fill_null(window.start),
            end=pl.col("end").fill_null(window.end),
            tier=pl.sum_horizontal(reached),
            slots_squeezed=squeezed,
            provenance=pl.col("ranked").cast(pl.String),
        ).with_columns(flagged=pl.col("tier") >= 2),
        (
            "engine",
            "tier",
            "soft_seconds",
            "hard_seconds",
            "critical_seconds",
            "observed_seconds",
            "mean_ratio",
            "max_ratio",
            "residents_under_pressure",
            "residents_otherwise",
            "slots_squeezed",
        ),
        by=(*POD[3:], "engine"),
    )


def _residents(held: pl.LazyFrame, stays: pl.LazyFrame) -> pl.LazyFrame:
    """Of each engine the mean number of adapters in slots, while its cache was tight and while it was not."""
    merged = _stretches(held)
    seats = stays.select(*ENGINE, "resident_from", left=pl.col("left_at").fill_null(2**62))
    inside = pl.min_horizontal("left", "end") - pl.max_horizontal("resident_from", "start")
    occupied = (
        seats.join(merged, on=ENGINE, nulls_equal=True)
        .with_columns(occupied=inside / SECOND)
        .filter(pl.col("occupied") > 0)
        .group_by(*ENGINE, "tight")
        .agg(occupied=pl.col("occupied").sum())
    )
    spent = merged.group_by(*ENGINE, "tight").agg(seconds=((pl.col("end") - pl.col("start")) / SECOND).sum())
    mean = spent.join(occupied, on=[*ENGINE, "tight"], how="left", nulls_equal=True).with_columns(
        mean=pl.col("occupied").fill_null(0.0) / pl.col("seconds")
    )
    return mean.group_by(ENGINE).agg(
        residents_under_pressure=pl.col("mean").filter(pl.col("tight")).first(),
        residents_otherwise=pl.col("mean").filter(~pl.col("tight")).first(),
    )


def _stretches(held: pl.LazyFrame) -> pl.LazyFrame:
    """Samples side by side that are both tight, or both not, as one stretch: few of them, so that stays can be joined."""
    same = pl.all_horizontal(*(pl.col(column).eq_missing(pl.col(column).shift(1)) for column in (*ENGINE, "tight")))
    goes_on = same & (pl.col("start") == pl.col("end").shift(1))
    return (
        held.sort(*ENGINE, "start")
        .with_columns(stretch=(~goes_on).fill_null(value=True).cast(pl.Int64).cum_sum())
        .group_by("stretch")
        .agg(*(pl.col(column).first() for column in (*ENGINE, "tight")), pl.col("start").min(), pl.col("end").max())
        .drop("stretch")
    )
