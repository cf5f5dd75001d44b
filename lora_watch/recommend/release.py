"""When a pin has to go before the week is over: nobody asks for it any more, or the mix it was learned from is gone."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import DAY, HOUR, Window
from lora_watch.recommend.history import History
from lora_watch.replay.cluster import PinChange

UNUSED = DAY
"""A pin without a request for so long goes: it holds a slot for nobody."""
NEW_SHARE = 0.10
"""Share of an hour's requests for adapters that nobody knew when pins were chosen, from which on all of them go."""
LEAST = 50
"""Requests in that hour; fewer tell no share."""


def releases(history: History, window: Window, pins: Iterable[tuple[int, int]]) -> tuple[PinChange, ...]:
    """
    The pins that go before ``window`` ends, and when, by what had been seen until then; pins that the pool has already stay.

    * One that had no request since ``UNUSED`` (or since the window's start) goes.
    * All go at the end of the first whole hour in which more than ``NEW_SHARE`` of the requests are for adapters that nobody had
      asked for before the window: an A/B test, say, makes every slot dearer than the past could know.
    """
    new = sorted(set(pins) - set(history.pinned))
    first, end = np.searchsorted(history.trace.at, [window.start, window.end])
    adapter, at = history.trace.adapter[first:end], history.trace.at[first:end]
    all_go = _changed(history, adapter, at, int(first), window)
    found = []
    for p, a in new:
        used = np.concatenate([[window.start], at[adapter == a], [window.end]])
        gaps = np.flatnonzero(np.diff(used) > UNUSED)
        goes = min(int(used[gaps[0]]) + UNUSED if len(gaps) else window.end, all_go)
        if goes < window.end:
            found.append(PinChange(goes, p, a, pinned=False))
    return tuple(sorted(found))


def _changed(history: History, adapter: NDArray[np.int32], at: NDArray[np.int64], first: int, window: Window) -> int:
    """The end of the first hour in which new adapters carry more than their share; the window's end where there is none."""
    known = np.zeros(history.trace.adapters + 1, dtype=np.bool_)
    known[history.trace.adapter[:first]] = True
    known[:-1] |= history.first_seen < window.start
    known[-1] = True  # the base model
    hours = (window.end - window.start) // HOUR
    hour = (at - window.start) // HOUR
    every = np.bincount(hour, minlength=hours)[:hours]
    fresh = np.bincount(hour, weights=~known[adapter], minlength=hours)[:hours]
    over = np.flatnonzero((every >= LEAST) & (fresh > NEW_SHARE * every))
    return window.start + (int(over[0]) + 1) * HOUR if len(over) else window.end
