"""Stack distances: one pass over the uses tells the misses of LRU for every number of slots at once."""

import numpy as np
from numpy.typing import NDArray

from lora_watch.replay.compiled import compiled, part
from lora_watch.replay.trace import Trace

FIRST = -1
"""Distance of a use that has none: the pod has not seen the adapter before, so it misses whatever the slots."""
DEEP = 200
"""Adapters from which the Fenwick tree is used instead of the list: a list walks as deep as the distance, a tree log₂ of it."""


@part
def _to_front(stack: NDArray[np.int32], depth: NDArray[np.int64], p: int, wanted: int) -> int:
    """Move ``wanted`` to the front of the pod's list; its place before, ``FIRST`` where it was not in it. O(1 + place)."""
    carried, place, deep = wanted, 0, depth[p]
    while place < deep:
        here = stack[p, place]
        stack[p, place] = carried
        if here == wanted:
            return place
        carried = here
        place += 1
    stack[p, place] = carried
    depth[p] += 1
    return FIRST


@compiled
def list_distances(
    adapter: NDArray[np.int32], pod: NDArray[np.int32], pods: int, adapters: int, distance: NDArray[np.int32]
) -> None:
    """Fill ``distance`` by a move-to-front list for each pod: an adapter's place in the list is its distance."""
    stack = np.empty((pods, adapters), dtype=np.int32)
    depth = np.zeros(pods, dtype=np.int64)
    for i in range(len(adapter)):
        distance[i] = FIRST if adapter[i] < 0 else _to_front(stack, depth, pod[i], adapter[i])


@compiled
def list_histogram(adapter: NDArray[np.int32], pod: NDArray[np.int32], pods: int, adapters: int) -> NDArray[np.int64]:
    """Uses by pod and distance (last column: first uses), by the same list, without a number kept for each use."""
    stack = np.empty((pods, adapters), dtype=np.int32)
    depth = np.zeros(pods, dtype=np.int64)
    counted = np.zeros((pods, adapters + 1), dtype=np.int64)
    for i in range(len(adapter)):
        if adapter[i] >= 0:
            place = _to_front(stack, depth, pod[i], adapter[i])
            counted[pod[i], adapters if place < 0 else place] += 1
    return counted


@part
def _add(tree: NDArray[np.int32], place: int, amount: int) -> None:
    """Fenwick tree: add ``amount`` at ``place`` (from 1)."""
    while place < len(tree):
        tree[place] += amount
        place += place & -place


@part
def _sum(tree: NDArray[np.int32], place: int) -> int:
    """Fenwick tree: the sum over 1 … ``place``."""
    total = 0
    while place > 0:
        total += tree[place]
        place -= place & -place
    return total


@compiled
def tree_distances(
    adapter: NDArray[np.int32], pod: NDArray[np.int32], pods: int, adapters: int, distance: NDArray[np.int32]
) -> None:
    """
    Fill ``distance`` by a Fenwick tree for each pod over the places of last uses: the distance is the number of marks behind
    an adapter's own. O(log adapters) a use; places are renumbered when they run out, after as many uses as there are adapters.
    """
    width = 2 * adapters
    tree = np.zeros((pods, width + 1), dtype=np.int32)
    owner = np.full((pods, width + 1), -1, dtype=np.int32)
    last = np.zeros((pods, adapters), dtype=np.int32)
    clock = np.zeros(pods, dtype=np.int32)
    seen = np.zeros(pods, dtype=np.int32)
    for i in range(len(adapter)):
        wanted, p = adapter[i], pod[i]
        if wanted < 0:
            distance[i] = FIRST
            continue
        if clock[p] == width:
            kept = 0
            tree[p, :] = 0
            for place in range(1, width + 1):
                holder = owner[p, place]
                owner[p, place] = -1
                if holder >= 0:
                    kept += 1
                    owner[p, kept] = holder
                    last[p, holder] = kept
                    _add(tree[p], kept, 1)
            clock[p] = kept
        before = last[p, wanted]
        if before > 0:
            distance[i] = seen[p] - _sum(tree[p], before)
            _add(tree[p], before, -1)
            owner[p, before] = -1
        else:
            distance[i] = FIRST
            seen[p] += 1
        clock[p] += 1
        last[p, wanted] = clock[p]
        owner[p, clock[p]] = wanted
        _add(tree[p], clock[p], 1)


def stack_distances(trace: Trace) -> NDArray[np.int32]:
    """
    For each use, how many distinct other adapters its pod used since it last used this one; ``FIRST`` at a first use.

    LRU with c slots hits exactly where ``0 ≤ distance < c`` (Mattson 1970: what c slots hold is the top of one common stack).
    Without pods all requests go to one. A request for the base model has ``FIRST`` and stands in no curve.
    """
    distance = np.empty(len(trace), dtype=np.int32)
    kernel = list_distances if trace.adapters < DEEP else tree_distances
    kernel(trace.adapter, trace.pods_or_one(), trace.pods, max(trace.adapters, 1), distance)
    return distance


def misses_by_slots(trace: Trace) -> NDArray[np.int64]:
    """
    LRU misses by pod (row) and slots a pod (column c = 0 … adapters): exact for all c, from one pass.

    Formula: ``misses[c] = uses − #(0 ≤ distance < c)``. Column 0 holds the uses, the last column the first uses; a row never
    rises. Sum the rows for the fleet; divide by column 0 for the miss ratio (0 ÷ 0 where a pod has no use: unknown). Requests
    for the base model are no uses. Nothing is pinned and no request holds a slot here: see ``replay`` for both.
    """
    width = max(trace.adapters, 1)
    if trace.adapters < DEEP:
        counted = list_histogram(trace.adapter, trace.pods_or_one(), trace.pods, width)
    else:
        distance = stack_distances(trace)
        used = trace.adapter >= 0
        flat = trace.pods_or_one()[used].astype(np.int64) * (width + 1) + np.where(distance < 0, width, distance)[used]
        counted = np.bincount(flat, minlength=trace.pods * (width + 1)).reshape(trace.pods, width + 1).astype(np.int64)
    uses = counted.sum(axis=1, keepdims=True)
    hits = np.concatenate([np.zeros((trace.pods, 1), dtype=np.int64), np.cumsum(counted[:, :width], axis=1)], axis=1)
    return np.asarray(uses - hits[:, : trace.adapters + 1], dtype=np.int64)
