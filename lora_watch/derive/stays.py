"""From loads and evictions to stays: one row for each time an adapter sat in a GPU slot."""

import polars as pl

from lora_watch.derive.boots import boots
from lora_watch.derive.groups import GROUPS, number, ranked_provenance
from lora_watch.derive.snapshots import listings, snapshots
from lora_watch.model import SECOND

_CHAIN = ("boot", "life", "adapter_id", "unnumbered")
"""
What one adapter is within one boot: its id; where no id is known, its name. A life is what lies between two `start`s of a
boot.
"""
SAME_LOAD = SECOND
"""µs by which a snapshot's ``loaded_at`` may be later than that load's record: the agent notes it once the record is written."""


def counted(reason: str = "reason") -> pl.Expr:
    """Rows that tell of served adapters: all but the engine's own warm-up dummies, whose ids collide with real ones."""
    return pl.col(reason).ne_missing("warmup")


def stays(events: pl.LazyFrame) -> pl.LazyFrame:
    """
    One row per stay: an adapter's weights in a GPU slot, from their load to their leave.

    Columns: cluster, pool, role, pod, engine, adapter, stream, adapter_id, slot, then

    * ``loaded_at`` (µs UTC; null: not known) and ``left_at`` (null: still there as far as is known);
    * ``known_by``: the first record that tells of it: ``load``, ``snapshot`` (the load's own record is not held; the snapshot
      says when it was), ``evict`` (neither is held). Who counts loads counts ``load`` only;
    * ``left_by``: ``evict`` (the log says so), ``reload`` (loaded again with no evict between: the leave was missed, it was
      before this), ``restart`` (a new `start` of the engine, or an evict whose reason is restart), ``stop``, ``lost``
      (killed, another adapter came into its slot, or a snapshot does not list it: the record of the leave is lost, it was
      before this); null while open. Only ``evict`` is a measured end; the others censor;
    * ``resident_from``: the earliest time it is known to be there: ``loaded_at``, else the snapshot; where neither is held the
      first record of its boot, unless the boot's `start` or a complete snapshot is held before the evict (then it was in no
      slot and the load's record is lost: ``left_at``);
    * ``from_tier``, ``reason`` and ``seconds`` of the load (null unless known by it), ``left_reason`` of the evict,
      ``provenance`` (worst of both ends).

    Method: within a boot records are ordered by seq, never by time; one adapter's records form a chain, and each load is
    closed by the record after it. Two ids may bear one name at once (a name registered anew): the chain follows the id where
    there is one. Formula per load: ``left_at = at of min seq over {next record of the chain, next load into the slot, next
    end of the boot, next complete snapshot without it}``, else the boot's end, else null.

    A snapshot that lists an adapter agrees with its open stay, and then changes nothing, or opens one: where the chain has no
    open stay, or its ``loaded_at`` is more than ``SAME_LOAD`` later than that of the open one (evict and load were lost). Such a
    stay takes its slot like a load, at its ``loaded_at``. So on a complete log snapshots change nothing, and after a loss
    residency is right again from the next one on. One written right behind a load (the next seq) says nothing about that load:
    the agent may write it before it has noted who came in.

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
    taken = snapshots(events).cache()
    whole = taken.filter("complete").select("stream", gone_seq="seq", gone_at="at")
    begun = (
        pl.concat([marks.filter(kind == "start").select("stream", seq="mark_seq"), whole.select("stream", seq="gone_seq")])
        .group_by("stream")
        .agg(known_seq=pl.col("seq").min())
    )
    chain = _chain(events, restarts, listings(taken)).cache()  # four branches read it; without this each would sort anew
    first = chain.group_by("stream").agg(first_at=pl.col("at").min())
    seen = _with_gone(chain.filter(kind != "evict"), whole).cache()
    evicted = _is_next("evict") & pl.col("gone_seq").is_null()
    return pl.concat(
        [
            _columns(seen.filter(evicted), kind, _left_by_evict("next_reason"), "next_at", "next_reason"),
            _unevicted(seen.filter(~evicted), chain.filter(kind == "snapshot"), marks, events),
            _unloaded(
                chain.filter((kind == "evict") & ~pl.col("previous_kind").is_in(["load", "snapshot"]).fill_null(value=False))
                .join(begun, on="stream", how="left")
                .join(first, on="stream", how="left")
                .with_columns(resident_from=pl.when(pl.col("known_seq") < pl.col("seq")).then("at").otherwise("first_at"))
            ),
            _unloaded(
                seen.filter(_is_next("evict") & ~evicted).with_columns(
                    slot="next_slot", at="next_at", resident_from="next_at", reason="next_reason"
                )
            ),
        ]
    )


def _chain(events: pl.LazyFrame, restarts: pl.LazyFrame, listed: pl.LazyFrame) -> pl.LazyFrame:
    """
    GPU loads and evicts of each adapter of each boot in order of seq, each row beside the record before and after it.

    A snapshot's listing that opens a stay is a row too (kind snapshot), with ``began`` its ``loaded_at``. ``last_seq`` is the
    seq of the last record that says the stay is still open: of the newest listing that agrees with it.
    """
    kind = pl.col("kind")
    return (
        pl.concat(
            [
                events.filter(
                    (pl.col("tier") == "gpu")
                    & ((kind == "evict") | ((kind == "load") & pl.col("ok").ne_missing(False)))
                    & counted()
                    & (pl.col("adapter").is_not_null() | pl.col("adapter_id").is_not_null())
                ).select(
                    *(*GROUPS, "stream", "seq", "at", "kind", "adapter_id", "slot", "from_tier", "reason", "seconds"),
                    ranked_provenance(),
                    began="at",
                ),
                listed.rename({"loaded_at": "began"}).with_columns(kind=pl.lit("snapshot")),
            ],
            how="diagonal",
        )
        .join(restarts, on="stream", how="left")
        .with_columns(life=_earlier_starts(), boot=number("stream"), unnumbered=_name_without_id())
        .drop("restarts")
        .sort(*_CHAIN, "seq")
        .filter(~(_same_chain(1) & (pl.col("seq") == pl.col("seq").shift(1))).fill_null(value=False))
        .with_columns(agrees=_agrees())
        .with_columns(last_seq=pl.when(~pl.col("agrees").shift(-1, fill_value=False)).then("seq").backward_fill())
        .filter(~pl.col("agrees"))
        .with_columns(
            next_kind=pl.when(_same_chain(-1)).then(kind.shift(-1)),
            next_seq=pl.when(_same_chain(-1)).then(pl.col("seq").shift(-1)),
            next_at=pl.when(_same_chain(-1)).then(pl.coalesce("began", "at").shift(-1)),
            next_reason=pl.when(_same_chain(-1)).then(pl.col("reason").shift(-1)),
            next_slot=pl.when(_same_chain(-1)).then(pl.col("slot").shift(-1)),
            provenance=pl.max_horizontal("provenance", pl.when(_same_chain(-1)).then(pl.col("provenance").shift(-1))),
            previous_kind=pl.when(_same_chain(1)).then(kind.shift(1)),
            resident_from=pl.coalesce("began", "at"),
        )
    )


def _same_chain(rows: int) -> pl.Expr:
    """Whether the row so many rows back (ahead: negative) is of the same chain."""
    return pl.all_horizontal(*(pl.col(column).eq_missing(pl.col(column).shift(rows)) for column in _CHAIN))


def _earlier_starts() -> pl.Expr:
    """How many of the boot's ``restarts`` (seqs) lie before the row."""
    before = (pl.col("restarts") - pl.col("seq")).list.eval((pl.element() < 0).cast(pl.Int64)).list.sum()
    return before.fill_null(0)


def _name_without_id() -> pl.Expr:
    """A number for the name where there is no id, else null."""
    return pl.when(pl.col("adapter_id").is_null()).then(number("adapter"))


def _agrees() -> pl.Expr:
    """
    Whether a listing is of the stay that the row before it in the chain left open: no complete snapshot between them lacks it,
    and it did not come in later.
    """
    kind, seq = pl.col("kind"), pl.col("seq")
    last_listed = seq.shift(1) + (kind.shift(1) == "load").cast(pl.Int64)  # right behind a load: see stays
    unbroken = (pl.col("previous_seq") <= last_listed).fill_null(value=True)
    same_load = (pl.col("began") <= pl.coalesce("began", "at").shift(1) + SAME_LOAD).fill_null(value=True)
    return ((kind == "snapshot") & _same_chain(1) & (kind.shift(1) != "evict") & unbroken & same_load).fill_null(value=False)


def _with_gone(opened: pl.LazyFrame, whole: pl.LazyFrame) -> pl.LazyFrame:
    """The rows that open a stay with seq and time of the complete snapshot that lacks it first, null where none does."""
    behind_load = ((pl.col("kind") == "load") & (pl.col("last_seq") == pl.col("seq"))).cast(pl.Int64)
    gone = pl.col("next_seq").is_null() | (pl.col("gone_seq") < pl.col("next_seq"))
    return (
        opened.with_columns(silent_until=pl.col("last_seq") + behind_load)
        .sort("silent_until")
        .join_asof(
            whole.sort("gone_seq"),
            left_on="silent_until",
            right_on="gone_seq",
            by="stream",
            strategy="forward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .with_columns(pl.when(gone).then("gone_seq").alias("gone_seq"))
    )


def _unloaded(evicts: pl.LazyFrame) -> pl.LazyFrame:
    """Stays that only their evict tells of: rows whose ``at`` and ``reason`` are the evict's."""
    nothing = {"began": pl.Int64, "reason": pl.String, "from_tier": pl.String, "seconds": pl.Float64}
    return _columns(
        evicts.with_columns(next_at="at", next_reason="reason").with_columns(
            pl.lit(None, dtype=dtype).alias(name) for name, dtype in nothing.items()
        ),
        pl.lit("evict"),
        _left_by_evict("next_reason"),
        "next_at",
        "next_reason",
    )


def _unevicted(loads: pl.LazyFrame, listed: pl.LazyFrame, marks: pl.LazyFrame, events: pl.LazyFrame) -> pl.LazyFrame:
    """
    Stays whose evict was not seen, each closed by the first record that says the adapter can't be there any more.

    ``listed`` are the rows of the chain that a snapshot opened.
    """
    entered = pl.concat(
        [
            events.filter(
                (pl.col("kind") == "load") & (pl.col("tier") == "gpu") & pl.col("ok").ne_missing(False) & counted()
            ).select("stream", "slot", taker_seq="seq", taker_at="at"),
            listed.select("stream", "slot", taker_seq="seq", taker_at=pl.coalesce("began", "at")),
        ]
    )
    newest = entered.group_by("stream", "slot").agg(newest_seq=pl.col("taker_seq").max())
    taken = (
        loads.join(newest, on=["stream", "slot"]).filter(pl.col("seq") < pl.col("newest_seq")).select("stream", "slot").unique()
    )
    takers = entered.join(taken, on=["stream", "slot"], how="semi").sort("taker_seq")
    superseded = boots(events).select("stream", superseded_at="ended_at", superseded_by="ended_by")
    end = pl.min_horizontal("next_seq", "taker_seq", "mark_seq", "gone_seq")
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
            .when(pl.col("taker_seq") == end)
            .then("taker_at")
            .otherwise("gone_at"),
        )
        .with_columns(left=pl.max_horizontal("left", pl.when(pl.col("left").is_not_null()).then("resident_from")))
        .with_columns(no_reason=pl.lit(None, dtype=pl.String))
    )
    return _columns(closed, pl.col("kind"), pl.col("left_by"), "left", "no_reason")


def _columns(rows: pl.LazyFrame, known_by: pl.Expr, left_by: pl.Expr, left_at: str, left_reason: str) -> pl.LazyFrame:
    """The columns of a stay, in order."""
    return rows.select(
        *GROUPS,
        "stream",
        "adapter_id",
        "slot",
        loaded_at=pl.col("began"),
        left_at=pl.col(left_at),
        known_by=known_by,
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
