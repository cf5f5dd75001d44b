"""On which pod a pin goes: one pod each, so that the pods' loads come out even, and never all slots of a pod."""

from collections.abc import Sequence

import numpy as np

from lora_watch.model import MINUTE, SECOND
from lora_watch.recommend.history import SEATS, History

FULL = 0.6
"""Of a pod's seats: what one adapter may take of them before it is worth a second pod."""
SPAN = 5 * MINUTE


def work(history: History) -> list[float]:
    """Seconds in which requests of each adapter ran, by adapter code; requests where nobody knows how long they ran."""
    used = history.trace.adapter >= 0
    hold = history.trace.hold[used] / SECOND if history.trace.hold.any() else np.ones(int(used.sum()))
    return [float(one) for one in np.bincount(history.trace.adapter[used], weights=hold, minlength=history.trace.adapters)]


def placed(adapters: Sequence[int], work: Sequence[float], slots: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """
    (pod, adapter) for each: the one with most work first, on the pod with the least work so far that has a slot to spare (longest
    processing time first). At most ``slots − 1`` a pod; what finds no room is left out. In the order of ``adapters``.

    >>> placed([0, 1, 2], [5.0, 3.0, 1.0], slots=[2, 3])
    ((0, 0), (1, 1), (1, 2))
    """
    room = [one - 1 for one in slots]
    total = [0.0] * len(slots)
    homes: dict[int, int] = {}
    for a in sorted(adapters, key=lambda one: (-work[one], one)):
        free = [p for p in range(len(slots)) if room[p] > 0]
        if not free:
            break
        p = min(free, key=lambda one: (total[one], one))
        homes[a] = p
        room[p] -= 1
        total[p] += work[a]
    return tuple((homes[a], a) for a in adapters if a in homes)


def spread(pins: Sequence[tuple[int, int]], more: Sequence[int], slots: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """
    ``pins`` and one pin more for each adapter in ``more`` that is among them, on the pod with most room that has not got it yet;
    none where no pod has a slot to spare.

    >>> spread([(0, 7), (0, 8)], [7, 9], slots=[3, 2, 3])
    ((0, 7), (0, 8), (2, 7))
    """
    every = list(pins)
    for a in more:
        room = {p: count - 1 - sum(q == p for q, _ in every) for p, count in enumerate(slots) if (p, a) not in every}
        free = [p for p in room if room[p] > 0]
        if free and any(b == a for _, b in pins):
            every.append((max(free, key=lambda one: (room[one], -one)), a))
    return tuple(every)


def replicas(history: History) -> list[int]:
    """
    Pods that each adapter needs: ``ceil(q95 of its requests in flight, 5-minute means ÷ (0.6 · seats of a pod))``, at least 1.

    By Little's law the mean in flight is ``λ · s``: the seconds that requests of the span ran, over its length.
    """
    used = history.trace.adapter >= 0
    spans = -(-(history.window.end - history.window.start) // SPAN)
    span = (history.trace.at[used] - history.window.start) // SPAN
    adapters = history.trace.adapters
    ran = np.bincount(span * adapters + history.trace.adapter[used], weights=history.trace.hold[used], minlength=spans * adapters)
    busy = np.quantile(ran.reshape(spans, adapters) / SPAN, 0.95, axis=0)
    return [int(one) for one in np.maximum(np.ceil(busy / (FULL * SEATS)), 1)]
