from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.traces import ADAPTERS, QUICK, held

from lora_watch.model import SECOND
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.routers import ARTICLE, LLM_D, LLM_D_RESIDENCY, RANDOM, ROUND_ROBIN, Router, Rule, desk, scores
from lora_watch.replay.state import GPU_PLACE, IN_FLIGHT, RUNNING, WAITING
from lora_watch.replay.trace import BASE, Trace

EVERY = [ARTICLE, LLM_D, LLM_D_RESIDENCY, RANDOM, ROUND_ROBIN, replace(ARTICLE, scrape=7, coalesce=True)]
LONG = 1000


def follow(router: Router, text: str, fleet: Fleet, pods: int = 2) -> list[int]:
    """Pods chosen for requests ``adapter@µs+hold`` (``*`` is the base model), by letters a, b, c …"""
    words = [word.replace("@", "+").split("+") for word in text.split()]
    adapter = [BASE if name == "*" else ord(name) - ord("a") for name, _, _ in words]
    trace = Trace(adapter, adapters=8, pods=pods, at=[int(at) for _, at, _ in words], hold=[int(hold) for _, _, hold in words])
    return replay(trace, fleet, router).pod.tolist()


def test_round_robin_takes_turns():
    assert follow(ROUND_ROBIN, "a@0+0 a@0+0 *@0+0 b@0+0", Fleet(2), pods=3) == [0, 1, 2, 0]


def test_random_spreads_evenly_and_follows_its_seed():
    trace = Trace(np.zeros(40_000, dtype=np.int32), pods=4)
    told = replay(trace, Fleet(1), RANDOM)
    assert np.abs(np.bincount(told.pod) / 10_000 - 1).max() < 0.05
    assert (told.pod != replay(trace, Fleet(1), replace(RANDOM, seed=2)).pod).any()


@QUICK
@given(held(), st.integers(1, 3), st.sampled_from(EVERY))
def test_the_same_seed_gives_the_same_replay(trace: Trace, slots: int, router: Router):
    routed = Trace(trace.adapter, adapters=ADAPTERS, pods=3, at=trace.at, hold=trace.hold)
    one, two = (replay(routed, Fleet(slots, slots + 1, cold_load=3), router) for _ in range(2))
    assert all((getattr(one, name) == getattr(two, name)).all() for name in ("pod", "lookup", "victim", "start", "end"))


@QUICK
@given(held(), st.integers(1, 3), st.sampled_from(EVERY))
def test_a_router_only_chooses_pods(trace: Trace, slots: int, router: Router):
    routed = Trace(trace.adapter, adapters=ADAPTERS, pods=3, at=trace.at, hold=trace.hold)
    fleet = Fleet(slots, slots + 1, seats=2, cold_load=3)
    told = replay(routed, fleet, router)
    placed = Trace(trace.adapter, adapters=ADAPTERS, pods=3, pod=told.pod, at=trace.at, hold=trace.hold)
    again = replay(placed, fleet)
    assert all((getattr(told, name) == getattr(again, name)).all() for name in ("pod", "lookup", "slot", "start", "end"))


def test_the_article_prefers_the_pod_that_has_the_adapter_to_an_idle_one():
    pods = follow(ARTICLE, f"a@0+{LONG} b@1+{LONG} a@2+1 a@3+1 b@4+1", Fleet(2, seats=8))
    assert pods[0] != pods[1]
    assert pods[2:] == [pods[0], pods[0], pods[1]]


def test_the_article_goes_back_to_the_pod_with_a_cpu_copy():
    for seed in range(8):
        told = replay(Trace([0, 1, 2, 3, 0], pods=2), Fleet(1, cpu_capacity=4), replace(ARTICLE, seed=seed))
        assert (told.pod[4], told.lookup[4] < 2) == (told.pod[0], True)


def test_the_article_passes_over_a_pod_with_a_full_queue():
    router = replace(ARTICLE, max_queue=1)
    pods = follow(router, f"a@0+{LONG} a@1+{LONG} a@2+{LONG}", Fleet(2, seats=1))
    assert pods[0] == pods[1] != pods[2]
    assert len(follow(router, " ".join(f"a@{i}+{LONG}" for i in range(6)), Fleet(2, seats=1))) == 6


def test_llm_d_forgets_an_adapter_without_a_request_in_flight():
    trace = Trace([0] * 2000, pods=4)
    assert len(set(replay(trace, Fleet(2), LLM_D).pod.tolist())) == 4
    assert len(set(replay(trace, Fleet(2), LLM_D_RESIDENCY).pod.tolist())) == 1
    assert len(set(replay(trace, Fleet(2), ARTICLE).pod.tolist())) == 1


def test_llm_d_takes_a_pod_for_full_at_half_its_slots():
    affinity_only = replace(LLM_D, queue_weight=0, load_weight=0)
    pods = follow(affinity_only, f"a@0+{LONG} b@1+{LONG} c@2+{LONG} d@3+{LONG}", Fleet(2, seats=8), pods=4)
    assert sorted(pods) == [0, 1, 2, 3]


def test_llm_d_follows_an_adapter_that_waits():
    router = replace(LLM_D, queue_weight=0, load_weight=0)
    text = f"a@0+{LONG} b@1+{LONG} c@2+{LONG} c@3+{LONG} c@4+1"
    pods = follow(router, text, Fleet(1))
    assert pods[2] == pods[3] == pods[4]


def test_residency_sends_a_first_request_to_the_home_pod():
    pods = follow(LLM_D_RESIDENCY, " ".join(f"{name}@0+0" for name in "abcdefgh"), Fleet(8), pods=4)
    assert pods == desk(LLM_D_RESIDENCY, 4, 8).home.tolist()


def test_homes_are_spread_over_pods():
    home = desk(LLM_D_RESIDENCY, 8, 4000).home
    assert np.abs(np.bincount(home, minlength=8) / 500 - 1).max() < 0.2


def test_homes_are_others_by_another_seed():
    home, other = (desk(replace(LLM_D_RESIDENCY, seed=seed), 8, 4000).home for seed in (0, 2))
    assert (home == other).mean() < 0.2


def test_residency_prefers_an_idle_slot_to_a_pod_in_flight():
    router = replace(LLM_D_RESIDENCY, queue_weight=0, load_weight=0, placement_bonus=0)
    pods = follow(router, f"a@0+{LONG} b@1+1 c@5+1", Fleet(1))
    assert pods[0] != pods[1]
    assert pods[2] == pods[1]


def test_residency_keeps_the_base_model_off_pods_that_serve_adapters():
    router = replace(LLM_D_RESIDENCY, queue_weight=0, load_weight=0)
    pods = follow(router, f"a@0+{LONG} " + " ".join(f"*@{i}+1" for i in range(1, 9)), Fleet(2))
    assert set(pods[1:]) == {1 - pods[0]}


def test_a_burst_for_a_loading_adapter_goes_to_many_pods():
    pods = follow(ARTICLE, " ".join(f"a@{i}+5" for i in range(40)), Fleet(2, seats=4, cold_load=100), pods=4)
    assert len(set(pods)) == 4


def test_coalescing_sends_the_burst_after_the_first():
    text = " ".join(f"a@{i}+5" for i in range(40))
    fleet = Fleet(2, seats=4, cold_load=100)
    assert len(set(follow(replace(ARTICLE, coalesce=True), text, fleet, pods=4))) == 1


def test_coalescing_ends_with_the_load():
    text = f"a@0+{LONG} a@50+{LONG} a@150+{LONG} a@151+{LONG} *@152+1"
    router = replace(ARTICLE, coalesce=True, affinity_weight=0.0)
    pods = follow(router, text, Fleet(2, seats=4, cold_load=100))
    assert pods[1] == pods[0] != pods[2]


def test_a_router_that_looks_rarely_loads_one_adapter_on_many_pods():
    trace = Trace([0] * 50, pods=4, at=np.arange(50) * 1000, hold=[100] * 50)
    assert replay(trace, Fleet(2), ARTICLE).loads == 1
    assert replay(trace, Fleet(2), replace(ARTICLE, scrape=SECOND)).loads == 4
    assert replay(trace, Fleet(2), replace(ARTICLE, scrape=SECOND, coalesce=True)).loads == 1


def test_a_scrape_shows_the_pods_as_they_were_at_its_multiple():
    trace = Trace([0, 0, 0], pods=2, at=[0, 9, 11], hold=[0, 0, 0])
    for seed in range(6):
        told = replay(trace, Fleet(1), replace(ARTICLE, scrape=10, seed=seed))
        assert told.lookup[2] == 0


def test_a_restarted_pod_shows_empty():
    router = replace(LLM_D_RESIDENCY, placement_bonus=0)
    trace = Trace([0, 0, 1, 0], pods=2, at=[0, 1, 2, 30])
    before = replay(trace, Fleet(1), router)
    told = replay(trace, Fleet(1), router, restarts=[(20, int(before.pod[0]))])
    assert (before.loads, told.loads) == (2, 3)


@pytest.mark.parametrize("change", [{"max_queue": 0}, {"scrape": -1}, {"seed": -1}])
def test_a_router_that_cannot_be_is_refused(change: dict[str, int]):
    with pytest.raises(ValueError, match="a router needs"):
        Router(Rule.ARTICLE, **change)


def test_scores_are_weighted_sums_of_affinity_queue_and_load():
    pods = Fleet(2, seats=10).pods(2, 3)
    pods.cell[0, 1, [GPU_PLACE, IN_FLIGHT]] = 0, 4
    pods.pod[0, RUNNING], pods.pod[1, WAITING] = 4, 2
    assert scores(pods, ARTICLE, 1).tolist() == pytest.approx([0.5 + 0.15 + 0.15 * 0.6, 0.5 * 0.3 + 0.15 * 6 / 8 + 0.15])
    assert scores(pods, LLM_D, 1).tolist() == pytest.approx([4.0 + 2.0 + 2.0 * 0.6, 4.0 * 0.8 + 0.0 + 2.0])


def test_a_pod_with_a_full_queue_has_no_score_unless_all_have():
    pods = Fleet(2).pods(2, 3)
    pods.pod[0, WAITING] = 8
    assert np.isnan(scores(pods, ARTICLE, 0)).tolist() == [True, False]
    pods.pod[1, WAITING] = 8
    assert not np.isnan(scores(pods, ARTICLE, 0)).any()


@pytest.mark.parametrize("router", [ROUND_ROBIN, RANDOM])
def test_a_rule_that_takes_turns_or_draws_has_no_scores(router: Router):
    with pytest.raises(ValueError, match="gives no scores"):
        scores(Fleet(2).pods(2, 3), router, 0)
