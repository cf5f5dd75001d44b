"""What of the past still matters: the few records before a moment that decide what a window after it shows."""

import polars as pl

from lora_watch.derive.snapshots import listings, of_worker, snapshots
from lora_watch.derive.stays import SAME_LOAD, counted

_CHAIN = ("stream", "adapter_id", "adapter")


def carry(events: pl.LazyFrame, moment: int) -> pl.LazyFrame:
    """
    Of the events before ``moment`` (µs UTC), those that a derivation about a window from there on still needs; later ones as they
    are.

    Kept, per boot: every `start`, `stop` and `lost` that says killed, the last record of all (it tells that the boot is there)
    and the last `steps`, the last complete snapshot of a worker with all its parts, and parts of later ones; per adapter of a
    boot: its last GPU `load` or `evict` if that is a load that this snapshot does not say is over (it is still there), or the
    evict of one that this snapshot lists; its last `use` or `release` if that is a use. All else before ``moment`` is over: a
    stay that ended, a use that was released. So for any window ``[moment, …)``

    ``stays(carry(events, moment))``, less the stays that left before ``moment``, equals ``stays(events)`` less the same,

    and ``carry(carry(a, s) + b, t) = carry(a + b, t)`` for ``b`` from ``s ≤ t`` on: it can be carried on from minute to minute,
    each event read once.

    Edge cases. An adapter that is loaded twice with no evict between keeps the later load. Failed loads and warm-up records are
    never kept. At most a few rows an adapter and boot remain, however long the past was. A load and a listing of the newest
    snapshot are of one stay if their times are within ``SAME_LOAD``; a snapshot that does not say when is taken to agree.
    """
    kind = pl.col("kind")
    past, later = events.filter(pl.col("at") < moment), events.filter(pl.col("at") >= moment)
    moved = (kind.is_in(["load", "evict"])) & (pl.col("tier") == "gpu") & counted() & pl.col("ok").ne_missing(False)
    marks = past.filter(kind.is_in(["start", "stop"]) | ((kind == "lost") & (pl.col("reason") == "killed")))
    taken = snapshots(past)
    newest = taken.filter("complete").group_by("stream").agg(whole_seq=pl.col("seq").max()).cache()
    held = past.filter(of_worker()).join(newest, on="stream", how="left", nulls_equal=True)
    listed = listings(taken.join(newest, on="stream").filter(pl.col("seq") == pl.col("whole_seq"))).select(
        *_CHAIN, pl.lit(value=True).alias("listed"), listed_at="loaded_at"
    )
    last_moves = (
        _last(past.filter(moved), [*_CHAIN])
        .join(newest, on="stream", how="left")
        .join(listed, on=[*_CHAIN], how="left", nulls_equal=True)
        .with_columns(pl.col("listed").fill_null(value=False))
    )
    parts = [
        marks,
        held.filter((pl.col("seq") >= pl.col("whole_seq")).fill_null(value=True)),
        _last(past, ["stream"]),
        _last(past.filter(kind == "steps"), ["stream"]),
        last_moves.filter(_matters()),
        _last(past.filter(kind.is_in(["use", "release"])), [*_CHAIN]).filter(kind == "use"),
        later,
    ]
    columns = events.collect_schema().names()
    return pl.concat([part.select(columns) for part in parts]).unique(["stream", "seq"], keep="any").sort("stream", "seq")


def _matters() -> pl.Expr:
    """
    Of the last load or evict of an adapter, beside ``whole_seq`` of the newest complete snapshot of its boot and whether, and
    since when, that lists it: a load unless the snapshot says that it is over, an evict of who is listed there.
    """
    seq, whole, at = pl.col("seq"), pl.col("whole_seq"), pl.col("at")
    is_load, listed = pl.col("kind") == "load", pl.col("listed")
    unsaid = whole.is_null() | (seq + 1 >= whole)
    still = listed & (pl.col("listed_at") <= at + SAME_LOAD).fill_null(value=True)
    return (is_load & (unsaid | still)) | (~is_load & listed & (seq > whole))


def _last(rows: pl.LazyFrame, group: list[str]) -> pl.LazyFrame:
    """The row with the greatest seq of each group."""
    return rows.sort("stream", "seq").group_by(group).last().select(rows.collect_schema().names())
