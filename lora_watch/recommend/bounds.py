"""What no policy could do better: bounds beside every promise."""

from dataclasses import replace

import numpy as np

from lora_watch.model import Window
from lora_watch.recommend.history import History
from lora_watch.recommend.judge import Judged, judged
from lora_watch.recommend.pins import lengths, order_of
from lora_watch.recommend.present import Present
from lora_watch.replay.policies import Eviction, Policy
from lora_watch.replay.trace import Trace

MIN = Policy(Eviction.MIN)
POOLED, PER_POD, HINDSIGHT = "pooled Belady", "Belady on the recorded pods", "hindsight-static pins"


def bounds(history: History, window: Window, now: Present, base: Judged) -> dict[str, float]:
    """
    Shares of ``base``'s loads in ``window`` that could be removed at most without more slots, by name; none without a load.

    * pooled Belady: all slots in one pool, the future known, any routing: a floor for all; perhaps far away, since it knows no
      limit of a pod's load;
    * Belady on the recorded pods: the future known, routing as it was;
    * hindsight-static: pins chosen as ours are, but from the judged window itself, and the best number of them.

    Warmed by the day before, so that the first two may be off by as many loads as there are slots.
    """
    loads = int(base.loads.sum())
    if not loads:
        return {}
    pooled = judged(_pool(history), window, None, pins=(), policy=MIN)
    apart = judged(history, window, None, pins=(), policy=MIN)
    least = min((one for _, one in hindsight(history, window, now)), default=loads)
    return {
        POOLED: 1 - int(pooled.loads.sum()) / loads,
        PER_POD: 1 - int(apart.loads.sum()) / loads,
        HINDSIGHT: max(1 - least / loads, 0.0),
    }


def hindsight(history: History, window: Window, now: Present) -> list[tuple[int, int]]:
    """(number of pins, loads with their preloads) for pins chosen from the judged window itself."""
    order = order_of(history.during(window), now, np.ones(history.trace.adapters, dtype=np.bool_), None)
    found = []
    for count in lengths(len(order(history.trace.adapters * len(history.slots)))):
        told = judged(history, window, now.router, pins=order(count))
        found.append((count, int(told.loads.sum()) + told.preloads))
    return found


def _pool(history: History) -> History:
    """All slots in one pod."""
    trace = history.trace
    one = Trace(trace.adapter, adapters=trace.adapters, at=trace.at)
    return replace(history, trace=one, pods=("all",), slots=(sum(history.slots),), pinned=())
