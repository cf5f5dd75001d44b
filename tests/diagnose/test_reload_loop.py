"""One adapter read again and again in place."""

from diagnose.told import WINDOW, found, text

from lora_watch.diagnose.reload_loop import reload_loop

ROW = {
    "adapters": ["legal-v2"],
    "engine": "0",
    "reloads": 300,
    "reloads_per_second": 5.0,
    "steps_per_second": 5.1,
    "disk_reads": 300,
    "lru_evictions": 0,
}


def told(*rows):
    return list(reload_loop(found("reload_loops", *rows), WINDOW))


def test_a_loop_says_which_adapter_how_often_and_where():
    (one,) = told(ROW)
    assert one.summary == "Reload loop of one adapter: legal-v2 is loaded in place 5 times a second on pod-0"


def test_that_nothing_had_to_leave_is_evidence_and_more_slots_are_warned_of():
    (one,) = told(ROW)
    assert {"lru_evictions": 0.0, "steps_per_second": 5.1}.items() <= {it.name: it.value for it in one.evidence}.items()
    assert one.avoid == ("More slots: nothing makes room for these loads.",)
    assert {it.lever for it in one.remedies} == {"engine"}


def test_loops_on_two_pods_are_two_findings():
    assert len({one.key for one in told(ROW, {**ROW, "pods": ["pod-1"]})}) == 2


def test_an_engine_that_tells_no_steps_is_no_reason_to_be_silent():
    (one,) = told({**ROW, "steps_per_second": None})
    assert "engine steps" not in text(one)


def test_reloads_that_all_bear_the_same_time_are_told_by_their_number():
    (one,) = told({**ROW, "reloads_per_second": None, "reloads": 25})
    assert one.weight == 25
    assert "25 times at once" in one.summary


def test_an_operator_who_replaces_files_makes_no_loop():
    assert told({**ROW, "flagged": False}) == []
