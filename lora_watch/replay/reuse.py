"""Reuse times counted as they come: one histogram of fixed size, in which the past fades, instead of a trace."""

import numpy as np
from numpy.typing import NDArray

from lora_watch.replay.compiled import compiled, part

SINGLE = 16
"""Reuse times up to this have a bucket each; beyond, an octave has ``PER_OCTAVE``, none wider than an eighth of its start."""
PER_OCTAVE = 8
OCTAVES = 26
BUCKETS = SINGLE + PER_OCTAVE * OCTAVES
"""Buckets of reuse times, up to 2**30 uses; what is longer joins the last. One more counts first uses."""
NEVER = BUCKETS
"""The bucket of first uses."""
_LARGE = 1e100


@part
def _bucket(reuse: int) -> int:
    """The bucket of a reuse time of 1 or more."""
    if reuse <= SINGLE:
        return reuse - 1
    octave, floor = 0, SINGLE
    while 2 * floor < reuse:
        floor *= 2
        octave += 1
    return min(SINGLE + PER_OCTAVE * octave + (reuse - floor - 1) * PER_OCTAVE // floor, BUCKETS - 1)


def edges() -> NDArray[np.int64]:
    """The longest reuse time of each bucket, after a leading 0: bucket k holds ``edges[k] < reuse ≤ edges[k + 1]``."""
    steps = np.arange(1, PER_OCTAVE + 1)
    octaves = [(SINGLE << octave) + (SINGLE << octave) * steps // PER_OCTAVE for octave in range(OCTAVES)]
    return np.concatenate([np.arange(SINGLE + 1), *octaves]).astype(np.int64)


@compiled
def count_reuse(
    adapter: NDArray[np.int32],
    last: NDArray[np.int64],
    mass: NDArray[np.float64],
    clock: int,
    weight: float,
    growth: float,
) -> tuple[int, float]:
    """
    Add each use to the bucket of its reuse time in ``mass``; new clock (uses so far) and new weight of a use. O(1) a use.

    Instead of fading what is there, each use weighs ``growth`` times the one before; both are scaled down when large. ``last``
    holds the clock at each adapter's last use, −1 for none. Requests for the base model (below 0) are no uses.
    """
    for i in range(len(adapter)):
        a = adapter[i]
        if a < 0:
            continue
        clock += 1
        weight *= growth
        mass[NEVER if last[a] < 0 else _bucket(clock - last[a])] += weight
        last[a] = clock
        if weight > _LARGE:
            mass /= weight
            weight = 1.0
    return clock, weight


def miss_ratios(mass: NDArray[np.float64], slots: NDArray[np.int64]) -> NDArray[np.float64]:
    """
    LRU's miss ratio at each number of slots, from a histogram of reuse times; NaN where nothing was counted.

    Formula: with S(t) the share of uses whose reuse time exceeds t (first uses always do), ``W(T) = Σ_{t<T} S(t)`` distinct
    adapters stand in T uses (Denning and Schwartz 1972), LRU with c slots keeps what was used in the last T uses where
    ``W(T) = c``, and the miss ratio is S(T). Within a bucket reuse times are spread evenly; between edges S is a straight line
    over W. Exact for a stream in which every window of T uses holds as many adapters as the mean one.
    """
    total = mass.sum()
    if total <= 0:
        return np.full(len(slots), np.nan)
    longer = np.clip(1 - np.concatenate([[0.0], np.cumsum(mass[:BUCKETS])]) / total, mass[NEVER] / total, 1.0)
    width = np.diff(edges()).astype(np.float64)
    grows = width * longer[:-1] - (longer[:-1] - longer[1:]) * (width - 1) / 2
    distinct = np.concatenate([[0.0], np.cumsum(grows)])
    return np.asarray(np.interp(slots, distinct, longer), dtype=np.float64)
