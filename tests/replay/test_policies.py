from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.traces import ADAPTERS, QUICK, placed

from lora_watch.model import MINUTE, SECOND
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.policies import Eviction, Policy
from lora_watch.replay.routers import ARTICLE, LLM_D, LLM_D_RESIDENCY, RANDOM, ROUND_ROBIN
from lora_watch.replay.stack import misses_by_slots
from lora_watch.replay.trace import Trace

MIN = Policy(Eviction.MIN)
LFU = Policy(Eviction.LFU)
WEIGHTED = Policy(Eviction.TIME_WEIGHTED)


def fewest_misses(adapter: tuple[int, ...], slots: int) -> int:
    """Every choice of victim tried."""

    @cache
    def after(i: int, inside: frozenset[int]) -> int:
        if i == len(adapter):
            return 0
        if adapter[i] in inside:
            return after(i + 1, inside)
        if len(inside) < slots:
            return 1 + after(i + 1, inside | {adapter[i]})
        return 1 + min(after(i + 1, inside - {victim} | {adapter[i]}) for victim in inside)

    return after(0, frozenset())


@QUICK
@given(st.lists(st.integers(0, 4), max_size=14), st.integers(1, 3))
def test_min_equals_brute_force(adapter: list[int], slots: int):
    assert replay(Trace(adapter, adapters=5), Fleet(slots, policy=MIN)).loads == fewest_misses(tuple(adapter), slots)


@QUICK
@given(placed(), st.integers(1, 4), st.sampled_from([LFU, WEIGHTED, Policy()]))
def test_nothing_beats_min_on_given_pods(trace: Trace, slots: int, policy: Policy):
    assert replay(trace, Fleet(slots, policy=MIN)).loads <= replay(trace, Fleet(slots, policy=policy)).loads


@QUICK
@given(placed(), st.integers(1, 3), st.sampled_from([ARTICLE, LLM_D, LLM_D_RESIDENCY, RANDOM, ROUND_ROBIN]))
def test_no_router_beats_min_on_one_pool(trace: Trace, slots: int, router):
    pooled = replay(Trace(trace.adapter, adapters=ADAPTERS), Fleet(3 * slots, policy=MIN))
    routed = Trace(trace.adapter, adapters=ADAPTERS, pods=3, at=trace.at)
    assert pooled.loads <= replay(routed, Fleet(slots), router).loads


def test_min_misses_less_than_lru_on_a_cycle():
    trace = Trace([0, 1, 2] * 10)
    assert replay(trace, Fleet(2, policy=MIN)).loads == 16
    assert misses_by_slots(trace)[0, 2] == 30


@pytest.mark.parametrize(
    ("trace", "fleet", "router"),
    [
        (Trace([0], hold=[1]), Fleet(1, policy=MIN), None),
        (Trace([0]), Fleet(1, policy=MIN, cold_load=1), None),
        (Trace([0]), Fleet(1, policy=MIN), ARTICLE),
    ],
)
def test_min_refuses_what_it_cannot_foresee(trace: Trace, fleet: Fleet, router):
    with pytest.raises(ValueError, match="MIN knows the future"):
        replay(trace, fleet, router)


def test_lfu_keeps_the_often_used_where_lru_would_not():
    at = [SECOND * i for i in range(6)]
    trace = Trace([0, 0, 0, 1, 1, 2], at=at)
    assert replay(trace, Fleet(2, policy=LFU)).victim[-1] == 1
    assert replay(trace, Fleet(2)).victim[-1] == 0


def test_lfu_forgets_with_the_age_of_a_use():
    trace = Trace([0, 0, 0, 1, 2], at=[0, 0, 0, 30 * MINUTE, 30 * MINUTE])
    assert replay(trace, Fleet(2, policy=LFU)).victim[-1] == 0


def test_lfu_counts_uses_before_an_eviction():
    trace = Trace([0, 0, 0, 1, 0, 2], at=[0] * 6)
    assert replay(trace, Fleet(1, cpu_capacity=3, policy=LFU)).lookup.tolist() == [2, 0, 0, 2, 1, 2]
    trace = Trace([0, 0, 1, 2, 3, 0], at=[0] * 6)
    assert replay(trace, Fleet(2, policy=LFU)).victim.tolist() == [-1, -1, -1, 1, 2, -1]


def test_the_retention_score_counts_the_last_ten_minutes_only():
    quiet = Trace([0, 0, 0, 1, 2], at=[0, 0, 0, 9 * MINUTE, 11 * MINUTE])
    assert replay(quiet, Fleet(2, policy=WEIGHTED)).victim[-1] == 0
    within = Trace([0, 0, 0, 1, 2], at=[0, 0, 0, 8 * MINUTE, 9 * MINUTE])
    assert replay(within, Fleet(2, policy=WEIGHTED)).victim[-1] == 1


def test_the_retention_score_rewards_a_use_just_now():
    trace = Trace([0, 0, 1, 2], at=[0, 0, MINUTE, MINUTE])
    assert replay(trace, Fleet(2, policy=WEIGHTED)).victim[-1] == 0
    heavy = Policy(Eviction.TIME_WEIGHTED, frequency_weight=1e9)
    assert replay(trace, Fleet(2, policy=heavy)).victim[-1] == 1


def test_a_restart_forgets_the_counts_of_its_pod():
    trace = Trace([0, 0, 0, 0, 1, 1, 2], at=[0, 0, 0, 20, 20, 20, 30])
    for policy in (LFU, WEIGHTED):
        assert replay(trace, Fleet(2, policy=policy), restarts=[(10, 0)]).victim[-1] == 0
        assert replay(trace, Fleet(2, policy=policy)).victim[-1] == 1
    late = Trace([0, 0, 1, 0, 1, 1, 2], at=[0, 0, 0, 20, 20, 20, 10 * MINUTE + 5])
    assert replay(late, Fleet(2, policy=WEIGHTED), restarts=[(10, 0)]).victim[-1] == 0


def test_times_before_the_epoch_do_no_harm():
    trace = Trace([0, 1, 2, 0], at=np.array([-(10**17), -5, 0, 10**17]))
    for policy in (LFU, WEIGHTED, Policy()):
        assert replay(trace, Fleet(2, policy=policy)).loads == 4


def test_a_window_without_length_is_refused():
    with pytest.raises(ValueError, match="at least 1 µs"):
        Policy(Eviction.LFU, window=0)
