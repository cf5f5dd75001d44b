"""What went on in each pool, bin by bin: requests, loads, swaps and the time they took; and since when a number is high."""

from collections.abc import Sequence

import polars as pl

from lora_watch.derive.groups import POOL, group_columns, once, ranked_provenance
from lora_watch.derive.hysteresis import Limits, State, step
from lora_watch.derive.moves import moves as moves_of
from lora_watch.derive.stalls import stalls as stalls_of
from lora_watch.model import MINUTE, SECOND, Window

_NUMBERS = ("requests", "loads", "cold_loads", "swaps")


def timeline(
    events: pl.LazyFrame,
    requests: pl.LazyFrame,
    window: Window,
    bin: int = MINUTE,
    by: Sequence[str] = POOL,
    *,
    moves: pl.LazyFrame | None = None,
    stalls: pl.LazyFrame | None = None,
    stored: bool = False,
) -> pl.LazyFrame:
    """
    One row per group and bin in which anything happened, sorted by both.

    Columns: the group's, ``at`` (µs UTC, begin of the bin; bins are counted from the window's start), ``requests`` for an
    adapter that finished, ``loads`` into a GPU slot (reloads in place are none), ``cold_loads``, ``swaps`` (as
    :func:`~lora_watch.derive.swaps.swaps` counts them), ``stall_seconds`` (engines stood still for loads that ended in the bin),
    ``pods`` (with a record in the bin), ``loads_per_request`` and ``swaps_per_request`` (null: no request), ``stall_share``
    (stall ÷ pods ÷ bin), ``provenance``.

    ``loads_per_request`` is the miss ratio but for loads that several requests share and for those that nobody asked for.
    Counts add up over bins; the last bin may be shorter. A stall that is longer than its bin makes a share above 1 there.
    A load of unknown length counts with the median of the group's known ones of its tier in the window; where none is known, the
    stalls of its bin are null. Rows said twice count once; ``stored`` requests are unique as they are. Have a long history
    collected by the streaming engine: then no more of it is held than one row a pod and bin.
    """
    keys = group_columns(by)
    inside = pl.col("at").is_between(window.start, window.end, closed="left")
    at = ((pl.col("at") - window.start) // bin * bin + window.start).alias("at")
    kind = pl.col("kind")
    load = (kind == "load") & pl.col("reason").ne_missing("inplace")
    moved = (
        (moves if moves is not None else moves_of(events))
        .filter(inside)
        .group_by(*keys, at)
        .agg(
            loads=(load & pl.col("ok").ne_missing(False)).sum(),
            cold_loads=(load & (pl.col("from_tier") == "disk").fill_null(value=False)).sum(),
            swaps=((kind == "evict") & (pl.col("reason") == "lru").fill_null(value=False)).sum(),
        )
    )
    seconds = (pl.col("end") - pl.col("start")) / SECOND
    spans = (stalls if stalls is not None else stalls_of(events)).filter(inside).with_columns(seconds=seconds)
    usual = spans.group_by(*keys, "tier").agg(usual=pl.col("seconds").median())
    length_of = pl.coalesce("seconds", "usual")
    stood = (
        spans.join(usual, on=[*keys, "tier"], how="left", nulls_equal=True)
        .group_by(*keys, at)
        .agg(stall_seconds=pl.when(length_of.is_not_null().all()).then(length_of.sum()), stood=pl.lit(value=True))
    )
    columns = [*dict.fromkeys([*keys, "cluster", "pod"])]
    named = pl.col("adapter").is_not_null().cast(pl.Int64)
    served = once(requests.filter(inside), stored=stored).select(*columns, at, ranked_provenance(), requests=named)
    told = events.filter(inside).select(*columns, at, ranked_provenance(), requests=pl.lit(0, dtype=pl.Int64))
    by_pod = [rows.group_by(*columns, "at").agg(pl.col("requests").sum(), pl.col("provenance").max()) for rows in (served, told)]
    heard = (
        pl.concat(by_pod)
        .group_by(*keys, "at")
        .agg(
            requests=pl.col("requests").sum(),
            pods=pl.struct("cluster", "pod").n_unique().cast(pl.Int64),
            provenance=pl.col("provenance").max().cast(pl.String),
        )
    )
    whole = heard
    for part in (moved, stood):
        whole = whole.join(part, on=[*keys, "at"], how="left", nulls_equal=True)
    length = pl.min_horizontal(pl.lit(bin), window.end - pl.col("at")) / SECOND
    return (
        whole.with_columns(
            *(pl.col(name).fill_null(0).cast(pl.Int64) for name in _NUMBERS),
            stall_seconds=pl.when("stood").then("stall_seconds").otherwise(0.0),
        )
        .with_columns(
            loads_per_request=pl.when(pl.col("requests") > 0).then(pl.col("loads") / pl.col("requests")),
            swaps_per_request=pl.when(pl.col("requests") > 0).then(pl.col("swaps") / pl.col("requests")),
            stall_share=pl.col("stall_seconds") / pl.col("pods") / length,
        )
        .select(
            *keys, "at", *_NUMBERS, "stall_seconds", "pods", "loads_per_request", "swaps_per_request", "stall_share", "provenance"
        )
        .sort(*keys, "at")
    )


def high_spans(values: pl.DataFrame, column: str, limits: Limits, end: int) -> list[tuple[int, int | None]]:
    """
    When a column of one group's rows of a :func:`timeline` was high, with hysteresis: (since, until) in µs UTC, ``until`` None
    where it still is at ``end``.
    """
    state, spans = State(), list[tuple[int, int | None]]()
    for at, value in values.sort("at").select("at", column).iter_rows():
        after = step(state, limits, at, value)
        if after.on and not state.on:
            spans.append((after.since or at, None))
        elif state.on and not after.on:
            spans[-1] = (spans[-1][0], after.since)
        state = after
    return [(since, until) for since, until in spans if since < end]
