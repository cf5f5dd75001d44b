"""
A fleet whose loads stall its engines: the parts of ``replay``, each pod on a clock of its own that stands still while it loads.

On the pod's clock v nothing is ever stalled: a request that starts at v ends at v + work, and a load takes no time. So the
parts of the replay are right as they are, pod by pod, and only the way between v and real time t knows of loads: ``t = v + S``,
S being the µs of all loads that the pod did before. While a load runs v stands still: what comes in that time is scheduled
behind the load, and every request in flight ends later by its length. This is vLLM, whose loads run inside the step. A router
asks at real times; it sees an adapter as soon as its load has begun.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lora_watch.replay import routers as _routers
from lora_watch.replay.cluster import AFTER_ALL, NEVER
from lora_watch.replay.compiled import compiled, forget_older_code, part, whole
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.routers import Desk, Router, Rule, View, desk, look, route, view
from lora_watch.replay.serving import advance, arrive, preload, restart
from lora_watch.replay.state import (
    BORN,
    CPU_VICTIM,
    END,
    GPU_PLACE,
    LOADED_BY,
    LOOKUP,
    SEATS,
    SLOT,
    START,
    VICTIM,
    WAITING,
    Log,
    Pods,
    Rules,
)
from lora_watch.replay.trace import Trace

LONGEST_LOAD = 2_000_000_000
"""µs, 33 minutes: no load takes longer."""
_GIVEN = int(Rule.GIVEN)
_COLD = 2


class Costs(NamedTuple):
    """
    What a load takes, by adapter, in µs: ``gpu · a + gpu_more · b`` from CPU cache to slot, a cold one ``disk · a`` before.

    a runs over ``least`` … ``least + spread`` and b over 0 … 1, by the request's number. Within a span of ``slow`` (begin, end,
    both real) the disk takes ``factor`` times as long.
    """

    gpu: NDArray[np.float64]
    disk: NDArray[np.float64]
    gpu_more: float
    least: float
    spread: float
    slow_begin: NDArray[np.int64]
    slow_end: NDArray[np.int64]
    factor: NDArray[np.float64]
    seed: int


@dataclass(frozen=True, slots=True)
class Told:
    """
    What became of each request, in the trace's order.

    ``boot`` counts the restarts of its ``pod`` before it came. ``start`` is on the pod's clock, on which it ends its hold later;
    ``NEVER`` for one that never started. ``lookup``, ``slot``, ``victim`` and ``cpu_victim`` as in ``Outcome``. ``offsets``:
    for each pod, by how much its clock was behind at the begin (0) and right after each of its restarts. ``loads`` are the
    requests that loaded their adapter, ``lengths`` what that took (µs), ``gpu_parts`` the part of it from CPU cache to slot.
    """

    pod: NDArray[np.int16]
    boot: NDArray[np.int16]
    lookup: NDArray[np.int8]
    slot: NDArray[np.int16]
    victim: NDArray[np.int16]
    cpu_victim: NDArray[np.int16]
    start: NDArray[np.int64]
    loads: NDArray[np.int32]
    lengths: NDArray[np.int32]
    gpu_parts: NDArray[np.int32]
    offsets: tuple[tuple[int, ...], ...]


@part
def _cost(costs: Costs, i: int, a: int, t: int, lookup: int) -> tuple[int, int]:
    """µs of a load, and the part of it from CPU cache to slot; two additive sequences of the request's number are the chance."""
    first = (i * 0.6180339887498949 + costs.seed * 0.7548776662466927) % 1.0
    second = (i * 0.5698402909980532 + costs.seed * 0.3819660112501051) % 1.0
    jitter = costs.least + costs.spread * first
    gpu = int(costs.gpu[a] * jitter + costs.gpu_more * second)
    if lookup != _COLD:
        return gpu, gpu
    disk = costs.disk[a] * jitter
    for s in range(len(costs.slow_begin)):
        if costs.slow_begin[s] <= t < costs.slow_end[s]:
            disk *= costs.factor[s]
    return min(gpu + int(disk), 2_000_000_000), gpu


@compiled
def _run(
    pods: Pods,
    codes: NDArray[np.int32],
    times: NDArray[np.int64],
    heap: NDArray[np.int32],
    clock: NDArray[np.int64],
    rules: Rules,
    router: Desk,
    seen: View,
    scrape: int,
    costs: Costs,
    adapter: NDArray[np.int32],
    at: NDArray[np.int64],
    hold: NDArray[np.int64],
    pod: NDArray[np.int16],
    length: NDArray[np.int32],
    gpu_part: NDArray[np.int32],
    restart_pod: NDArray[np.int32],
    restart_at: NDArray[np.int64],
    restart_offset: NDArray[np.int64],
) -> None:
    """Every request in order; between two of them, ends, starts and restarts, on each pod's own clock."""
    count, base = len(pods.pod), pods.cell.shape[1] - 1
    behind = np.zeros(count, dtype=np.int64)  # S: by how much the pod's clock is behind
    free = np.full(count, -AFTER_ALL, dtype=np.int64)  # real time at which the pod's last load is done
    own = [
        Pods(pods.tier[:, p : p + 1], pods.cell[p : p + 1], pods.pod[p : p + 1], pods.faded[p : p + 1], clock[p])
        for p in range(count)
    ]
    logs = [Log(codes, times, heap[p]) for p in range(count)]
    i, done = whole(0), 0
    for p in range(count):
        preload(own[p], 0, -AFTER_ALL)
    while True:
        t = int(at[i]) if i < len(adapter) else AFTER_ALL
        restarting = done < len(restart_at) and restart_at[done] <= t
        looking = scrape > 0 and not restarting and t < AFTER_ALL and t - t % scrape > seen.at[0]
        if restarting:
            t = int(restart_at[done])
        elif looking:
            t -= t % scrape
        for p in range(count):
            while clock[p, 1] > 0:
                v = times[END, heap[p, 0]]
                if v + behind[p] > t:
                    break
                waiting = pods.pod[p, WAITING]
                advance(own[p], logs[p], rules, adapter, hold, v)
                if pods.pod[p, WAITING] == waiting:
                    continue
                for a in range(base):
                    j = pods.cell[p, a, LOADED_BY]
                    if pods.cell[p, a, GPU_PLACE] >= 0 and j >= 0 and times[START, j] == v and length[j] == 0:
                        now = v + behind[p]
                        length[j], gpu_part[j] = _cost(costs, j, a, now, codes[LOOKUP, j])
                        behind[p] += length[j]
                        free[p] = v + behind[p]
        if restarting:
            p = whole(restart_pod[done])
            v = max(t, free[p]) - behind[p]
            restart(own[p], logs[p], 0, v)
            behind[p], free[p] = t - v, t
            restart_offset[done] = behind[p]
            done += 1
            continue
        if looking:
            look(pods, seen, t)
            continue
        if i == len(adapter):
            return
        a = whole(adapter[i]) if adapter[i] >= 0 else base
        p = whole(pod[i])
        if router.rule != _GIVEN:
            if scrape == 0:
                seen.at[0] = t
            p = route(pods, seen, router, a)
            pod[i] = p
        v = max(t, free[p]) - behind[p]
        arrive(own[p], logs[p], rules, 0, i, a, v, int(hold[i]))
        if codes[LOOKUP, i] > 0:
            length[i], gpu_part[i] = _cost(costs, i, a, v + behind[p], codes[LOOKUP, i])
            behind[p] += length[i]
            free[p] = v + behind[p]
        i += 1


def stalled(trace: Trace, fleet: Fleet, router: Router | None, costs: Costs, restarts: Sequence[tuple[int, int]] = ()) -> Told:
    """
    What the fleet does with the trace where each load stalls its pod; exact for that model, and the same for the same input.

    As ``replay``, whose parts these are, with LRU and without load times of the fleet's own, and each request holds its slot for
    1 µs at least: ValueError otherwise.
    """
    if fleet.cold_load or fleet.policy.eviction:
        raise ValueError("loads take what the costs say, and LRU evicts")
    if (costs.gpu < 1).any() or costs.gpu.max(initial=0) * (costs.least + costs.spread) + costs.gpu_more > LONGEST_LOAD:
        raise ValueError(f"a load takes 1 … {LONGEST_LOAD} µs")
    if trace.hold.min(initial=1) < 1:
        raise ValueError("a request holds its slot for 1 µs at least")
    chosen = Router(Rule.GIVEN) if router is None else router
    state = fleet.pods(trace.pods, trace.adapters)
    seats = int(state.pod[:, SEATS].max())
    size, ordered = len(trace), sorted(restarts)
    codes, times = np.full((7, size), -1, dtype=np.int32), np.full((3, size), NEVER, dtype=np.int64)
    pod = trace.pods_or_one().astype(np.int16)
    length, gpu_part = np.zeros(size, dtype=np.int32), np.zeros(size, dtype=np.int32)
    offset = np.zeros(len(ordered), dtype=np.int64)
    _run(
        state,
        codes,
        times,
        np.zeros((trace.pods, min(seats, size) + 1), dtype=np.int32),
        np.zeros((trace.pods, 2), dtype=np.int64),
        Rules(int(fleet.policy.eviction), fleet.policy.window, 1.0, 1.0, 0, 0),
        desk(chosen, trace.pods, trace.adapters),
        view(state, live=chosen.scrape == 0),
        chosen.scrape,
        costs,
        trace.adapter,
        trace.at,
        trace.hold,
        pod,
        length,
        gpu_part,
        np.array([p for _, p in ordered], dtype=np.int32),
        np.array([at for at, _ in ordered], dtype=np.int64),
        offset,
    )
    start, lookup = times[START].copy(), codes[LOOKUP].astype(np.int8)
    del times  # as large as the trace several times over, like the codes
    loads = np.flatnonzero(length).astype(np.int32)
    return Told(
        pod,
        codes[BORN].astype(np.int16),
        lookup,
        codes[SLOT].astype(np.int16),
        codes[VICTIM].astype(np.int16),
        codes[CPU_VICTIM].astype(np.int16),
        start,
        loads,
        length[loads],
        gpu_part[loads],
        tuple((0, *(int(offset[k]) for k, (_, q) in enumerate(ordered) if q == p)) for p in range(trace.pods)),
    )


if hasattr(_run, "stats") and _run.stats.cache_path:  # kept code is also older where a part of the replay is newer
    forget_older_code(Path(_routers.__file__).parent / Path(__file__).name, Path(_run.stats.cache_path), _run.__qualname__)
