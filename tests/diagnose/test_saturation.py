"""A pool that will, or does, get more work than it can do."""

import pytest
from diagnose.told import WINDOW, facts, lever, minutes, pods, text

from lora_watch.derive.forecast import Basis
from lora_watch.derive.saturation import Bottleneck
from lora_watch.diagnose.finding import Possible, Severity
from lora_watch.diagnose.saturation import WORDS, hard_cliff, saturation
from lora_watch.model import HOUR

PEAK = {
    "rho_peak": 1.3,
    "rho_now": 0.7,
    "peak_at": WINDOW.end + 2 * HOUR + 40 * 60_000_000,
    "peak_rps": 12.0,
    "peak_method": str(Basis.WEEK),
    "bottleneck": "loads",
}
CLIFF = {"hard_cliff": 1.1, "fullest_pod": "pod-0", "bottleneck": "slots"}


def told(warning=PEAK, alarms=("rho_peak",), **given):
    return list(saturation(facts(warning=warning, alarms=alarms, **given)))


def cliff(warning=CLIFF, **given):
    return list(hard_cliff(facts(warning=warning, alarms=["hard_cliff"], **given)))


def test_saturation_is_harm_and_says_when_and_what_runs_out():
    (one,) = told()
    assert one.severity is Severity.HARM
    assert one.summary == ("The pool saturates at the peak (03:40 UTC): the load then needs 130 % of what the pool can do (rho)")
    assert WORDS[Bottleneck.LOADS] in one.cause


def test_a_pool_that_is_past_it_is_told_in_the_present():
    (one,) = told({**PEAK, "rho_now": 1.05})
    assert one.summary == (
        "The pool is saturated: the load needs 105 % of what the pool can do now, 130 % at the peak (03:40 UTC) (rho)"
    )


def test_limits_are_told_in_the_unit_of_the_numbers_beside_them():
    assert "needs 130 % of what the pool can do (rho); trouble from 80 %" in text(told()[0])
    assert "take 110 % of the slots of pod-0; trouble from 90 %" in text(cliff()[0])


def test_pods_are_added_without_a_restart_and_flags_take_one():
    takes = {it.lever: it.possible for it in told()[0].remedies}
    assert (takes["pods"], takes["slots"], takes["routing"]) == (Possible.SCALE, Possible.RESTART, Possible.ROUTER)


def test_no_alarm_is_no_finding_whatever_the_number():
    assert told(alarms=()) == []


@pytest.mark.parametrize("word", list(Bottleneck))
def test_each_bottleneck_has_words_and_a_remedy(word):
    (one,) = told({**PEAK, "bottleneck": str(word)})
    assert WORDS[word] in one.cause
    assert "pods" in {it.lever for it in one.remedies}


def test_slots_promise_what_replay_says_only_where_loads_run_out():
    levers = [lever("slots", 1, 0.4)]
    for word, effect in (("loads", 0.4), ("slots", None)):
        (one,) = told({**PEAK, "bottleneck": word}, levers=levers)
        assert [it.effect for it in one.remedies if it.lever == "slots"] == [effect]


def test_what_is_not_known_of_the_peak_is_left_out():
    (one,) = told({"rho_peak": 0.9})
    assert one.summary == ("The pool saturates at the coming peak: the load then needs 90 % of what the pool can do (rho)")
    assert "First to run out: unknown." in one.cause
    assert "None" not in text(one)


def test_the_hard_cliff_says_how_many_want_a_slot_at_once_and_where():
    (one,) = cliff(told=pods({"swap_queue_mean": 3.2}))
    assert one.summary.startswith("Requests wait for slots: on pod-0 about 4.4 adapters have a request in flight")
    assert "3.2 requests wait for a slot there" in text(one)
    assert one.pods == ("pod-0",)


def test_faster_loads_are_no_remedy_for_a_cliff():
    (one,) = cliff()
    assert "Faster loads" in one.avoid[0]


def test_where_pods_stand_still_for_loads_these_are_the_reason():
    assert cliff(lines=minutes((60, {"requests": 10, "loads": 5, "stall_seconds": 7.0}))) == []


def test_a_cliff_is_not_told_twice():
    both = facts(warning={**PEAK, **CLIFF}, alarms=["rho_peak", "hard_cliff"])
    assert (list(saturation(both)), [one.kind for one in hard_cliff(both)]) == ([], ["hard-cliff"])


def test_new_adapters_may_be_paused_at_once():
    (one,) = told(alarms=("rho_peak", "newmass"))
    assert "pause the new adapters" in text(one)


@pytest.mark.parametrize(("basis", "confidence"), [(Basis.WEEK, "high"), (Basis.DAY, "medium"), (Basis.NOW, "low")])
def test_a_peak_is_as_sure_as_what_its_forecast_rests_on(basis, confidence):
    (one,) = told({**PEAK, "peak_method": str(basis)})
    assert one.confidence == confidence
