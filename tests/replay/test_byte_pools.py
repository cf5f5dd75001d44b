"""Pools of bytes with the router in the loop: against a pool written for reading, against slots, and against given pods."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.plain_pod import PlainPod
from replay.traces import ADAPTERS, QUICK, held, placed

from lora_watch.replay.cluster import NEVER, Outcome, PinChange, replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.policies import Eviction, Policy
from lora_watch.replay.routers import ARTICLE, LLM_D, LLM_D_RESIDENCY, RANDOM, ROUND_ROBIN, Router
from lora_watch.replay.sized import sized_replay
from lora_watch.replay.trace import BASE, Trace

sizes = st.lists(st.integers(1, 9), min_size=ADAPTERS, max_size=ADAPTERS)
routers = st.sampled_from(
    [ROUND_ROBIN, RANDOM, ARTICLE, Router(scrape=3, coalesce=True), LLM_D, LLM_D_RESIDENCY, Router(max_queue=1, seed=7)]
)


@dataclass
class PlainPool(PlainPod):
    """The plain pod with bytes in the place of slots; told for a request are also how many left for it."""

    size: tuple[int, ...] = ()

    def filled(self, tier: list[int]) -> int:
        return sum(self.size[a] for a in tier)

    def start(self, request: int, adapter: int, hold: int, now: int) -> bool:
        if len(self.running) >= self.seats:
            return False
        lookup, left, end = -1, [], now + hold
        if adapter >= 0:
            lookup = 0 if adapter in self.gpu else 1 if adapter in self.cpu else 2
            fixed = self.filled(self.gpu) - self.filled(self.evictable(self.gpu))
            if lookup and fixed + self.size[adapter] > self.slots:
                return False
            while lookup == 2 and self.filled(self.cpu) + self.size[adapter] > self.cpu_capacity:
                dropped = self.evictable(self.cpu)[0]
                self.cpu.remove(dropped)
                if dropped in self.gpu:
                    self.gpu.remove(dropped)
                    left.append(dropped)
            while lookup and self.filled(self.gpu) + self.size[adapter] > self.slots:
                left.append(self.evictable(self.gpu)[0])
                self.gpu.remove(left[-1])
            if lookup == 2:
                self.cpu.append(adapter)
            if lookup:
                self.gpu.append(adapter)
                self.ready[adapter] = now + (self.warm_load, self.cold_load)[lookup - 1]
            end = max(now, self.ready.get(adapter, now)) + hold
            self.touch(adapter)
        if end > now:
            self.running.append((end, request, adapter))
        self.told[request] = (lookup, len(left), now, end)
        return True


def fits(capacity: int, size: list[int], wanted: set[int]) -> list[int]:
    """As many of the pins as leave room for every other adapter."""
    kept: list[int] = []
    for a in sorted(wanted):
        others = [size[other] for other in range(ADAPTERS) if other not in (*kept, a)]
        if sum(size[one] for one in [*kept, a]) + max(others) <= capacity:
            kept.append(a)
    return kept


def same(one: Outcome, two: Outcome) -> bool:
    """Whether two replays tell the same of every request."""
    names = ("pod", "lookup", "slot", "victim", "cpu_victim", "start", "end", "left", "evicted")
    return all(getattr(one, name).tolist() == getattr(two, name).tolist() for name in names)


@QUICK
@given(
    held(),
    st.integers(0, 12),
    st.integers(0, 20),
    sizes,
    st.integers(1, 5),
    st.integers(0, 3),
    st.sets(st.integers(0, ADAPTERS - 1), max_size=3),
)
def test_a_pool_does_what_the_plain_one_does(
    trace: Trace, more: int, cache: int, size: list[int], seats: int, load: int, wanted: set[int]
):
    capacity = max(size) + more
    pins = fits(capacity, size, wanted)
    fleet = Fleet(
        cpu_capacity=capacity + cache,
        seats=seats,
        pins=[(0, a) for a in pins],
        warm_load=load,
        cold_load=2 * load,
        pool_bytes=capacity,
        sizes=size,
    )
    told = replay(trace, fleet)
    plain = PlainPool(capacity, capacity + cache, seats, pins, load, 2 * load, size=tuple(size))
    expected = plain.play(trace.adapter.tolist(), trace.at.tolist(), trace.hold.tolist())
    assert list(zip(told.lookup, told.evicted, told.start, told.end, strict=True)) == expected
    assert told.swaps == sum(left for _, left, _, _ in expected)


def spread(trace: Trace, adapters: int = ADAPTERS) -> Trace:
    """The requests of one pod for a router to send to three."""
    return Trace(trace.adapter, adapters=adapters, pods=3, at=trace.at, hold=trace.hold)


@QUICK
@given(
    held(),
    routers,
    st.lists(st.integers(1, 4), min_size=3, max_size=3),
    st.integers(1, 9),
    st.integers(0, 8),
    st.integers(0, 2),
    st.sampled_from(list(Eviction)[:3]),
    st.booleans(),
)
def test_equal_sizes_are_slots_with_any_router_and_with_holds(
    trace: Trace, router: Router, slots: list[int], size: int, rest: int, load: int, rule: Eviction, with_pin: bool
):
    pins = [(0, 2)] if with_pin and slots[0] > 1 else []
    policy = Policy(rule, window=20)
    one = Fleet(slots, policy=policy, pins=pins, cold_load=load)
    pool_bytes = [each * size + min(rest, size - 1) for each in slots]
    two = Fleet(policy=policy, pins=pins, cold_load=load, pool_bytes=pool_bytes, sizes=[size] * ADAPTERS)
    released = [PinChange(15, *pin, pinned=False) for pin in pins]
    told, equal = (replay(spread(trace), fleet, router, [(25, 1)], changes=released) for fleet in (one, two))
    assert same(told, equal)


@QUICK
@given(held(), routers, st.integers(2, 4), st.integers(1, 9), st.integers(0, 3))
def test_what_nobody_asks_for_makes_equal_sizes_no_less_slots(trace: Trace, router: Router, slots: int, size: int, extra: int):
    one = Fleet(slots, slots + extra)
    two = Fleet(cpu_capacity=(slots + extra) * size, pool_bytes=slots * size, sizes=[*[size] * ADAPTERS, size + 1])
    assert same(replay(spread(trace), one, router), replay(spread(trace, ADAPTERS + 1), two, router))


@QUICK
@given(placed(), st.lists(st.integers(0, 20), min_size=3, max_size=3), sizes, st.sets(st.integers(0, ADAPTERS - 1), max_size=3))
def test_without_holds_on_given_pods_it_is_the_replay_of_sizes(trace: Trace, more: list[int], size: list[int], wanted: set[int]):
    capacity = [max(size) + each for each in more]
    pins = [(1, a) for a in fits(capacity[1], size, wanted)]
    told = replay(trace, Fleet(pins=pins, pool_bytes=capacity, sizes=size))
    known = sized_replay(trace, capacity, size, pins)
    assert (told.lookup > 0).tolist() == known.loaded.tolist()
    assert told.evicted.tolist() == known.evicted.tolist()


def most_bytes(told: Outcome, trace: Trace, size: list[int]) -> dict[int, int]:
    """By pod: the most that stays hold at once, where one that ends makes room for one that begins at the same µs."""
    loaded = told.lookup > 0
    begin, end, pod, taken = told.start[loaded], told.left[loaded], told.pod[loaded], np.array(size)[trace.adapter[loaded]]
    end = np.where(end == NEVER, 1 << 60, end)
    return {
        p: max((int(taken[(pod == p) & (begin <= t) & (t < end)].sum()) for t in begin[pod == p]), default=0)
        for p in range(trace.pods)
    }


@QUICK
@given(held(), routers, st.integers(0, 12), sizes, st.integers(0, 3), st.sets(st.integers(0, ADAPTERS - 1), max_size=3))
def test_a_pool_never_holds_more_than_its_capacity(
    trace: Trace, router: Router, more: int, size: list[int], load: int, wanted: set[int]
):
    capacity = max(size) + more
    pins = fits(capacity, size, wanted)
    fleet = Fleet(cold_load=load, pool_bytes=capacity, sizes=size, pins=[(0, a) for a in pins])
    told = replay(spread(trace), fleet, router, restarts=[(20, 2)])
    fixed = sum(size[a] for a in pins)
    held_most = most_bytes(told, trace=spread(trace), size=size)
    assert held_most[0] + fixed <= capacity
    assert max(held_most.values()) <= capacity
    assert not (told.lookup[(told.pod == 0) & np.isin(trace.adapter, pins)] > 0).any()


@QUICK
@given(held(), routers, st.integers(0, 12), sizes)
def test_who_is_in_flight_never_leaves(trace: Trace, router: Router, more: int, size: list[int]):
    told = replay(spread(trace), Fleet(pool_bytes=max(size) + more, sizes=size), router)
    for loaded in np.flatnonzero((told.lookup > 0) & (told.left != NEVER)):
        during = (told.pod == told.pod[loaded]) & (trace.adapter == trace.adapter[loaded])
        assert not (during & (told.start < told.left[loaded]) & (told.end > told.left[loaded])).any()


@QUICK
@given(held(), routers, st.integers(0, 12), sizes)
def test_every_request_starts_in_the_end(trace: Trace, router: Router, more: int, size: list[int]):
    assert (replay(spread(trace), Fleet(pool_bytes=max(size) + more, sizes=size), router).start != NEVER).all()


@QUICK
@given(placed(1), st.integers(1, 4), st.integers(1, 9), st.integers(0, 20))
def test_more_bytes_never_miss_more_where_sizes_are_equal(trace: Trace, slots: int, size: int, more: int):
    less, larger = (Fleet(pool_bytes=room, sizes=[size] * ADAPTERS) for room in (slots * size, slots * size + more))
    assert replay(trace, larger).loads <= replay(trace, less).loads


def test_several_leave_for_a_large_one_and_each_is_a_swap():
    told = replay(Trace([0, 1, 2, 3, 1]), Fleet(pool_bytes=10, sizes=[3, 3, 3, 8]))
    assert told.evicted.tolist() == [0, 0, 0, 3, 1]
    assert told.victim.tolist() == [-1, -1, -1, 2, 3]
    assert told.left.tolist() == [3_000_000, 3_000_000, 3_000_000, 4_000_000, NEVER]
    assert (told.loads, told.swaps) == (5, 4)


def test_only_as_many_leave_as_it_takes():
    assert replay(Trace([0, 1, 2, 3]), Fleet(pool_bytes=10, sizes=[3, 3, 3, 4])).evicted.tolist() == [0, 0, 0, 1]


def test_a_large_one_waits_and_makes_none_leave_while_too_much_is_in_flight():
    told = replay(Trace([0, 1, 2], at=[0, 1, 2], hold=[0, 10, 5]), Fleet(pool_bytes=10, sizes=[3, 3, 8]))
    assert told.start.tolist() == [0, 1, 11]
    assert told.left.tolist() == [11, 11, NEVER]
    assert told.evicted.tolist() == [0, 0, 2]


def test_who_waits_for_many_bytes_is_passed_by_who_needs_few():
    trace = Trace([0, 2, 1], at=[0, 1, 2], hold=[10, 5, 1])
    assert replay(trace, Fleet(pool_bytes=10, sizes=[6, 3, 8])).start.tolist() == [0, 10, 2]


def test_what_leaves_the_cache_leaves_the_pool_and_no_more_goes_than_must():
    fleet = Fleet(cpu_capacity=12, pool_bytes=10, sizes=[4, 4, 6])
    told = replay(Trace([0, 1, 2, 0, 1]), fleet)
    assert told.lookup.tolist() == [2, 2, 2, 2, 2]
    assert told.evicted.tolist() == [0, 0, 1, 1, 1]
    warm = replay(Trace([0, 1, 2, 0, 1]), Fleet(cpu_capacity=14, pool_bytes=10, sizes=[4, 4, 6]))
    assert warm.lookup.tolist() == [2, 2, 2, 1, 1]


def test_the_base_model_takes_no_bytes():
    assert replay(Trace([0, BASE, 0]), Fleet(pool_bytes=5, sizes=[5])).lookup.tolist() == [2, -1, 0]
    assert replay(Trace([BASE], adapters=0), Fleet(pool_bytes=5, sizes=[])).uses == 0


@pytest.mark.parametrize("full", [0, 1])
def test_a_router_sees_bytes_and_sends_an_adapter_where_it_fits(full: int):
    sent = np.array([full, 1 - full, -1], dtype=np.int32)
    told = replay(Trace([0, 1, 2], pods=2), Fleet(pool_bytes=10, sizes=[9, 3, 5]), ARTICLE, placed=sent)
    assert (told.pod[2], told.evicted[2]) == (1 - full, 0)


@pytest.mark.parametrize("full", [0, 1])
def test_bytes_in_flight_are_no_room_for_a_router_that_knows_residency(full: int):
    trace = Trace([0, 1, 2, 3], pods=2, at=[0, 0, 0, 1], hold=[9, 9, 0, 0])
    sent = np.array([full, 1 - full, 1 - full, -1], dtype=np.int32)
    told = replay(trace, Fleet(pool_bytes=10, sizes=[9, 3, 7, 5]), LLM_D_RESIDENCY, placed=sent)
    assert (told.pod[3], told.start[3], told.evicted[3]) == (1 - full, 1, 1)


@pytest.mark.parametrize(
    ("fleet", "complaint"),
    [
        (Fleet(), "a fleet has slots, or pool_bytes and sizes"),
        (Fleet(2, sizes=[1, 1]), "a fleet has slots, or pool_bytes and sizes"),
        (Fleet(2, pool_bytes=2, sizes=[1, 1]), "a pool of bytes has no slots"),
        (Fleet(pool_bytes=2), "sizes in whole bytes for each of 2 adapters"),
        (Fleet(pool_bytes=2, sizes=[1]), "sizes in whole bytes for each of 2 adapters"),
        (Fleet(pool_bytes=0, sizes=[1, 1]), "pool_bytes is one number from 1"),
        (Fleet(pool_bytes=1 << 43, sizes=[1, 1]), "pool_bytes is one number from 1"),
        (Fleet(pool_bytes=2, sizes=[1, 0]), "adapter 1 has 0 bytes"),
        (Fleet(pool_bytes=[9, 5], sizes=[1, 7]), "adapter 1 has 7 bytes: it never fits a pool of 5"),
        (Fleet(pool_bytes=5, sizes=[3, 4], pins=[(1, 0)]), "pins leave 2 of 5 bytes on pod 1: adapter 1 has 4"),
        (Fleet(pool_bytes=5, sizes=[3, 4], pins=[(1, 0), (1, 1)]), "pins leave -2 of 5 bytes on pod 1"),
        (Fleet(pool_bytes=5, sizes=[3, 4], cpu_capacity=4), "what is in a pool is in the CPU cache"),
        (Fleet(pool_bytes=5, sizes=[1, 1], policy=Policy(Eviction.MIN)), "a pool of bytes knows no MIN"),
        (Fleet(pool_bytes=5, sizes=[1, 1], name_hashes=[1, 2]), "no steps of vLLM"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(fleet: Fleet, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        replay(Trace([0, 1], pod=[0, 1]), fleet)


def test_a_pin_that_ended_leaves_when_its_bytes_are_needed():
    fleet = Fleet(pool_bytes=10, sizes=[4, 6, 5], pins=[(0, 0)])
    trace, ended = Trace([1, 2, 1, 0]), [PinChange(1_500_000, 0, 0, pinned=False)]
    assert replay(trace, fleet).evicted.tolist() == [0, 1, 1, 0]
    assert replay(trace, fleet, changes=ended).evicted.tolist() == [0, 1, 2, 0]
    assert replay(trace, fleet, changes=ended).lookup.tolist() == [2, 2, 2, 2]


def test_pins_that_begin_meanwhile_are_refused():
    with pytest.raises(ValueError, match="pins that begin meanwhile"):
        replay(Trace([0, 1]), Fleet(pool_bytes=5, sizes=[1, 1]), changes=[PinChange(0, 0, 1, pinned=True)])
