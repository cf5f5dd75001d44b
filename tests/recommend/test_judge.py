import numpy as np
import pytest

from lora_watch.model import DAY, SECOND, Window
from lora_watch.recommend.judge import judged, load_cost
from lora_watch.replay.policies import Eviction, Policy
from lora_watch.replay.routers import ROUND_ROBIN
from tests.recommend.months import month, ring

WEEK = Window(7 * DAY, 14 * DAY)


def test_a_ring_with_one_slot_too_few_loads_every_time():
    told = judged(month(ring(4, 14), 14), WEEK, None)
    assert told.loads.tolist() == told.swaps.tolist() == told.cost.tolist() == [40] * 7
    assert (told.requests, told.miss_ratio, told.preloads) == (280, 1.0, 0)


def test_the_day_before_fills_the_slots():
    assert judged(month(ring(3, 14), 14), WEEK, None).loads.sum() == 0
    assert judged(month(ring(3, 14), 14), Window(0, 7 * DAY), None).loads.sum() == 3


def test_pins_that_are_new_are_loaded_once():
    history = month(ring(4, 14), 14, pinned=((0, 1),), load_seconds=[1, 2, 3, 4])
    told = judged(history, WEEK, None, pins=((0, 1), (0, 3)))
    assert (told.preloads, told.preload_cost) == (1, 4.0)
    assert told.loads.sum() == 140
    assert judged(history, WEEK, None).preloads == 0


def test_one_slot_more_ends_the_loads_of_a_ring():
    assert judged(month(ring(4, 14), 14), WEEK, None, more_slots=1).loads.sum() == 0


def test_pods_are_added_behind_a_router_only():
    history = month(ring(4, 14), 14)
    assert judged(history, WEEK, ROUND_ROBIN, more_pods=1).loads.sum() == 0
    with pytest.raises(ValueError, match="a router is needed"):
        judged(history, WEEK, None, more_pods=1)


def test_belady_is_replayed_without_holds():
    told = judged(month(ring(4, 14), 14, hold=SECOND), WEEK, None, policy=Policy(Eviction.MIN))
    assert 0 < told.loads.sum() < 280


def test_waits_for_a_slot_are_told():
    told = judged(month(ring(4, 14), 14, slots=(1,), hold=DAY // 20, load_seconds=[0] * 4), WEEK, None)
    assert told.wait_seconds is not None
    assert told.wait_seconds > 0
    assert judged(month(ring(3, 14), 14), WEEK, None).wait_seconds == 0
    assert judged(month([-1] * 10, 14, adapters=1), WEEK, None).wait_seconds is None


def test_a_wait_has_the_own_load_in_it():
    told = judged(month(ring(4, 14), 14, load_seconds=[2, 2, np.nan, 2]), WEEK, None)
    assert told.wait_seconds == 2.0


def test_a_wait_with_loads_that_nobody_measured_is_unknown():
    assert judged(month(ring(4, 14), 14), WEEK, None).wait_seconds is None


def test_without_a_request_for_an_adapter_there_is_no_miss_ratio():
    assert judged(month([-1] * 10, 14, adapters=1), WEEK, None).miss_ratio is None


def test_a_load_that_nobody_measured_costs_what_the_others_do_on_average():
    assert load_cost(month([0, 1, 2], 1, load_seconds=[1, np.nan, 3])).tolist() == [1, 2, 3]
    assert load_cost(month([0, 1, 2], 1)).tolist() == [1, 1, 1]
