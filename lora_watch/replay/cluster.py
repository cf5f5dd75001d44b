"""The replay: requests through pods, one kernel for every policy, router and size of fleet."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lora_watch.replay import batches
from lora_watch.replay.compiled import compiled, whole
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.locality import next_uses
from lora_watch.replay.policies import LRU, MIN, TIME_WEIGHTED
from lora_watch.replay.routers import Desk, Router, Rule, View, desk, look, route, view
from lora_watch.replay.serving import advance, arrive, begin_pin, preload, restart
from lora_watch.replay.state import AFTER_ALL as AFTER_ALL
from lora_watch.replay.state import (
    BOOT,
    BORN,
    CPU_VICTIM,
    END,
    GPU_PLACE,
    LEFT,
    LOOKUP,
    MORE,
    NEXT_USE,
    PINNED,
    POD,
    RECENT,
    SLOT,
    SLOTS,
    START,
    VICTIM,
    Log,
    Pods,
    Rules,
    empty_log,
)
from lora_watch.replay.trace import Trace

_GIVEN = int(Rule.GIVEN)


@dataclass(frozen=True, slots=True)
class Reloads:
    """
    Loads that no request asked for: the adapter was in the running batch, and another of that batch had taken its slot earlier
    in the same step; or a pin began. Arrays in the order in which it happened: time (µs), pod, adapter, and as in ``Outcome`` how
    it was found (1 warm, 2 cold), the slot, who left for it and when it left again itself.

    A fleet without ``name_hashes`` has none but those of pins, which are not told when they left.
    """

    at: NDArray[np.int64]
    pod: NDArray[np.int64]
    adapter: NDArray[np.int64]
    lookup: NDArray[np.int64]
    slot: NDArray[np.int64]
    victim: NDArray[np.int64]
    cpu_victim: NDArray[np.int64]
    left: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.at)


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What became of each request: arrays in the trace's order.

    * ``pod`` that served it, ``slot`` it used there (−1 for the base model);
    * ``lookup``: 0 hot, 1 warm, 2 cold; −1 for the base model and for what never started. A load is ``lookup > 0``;
    * ``victim``: the adapter that left a slot for it, ``cpu_victim``: the one that left the CPU cache; −1 for none. In a pool of
      bytes several may leave for one load: this is the last of them, ``evicted`` says how many left the pool;
    * ``start`` (µs) when it entered the running batch: its arrival, or later where it had to wait for a slot or a seat;
      ``NEVER`` where the pod restarted before. ``end`` (µs) when it ended;
    * ``left`` (µs) when the adapter that was loaded for it left the slot again, evicted or by a restart: its stay was
      ``left − start``. ``NEVER`` for a stay still open at the end of the trace, and where nothing was loaded.

    ``preloads`` counts the pins' loads, ``reloads`` are those within a step; both stand beside those of requests. ``more`` is how
    many left for each request beside its ``victim``; None where there are slots.
    """

    pod: NDArray[np.int32]
    lookup: NDArray[np.int8]
    slot: NDArray[np.int32]
    victim: NDArray[np.int32]
    cpu_victim: NDArray[np.int32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    left: NDArray[np.int64]
    at: NDArray[np.int64]
    preloads: int
    reloads: Reloads
    more: NDArray[np.int32] | None = None

    @property
    def loads(self) -> int:
        """Requests that found their adapter in no slot: misses."""
        return int((self.lookup > 0).sum())

    @property
    def swaps(self) -> int:
        """Adapters that left a slot so that another could enter; each counts, where several left for one."""
        return int((self.victim >= 0).sum()) + (0 if self.more is None else int(self.more.sum()))

    @property
    def evicted(self) -> NDArray[np.int32]:
        """How many left a slot for each request: 0 or 1, and in a pool of bytes also more."""
        left = (self.victim >= 0).astype(np.int32)
        return left if self.more is None else left + self.more

    @property
    def uses(self) -> int:
        """Requests for an adapter that started."""
        return int((self.lookup >= 0).sum())

    @property
    def order(self) -> NDArray[np.int64]:
        """
        Requests in the order in which they started on their pods; loads and evictions follow each other in this order.

        Requests that had to wait start behind later ones. Those that never started come first.
        """
        return np.argsort(self.start, kind="stable")

    @property
    def blocked(self) -> NDArray[np.bool_]:
        """Which requests could not start when they arrived."""
        return np.asarray((self.start > self.at) | (self.start == NEVER))


NEVER = -1 << 62
"""A time (µs) of what did not happen."""


class PinChange(NamedTuple):
    """From ``at`` (µs) on the pod's adapter is pinned, and loaded if it is in no slot, or is not pinned any more."""

    at: int
    pod: int
    adapter: int
    pinned: bool


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
    change: NDArray[np.int64],
    again: NDArray[np.int64],
) -> None:
    """Every request in order; between two of them, ends, starts, restarts and changes of pins at their own times."""
    base = pods.cell.shape[1] - 1
    i, done, oldest, changed = whole(0), 0, 0, whole(0)  # not the literal 0, for which numba would compile every part once more
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
        advance(pods, log, rules, adapter, hold, t)
        if changing:
            p, a = whole(change[changed, 1]), whole(change[changed, 2])
            pods.cell[p, a, PINNED] = change[changed, 3]
            if change[changed, 3] > 0 and pods.cell[p, a, GPU_PLACE] < 0:
                begin_pin(pods, log, rules, again, p, a, t, changed)
            changed += 1
            continue
        if restarting:
            restart(pods, log, whole(restart_pod[done]), t)
            done += 1
            continue
        if looking:
            look(pods, seen, t)
            continue
        if i == len(adapter):
            return
        if rules.eviction == TIME_WEIGHTED:
            while oldest < i and at[oldest] <= t - rules.window:
                if adapter[oldest] >= 0 and log.codes[BORN, oldest] == pods.pod[log.codes[POD, oldest], BOOT]:
                    pods.cell[log.codes[POD, oldest], adapter[oldest], RECENT] -= 1
                oldest += 1
        a = whole(adapter[i]) if adapter[i] >= 0 else base
        p = whole(pod[i])
        if router.rule != _GIVEN and p < 0:
            if scrape == 0:
                seen.at[0] = t
            p = route(pods, seen, router, a)
        if rules.eviction == MIN:
            pods.cell[p, a, NEXT_USE] = next_use[i]
        arrive(pods, log, rules, p, i, a, t, int(hold[i]))
        i += 1


def replay(
    trace: Trace,
    fleet: Fleet,
    router: Router | None = None,
    restarts: Sequence[tuple[int, int]] = (),
    *,
    placed: NDArray[np.int32] | None = None,
    changes: Sequence[PinChange] = (),
) -> Outcome:
    """
    What the fleet does with the trace, request by request; exact, and the same for the same input.

    Without a router requests keep the trace's pods (all on pod 0 where it has none). ``restarts`` are (at in µs, pod): both
    tiers are empty then, what ran is cut, what waited never starts; an arrival at the same µs comes after. ``placed`` has a pod
    for each request that no router may send elsewhere, −1 for the rest. ``changes`` are pins that begin and end meanwhile, in the
    order given where they are at the same µs; what a pin loads is a reload, and one that finds every slot in flight or pinned
    loads nothing, and holds what a request brings. A request that
    finds every slot in flight or pinned waits, and is passed by later ones that need no slot, as in vLLM's scheduler; but that
    one counts slots, pinned or not: where more adapters run at once than there are slots without an idle pin, vLLM 0.32 dies
    (a KeyError in the worker), and the request waits only here.

    Not here: a load that slows the other requests of its pod down; and, unless the fleet has ``name_hashes``, loads that no use
    asks for: vLLM touches a batch's adapters in the order of a set, and can evict one of the batch and load it again within a
    step. That is one load in a hundred where slots are rarely all in flight, one in ten where requests wait for slots.

    In a pool of bytes the least recently used leave until the adapter fits. One that needs more than could leave waits and makes
    none leave, and is passed by later ones that need less.

    MIN needs to know the order of uses, so it takes no router, no hold and no load time; ``name_hashes`` go with LRU only; on no
    pod may ever every slot be pinned: ValueError. Nor does a pool of bytes take MIN, ``name_hashes`` or pins that begin
    meanwhile; pins may end.

    >>> replay(Trace([0, 1, 0, 2, 0, 1]), Fleet(slots=2)).lookup.tolist()
    [2, 2, 0, 2, 0, 2]
    """
    chosen = Router(Rule.GIVEN) if router is None else router
    policy = fleet.policy
    known = policy.eviction == MIN
    if known and (chosen.rule != Rule.GIVEN or fleet.cold_load or trace.hold.any()):
        raise ValueError("MIN knows the future of given pods only, without holds and load times")
    if fleet.name_hashes is not None and policy.eviction != LRU.eviction:
        raise ValueError("what works in steps as vLLM does evicts by LRU as vLLM does")
    if fleet.pool_bytes is not None and (known or fleet.name_hashes is not None or any(one.pinned for one in changes)):
        raise ValueError("a pool of bytes knows no MIN, no steps of vLLM and no pins that begin meanwhile")
    ordered = sorted(restarts)
    if ordered and not all(0 <= p < trace.pods for _, p in ordered):
        raise ValueError(f"a restart is (at, pod) with a pod below {trace.pods}")
    restart_pod = np.array([p for _, p in ordered], dtype=np.int32)
    restart_at = np.array([at for at, _ in ordered], dtype=np.int64)
    rules = Rules(
        int(policy.eviction),
        policy.window,
        policy.frequency_weight,
        policy.recency_weight,
        fleet.warm_load,
        fleet.cold_load,
    )
    change = _in_order(changes, fleet, trace)
    given = trace.pods_or_one()
    if chosen.rule != Rule.GIVEN:
        given = np.full(len(trace), -1, dtype=np.int32) if placed is None else _placed(placed, trace)
    room = 64
    while True:
        state = fleet.pods(trace.pods, trace.adapters)
        log = empty_log(len(trace), NEVER, several=fleet.pool_bytes is not None)
        seen = view(state, live=chosen.scrape == 0)
        at_desk = desk(chosen, trace.pods, trace.adapters)
        if fleet.name_hashes is None:
            again = np.full((8, len(change)), NEVER, dtype=np.int64)
            future = next_uses(trace) if known else np.empty(0, dtype=np.int64)
            _run(
                state,
                log,
                rules,
                at_desk,
                seen,
                chosen.scrape,
                trace.adapter,
                given,
                trace.at,
                trace.hold,
                future,
                restart_pod,
                restart_at,
                change,
                again,
            )
            again = again[:, again[0] != NEVER]
            break
        batch = batches.batch(fleet.name_hashes, state, len(trace), room, NEVER)
        batches.run_batches(
            state,
            log,
            rules,
            batch,
            at_desk,
            seen,
            chosen.scrape,
            trace.adapter,
            given,
            trace.at,
            trace.hold,
            restart_pod,
            restart_at,
            change,
        )
        again, room = batch.again[:, : batch.counted[1]], int(batch.counted[1])
        if again.shape[1] == room:
            break
    pod, start, end = log.codes[POD], log.times[START], log.times[END]
    for at, p in ordered:
        end[(pod == p) & (start < at) & (end > at)] = at
    pinned = fleet.pods(trace.pods, trace.adapters).cell[:, :, PINNED].sum(axis=1)
    preloads = int(pinned.sum() + sum(pinned[p] for _, p in ordered))
    lookup = log.codes[LOOKUP].astype(np.int8)
    return Outcome(
        pod,
        lookup,
        log.codes[SLOT],
        log.codes[VICTIM],
        log.codes[CPU_VICTIM],
        start,
        end,
        log.times[LEFT],
        trace.at,
        preloads,
        Reloads(*again),
        log.codes[MORE] if len(log.codes) > MORE else None,
    )


def _placed(placed: NDArray[np.int32], trace: Trace) -> NDArray[np.int32]:
    """The pods that requests are bound to. ValueError where there is not one, or −1, for each."""
    bound = np.ascontiguousarray(placed, dtype=np.int32)
    if bound.shape != (len(trace),) or not -1 <= bound.min(initial=0) <= bound.max(initial=0) < trace.pods:
        raise ValueError(f"placed is a pod below {trace.pods}, or −1, for each of {len(trace)} requests")
    return bound if bound.flags.writeable else bound.copy()


def _in_order(changes: Sequence[PinChange], fleet: Fleet, trace: Trace) -> NDArray[np.int64]:
    """The changes of pins by time: rows of at, pod, adapter, pinned. ValueError where they would pin every slot of a pod."""
    ordered = sorted(changes, key=lambda one: one.at)
    if not ordered:
        return np.empty((0, 4), dtype=np.int64)
    state = fleet.pods(trace.pods, trace.adapters)
    held: list[set[int]] = [set(np.flatnonzero(row).tolist()) for row in state.cell[:, :, PINNED]]
    for one in ordered:
        if not (0 <= one.pod < trace.pods and 0 <= one.adapter < trace.adapters):
            raise ValueError(f"a pin is of a pod below {trace.pods} and an adapter below {trace.adapters}, got {one}")
        (held[one.pod].add if one.pinned else held[one.pod].discard)(one.adapter)
        if one.pinned and len(held[one.pod]) >= state.pod[one.pod, SLOTS]:
            raise ValueError("a pod needs at least one slot without a pin, so that a miss can load")
    return np.array([(one.at, one.pod, one.adapter, one.pinned) for one in ordered], dtype=np.int64)
