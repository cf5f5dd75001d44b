"""Chains of swaps in which each evicts what the next one has to load again: for drawing, not for alarms."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.found import structures
from lora_watch.derive.groups import POOL, worst_provenance
from lora_watch.derive.moves import moves as moves_of
from lora_watch.model import SECOND, Window

TAU = 30 * SECOND
"""µs from an eviction to the reload of its victim that still make a link."""
LONGEST = 20
"""Swaps of one chain; what goes on is the next one."""
SHORTEST = 3
"""Swaps that make a chain: evicted, loaded again at another's cost, and that one again."""


def cascades(
    events: pl.LazyFrame,
    window: Window,
    *,
    tau: int = TAU,
    longest: int = LONGEST,
    shortest: int = SHORTEST,
    moves: pl.LazyFrame | None = None,
) -> pl.LazyFrame:
    """
    Chains of swaps in one engine, one row each: a swap evicts v, within ``tau`` v is loaded again and evicts w, and so on.

    Columns, between the head (pods: the one; adapters: in the order in which they were loaded, a ring names them again) and
    provenance: ``engine``, ``swaps`` (links of the chain), ``last_evicted`` (whom the last swap evicted), ``distinct_adapters``
    (loaded), ``mean_reload_seconds`` (from eviction to reload), ``goes_on`` (cut at ``longest``: the next chain begins where
    this one ends).

    Never flagged. The share of victims that are soon loaded again is near 1 in healthy clusters too (0.88 within 30 s, against
    0.89 in a thrash), so chains explain a swap; that there are any is no trouble.

    Formula: a swap is an eviction with reason lru and the load it made room for (the next record of its boot, at most a minute
    later, successful). Its successor is the next swap of the boot that loads what it evicted, at most ``tau`` µs later, if
    there is no load without eviction of that adapter before. So a swap has at most one successor and one predecessor, and
    chains are paths. ``mean_reload_seconds`` is over the links inside the chain.

    Edge cases. A swap belongs to the window in which its load was done; links across the window's edge are not seen.
    ``moves`` are those of the same events, where they are at hand (:func:`~lora_watch.derive.moves.moves`).
    """
    if longest < shortest or shortest < 2:
        raise ValueError(f"a chain has at least two swaps and is not shorter than the shortest: {shortest} … {longest}")
    kind, stream = pl.col("kind"), pl.col("stream")
    after_lru = (stream == stream.shift(1)) & (kind.shift(1) == "evict") & (pl.col("reason").shift(1) == "lru")
    loads = (
        (moves if moves is not None else moves_of(events))
        .with_columns(
            victim=pl.when(after_lru & pl.col("made_room")).then(pl.col("adapter").shift(1)),
            evicted_at=pl.when(after_lru & pl.col("made_room")).then(pl.col("at").shift(1)),
        )
        .filter((kind == "load") & pl.col("ok").ne_missing(False) & pl.col("adapter").is_not_null())
        .filter(pl.col("at").is_between(window.start, window.end, closed="left"))
    )
    linked = _linked(loads, tau).collect()
    root, place = _paths(linked["previous"].to_numpy())
    chains = (
        linked.lazy()
        .with_columns(chain=pl.Series(root), place=pl.Series(place))
        .with_columns(part=pl.col("place") // longest)
        .sort("chain", "place")
        .group_by("chain", "part", maintain_order=True)
        .agg(
            *(pl.col(column).first() for column in (*POOL, "pod", "engine")),
            adapters=pl.col("adapter"),
            start=pl.max_horizontal(pl.col("evicted_at").first(), pl.lit(window.start)),
            end=pl.col("at").last() + 1,
            swaps=pl.len().cast(pl.Int64),
            last_evicted=pl.col("victim").last(),
            distinct_adapters=pl.col("adapter").n_unique().cast(pl.Int64),
            mean_reload_seconds=pl.col("reload_seconds").slice(1).mean(),
            goes_on=pl.col("followed").last() & (pl.len() == longest),
            provenance=worst_provenance(),
        )
        .filter(pl.col("swaps") >= shortest)
    )
    return structures(
        chains.with_columns(pods=pl.concat_list("pod"), flagged=pl.lit(value=False)),
        ("engine", "swaps", "last_evicted", "distinct_adapters", "mean_reload_seconds", "goes_on"),
        by=("start", "pods", "chain", "part"),
    )


def _linked(loads: pl.LazyFrame, tau: int) -> pl.LazyFrame:
    """
    The swaps, each with the row number of the swap that evicted what it loads (``previous``, −1: none within tau), the
    ``reload_seconds`` since, and whether one follows it.
    """
    swaps = loads.filter(pl.col("victim").is_not_null()).sort("stream", "seq").with_row_index("row")
    evictions = swaps.select("stream", "seq", adapter="victim", previous=pl.col("row").cast(pl.Int64), gone_at="evicted_at")
    chain = pl.concat(
        [
            loads.select("stream", "seq", "adapter", is_load=pl.lit(value=True)),
            evictions.select("stream", "seq", "adapter", "previous", "gone_at", is_load=pl.lit(value=False)),
        ],
        how="diagonal",
    ).sort("stream", "adapter", "seq")
    same = pl.all_horizontal(*(pl.col(name) == pl.col(name).shift(1) for name in ("stream", "adapter")))
    links = chain.with_columns(
        previous=pl.when(same).then(pl.col("previous").shift(1)), gone_at=pl.when(same).then(pl.col("gone_at").shift(1))
    ).filter("is_load")
    linked = swaps.join(links.select("stream", "seq", "previous", "gone_at"), on=["stream", "seq"], how="left").with_columns(
        waited=pl.col("at") - pl.col("gone_at")
    )
    near = (pl.col("waited") <= tau).fill_null(value=False)
    return linked.sort("row").with_columns(
        previous=pl.when(near).then("previous").fill_null(-1),
        reload_seconds=pl.when(near).then(pl.col("waited") / SECOND),
        followed=pl.col("row").cast(pl.Int64).is_in(pl.col("previous").filter(near).implode()),
    )


def _paths(previous: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    Of each row the first row of its path and its place in it, from who precedes it (−1: nobody); by doubling, so that a path of
    n rows takes log2 n rounds.

    >>> root, place = _paths(np.array([-1, 0, -1, 1]))
    >>> root.tolist(), place.tolist()
    ([0, 0, 2, 0], [0, 1, 0, 2])
    """
    own = np.arange(len(previous), dtype=np.int64)
    root = np.where(previous < 0, own, previous)
    place = (previous >= 0).astype(np.int64)
    while (root != root[root]).any():
        place = place + place[root]
        root = root[root]
    return root, place
