"""Which adapters may be pinned: asked for in the last days, known for a week, and no experiment."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import DAY
from lora_watch.recommend.history import History

RECENT = 3 * DAY
"""Without a request for so long an adapter may be a ghost, and a pin would keep it."""
KNOWN = 7 * DAY
"""A younger adapter has not shown its week yet."""
BEGIN = DAY
"""What was seen within so much of the first adapter of all was there before anybody looked: how old it is nobody knows."""


def candidates(history: History, opt_in: Collection[str] = ()) -> NDArray[np.bool_]:
    """
    By adapter code, whether it may be pinned from the history's end on: a request in the last ``RECENT``, first seen ``KNOWN``
    before the end or longer ago, or when requests began to be held, and no experiment. Names in ``opt_in`` need the request only.
    """
    end = history.window.end
    newest = history.trace.adapter[np.searchsorted(history.trace.at, end - RECENT) :]
    asked = np.bincount(newest[newest >= 0], minlength=history.trace.adapters) > 0
    wanted = np.array([name in opt_in for name in history.names], dtype=np.bool_)
    begin = int(history.first_seen.min(initial=end)) + BEGIN
    settled = ~history.experiment & (history.first_seen <= max(end - KNOWN, begin))
    return np.asarray(asked & (settled | wanted), dtype=np.bool_)
