from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.derive.hysteresis import Limits, State, calibrated, episodes, step
from lora_watch.model import DAY, HOUR, MINUTE

LIMITS = Limits(enter=0.7, leave=0.55, for_=2, keep=3)


def run(values: list[float | None], limits: Limits = LIMITS) -> list[bool]:
    state, seen = State(), []
    for at, value in enumerate(values):
        state = step(state, limits, at, value)
        seen.append(state.on)
    return seen


def test_it_begins_once_the_limit_was_held_long_enough():
    assert run([0.8, 0.8, 0.8]) == [False, False, True]


def test_one_value_below_starts_the_wait_anew():
    assert run([0.8, 0.8, 0.6, 0.8, 0.8, 0.8]) == [False, False, False, False, False, True]


def test_between_the_limits_nothing_changes():
    assert run([0.8, 0.8, 0.8, 0.6, 0.6, 0.6, 0.6, 0.6])[-1]
    assert not run([0.6] * 9)[-1]


def test_it_ends_once_it_was_below_the_lower_limit_long_enough():
    assert run([0.8, 0.8, 0.8, 0.5, 0.5, 0.5, 0.5]) == [False, False, True, True, True, True, False]


@pytest.mark.parametrize("unknown", [None, float("nan")])
def test_unknown_neither_begins_nor_ends_an_alarm(unknown: float | None):
    assert run([0.8, 0.8, unknown, 0.8, 0.8, 0.8]) == [False, False, False, False, False, True]
    assert run([0.8, 0.8, 0.8, *[unknown] * 9])[-1]


def test_at_the_limit_is_not_past_it():
    assert not run([0.7] * 9)[-1]
    assert run([0.8, 0.8, 0.8, *[0.55] * 9])[-1]


def test_no_time_to_hold_begins_at_once():
    assert run([0.8], Limits(0.7, 0.7)) == [True]


def test_it_is_since_the_moment_the_limit_was_passed():
    state = State()
    for at, value in enumerate([0.1, 0.8, 0.8, 0.8]):
        state = step(state, LIMITS, at, value)
    assert (state.on, state.since, state.pending) == (True, 1, None)


def test_what_is_not_newer_changes_nothing():
    state = step(State(), LIMITS, 5, 0.8)
    assert step(state, LIMITS, 5, 0.1) == state == step(state, LIMITS, 4, 0.1)


@pytest.mark.parametrize(
    ("enter", "leave", "for_", "keep"), [(0.5, 0.6, 0, 0), (0.5, 0.4, -1, 0), (0.5, 0.4, 0, -1), (0.5, float("nan"), 0, 0)]
)
def test_limits_that_cannot_be_are_refused(enter: float, leave: float, for_: int, keep: int):
    with pytest.raises(ValueError):
        Limits(enter, leave, for_, keep)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=60))
def test_episodes_are_the_times_it_begins(values: list[float | None]):
    seen = [False, *run(values)]
    begun, lasted = episodes(list(enumerate(values)), LIMITS)
    assert begun == sum(after and not before for before, after in pairwise(seen))
    assert lasted == sum(seen[1:-1])


def two_weeks(spike: float, every: int) -> list[tuple[int, float | None]]:
    """An hour of ``spike`` every so many hours, else 0.1 in even hours and 0.05 in odd ones; one value each ten minutes."""
    usual = (0.1, 0.05)
    return [(at, spike if at // HOUR % every == 5 else usual[at // HOUR % 2]) for at in range(0, 14 * DAY, 10 * MINUTE)]


def test_the_calibrated_limit_lets_one_alarm_a_week_through():
    daily = calibrated(two_weeks(0.4, 24), fallback=0.2, least=0.05)
    assert (daily.enter, daily.leave) == (pytest.approx(0.4), pytest.approx(0.28))
    assert episodes(two_weeks(0.4, 24), daily) == (0, 0)
    rare = calibrated(two_weeks(0.4, 24 * 14), fallback=0.2, least=0.05)
    assert rare.enter == pytest.approx(0.1)
    assert episodes(two_weeks(0.4, 24 * 14), rare) == (1, 2 * HOUR + 10 * MINUTE)


def test_a_quiet_history_does_not_make_it_nervous():
    assert calibrated([(at, 0.001) for at in range(0, 14 * DAY, HOUR)], fallback=0.2, least=0.05).enter == 0.05


def test_a_short_or_empty_history_leaves_it_at_the_fallback():
    short = calibrated([(0, 0.5), (DAY, None), (2 * DAY, 0.5)], fallback=0.2, least=0.05)
    assert (short.enter, short.leave) == (0.2, pytest.approx(0.14))
    assert calibrated([], fallback=0.2, least=0.05) == short
