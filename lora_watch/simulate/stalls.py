"""
A fleet whose loads stall its engines: the parts of ``replay``, each pod on a clock of its own that stands still while it loads.

On the pod's clock v nothing is ever stalled: a request that starts at v ends at v + work, and a load takes no time. So the
parts of the replay are right as they are, pod by pod, and only the way between v and real time t knows of loads: ``t = v + S``,
S being the µs of all loads that the pod did before. While a load runs v stands still: what comes in that time is scheduled
behind the load, and every request in flight ends later by its length. This is vLLM, whose loads run inside the step. A router
asks at real times; it sees an adapter as soon as its load has begun.

A trace may come in spans: between two of them only what runs and what waits is kept, so a month takes no more memory than the
longest span, and what comes out does not depend on where the trace was cut.
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
    BEHIND,
    BOOT,
    BORN,
    CPU_VICTIM,
    END,
    FIRST,
    GPU_PLACE,
    LAST,
    LOADED_BY,
    LOOKUP,
    QUEUED,
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
    What became of the requests that had not started before the span, in the trace's order.

    ``number`` is the request's place in the whole trace, ``boot`` counts the restarts of its ``pod`` before it came. ``start`` is
    on the pod's clock, on which it ends its hold later; ``NEVER`` for one that has not started: a later span tells of it again,
    unless its pod has started anew since. ``lookup``, ``slot``, ``victim`` and ``cpu_victim`` as in ``Outcome``. ``length`` is
    what its load took (µs, 0 where it loaded nothing), ``gpu_part`` the part of that from CPU cache to slot. ``offsets``: for
    each pod, by how much its clock was behind at the begin (0) and right after each of its restarts so far.
    """

    number: NDArray[np.int64]
    pod: NDArray[np.int16]
    boot: NDArray[np.int16]
    lookup: NDArray[np.int8]
    slot: NDArray[np.int16]
    victim: NDArray[np.int16]
    cpu_victim: NDArray[np.int16]
    start: NDArray[np.int64]
    length: NDArray[np.int32]
    gpu_part: NDArray[np.int32]
    offsets: tuple[tuple[int, ...], ...]


class _Carried(NamedTuple):
    """Requests that run or wait: their places in the arrays of a span, before it and after it."""

    number: NDArray[np.int64]
    adapter: NDArray[np.int32]
    at: NDArray[np.int64]
    hold: NDArray[np.int64]
    pod: NDArray[np.int16]
    length: NDArray[np.int32]
    gpu_part: NDArray[np.int32]
    codes: NDArray[np.int32]
    times: NDArray[np.int64]


@part
def _cost(costs: Costs, number: int, a: int, t: int, lookup: int) -> tuple[int, int]:
    """µs of a load, and the part of it from CPU cache to slot; two additive sequences of the request's number are the chance."""
    first = (number * 0.6180339887498949 + costs.seed * 0.7548776662466927) % 1.0
    second = (number * 0.5698402909980532 + costs.seed * 0.3819660112501051) % 1.0
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
    behind: NDArray[np.int64],
    free: NDArray[np.int64],
    rules: Rules,
    router: Desk,
    seen: View,
    scrape: int,
    costs: Costs,
    carried: int,
    until: int,
    number: NDArray[np.int64],
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
    """
    Every request behind the ``carried`` in order; between two of them, and up to ``until``, ends, starts and restarts, on each
    pod's own clock. ``behind`` is S, ``free`` the real time at which the pod's last load is done: ``-AFTER_ALL`` on all before
    the start.
    """
    count, base = len(pods.pod), pods.cell.shape[1] - 1
    own = [
        Pods(pods.tier[:, p : p + 1], pods.cell[p : p + 1], pods.pod[p : p + 1], pods.faded[p : p + 1], clock[p])
        for p in range(count)
    ]
    logs = [Log(codes, times, heap[p]) for p in range(count)]
    i, done = whole(carried), 0
    while True:
        t = int(at[i]) if i < len(adapter) else until
        restarting = done < len(restart_at) and restart_at[done] <= t
        if restarting:
            t = int(restart_at[done])
        last = t - 1 if restarting else t  # a look at the µs of a restart comes behind it
        looking = scrape > 0 and t < AFTER_ALL and last - last % scrape > seen.at[0]
        if looking:
            t = last - last % scrape
        for p in range(count):
            if free[p] == -AFTER_ALL:
                preload(own[p], 0, -AFTER_ALL)
                free[p] += 1
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
                        length[j], gpu_part[j] = _cost(costs, whole(number[j]), a, now, codes[LOOKUP, j])
                        behind[p] += length[j]
                        free[p] = v + behind[p]
        if looking:
            look(pods, seen, t)
            continue
        if restarting:
            p = whole(restart_pod[done])
            v = max(t, free[p]) - behind[p]
            restart(own[p], logs[p], 0, v)
            clock[p, 1] = 0  # what ran ended with the process
            behind[p], free[p] = t - v, t
            restart_offset[done] = behind[p]
            done += 1
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
            length[i], gpu_part[i] = _cost(costs, whole(number[i]), a, v + behind[p], codes[LOOKUP, i])
            behind[p] += length[i]
            free[p] = v + behind[p]
        i += 1


class Stalls:
    """
    A fleet whose loads stall its pods, taken through a trace span by span; exact for that model.

    As ``replay``, whose parts these are, with LRU and without load times of the fleet's own, and each request holds its slot for
    1 µs at least: ValueError otherwise. ``restarts`` are (at in µs, pod).
    """

    def __init__(
        self,
        fleet: Fleet,
        pods: int,
        adapters: int,
        router: Router | None,
        costs: Costs,
        restarts: Sequence[tuple[int, int]] = (),
    ) -> None:
        if fleet.cold_load or fleet.policy.eviction:
            raise ValueError("loads take what the costs say, and LRU evicts")
        if (costs.gpu < 1).any() or costs.gpu.max(initial=0) * (costs.least + costs.spread) + costs.gpu_more > LONGEST_LOAD:
            raise ValueError(f"a load takes 1 … {LONGEST_LOAD} µs")
        chosen = Router(Rule.GIVEN) if router is None else router
        self._pods, self._costs, self._scrape = fleet.pods(pods, adapters), costs, chosen.scrape
        self._rules = Rules(int(fleet.policy.eviction), fleet.policy.window, 1.0, 1.0, 0, 0)
        self._desk, self._seen = desk(chosen, pods, adapters), view(self._pods, live=chosen.scrape == 0)
        self._heap = np.zeros((pods, int(self._pods.pod[:, SEATS].max()) + 1), dtype=np.int32)
        self._clock = np.zeros((pods, 2), dtype=np.int64)
        self._behind, self._free = np.zeros(pods, dtype=np.int64), np.full(pods, -AFTER_ALL, dtype=np.int64)
        self._restarts = sorted(restarts)
        self._offsets: list[list[int]] = [[0] for _ in range(pods)]
        self._came, self._until = 0, -AFTER_ALL
        self._carried = _none()

    def through(self, trace: Trace, until: int) -> Told:
        """
        What becomes of the next requests, and of those that still wait, by ``until`` (µs, inclusive).

        ValueError where a request comes later than ``until`` or not after the end of the span before, or where the pods or
        adapters are others.
        """
        if trace.hold.min(initial=1) < 1:
            raise ValueError("a request holds its slot for 1 µs at least")
        if (trace.pods, trace.adapters + 1) != self._pods.cell.shape[:2]:
            raise ValueError(f"the fleet has {self._pods.cell.shape[:2]} pods and adapters, the base model among them")
        if until < self._until or (len(trace) and not self._until < trace.at[0] <= trace.at[-1] <= until):
            raise ValueError(f"spans come one after the other: {self._until} < requests ≤ {until}")
        kept, size = self._carried, len(trace)
        self._carried = _none()  # what is carried stands in the arrays of the span from here on
        count = len(kept.number)
        codes, times = np.full((7, count + size), -1, dtype=np.int32), np.full((3, count + size), NEVER, dtype=np.int64)
        codes[:, :count], times[:, :count] = kept.codes, kept.times
        numbers = np.arange(self._came, self._came + size, dtype=np.int64)
        nothing = np.zeros(size, dtype=np.int32)
        now = _Carried(
            np.concatenate([kept.number, numbers]),
            np.concatenate([kept.adapter, trace.adapter]),
            np.concatenate([kept.at, trace.at]),
            np.concatenate([kept.hold, trace.hold]),
            np.concatenate([kept.pod, trace.pods_or_one().astype(np.int16)]),
            np.concatenate([kept.length, nothing]),
            np.concatenate([kept.gpu_part, nothing]),
            codes,
            times,
        )
        waited = np.flatnonzero(kept.times[START] == NEVER)
        due = [(at, p) for at, p in self._restarts if self._until < at <= until]
        offset = np.zeros(len(due), dtype=np.int64)
        _run(
            self._pods,
            codes,
            times,
            self._heap,
            self._clock,
            self._behind,
            self._free,
            self._rules,
            self._desk,
            self._seen,
            self._scrape,
            self._costs,
            count,
            until,
            now.number,
            now.adapter,
            now.at,
            now.hold,
            now.pod,
            now.length,
            now.gpu_part,
            np.array([p for _, p in due], dtype=np.int32),
            np.array([at for at, _ in due], dtype=np.int64),
            offset,
        )
        for (_, p), behind in zip(due, offset.tolist(), strict=True):
            self._offsets[p].append(behind)
        self._came, self._until = self._came + size, until
        self._carried = self._unfinished(now)
        new = np.concatenate([waited, np.arange(count, count + size)])
        return Told(
            now.number[new],
            now.pod[new],
            codes[BORN, new].astype(np.int16),
            codes[LOOKUP, new].astype(np.int8),
            codes[SLOT, new].astype(np.int16),
            codes[VICTIM, new].astype(np.int16),
            codes[CPU_VICTIM, new].astype(np.int16),
            times[START, new],
            now.length[new],
            now.gpu_part[new],
            tuple(tuple(offsets) for offsets in self._offsets),
        )

    def _unfinished(self, span: _Carried) -> _Carried:
        """What runs or waits, taken out of the span's arrays; whatever names a request by its place is renamed."""
        pods, codes = self._pods, span.codes
        runs = [self._heap[p, : self._clock[p, 1]] for p in range(len(pods.pod))]
        keep = (span.times[START] == NEVER) & (codes[BORN] == pods.pod[span.pod, BOOT])
        keep[np.concatenate(runs)] = True
        places = np.flatnonzero(keep)
        renamed = np.full(len(keep) + 1, -1, dtype=np.int64)  # the last is what −1 becomes
        renamed[places] = np.arange(len(places))
        for running in runs:
            running[:] = renamed[running]
        loaders = pods.cell[:, :, LOADED_BY]
        loaders[:] = renamed[loaders]
        queued = pods.cell[:, :, QUEUED] > 0
        for column in (FIRST, LAST):
            pods.cell[:, :, column] = renamed[np.where(queued, pods.cell[:, :, column], -1)]
        kept = _Carried(
            span.number[places],
            span.adapter[places],
            span.at[places],
            span.hold[places],
            span.pod[places],
            span.length[places],
            span.gpu_part[places],
            span.codes[:, places],
            span.times[:, places],
        )
        kept.codes[BEHIND] = renamed[kept.codes[BEHIND]]
        return kept


def _none() -> _Carried:
    """No request runs or waits."""
    codes, times = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    pod = np.empty(0, dtype=np.int16)
    return _Carried(
        times, codes, times, times, pod, codes, codes, np.empty((7, 0), dtype=np.int32), np.empty((3, 0), dtype=np.int64)
    )


def stalled(trace: Trace, fleet: Fleet, router: Router | None, costs: Costs, restarts: Sequence[tuple[int, int]] = ()) -> Told:
    """What the fleet does with a whole trace, to its last end; see ``Stalls``."""
    return Stalls(fleet, trace.pods, trace.adapters, router, costs, restarts).through(trace, AFTER_ALL)


if hasattr(_run, "stats") and _run.stats.cache_path:  # kept code is also older where a part of the replay is newer
    forget_older_code(Path(_routers.__file__).parent / Path(__file__).name, Path(_run.stats.cache_path), _run.__qualname__)
