"""Adapters whose requests wait while those of others are served."""

from diagnose.told import WINDOW, found, text

from lora_watch.diagnose.starvation import starvation

ROW = {
    "adapters": ["e"],
    "requests": 30,
    "gave_up": 2,
    "wait_p50_seconds": 9.0,
    "wait_p95_seconds": 32.0,
    "typical_p95_seconds": 4.0,
}


def told(*rows):
    return list(starvation(found("starvation", *rows), WINDOW))


def test_starving_adapters_are_named_with_their_wait_beside_that_of_others():
    (one,) = told(ROW, {**ROW, "adapters": ["f"], "wait_p95_seconds": 20.0})
    assert one.summary == "Starvation of e and f: their requests wait 32 s (p95), where others wait 4 s"
    assert one.adapters == ("e", "f")


def test_engines_that_can_drain_for_those_that_wait_are_told_how():
    (one,) = told(ROW)
    assert "--lora-drain-wait-threshold" in text(one)


def test_the_mean_over_all_is_warned_of():
    (one,) = told(ROW)
    assert one.avoid == ("Judging by the mean over all adapters: it looks healthy.",)


def test_an_adapter_that_is_never_scheduled_has_no_wait_and_is_told_all_the_same():
    silent = {"adapters": ["e"], "requests": 0, "gave_up": 0, "expected_requests": 40.0, "deferred_mean": 2.0}
    (one,) = told(silent, {**ROW, "flagged": False})
    assert "are not scheduled at all" in one.summary
    assert "None" not in text(one)


def test_nobody_starves_where_no_request_at_all_is_told_of():
    silent = {"requests": 0, "gave_up": 0, "expected_requests": 40.0, "deferred_mean": 2.0, "wait_p95_seconds": None}
    assert told(*({**ROW, **silent, "adapters": [name]} for name in "efgh")) == []


def test_each_of_many_has_a_number_up_to_five():
    (one,) = told(*({**ROW, "adapters": [name]} for name in "efghijk"))
    assert len(one.evidence) == 5
    assert "and 2 more" in one.summary


def test_adapters_that_wait_like_all_others_do_not_starve():
    assert told({**ROW, "flagged": False}) == []
