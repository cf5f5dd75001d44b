"""Levels over time: what scraped samples say between two scrapes, and the sum of many overlapping spans."""

from collections.abc import Sequence

import polars as pl

from lora_watch.derive.groups import ENGINE, worst_provenance
from lora_watch.model import SECOND, Window

LONGEST_GAP = 3
"""Spacings after which a sample says nothing any more: two scrapes may be missed, a third is an outage."""


def held_samples(samples: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """
    One metric's samples as a step function per engine: each value holds until the next sample.

    Columns: cluster, pool, role, pod, engine, ``start``, ``end`` (µs UTC, cut to the window), ``value``, ``provenance``;
    samples of one engine at one time (several series) are added. A sample holds for at most ``LONGEST_GAP`` times the
    engine's median spacing, else not at all: what a gap hides is unknown. The last sample holds for one median spacing. NaN
    and infinities (staleness markers too) end the value before and hold nothing. An engine with one sample has no spacing and
    no rows. Samples shortly before the window count into it.
    """
    following = pl.col("at").shift(-1).over(ENGINE)
    spacing = (following - pl.col("at")).median().over(ENGINE)
    return (
        samples.filter(pl.struct("series", "at").is_first_distinct())
        .group_by(*ENGINE, "at")
        .agg(pl.col("value").sum(), worst_provenance())
        .sort(*ENGINE, "at")
        .with_columns(spacing=spacing, until=following)
        .with_columns(until=pl.coalesce("until", (pl.col("at") + pl.col("spacing")).cast(pl.Int64)))
        .filter(pl.col("value").is_finite() & (pl.col("until") - pl.col("at") <= LONGEST_GAP * pl.col("spacing")))
        .select(
            *ENGINE,
            start=pl.max_horizontal("at", pl.lit(window.start)),
            end=pl.min_horizontal("until", pl.lit(window.end)),
            value="value",
            provenance="provenance",
        )
        .filter(pl.col("start") < pl.col("end"))
    )


def swept(spans: pl.LazyFrame, keys: Sequence[str]) -> pl.LazyFrame:
    """
    The height of stacked spans over time: one row per group and stretch of constant height.

    ``spans`` holds ``start``, ``end`` (µs, start < end) and ``height``, beside the columns of ``keys``. Result: keys,
    ``start``, ``seconds`` and ``height``, the sum of the heights of the spans with ``start ≤ t < end``; stretches after the
    last end are left out.
    """
    numbers = spans.select(keys).unique().sort(keys).with_row_index("stack")  # sorting by one number costs a third
    numbered = spans.join(numbers, on=keys, nulls_equal=True)
    edges = pl.concat(
        [
            numbered.select("stack", start="start", height="height"),
            numbered.select("stack", start="end", height=-pl.col("height")),
        ]
    )
    return (
        edges.group_by("stack", "start")
        .agg(pl.col("height").sum())
        .sort("stack", "start")
        .with_columns(
            height=pl.col("height").cum_sum().over("stack"),
            seconds=pl.when(pl.col("stack") == pl.col("stack").shift(-1)).then(pl.col("start").shift(-1) - pl.col("start"))
            / SECOND,
        )
        .filter(pl.col("seconds").is_not_null())
        .join(numbers, on="stack", how="left", maintain_order="left")
        .select(*keys, "start", "seconds", "height")
    )
