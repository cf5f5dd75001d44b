"""The share of GPU time that went into inference, and into adapters instead, graded by how it was measured."""

import math
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
from lora_watch.derive.step_function import held_samples, swept
from lora_watch.model import SECOND, Provenance, Window
from lora_watch.schema import SAMPLES

GRADE = pl.Enum(["A", "A-", "B", "C", "D"])
"""
Grades from best to worst: CUDA-timed steps, host-timed steps, busy GPUs with the stall known, GPU counters, scraped gauges.
"""
GPU_METRICS = (names.GPU_ENGINE_ACTIVE, names.GPU_SM_ACTIVE, names.GPU_TENSOR_ACTIVE, names.GPU_DRAM_ACTIVE, names.GPU_UTIL)
"""What of the GPUs is used: four ratios, and one in percent."""
PERCENT = frozenset({names.GPU_UTIL})
_POD = ("cluster", "pod")
COLLECTED = 30 * SECOND
"""µs between two collections of dcgm-exporter, by default."""
_MOVED = tuple(part * COLLECTED // 2 for part in range(5))
HOST_GAP = 0.1
"""
The greatest share of a step in which the GPU waits for the host between two kernels. Engines that replay CUDA graphs lose a few
percent; one that launches every kernel of a small batch by itself may lose more than this, and should be timed by the agent.
"""
_LONGEST_LOAD = 3600 * SECOND
"""µs behind the window's end at which a load may end that began within it."""
_JITTER = 0.01
"""How far above 1 a ratio may be and still be one: counters are divided by a clock of their own."""


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
    rest of window × engines), ``engines``, ``engines_unknown``, ``bad_records`` (left out), ``busy_ratio``,
    ``busy_minus_inference``, ``provenance``.

    * **A**, steps timed by the GPU (clock cuda): ``(Σ execute_seconds − Σ adapter_seconds) ÷ observed seconds``; adapter
      share ``Σ adapter_seconds ÷ observed seconds``. Observed seconds: the time a boot of the engine was up in the window. An
      engine whose log holds steps, but none in the window, was idle: 0.
    * **A-**, the same by host time: launches are asynchronous, so it is not quite GPU time. One host-timed record makes the
      engine A-.
    * **B**, no steps, but GPU_ENGINE_ACTIVE (the mean of the pod's GPUs over time) and a log that says how long every load took.
      The interval from ``engine − stall`` to the least of ``engine ÷ (1 − HOST_GAP)``, ``nonidle − stall`` and ``1 − stall``. An
      upload runs on copy engines, which the counter leaves out, while a drained batch and a warm-up keep the compute engine
      busy: of the time of loads anything from none to all is in the counter. And a step is longer than what it counts of it, by
      the gaps in which the GPU waits for the host. Adapter share is the seconds of the loads inside steps.
    * **C**, other GPU counters, or the loads' seconds unknown. The lower end: SM_ACTIVE (where it is off, the greater of
      TENSOR_ACTIVE and DRAM_ACTIVE) less the stall; 0 where the loads' seconds are unknown, since then all that the counters saw
      may have been loads. The upper end: the least of ``engine ÷ (1 − HOST_GAP)`` and ``nonidle`` that is there, else 1; less
      the stall where that is known. ``nonidle`` counts, for B and C, where generated tokens are counted too.
    * **D**, no steps and no GPU counters but samples of running requests: ``nonidle − stall``. nonidle: time share with requests
      running > 0 (step function, gaps out), at the most with every stretch between scrapes in which a token was generated; stall:
      seconds of the loads inside steps. Where a load's seconds are unknown or the engine has no events the stall may be anything:
      the interval ``[0, nonidle − known stall]``.

    ``busy_ratio`` is what dashboards show: GPU_UTIL (GPU_ENGINE_ACTIVE where it is not there, as under MIG), mean of the group's
    GPUs; never a grade of its own. ``busy_minus_inference`` is how much of that was not inference, at the least: ``busy_ratio −
    share_high``, 0 where that is negative, over the engines that have both; null: unknown. Far above 0 the dashboard lies.
    An exporter's value tells of the ``COLLECTED`` that ended up to ``COLLECTED`` before it was read, and is held until it is read
    again: so ends are made of the least and the greatest mean of a counter over the window moved on by 0 … 2 · COLLECTED.
    GPU counters are of a pod, so its engines share them. A pod that only they know has no row: it may be anybody's job. Values
    outside 0 … 1 (0 … 100) say nothing.

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
    told = samples if samples is not None else SAMPLES.empty().lazy()
    parts = parts.join(_samples(told, window), on=ENGINE, how="full", coalesce=True, nulls_equal=True)
    parts = _with_gpus(parts, _gpus(told, window)).join(_loads(events, window), on=ENGINE, how="left", nulls_equal=True)
    stepped = (pl.col("execute").is_not_null() & (pl.col("up_seconds") > 0)).fill_null(value=False)
    known = (pl.col("unknown_loads") == 0).fill_null(value=False)
    counted = ~stepped & pl.col("gpu_seconds").is_not_null()
    busy = counted & known & pl.col("engine_active_high").is_not_null()
    between = counted & ~busy
    sampled = (~stepped & ~counted & (pl.col("sampled") > 0)).fill_null(value=False)
    stall = pl.col("stall").fill_null(0.0)
    rest = (pl.col("nonidle") - stall).clip(lower_bound=0)
    most_rest = (pl.col("worked") - stall).clip(lower_bound=0)
    stalled = pl.when(known).then(stall / pl.col("gpu_seconds")).otherwise(0.0)
    nonidle = pl.when((pl.col("sampled") > 0) & pl.col("bounded")).then(pl.col("worked") / pl.col("sampled"))
    most = pl.min_horizontal(pl.col("engine_active_high") / (1 - HOST_GAP), nonidle.fill_null(1.0) - stalled).clip(0, 1)
    counter = pl.coalesce("sm_active_low", pl.max_horizontal("tensor_active_low", "dram_active_low"))
    counter = pl.when(busy).then("engine_active_low").otherwise(counter)
    least = pl.when(known).then((counter - stalled).clip(lower_bound=0)).fill_null(0.0)
    inference = pl.col("execute") - pl.col("adapter")
    lit = {grade: pl.lit(grade, dtype=GRADE) for grade in ("B", "C", "D")}
    engines = parts.select(
        *ENGINE,
        high=pl.when(stepped).then(inference).when(counted).then(most * pl.col("gpu_seconds")).when(sampled).then(most_rest),
        low=pl.when(stepped)
        .then(inference)
        .when(counted)
        .then(pl.min_horizontal(least, most) * pl.col("gpu_seconds"))
        .when(sampled & known)
        .then(rest)
        .when(sampled)
        .then(0.0),
        lost=pl.when(stepped).then("adapter").when((counted | sampled) & known).then(stall),
        observed=pl.when(stepped).then("up_seconds").when(counted).then("gpu_seconds").when(sampled).then("sampled"),
        grade=pl.when(stepped)
        .then("step_grade")
        .when(busy)
        .then(lit["B"])
        .when(between)
        .then(lit["C"])
        .when(sampled)
        .then(lit["D"]),
        bad=pl.col("bad").fill_null(0),
        busy=pl.coalesce("util", "engine_active"),
        busy_seconds="busy_seconds",
        ranked=pl.when(stepped)
        .then(pl.max_horizontal("boot_provenance", "step_provenance"))
        .when(counted)
        .then(pl.max_horizontal("boot_provenance", "gpu_provenance", "sample_provenance"))
        .when(sampled)
        .then(pl.max_horizontal("boot_provenance", "sample_provenance"))
        .otherwise(pl.max_horizontal("boot_provenance", "gpu_provenance")),
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
        busy_ratio=_mean("busy", "busy_seconds"),
        busy_minus_inference=_mean((pl.col("busy") - pl.col("high") / pl.col("observed")).clip(lower_bound=0), "busy_seconds"),
        provenance=pl.col("ranked").max().cast(pl.String),
    )


def _mean(of: pl.Expr | str, weight: str) -> pl.Expr:
    """The weighted mean of what is known; null where nothing is."""
    value = pl.col(of) if isinstance(of, str) else of
    there = value.is_not_null() & (pl.col(weight) > 0)
    return pl.when(there.any()).then((value * pl.col(weight)).filter(there).sum() / pl.col(weight).filter(there).sum())


def _gpus(samples: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """
    Per pod: the time average of each counter over its GPUs, and the seconds a GPU was counted for on average.

    ``<counter>_low`` and ``<counter>_high`` are the least and the greatest average over the window as it is and moved on.
    """
    value = pl.when(pl.col("metric").is_in(sorted(PERCENT))).then(pl.col("value") / 100).otherwise("value")
    of_gpus = (
        samples.filter(pl.col("metric").is_in(GPU_METRICS))
        .with_columns(engine=pl.col("series"), value=value)
        .with_columns(
            value=pl.when(pl.col("value").is_between(0, 1 + _JITTER)).then(pl.col("value").clip(0, 1)).otherwise(math.nan)
        )
    )
    held = held_samples(of_gpus, Window(window.start, window.end + _MOVED[-1]))
    start, end, weight = pl.col("start"), pl.col("end"), pl.col("value")
    inside = [overlap_seconds(start, end, window.start + moved, window.end + moved) for moved in _MOVED]
    means = [pl.when(one.sum() > 0).then((weight * one).sum() / one.sum()) for one in inside]
    by_metric = (
        held.join(of_gpus.select("engine", "metric").unique(), on="engine")
        .group_by(*_POD, "metric")
        .agg(
            mean=means[0],
            low=pl.min_horizontal(*means),
            high=pl.max_horizontal(*means),
            covered=pl.when(inside[0].sum() > 0).then(inside[0].sum() / pl.col("engine").filter(inside[0] > 0).n_unique()),
            gpu_provenance=ranked_provenance().max(),
        )
    )

    def of(column: str, metric: str) -> pl.Expr:
        return pl.col(column).filter(pl.col("metric") == metric).first()

    counters = {
        "engine_active": names.GPU_ENGINE_ACTIVE,
        "sm_active": names.GPU_SM_ACTIVE,
        "tensor_active": names.GPU_TENSOR_ACTIVE,
        "dram_active": names.GPU_DRAM_ACTIVE,
    }
    return by_metric.group_by(_POD).agg(
        engine_active=of("mean", names.GPU_ENGINE_ACTIVE),
        util=of("mean", names.GPU_UTIL),
        **{f"{name}_{end}": of(end, metric) for name, metric in counters.items() for end in ("low", "high")},
        gpu_seconds=pl.coalesce(
            of("covered", names.GPU_ENGINE_ACTIVE),
            of("covered", names.GPU_SM_ACTIVE),
            pl.max_horizontal(of("covered", names.GPU_TENSOR_ACTIVE), of("covered", names.GPU_DRAM_ACTIVE)),
        ),
        busy_seconds=pl.coalesce(of("covered", names.GPU_UTIL), of("covered", names.GPU_ENGINE_ACTIVE)),
        gpu_provenance=pl.col("gpu_provenance").max(),
    )


def _with_gpus(parts: pl.LazyFrame, gpus: pl.LazyFrame) -> pl.LazyFrame:
    """Each engine beside the counters of its pod's GPUs."""
    return parts.join(gpus, on=_POD, how="left", nulls_equal=True)


def _loads(events: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """
    Per engine with events: seconds of the loads inside steps, and how many such loads' seconds are unknown.

    A load covers ``[at − seconds, at)``: of one across the window's edge the part inside counts. Loads into the two tiers follow
    each other, so their seconds add up.
    """
    around = pl.col("at").is_between(window.start, window.end + _LONGEST_LOAD, closed="left")
    load = around & (pl.col("kind") == "load") & pl.col("in_step").ne_missing(False) & pl.col("reason").ne_missing("warmup")
    took = pl.col("seconds")
    timed = (took.is_finite() & (took >= 0)).fill_null(value=False)
    began = pl.col("at") - (took.clip(0, _LONGEST_LOAD / SECOND) * SECOND).round().cast(pl.Int64, strict=False)
    inside = overlap_seconds(began, pl.col("at"), window.start, window.end)
    stalls = (
        events.filter(load)
        .select(*ENGINE, "stream", "seq", "at", "seconds")
        .filter(said_once())
        .group_by(ENGINE)
        .agg(
            stall=inside.filter(timed).sum(),
            unknown_loads=(~timed & (pl.col("at") < window.end)).sum().cast(pl.Float64),
        )
    )
    return (
        events.select(ENGINE)
        .unique()
        .join(stalls, on=ENGINE, how="left", nulls_equal=True)
        .with_columns(pl.col("stall", "unknown_loads").fill_null(0.0))
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


def _samples(samples: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """
    Per engine with samples of running requests: seconds covered, seconds not idle, and ``worked``: the most those may be.

    Scrapes miss requests shorter than their distance; the count of generated tokens does not. A stretch between two scrapes in
    which it grew (or began anew), or at whose end a request runs that may have come without a token since, was not idle all
    along: ``worked`` counts the whole of it. Without the count it is what was seen, and ``bounded`` is false: more is possible.
    """
    held = held_samples(samples.filter(pl.col("metric") == names.REQUESTS_RUNNING), window)
    seconds = (pl.col("end") - pl.col("start")) / SECOND
    sampled = held.group_by(ENGINE).agg(
        nonidle=seconds.filter(pl.col("value") > 0).sum(),
        sampled=seconds.sum(),
        sample_provenance=pl.max_horizontal(ranked_provenance().max(), pl.lit(str(Provenance.ACTIVITY), dtype=PROVENANCE)),
    )
    counted = samples.filter(pl.col("metric") == names.GENERATION_TOKENS).select(ENGINE).unique().with_columns(bounded=True)
    value = pl.col("value")
    grew = _stretches(samples, names.GENERATION_TOKENS, value != value.shift(1).over(ENGINE), window)
    came = _stretches(samples, names.REQUESTS_RUNNING, value > 0, window).join(counted, on=ENGINE, how="semi", nulls_equal=True)
    busy = held.filter(value > 0).select(*ENGINE, "start", "end", height=pl.lit(1, pl.Int64))
    worked = (
        swept(pl.concat([busy, grew, came]), ENGINE)
        .group_by(ENGINE)
        .agg(worked=pl.col("seconds").filter(pl.col("height") > 0).sum())
    )
    return (
        sampled.join(worked, on=ENGINE, how="left", nulls_equal=True)
        .join(counted, on=ENGINE, how="left", nulls_equal=True)
        .with_columns(worked=pl.min_horizontal(pl.max_horizontal("nonidle", pl.col("worked").fill_null(0.0)), "sampled"))
    )


def _stretches(samples: pl.LazyFrame, metric: str, which: pl.Expr, window: Window) -> pl.LazyFrame:
    """The stretches between two samples of a metric for whose later one ``which`` holds, cut to the window, each of height 1."""
    return (
        samples.filter((pl.col("metric") == metric) & pl.col("value").is_finite())
        .group_by(*ENGINE, "at")
        .agg(pl.col("value").sum())
        .sort(*ENGINE, "at")
        .with_columns(start=pl.col("at").shift(1).over(ENGINE), chosen=which)
        .filter(pl.col("chosen") & (pl.col("at") > window.start) & (pl.col("start") < window.end))
        .select(
            *ENGINE,
            start=pl.max_horizontal("start", pl.lit(window.start)),
            end=pl.min_horizontal("at", pl.lit(window.end)),
            height=pl.lit(1, pl.Int64),
        )
    )
