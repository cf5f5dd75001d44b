"""A KV cache that is nearly full."""

import pytest
from diagnose.told import WINDOW, found

from lora_watch.diagnose.kv_pressure import kv_pressure

ROW = {
    "engine": "0",
    "tier": 2,
    "soft_seconds": 900.0,
    "hard_seconds": 300.0,
    "critical_seconds": 150.0,
    "max_ratio": 0.97,
    "slots_squeezed": 0.0,
}


def told(*rows):
    return list(kv_pressure(found("kv_pressure", *rows), WINDOW))


@pytest.mark.parametrize(("tier", "said"), [(2, "at 90 % or more for 5 min"), (3, "at 95 % or more for 2.5 min")])
def test_each_tier_says_its_own_limit_and_time(tier, said):
    (one,) = told({**ROW, "tier": tier})
    assert said in one.summary


def test_pods_of_a_pool_are_one_finding_told_by_the_fullest():
    (one,) = told(ROW, {**ROW, "pods": ["pod-1"], "tier": 3})
    assert "the cache of pod-1" in one.summary
    assert len(one.evidence) == 2


def test_slots_that_the_cache_takes_are_told():
    (one,) = told({**ROW, "slots_squeezed": 1.5})
    assert "1.5 adapters fewer are in slots then" in one.summary


def test_adding_slots_is_warned_of():
    (one,) = told(ROW)
    assert "slots" not in {it.lever for it in one.remedies}
    assert "Adding slots" in one.avoid[0]


def test_what_was_only_sampled_says_so():
    assert told({**ROW, "provenance": "activity"})[0].unknown
    assert told(ROW)[0].unknown == ()


def test_a_cache_that_is_used_is_no_pressure():
    assert told({**ROW, "tier": 1, "flagged": False}) == []
