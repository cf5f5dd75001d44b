"""Loads that take far longer than usual."""

from diagnose.told import WINDOW, found, text

from lora_watch.diagnose.finding import Confidence
from lora_watch.diagnose.slow_load import slow_load

ROW = {
    "phase": "disk",
    "size_class": 26,
    "loads": 10,
    "slow_loads": 4,
    "p50_seconds": 1.2,
    "p95_seconds": 41.0,
    "usual_loads": 200,
    "usual_p50_seconds": 0.9,
    "usual_p95_seconds": 4.0,
    "allowed_seconds": 1.3,
    "slow_seconds": 120.0,
}


def told(*rows):
    return list(slow_load(found("slow_loads", *rows), WINDOW))


def test_a_slow_load_says_its_phase_and_what_is_usual():
    (one,) = told(ROW)
    assert one.summary == "Slow load: slow loads from disk, 41 s (95th percentile) against 4 s as usual"
    assert one.confidence is Confidence.HIGH


def test_without_a_past_it_is_measured_by_what_any_storage_keeps_to():
    (one,) = told({**ROW, "usual_loads": 0, "usual_p50_seconds": None, "usual_p95_seconds": None})
    assert one.summary.endswith("41 s (95th percentile), 1.3 s is allowed")
    assert one.confidence is Confidence.MEDIUM


def test_three_loads_of_the_past_say_nothing_of_what_is_usual():
    (one,) = told({**ROW, "usual_loads": 3})
    assert "usual" not in one.summary
    assert one.confidence is Confidence.MEDIUM


def test_a_slow_load_is_never_told_as_an_eviction_or_a_lack_of_slots():
    for phase in ("disk", "copy"):
        (one,) = told({**ROW, "phase": phase})
        assert "evict" not in text(one)
        assert "slots" not in {it.lever for it in one.remedies}
        assert one.avoid == ("More slots for it: the loads are slow, not too many.",)


def test_reads_and_copies_are_two_findings_with_remedies_of_their_own():
    found_ = {one.scope: {it.lever for it in one.remedies} for one in told(ROW, {**ROW, "phase": "copy"})}
    assert found_ == {"disk": {"disk", "cpu-cache"}, "copy": {"engine"}}


def test_size_classes_of_a_phase_are_one_finding_told_by_the_worst():
    (one,) = told(ROW, {**ROW, "size_class": 20, "p95_seconds": 2.0, "slow_seconds": 3.0})
    assert "41 s" in one.summary


def test_loads_as_usual_are_no_finding():
    assert told({**ROW, "flagged": False}) == []
