"""What every frame of found structures begins with, so that a reader may put them side by side."""

from collections.abc import Iterable

import polars as pl

from lora_watch.derive.groups import POOL

HEAD = (*POOL, "pods", "adapters", "start", "end", "flagged")
"""
The first columns of any structure; the last one is ``provenance``, between them are the numbers that prove it.

``pods`` and ``adapters`` are lists (empty: not about single ones), ``start`` and ``end`` are µs UTC, half-open, within the
window unless the structure says otherwise. ``flagged`` is whether the numbers pass the structure's own test; a row that does
not pass explains, and is no alarm.
"""
NONE_NAMED = pl.lit([], dtype=pl.List(pl.String))
"""An empty list of pods or adapters."""


def structures(rows: pl.LazyFrame, numbers: Iterable[str], by: Iterable[str] = ("start",)) -> pl.LazyFrame:
    """The head, the numbers and the provenance of each row, sorted by pool and by ``by``; ``flagged`` is never null."""
    return (
        rows.with_columns(pl.col("start", "end").cast(pl.Int64), pl.col("flagged").fill_null(value=False))
        .sort(*POOL, *by)
        .select(*HEAD, *numbers, "provenance")
    )


def names_of(column: str) -> pl.Expr:
    """Of a group: its distinct names as a sorted list, nulls left out."""
    return pl.col(column).drop_nulls().unique().sort()
