"""A pool that swaps only because one slot is missing."""

import pytest
from diagnose.told import adapters, facts, pods

from lora_watch.diagnose.one_slot_short import LEAST_MISSES, one_slot_short

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
        {**CURVE, "predicted_miss_ratio": LEAST_MISSES / 2},
        {**CURVE, "predicted_miss_ratio_one_slot_more": 0.06},
        {**CURVE, "predicted_miss_ratio_one_slot_more": None},
        None,
    ],
)
def test_few_misses_a_slope_or_an_unknown_curve_are_no_missing_slot(warning):
    assert told(warning=warning) == []


def test_unknown_slots_cannot_be_one_short():
    assert told(told=pods({"slots": None})) == []
