"""Pinned adapters that nobody asks for."""

from diagnose.told import WINDOW, found

from lora_watch.diagnose.ghost_pins import ghost_pins

ROW = {"adapters": ["old-a", "old-b"], "engine": "0", "pinned": True, "slots_held": 2, "slots": 4, "least_idle_seconds": 7200.0}


def told(*rows):
    return list(ghost_pins(found("ghosts", *rows), WINDOW))


def test_ghosts_are_named_with_the_slots_they_hold():
    (one,) = told(ROW)
    assert one.summary == "old-a and old-b are pinned and no longer used: 2 slots on 1 pod held for nobody"


def test_pods_of_a_pool_are_added_up():
    (one,) = told(ROW, {**ROW, "pods": ["pod-1"], "adapters": ["old-a"], "slots_held": 1, "least_idle_seconds": 3600.0})
    assert "3 slots on 2 pods" in one.summary
    assert [it.value for it in one.evidence if it.name == "least_idle_seconds"] == [3600.0]


def test_a_ghost_goes_on_as_long_as_it_is_found():
    assert [one.until for one in told({**ROW, "start": WINDOW.start, "end": WINDOW.start + 1})] == [None]


def test_idle_residents_without_a_pin_cost_nothing():
    assert told({**ROW, "pinned": False, "flagged": False}) == []


def test_the_remedy_is_to_unpin_and_not_to_add_slots():
    (one,) = told(ROW)
    assert [it.lever for it in one.remedies] == ["unpin"]
    assert "slots" in one.avoid[0]
