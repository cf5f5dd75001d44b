from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.plain_pod import PlainPod
from replay.traces import ADAPTERS, QUICK, held, placed

from lora_watch.replay.cluster import NEVER, Outcome, replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import BASE, Trace


def residents(trace: Trace, told: Outcome, pins: tuple[tuple[int, int], ...] = ()) -> list[set[tuple[int, int]]]:
    """(pod, adapter) in slots after each request, by its loads and evictions alone."""
    inside, history, order = set(pins), [], told.order
    columns = (told.pod, trace.adapter, told.lookup, told.victim)
    for p, a, lookup, victim in zip(*(column[order] for column in columns), strict=True):
        inside -= {(int(p), int(victim))}
        if lookup > 0:
            assert (int(p), int(a)) not in inside
            inside.add((int(p), int(a)))
        assert a < 0 or (int(p), int(a)) in inside
        history.append(set(inside))
    return history


def test_lru_evicts_the_least_recently_used():
    told = replay(Trace([0, 1, 0, 2, 1]), Fleet(2))
    assert told.lookup.tolist() == [2, 2, 0, 2, 2]
    assert told.victim.tolist() == [-1, -1, -1, 1, 0]
    assert told.slot.tolist() == [0, 1, 0, 1, 0]
    assert (told.loads, told.swaps, told.uses, told.preloads) == (4, 2, 5, 0)


def test_with_a_cpu_cache_what_left_a_slot_is_warm():
    told = replay(Trace([0, 1, 0, 2, 0]), Fleet(1, cpu_capacity=2))
    assert told.lookup.tolist() == [2, 2, 1, 2, 1]
    assert told.cpu_victim.tolist() == [-1, -1, -1, 1, -1]


def test_without_one_every_miss_reads_the_disk():
    told = replay(Trace([0, 1, 0]), Fleet(1))
    assert told.lookup.tolist() == [2, 2, 2]
    assert told.cpu_victim.tolist() == told.victim.tolist() == [-1, 0, 1]


def test_what_the_cpu_cache_evicts_leaves_its_slot_and_no_other_goes():
    told = replay(Trace([0, 1, 2]), Fleet(2, cpu_capacity=2, pins=[(0, 1)]))
    assert told.victim.tolist() == told.cpu_victim.tolist() == [-1, -1, 0]


def test_the_base_model_takes_no_slot():
    told = replay(Trace([0, BASE, 0]), Fleet(1))
    assert (told.lookup.tolist(), told.slot.tolist()) == ([2, -1, 0], [0, -1, 0])
    assert replay(Trace([BASE], adapters=0), Fleet(1)).uses == 0


def test_each_pod_may_have_its_own_slots():
    trace = Trace([0, 1, 0, 0, 1, 0], pod=[0, 0, 0, 1, 1, 1])
    assert replay(trace, Fleet([1, 2])).lookup.tolist() == [2, 2, 2, 2, 2, 0]


def test_a_restart_empties_both_tiers_and_loads_pins_again():
    told = replay(Trace([0, 1, 0], at=[0, 1, 10]), Fleet(2, cpu_capacity=3, pins=[(0, 1)]), restarts=[(10, 0)])
    assert (told.lookup.tolist(), told.preloads) == ([2, 0, 2], 2)


def test_a_restart_cuts_what_ran_and_drops_what_waited():
    told = replay(Trace([0, 1, 1], at=[0, 1, 6], hold=[10, 10, 10]), Fleet(1), restarts=[(5, 0)])
    assert told.start.tolist() == [0, NEVER, 6]
    assert told.end.tolist() == [5, NEVER, 16]
    assert (told.uses, told.blocked.tolist()) == (2, [False, True, False])


def test_a_restart_behind_the_last_arrival_cuts_too():
    assert replay(Trace([0], at=[0], hold=[10]), Fleet(1), restarts=[(4, 0), (5, 0)]).end.tolist() == [4]


@QUICK
@given(held(), st.integers(1, 3), st.integers(0, 3), st.integers(1, 5), st.integers(0, 3), st.sets(st.integers(0, 6), max_size=2))
def test_a_pod_does_what_the_plain_one_does(trace: Trace, slots: int, extra: int, seats: int, load: int, pins: set[int]):
    pinned = sorted(pins)[: slots - 1]
    fleet = Fleet(slots, slots + extra, seats, pins=[(0, a) for a in pinned], warm_load=load, cold_load=2 * load)
    told = replay(trace, fleet)
    plain = PlainPod(slots, slots + extra, seats, pinned, load, 2 * load)
    expected = plain.play(trace.adapter.tolist(), trace.at.tolist(), trace.hold.tolist())
    assert list(zip(told.lookup, told.victim, told.start, told.end, strict=True)) == expected


@QUICK
@given(placed(), st.integers(1, 4), st.integers(0, 3), st.sets(st.tuples(st.integers(0, 2), st.integers(0, 6)), max_size=4))
def test_residents_never_exceed_slots_and_pins_never_leave(trace: Trace, slots: int, extra: int, wanted: set[tuple[int, int]]):
    pins = tuple(pin for pin in sorted(wanted) if sum(p == pin[0] for p, _ in wanted) < slots)
    told = replay(trace, Fleet(slots, slots + extra, pins=pins))
    for inside in residents(trace, told, pins):
        assert max(Counter(p for p, _ in inside).values(), default=0) <= slots
        assert set(pins) <= inside
    assert told.loads <= told.uses


@QUICK
@given(placed(), st.integers(1, 4), st.integers(0, 3), st.permutations(range(ADAPTERS)))
def test_relabelling_adapters_changes_nothing(trace: Trace, slots: int, extra: int, names: list[int]):
    code = np.array([*names, -1])
    other = Trace(code[trace.adapter], adapters=ADAPTERS, pod=trace.pod, pods=trace.pods, at=trace.at)
    one, two = (replay(t, Fleet(slots, slots + extra)) for t in (trace, other))
    assert one.lookup.tolist() == two.lookup.tolist()
    assert code[one.victim].tolist() == two.victim.tolist()


@QUICK
@given(placed(pods=2), st.integers(1, 3), st.integers(0, 60))
def test_a_trace_may_be_split_where_every_pod_restarts(trace: Trace, slots: int, where: int):
    when = int(trace.at[where]) if where < len(trace) else 1 << 50
    first = np.searchsorted(trace.at, when)
    whole = replay(trace, Fleet(slots, slots + 2), restarts=[(when, 0), (when, 1)])
    parts = [
        replay(
            Trace(trace.adapter[piece], adapters=ADAPTERS, pod=trace.pods_or_one()[piece], pods=2, at=trace.at[piece]),
            Fleet(slots, slots + 2),
        )
        for piece in (slice(None, first), slice(first, None))
    ]
    for name in ("lookup", "slot", "victim", "cpu_victim", "start"):
        assert getattr(whole, name).tolist() == [*getattr(parts[0], name), *getattr(parts[1], name)]


@QUICK
@given(held(), st.integers(1, 3))
def test_pods_do_not_disturb_each_other(trace: Trace, slots: int):
    pod = np.arange(len(trace)) % 2
    both = Trace(trace.adapter, adapters=ADAPTERS, pod=pod, pods=2, at=trace.at, hold=trace.hold)
    told = replay(both, Fleet(slots))
    for p in range(2):
        own = pod == p
        alone = replay(Trace(trace.adapter[own], adapters=ADAPTERS, at=trace.at[own], hold=trace.hold[own]), Fleet(slots))
        assert told.start[own].tolist() == alone.start.tolist()
        assert told.victim[own].tolist() == alone.victim.tolist()


@QUICK
@given(held(), st.integers(1, 3))
def test_adapters_in_flight_at_once_never_exceed_slots(trace: Trace, slots: int):
    told = replay(trace, Fleet(slots))
    spans = [(s, e, a) for s, e, a in zip(told.start, told.end, trace.adapter, strict=True) if a >= 0 and e > s]
    for moment, _, _ in spans:
        assert len({a for s, e, a in spans if s <= moment < e}) <= slots


@pytest.mark.parametrize(
    ("fleet", "complaint"),
    [
        (Fleet(0), "slots is one number from 1"),
        (Fleet([1, 2, 3]), "slots is one number from 1"),
        (Fleet(1 << 31), "slots is one number from 1"),
        (Fleet(2, cpu_capacity=1), "in a slot is in the CPU cache"),
        (Fleet(1, seats=0), "seats is one number from 1"),
        (Fleet(2, pins=[(0, 5)]), "a pin is"),
        (Fleet(2, pins=[(0, 0), (0, 1)]), "one slot without a pin"),
        (Fleet(1, warm_load=2, cold_load=1), "as long as a warm one"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(fleet: Fleet, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        replay(Trace([0, 1], pods=2), fleet)


def test_a_restart_of_an_unknown_pod_is_refused():
    with pytest.raises(ValueError, match="a restart is"):
        replay(Trace([0]), Fleet(1), restarts=[(0, 1)])


@QUICK
@given(held(), st.integers(1, 3), st.integers(0, 3))
def test_loads_and_evictions_follow_from_the_order_of_starts(trace: Trace, slots: int, extra: int):
    assert all(len(inside) <= slots for inside in residents(trace, replay(trace, Fleet(slots, slots + extra, cold_load=2))))


def test_a_stay_lasts_from_its_load_to_its_eviction_or_a_restart():
    told = replay(Trace([0, 1, 0, 1, 1], at=[0, 5, 7, 9, 30]), Fleet(1, cpu_capacity=3), restarts=[(20, 0)])
    assert told.left.tolist() == [5, 7, 9, 20, NEVER]


@QUICK
@given(placed(), st.integers(1, 4))
def test_stays_add_up_to_the_occupied_slot_time(trace: Trace, slots: int):
    told = replay(trace, Fleet(slots))
    last = int(trace.at[-1]) if len(trace) else 0
    occupied = [len(inside) for inside in residents(trace, told)]
    loaded = told.lookup > 0
    stays = np.where(told.left == NEVER, last, told.left)[loaded] - told.start[loaded]
    assert stays.sum() == np.dot(np.diff(trace.at), occupied[:-1])


def test_a_cpu_cache_of_any_size_takes_no_more_memory_than_the_adapters():
    assert replay(Trace([0, 1, 2, 0]), Fleet(1, cpu_capacity=2**31 - 1)).lookup.tolist() == [2, 2, 2, 1]
    assert replay(Trace([0, 1, 2, 0]), Fleet(2**31 - 1)).loads == 3


def test_all_pairs_of_three_adapters_fit_two_slots_once_loaded():
    for pair in combinations(range(3), 2):
        assert replay(Trace([*pair, *pair, *pair]), Fleet(2)).loads == 2
