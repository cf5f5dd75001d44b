"""A pod at work: requests start, wait for a slot or a seat, and end; adapters enter and leave the two tiers."""

import numpy as np
from numpy.typing import NDArray

from lora_watch.replay.compiled import part
from lora_watch.replay.policies import count_use, victim
from lora_watch.replay.state import Log, Pods, Rules, Tier

HOT, WARM, COLD = 0, 1, 2
"""Where a request found its adapter: in a slot, in the CPU cache, on disk."""


@part
def _enter(tier: Tier, p: int, a: int) -> int:
    """Put an adapter into the tier's first free place, as vLLM numbers its slots."""
    place = 0
    while tier.adapter[p, place] >= 0:
        place += 1
    tier.adapter[p, place] = a
    tier.place[p, a] = place
    tier.filled[p] += 1
    return place


@part
def _leave(tier: Tier, p: int, a: int) -> None:
    tier.adapter[p, tier.place[p, a]] = -1
    tier.place[p, a] = -1
    tier.filled[p] -= 1


@part
def _before(log: Log, i: int, j: int) -> bool:
    """Whether request i ends before request j."""
    return log.end[i] < log.end[j] or (log.end[i] == log.end[j] and i < j)


@part
def _push(pods: Pods, log: Log, i: int) -> None:
    """Into the heap of requests in flight."""
    place = pods.flying[0]
    pods.flying[0] += 1
    while place > 0 and _before(log, i, np.int64(log.heap[(place - 1) // 2])):
        log.heap[place] = log.heap[(place - 1) // 2]
        place = (place - 1) // 2
    log.heap[place] = i


@part
def _pop(pods: Pods, log: Log) -> int:
    """The request in flight that ends first, out of the heap."""
    top = np.int64(log.heap[0])
    pods.flying[0] -= 1
    size = pods.flying[0]
    moved, place = np.int64(log.heap[size]), 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _before(log, np.int64(log.heap[child + 1]), np.int64(log.heap[child])):
            child += 1
        if not _before(log, np.int64(log.heap[child]), moved):
            break
        log.heap[place] = log.heap[child]
        place = child
    log.heap[place] = moved
    return top


@part
def _load(pods: Pods, log: Log, rules: Rules, p: int, i: int, a: int, t: int) -> bool:
    """
    Bring an adapter into a slot for request i; False, and nothing done, where every slot is pinned or in flight.

    A cold one enters the CPU cache first. What the CPU cache evicts leaves its slot as well (what is in a slot is in the
    cache), and then no second adapter has to go.
    """
    leaving = -1
    if pods.gpu.filled[p] == pods.gpu.room[p]:
        leaving = victim(pods, pods.gpu, rules, p, t)
        if leaving < 0:
            return False
    log.lookup[i] = WARM
    if pods.cpu.place[p, a] < 0:
        log.lookup[i] = COLD
        if pods.cpu.filled[p] == pods.cpu.room[p]:
            dropped = victim(pods, pods.cpu, rules, p, t)
            _leave(pods.cpu, p, dropped)
            log.cpu_victim[i] = dropped
            if pods.gpu.place[p, dropped] >= 0:
                _leave(pods.gpu, p, dropped)
                log.victim[i] = dropped
                leaving = -1
        _enter(pods.cpu, p, a)
    if leaving >= 0:
        _leave(pods.gpu, p, leaving)
        log.victim[i] = leaving
    _enter(pods.gpu, p, a)
    pods.ready[p, a] = t + (rules.cold_load if log.lookup[i] == COLD else rules.warm_load)
    return True


@part
def _start(pods: Pods, log: Log, rules: Rules, p: int, i: int, a: int, t: int, hold: int) -> bool:
    """Request i enters the running batch at t; False where it has to wait for a seat or a slot."""
    if pods.running[p] >= pods.seats[p]:
        return False
    base = pods.pinned.shape[1] - 1
    end = t + hold
    if a != base:
        if pods.gpu.place[p, a] >= 0:
            log.lookup[i] = HOT
        elif not _load(pods, log, rules, p, i, a, t):
            return False
        log.slot[i] = pods.gpu.place[p, a]
        end = max(t, pods.ready[p, a]) + hold
        pods.clock[0] += 1
        pods.stamp[p, a] = pods.clock[0]
        pods.used_at[p, a] = t
    log.start[i] = t
    log.end[i] = end
    if end > t:
        if pods.in_flight[p, a] == 0 and a != base:
            pods.serving[p] += 1
            if pods.queued[p, a] == 0:
                pods.named[p] += 1
        pods.in_flight[p, a] += 1
        pods.running[p] += 1
        _push(pods, log, i)
    return True


@part
def arrive(pods: Pods, log: Log, rules: Rules, p: int, i: int, a: int, t: int, hold: int) -> None:
    """Request i comes to the pod at t: it starts, or waits behind those for the same adapter."""
    log.pod[i] = p
    log.boot[i] = pods.boot[p]
    if rules.eviction == 1 or rules.eviction == 2:
        count_use(pods, p, a, t, rules.window)
    if _start(pods, log, rules, p, i, a, t, hold):
        return
    if pods.queued[p, a] == 0:
        pods.first[p, a] = i
        if pods.in_flight[p, a] == 0 and a != pods.pinned.shape[1] - 1:
            pods.named[p] += 1
    else:
        log.behind[pods.last[p, a]] = i
    pods.last[p, a] = i
    pods.queued[p, a] += 1
    pods.waiting[p] += 1


@part
def _admit(pods: Pods, log: Log, rules: Rules, p: int, t: int, hold: NDArray[np.int64]) -> None:
    """Start what can start now, the longest waiting first; who needs a slot is passed by those who need none, as in vLLM."""
    base = pods.pinned.shape[1] - 1
    while pods.waiting[p] > 0 and pods.running[p] < pods.seats[p]:
        room = pods.gpu.filled[p] < pods.gpu.room[p] or victim(pods, pods.gpu, rules, p, t) >= 0
        chosen = np.int64(-1)
        for a in range(base + 1):
            startable = pods.queued[p, a] > 0 and (room or a == base or pods.gpu.place[p, a] >= 0)
            if startable and (chosen < 0 or pods.first[p, a] < pods.first[p, chosen]):
                chosen = a
        if chosen < 0:
            return
        i = np.int64(pods.first[p, chosen])
        pods.first[p, chosen] = log.behind[i]
        pods.waiting[p] -= 1
        _start(pods, log, rules, p, i, chosen, t, int(hold[i]))
        pods.queued[p, chosen] -= 1
        if pods.queued[p, chosen] == 0 and pods.in_flight[p, chosen] == 0 and chosen != base:
            pods.named[p] -= 1


@part
def _end(pods: Pods, p: int, a: int) -> None:
    pods.running[p] -= 1
    pods.in_flight[p, a] -= 1
    if a == pods.pinned.shape[1] - 1:
        return
    pods.clock[0] += 1
    pods.stamp[p, a] = pods.clock[0]
    if pods.in_flight[p, a] == 0:
        pods.serving[p] -= 1
        if pods.queued[p, a] == 0:
            pods.named[p] -= 1


@part
def advance(pods: Pods, log: Log, rules: Rules, adapter: NDArray[np.int32], hold: NDArray[np.int64], until: int) -> None:
    """Let requests end, and waiting ones start in their place, up to and including ``until``."""
    while pods.flying[0] > 0 and log.end[log.heap[0]] <= until:
        t = int(log.end[log.heap[0]])
        while pods.flying[0] > 0 and log.end[log.heap[0]] == t:
            i = _pop(pods, log)
            p = np.int64(log.pod[i])
            if log.boot[i] == pods.boot[p]:
                a = np.int64(adapter[i]) if adapter[i] >= 0 else pods.pinned.shape[1] - 1
                _end(pods, p, a)
                pods.used_at[p, a] = t
                pods.ended[p] = True
        for p in range(len(pods.waiting)):
            if pods.ended[p]:
                pods.ended[p] = False
                if pods.waiting[p] > 0:
                    _admit(pods, log, rules, p, t, hold)


@part
def restart(pods: Pods, p: int, t: int) -> None:
    """The pod starts anew at t: both tiers empty, pins loaded; what ran ends now, what waited never starts."""
    pods.boot[p] += 1
    for tier in (pods.gpu, pods.cpu):
        tier.adapter[p, :] = -1
        tier.place[p, :] = -1
        tier.filled[p] = 0
    for table in (pods.in_flight, pods.queued, pods.recent):
        table[p, :] = 0
    pods.faded[p, :] = 0.0
    pods.first[p, :] = -1
    for count in (pods.running, pods.waiting, pods.serving, pods.named):
        count[p] = 0
    preload(pods, p, t)


@part
def preload(pods: Pods, p: int, t: int) -> None:
    """Load the pod's pins into both tiers, in the order of their codes."""
    for a in range(pods.pinned.shape[1]):
        if pods.pinned[p, a]:
            _enter(pods.cpu, p, a)
            _enter(pods.gpu, p, a)
            pods.ready[p, a] = t
            pods.used_at[p, a] = t
