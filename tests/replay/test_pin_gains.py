"""The gain of a pin against the difference of two replays, for every candidate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.traces import ADAPTERS, QUICK, placed

from lora_watch.replay.cluster import Outcome, replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.pin_gains import pin_gains, pin_gains_by_block
from lora_watch.replay.trace import BASE, Trace

PODS = 3


@st.composite
def pinned_fleets(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Slots of each pod, and pins that leave it one at least."""
    slots = draw(st.lists(st.integers(1, ADAPTERS + 2), min_size=PODS, max_size=PODS))
    pins = [
        (p, a)
        for p, count in enumerate(slots)
        for a in draw(st.lists(st.integers(0, ADAPTERS - 1), max_size=min(count - 1, ADAPTERS), unique=True))
    ]
    return slots, pins


def cost_of(told: Outcome, trace: Trace, cost: np.ndarray) -> float:
    return float(cost[trace.adapter[told.lookup > 0]].sum())


@QUICK
@given(placed(PODS), pinned_fleets(), st.lists(st.integers(0, 9), min_size=ADAPTERS, max_size=ADAPTERS))
def test_every_gain_is_the_difference_of_two_replays(
    trace: Trace, fleet: tuple[list[int], list[tuple[int, int]]], costs: list[int]
):
    slots, pins = fleet
    cost = np.array(costs, dtype=np.float64)
    plain, weighted = pin_gains(trace, slots, pins), pin_gains(trace, slots, pins, cost)
    before = replay(trace, Fleet(slots, pins=pins))
    for p in range(PODS):
        for a in range(ADAPTERS):
            if (p, a) in pins:
                assert plain[p, a] == weighted[p, a] == 0
            elif sum(q == p for q, _ in pins) == slots[p] - 1:
                assert plain[p, a] == weighted[p, a] == -np.inf
            else:
                after = replay(trace, Fleet(slots, pins=[*pins, (p, a)]))
                assert plain[p, a] == before.loads - after.loads
                assert weighted[p, a] == cost_of(before, trace, cost) - cost_of(after, trace, cost)


@QUICK
@given(placed(PODS), st.integers(2, 5), st.lists(st.integers(0, 60), max_size=4))
def test_blocks_add_up(trace: Trace, slots: int, cuts: list[int]):
    edges = [0, *sorted(min(cut, len(trace)) for cut in cuts), len(trace)]
    assert (pin_gains_by_block(trace, slots, edges=edges).sum(axis=0) == pin_gains(trace, slots)).all()


def test_in_a_ring_one_slot_too_long_any_pin_saves_its_own_loads_but_the_first():
    assert pin_gains(Trace([0, 1, 2] * 10), 2).tolist() == [[10, 10, 10]]


def test_a_ghost_costs_the_hits_on_the_last_place():
    gains = pin_gains(Trace([0, 1, 0, 1, 0, 1], adapters=3), 2)
    assert gains[0, 2] == -4


def test_where_everything_fits_a_pin_saves_the_first_load_only():
    assert pin_gains(Trace([0, 1, 0, 1, 0, 1]), 3).tolist() == [[1, 1]]


def test_requests_for_the_base_model_are_no_uses():
    assert pin_gains(Trace([0, BASE, 1, BASE, 0]), 2).tolist() == pin_gains(Trace([0, 1, 0]), 2).tolist()


def test_without_requests_or_adapters_nothing_is_gained():
    assert pin_gains(Trace([], adapters=2), 2).tolist() == [[0, 0]]
    assert pin_gains(Trace([BASE], adapters=0), 2).shape == (1, 0)


@pytest.mark.parametrize(
    ("given_", "complaint"),
    [
        ({"slots": 0}, "slots is one number from 1"),
        ({"slots": [2, 2]}, "slots is one number from 1"),
        ({"slots": 2, "pinned": [(0, 7)]}, "a pin is"),
        ({"slots": 2, "pinned": [(0, 0), (0, 1)]}, "one slot without a pin"),
        ({"slots": 2, "cost": [1.0]}, "a load costs"),
        ({"slots": 2, "cost": [1.0, float("nan")]}, "a load costs"),
        ({"slots": 2, "cost": [1.0, -1.0]}, "a load costs"),
        ({"slots": 2, "edges": [0]}, "growing edges"),
        ({"slots": 2, "edges": [1, 0]}, "growing edges"),
        ({"slots": 2, "edges": [0, 9]}, "growing edges"),
    ],
)
def test_what_cannot_be_is_refused(given_: dict, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        pin_gains_by_block(Trace([0, 1]), **given_)
