"""Pools that hold bytes instead of slots, as those of S-LoRA and LoRAX: exact replay, and the gains of pins there."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lora_watch.replay.compiled import compiled
from lora_watch.replay.trace import LONGEST, Trace


@dataclass(frozen=True, slots=True)
class Sized:
    """
    What a pool of bytes does: ``loaded`` says of each request whether its adapter had to be loaded, ``evicted`` how many left for
    it; ``most_bytes`` by pod is the most that it held at once, pins included. ``preloads`` are the pins' own loads.
    """

    loaded: NDArray[np.bool_]
    evicted: NDArray[np.int32]
    most_bytes: NDArray[np.int64]
    preloads: int

    @property
    def loads(self) -> int:
        """Requests that found their adapter not in the pool."""
        return int(self.loaded.sum())

    @property
    def swaps(self) -> int:
        """Adapters that left so that another could enter."""
        return int(self.evicted.sum())


@compiled
def _run(
    adapter: NDArray[np.int32],
    pod: NDArray[np.int32],
    free: NDArray[np.int64],
    size: NDArray[np.int64],
    pinned: NDArray[np.bool_],
    cost: NDArray[np.float64],
    loaded: NDArray[np.bool_],
    evicted: NDArray[np.int32],
    most: NDArray[np.int64],
    gains: NDArray[np.float64],
) -> None:
    """
    An LRU list for each pod; ``free`` bytes are not pinned. Fill ``gains`` [pod, adapter] too, unless it is empty.
    """
    pods, adapters = pinned.shape
    places = np.empty((pods, adapters), dtype=np.int32)
    filled = np.zeros(pods, dtype=np.int64)
    held = np.zeros(pods, dtype=np.int64)
    used = np.full((pods, adapters), -1, dtype=np.int64)
    largest = size.max() if adapters > 0 else 0
    counting = gains.size > 0
    for i in range(len(adapter)):
        a, p = adapter[i], pod[i]
        if a < 0 or pinned[p, a]:
            continue
        carried, place, deep, full = a, 0, 0, filled[p]
        while place < full:
            here = places[p, place]
            places[p, place] = carried
            deep += size[here]
            if here == a:
                break
            carried = here
            place += 1
        if place < full:
            if counting and deep + largest > free[p]:
                for other in range(adapters):
                    if deep + size[other] > free[p] and used[p, other] < used[p, a]:
                        gains[p, other] -= cost[a]
        else:
            loaded[i] = True
            if counting:
                gains[p, a] += cost[a]
            places[p, full] = carried
            filled[p] += 1
            held[p] += size[a]
            while held[p] > free[p]:
                filled[p] -= 1
                leaving = places[p, filled[p]]
                held[p] -= size[leaving]
                evicted[i] += leaving != a
            most[p] = max(most[p], held[p])
        used[p, a] = i


@dataclass(frozen=True, slots=True)
class _Pools:
    size: NDArray[np.int64]
    free: NDArray[np.int64]
    pinned: NDArray[np.bool_]
    pinned_bytes: NDArray[np.int64]


def _pools(trace: Trace, capacity: int | Sequence[int], sizes: ArrayLike, pins: Collection[tuple[int, int]]) -> _Pools:
    """Checked once; ValueError where a pool can't be."""
    size = np.asarray(sizes)
    if size.shape != (trace.adapters,) or (
        size.size and (size.dtype.kind not in "iu" or not 1 <= size.min() <= size.max() <= LONGEST)
    ):
        raise ValueError(f"a size is whole bytes from 1 for each of {trace.adapters} adapters")
    room = np.full(trace.pods, capacity, dtype=np.int64) if isinstance(capacity, int) else np.array(capacity, dtype=np.int64)
    if room.shape != (trace.pods,) or not 1 <= room.min() <= room.max() <= LONGEST:
        raise ValueError(f"capacity is bytes from 1, for all of {trace.pods} pods or for each, got {capacity}")
    pinned = np.zeros((trace.pods, trace.adapters), dtype=np.bool_)
    for p, a in pins:
        if not (0 <= p < trace.pods and 0 <= a < trace.adapters):
            raise ValueError(f"a pin is (pod, adapter) below ({trace.pods}, {trace.adapters}), got ({p}, {a})")
        pinned[p, a] = True
    size = np.ascontiguousarray(size, dtype=np.int64)
    taken = (pinned * size).sum(axis=1)
    if (taken >= room).any():
        raise ValueError("a pool needs bytes that are not pinned, so that a miss can load")
    return _Pools(size if size.flags.writeable else size.copy(), room - taken, pinned, taken)


def sized_replay(trace: Trace, capacity: int | Sequence[int], sizes: ArrayLike, pins: Collection[tuple[int, int]] = ()) -> Sized:
    """
    The uses of a trace on pools of ``capacity`` bytes, with the ``sizes`` (bytes) of its adapters: LRU, exact, on given pods.

    For a load the least recently used leave until it fits. An adapter that is larger than all that is not pinned is loaded at
    each of its uses: everything leaves for it, and it does not stay. ``pins`` are (pod, adapter), there from the start. Uses
    have no length here.

    Bytes make LRU a stack algorithm as slots do: a use hits iff the bytes of the distinct adapters used since its last use, and
    its own, fit. With equal sizes it is LRU on ``capacity ÷ size`` slots.

    >>> sized_replay(Trace([0, 1, 0, 2, 0]), 100, [40, 60, 60]).evicted.tolist()
    [0, 0, 0, 1, 0]
    """
    pools = _pools(trace, capacity, sizes, pins)
    loaded, evicted = np.zeros(len(trace), dtype=np.bool_), np.zeros(len(trace), dtype=np.int32)
    most = np.zeros(trace.pods, dtype=np.int64)
    nothing = np.zeros((0, 0))
    _run(
        trace.adapter,
        trace.pods_or_one(),
        pools.free,
        pools.size,
        pools.pinned,
        np.zeros(trace.adapters),
        loaded,
        evicted,
        most,
        nothing,
    )
    return Sized(loaded, evicted, most + pools.pinned_bytes, int(pools.pinned.sum()))


def sized_pin_gains(
    trace: Trace,
    capacity: int | Sequence[int],
    sizes: ArrayLike,
    pinned: Collection[tuple[int, int]] = (),
    cost: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """
    By pod and adapter: the loads (or their ``cost``, by adapter) that pinning it there would save, beside those ``pinned``.

    The difference of two replays, for every candidate from one pass, as :func:`lora_watch.replay.pin_gains.pin_gains` does it for
    slots: a pin of s bytes saves its own loads and loses the hits of others that needed more than ``free − s`` bytes while it
    was not used. Divide by the sizes for the gain of a byte. 0 for what is pinned, −∞ for what would leave no byte free.
    """
    pools = _pools(trace, capacity, sizes, pinned)
    weight = np.ones(trace.adapters) if cost is None else np.array(cost, dtype=np.float64)
    if weight.shape != (trace.adapters,) or not np.isfinite(weight).all() or weight.min(initial=0) < 0:
        raise ValueError(f"a load costs a number from 0 for each of {trace.adapters} adapters")
    gains = np.zeros((trace.pods, trace.adapters))
    _run(
        trace.adapter,
        trace.pods_or_one(),
        pools.free,
        pools.size,
        pools.pinned,
        weight,
        np.zeros(len(trace), dtype=np.bool_),
        np.zeros(len(trace), dtype=np.int32),
        np.zeros(trace.pods, dtype=np.int64),
        gains,
    )
    gains[pools.size >= pools.free[:, None]] = -np.inf
    gains[pools.pinned] = 0.0
    return gains
