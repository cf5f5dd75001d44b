"""A working set that changes with the hour."""

from diagnose.told import WINDOW, found

from lora_watch.diagnose.finding import Severity
from lora_watch.diagnose.shifting import shifting
from lora_watch.model import HOUR

ROW = {
    "pods": [],
    "adapters": [],
    "blocks": 6,
    "least_overlap_ratio": 0.2,
    "neighbour_overlap_ratio": 0.7,
    "pool_adapters": 40,
    "block_adapters": 15.0,
    "least_from": WINDOW.start + 9 * HOUR,
    "least_to": WINDOW.start + 21 * HOUR,
}


def test_a_shift_says_which_hours_have_least_in_common():
    (one,) = shifting(found("shifts", ROW), WINDOW)
    assert "the mixes of requests from 09:00 and 21:00 UTC on have 20 % in common" in one.summary
    assert (one.severity, one.until) == (Severity.INFORMATION, None)


def test_pins_by_a_months_counts_are_warned_of():
    (one,) = shifting(found("shifts", ROW), WINDOW)
    assert "Pinning" in one.avoid[0]
    assert "pins" not in {it.lever for it in one.remedies}


def test_hours_that_are_alike_are_no_shift():
    assert list(shifting(found("shifts", {**ROW, "flagged": False}), WINDOW)) == []
