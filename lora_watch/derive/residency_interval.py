"""How sure the quantiles of residency are: intervals of p50 and p95 by block bootstrap, on demand."""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.bootstrap import BLOCK, CONFIDENCE, REPLICATES, Floats, stratified_weights
from lora_watch.derive.groups import BY_POD, group_columns, worst_provenance
from lora_watch.model import MINUTE, SECOND, Window
from lora_watch.replay.compiled import compiled

LEAST_BLOCK = MINUTE
"""µs: no block is shorter, and none is longer than ``BLOCK``. Between the two there are ``ENOUGH_BLOCKS`` in all."""
ENOUGH_BLOCKS = 40
FEWEST_BLOCKS = 12
"""Blocks, over pods and time, below which there is no interval: of five minutes of one pod, which hold some ten stays."""
_NOTHING = 1e-9
"""Weights are sums that come and go: what is left of them where nothing is."""
_ENDS, _LEAVES, _ENTERS = 0, 1, 2


def residency_interval(
    stays: pl.LazyFrame,
    window: Window,
    by: Sequence[str] = BY_POD,
    *,
    block: int | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> pl.DataFrame:
    """
    95 % intervals of ``p50_seconds`` and ``p95_seconds`` of :func:`~lora_watch.derive.residency.residency`, one row per group.

    Columns, after the group's: ``p50_low_seconds``, ``p50_high_seconds``, ``p95_low_seconds``, ``p95_high_seconds``, ``blocks``,
    ``block_seconds``, ``completed``, ``provenance``. A ``high`` of null beside a ``low`` means "and beyond what was watched"; a
    ``low`` of null: no interval (fewer than ``FEWEST_BLOCKS`` blocks, or the curve seldom comes down so far).

    Method. A stay is cut where blocks of time meet: each piece enters the risk set at the age it has there and leaves it at the
    age it has at the block's end, with an event in the block in which it was evicted. The Kaplan-Meier curve of all pieces
    is that of the stays, since risk sets and events at each age are the same, and its counts are sums over blocks. So blocks
    can be drawn anew, each with its own ``n(t)`` and ``d(t)``: ``S*(t) = Π (1 − Σ w d(u) ÷ Σ w n(u))``. Stays of one pod depend
    on one another (one that leaves makes room for the next), so a block is a pod for a stretch of time, never a stay.

    A block is a pod × ``block`` µs of time. Unless told that is as long as leaves ``ENOUGH_BLOCKS`` in the window, a minute at
    least and ten at most: ten minutes leave one block a pod in a window of 300 s, and what makes stays of one pod dependent
    lasts about as long as a short stay. Weights are drawn pod by pod (:func:`~lora_watch.derive.bootstrap.stratified_weights`):
    pods differ for good, since affinity sends each its own adapters, and all of them are in every window, so that drawing whole
    pods made intervals too wide.

    Edge cases. Groups and stays are those of residency: left-truncated stays have no age and are left out, restarts censor. The
    same rows give the same interval, whatever their order.
    """
    keys = group_columns(by)
    schema: dict[str, pl.DataType | type[pl.DataType]] = {
        **dict.fromkeys(keys, pl.String),
        **{f"{name}_seconds": pl.Float64 for name in ("p50_low", "p50_high", "p95_low", "p95_high")},
        "blocks": pl.Int64,
        "block_seconds": pl.Float64,
        "completed": pl.Int64,
        "provenance": pl.String,
    }
    rows = []
    for key, part in _known(stays, window).partition_by(keys, as_dict=True).items():
        pods = part.select(pl.struct("cluster", "pod").rank("dense") - 1).to_series().to_numpy().astype(np.int64)
        size = _block(window, int(pods.max()) + 1) if block is None else block
        ages = _Pieces(part, pods, window, size)
        p50, p95 = _spans(ages, replicates, seed)
        rows.append(
            dict(zip(keys, key, strict=True))
            | {"p50_low_seconds": p50[0], "p50_high_seconds": p50[1], "p95_low_seconds": p95[0], "p95_high_seconds": p95[1]}
            | {"blocks": ages.pods * ages.pieces, "block_seconds": size / SECOND, "completed": int(part["event"].sum())}
            | {"provenance": part.select(worst_provenance()).item()}
        )
    return pl.DataFrame(rows, schema=schema).sort(keys)


def _block(window: Window, pods: int) -> int:
    """µs of a block in time; blocks of one window are equally long."""
    length = window.end - window.start
    wanted = min(max(length * pods // ENOUGH_BLOCKS, LEAST_BLOCK), BLOCK)
    return -(-length // max(length // wanted, 1))


def _known(stays: pl.LazyFrame, window: Window) -> pl.DataFrame:
    """Stays of known age that overlap the window, with the span in which they are watched and whether they end in it."""
    left, loaded = pl.col("left_at"), pl.col("loaded_at")
    inside = (pl.col("resident_from") < window.end) & (left.is_null() | (left >= window.start)) & loaded.is_not_null()
    return (
        stays.filter(inside)
        .with_columns(
            event=((pl.col("left_by") == "evict") & (left < window.end)).fill_null(value=False),
            watched_from=pl.max_horizontal(loaded, pl.lit(window.start)),
            watched_until=pl.min_horizontal(left.fill_null(window.end), pl.lit(window.end)),
        )
        .filter(pl.col("watched_from") <= pl.col("watched_until"))
        .sort("cluster", "pod", "loaded_at", "watched_until", "event")
        .collect()
    )


class _Pieces:
    """The steps of risk sets by age: ends, other exits and entries of the pieces of stays, sorted by age."""

    def __init__(self, stays: pl.DataFrame, pods: NDArray[np.int64], window: Window, size: int) -> None:
        since, until = stays["watched_from"].to_numpy(), stays["watched_until"].to_numpy()
        loaded, event = stays["loaded_at"].to_numpy(), stays["event"].to_numpy()
        pieces = -(-(window.end - window.start) // size)
        first = (since - window.start) // size
        last = np.maximum((np.minimum(until, window.end - 1) - window.start) // size, first)
        count = last - first + 1
        which = np.repeat(np.arange(len(since)), count)
        step = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        piece = first[which] + step
        edge = window.start + piece * size
        enters = np.where(step == 0, since[which] - 1, edge - 1) - loaded[which]
        leaves = np.where(piece == last[which], until[which], edge + size - 1) - loaded[which]
        ends = event[which] & (piece == last[which])
        # two pieces of one stay meet at one age: the first is watched up to it, the second from just above
        block = pods[which] * pieces + piece
        self.pods, self.pieces = int(pods.max(initial=-1)) + 1, int(pieces)
        age = np.concatenate([enters, leaves])
        kind = np.concatenate([np.full(len(which), _ENTERS), np.where(ends, _ENDS, _LEAVES)]).astype(np.int8)
        order = np.lexsort((kind, age))
        self.age: Floats = age[order] / SECOND
        self.kind: NDArray[np.int8] = kind[order]
        self.block = np.tile(block, 2)[order].astype(np.int32)


@compiled
def _quantiles(
    weights: NDArray[np.float64], age: NDArray[np.float64], kind: NDArray[np.int8], block: NDArray[np.int32]
) -> NDArray[np.float64]:
    """By replicate: the least ages at which the weighted curve is down to 0.5 and to 0.05; infinite where it never is."""
    found = np.full((len(weights), 2), np.inf)
    for r in range(len(weights)):
        risk, survival, i = 0.0, 1.0, 0
        while i < len(age) and survival > 0.05 + 1e-9:
            events, leave, j = 0.0, 0.0, i
            while j < len(age) and age[j] == age[i]:
                weight = weights[r, block[j]]
                if kind[j] == _ENDS:
                    events += weight
                if kind[j] == _ENTERS:
                    leave -= weight
                else:
                    leave += weight
                j += 1
            if events > _NOTHING and risk > _NOTHING:
                survival *= max(1 - events / risk, 0.0)
                if survival <= 0.5 + 1e-9 and found[r, 0] == np.inf:
                    found[r, 0] = age[i]
                if survival <= 0.05 + 1e-9:
                    found[r, 1] = age[i]
            risk -= leave
            i = j
    return found


def _spans(pieces: _Pieces, replicates: int, seed: int) -> Iterator[tuple[float | None, float | None]]:
    """Percentile intervals of p50 and of p95; None for what is beyond the ages watched."""
    if pieces.pieces < 2 or pieces.pods * pieces.pieces < FEWEST_BLOCKS:
        yield from [(None, None)] * 2
        return
    weights = stratified_weights(pieces.pods, pieces.pieces, replicates, seed)
    found = _quantiles(weights, pieces.age, pieces.kind, pieces.block)
    for values in found.T:
        low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="nearest")
        yield tuple(float(end) if np.isfinite(end) else None for end in (low, high))  # type: ignore[misc]  # two ends
