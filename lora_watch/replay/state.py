"""The pods as they stand in the middle of a replay: a few tables that every kernel reads and writes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GPU, CPU = 0, 1
"""The tiers, and the column of ``Pods.cell`` and ``Pods.pod`` that each has."""

AFTER_ALL = 1 << 62
"""A time after every other, in µs."""

# columns of Pods.cell, by pod and adapter
GPU_PLACE, CPU_PLACE = GPU, CPU  # where it is in the tier, −1 where it is not
PINNED = 2
STAMP = 3  # order of use: grows with each start and end of a request
IN_FLIGHT = 4  # requests running
QUEUED = 5  # requests waiting
READY = 6  # µs: when its load is complete
USED_AT = 7  # µs
RECENT = 8  # arrivals within the policy's window
FADED_AT = 9  # µs: when Pods.faded was right
NEXT_USE = 10  # index of the request, for MIN
FIRST, LAST = 11, 12  # ends of its queue, linked by BEHIND
LOADED_BY = 13  # the request it entered its slot for, −1 for a preload
SIZE = 14  # what it takes of a tier: one slot, or its bytes; that of the base model is the least of all
CELLS = 15

# columns of Pods.pod; slots here are bytes in a pool of bytes, and so is what fills them
GPU_FILLED, CPU_FILLED = GPU, CPU
SLOTS, CPU_ROOM = 2 + GPU, 2 + CPU
SEATS = 4  # requests that can run at once
RUNNING = 5
WAITING = 6
SERVING = 7  # slots of adapters in flight
NAMED = 8  # slots that adapters in flight or queued take
ENDED = 9  # a request ended just now
BOOT = 10  # restarts so far
COUNTS = 11

# rows of Log.codes and Log.times
# BORN: the pod's restarts when the request came; MORE: how many left for it beside the victim, in pools of bytes only
POD, LOOKUP, SLOT, VICTIM, CPU_VICTIM, BEHIND, BORN, MORE = range(8)
START, END, LEFT = 0, 1, 2


class Pods(NamedTuple):
    """
    Every pod. The last adapter is the base model, which is queued and in flight but never resident.

    The order of use is one for both tiers, as in vLLM, whose engine touches both at every step: an adapter counts as used
    until its last request has ended. A few tables instead of an array for each column: numba hands every array of a value to
    every part by itself, which took longer than the work.
    """

    tier: NDArray[np.int32]  # [tier, pod, place]: the adapter there, or −1
    cell: NDArray[np.int64]  # [pod, adapter, column]
    pod: NDArray[np.int64]  # [pod, column]
    faded: NDArray[np.float64]  # [pod, adapter]: decayed uses
    clock: NDArray[np.int64]  # [2]: the last stamp; how many requests are in flight


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

    codes: NDArray[np.int32]  # [row, request]
    times: NDArray[np.int64]  # [row, request], µs
    heap: NDArray[np.int32]  # requests in flight, the one that ends first on top


def empty_pods(
    slots: NDArray[np.int64],
    cpu_capacity: NDArray[np.int64],
    seats: NDArray[np.int64],
    pinned: NDArray[np.bool_],
    sizes: NDArray[np.int64] | int = 1,
) -> Pods:
    """
    Pods before their start: nothing resident, nothing in flight. ``pinned`` and ``sizes`` have a column for the base model.
    """
    pods, adapters = pinned.shape
    cell = np.zeros((pods, adapters, CELLS), dtype=np.int64)
    cell[:, :, [GPU_PLACE, CPU_PLACE, FIRST, LAST]] = -1
    cell[:, :, PINNED] = pinned
    cell[:, :, SIZE] = sizes
    pod = np.zeros((pods, COUNTS), dtype=np.int64)
    pod[:, SLOTS], pod[:, CPU_ROOM], pod[:, SEATS] = slots, cpu_capacity, seats
    places = min(int(cpu_capacity.max()), adapters)  # no tier ever holds more than there is
    return Pods(
        tier=np.full((2, pods, places), -1, dtype=np.int32),
        cell=cell,
        pod=pod,
        faded=np.zeros((pods, adapters)),
        clock=np.zeros(2, dtype=np.int64),
    )


def empty_log(size: int, never: int, *, several: bool = False) -> Log:
    """
    Nothing has happened yet to ``size`` requests; ``never`` stands for the time of what does not happen. There is a row MORE only
    where ``several`` may leave for one.
    """
    codes = np.full((MORE + several, size), -1, dtype=np.int32)
    codes[MORE:] = 0
    return Log(
        codes=codes,
        times=np.full((3, size), never, dtype=np.int64),
        heap=np.zeros(max(size, 1), dtype=np.int32),
    )
