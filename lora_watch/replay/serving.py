"""A pod at work: requests start, wait for a slot or a seat, and end; adapters enter and leave the two tiers."""

import numpy as np
from numpy.typing import NDArray

from lora_watch.replay.compiled import part, whole
from lora_watch.replay.in_flight import pop, push
from lora_watch.replay.policies import LFU, TIME_WEIGHTED, count_use, spare, victim
from lora_watch.replay.state import (
    BEHIND,
    BOOT,
    BORN,
    CPU,
    CPU_FILLED,
    CPU_PLACE,
    CPU_ROOM,
    CPU_VICTIM,
    END,
    ENDED,
    FIRST,
    GPU,
    GPU_FILLED,
    GPU_PLACE,
    IN_FLIGHT,
    LAST,
    LEFT,
    LOADED_BY,
    LOOKUP,
    MORE,
    NAMED,
    PINNED,
    POD,
    QUEUED,
    READY,
    RECENT,
    RUNNING,
    SEATS,
    SERVING,
    SIZE,
    SLOT,
    SLOTS,
    STAMP,
    START,
    USED_AT,
    VICTIM,
    WAITING,
    Log,
    Pods,
    Rules,
)

HOT, WARM, COLD = 0, 1, 2
"""Where a request found its adapter: in a slot, in the CPU cache, on disk."""


@part
def enter(pods: Pods, tier: int, p: int, a: int) -> None:
    """Put an adapter into the tier's first free place, as vLLM numbers its slots."""
    place = 0
    while pods.tier[tier, p, place] >= 0:
        place += 1
    pods.tier[tier, p, place] = a
    pods.cell[p, a, tier] = place
    pods.pod[p, tier] += pods.cell[p, a, SIZE]


@part
def leave(pods: Pods, tier: int, p: int, a: int) -> None:
    pods.tier[tier, p, pods.cell[p, a, tier]] = -1
    pods.cell[p, a, tier] = -1
    pods.pod[p, tier] -= pods.cell[p, a, SIZE]


@part
def vacate(pods: Pods, log: Log, p: int, a: int, t: int) -> None:
    """The adapter leaves its slot at t, and the stay that its load began ends."""
    loader = pods.cell[p, a, LOADED_BY]
    if loader >= 0:
        log.times[LEFT, loader] = t
    leave(pods, GPU, p, a)


@part
def _evict(pods: Pods, log: Log, p: int, i: int, a: int, t: int) -> None:
    """The adapter leaves its slot for request i."""
    vacate(pods, log, p, a, t)
    if log.codes[VICTIM, i] >= 0:
        log.codes[MORE, i] += 1
    log.codes[VICTIM, i] = a


@part
def _load(pods: Pods, log: Log, rules: Rules, p: int, i: int, a: int, t: int) -> bool:
    """
    Bring an adapter into a slot for request i; False, and nothing done, where every slot is pinned or in flight.

    A cold one enters the CPU cache first. What the CPU cache evicts leaves its slot as well (what is in a slot is in the
    cache), and then no second adapter has to go. In a pool of bytes as many leave as it takes, or none if that is not enough.
    """
    leaving = -1
    short = pods.pod[p, GPU_FILLED] + pods.cell[p, a, SIZE] - pods.pod[p, SLOTS]
    if short > 0:
        leaving = victim(pods, GPU, rules, p, t)
        if leaving < 0 or (pods.cell[p, leaving, SIZE] < short and spare(pods, GPU, p) < pods.cell[p, a, SIZE]):
            return False
    log.codes[LOOKUP, i] = WARM
    if pods.cell[p, a, CPU_PLACE] < 0:
        log.codes[LOOKUP, i] = COLD
        while pods.pod[p, CPU_FILLED] + pods.cell[p, a, SIZE] > pods.pod[p, CPU_ROOM]:
            dropped = victim(pods, CPU, rules, p, t)
            leave(pods, CPU, p, dropped)
            log.codes[CPU_VICTIM, i] = dropped
            if pods.cell[p, dropped, GPU_PLACE] >= 0:
                _evict(pods, log, p, i, dropped, t)
                leaving = -1
        enter(pods, CPU, p, a)
    if leaving >= 0:
        _evict(pods, log, p, i, leaving, t)
    while pods.pod[p, GPU_FILLED] + pods.cell[p, a, SIZE] > pods.pod[p, SLOTS]:
        _evict(pods, log, p, i, victim(pods, GPU, rules, p, t), t)
    enter(pods, GPU, p, a)
    pods.cell[p, a, LOADED_BY] = i
    pods.cell[p, a, READY] = t + (rules.cold_load if log.codes[LOOKUP, i] == COLD else rules.warm_load)
    return True


@part
def _start(pods: Pods, log: Log, rules: Rules, p: int, i: int, a: int, t: int, hold: int) -> bool:
    """Request i enters the running batch at t; False where it has to wait for a seat or a slot."""
    if pods.pod[p, RUNNING] >= pods.pod[p, SEATS]:
        return False
    base = pods.cell.shape[1] - 1
    end = t + hold
    if a != base:
        if pods.cell[p, a, GPU_PLACE] >= 0:
            log.codes[LOOKUP, i] = HOT
        elif not _load(pods, log, rules, p, i, a, t):
            return False
        log.codes[SLOT, i] = pods.cell[p, a, GPU_PLACE]
        end = max(t, pods.cell[p, a, READY]) + hold
        pods.clock[0] += 1
        pods.cell[p, a, STAMP] = pods.clock[0]
        pods.cell[p, a, USED_AT] = t
    log.times[START, i] = t
    log.times[END, i] = end
    if end > t:
        if pods.cell[p, a, IN_FLIGHT] == 0 and a != base:
            pods.pod[p, SERVING] += pods.cell[p, a, SIZE]
            if pods.cell[p, a, QUEUED] == 0:
                pods.pod[p, NAMED] += pods.cell[p, a, SIZE]
        pods.cell[p, a, IN_FLIGHT] += 1
        pods.pod[p, RUNNING] += 1
        push(pods, log, i)
    return True


@part
def arrive(pods: Pods, log: Log, rules: Rules, p: int, i: int, a: int, t: int, hold: int) -> None:
    """Request i comes to the pod at t: it starts, or waits behind those for the same adapter."""
    log.codes[POD, i] = p
    log.codes[BORN, i] = pods.pod[p, BOOT]
    if rules.eviction == LFU or rules.eviction == TIME_WEIGHTED:
        count_use(pods, p, a, t, rules.window)
    if _start(pods, log, rules, p, i, a, t, hold):
        return
    if pods.cell[p, a, QUEUED] == 0:
        pods.cell[p, a, FIRST] = i
        if pods.cell[p, a, IN_FLIGHT] == 0 and a != pods.cell.shape[1] - 1:
            pods.pod[p, NAMED] += pods.cell[p, a, SIZE]
    else:
        log.codes[BEHIND, pods.cell[p, a, LAST]] = i
    pods.cell[p, a, LAST] = i
    pods.cell[p, a, QUEUED] += 1
    pods.pod[p, WAITING] += 1


@part
def _admit(pods: Pods, log: Log, rules: Rules, p: int, t: int, hold: NDArray[np.int64]) -> None:
    """
    Start what can start now, the longest waiting first; who needs a slot is passed by those who need none, as in vLLM, and in a
    pool of bytes by those who need fewer.
    """
    base = pods.cell.shape[1] - 1
    while pods.pod[p, WAITING] > 0 and pods.pod[p, RUNNING] < pods.pod[p, SEATS]:
        room = spare(pods, GPU, p)
        chosen = whole(-1)
        for a in range(base + 1):
            startable = pods.cell[p, a, QUEUED] > 0 and (
                pods.cell[p, a, SIZE] <= room or a == base or pods.cell[p, a, GPU_PLACE] >= 0
            )
            if startable and (chosen < 0 or pods.cell[p, a, FIRST] < pods.cell[p, chosen, FIRST]):
                chosen = a
        if chosen < 0:
            return
        i = whole(pods.cell[p, chosen, FIRST])
        pods.cell[p, chosen, FIRST] = log.codes[BEHIND, i]
        pods.pod[p, WAITING] -= 1
        _start(pods, log, rules, p, i, chosen, t, int(hold[i]))
        pods.cell[p, chosen, QUEUED] -= 1
        if pods.cell[p, chosen, QUEUED] == 0 and pods.cell[p, chosen, IN_FLIGHT] == 0 and chosen != base:
            pods.pod[p, NAMED] -= pods.cell[p, chosen, SIZE]


@part
def _end(pods: Pods, p: int, a: int) -> None:
    pods.pod[p, RUNNING] -= 1
    pods.cell[p, a, IN_FLIGHT] -= 1
    if a == pods.cell.shape[1] - 1:
        return
    pods.clock[0] += 1
    pods.cell[p, a, STAMP] = pods.clock[0]
    if pods.cell[p, a, IN_FLIGHT] == 0:
        pods.pod[p, SERVING] -= pods.cell[p, a, SIZE]
        if pods.cell[p, a, QUEUED] == 0:
            pods.pod[p, NAMED] -= pods.cell[p, a, SIZE]


@part
def advance(pods: Pods, log: Log, rules: Rules, adapter: NDArray[np.int32], hold: NDArray[np.int64], until: int) -> None:
    """Let requests end, and waiting ones start in their place, up to and including ``until``."""
    while pods.clock[1] > 0 and log.times[END, log.heap[0]] <= until:
        t = int(log.times[END, log.heap[0]])
        while pods.clock[1] > 0 and log.times[END, log.heap[0]] == t:
            i = pop(pods, log)
            p = whole(log.codes[POD, i])
            if log.codes[BORN, i] == pods.pod[p, BOOT]:
                a = whole(adapter[i]) if adapter[i] >= 0 else pods.cell.shape[1] - 1
                _end(pods, p, a)
                pods.cell[p, a, USED_AT] = t
                pods.pod[p, ENDED] = 1
        for p in range(len(pods.pod)):
            if pods.pod[p, ENDED] > 0:
                pods.pod[p, ENDED] = 0
                if pods.pod[p, WAITING] > 0:
                    _admit(pods, log, rules, p, t, hold)


@part
def restart(pods: Pods, log: Log, p: int, t: int) -> None:
    """The pod starts anew at t: both tiers empty, pins loaded; what ran ends now, what waited never starts."""
    pods.pod[p, BOOT] += 1
    pods.pod[p, RUNNING] = pods.pod[p, WAITING] = pods.pod[p, SERVING] = pods.pod[p, NAMED] = 0
    for a in range(pods.cell.shape[1]):
        if pods.cell[p, a, GPU_PLACE] >= 0:
            vacate(pods, log, p, a, t)
        if pods.cell[p, a, CPU_PLACE] >= 0:
            leave(pods, CPU, p, a)
        pods.cell[p, a, IN_FLIGHT] = pods.cell[p, a, QUEUED] = pods.cell[p, a, RECENT] = 0
        pods.faded[p, a] = 0.0
    preload(pods, p, t)


@part
def preload(pods: Pods, p: int, t: int) -> None:
    """Load the pod's pins into both tiers, in the order of their codes."""
    for a in range(pods.cell.shape[1]):
        if pods.cell[p, a, PINNED] > 0:
            enter(pods, CPU, p, a)
            enter(pods, GPU, p, a)
            pods.cell[p, a, LOADED_BY] = -1
            pods.cell[p, a, READY] = t
            pods.cell[p, a, USED_AT] = t


@part
def begin_pin(pods: Pods, log: Log, rules: Rules, again: NDArray[np.int64], p: int, a: int, t: int, row: int) -> None:
    """Bring an adapter that was just pinned into a slot, for no request; nothing where every slot is pinned or in flight."""
    leaving, dropped, lookup = whole(-1), whole(-1), whole(WARM)
    if pods.pod[p, GPU_FILLED] == pods.pod[p, SLOTS]:
        leaving = victim(pods, GPU, rules, p, t)
        if leaving < 0:
            return
    going = leaving
    if pods.cell[p, a, CPU_PLACE] < 0:
        lookup = whole(COLD)
        if pods.pod[p, CPU_FILLED] == pods.pod[p, CPU_ROOM]:
            dropped = victim(pods, CPU, rules, p, t)
            leave(pods, CPU, p, dropped)
            if pods.cell[p, dropped, GPU_PLACE] >= 0:
                vacate(pods, log, p, dropped, t)
                leaving, going = dropped, whole(-1)
        enter(pods, CPU, p, a)
    if going >= 0:
        vacate(pods, log, p, going, t)
    enter(pods, GPU, p, a)
    pods.clock[0] += 1
    pods.cell[p, a, STAMP] = pods.clock[0]
    pods.cell[p, a, LOADED_BY] = -1
    pods.cell[p, a, READY] = t + (rules.cold_load if lookup == COLD else rules.warm_load)
    pods.cell[p, a, USED_AT] = t
    again[0, row], again[1, row], again[2, row], again[3, row] = t, p, a, lookup
    again[4, row], again[5, row], again[6, row] = pods.cell[p, a, GPU_PLACE], leaving, dropped
