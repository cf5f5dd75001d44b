from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.plain_engine import Name, PlainEngine
from replay.traces import ADAPTERS, QUICK, held, uses

from lora_watch.replay.batches import Batch, batch, in_set_order
from lora_watch.replay.cluster import NEVER, replay
from lora_watch.replay.compiled import compiled
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.policies import Eviction, Policy
from lora_watch.replay.routers import ROUND_ROBIN
from lora_watch.replay.state import IN_FLIGHT, Pods
from lora_watch.replay.trace import BASE, Trace

hashed = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 40) | st.integers(0, 5).map(lambda k: k << 40)
"""Hashes of names: any, near each other, and the same in their last bits."""
IN_ORDER = [0, 1, 2, 3, 4, 5, 6]
"""Hashes of which a small set makes the adapters' own order."""


@compiled
def ordered(pods: Pods, of: Batch) -> int:
    return in_set_order(pods, of, 0)


@QUICK
@given(st.lists(hashed, min_size=1, max_size=25), st.randoms(use_true_random=False))
def test_a_batch_is_in_the_order_of_pythons_own_set(hashes: list[int], random):
    names = [Name(a, h) for a, h in enumerate(hashes)]
    entered = random.sample(names, random.randint(1, len(names)))
    pods = Fleet(len(hashes)).pods(1, len(hashes))
    of = batch([hash(name) for name in names], pods, 1, 0, NEVER)
    for order, name in enumerate(entered, 1):
        of.entered[0, name.adapter] = order
        pods.cell[0, name.adapter, IN_FLIGHT] = 1
    assert of.members[: ordered(pods, of)].tolist() == [name.adapter for name in set(entered)]


@QUICK
@given(
    held(),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(1, 5),
    st.integers(0, 3),
    st.sets(st.integers(0, 6), max_size=2),
    st.lists(hashed, min_size=ADAPTERS, max_size=ADAPTERS),
)
def test_an_engine_does_what_the_plain_one_does(
    trace: Trace, slots: int, extra: int, seats: int, load: int, pins: set[int], hashes: list[int]
):
    hashes = [hash(Name(0, h)) for h in hashes]
    pinned = sorted(pins)[: slots - 1]
    of = [(0, a) for a in pinned]
    told = replay(trace, Fleet(slots, slots + extra, seats, pins=of, warm_load=load, cold_load=2 * load, name_hashes=hashes))
    plain = PlainEngine(slots, slots + extra, hashes, seats, pinned, load, 2 * load)
    expected = plain.play(trace.adapter.tolist(), trace.at.tolist(), trace.hold.tolist())
    columns = (told.lookup, told.slot, told.victim, told.cpu_victim, told.start, told.end)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    again = told.reloads
    columns = (again.at, again.adapter, again.lookup, again.slot, again.victim, again.cpu_victim)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == plain.reloads


@QUICK
@given(uses, st.integers(1, 4), st.integers(0, 3), st.lists(hashed, min_size=ADAPTERS, max_size=ADAPTERS))
def test_one_request_at_a_time_leaves_no_choice_to_the_hashes(adapter: list[int], slots: int, extra: int, hashes: list[int]):
    trace = Trace(adapter, adapters=ADAPTERS)
    one, two = replay(trace, Fleet(slots, slots + extra)), replay(trace, Fleet(slots, slots + extra, name_hashes=hashes))
    for name in ("lookup", "slot", "victim", "cpu_victim", "start", "end", "left"):
        assert getattr(one, name).tolist() == getattr(two, name).tolist()
    assert len(two.reloads) == 0


@QUICK
@given(held(), st.integers(1, 4), st.integers(0, 3), st.lists(hashed, min_size=ADAPTERS, max_size=ADAPTERS))
def test_every_stay_but_those_of_the_last_residents_ends_with_an_eviction(
    trace: Trace, slots: int, extra: int, hashes: list[int]
):
    told = replay(trace, Fleet(slots, slots + extra, name_hashes=hashes))
    left = [*told.left[told.lookup > 0].tolist(), *told.reloads.left.tolist()]
    victims = told.swaps + int((told.reloads.victim >= 0).sum())
    assert len(left) - left.count(NEVER) == victims
    assert 0 <= len(left) - victims <= slots


def engine(adapter: Sequence[int], at: Sequence[int], hold: Sequence[int], slots: int, hashes: Sequence[int]):
    return replay(Trace(adapter, adapters=len(hashes), at=at, hold=hold), Fleet(slots, len(hashes), name_hashes=hashes))


def test_an_adapter_of_the_batch_may_leave_for_another_of_it_and_come_back_in_the_same_step():
    """In set order 2, 0, 1: when 1 has ended, 2 comes first and takes the slot of 0, which was used before 1 and still runs."""
    told = engine([0, 1, 2], [0, 0, 5], [9, 5, 9], 2, [1, 2, 0])
    assert told.victim.tolist() == [-1, -1, 0]
    again = told.reloads
    assert (again.at.tolist(), again.adapter.tolist(), again.lookup.tolist()) == ([5], [0], [1])
    assert (again.slot.tolist(), again.victim.tolist(), again.left.tolist()) == ([1], [1], [NEVER])
    assert told.left.tolist() == [5, 5, NEVER]


def test_in_another_order_it_stays():
    told = engine([0, 1, 2], [0, 0, 5], [9, 5, 9], 2, IN_ORDER[:3])
    assert (told.victim.tolist(), len(told.reloads)) == ([-1, -1, 1], 0)


def test_of_adapters_that_end_together_the_first_in_set_order_leaves_first():
    assert engine([0, 1, 2], [0, 0, 7], [5, 5, 1], 2, [0, 1, 2]).victim.tolist() == [-1, -1, 0]
    assert engine([0, 1, 2], [0, 0, 7], [5, 5, 1], 2, [1, 0, 2]).victim.tolist() == [-1, -1, 1]


def test_what_comes_at_once_is_loaded_in_set_order():
    assert engine([0, 1, 2], [0, 0, 0], [1, 1, 1], 3, [2, 0, 1]).slot.tolist() == [2, 0, 1]


def test_the_base_model_has_no_part_in_the_order():
    told = engine([BASE, 0, BASE], [0, 0, 0], [3, 3, 0], 1, [0])
    assert (told.lookup.tolist(), told.slot.tolist()) == ([-1, 2, -1], [-1, 0, -1])


def test_a_restart_ends_the_stay_of_what_was_loaded_again():
    fleet = Fleet(2, 3, name_hashes=[1, 2, 0])
    told = replay(Trace([0, 1, 2], at=[0, 0, 5], hold=[9, 5, 9]), fleet, restarts=[(7, 0)])
    assert told.reloads.left.tolist() == [7]


def test_requests_without_a_length_take_turns_where_slots_are_few():
    told = engine([0, 1, 2], [0, 0, 0], [0, 0, 0], 1, IN_ORDER[:3])
    assert (told.start.tolist(), told.lookup.tolist(), told.victim.tolist()) == ([0, 0, 0], [2, 2, 2], [-1, 0, 1])


def test_there_is_no_limit_to_reloads():
    """2 follows on 1 a hundred times beside 0, which runs all the time and is loaded again each time."""
    turns = 100
    at = [0, *(10 * k + after for k in range(turns) for after in (0, 5))]
    told = engine([0] + [1, 2] * turns, at, [10 * turns] + [5, 3] * turns, 2, [1, 2, 0])
    assert told.reloads.at.tolist() == [10 * k + 5 for k in range(turns)]
    assert told.reloads.left[:-1].tolist() == told.reloads.at[1:].tolist()
    assert told.reloads.left[-1] == NEVER


def test_routers_and_scrapes_work_as_elsewhere():
    trace = Trace([0, 1, 0, 1], at=[0, 1, 2, 3], hold=[1, 1, 1, 1], pods=2)
    told = replay(trace, Fleet(1, name_hashes=[0, 1]), ROUND_ROBIN)
    assert (told.pod.tolist(), told.lookup.tolist()) == ([0, 1, 0, 1], [2, 2, 0, 0])


def test_hashes_go_with_lru_only():
    with pytest.raises(ValueError, match="evicts by LRU"):
        replay(Trace([0]), Fleet(1, policy=Policy(Eviction.LFU), name_hashes=[0]))


@pytest.mark.parametrize("hashes", [[0], [0, 1, 2], [0, 0.5], [0, 1 << 63], [[0], [1]]])
def test_there_is_one_hash_an_adapter_of_64_bits(hashes):
    with pytest.raises(ValueError, match="for each of 2 adapters"):
        replay(Trace([0, 1]), Fleet(1, name_hashes=hashes))


def test_a_trace_without_adapters_needs_no_hash():
    assert replay(Trace([BASE], adapters=0), Fleet(1, name_hashes=[])).uses == 0


def test_without_hashes_nothing_is_loaded_again():
    assert len(replay(Trace([0, 1, 2], at=[0, 0, 5], hold=[9, 5, 9]), Fleet(2)).reloads) == 0
