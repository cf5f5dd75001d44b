"""The pods as they stand in the middle of a replay: arrays by pod and adapter that every kernel reads and writes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NOBODY = -1
"""No adapter, no place, no request."""


class Tier(NamedTuple):
    """One tier of every pod: GPU slots, or places of the CPU cache."""

    adapter: NDArray[np.int32]  # [pod, place]: who is there
    place: NDArray[np.int32]  # [pod, adapter]: where it is
    filled: NDArray[np.int32]  # [pod]
    room: NDArray[np.int32]  # [pod]


class Pods(NamedTuple):
    """
    Every pod. The last adapter column is the base model, which is queued and in flight but never resident. The order of use is one for both tiers, as in vLLM, whose engine touches both at every step: ``stamp`` grows
    with each start and end of a request, so an adapter counts as used until its last request has ended.
    """

    gpu: Tier
    cpu: Tier
    pinned: NDArray[np.bool_]  # [pod, adapter]
    stamp: NDArray[np.int64]  # [pod, adapter]
    in_flight: NDArray[np.int32]  # [pod, adapter]: requests running
    queued: NDArray[np.int32]  # [pod, adapter]: requests waiting
    ready: NDArray[np.int64]  # [pod, adapter]: when its load is complete
    used_at: NDArray[np.int64]  # [pod, adapter]
    recent: NDArray[np.int32]  # [pod, adapter]: arrivals within the policy's window
    faded: NDArray[np.float64]  # [pod, adapter]: decayed uses
    faded_at: NDArray[np.int64]  # [pod, adapter]
    next_use: NDArray[np.int64]  # [pod, adapter]: for MIN
    first: NDArray[np.int32]  # [pod, adapter]: head of its queue; linked by Log.behind
    last: NDArray[np.int32]  # [pod, adapter]
    running: NDArray[np.int32]  # [pod]
    waiting: NDArray[np.int32]  # [pod]
    seats: NDArray[np.int32]  # [pod]: requests that can run at once
    serving: NDArray[np.int32]  # [pod]: adapters in flight
    named: NDArray[np.int32]  # [pod]: adapters in flight or queued
    ended: NDArray[np.bool_]  # [pod]: a request ended just now
    boot: NDArray[np.int32]  # [pod]: restarts so far
    clock: NDArray[np.int64]  # [1]: the last stamp
    flying: NDArray[np.int32]  # [1]: size of the heap of ends


class Rules(NamedTuple):
    """The constants of a replay, in µs where they are times."""

    eviction: int
    window: int
    frequency_weight: float
    recency_weight: float
    warm_load: int
    cold_load: int


class Log(NamedTuple):
    """What happened to each request; see ``Outcome`` for the meaning."""

    pod: NDArray[np.int32]
    lookup: NDArray[np.int8]
    slot: NDArray[np.int32]
    victim: NDArray[np.int32]
    cpu_victim: NDArray[np.int32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    behind: NDArray[np.int32]  # the next request in the same queue
    heap: NDArray[np.int32]  # requests in flight, the one that ends first on top
    boot: NDArray[np.int32]  # the pod's restarts when the request started


def empty_tier(pods: int, adapters: int, room: NDArray[np.int32]) -> Tier:
    """A tier of ``room`` places a pod with nothing in it."""
    return Tier(
        np.full((pods, int(room.max(initial=1))), NOBODY, dtype=np.int32),
        np.full((pods, adapters), NOBODY, dtype=np.int32),
        np.zeros(pods, dtype=np.int32),
        room,
    )


def empty_pods(
    slots: NDArray[np.int32], cpu_capacity: NDArray[np.int32], seats: NDArray[np.int32], pinned: NDArray[np.bool_]
) -> Pods:
    """Pods just started: nothing resident, nothing in flight."""
    pods, adapters = pinned.shape

    shape = (pods, adapters)
    return Pods(
        gpu=empty_tier(pods, adapters, slots),
        cpu=empty_tier(pods, adapters, cpu_capacity),
        pinned=pinned,
        stamp=np.zeros(shape, dtype=np.int64),
        in_flight=np.zeros(shape, dtype=np.int32),
        queued=np.zeros(shape, dtype=np.int32),
        ready=np.zeros(shape, dtype=np.int64),
        used_at=np.zeros(shape, dtype=np.int64),
        recent=np.zeros(shape, dtype=np.int32),
        faded=np.zeros(shape, dtype=np.float64),
        faded_at=np.zeros(shape, dtype=np.int64),
        next_use=np.zeros(shape, dtype=np.int64),
        first=np.full((pods, adapters), NOBODY, dtype=np.int32),
        last=np.full((pods, adapters), NOBODY, dtype=np.int32),
        running=np.zeros(pods, dtype=np.int32),
        waiting=np.zeros(pods, dtype=np.int32),
        seats=seats,
        serving=np.zeros(pods, dtype=np.int32),
        named=np.zeros(pods, dtype=np.int32),
        ended=np.zeros(pods, dtype=np.bool_),
        boot=np.zeros(pods, dtype=np.int32),
        clock=np.zeros(1, dtype=np.int64),
        flying=np.zeros(1, dtype=np.int32),
    )


def empty_log(size: int, in_flight: int) -> Log:
    """Nothing has happened yet to ``size`` requests; at most ``in_flight`` of them will run at once."""
    codes = [np.full(size, NOBODY, dtype=np.int32) for _ in range(5)]
    return Log(
        pod=codes[0],
        lookup=np.full(size, NOBODY, dtype=np.int8),
        slot=codes[1],
        victim=codes[2],
        cpu_victim=codes[3],
        start=np.full(size, NOBODY, dtype=np.int64),
        end=np.full(size, NOBODY, dtype=np.int64),
        behind=codes[4],
        heap=np.zeros(max(in_flight, 1), dtype=np.int32),
        boot=np.zeros(size, dtype=np.int32),
    )
