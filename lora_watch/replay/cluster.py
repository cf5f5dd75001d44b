"""The replay: requests through pods, one kernel for every policy, router and size of fleet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lora_watch.replay.compiled import compiled
from lora_watch.replay.locality import next_uses
from lora_watch.replay.policies import LRU, Eviction, Policy
from lora_watch.replay.routers import Desk, Router, Rule, View, desk, look, route, view
from lora_watch.replay.serving import advance, arrive, preload, restart
from lora_watch.replay.state import Log, Pods, Rules, empty_log, empty_pods
from lora_watch.replay.trace import Trace

LAST = 1 << 62
"""A time after every other, in µs."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """
    The pods a trace is replayed on. One number for all pods, or one for each.

    ``slots`` is vLLM's ``max_loras``; ``cpu_capacity`` its ``max_cpu_loras``, by default as many as slots: then there is no
    warm tier. ``seats`` is ``max_num_seqs``, the requests that run at once. ``pins`` are (pod, adapter) codes: loaded at the start and
    after every restart, never evicted. ``warm_load`` and ``cold_load`` are the µs that a load takes, during which its
    requests hold the slot. ValueError where a pod has no slot, a CPU cache smaller than its slots, no seat, or no slot without a pin.
    """

    slots: int | Sequence[int]
    cpu_capacity: int | Sequence[int] | None = None
    seats: int | Sequence[int] = 256
    policy: Policy = LRU
    pins: Iterable[tuple[int, int]] = ()
    warm_load: int = 0
    cold_load: int = 0

    def pods(self, pods: int, adapters: int) -> Pods:
        """The pods before the start."""
        slots, seats = _each("slots", self.slots, pods), _each("seats", self.seats, pods)
        cpu = slots.copy() if self.cpu_capacity is None else _each("cpu_capacity", self.cpu_capacity, pods)
        if (cpu < slots).any():
            raise ValueError(f"what is in a slot is in the CPU cache: {cpu.tolist()} places cannot hold {slots.tolist()} slots")
        if not 0 <= self.warm_load <= self.cold_load:
            raise ValueError(f"a cold load takes as long as a warm one or longer: {self.warm_load}, {self.cold_load} µs")
        pinned = np.zeros((pods, adapters + 1), dtype=np.bool_)
        for p, a in self.pins:
            if not (0 <= p < pods and 0 <= a < adapters):
                raise ValueError(f"a pin is (pod, adapter) below ({pods}, {adapters}), got ({p}, {a})")
            pinned[p, a] = True
        if (pinned.sum(axis=1) >= slots).any():
            raise ValueError("a pod needs at least one slot without a pin, so that a miss can load")
        return empty_pods(slots, cpu, seats, pinned)


def _each(name: str, value: int | Sequence[int], pods: int) -> NDArray[np.int32]:
    """One number for each pod, all at least 1."""
    array = np.full(pods, value) if isinstance(value, int) else np.array(value)
    if array.shape != (pods,) or array.dtype.kind != "i" or not 1 <= array.min() <= array.max() < 1 << 31:
        raise ValueError(f"{name} is one number from 1 for all of {pods} pods or one for each, got {value}")
    return array.astype(np.int32)


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What became of each request: arrays in the trace's order.

    ``pod`` that served it · ``lookup`` 0 hot, 1 warm, 2 cold, −1 for the base model and for what never started · ``slot`` · ``victim`` the adapter
    that left a slot for it, −1 for none · ``cpu_victim`` the adapter that left the CPU cache for it · ``start`` (µs) when it entered the running batch: its
    arrival, or later where it had to wait for a slot or a seat; ``NEVER_STARTED`` where the pod restarted before · ``end`` (µs) when it ended.
    A load is ``lookup > 0``; it is a cold one where ``lookup == 2``. ``preloads`` counts the pins' loads, which stand beside.
    """

    pod: NDArray[np.int32]
    lookup: NDArray[np.int8]
    slot: NDArray[np.int32]
    victim: NDArray[np.int32]
    cpu_victim: NDArray[np.int32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    at: NDArray[np.int64]
    preloads: int

    @property
    def loads(self) -> int:
        """Requests that found their adapter in no slot: misses."""
        return int((self.lookup > 0).sum())

    @property
    def swaps(self) -> int:
        """Adapters that left a slot so that another could enter."""
        return int((self.victim >= 0).sum())

    @property
    def uses(self) -> int:
        """Requests for an adapter that started."""
        return int((self.lookup >= 0).sum())

    @property
    def blocked(self) -> NDArray[np.bool_]:
        """Which requests could not start when they arrived."""
        return (self.start > self.at) | (self.start == NEVER_STARTED)


NEVER_STARTED = -1 << 62
"""``start`` and ``end`` of a request that waited when its pod restarted."""


@compiled
def _run(
    pods: Pods,
    log: Log,
    rules: Rules,
    router: Desk,
    seen: View,
    scrape: int,
    adapter: NDArray[np.int32],
    pod: NDArray[np.int32],
    at: NDArray[np.int64],
    hold: NDArray[np.int64],
    next_use: NDArray[np.int64],
    restart_pod: NDArray[np.int32],
    restart_at: NDArray[np.int64],
) -> None:
    """Every request in order; between two of them, ends, starts and restarts at their own times."""
    base = pods.pinned.shape[1] - 1
    i, done, oldest = np.int64(0), 0, 0  # not the literal 0, for which numba would compile every part once more
    for p in range(len(pods.waiting)):
        preload(pods, p, -LAST)
    while True:
        t = int(at[i]) if i < len(adapter) else LAST
        restarting = done < len(restart_at) and restart_at[done] <= t
        looking = scrape > 0 and not restarting and t < LAST and t - t % scrape > seen.at[0]
        if restarting:
            t = int(restart_at[done])
        elif looking:
            t -= t % scrape
        advance(pods, log, rules, adapter, hold, t)
        if restarting:
            restart(pods, np.int64(restart_pod[done]), t)
            done += 1
            continue
        if looking:
            look(pods, seen, t)
            continue
        if i == len(adapter):
            return
        if rules.eviction == 2:
            while oldest < i and at[oldest] <= t - rules.window:
                if adapter[oldest] >= 0 and log.boot[oldest] == pods.boot[log.pod[oldest]]:
                    pods.recent[log.pod[oldest], adapter[oldest]] -= 1
                oldest += 1
        a = np.int64(adapter[i]) if adapter[i] >= 0 else base
        p = np.int64(pod[i])
        if router.rule > 0:
            if scrape == 0:
                seen.at[0] = t
            p = route(pods, seen, router, a)
        if rules.eviction == 3:
            pods.next_use[p, a] = next_use[i]
        arrive(pods, log, rules, p, i, a, t, int(hold[i]))
        i += 1


def replay(trace: Trace, fleet: Fleet, router: Router | None = None, restarts: Sequence[tuple[int, int]] = ()) -> Outcome:
    """
    What the fleet does with the trace, request by request; exact, and the same for the same input.

    Without a router requests keep the trace's pods (all on pod 0 where it has none). ``restarts`` are (at in µs, pod): both tiers are
    empty then, what ran is cut, what waited never starts; an arrival at the same µs comes after. A request that finds every slot in
    flight or pinned waits, and is passed by later ones that need no slot, as in vLLM's scheduler. A load does not slow the other
    requests of the pod down. MIN needs to know the order of uses, so it takes no router, no hold and no load time: ValueError.

    >>> replay(Trace([0, 1, 0, 2, 0, 1]), Fleet(slots=2)).lookup.tolist()
    [2, 2, 0, 2, 0, 2]
    """
    chosen = Router(Rule.GIVEN) if router is None else router
    policy = fleet.policy
    known = policy.eviction == Eviction.MIN
    if known and (chosen.rule != Rule.GIVEN or fleet.cold_load or trace.hold.any()):
        raise ValueError("MIN knows the future of given pods only, without holds and load times")
    state = fleet.pods(trace.pods, trace.adapters)
    ordered = sorted(restarts)
    if ordered and not all(0 <= p < trace.pods for _, p in ordered):
        raise ValueError(f"a restart is (at, pod) with a pod below {trace.pods}")
    log = empty_log(len(trace), len(trace))
    log.start[:] = NEVER_STARTED
    log.end[:] = NEVER_STARTED
    seen = view(state, live=chosen.scrape == 0)
    seen.at[0] = -LAST
    rules = Rules(
        int(policy.eviction),
        policy.window,
        policy.frequency_weight,
        policy.recency_weight,
        fleet.warm_load,
        fleet.cold_load,
    )
    _run(
        state,
        log,
        rules,
        desk(chosen, trace.pods, trace.adapters),
        seen,
        chosen.scrape,
        trace.adapter,
        trace.pods_or_one(),
        trace.at,
        trace.hold,
        next_uses(trace) if known else np.empty(0, dtype=np.int64),
        np.array([p for _, p in ordered], dtype=np.int32),
        np.array([at for at, _ in ordered], dtype=np.int64),
    )
    for at, p in ordered:
        log.end[(log.pod == p) & (log.start < at) & (log.end > at)] = at
    preloads = int(state.pinned.sum() + sum(state.pinned[p].sum() for _, p in ordered))
    return Outcome(log.pod, log.lookup, log.slot, log.victim, log.cpu_victim, log.start, log.end, trace.at, preloads)
