"""Pins that begin and end during a replay, and requests that are bound to a pod."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.replay.cluster import PinChange, replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.routers import ARTICLE, ROUND_ROBIN
from lora_watch.replay.trace import Trace

CODES = st.lists(st.integers(-1, 4), min_size=1, max_size=60)
STEPS = [None, [11, 22, 33, 44, 55]]
"""Without engine steps, and with them."""


def trace(codes, pods=1, **options):
    return Trace(codes, adapters=5, pods=pods, **options)


@given(CODES, st.sampled_from([(0,), (0, 3)]), st.sampled_from(STEPS))
def test_a_pin_from_before_the_first_request_is_one_of_the_fleets(codes, pinned, hashes):
    begun = replay(trace(codes), Fleet(3, name_hashes=hashes), changes=[PinChange(-1, 0, a, True) for a in pinned])
    fixed = replay(trace(codes), Fleet(3, name_hashes=hashes, pins=[(0, a) for a in pinned]))
    assert begun.lookup.tolist() == fixed.lookup.tolist()
    assert len(begun.reloads) == fixed.preloads


@given(CODES, st.sampled_from(STEPS))
def test_a_pin_that_ends_before_the_first_request_leaves_a_resident_that_anybody_may_push_out(codes, hashes):
    told = replay(
        trace(codes),
        Fleet(2, name_hashes=hashes),
        changes=[PinChange(-2, 0, 4, True), PinChange(-1, 0, 4, False)],
    )
    first = replay(
        trace([4, *codes], at=[-2_000_000, *range(0, len(codes) * 1_000_000, 1_000_000)]), Fleet(2, name_hashes=hashes)
    )
    assert told.lookup.tolist() == first.lookup[1:].tolist()


@pytest.mark.parametrize("hashes", STEPS)
def test_a_pin_takes_the_slot_of_the_least_recently_used(hashes):
    told = replay(trace([0, 1, 2, 1]), Fleet(2, name_hashes=hashes), changes=[PinChange(1_500_000, 0, 3, True)])
    assert told.reloads.victim.tolist() == [0]
    assert told.victim.tolist() == [-1, -1, 1, 2]


def test_a_pin_that_finds_every_slot_in_flight_holds_what_a_request_brings():
    busy = trace([0, 1, 2, 0, 1, 2], at=[0, 0, 50, 100, 200, 300], hold=[40, 40, 1, 1, 1, 1])
    told = replay(busy, Fleet(2), changes=[PinChange(10, 0, 2, True)])
    assert len(told.reloads) == 0
    assert told.lookup.tolist() == [2, 2, 2, 2, 2, 0]


def test_a_pin_of_what_is_resident_loads_nothing():
    told = replay(trace([0, 1, 2, 0]), Fleet(2), changes=[PinChange(500_000, 0, 0, True)])
    assert (len(told.reloads), told.lookup.tolist()) == (0, [2, 2, 2, 0])


@pytest.mark.parametrize("hashes", STEPS)
def test_a_request_at_the_same_time_finds_the_pin(hashes):
    told = replay(trace([1, 3]), Fleet(2, name_hashes=hashes), changes=[PinChange(1_000_000, 0, 3, True)])
    assert told.lookup.tolist() == [2, 0]


def test_every_slot_pinned_at_once_is_refused():
    with pytest.raises(ValueError, match="one slot without a pin"):
        replay(trace([0]), Fleet(2), changes=[PinChange(0, 0, 0, True), PinChange(0, 0, 1, True)])


def test_one_pin_after_another_is_not_every_slot():
    changes = [PinChange(0, 0, 0, True), PinChange(5, 0, 0, False), PinChange(5, 0, 1, True)]
    assert len(replay(trace([0]), Fleet(2), changes=changes).reloads) == 2


def test_a_pin_of_nobody_is_refused():
    with pytest.raises(ValueError, match="an adapter below 5"):
        replay(trace([0]), Fleet(2), changes=[PinChange(0, 0, 5, True)])


@given(CODES, st.sampled_from(STEPS))
def test_requests_that_are_all_bound_go_where_given_ones_go(codes, hashes):
    pods = np.arange(len(codes), dtype=np.int32) % 3
    bound = replay(trace(codes, pods=3), Fleet(2, name_hashes=hashes), ARTICLE, placed=pods)
    given_pods = replay(trace(codes, pods=3, pod=pods), Fleet(2, name_hashes=hashes))
    assert bound.lookup.tolist() == given_pods.lookup.tolist()


@given(CODES)
def test_a_router_sends_only_those_that_are_not_bound(codes):
    pods = np.where(np.array(codes) == 0, 1, -1).astype(np.int32)
    told = replay(trace(codes, pods=2), Fleet(2), ROUND_ROBIN, placed=pods)
    assert (told.pod[np.array(codes) == 0] == 1).all()
    assert told.pod[np.array(codes) != 0].tolist() == [n % 2 for n in range(sum(code != 0 for code in codes))]


@pytest.mark.parametrize("placed", [np.array([2]), np.array([-2]), np.array([0, 0])])
def test_a_pod_that_is_none_is_refused(placed):
    with pytest.raises(ValueError, match="placed is a pod below 2"):
        replay(trace([0], pods=2), Fleet(2), ROUND_ROBIN, placed=placed)
