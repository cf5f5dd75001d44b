"""From loads and evictions to stays: one row for each time an adapter sat in a GPU slot."""

import polars as pl

from lora_watch.derive.boots import boots
from lora_watch.derive.groups import GROUPS, number, ranked_provenance

_CHAIN = ("boot", "life", "adapter_id", "unnumbered")
"""
What one adapter is within one boot: its id; where no id is known, its name. A life is what lies between two `start`s of a
boot.
"""


def counted(reason: str = "reason") -> pl.Expr:
    """Rows that tell of served adapters: all but the engine's own warm-up dummies, whose ids collide with real ones."""
    return pl.col(reason).ne_missing("warmup")


def stays(events: pl.LazyFrame) -> pl.LazyFrame:
    """
    One row per stay: an adapter's weights in a GPU slot, from their load to their leave.

    Columns: cluster, pool, role, pod, engine, adapter, stream, adapter_id, slot, then

    * ``loaded_at`` (µs UTC; null: the load was not seen) and ``left_at`` (null: still there as far as is known);
    * ``left_by``: ``evict`` (the log says so), ``reload`` (loaded again with no evict between: the leave was missed, it was
      before this), ``restart`` (a new `start` of the engine, or an evict whose reason is restart), ``stop``, ``lost``
      (killed, or another adapter was loaded into its slot: the record of the leave is lost); null while open. Only ``evict``
      is a measured end; the others censor;
    * ``resident_from``: the earliest time it is known to be there: ``loaded_at``; for an unseen load the first record held of
      its boot, unless the boot's `start` is held (then every slot was empty and the load's record is lost: ``left_at``);
    * ``from_tier`` and ``reason`` of the load, ``left_reason`` of the evict, ``seconds`` of the load, ``provenance`` (worst
      of both ends).

    Method: within a boot records are ordered by seq, never by time; one adapter's records form a chain, and each load is
    closed by the record after it. Two ids may bear one name at once (a name registered anew): the chain follows the id where
    there is one. Formula per load: ``left_at = at of min seq over {next record of the chain, next load into the slot, next
    end of the boot}``, else the boot's end, else null.

    Edge cases. An in-place reload is an evict and a load: the weights leave and others enter, so it makes two stays, though
    it is no swap. Failed loads and warm-up records never count. Rows said twice count once. An evict with no load before it
    is a left-truncated stay. A row with neither id nor name is nobody's and is left out. An end that the clocks of two boots
    put before the load is moved to the load. Source: docs/event-log-v1.md.
    """
    kind = pl.col("kind")
    marks = events.filter(kind.is_in(["start", "stop"]) | ((kind == "lost") & (pl.col("reason") == "killed"))).select(
        "stream", "kind", mark_seq="seq", mark_at="at"
    )
    restarts = (
        marks.filter(kind == "start")
        .group_by("stream")
        .agg(restarts=pl.col("mark_seq").unique().sort())
        .filter(pl.col("restarts").list.len() > 1)
        .with_columns(pl.col("restarts").list.slice(1))
    )
    begun = marks.filter(kind == "start").group_by("stream").agg(start_seq=pl.col("mark_seq").min())
    chain = _chain(events, restarts).cache()  # three branches read it; without this each would sort anew
    first = chain.group_by("stream").agg(first_at=pl.col("at").min())
    seen = chain.filter(kind == "load")
    evicted = _is_next("evict")
    return pl.concat(
        [
            _columns(seen.filter(evicted), _left_by_evict("next_reason"), "next_at", "next_reason"),
            _unevicted(seen.filter(~evicted), marks, events),
            _columns(
                chain.filter((kind == "evict") & pl.col("previous_kind").ne_missing("load"))
                .join(begun, on="stream", how="left")
                .join(first, on="stream", how="left")
                .with_columns(
                    at=None,
                    resident_from=pl.when(pl.col("start_seq") < pl.col("seq")).then("at").otherwise("first_at"),
                    next_at="at",
                    next_reason="reason",
                    reason=pl.lit(None, dtype=pl.String),
                    from_tier=pl.lit(None, dtype=pl.String),
                    seconds=pl.lit(None, dtype=pl.Float64),
                ),
                _left_by_evict("next_reason"),
                "next_at",
                "next_reason",
            ),
        ]
    )


def _chain(events: pl.LazyFrame, restarts: pl.LazyFrame) -> pl.LazyFrame:
    """GPU loads and evicts of each adapter of each boot in order of seq, each row beside the record before and after it."""
    kind = pl.col("kind")
    same_after = pl.all_horizontal(*(pl.col(column).eq_missing(pl.col(column).shift(-1)) for column in _CHAIN))
    same_before = pl.all_horizontal(*(pl.col(column).eq_missing(pl.col(column).shift(1)) for column in _CHAIN))
    seq_again = same_before & (pl.col("seq") == pl.col("seq").shift(1))
    earlier_starts = (pl.col("restarts") - pl.col("seq")).list.eval((pl.element() < 0).cast(pl.Int64)).list.sum()
    return (
        events.filter(
            (pl.col("tier") == "gpu")
            & ((kind == "evict") | ((kind == "load") & pl.col("ok").ne_missing(False)))
            & counted()
            & (pl.col("adapter").is_not_null() | pl.col("adapter_id").is_not_null())
        )
        .select(
            *GROUPS, "stream", "seq", "at", "kind", "adapter_id", "slot", "from_tier", "reason", "seconds", ranked_provenance()
        )
        .join(restarts, on="stream", how="left")
        .with_columns(
            life=earlier_starts.fill_null(0),
            boot=number("stream"),
            unnumbered=pl.when(pl.col("adapter_id").is_null()).then(number("adapter")),
        )
        .drop("restarts")
        .sort(*_CHAIN, "seq")
        .filter(~seq_again.fill_null(value=False))
        .with_columns(
            next_kind=pl.when(same_after).then(kind.shift(-1)),
            next_seq=pl.when(same_after).then(pl.col("seq").shift(-1)),
            next_at=pl.when(same_after).then(pl.col("at").shift(-1)),
            next_reason=pl.when(same_after).then(pl.col("reason").shift(-1)),
            provenance=pl.max_horizontal("provenance", pl.when(same_after).then(pl.col("provenance").shift(-1))),
            previous_kind=pl.when(same_before).then(kind.shift(1)),
            resident_from=pl.col("at"),
        )
    )


def _unevicted(loads: pl.LazyFrame, marks: pl.LazyFrame, events: pl.LazyFrame) -> pl.LazyFrame:
    """Loads whose evict was not seen, each closed by the first record that says the adapter can't be there any more."""
    entered = events.filter(
        (pl.col("kind") == "load") & (pl.col("tier") == "gpu") & pl.col("ok").ne_missing(False) & counted()
    ).select("stream", "slot", taker_seq="seq", taker_at="at")
    newest = entered.group_by("stream", "slot").agg(newest_seq=pl.col("taker_seq").max())
    taken = (
        loads.join(newest, on=["stream", "slot"]).filter(pl.col("seq") < pl.col("newest_seq")).select("stream", "slot").unique()
    )
    takers = entered.join(taken, on=["stream", "slot"], how="semi").sort("taker_seq")
    superseded = boots(events).select("stream", superseded_at="ended_at", superseded_by="ended_by")
    end = pl.min_horizontal("next_seq", "taker_seq", "mark_seq")
    by_mark = pl.col("mark_seq").eq_missing(end) & end.is_not_null()
    mark_by = pl.col("mark_kind").replace({"start": "restart"})
    closed = (
        loads.sort("seq")
        .join_asof(
            takers,
            left_on="seq",
            right_on="taker_seq",
            by=["stream", "slot"],
            strategy="forward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .join_asof(
            marks.rename({"kind": "mark_kind"}).sort("mark_seq"),
            left_on="seq",
            right_on="mark_seq",
            by="stream",
            strategy="forward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .join(superseded, on="stream", how="left")
        .with_columns(
            left_by=pl.when(end.is_null())
            .then("superseded_by")
            .when(pl.col("next_seq") == end)
            .then(pl.lit("reload"))
            .when(by_mark)
            .then(mark_by)
            .otherwise(pl.lit("lost")),
            left=pl.when(end.is_null())
            .then("superseded_at")
            .when(pl.col("next_seq") == end)
            .then("next_at")
            .when(by_mark)
            .then(pl.min_horizontal("mark_at", "superseded_at"))
            .otherwise("taker_at"),
        )
        .with_columns(left=pl.max_horizontal("left", pl.when(pl.col("left").is_not_null()).then("at")))
    )
    return _columns(closed.with_columns(no_reason=pl.lit(None, dtype=pl.String)), pl.col("left_by"), "left", "no_reason")


def _columns(rows: pl.LazyFrame, left_by: pl.Expr, left_at: str, left_reason: str) -> pl.LazyFrame:
    """The columns of a stay, in order."""
    return rows.select(
        *GROUPS,
        "stream",
        "adapter_id",
        "slot",
        loaded_at=pl.col("at").cast(pl.Int64),
        left_at=pl.col(left_at),
        left_by=left_by,
        resident_from=pl.col("resident_from"),
        from_tier=pl.col("from_tier"),
        reason=pl.col("reason"),
        left_reason=pl.col(left_reason),
        seconds=pl.col("seconds"),
        provenance=pl.col("provenance").cast(pl.String),
    )


def _is_next(kind: str) -> pl.Expr:
    """Whether the record after this one in its chain is of that kind."""
    return pl.col("next_kind").eq_missing(pl.lit(kind))


def _left_by_evict(reason: str) -> pl.Expr:
    """
    How an evict ended the stay: the engine's own restart empties its slots and says nothing about how long a stay would have
    been.
    """
    return pl.when(pl.col(reason) == "restart").then(pl.lit("restart")).otherwise(pl.lit("evict"))
