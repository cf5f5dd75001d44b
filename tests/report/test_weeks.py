"""Weeks by their ISO names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.errors import LoraWatchError
from lora_watch.model import DAY
from lora_watch.report.weeks import WEEK, chosen, week_named, week_of

NOW = 1_796_000_000_000_000
"""Mon 30 Nov 2026, 00:53 UTC."""


@given(st.integers(0, 200_000_000_000_000_000))
def test_a_moment_lies_in_its_week_which_is_found_by_its_name(at: int):
    week = week_of(at)
    assert week.window.start <= at < week.window.end
    assert week.window.end - week.window.start == WEEK
    assert week.before.window.end == week.window.start
    if at > 2 * 366 * DAY:
        assert week_named(week.name) == week


def test_the_last_week_is_the_one_that_has_ended():
    assert chosen("last", NOW).name == "2026-W48"
    assert chosen("last", NOW - DAY).name == "2026-W47"


def test_a_week_may_be_written_without_its_dash_and_reach_into_another_year():
    assert week_named("2026W53").words == "Mon 28 Dec 2026 – Sun 3 Jan 2027"


@pytest.mark.parametrize(
    "name", ["2026-W54", "2025-W53", "2026-48", "W48", "", "0001-W01", "9999-W52", "x" * 10_000, "２０２６-W10"]
)
def test_what_is_no_week_is_refused_in_a_sentence(name: str):
    with pytest.raises(LoraWatchError, match=r"week|year"):
        week_named(name)
