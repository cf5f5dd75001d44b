"""Names that are withdrawn while their weights stay."""

from diagnose.told import WINDOW, found, text

from lora_watch.derive.phantoms import IN_ENGINE, NOWHERE
from lora_watch.diagnose.finding import Severity
from lora_watch.diagnose.phantom import phantom

ROW = {"adapters": ["bob"], "kind": IN_ENGINE, "slots_held": 1, "held_slot_seconds": 300.0, "longest_seconds": 300.0}


def told(*rows):
    return list(phantom(found("phantoms", *rows), WINDOW))


def test_a_withdrawn_name_whose_weights_stay_is_told_as_a_disagreement():
    (one,) = told(ROW)
    assert one.summary == "Registry and residency disagree: bob is no longer served, the weights are still in 1 slot"
    assert one.severity is Severity.INFORMATION


def test_a_withdrawn_name_is_not_said_to_be_evicted():
    assert "evict" not in text(told(ROW)[0])


def test_slots_of_all_pods_are_added_up():
    (one,) = told(ROW, {**ROW, "adapters": ["carol"], "slots_held": 3})
    assert "bob and carol are no longer served, the weights are still in 4 slots" in one.summary


def test_weights_that_have_left_since_are_told_in_the_past():
    (one,) = told({**ROW, "slots_held": 0})
    assert "disagreed" in one.summary
    assert "still in" not in one.summary


def test_only_names_whose_weights_are_there_are_said_to_hold_slots():
    (one,) = told(ROW, {**ROW, "adapters": ["carol"], "slots_held": 0})
    assert "bob is no longer served, the weights are still in 1 slot" in one.summary


def test_a_name_without_weights_is_what_any_pool_has():
    assert told({**ROW, "kind": NOWHERE, "flagged": False}) == []
