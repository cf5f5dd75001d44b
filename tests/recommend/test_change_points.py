import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch.model import DAY, HOUR
from lora_watch.recommend.change_points import changes
from tests.recommend.months import month

PER_DAY = 1200


def mixed(*mixes: tuple[int, list[float]], seed: int = 1) -> list[int]:
    """So many days of independent requests by each mix of adapters."""
    random = np.random.default_rng(seed)
    return [int(a) for days, mix in mixes for a in random.choice(len(mix), days * PER_DAY, p=np.array(mix) / sum(mix))]


EVEN = [4, 3, 2, 1, 0, 0]
SPLIT = [2, 1.5, 2, 1, 2, 1.5]  # the first two hand half of their requests to two new ones


def test_an_ab_start_is_found_to_a_block():
    found = changes(month(mixed((10, EVEN), (5, SPLIT)), 15, adapters=6))
    assert len(found) == 1
    assert abs(found[0] - 10 * DAY) <= 4 * HOUR


def test_it_is_found_a_day_later():
    assert len(changes(month(mixed((10, EVEN), (1, SPLIT)), 11, adapters=6))) == 1


def test_both_ends_of_an_experiment_are_found():
    found = changes(month(mixed((10, EVEN), (6, SPLIT), (8, EVEN)), 24, adapters=6))
    assert [round(one / DAY) for one in found] == [10, 16]


def test_a_pool_that_goes_on_as_it_was_has_none():
    assert changes(month(mixed((20, EVEN)), 20)) == ()


def test_hours_that_ask_for_other_adapters_are_no_change():
    codes = [n * 24 // PER_DAY % 24 // 8 for n in range(14 * PER_DAY)]  # a working day each of three time zones
    assert changes(month(codes, 14)) == ()


def test_more_requests_of_the_same_mix_are_no_change():
    random = np.random.default_rng(2)
    codes = [int(a) for a in random.choice(4, 20 * PER_DAY, p=[0.4, 0.3, 0.2, 0.1])]
    quiet = [code for n, code in enumerate(codes) if n >= 10 * PER_DAY or n % 4 == 0]
    assert changes(month(quiet, 20)) == ()


def test_few_requests_tell_nothing():
    assert changes(month([0] * 30 + [1] * 30, 20)) == ()
    assert changes(month([], 20, adapters=2)) == ()
    assert changes(month([-1] * 5000, 20, adapters=0)) == ()


def test_a_day_is_too_short_to_change_in():
    assert changes(month(mixed((1, EVEN)), 1, adapters=6)) == ()


@settings(deadline=None, max_examples=15)
@given(st.integers(4, 16), st.integers(0, 1000))
def test_a_change_is_never_found_before_it_can_be_seen(day: int, seed: int):
    codes = mixed((day, EVEN), (18 - day, SPLIT), seed=seed)
    until = month(codes[: day * PER_DAY], day, adapters=6)
    assert changes(until) == ()
    assert all(abs(one - day * DAY) <= 12 * HOUR for one in changes(month(codes, 18, adapters=6)))
