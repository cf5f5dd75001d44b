import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.model import HOUR, MINUTE, SECOND
from lora_watch.recommend.placement import placed, replicas, spread, work
from tests.recommend.months import month, ring


@given(
    st.lists(st.integers(0, 30), max_size=12, unique=True), st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 9)
)
def test_a_pin_is_on_one_pod_and_every_pod_keeps_a_slot(adapters: list[int], slots: list[int], seed: int):
    load = np.random.default_rng(seed).integers(0, 9, 31).tolist()
    pins = placed(adapters, load, slots)
    assert len({a for _, a in pins}) == len(pins) == min(len(adapters), sum(slots) - len(slots))
    for p, count in enumerate(slots):
        assert sum(q == p for q, _ in pins) < count


def test_the_busiest_are_placed_first_and_apart():
    assert placed([2, 0, 1], [5.0, 4.0, 9.0], [3, 3]) == ((0, 2), (1, 0), (1, 1))


def test_work_is_the_seconds_that_requests_ran_or_their_number_where_nobody_knows():
    assert work(month([0, 1, 0], 1, hold=2 * SECOND)) == [4.0, 2.0]
    assert work(month([0, 1, 0, -1], 1)) == [2.0, 1.0]


@pytest.mark.parametrize(("a_minute", "pods"), [(1, 1), (150, 1), (160, 2), (320, 3)])
def test_an_adapter_needs_a_pod_for_each_154_requests_in_flight(a_minute: int, pods: int):
    history = month([0] * (60 * a_minute), 1 / 24, hold=MINUTE)
    assert history.window.end == HOUR
    assert replicas(history) == [pods]


def test_without_requests_one_pod_is_enough():
    assert replicas(month([], 1, adapters=2)) == [1, 1]
    assert replicas(month(ring(2, 1), 1)) == [1, 1]


def test_a_second_pod_is_one_with_room_that_has_not_got_the_adapter():
    assert spread([(0, 7), (1, 8)], [7, 8, 7], [3, 3]) == ((0, 7), (1, 8), (1, 7), (0, 8))
    assert spread([(0, 7)], [7], [2, 1]) == ((0, 7),)
    assert spread([], [7], [4, 4]) == ()
