"""Whole pods at a time: what does not fit in memory at once is derived bucket range by bucket range."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import polars as pl

from lora_watch.schema import BUCKETS

SHARD_ROWS = 750_000
"""Rows of a shard, all frames together: 20 million events and their requests take 32 shards, a million takes two."""
Derivation = Callable[..., Mapping[str, pl.LazyFrame]]
"""Frames of some whole pods in, named results out."""


def bucket_ranges(shards: int, buckets: int = BUCKETS) -> Iterator[tuple[int, int]]:
    """
    At most ``shards`` ranges of buckets, half-open, of nearly one size, that cover all buckets in order.

    >>> list(bucket_ranges(3, buckets=8))
    [(0, 2), (2, 5), (5, 8)]
    """
    if shards < 1:
        raise ValueError(f"there is at least one shard, got {shards}")
    edges = [buckets * shard // shards for shard in range(shards + 1)]
    return ((low, high) for low, high in pairwise(edges) if low < high)


def shards_for(rows: int) -> int:
    """
    Shards for so many rows: each costs as much again, however small, so as few as memory allows; at most one a bucket.

    >>> shards_for(0), shards_for(1_000_000), shards_for(24_000_000), shards_for(10**9)
    (1, 2, 32, 64)
    """
    return min(max(-(-rows // SHARD_ROWS), 1), BUCKETS)


def by_shards(derivation: Derivation, frames: Sequence[pl.LazyFrame], shards: int | None = None) -> dict[str, pl.DataFrame]:
    """
    ``derivation(*frames)`` computed shard by shard and put together: memory is that of one shard and of the results. A shard
    is read once, so frames should have only the columns that the derivation needs.

    Unless told, ``shards`` is :func:`shards_for` the rows of all frames, counted first: for files that is in their footers.

    A bucket holds whole pods, so a result is right if each of its rows is about one pod (its group holds cluster and pod).
    Rows of wider groups must be merged from such parts by who asks. Frames need the column ``bucket``; closed days are sorted
    by it, so a shard reads little more than its rows.
    """
    parts: dict[str, list[pl.DataFrame]] = {}
    if shards is None:
        counts = pl.collect_all([frame.select(pl.len()) for frame in frames], engine="streaming")
        shards = shards_for(sum(count.item() for count in counts))
    for low, high in bucket_ranges(shards):
        within = pl.col("bucket").is_between(low, high, closed="left")
        shard = pl.collect_all([frame.filter(within) for frame in frames], engine="streaming")
        results = derivation(*(frame.lazy() for frame in shard))
        for name, part in zip(results, pl.collect_all(list(results.values()), engine="streaming"), strict=True):
            parts.setdefault(name, []).append(part)
    return {name: pl.concat(frames) for name, frames in parts.items()}
