"""Adapters that nobody had asked for before."""

import pytest
from diagnose.told import WINDOW, adapters, facts, minutes, pods, text

from lora_watch.diagnose.finding import Severity
from lora_watch.diagnose.new_adapters import new_adapters
from lora_watch.model import MINUTE

SINCE = WINDOW.end - 10 * MINUTE
OLD = adapters(*(f"a{n}" for n in range(4)))
NEW = adapters("x-test", "y-test", first_seen=SINCE)
CALM = minutes((60, {"requests": 100, "loads": 2}))
RISE = minutes((50, {"requests": 100, "loads": 2}), (10, {"requests": 100, "loads": 30}))


def told(**given):
    return list(new_adapters(facts(**{"known": OLD.vstack(NEW), "lines": CALM, **given})))


def test_new_adapters_are_told_with_their_share_and_since_when():
    (one,) = told()
    assert one.summary.startswith("2 new adapters (`*-test`) carry 33 % of requests; 6 adapters are now in use on 4 slots")
    assert (one.since, one.adapters) == (SINCE, ("x-test", "y-test"))


def test_where_there_is_room_they_inform():
    (one,) = told()
    assert (one.severity, one.remedies) == (Severity.INFORMATION, ())
    assert "there is room for them" in one.cause


def test_where_misses_rise_with_them_they_warn():
    (one,) = told(lines=RISE)
    assert one.severity is Severity.WARN
    assert "misses 2.0 % → 30 %" in one.summary
    assert {it.lever for it in one.remedies} == {"experiment", "configuration"}


def test_misses_that_are_predicted_warn_before_any_can_be_counted():
    (one,) = told(lines=minutes((3, {"requests": 1})), warning={"predicted_miss_ratio": 0.4, "method": "arrivals"})
    assert one.severity is Severity.WARN
    assert "40 % of requests are predicted to miss; trouble from 20 %" in text(one)


CROWD = adapters(*(f"x{n}-test" for n in range(6)), first_seen=SINCE)


def test_a_crowd_of_them_warns_before_the_misses_rise():
    (one,) = told(known=OLD.vstack(CROWD))
    assert one.severity is Severity.WARN
    assert "grows beyond the slots" in one.cause


@pytest.mark.parametrize("room", [{"known": OLD.vstack(CROWD[:5])}, {"known": CROWD.head(6), "told": pods({"slots": 10})}])
def test_fewer_or_ones_for_which_there_are_slots_are_no_crowd(room):
    assert [one.severity for one in told(**room)] == [Severity.INFORMATION]


def test_the_last_two_minutes_tell_of_them_before_ten_do():
    few = adapters("a", requests=1000).vstack(adapters("x", requests=5, first_seen=SINCE))
    (one,) = told(known=few, warning={"newmass": 0.02})
    assert "carry 2.0 % of requests" in one.summary
    assert "of the last 2 min" in text(one)


def test_announced_ones_inform_whatever_they_do_and_are_told_apart():
    announced = adapters("z-test", first_seen=SINCE, announced=True)
    both = told(known=OLD.vstack(NEW).vstack(announced), lines=RISE)
    assert [(one.scope, one.severity) for one in both] == [("", Severity.WARN), ("announced", Severity.INFORMATION)]
    assert "as announced" in both[1].summary


def test_a_hundredth_of_the_requests_is_somebody_trying_something():
    assert told(known=adapters("a", requests=1000).vstack(adapters("x", requests=10, first_seen=SINCE))) == []


def test_on_the_first_day_nothing_is_new():
    assert told(learning=True) == []


def test_what_is_older_than_an_hour_is_not_new():
    assert told(known=OLD.vstack(adapters("x", first_seen=WINDOW.end - 61 * MINUTE))) == []


def test_an_adapter_that_nobody_saw_come_is_not_new():
    assert told(known=OLD.vstack(NEW.with_columns(first_seen=NEW["first_seen"].clear().extend_constant(None, 2)))) == []
