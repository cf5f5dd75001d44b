"""Which adapters are asked for soon after which: one backward pass over the requests."""

import numpy as np
from numpy.typing import NDArray

from lora_watch.replay.compiled import compiled
from lora_watch.replay.trace import Trace


@compiled
def _count(adapter: NDArray[np.int32], at: NDArray[np.int64], span: int, counts: NDArray[np.int64]) -> None:
    """Adapters in the order of their next request, the soonest first: of each request those within the span are counted."""
    adapters = len(counts)
    order = np.empty(adapters, dtype=np.int32)
    upcoming = np.zeros(adapters, dtype=np.int64)
    known = 0
    for i in range(len(adapter) - 1, -1, -1):
        a = adapter[i]
        if a < 0:
            continue
        for k in range(known):
            if upcoming[order[k]] - at[i] > span:
                break
            if order[k] != a:
                counts[a, order[k]] += 1
        place = 0
        while place < known and order[place] != a:
            place += 1
        if place == known:
            known += 1
        for k in range(place, 0, -1):
            order[k] = order[k - 1]
        order[0] = a
        upcoming[a] = at[i]


def followers(trace: Trace, span: int) -> NDArray[np.int64]:
    """
    By adapter a (row) and b (column): the requests for a after which one for b came within ``span`` µs, on whatever pod. The
    diagonal is 0: an adapter does not follow itself.

    >>> followers(Trace([0, 1, 0, 2], at=[0, 1, 10, 20]), span=5).tolist()
    [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
    """
    if span < 0:
        raise ValueError(f"a span is 0 or more, got {span}")
    counts = np.zeros((max(trace.adapters, 1), max(trace.adapters, 1)), dtype=np.int64)
    _count(trace.adapter, trace.at, span, counts)
    return counts[: trace.adapters, : trace.adapters]
