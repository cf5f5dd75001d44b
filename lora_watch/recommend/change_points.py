"""When the mix of adapters changed for good: what lies before says nothing of what is to come."""

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import DAY, HOUR
from lora_watch.recommend.history import History

BLOCK = 4 * HOUR
BEFORE, AFTER = 3 * DAY, DAY
"""Mixes are compared over so much before a moment and at least so much after it (up to ``BEFORE``)."""
MOVED = 0.15
"""Share of the requests that go to other adapters than before: less is drift."""
TIMES_USUAL = 3.0
"""… and so many times the median over all moments: a pool that always moves has no change point."""
LEAST = 200
"""Requests on each side: in fewer, two draws from one mix look different."""


def changes(history: History) -> tuple[int, ...]:
    """
    Times (µs UTC, multiples of four hours from the window's start) at which the mix of adapters changed, the oldest first.

    The distance of two mixes is that of total variation, ``½ Σ |p − q|``: the share of requests that moved. At each moment the
    mean mix of three days before is compared with that of the three days (one at least, at the end) after; a change is a largest
    distance within three days, above ``MOVED`` and above ``TIMES_USUAL`` times the median of all. An hour of day has the same
    weight on both sides, so that daily patterns cancel; a weekend that asks for other adapters than the week does not, but comes
    every week and lifts the median. One day after a change is too short to tell it from an odd day: two are as safe as five.
    """
    counts = _counts(history)
    before, after = BEFORE // BLOCK, AFTER // BLOCK
    total = np.concatenate([np.zeros((1, counts.shape[1])), np.cumsum(counts, axis=0)])
    moments = np.arange(after, len(counts) - after + 1)
    distances = np.zeros(len(counts) + 1)
    for moment in moments.tolist():
        whole = min(before, moment // after * after)
        ahead = min(before, (len(counts) - moment) // after * after)
        distances[moment] = _moved(total[moment] - total[moment - whole], total[moment + ahead] - total[moment])
    if not len(moments):
        return ()
    limit = max(MOVED, TIMES_USUAL * float(np.median(distances[moments])))
    found = [
        moment
        for moment in moments.tolist()
        if distances[moment] > limit and distances[moment] == distances[max(moment - before, 0) : moment + before + 1].max()
    ]
    return tuple(history.window.start + moment * BLOCK for moment in _spread(found, before))


def _counts(history: History) -> NDArray[np.float64]:
    """Requests by block and adapter."""
    used = history.trace.adapter >= 0
    adapters = max(history.trace.adapters, 1)
    blocks = (history.window.end - history.window.start) // BLOCK
    block = (history.trace.at[used] - history.window.start) // BLOCK
    inside = block < blocks
    flat = block[inside] * adapters + history.trace.adapter[used][inside]
    return np.bincount(flat, minlength=blocks * adapters).reshape(blocks, adapters).astype(np.float64)


def _moved(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    if before.sum() < LEAST or after.sum() < LEAST:
        return 0.0
    return float(np.abs(before / before.sum() - after / after.sum()).sum() / 2)


def _spread(found: list[int], apart: int) -> list[int]:
    """Of neighbours that are alike, the first."""
    kept: list[int] = []
    for moment in found:
        if not kept or moment - kept[-1] > apart:
            kept.append(moment)
    return kept
