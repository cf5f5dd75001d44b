"""How soon and how widely adapters are used again: reuse times and the working-set curve."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lora_watch.model import Window
from lora_watch.replay.compiled import compiled
from lora_watch.replay.trace import Trace

NEVER = np.iinfo(np.int64).max
"""Next use of an adapter that is not used again."""


@compiled
def _reuse(adapter: NDArray[np.int32], pod: NDArray[np.int32], pods: int, adapters: int, reuse: NDArray[np.int64]) -> None:
    last = np.full((pods, adapters), -1, dtype=np.int64)
    clock = np.zeros(pods, dtype=np.int64)
    for i in range(len(adapter)):
        a, p = adapter[i], pod[i]
        reuse[i] = -1
        if a >= 0:
            if last[p, a] >= 0:
                reuse[i] = clock[p] - last[p, a]
            last[p, a] = clock[p]
            clock[p] += 1


@compiled
def _next(
    adapter: NDArray[np.int32], pod: NDArray[np.int32], pods: int, adapters: int, when: NDArray[np.int64]
) -> NDArray[np.int64]:
    """``when`` of the same adapter's next use on the same pod, ``NEVER`` where there is none."""
    ahead = np.full((pods, adapters), NEVER, dtype=np.int64)
    following = np.full(len(adapter), NEVER, dtype=np.int64)
    for back in range(len(adapter)):
        i = len(adapter) - 1 - back
        if adapter[i] >= 0:
            following[i] = ahead[pod[i], adapter[i]]
            ahead[pod[i], adapter[i]] = when[i]
    return following


@compiled
def _covered(
    adapter: NDArray[np.int32],
    pod: NDArray[np.int32],
    at: NDArray[np.int64],
    following: NDArray[np.int64],
    spans: NDArray[np.int64],
    start: int,
    end: int,
    pods: int,
) -> NDArray[np.float64]:
    """µs by pod and span within ``[start + span, end)`` at which a use is at most ``span`` old and the newest of its adapter."""
    covered = np.zeros((pods, len(spans)))
    for i in range(len(adapter)):
        if adapter[i] < 0:
            continue
        for s in range(len(spans)):
            first = max(at[i], start + spans[s])
            until = min(min(at[i] + spans[s], following[i]), end)
            if until > first:
                covered[pod[i], s] += until - first
    return covered


def reuse_times(trace: Trace) -> NDArray[np.int64]:
    """
    For each use, the uses its pod has seen since it last used the same adapter, this one included; −1 at a first use.

    Counted in uses, not in seconds, since seconds mislead where traffic is uneven. The stack distance is at most this − 1.
    """
    reuse = np.empty(len(trace), dtype=np.int64)
    _reuse(trace.adapter, trace.pods_or_one(), trace.pods, max(trace.adapters, 1), reuse)
    return reuse


def next_uses(trace: Trace) -> NDArray[np.int64]:
    """For each use, the index of the request that next uses the same adapter on the same pod; ``NEVER`` where none does."""
    order = np.arange(len(trace), dtype=np.int64)
    return np.asarray(_next(trace.adapter, trace.pods_or_one(), trace.pods, max(trace.adapters, 1), order))


def working_set(trace: Trace, window: Window, spans: ArrayLike) -> NDArray[np.float64]:
    """
    W(T) by pod (row) and span T in µs (column): distinct adapters used in the last T, averaged over the window's time.

    Formula (Denning): ``W(T) = Σ_i |[at_i, min(at_i + T, next_i)) ∩ [start + T, end)| ÷ (end − start − T)``, exact for the
    window: the average leaves out its first T, where a part of the last T is unseen. Requests outside the window count
    nowhere. W rises with T, never above the adapters used; at ``W(T) = slots`` stands the age at which LRU evicts, and the
    slope there is the miss rate. NaN (unknown) for a span as long as the window or longer; ValueError for one below 1 µs.
    """
    lengths = np.asarray(spans, dtype=np.int64).reshape(-1)
    if lengths.size and lengths.min() < 1:
        raise ValueError(f"a span is at least 1 µs, got {lengths.min()}")
    inside = (trace.at >= window.start) & (trace.at < window.end)
    adapter, pod, at = trace.adapter[inside], trace.pods_or_one()[inside], trace.at[inside]
    following = _next(adapter, pod, trace.pods, max(trace.adapters, 1), at)
    known = lengths < window.end - window.start
    covered = _covered(adapter, pod, at, following, lengths[known], window.start, window.end, trace.pods)
    answer = np.full((trace.pods, len(lengths)), np.nan)
    answer[:, known] = covered / (window.end - window.start - lengths[known])
    return answer
