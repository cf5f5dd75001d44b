"""What each pin would save: the exact marginal gain of every adapter on every pod, from one pass over the uses."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lora_watch.replay.compiled import compiled
from lora_watch.replay.trace import Trace


@compiled
def _gains(
    adapter: NDArray[np.int32],
    pod: NDArray[np.int32],
    block: NDArray[np.int64],
    room: NDArray[np.int64],
    pinned: NDArray[np.bool_],
    cost: NDArray[np.float64],
    gains: NDArray[np.float64],
) -> None:
    """
    Fill ``gains`` [block, pod, adapter] by an LRU list for each pod, ``room`` places long, of what is not pinned.

    ``risk`` of a pod is the cost of its hits on the last place so far in the block: with one place less each would be a miss,
    unless the pin that took the place is among those in front. An adapter is credited with what the risk grows by while it
    is in the list: read when it enters, and again when it leaves.
    """
    pods, adapters = pinned.shape
    places = np.empty((pods, max(int(room.max()), 1)), dtype=np.int32)
    filled = np.zeros(pods, dtype=np.int64)
    risk = np.zeros(pods)
    entered = np.zeros((pods, adapters))
    for b in range(len(block) - 1):
        for i in range(block[b], block[b + 1]):
            a, p = adapter[i], pod[i]
            if a < 0 or pinned[p, a]:
                continue
            carried, place, full = a, 0, filled[p]
            while place < full:
                here = places[p, place]
                places[p, place] = carried
                if here == a:
                    break
                carried = here
                place += 1
            if place < full:
                if place == room[p] - 1:
                    risk[p] += cost[a]
                continue
            gains[b, p, a] += cost[a]
            entered[p, a] = risk[p]
            if full < room[p]:
                places[p, full] = carried
                filled[p] += 1
            else:
                gains[b, p, carried] += risk[p] - entered[p, carried]
        for p in range(pods):
            for place in range(filled[p]):
                a = places[p, place]
                gains[b, p, a] += risk[p] - entered[p, a]
                entered[p, a] = 0.0
            for a in range(adapters):
                gains[b, p, a] -= risk[p]
            risk[p] = 0.0


def pin_gains_by_block(
    trace: Trace,
    slots: int | Sequence[int],
    pinned: Collection[tuple[int, int]] = (),
    cost: ArrayLike | None = None,
    edges: Sequence[int] | None = None,
) -> NDArray[np.float64]:
    """
    The gains of :func:`pin_gains`, apart for each block of requests: [block, pod, adapter].

    Block b holds the requests ``edges[b]`` … ``edges[b + 1] − 1`` (by index, without ``edges`` all of them); only the order of
    uses before it is carried over. Blocks add up: weigh them by age, or draw them anew, without another pass.
    """
    count = trace.adapters
    fleet = np.full(trace.pods, slots, dtype=np.int64) if isinstance(slots, int) else np.array(slots, dtype=np.int64)
    if fleet.shape != (trace.pods,) or fleet.min() < 1:
        raise ValueError(f"slots is one number from 1 for all of {trace.pods} pods or one for each, got {slots}")
    fixed = np.zeros((trace.pods, count), dtype=np.bool_)
    for p, a in pinned:
        if not (0 <= p < trace.pods and 0 <= a < trace.adapters):
            raise ValueError(f"a pin is (pod, adapter) below ({trace.pods}, {trace.adapters}), got ({p}, {a})")
        fixed[p, a] = True
    room = fleet - fixed.sum(axis=1)
    if room.min() < 1:
        raise ValueError("a pod needs at least one slot without a pin, so that a miss can load")
    weight = np.ones(count) if cost is None else np.array(cost, dtype=np.float64)
    if weight.shape != (count,) or not np.isfinite(weight).all() or weight.min(initial=0) < 0:
        raise ValueError(f"a load costs a number from 0 for each of {count} adapters")
    bounds = np.array([0, len(trace)] if edges is None else edges, dtype=np.int64)
    if len(bounds) < 2 or (np.diff(bounds) < 0).any() or bounds[0] < 0 or bounds[-1] > len(trace):
        raise ValueError(f"blocks are between growing edges from 0 to {len(trace)}, got {bounds.tolist()}")
    gains = np.zeros((len(bounds) - 1, trace.pods, count))
    _gains(trace.adapter, trace.pods_or_one(), bounds, np.minimum(room, count + 1), fixed, weight, gains)
    gains[:, fixed | (room == 1)[:, None]] = -np.inf
    gains[:, fixed] = 0.0
    return gains


def pin_gains(
    trace: Trace,
    slots: int | Sequence[int],
    pinned: Collection[tuple[int, int]] = (),
    cost: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """
    By pod (row) and adapter (column): the loads that pinning it there, beside those already ``pinned``, would save.

    Exact for uses without length on given pods: the difference of two replays, for every candidate at once. With ``cost`` (of a
    load, by adapter: its seconds) each load counts as much. The pin's own preload is not in it: take ``cost`` off once for every
    start of the pod. Negative where the slot is worth more to others; 0 for what is pinned; −∞ on a pod with one free slot,
    which no pin may take.

    Formula. With c slots that are free, an adapter's use hits iff its stack distance d among the unpinned is below c. A pin p
    takes a slot and leaves the stack: the use of another hits iff ``d − [p used since] < c − 1``, so that it loses the hits with
    ``d = c − 1`` during which p was not in a slot anyway. Hence ``gain_p = loads_p − risk + risk while p is resident``, risk
    being the cost of the hits on the last place of the LRU list.

    >>> pin_gains(Trace([0, 1, 2, 0, 1, 2]), slots=2)
    array([[2., 2., 2.]])
    """
    return np.asarray(pin_gains_by_block(trace, slots, pinned, cost)[0])
