"""Evictions that make room for loads: how many, how fast, and how they bunch."""

from collections.abc import Sequence

import polars as pl

from lora_watch.derive.boots import by_worker
from lora_watch.derive.groups import BY_POD, ENGINE, group_columns, said_once, worst_provenance
from lora_watch.derive.moves import moves as moves_of
from lora_watch.model import MINUTE, SECOND, Window

_COUNTS = ("swaps", "loads", "warm", "cold", "preloads", "fills")


def swaps(
    events: pl.LazyFrame,
    window: Window,
    by: Sequence[str] = BY_POD,
    boots: pl.LazyFrame | None = None,
    *,
    moves: pl.LazyFrame | None = None,
) -> pl.LazyFrame:
    """
    Swaps and loads in the window, one row per group.

    Columns, after the group's: ``swaps`` (evictions from a GPU slot with reason lru: one out so that another can come in),
    ``loads`` (into a GPU slot, successful), of them ``warm`` (from the CPU cache), ``cold`` (from disk; the rest is of
    unknown origin), ``preloads`` (an API call asked) and ``fills`` (into a free slot); ``pods`` (engines' pods with a row
    here), ``swaps_per_second``, ``loads_per_second`` (÷ length of the window, summed over the group's pods),
    ``swaps_per_second_per_pod``, ``provenance``.

    A fill is a load before which, in its boot and at most a minute earlier, no eviction made room: the engine evicts and
    loads in one call. An in-place reload is a load, no swap and no fill. Warm-up records never count, failed loads neither (a
    failed load uses up its eviction).

    Edge cases. A pod without any worker record in the window has no row, for silence may be an outage. With ``boots``
    (:func:`~lora_watch.derive.boots.boots`, not by adapter) pods that were up at some time in the window have 0 and pods
    whose boots had all ended have null. Counts add up over adjoining windows, rows said twice count once. Hand over events
    from a minute before the window, or the first load may look like a fill. ``moves``, where they are at hand, are those of the
    same events (:func:`~lora_watch.derive.moves.moves`), for who groups more than once.
    """
    keys = group_columns(by)
    kind = pl.col("kind")
    in_window = pl.col("at").is_between(window.start, window.end, closed="left")
    done = (moves if moves is not None else moves_of(events)).filter(in_window)
    load = (kind == "load") & pl.col("ok").ne_missing(False)
    moved = done.group_by(keys).agg(
        swaps=((kind == "evict") & (pl.col("reason") == "lru").fill_null(value=False)).sum(),
        loads=load.sum(),
        warm=(load & (pl.col("from_tier") == "cpu").fill_null(value=False)).sum(),
        cold=(load & (pl.col("from_tier") == "disk").fill_null(value=False)).sum(),
        preloads=(load & (pl.col("reason") == "preload").fill_null(value=False)).sum(),
        fills=(load & ~pl.col("made_room")).sum(),
    )
    owner = [*dict.fromkeys([*keys, "cluster", "pod"])]
    if boots is not None and "adapter" not in keys:
        ended, up_from = pl.col("ended_at"), pl.coalesce("started_at", "first_at")
        wrote = pl.any_horizontal(
            pl.col(name).is_between(window.start, window.end, closed="left") for name in ("first_at", "last_at")
        )
        present = boots.filter(up_from < window.end).select(
            *owner, "provenance", up=ended.is_null() | (ended > window.start) | wrote
        )
    else:
        heard = events.filter(in_window & by_worker())
        heard = heard.filter(pl.col("adapter").is_not_null()) if "adapter" in keys else heard
        present = heard.select(*owner, "provenance").unique().with_columns(up=pl.lit(value=True))
    groups = present.group_by(keys).agg(
        up=pl.col("up").any(),
        pods=pl.struct("cluster", "pod").filter(pl.col("up")).n_unique().cast(pl.Int64),
        provenance=worst_provenance(),
    )
    per_second = 1 / window.seconds
    return (
        groups.join(moved, on=keys, how="left", nulls_equal=True)
        .with_columns(pl.when("up").then(pl.col(name).fill_null(0)).cast(pl.Int64) for name in _COUNTS)
        .select(
            *keys,
            *_COUNTS,
            "pods",
            (pl.col("swaps") * per_second).alias("swaps_per_second"),
            (pl.col("loads") * per_second).alias("loads_per_second"),
            pl.when(pl.col("pods") > 0).then(pl.col("swaps") * per_second / pl.col("pods")).alias("swaps_per_second_per_pod"),
            "provenance",
        )
    )


def swaps_per_minute(events: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """
    How swaps bunch: per pod and minute of the window, from bins of one second.

    Columns: cluster, pool, role, pod, ``minute`` (µs UTC of its start; minutes and seconds are counted from the window's
    start), ``swaps``, then per second ``mean``, ``p99`` (linear between order statistics, seconds without a swap included)
    and ``max``, named ``…_swaps_per_second``; and ``seconds_above_half_per_second``, ``seconds_above_one_per_second``:
    seconds whose bin is above 0.5/s (one swap or more) and above 1.0/s (two or more); ``provenance``.

    With n bins in a minute (60, fewer in the last), p99 lies ``0.99 (n − 1)`` steps from the least, between the two greatest:
    ``p99 = second + (1 − 0.01 (n − 1)) · (max − second)``.

    Edge cases. A minute has a row if it lies between the first and the last worker record of some boot in the window: seq has
    no gaps, so silence in between is no swap. Outside it is unknown and has no row. Rows said twice count once. Windows of
    whole minutes add up.
    """
    pod = [column for column in ENGINE if column != "engine"]
    kind = pl.col("kind")
    in_window = pl.col("at").is_between(window.start, window.end, closed="left")
    second = (pl.col("at") - window.start) // SECOND
    worker = events.filter(in_window & by_worker())
    minutes = (
        worker.group_by(*pod, "stream")
        .agg(first=second.min() // 60, last=second.max() // 60, provenance=worst_provenance())
        .with_columns(minute=pl.int_ranges("first", pl.col("last") + 1))
        .explode("minute", empty_as_null=False, keep_nulls=False)
        .group_by(*pod, "minute")
        .agg(provenance=worst_provenance())
    )
    bins = (
        worker.filter((pl.col("tier") == "gpu") & (kind == "evict") & (pl.col("reason") == "lru"))
        .select(*pod, "stream", "seq", second=second)
        .filter(said_once())
        .group_by(*pod, "second")
        .agg(swaps=pl.len().cast(pl.Int64))
        .with_columns(minute=pl.col("second") // 60)
        .group_by(*pod, "minute")
        .agg(
            total=pl.col("swaps").sum(),
            greatest=pl.col("swaps").max(),
            second=pl.col("swaps").sort(descending=True).get(1, null_on_oob=True),
            above_half=(pl.col("swaps") >= 1).sum().cast(pl.Int64),
            above_one=(pl.col("swaps") >= 2).sum().cast(pl.Int64),
        )
    )
    all_seconds = -((window.start - window.end) // SECOND)
    seconds = pl.min_horizontal(60, all_seconds - pl.col("minute") * 60)
    greatest, runner_up = pl.col("greatest").fill_null(0), pl.col("second").fill_null(0)
    between = runner_up + (1 - 0.01 * (seconds - 1)) * (greatest - runner_up)
    return (
        minutes.join(bins, on=[*pod, "minute"], how="left", nulls_equal=True)
        .select(
            *pod,
            minute=window.start + pl.col("minute") * MINUTE,
            swaps=pl.col("total").fill_null(0),
            mean_swaps_per_second=pl.col("total").fill_null(0) / seconds,
            p99_swaps_per_second=pl.when(seconds > 1).then(between).otherwise(greatest),
            max_swaps_per_second=greatest,
            seconds_above_half_per_second=pl.col("above_half").fill_null(0),
            seconds_above_one_per_second=pl.col("above_one").fill_null(0),
            provenance="provenance",
        )
        .sort(*pod, "minute")
    )
