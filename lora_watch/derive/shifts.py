"""Whether a pool is asked for other adapters at other hours: each part of the day has a working set of its own."""

from itertools import combinations

import numpy as np
import polars as pl

from lora_watch.derive.found import NONE_NAMED, structures
from lora_watch.derive.groups import POOL, once, ranked_provenance
from lora_watch.derive.locality import came
from lora_watch.model import HOUR, Window

BLOCK = 4 * HOUR
FEWEST = 200
"""Requests of a block; in fewer two draws from the same mix look different."""
FLAGGED_OVERLAP = 0.5


def shifts(requests: pl.LazyFrame, window: Window, *, stored: bool = False) -> pl.LazyFrame:
    """
    How alike the mixes of adapters in blocks of four hours are, one row per pool with two blocks or more to compare.

    Columns, between the head (pods and adapters: none; start and end: of the blocks that are compared) and provenance:
    ``blocks``, ``least_overlap_ratio`` (of the two blocks that are least alike), ``neighbour_overlap_ratio`` (mean over blocks
    side by side), ``pool_adapters`` (asked for in all), ``block_adapters`` (mean number that make up 90 % of a block's
    requests), ``least_from`` and ``least_to`` (µs UTC: the begins of these two blocks).

    Formula: the overlap of two blocks with shares p and q of the requests by adapter is ``Σ min(p, q)``: 1 for the same mix, 0
    for no adapter in common. Blocks begin at multiples of four hours UTC; those that the window cuts, or with fewer than
    ``FEWEST`` requests for an adapter, are left out.

    Flagged: an overlap below 0.5. A month's counts say nothing of the hour then, and neither do pins made of them.

    Edge cases. Base model requests don't count. Something new (an A/B test) changes the mix too: hand over a window before it,
    or see the early warning. Rows said twice count once; ``stored`` rows are unique as they are.
    """
    first, last = -(-window.start // BLOCK), window.end // BLOCK
    inside = requests.filter(pl.col("adapter").is_not_null() & (came() >= first * BLOCK) & (came() < last * BLOCK))
    counts = (
        once(inside, stored=stored)
        .group_by(*POOL, "adapter", block=came() // BLOCK)
        .agg(count=pl.len(), ranked=ranked_provenance().max())
        .sort(*POOL, "adapter", "block")
        .collect(engine="streaming")
    )
    compared = [(key, _compared(group)) for key, group in counts.group_by(POOL, maintain_order=True)]
    rows = [dict(zip(POOL, key, strict=True)) | row for key, row in compared if row is not None]
    frame = pl.DataFrame(
        rows,
        schema={
            **dict.fromkeys(POOL, pl.String()),
            **dict.fromkeys(("start", "end", "blocks", "pool_adapters", "least_from", "least_to"), pl.Int64()),
            **dict.fromkeys(("least_overlap_ratio", "neighbour_overlap_ratio", "block_adapters"), pl.Float64()),
            "provenance": pl.String(),
        },
    ).with_columns(pods=NONE_NAMED, adapters=NONE_NAMED, flagged=pl.col("least_overlap_ratio") < FLAGGED_OVERLAP)
    numbers = (
        "blocks",
        "least_overlap_ratio",
        "neighbour_overlap_ratio",
        "pool_adapters",
        "block_adapters",
        "least_from",
        "least_to",
    )
    return structures(frame.lazy(), numbers)


def _compared(counts: pl.DataFrame) -> dict[str, object] | None:
    """The numbers of one pool; None with fewer than two blocks."""
    table = counts.pivot("block", index="adapter", values="count").fill_null(0)
    blocks = [(int(name), table[name].to_numpy().astype(np.float64)) for name in table.columns if name != "adapter"]
    blocks = sorted((at, column / column.sum()) for at, column in blocks if column.sum() >= FEWEST)
    if len(blocks) < 2:
        return None
    overlaps = {(a, b): float(np.minimum(blocks[a][1], blocks[b][1]).sum()) for a, b in combinations(range(len(blocks)), 2)}
    least = min(overlaps, key=lambda pair: (overlaps[pair], pair))
    beside = [overlaps[a, a + 1] for a in range(len(blocks) - 1)]
    needed = [int(np.searchsorted(np.cumsum(np.sort(share)[::-1]), 0.9) + 1) for _, share in blocks]
    return {
        "start": blocks[0][0] * BLOCK,
        "end": (blocks[-1][0] + 1) * BLOCK,
        "blocks": len(blocks),
        "pool_adapters": table.height,
        "least_from": blocks[least[0]][0] * BLOCK,
        "least_to": blocks[least[1]][0] * BLOCK,
        "least_overlap_ratio": overlaps[least],
        "neighbour_overlap_ratio": float(np.mean(beside)),
        "block_adapters": float(np.mean(needed)),
        "provenance": str(counts["ranked"].max()),
    }
