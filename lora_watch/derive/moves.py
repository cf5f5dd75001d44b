"""Loads into GPU slots and evictions from them, in the order in which each engine did them."""

import polars as pl

from lora_watch.derive.groups import ENGINE
from lora_watch.derive.stays import counted
from lora_watch.model import MINUTE


def moves(events: pl.LazyFrame) -> pl.LazyFrame:
    """
    GPU loads (failed ones too) and evictions, sorted by stream and seq, each beside its neighbours in its boot.

    Columns: cluster, pool, role, pod, engine, adapter, stream, seq, at, kind, reason, from_tier, ok, provenance, then
    ``made_room`` (the one before it, at most a minute earlier, is an eviction), ``next_kind`` and ``next_at`` (null: it is the
    last). Warm-up records are left out, rows said twice count once.
    """
    seq, at, kind = pl.col("seq"), pl.col("at"), pl.col("kind")

    def same(rows: int) -> pl.Expr:
        return (pl.col("stream") == pl.col("stream").shift(rows)).fill_null(value=False)

    return (
        events.filter((pl.col("tier") == "gpu") & kind.is_in(["load", "evict"]) & counted())
        .select(*ENGINE, "adapter", "stream", "seq", "at", "kind", "reason", "from_tier", "ok", "provenance")
        .sort("stream", "seq")
        .filter(~(same(1) & (seq == seq.shift(1)).fill_null(value=False)))
        .with_columns(
            made_room=same(1) & (kind.shift(1) == "evict") & (at - at.shift(1) <= MINUTE),
            next_kind=pl.when(same(-1)).then(kind.shift(-1)),
            next_at=pl.when(same(-1)).then(at.shift(-1)),
        )
    )
