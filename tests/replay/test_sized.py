"""Pools of bytes: against a pool written for reading, against slots where sizes are equal, and gains against two replays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.traces import ADAPTERS, QUICK, placed, uses

from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.pin_gains import pin_gains
from lora_watch.replay.sized import sized_pin_gains, sized_replay
from lora_watch.replay.trace import BASE, Trace

sizes = st.lists(st.integers(1, 9), min_size=ADAPTERS, max_size=ADAPTERS)
pinned = st.lists(st.integers(0, ADAPTERS - 1), max_size=3, unique=True)


def plain(adapter: list[int], capacity: int, size: list[int], pins: list[int]) -> tuple[list[bool], list[int], int]:
    """A list of residents, the least recently used first; told are the loads, who left for each, and the most bytes held."""
    inside: list[int] = []
    fixed = sum(size[a] for a in pins)
    loaded, evicted, most = [], [], fixed
    for a in adapter:
        missed, left = a not in inside and a not in pins, 0
        if a not in pins:
            if a in inside:
                inside.remove(a)
            while inside and sum(size[one] for one in inside) + size[a] + fixed > capacity:
                inside.pop(0)
                left += 1
            if size[a] + fixed <= capacity:
                inside.append(a)
        loaded.append(missed)
        evicted.append(left)
        most = max(most, fixed + sum(size[one] for one in inside))
    return loaded, evicted, most


def fits(capacity: int, size: list[int], pins: list[int]) -> list[int]:
    """As many of the pins as leave a byte."""
    kept: list[int] = []
    for a in pins:
        if sum(size[one] for one in [*kept, a]) < capacity:
            kept.append(a)
    return kept


@QUICK
@given(uses, st.integers(1, 30), sizes, pinned)
def test_a_pool_does_what_a_list_of_residents_does(adapter: list[int], capacity: int, size: list[int], wanted: list[int]):
    pins = fits(capacity, size, wanted)
    told = sized_replay(Trace(adapter, adapters=ADAPTERS), capacity, size, [(0, a) for a in pins])
    loaded, evicted, most = plain(adapter, capacity, size, pins)
    assert (told.loaded.tolist(), told.evicted.tolist(), int(told.most_bytes[0])) == (loaded, evicted, most)
    assert (told.loads, told.swaps, told.preloads) == (sum(loaded), sum(evicted), len(pins))


@QUICK
@given(placed(), st.lists(st.integers(1, 30), min_size=3, max_size=3), sizes)
def test_a_pool_never_holds_more_than_its_capacity(trace: Trace, capacity: list[int], size: list[int]):
    assert (sized_replay(trace, capacity, size).most_bytes <= capacity).all()


@QUICK
@given(placed(), st.integers(1, 9), st.integers(1, 5), st.integers(0, 4), st.booleans())
def test_equal_sizes_are_slots(trace: Trace, size: int, slots: int, rest: int, with_pin: bool):
    pins = [(0, 2)] if with_pin and slots > 1 else []
    told = sized_replay(trace, slots * size + min(rest, size - 1), [size] * ADAPTERS, pins)
    same = replay(trace, Fleet(slots, pins=pins))
    assert told.loaded.tolist() == (same.lookup > 0).tolist()
    assert told.evicted.tolist() == (same.victim >= 0).tolist()


@QUICK
@given(placed(), st.integers(2, 5), st.integers(1, 9))
def test_gains_of_equal_sizes_are_those_of_slots(trace: Trace, slots: int, size: int):
    assert (sized_pin_gains(trace, slots * size, [size] * ADAPTERS) == pin_gains(trace, slots)).all()


@QUICK
@given(placed(2), st.integers(2, 30), sizes, pinned, st.lists(st.integers(0, 9), min_size=ADAPTERS, max_size=ADAPTERS))
def test_every_gain_is_the_difference_of_two_replays(
    trace: Trace, capacity: int, size: list[int], wanted: list[int], costs: list[int]
):
    pins = [(0, a) for a in fits(capacity, size, wanted)]
    cost = np.array(costs, dtype=np.float64)
    gains, plain_gains = sized_pin_gains(trace, capacity, size, pins, cost), sized_pin_gains(trace, capacity, size, pins)
    before = sized_replay(trace, capacity, size, pins).loaded
    for p in range(2):
        for a in range(ADAPTERS):
            if (p, a) in pins:
                assert gains[p, a] == plain_gains[p, a] == 0
            elif sum(size[b] for q, b in pins if q == p) + size[a] >= capacity:
                assert gains[p, a] == plain_gains[p, a] == -np.inf
            else:
                after = sized_replay(trace, capacity, size, [*pins, (p, a)]).loaded
                assert plain_gains[p, a] == before.sum() - after.sum()
                assert gains[p, a] == cost[trace.adapter[before]].sum() - cost[trace.adapter[after]].sum()


@QUICK
@given(placed(), st.integers(1, 30), sizes)
def test_more_bytes_never_load_more(trace: Trace, capacity: int, size: list[int]):
    assert sized_replay(trace, capacity + 3, size).loads <= sized_replay(trace, capacity, size).loads


def test_what_does_not_fit_is_loaded_at_each_use_and_everything_leaves_for_it():
    told = sized_replay(Trace([0, 1, 1, 0]), 10, [4, 11])
    assert (told.loaded.tolist(), told.evicted.tolist(), told.most_bytes.tolist()) == ([True] * 4, [0, 1, 0, 0], [4])


def test_a_large_adapter_makes_several_small_ones_leave():
    assert sized_replay(Trace([0, 1, 2, 3]), 10, [3, 3, 3, 8]).evicted.tolist() == [0, 0, 0, 3]


def test_requests_for_the_base_model_take_no_bytes():
    assert sized_replay(Trace([BASE, 0, BASE]), 5, [5]).loads == 1
    assert sized_replay(Trace([BASE], adapters=0), 5, []).loads == 0


def test_sizes_that_nobody_may_write_to_are_read():
    size = np.array([1, 2])
    size.flags.writeable = False
    assert sized_replay(Trace([0, 1]), 3, size).loads == 2


@pytest.mark.parametrize(
    ("capacity", "size", "pins", "complaint"),
    [
        (0, [1, 1], [], "capacity is bytes"),
        ([1, 2], [1, 1], [], "capacity is bytes"),
        (5, [1], [], "a size is whole bytes"),
        (5, [1, 0], [], "a size is whole bytes"),
        (5, [1.5, 1.0], [], "a size is whole bytes"),
        (5, [1, 1], [(0, 2)], "a pin is"),
        (5, [5, 1], [(0, 0)], "bytes that are not pinned"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(capacity, size, pins, complaint):
    with pytest.raises(ValueError, match=complaint):
        sized_replay(Trace([0, 1]), capacity, size, pins)


def test_a_cost_below_zero_is_refused():
    with pytest.raises(ValueError, match="a load costs"):
        sized_pin_gains(Trace([0, 1]), 2, [1, 1], cost=[1, -1])
