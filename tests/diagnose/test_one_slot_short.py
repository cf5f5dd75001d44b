"""A pool that swaps only because one slot is missing."""

import pytest
from diagnose.told import WINDOW, adapters, facts, lever, minutes, pods

from lora_watch.diagnose.finding import Confidence
from lora_watch.diagnose.one_slot_short import SWAPS, one_slot_short
from lora_watch.diagnose.thrash import thrash
from lora_watch.model import MINUTE

CURVE = {"predicted_miss_ratio": 0.12, "predicted_miss_ratio_one_slot_more": 0.0, "method": "arrivals"}


def told(**given):
    return list(one_slot_short(facts(**{"warning": CURVE, "known": adapters(*"abcdefgh"), "told": pods({"slots": 7}), **given})))


def test_one_slot_short_says_what_one_more_removes_and_the_flag():
    (one,) = told()
    assert one.summary == "One slot short: 8 adapters on 7 slots per pod; one more slot removes every swap"
    assert one.remedies[0].text == "+1 slot per pod (--max-loras 7 → 8)"
    assert one.remedies[0].effect == 1.0


def test_a_few_swaps_that_stay_are_told():
    (one,) = told(warning={**CURVE, "predicted_miss_ratio_one_slot_more": 0.006})
    assert "removes 95 % of the swaps" in one.summary


def test_neither_replicas_nor_a_cpu_cache_are_advised():
    (one,) = told()
    assert {it.lever for it in one.remedies} == {"slots"}
    assert len(one.avoid) == 2


@pytest.mark.parametrize(
    "warning",
    [
        {**CURVE, "predicted_miss_ratio": SWAPS.enter / 2},
        {**CURVE, "predicted_miss_ratio_one_slot_more": 0.06},
        {**CURVE, "predicted_miss_ratio_one_slot_more": None},
        None,
    ],
)
def test_few_misses_a_slope_or_an_unknown_curve_are_no_missing_slot(warning):
    assert told(warning=warning) == []


def test_it_is_told_since_it_swaps_and_not_since_somebody_looked():
    lines = minutes((20, {"requests": 100}), (40, {"requests": 100, "loads": 8, "swaps": 8}))
    assert [one.since for one in told(lines=lines)] == [WINDOW.end - 40 * MINUTE]
    assert [one.since for one in told()] == [WINDOW.end - 10 * MINUTE]  # nothing swaps: since the requests of the curve


def test_a_thrash_of_the_same_pool_says_it_in_the_same_words_and_with_the_same_share():
    lines = minutes((40, {"requests": 100}), (20, {"requests": 100, "loads": 30, "swaps": 30}))
    for share in (0.9, 0.97):
        given = facts(
            lines=lines, warning=CURVE, known=adapters(*"abcdefgh"), told=pods({"slots": 7}), levers=[lever("slots", 1, share)]
        )
        (one,), (other,) = one_slot_short(given), thrash(given)
        assert other.summary.startswith(one.summary)
        assert one.remedies[0].effect == other.remedies[0].effect == share


def test_below_the_limit_neither_says_it():
    lines = minutes((40, {"requests": 100}), (20, {"requests": 100, "loads": 30, "swaps": 30}))
    given = facts(lines=lines, warning=CURVE, told=pods({"slots": 7}), levers=[lever("slots", 1, 0.89)])
    assert list(one_slot_short(given)) == []
    assert "One slot short" not in next(thrash(given)).summary


def test_rates_alone_make_it_less_sure():
    assert [one.confidence for one in told(warning={**CURVE, "method": "che"})] == [Confidence.MEDIUM]


def test_unknown_slots_cannot_be_one_short():
    assert told(told=pods({"slots": None})) == []
