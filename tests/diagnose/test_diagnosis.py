"""The order of findings, and how grave a diagnosis is."""

from dataclasses import replace

from diagnose.told import WINDOW

from lora_watch.diagnose.diagnosis import Diagnosis, in_order
from lora_watch.diagnose.finding import Confidence, Finding, Severity

WARNED = Finding("thrash", Severity.WARN, "c", "p", "", 5, "s", "why", Confidence.HIGH, 1.0)
HARMED = replace(WARNED, severity=Severity.HARM)
OVER = replace(HARMED, until=9)


def worst(*found):
    return Diagnosis(WINDOW, (), found, ()).worst


def test_what_goes_on_comes_first_then_the_graver_then_the_newer():
    newer = replace(WARNED, since=8)
    assert in_order([OVER, WARNED, newer, HARMED]) == (HARMED, newer, WARNED, OVER)


def test_what_happens_comes_before_how_a_pool_is_set_up_however_new():
    lint, harmful = replace(WARNED, kind="no-warm-tier", since=9), replace(HARMED, kind="pins-fill-slots")
    assert in_order([lint, WARNED, harmful]) == (harmful, WARNED, lint)


def test_the_order_does_not_depend_on_the_order_they_came_in():
    found = [replace(WARNED, kind=kind, scope=scope) for kind in "ab" for scope in "xy"]
    assert in_order(found) == in_order(found[::-1])


def test_a_diagnosis_is_as_grave_as_the_gravest_that_goes_on():
    assert worst(WARNED, HARMED) is Severity.HARM
    assert worst(WARNED, OVER) is Severity.WARN


def test_nothing_open_is_no_severity():
    assert worst() is None
    assert worst(OVER) is None
