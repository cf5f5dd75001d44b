"""
Pods that work in steps, as vLLM does: at each step the adapters of the running batch are touched one by one, and who is missing
is loaded then, in place of the least recently used one *whoever that is*: an adapter of the very batch whose turn has not come
may leave, and is loaded again when it comes. The order is that of a CPython set of the adapters' names, rebuilt for every step.

A step is made wherever requests end or begin; between two such times the batch stays the same, and so does the order of use.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lora_watch.replay.compiled import compiled, part, whole
from lora_watch.replay.in_flight import pop, push
from lora_watch.replay.routers import Desk, Rule, View, look, route
from lora_watch.replay.serving import COLD, HOT, WARM, enter, leave, preload, restart, vacate
from lora_watch.replay.state import (
    AFTER_ALL,
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
    LOADED_BY,
    LOOKUP,
    NAMED,
    PINNED,
    POD,
    QUEUED,
    READY,
    RUNNING,
    SEATS,
    SERVING,
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

AT, WHERE, WHO, FOUND, PLACE, OUT, CPU_OUT, GONE = range(8)
"""Rows of ``Batch.again``: when and where which adapter was loaded again, and how, as ``Reloads`` says."""
_GIVEN = int(Rule.GIVEN)
_SMALLEST, _PROBES = 8, 9  # of CPython's sets: places of a new one, neighbours looked at before the next jump


class Batch(NamedTuple):
    """What a step needs beside the pods."""

    hashes: NDArray[np.int64]  # [adapter]
    entered: NDArray[np.int64]  # [pod, adapter]: grows with each entry into the batch
    table: NDArray[np.int32]  # [2, place]: the engine's set of adapters, and the larger one it grows into
    members: NDArray[np.int32]  # the batch in the order of that set
    first: NDArray[np.int32]  # [adapter]: the request with which it entered the batch in this step, or −1
    started: NDArray[np.int32]  # requests that started in this step
    again: NDArray[np.int64]  # [row, reload]
    counted: NDArray[np.int64]  # [2]: entries into the batch, reloads (which may be more than ``again`` holds)


def batch(hashes: Sequence[int], pods: Pods, requests: int, reloads: int, never: int) -> Batch:
    """Nothing has happened yet; there is room for so many reloads."""
    count, adapters = pods.cell.shape[:2]
    largest = min(int(pods.pod[:, SLOTS].max()), adapters)
    return Batch(
        hashes=np.array(hashes, dtype=np.int64),
        entered=np.zeros((count, adapters), dtype=np.int64),
        table=np.full((2, _places(largest)), -1, dtype=np.int32),
        members=np.zeros(largest + 1, dtype=np.int32),
        first=np.full(adapters, -1, dtype=np.int32),
        started=np.zeros(min(int(pods.pod[:, SEATS].max()), requests) + 1, dtype=np.int32),
        again=np.full((8, reloads), never, dtype=np.int64),
        counted=np.zeros(2, dtype=np.int64),
    )


def _places(members: int) -> int:
    """Places of a set of so many members at its largest."""
    size = _SMALLEST
    for filled in range(1, members + 1):
        if filled * 5 >= (size - 1) * 3:
            while size <= filled * 4:
                size *= 2
    return size


@part
def _put(table: NDArray[np.int32], which: int, size: int, a: int, hashed: int) -> None:
    """Put an adapter into the set's first free place, as CPython looks for it."""
    mask = size - 1
    place, rest = hashed & mask, hashed
    while True:
        for neighbour in range(place, place + (_PROBES if place + _PROBES <= mask else 0) + 1):
            if table[which, neighbour] < 0:
                table[which, neighbour] = a
                return
        rest = (rest >> 5) & ((1 << 59) - 1)  # without its sign
        place = (place * 5 + 1 + rest) & mask


@part
def in_set_order(pods: Pods, batch: Batch, p: int) -> int:
    """
    The number of adapters in the pod's batch; ``members`` has them in the order of the engine's set.

    They go into it in the order in which they entered the batch. It grows to four times its members (the power of two above) when
    it is three fifths full, and its members move in their order.
    """
    table, size, which, filled, newest = batch.table, whole(_SMALLEST), whole(0), whole(0), whole(0)
    for place in range(size):
        table[which, place] = -1
    while True:
        chosen = whole(-1)
        for a in range(pods.cell.shape[1] - 1):
            next_one = pods.cell[p, a, IN_FLIGHT] > 0 and batch.entered[p, a] > newest
            if next_one and (chosen < 0 or batch.entered[p, a] < batch.entered[p, chosen]):
                chosen = whole(a)
        if chosen < 0:
            break
        newest = batch.entered[p, chosen]
        _put(table, which, size, chosen, batch.hashes[chosen])
        filled += 1
        if filled * 5 >= (size - 1) * 3:
            larger = size
            while larger <= filled * 4:
                larger *= 2
            for place in range(larger):
                table[1 - which, place] = -1
            for place in range(size):
                if table[which, place] >= 0:
                    _put(table, 1 - which, larger, whole(table[which, place]), batch.hashes[table[which, place]])
            which, size = 1 - which, larger
    filled = 0
    for place in range(size):
        if table[which, place] >= 0:
            batch.members[filled] = table[which, place]
            filled += 1
    return filled


@part
def _oldest(pods: Pods, tier: int, p: int) -> int:
    """The least recently used adapter of a tier that is not pinned, in flight or not."""
    chosen = whole(-1)
    for place in range(min(pods.pod[p, 2 + tier], pods.tier.shape[2])):
        a = whole(pods.tier[tier, p, place])
        if a >= 0 and pods.cell[p, a, PINNED] == 0 and (chosen < 0 or pods.cell[p, a, STAMP] < pods.cell[p, chosen, STAMP]):
            chosen = a
    return chosen


@part
def _depart(pods: Pods, log: Log, batch: Batch, p: int, a: int, t: int) -> None:
    """An adapter leaves its slot; the stay that a reload began ends like any other."""
    reload = -2 - pods.cell[p, a, LOADED_BY]
    if 0 <= reload < batch.again.shape[1]:
        batch.again[GONE, reload] = t
    vacate(pods, log, p, a, t)


@part
def _load(pods: Pods, log: Log, rules: Rules, batch: Batch, p: int, a: int, t: int) -> None:
    """Bring an adapter of the batch into a slot: for the request with which it entered, or again."""
    lookup, dropped, leaving = whole(WARM), whole(-1), whole(-1)
    if pods.cell[p, a, CPU_PLACE] < 0:
        lookup = whole(COLD)
        if pods.pod[p, CPU_FILLED] == pods.pod[p, CPU_ROOM]:
            dropped = _oldest(pods, CPU, p)
            leave(pods, CPU, p, dropped)
            if pods.cell[p, dropped, GPU_PLACE] >= 0:
                leaving = dropped
                _depart(pods, log, batch, p, dropped, t)
        enter(pods, CPU, p, a)
    if pods.pod[p, GPU_FILLED] == pods.pod[p, SLOTS]:
        leaving = _oldest(pods, GPU, p)
        _depart(pods, log, batch, p, leaving, t)
    enter(pods, GPU, p, a)
    pods.cell[p, a, READY] = t + (rules.cold_load if lookup == COLD else rules.warm_load)
    i = whole(batch.first[a])
    if i >= 0:
        log.codes[LOOKUP, i], log.codes[VICTIM, i], log.codes[CPU_VICTIM, i] = lookup, leaving, dropped
        pods.cell[p, a, LOADED_BY] = i
        return
    row = batch.counted[1]
    batch.counted[1] += 1
    pods.cell[p, a, LOADED_BY] = -2 - row
    if row < batch.again.shape[1]:
        batch.again[AT, row], batch.again[WHERE, row], batch.again[WHO, row], batch.again[FOUND, row] = t, p, a, lookup
        batch.again[PLACE, row], batch.again[OUT, row], batch.again[CPU_OUT, row] = pods.cell[p, a, GPU_PLACE], leaving, dropped


@part
def _admit(pods: Pods, log: Log, batch: Batch, p: int) -> int:
    """
    Take waiting requests into the batch, the longest waiting first, and say how many.

    Passed over are those whose adapter would be one more in the batch than there are slots. An idle pin counts as one of them.
    """
    base = pods.cell.shape[1] - 1
    kept = 0
    for a in range(base):
        kept += pods.cell[p, a, PINNED] > 0 and pods.cell[p, a, IN_FLIGHT] == 0
    count = 0
    while pods.pod[p, WAITING] > 0 and pods.pod[p, RUNNING] < pods.pod[p, SEATS]:
        room = pods.pod[p, SERVING] + kept < pods.pod[p, SLOTS]
        chosen = whole(-1)
        for a in range(base + 1):
            admitted = room or a == base or pods.cell[p, a, IN_FLIGHT] > 0 or pods.cell[p, a, PINNED] > 0
            startable = admitted and pods.cell[p, a, QUEUED] > 0
            if startable and (chosen < 0 or pods.cell[p, a, FIRST] < pods.cell[p, chosen, FIRST]):
                chosen = whole(a)
        if chosen < 0:
            break
        i = whole(pods.cell[p, chosen, FIRST])
        pods.cell[p, chosen, FIRST] = log.codes[BEHIND, i]
        pods.cell[p, chosen, QUEUED] -= 1
        pods.pod[p, WAITING] -= 1
        if pods.cell[p, chosen, IN_FLIGHT] == 0 and chosen != base:
            kept -= pods.cell[p, chosen, PINNED] > 0
            pods.pod[p, SERVING] += 1
            batch.counted[0] += 1
            batch.entered[p, chosen] = batch.counted[0]
            batch.first[chosen] = i
        pods.cell[p, chosen, IN_FLIGHT] += 1
        pods.pod[p, RUNNING] += 1
        batch.started[count] = i
        count += 1
    return count


@part
def _step(
    pods: Pods, log: Log, rules: Rules, batch: Batch, p: int, t: int, adapter: NDArray[np.int32], hold: NDArray[np.int64]
) -> None:
    """The pod's step at t: who can start joins the batch, then its adapters are touched or loaded in the set's order."""
    base = pods.cell.shape[1] - 1
    count = _admit(pods, log, batch, p)
    for k in range(in_set_order(pods, batch, p)):
        a = whole(batch.members[k])
        if pods.cell[p, a, GPU_PLACE] < 0:
            _load(pods, log, rules, batch, p, a, t)
        pods.clock[0] += 1
        pods.cell[p, a, STAMP] = pods.clock[0]
        pods.cell[p, a, USED_AT] = t
        batch.first[a] = -1
    for k in range(count):
        i = whole(batch.started[k])
        a = whole(adapter[i]) if adapter[i] >= 0 else base
        log.times[START, i] = t
        log.times[END, i] = t + hold[i]
        if a != base:
            if log.codes[LOOKUP, i] < 0:
                log.codes[LOOKUP, i] = HOT
            log.codes[SLOT, i] = pods.cell[p, a, GPU_PLACE]
            log.times[END, i] = max(t, pods.cell[p, a, READY]) + hold[i]
        push(pods, log, i)


@part
def _steps(pods: Pods, log: Log, rules: Rules, batch: Batch, t: int, adapter: NDArray[np.int32], hold: NDArray[np.int64]) -> None:
    """A step on every pod where something ended or came."""
    for p in range(len(pods.pod)):
        if pods.pod[p, ENDED] > 0:
            pods.pod[p, ENDED] = 0
            _step(pods, log, rules, batch, p, t, adapter, hold)


@part
def _end(pods: Pods, p: int, a: int) -> None:
    """A request leaves the batch. It was touched in its last step, so the order of use stays as it is."""
    pods.pod[p, RUNNING] -= 1
    pods.cell[p, a, IN_FLIGHT] -= 1
    pods.pod[p, ENDED] = 1
    if a != pods.cell.shape[1] - 1 and pods.cell[p, a, IN_FLIGHT] == 0:
        pods.pod[p, SERVING] -= 1
        if pods.cell[p, a, QUEUED] == 0:
            pods.pod[p, NAMED] -= 1


@part
def _advance(
    pods: Pods,
    log: Log,
    rules: Rules,
    batch: Batch,
    adapter: NDArray[np.int32],
    hold: NDArray[np.int64],
    until: int,
    inclusive: bool,  # noqa: FBT001 - kernels take no keywords
) -> None:
    """Ends up to and including ``until``, each time with a step behind them; at ``until`` itself only if ``inclusive``."""
    while pods.clock[1] > 0 and log.times[END, log.heap[0]] <= until:
        t = whole(log.times[END, log.heap[0]])
        while pods.clock[1] > 0 and log.times[END, log.heap[0]] == t:
            i = pop(pods, log)
            p = whole(log.codes[POD, i])
            if log.codes[BORN, i] == pods.pod[p, BOOT]:
                _end(pods, p, whole(adapter[i]) if adapter[i] >= 0 else pods.cell.shape[1] - 1)
        if inclusive or t < until:
            _steps(pods, log, rules, batch, t, adapter, hold)


@part
def _arrive(pods: Pods, log: Log, p: int, i: int, a: int) -> None:
    """Request i waits for the pod's next step, behind those for the same adapter."""
    log.codes[POD, i] = p
    log.codes[BORN, i] = pods.pod[p, BOOT]
    if pods.cell[p, a, QUEUED] == 0:
        pods.cell[p, a, FIRST] = i
        if pods.cell[p, a, IN_FLIGHT] == 0 and a != pods.cell.shape[1] - 1:
            pods.pod[p, NAMED] += 1
    else:
        log.codes[BEHIND, pods.cell[p, a, LAST]] = i
    pods.cell[p, a, LAST] = i
    pods.cell[p, a, QUEUED] += 1
    pods.pod[p, WAITING] += 1
    pods.pod[p, ENDED] = 1


@part
def _restart(pods: Pods, log: Log, batch: Batch, p: int, t: int) -> None:
    """As ``restart``; the stays that reloads began end too."""
    for a in range(pods.cell.shape[1] - 1):
        if pods.cell[p, a, GPU_PLACE] >= 0 and pods.cell[p, a, LOADED_BY] < -1:
            _depart(pods, log, batch, p, a, t)
    restart(pods, log, p, t)


@compiled
def run_batches(
    pods: Pods,
    log: Log,
    rules: Rules,
    batch: Batch,
    router: Desk,
    seen: View,
    scrape: int,
    adapter: NDArray[np.int32],
    pod: NDArray[np.int32],
    at: NDArray[np.int64],
    hold: NDArray[np.int64],
    restart_pod: NDArray[np.int32],
    restart_at: NDArray[np.int64],
    change: NDArray[np.int64],
) -> None:
    """Every request in order; what comes at the same µs meets in one step, behind what ends then."""
    i, done, changed = whole(0), 0, 0
    for p in range(len(pods.pod)):
        preload(pods, p, -AFTER_ALL)
    while True:
        t = int(at[i]) if i < len(adapter) else AFTER_ALL
        restarting = done < len(restart_at) and restart_at[done] <= t
        if restarting:
            t = int(restart_at[done])
        changing = changed < len(change) and change[changed, 0] <= t
        if changing:
            restarting = False
            t = int(change[changed, 0])
        looking = scrape > 0 and not restarting and not changing and t < AFTER_ALL and t - t % scrape > seen.at[0]
        if looking:
            t -= t % scrape
        _advance(pods, log, rules, batch, adapter, hold, t, restarting or looking or changing)
        if changing:
            p, a = whole(change[changed, 1]), whole(change[changed, 2])
            pods.cell[p, a, PINNED] = change[changed, 3]
            if change[changed, 3] > 0 and pods.cell[p, a, GPU_PLACE] < 0:
                _load(pods, log, rules, batch, p, a, t)
                pods.clock[0] += 1
                pods.cell[p, a, STAMP] = pods.clock[0]
                pods.cell[p, a, USED_AT] = t
            changed += 1
            continue
        if restarting:
            _restart(pods, log, batch, whole(restart_pod[done]), t)
            done += 1
            continue
        if looking:
            look(pods, seen, t)
            continue
        if i == len(adapter):
            return
        while i < len(adapter) and at[i] == t:
            a = whole(adapter[i]) if adapter[i] >= 0 else pods.cell.shape[1] - 1
            p = whole(pod[i])
            if router.rule != _GIVEN and p < 0:
                if scrape == 0:
                    seen.at[0] = t
                p = route(pods, seen, router, a)
            _arrive(pods, log, p, i, a)
            i += 1
        _steps(pods, log, rules, batch, t, adapter, hold)
        _advance(pods, log, rules, batch, adapter, hold, t, True)
