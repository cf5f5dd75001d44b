"""Loads that take longer than they should, and which phase: the read from disk, or the copy to the GPU."""

import polars as pl

from lora_watch.derive.found import structures
from lora_watch.derive.groups import POOL, ranked_provenance, said_once
from lora_watch.derive.stays import counted
from lora_watch.model import SECOND, Window

DISK, COPY = "disk", "copy"
FEWEST = 5
"""Loads in the window below which nothing is flagged."""
FEWEST_USUAL = 20
"""Loads of the past that say what is usual."""
FLAGGED_RATIO = 5.0
FLAGGED_SECONDS = 0.05
"""A copy that takes 6 ms instead of 2 is nobody's trouble."""
_ALLOWED = {DISK: (1.0, 200e6), COPY: (0.1, 2e9)}
"""Seconds and bytes a second that any storage and any bus keep to: the limit where there is no past to compare with."""
_KEY = (*POOL, "phase", "size_class")


def load_phases(events: pl.LazyFrame) -> pl.LazyFrame:
    """
    One row per timed, successful load of either tier: pool, pod, adapter, ``at``, ``seconds``, ``bytes``, ``phase`` (``disk``:
    into the CPU cache; ``copy``: into a slot), ``size_class`` (⌊log2 bytes⌋; −1: bytes not told) and ``ranked`` provenance.
    """
    tier, size = pl.col("tier"), pl.col("bytes")
    timed = pl.col("seconds").is_between(0, 1e9)
    return (
        events.filter((pl.col("kind") == "load") & counted() & pl.col("ok").ne_missing(False) & timed)
        .filter(said_once())
        .select(
            *POOL,
            "pod",
            "adapter",
            "at",
            "seconds",
            "bytes",
            phase=pl.when(tier == "cpu").then(pl.lit(DISK)).when(tier == "gpu").then(pl.lit(COPY)),
            size_class=pl.when(size > 0).then(size.log(2).floor()).fill_null(-1).cast(pl.Int64),
            ranked=ranked_provenance(),
        )
        .filter(pl.col("phase").is_not_null())
    )


def usual_load_seconds(events: pl.LazyFrame) -> pl.LazyFrame:
    """
    What a load takes by pool, phase and size class: ``usual_loads``, ``usual_p50_seconds``, ``usual_p95_seconds``.

    Small, so a caller keeps it instead of a month of events.
    """
    seconds = pl.col("seconds")
    return (
        load_phases(events)
        .group_by(_KEY)
        .agg(
            usual_loads=pl.len().cast(pl.Int64),
            usual_p50_seconds=seconds.quantile(0.5, "linear"),
            usual_p95_seconds=seconds.quantile(0.95, "linear"),
        )
    )


def slow_loads(events: pl.LazyFrame, window: Window, *, usual: pl.LazyFrame | None = None) -> pl.LazyFrame:
    """
    How long the loads of the window took against what is usual, one row per pool, phase and size class.

    Columns, between the head (pods and adapters: those with a slow load) and provenance: ``phase`` (disk: read into the CPU
    cache; copy: into the slot), ``size_class`` and ``bytes_p50``, ``loads``, ``slow_loads``, ``p50_seconds``, ``p95_seconds``,
    ``usual_loads``, ``usual_p50_seconds``, ``usual_p95_seconds`` (null: no past), ``ratio`` (p50 ÷ the usual p50),
    ``allowed_seconds``, ``slow_seconds`` (all slow loads together).

    ``usual`` is :func:`usual_load_seconds` of the past; without it the rows of ``events`` before the window are. Where there
    are ``FEWEST_USUAL`` of them a load is slow if it took over 5 times the usual p50 and over 50 ms (a median is still right
    when a third of the past was slow; a p95 is not); else if it took longer than
    ``allowed_seconds``, for a read ``1 + bytes ÷ 200 MB/s``, for a copy ``0.1 + bytes ÷ 2 GB/s``, which any storage keeps to
    (bytes not told: 1 GB).

    Flagged: of five loads or more at least one in five is slow. start and end are those of the slow ones, the first one's
    beginning included. Slow loads are no swaps too many: look for the storage, not for the slots.

    Edge cases. Failed, warm-up and untimed loads are left out. Reloads in place count: they read too. A load belongs to the
    window in which it ended. Size classes keep large adapters from looking slow beside small ones.
    """
    past = usual if usual is not None else usual_load_seconds(events.filter(pl.col("at") < window.start))
    inside = pl.col("at").is_between(window.start, window.end, closed="left")
    size = pl.col("bytes").fill_null(1_000_000_000)
    allowed = pl.when(pl.col("phase") == DISK).then(_allowed(DISK, size)).otherwise(_allowed(COPY, size))
    known = (pl.col("usual_loads") >= FEWEST_USUAL).fill_null(value=False)
    limit = pl.when(known).then(pl.max_horizontal(FLAGGED_RATIO * pl.col("usual_p50_seconds"), pl.lit(FLAGGED_SECONDS)))
    loads = (
        load_phases(events.filter(inside))
        .join(past, on=_KEY, how="left", nulls_equal=True)
        .with_columns(allowed=allowed)
        .with_columns(slow=pl.col("seconds") > limit.otherwise("allowed"))
    )
    slow, seconds = pl.col("slow"), pl.col("seconds")
    began = pl.col("at") - (seconds * SECOND).cast(pl.Int64)
    whole = loads.group_by(_KEY).agg(
        pods=pl.col("pod").filter(slow).drop_nulls().unique().sort(),
        adapters=pl.col("adapter").filter(slow).drop_nulls().unique().sort(),
        start=began.filter(slow).min(),
        end=pl.col("at").filter(slow).max() + 1,
        bytes_p50=pl.col("bytes").quantile(0.5),
        loads=pl.len().cast(pl.Int64),
        slow_loads=slow.sum().cast(pl.Int64),
        p50_seconds=seconds.quantile(0.5, "linear"),
        p95_seconds=seconds.quantile(0.95, "linear"),
        usual_loads=pl.col("usual_loads").first().fill_null(0),
        usual_p50_seconds=pl.col("usual_p50_seconds").first(),
        usual_p95_seconds=pl.col("usual_p95_seconds").first(),
        allowed_seconds=pl.col("allowed").quantile(0.5),
        slow_seconds=seconds.filter(slow).sum(),
        provenance=pl.col("ranked").max().cast(pl.String),
    )
    usually = pl.col("usual_p50_seconds")
    return structures(
        whole.with_columns(
            start=pl.max_horizontal("start", pl.lit(window.start)).fill_null(window.start),
            end=pl.col("end").fill_null(window.end),
            ratio=pl.when(usually > 0).then(pl.col("p50_seconds") / usually),
            flagged=(pl.col("loads") >= FEWEST) & (5 * pl.col("slow_loads") >= pl.col("loads")),
        ),
        (
            "phase",
            "size_class",
            "bytes_p50",
            "loads",
            "slow_loads",
            "p50_seconds",
            "p95_seconds",
            "usual_loads",
            "usual_p50_seconds",
            "usual_p95_seconds",
            "ratio",
            "allowed_seconds",
            "slow_seconds",
        ),
        by=("phase", "size_class"),
    )


def _allowed(phase: str, size: pl.Expr) -> pl.Expr:
    fixed, rate = _ALLOWED[phase]
    return fixed + size / rate
