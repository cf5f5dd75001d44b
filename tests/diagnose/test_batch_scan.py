"""A job that asks for all adapters in turn."""

from diagnose.told import WINDOW, found

from lora_watch.diagnose.batch_scan import batch_scan
from lora_watch.diagnose.finding import Confidence, Severity

ROW = {"adapters": ["a", "b"], "scanned_adapters": 38, "pool_adapters": 40, "requests": 380, "requests_per_adapter": 10.0}


def told(*rows):
    return list(batch_scan(found("scans", *rows), WINDOW))


def test_a_scan_informs_of_a_job_with_its_time_and_size():
    (one,) = told({**ROW, "start": WINDOW.start, "end": WINDOW.start + 600_000_000})
    assert one.severity is Severity.INFORMATION
    assert "A batch job at 00:00" in one.summary
    assert "38 of 40 adapters in turn within 10 min" in one.summary


def test_one_that_comes_again_says_how_often_and_is_surer():
    once, again = told(ROW)[0], told(ROW, {**ROW, "every_seconds": 86_400.0})[0]
    assert "every 24 h" in again.summary
    assert (once.confidence, again.confidence) == (Confidence.MEDIUM, Confidence.HIGH)


def test_all_adapters_are_meant_so_none_is_named():
    assert told(ROW)[0].adapters == ()


def test_slots_are_not_sized_for_a_job():
    (one,) = told(ROW)
    assert [it.lever for it in one.remedies] == ["spread"]
    assert one.avoid == ("Sizing the slots for the job.",)
