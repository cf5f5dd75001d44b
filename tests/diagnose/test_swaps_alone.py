"""Swaps where nobody tells the requests."""

import pytest
from diagnose.told import WINDOW, facts, minutes, pods, text

from lora_watch.diagnose.finding import Severity
from lora_watch.diagnose.swaps_alone import SWAPS, swaps_alone
from lora_watch.diagnose.thrash import HARM_SHARE
from lora_watch.model import MINUTE

QUIET, BUSY = {"loads": 2, "swaps": 2}, {"loads": 12, "swaps": 12}


def told(*parts, **given):
    return list(swaps_alone(facts(lines=minutes(*parts), **given)))


def test_swaps_above_the_limit_are_a_thrash_since_they_rose():
    (one,) = told((40, QUIET), (20, BUSY))
    assert one.summary == "Thrash: 0.2 swaps per second and pod on 4 slots (4 per pod); no request is told"
    assert (one.kind, one.severity, one.since) == ("thrash", Severity.WARN, WINDOW.end - 20 * MINUTE)


def test_what_only_requests_tell_is_unknown():
    (one,) = told((60, BUSY))
    assert "no request is told" in one.unknown[0]
    assert [it.effect for it in one.remedies] == [None]


@pytest.mark.parametrize(("share", "severity"), [(HARM_SHARE, Severity.HARM), (HARM_SHARE - 0.01, Severity.WARN)])
def test_it_is_harm_where_pods_stand_still(share, severity):
    assert [one.severity for one in told((60, {**BUSY, "stall_seconds": 60 * share}))] == [severity]


def test_loads_without_a_length_stand_still_for_nobody_knows_how_long():
    (one,) = told((60, BUSY))
    assert "stood still" not in text(one)


def test_rates_are_those_of_a_pod():
    assert told((60, BUSY), told=pods({}, {"pod": "pod-1"}, {"pod": "pod-2"})) == []


def test_a_few_swaps_are_none():
    assert told((60, {"loads": 6, "swaps": round(60 * SWAPS.enter)})) == []


def test_a_burst_that_is_over_is_none():
    assert told((30, BUSY), (30, QUIET)) == []


def test_where_requests_are_told_misses_are_counted_instead():
    assert told((59, BUSY), (1, {**BUSY, "requests": 1})) == []


def test_where_no_load_or_no_slot_is_told_nothing_is_said():
    assert told((60, BUSY), told=pods({"loads": None})) == []
    assert told((60, BUSY), told=pods({"slots": None})) == []
    assert told() == []
