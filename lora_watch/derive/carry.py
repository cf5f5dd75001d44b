"""What of the past still matters: the few records before a moment that decide what a window after it shows."""

import polars as pl

from lora_watch.derive.stays import counted

_CHAIN = ("stream", "adapter_id", "adapter")


def carry(events: pl.LazyFrame, moment: int) -> pl.LazyFrame:
    """
    Of the events before ``moment`` (µs UTC), those that a derivation about a window from there on still needs; later ones as they
    are.

    Kept, per boot: every `start`, `stop` and `lost` that says killed, and the last record of all (it tells that the boot is
    there); per adapter of a boot: its last GPU `load` or `evict` if that is a load (it is still there), its last `use` or
    `release` if that is a use. All else before ``moment`` is over: a stay that ended, a use that was released. So for any window
    ``[moment, …)``

    ``stays(carry(events, moment))``, less the stays that left before ``moment``, equals ``stays(events)`` less the same,

    and ``carry(carry(a, s) + b, t) = carry(a + b, t)`` for ``b`` from ``s ≤ t`` on: it can be carried on from minute to minute,
    each event read once.

    Edge cases. An adapter that is loaded twice with no evict between keeps the later load. Failed loads and warm-up records are
    never kept. At most a few rows an adapter and boot remain, however long the past was.
    """
    kind = pl.col("kind")
    past, later = events.filter(pl.col("at") < moment), events.filter(pl.col("at") >= moment)
    moved = (kind.is_in(["load", "evict"])) & (pl.col("tier") == "gpu") & counted() & pl.col("ok").ne_missing(False)
    marks = past.filter(kind.is_in(["start", "stop"]) | ((kind == "lost") & (pl.col("reason") == "killed")))
    parts = [
        marks,
        _last(past, ["stream"]),
        _last(past.filter(kind == "steps"), ["stream"]),
        _last(past.filter(moved), [*_CHAIN]).filter(kind == "load"),
        _last(past.filter(kind.is_in(["use", "release"])), [*_CHAIN]).filter(kind == "use"),
        later,
    ]
    return pl.concat(parts).unique(["stream", "seq"], keep="any").sort("stream", "seq")


def _last(rows: pl.LazyFrame, group: list[str]) -> pl.LazyFrame:
    """The row with the greatest seq of each group."""
    return rows.sort("stream", "seq").group_by(group).last().select(rows.collect_schema().names())
