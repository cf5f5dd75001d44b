"""Does the log add up? Little's law, kept as an identity, shows records that are missing."""

from collections.abc import Sequence

import polars as pl

from lora_watch.derive.groups import BY_POD, group_columns, worst_provenance
from lora_watch.derive.moves import moves as moves_of
from lora_watch.derive.step_function import swept
from lora_watch.model import MINUTE, SECOND, Window


def little(
    events: pl.LazyFrame,
    window: Window,
    by: Sequence[str] = BY_POD,
    *,
    boots: pl.LazyFrame,
    stays: pl.LazyFrame,
    moves: pl.LazyFrame | None = None,
) -> pl.LazyFrame:
    """
    Two accounts of the window's occupied slot-time, one by pairing and one by counting, and what stands between them; one row
    per group. ``boots``, ``stays`` and, where they are at hand, ``moves`` are those of the same events.

    Columns, after the group's:

    * ``resident_start``, ``loads``, ``leaves``, ``resident_end`` and ``flow_residual = resident_start + loads − leaves −
      resident_end``: adapters in slots by paired stays, against recorded loads and leaves (evicts, and the stays that a
      boot's end closes) of the window;
    * ``occupied_slot_seconds`` (L · T, by paired stays) and ``residual_slot_seconds``: by how much counting differs from it,
      missing loads and missing leaves each by their size, plus slot-seconds above the boot's slots, plus those that lru
      evictions left empty;
    * ``residual_ratio = residual_slot_seconds ÷ occupied_slot_seconds``: 0 on a complete log; null where nothing was occupied
      and nothing is missing;
    * ``unseen_loads``, ``unseen_leaves``: records that the window proves missing; ``provenance``.

    Identity. Let E be the window's end or the end of the boot if that is earlier, and N the residents at ``start``. From
    there on every load at l adds 1 to the count and every leave at e takes 1 off, so the area under the count is ``A_count =
    N (E − start) + Σ_loads (E − l) − Σ_leaves (E − e)`` over the window's records. Pairing sums what each stay spends in the
    window, ``A_pair = Σ_stays (min(e, E) − max(l, start))``. Little's law L = λW is this identity divided by the window's
    length: the time-average of residents is the sum over stays of their part of the window, with stays cut at both edges
    instead of assumed away.

    Proof that both agree on a complete log. A stay enters A_count once, by N with l := start or by its load: ``E − max(l,
    start)``, and leaves it by ``E − e`` if e < E, by 0 if it is there to the end. The difference is ``min(e, E) − max(l,
    start)``, its part of A_pair. Sum over stays. ∎

    What a missing record does. A missing evict leaves +1 in the count from the time t at which pairing notices (the adapter
    loads again, or another one enters its slot): ``E − t``. A missing load leaves −1 from its evict on, the same term. An
    adapter that never returns is noticed by the law of a full pod: residents never exceed slots, and after an lru
    eviction the next GPU record is the load it made room for. A snapshot tells of a missing load when it was, and of a
    missing leave. Terms are added by size, so that a missing load does not hide a missing evict. The slot-time itself is
    wrong by about as much. ``unseen_…`` are least numbers.

    Edge cases. A boot whose `start` is not held may have been full before: its unseen loads, and those that a snapshot dates
    before the first record held, are an edge, not a loss, and count nowhere. A record nobody can miss (the load of an
    adapter into a free slot, never evicted) shows nothing; gaps of seq are counted as lost by the reader of the log. All
    reasons count as leaves here, in-place reloads too. Groups are those with a stay in the window. Grouped by adapter
    only the pairing terms are known. Counts add up over adjoining windows. Source: Little (1961) on a finite window.
    """
    keys = group_columns(by)
    ends = boots.select("stream", "started_at", "first_at", "slots", boot_end="ended_at")
    start, left = window.start, pl.col("left_at")
    listed = pl.col("known_by") == "snapshot"
    paired = (
        stays.join(ends, on="stream", how="left")
        .with_columns(boot_end=pl.min_horizontal(pl.col("boot_end").fill_null(window.end), window.end))
        .with_columns(
            unseen_load=pl.when(listed)
            .then(pl.col("loaded_at") >= pl.col("first_at"))
            .otherwise(pl.col("loaded_at").is_null() & pl.col("started_at").is_not_null())
            .fill_null(value=False),
            unseen_leave=(pl.col("left_by") == "reload")
            | ((pl.col("left_by") == "lost") & (left < pl.col("boot_end")).fill_null(value=False)),
        )
        .filter((pl.col("resident_from") < window.end) & (left.is_null() | (left >= start)))
        .cache()  # read three times
    )
    inside = left.is_between(start, window.end, closed="left")
    unseen_leave = pl.col("unseen_leave").fill_null(value=False) & inside
    came = pl.when(listed).then("loaded_at").otherwise("left_at")  # where the count begins to lack the load
    unseen_load = pl.col("unseen_load") & came.is_between(start, window.end, closed="left")
    occupied = (left.fill_null(window.end).clip(upper_bound=window.end) - pl.max_horizontal("resident_from", start)) / SECOND

    def late(since: pl.Expr) -> pl.Expr:
        return (pl.col("boot_end") - since).clip(lower_bound=0) / SECOND

    edge = ~pl.col("unseen_load") & (pl.col("known_by") != "load")
    recorded = (pl.col("known_by") == "load") & (pl.col("loaded_at") >= start)
    there_at_start = pl.col("loaded_at").is_not_null() & (pl.col("loaded_at") < start)
    sums = paired.group_by(keys).agg(
        resident_start=(there_at_start | (edge & (pl.col("resident_from") < start))).sum().cast(pl.Int64),
        loads=(recorded | (edge & (pl.col("resident_from") >= start))).sum().cast(pl.Int64),
        leaves=(inside & ~unseen_leave).sum().cast(pl.Int64),
        resident_end=(left.is_null() | (left >= window.end)).sum().cast(pl.Int64),
        occupied_slot_seconds=occupied.sum(),
        imbalance=late(came).filter(unseen_load).sum() + late(left).filter(unseen_leave).sum(),
        unseen_loads=unseen_load.sum(),
        unseen_leaves=unseen_leave.sum().cast(pl.Int64),
        provenance=worst_provenance(),
    )
    if "adapter" in keys:
        result = sums.with_columns(excess=pl.lit(0.0), emptied=pl.lit(0.0), orphans=pl.lit(0))
    else:
        result = sums.join(_excess(paired, window, keys), on=keys, how="left", nulls_equal=True).join(
            _emptied(moves if moves is not None else moves_of(events), ends, window, keys), on=keys, how="left", nulls_equal=True
        )
    residual = pl.sum_horizontal("imbalance", "excess", "emptied")
    return result.select(
        *keys,
        "resident_start",
        "loads",
        "leaves",
        "resident_end",
        flow_residual=pl.col("resident_start") + pl.col("loads") - pl.col("leaves") - pl.col("resident_end"),
        occupied_slot_seconds="occupied_slot_seconds",
        residual_slot_seconds=residual,
        residual_ratio=pl.when(pl.col("occupied_slot_seconds") > 0).then(residual / pl.col("occupied_slot_seconds")),
        unseen_loads=pl.max_horizontal("unseen_loads", "orphans").fill_null(0).cast(pl.Int64),
        unseen_leaves="unseen_leaves",
        provenance="provenance",
    )


def _excess(overlapping: pl.LazyFrame, window: Window, keys: list[str]) -> pl.LazyFrame:
    """Slot-seconds of residents above the slots of their boot: evictions that nobody saw."""
    owner = list(dict.fromkeys([*keys, "stream", "slots"]))
    spans = overlapping.filter(pl.col("slots").is_not_null()).select(
        *owner,
        start=pl.max_horizontal("resident_from", pl.lit(window.start)),
        end=pl.min_horizontal(pl.col("left_at").fill_null(window.end), pl.lit(window.end)),
        height=pl.lit(1, pl.Int64),
    )
    above = (pl.col("height") - pl.col("slots")).clip(lower_bound=0)
    return (
        swept(spans.filter(pl.col("start") < pl.col("end")), owner).group_by(keys).agg(excess=(above * pl.col("seconds")).sum())
    )


def _emptied(moves: pl.LazyFrame, ends: pl.LazyFrame, window: Window, keys: list[str]) -> pl.LazyFrame:
    """
    Loads that must have followed an lru eviction and are missing (``orphans``), with the slot-seconds until the next load or
    the end.
    """
    until = pl.min_horizontal(
        pl.col("next_at").fill_null(window.end), pl.col("boot_end").fill_null(window.end), pl.lit(window.end)
    )
    made_room = (pl.col("reason") == "lru") & (pl.col("kind") == "evict")
    idle = pl.col("next_kind").is_null() & (until - pl.col("at") > MINUTE)  # the load of the very last eviction may be on its way
    orphan = made_room & (pl.col("next_kind").eq_missing(pl.lit("evict")) | idle)
    return (
        moves.filter(pl.col("at").is_between(window.start, window.end, closed="left"))
        .join(ends, on="stream", how="left")
        .filter(orphan)
        .group_by(keys)
        .agg(emptied=((until - pl.col("at")).clip(lower_bound=0) / SECOND).sum(), orphans=pl.len())
    )
