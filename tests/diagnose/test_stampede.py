"""Many pods loading one adapter at once."""

from diagnose.told import WINDOW, found, text

from lora_watch.diagnose.stampede import stampede
from lora_watch.model import MINUTE

ROW = {
    "adapters": ["legal-v2"],
    "pods": ["pod-0", "pod-1", "pod-2"],
    "loads": 4,
    "pods_loading": 3,
    "span_seconds": 0.8,
    "load_seconds": 2.0,
    "expected_by_chance": 1e-5,
}


def told(*rows):
    return list(stampede(found("stampedes", *rows), WINDOW))


def test_a_stampede_names_the_adapter_and_how_many_pods_loaded_it():
    (one,) = told(ROW)
    assert one.summary == "Stampede: 3 pods loaded legal-v2 at the same time"
    assert (one.kind, one.pods, one.adapters, one.scope) == ("stampede", ("pod-0", "pod-1", "pod-2"), ("legal-v2",), "legal-v2")


def test_stampedes_of_one_adapter_are_one_finding_that_counts_them_and_what_they_paid():
    (one,) = told(ROW, {**ROW, "pods_loading": 5, "loads": 6, "load_seconds": 3.0, "pods": ["pod-7"]})
    assert one.summary == "Stampede: 5 pods loaded legal-v2 at the same time, 2 times in the window"
    assert {"load_seconds": 5.0, "pods_loading": 5.0}.items() <= {it.name: it.value for it in one.evidence}.items()
    assert "pod-7" in one.pods


def test_stampedes_of_two_adapters_are_two_findings():
    assert {one.scope for one in told(ROW, {**ROW, "adapters": ["sql"]})} == {"legal-v2", "sql"}


def test_loads_that_overlap_by_chance_are_no_finding():
    assert told({**ROW, "flagged": False}) == []


def test_a_stampede_that_ended_long_before_the_window_does_is_over():
    end = WINDOW.end - 20 * MINUTE
    assert [one.until for one in told({**ROW, "start": end - MINUTE, "end": end})] == [end]
    assert [one.until for one in told(ROW)] == [None]


def test_more_slots_are_no_remedy_for_a_stampede():
    (one,) = told(ROW)
    assert "slots" not in {it.lever for it in one.remedies}
    assert "More slots" in one.avoid[0]


def test_loads_of_unknown_length_are_paid_for_by_nobody():
    (one,) = told({**ROW, "load_seconds": None})
    assert "0 s of pod time" in text(one)
