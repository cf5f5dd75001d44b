"""The share of GPU time that went into inference, and into adapters instead, graded by how it was measured."""

from collections.abc import Sequence

import polars as pl

from lora_watch import names
from lora_watch.derive.groups import (
    BY_POD,
    ENGINE,
    PROVENANCE,
    group_columns,
    overlap_seconds,
    ranked_provenance,
    said_once,
)
from lora_watch.derive.step_function import held_samples
from lora_watch.model import SECOND, Provenance, Window

GRADE = pl.Enum(["A", "A-", "D"])
"""Grades from best to worst: CUDA-timed steps, host-timed steps, scraped gauges."""


def inference_share(
    events: pl.LazyFrame,
    window: Window,
    by: Sequence[str] = BY_POD,
    *,
    boots: pl.LazyFrame,
    samples: pl.LazyFrame | None = None,
) -> pl.LazyFrame:
    """
    Share of observed time that engines spent on inference proper, one row per group.

    Columns, after the group's: ``share`` (null where only an interval is known), ``share_low``, ``share_high``,
    ``adapter_share`` (time lost to adapters; null where unknown), ``grade`` (worst of the group's engines; null: nothing
    measured), ``observed_seconds`` (sum over graded engines: the denominator of every share), ``unobserved_seconds`` (the
    rest of window × engines), ``engines``, ``engines_unknown``, ``bad_records`` (left out), ``provenance``.

    * **A**, steps timed by the GPU (clock cuda): ``(Σ execute_seconds − Σ adapter_seconds) ÷ observed seconds``; adapter
      share ``Σ adapter_seconds ÷ observed seconds``. Observed seconds: the time a boot of the engine was up in the window. An
      engine whose log holds steps, but none in the window, was idle: 0.
    * **A-**, the same by host time: launches are asynchronous, so it is not quite GPU time. One host-timed record makes the
      engine A-.
    * **D**, no steps but samples of running requests: ``nonidle − stall``. nonidle: time share with requests running > 0
      (step function, gaps out); stall: seconds of the loads inside steps. Where a load's seconds are unknown or the engine
      has no events the stall may be anything: the interval ``[0, nonidle − known stall]``.

    A steps record covers ``[at − wall_seconds, at)`` and is split pro rata at the window's edges. Adapter time is at most the
    execute time of its record. Records with wall time not above 0, or with NaN, infinite or negative seconds, are left out
    and counted. Rows said twice count once. A share may pass 1 by clock jitter. Engines that were not up in the window have
    no row. Shares of a group are ratios of sums.
    """
    keys = group_columns(by)
    if "adapter" in keys:
        raise ValueError("inference share can't be told apart by adapter: one step serves many")
    up_from, ended = pl.coalesce("started_at", "first_at"), pl.col("ended_at")
    up = (
        boots.filter((up_from < window.end) & (ended.is_null() | (ended > window.start)))
        .group_by(ENGINE)
        .agg(
            up_seconds=overlap_seconds(up_from, ended, window.start, window.end).sum(), boot_provenance=ranked_provenance().max()
        )
    )
    parts = up.join(_steps(events, window), on=ENGINE, how="left", nulls_equal=True)
    if samples is not None:
        parts = parts.join(_samples(samples, events, window), on=ENGINE, how="full", coalesce=True, nulls_equal=True)
    else:
        nothing = {"nonidle": None, "sampled": None, "stall": None, "unknown_loads": None, "sample_provenance": None}
        parts = parts.with_columns(pl.lit(value, dtype=pl.Float64).alias(name) for name, value in nothing.items())
        parts = parts.with_columns(pl.col("sample_provenance").cast(pl.String).cast(PROVENANCE))
    stepped = pl.col("execute").is_not_null() & (pl.col("up_seconds") > 0)
    sampled = ~stepped.fill_null(value=False) & (pl.col("sampled") > 0)
    stall = pl.col("stall").fill_null(0.0)
    known = (pl.col("unknown_loads") == 0).fill_null(value=False)
    rest = (pl.col("nonidle") - stall).clip(lower_bound=0)
    engines = parts.select(
        *ENGINE,
        high=pl.when(stepped).then(pl.col("execute") - pl.col("adapter")).when(sampled).then(rest),
        low=pl.when(stepped).then(pl.col("execute") - pl.col("adapter")).when(sampled & known).then(rest).when(sampled).then(0.0),
        lost=pl.when(stepped).then("adapter").when(sampled & known).then(stall),
        observed=pl.when(stepped).then("up_seconds").when(sampled).then("sampled"),
        grade=pl.when(stepped).then("step_grade").when(sampled).then(pl.lit("D", dtype=GRADE)),
        bad=pl.col("bad").fill_null(0),
        ranked=pl.when(stepped)
        .then(pl.max_horizontal("boot_provenance", "step_provenance"))
        .when(sampled)
        .then(pl.max_horizontal("boot_provenance", "sample_provenance"))
        .otherwise("boot_provenance"),
    )
    graded = pl.col("grade").is_not_null()
    observed = pl.col("observed").sum()

    def share(of: str) -> pl.Expr:
        return pl.when(graded.any()).then(pl.col(of).filter(graded).sum() / observed)

    whole = (pl.col("low") == pl.col("high")).filter(graded).all()
    return engines.group_by(keys).agg(
        share=pl.when(whole).then(share("high")),
        share_low=share("low"),
        share_high=share("high"),
        adapter_share=pl.when(pl.col("lost").filter(graded).is_not_null().all()).then(share("lost")),
        grade=pl.col("grade").max().cast(pl.String),
        observed_seconds=observed,
        unobserved_seconds=pl.len() * window.seconds - observed,
        engines=pl.len().cast(pl.Int64),
        engines_unknown=(~graded).sum().cast(pl.Int64),
        bad_records=pl.col("bad").sum().cast(pl.Int64),
        provenance=pl.col("ranked").max().cast(pl.String),
    )


def _steps(events: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """Per engine: execute and adapter seconds inside the window, the grade of their clock, and records left out."""
    wall, execute, adapter = (pl.col(f"{name}_seconds") for name in ("wall", "execute", "adapter"))
    good = (
        (wall.is_finite() & (wall > 0)) & (execute.is_finite() & (execute >= 0)) & (adapter.is_finite() & (adapter >= 0))
    ).fill_null(value=False)
    inside = overlap_seconds(
        pl.col("at") - (wall * SECOND).round().cast(pl.Int64, strict=False), pl.col("at"), window.start, window.end
    )
    part = (inside / wall).clip(0.0, 1.0)
    in_window = pl.col("at").is_between(window.start, window.end, closed="left")
    return (
        events.filter((pl.col("kind") == "steps") & (pl.col("at") < window.end + 60 * SECOND))
        .filter(said_once())
        .with_columns(good=good, part=pl.when(good).then(part))
        .group_by(ENGINE)
        .agg(
            execute=pl.when(pl.col("good").any()).then((execute * pl.col("part")).filter(pl.col("good")).sum()),
            adapter=(pl.min_horizontal(adapter, execute) * pl.col("part")).filter(pl.col("good")).sum(),
            step_grade=pl.when((pl.col("clock").filter(pl.col("good")) == "cuda").fill_null(value=False).all())
            .then(pl.lit("A", dtype=GRADE))
            .otherwise(pl.lit("A-", dtype=GRADE)),
            bad=(~pl.col("good") & in_window).sum(),
            step_provenance=ranked_provenance().max(),
        )
    )


def _samples(samples: pl.LazyFrame, events: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """Per engine with samples: seconds covered, seconds not idle, and what is known of the stall of loads inside steps."""
    held = held_samples(samples.filter(pl.col("metric") == names.REQUESTS_RUNNING), window)
    seconds = (pl.col("end") - pl.col("start")) / SECOND
    in_window = pl.col("at").is_between(window.start, window.end, closed="left")
    load = in_window & (pl.col("kind") == "load") & pl.col("in_step").ne_missing(False) & pl.col("reason").ne_missing("warmup")
    took = pl.col("seconds")
    timed = (took.is_finite() & (took >= 0)).fill_null(value=False)
    stalls = (
        events.filter(load)
        .select(*ENGINE, "stream", "seq", "seconds")
        .filter(said_once())
        .group_by(ENGINE)
        .agg(stall=took.filter(timed).sum(), unknown_loads=(~timed).sum().cast(pl.Float64))
    )
    loads = (
        events.select(ENGINE)
        .unique()
        .join(stalls, on=ENGINE, how="left", nulls_equal=True)
        .with_columns(pl.col("stall", "unknown_loads").fill_null(0.0))
    )
    return (
        held.group_by(ENGINE)
        .agg(
            nonidle=seconds.filter(pl.col("value") > 0).sum(),
            sampled=seconds.sum(),
            sample_provenance=pl.max_horizontal(ranked_provenance().max(), pl.lit(str(Provenance.ACTIVITY), dtype=PROVENANCE)),
        )
        .join(loads, on=ENGINE, how="left", nulls_equal=True)
    )
