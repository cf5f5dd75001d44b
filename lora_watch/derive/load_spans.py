"""When each load of an adapter into a GPU slot began and ended, its read from disk included."""

import polars as pl

from lora_watch.derive.groups import GROUPS, ranked_provenance, said_once
from lora_watch.derive.stays import counted
from lora_watch.model import MINUTE, SECOND

LONGEST_READ = MINUTE
"""µs between an adapter's read from disk and the copy that goes with it; the engine does both in one call."""


def load_spans(events: pl.LazyFrame) -> pl.LazyFrame:
    """
    One row per successful load into a GPU slot: the time in which its pod was at it.

    Columns: cluster, pool, role, pod, engine, adapter, stream, seq, reason, ``began`` and ``at`` (µs UTC, by the pod's clock),
    ``cold`` (its weights came from disk), ``disk_seconds`` (of the read; null: none, or not seen), ``copy_seconds`` (into the
    slot), ``timed`` (the beginning is known), ``provenance``.

    Formula: ``began = at − seconds``; of a cold one the earlier ``at − seconds`` of the adapter's last load into the CPU cache
    before it in the same log, at most ``LONGEST_READ`` before. Where ``seconds`` is not told (a log made from the engine's own
    lines) ``began`` is ``at``: the span is a moment, and ``timed`` is false.

    Edge cases. Failed loads and warm-up records have no row, rows said twice have one. A negative or infinite length is none.
    """
    seconds = pl.when(pl.col("seconds").is_between(0, 1e9)).then("seconds")
    loads = (
        events.filter((pl.col("kind") == "load") & counted() & pl.col("ok").ne_missing(False) & pl.col("adapter").is_not_null())
        .select(*GROUPS, "stream", "seq", "at", "tier", "from_tier", "reason", ranked_provenance(), seconds=seconds)
        .filter(said_once())
    )
    into_slot = loads.filter(pl.col("tier") == "gpu").drop("tier").sort("seq")
    reads = (
        loads.filter(pl.col("tier") == "cpu")
        .select("stream", "adapter", "seq", read_at="at", disk_seconds="seconds", read_provenance="provenance")
        .sort("seq")
    )
    cold = (pl.col("from_tier") == "disk").fill_null(value=False)
    with_read = (cold & (pl.col("at") - pl.col("read_at") <= LONGEST_READ)).fill_null(value=False)
    return (
        into_slot.join_asof(reads, on="seq", by=["stream", "adapter"], strategy="backward", check_sortedness=False)
        .with_columns(with_read=with_read)
        .select(
            *GROUPS,
            "stream",
            "seq",
            "reason",
            began=pl.min_horizontal(
                pl.col("at") - _micros("seconds"),
                pl.when("with_read").then(pl.col("read_at") - _micros("disk_seconds")),
            ),
            at="at",
            cold=cold,
            disk_seconds=pl.when("with_read").then("disk_seconds"),
            copy_seconds="seconds",
            timed=pl.col("seconds").is_not_null(),
            provenance=pl.max_horizontal("provenance", pl.when("with_read").then("read_provenance")).cast(pl.String),
        )
    )


def _micros(column: str) -> pl.Expr:
    return (pl.col(column).fill_null(0.0) * SECOND).round().cast(pl.Int64)
