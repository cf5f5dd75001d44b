"""What a lever would have changed, on requests small enough to count by hand and on random ones against the replay."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch.model import HOUR, SECOND, Window
from lora_watch.recommend.levers import LEAST_LOADS, Plan, foretell, levers
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.routers import LLM_D_RESIDENCY
from lora_watch.replay.trace import Trace
from lora_watch.schema import REQUESTS
from tests.builders import rows


def asked(adapters, pods=("pod-0",), gap=SECOND, begin=0, hold=0):
    """One request every ``gap``, which holds its slot for ``hold``, the pods taking turns."""
    return rows(
        REQUESTS,
        [
            {
                "adapter": name,
                "pod": pods[n % len(pods)],
                "stream": f"agent/c/{pods[n % len(pods)]}/boot",
                **dict.fromkeys(("at", "queued", "scheduled"), begin + n * gap),
                "finished": begin + n * gap + hold,
            }
            for n, name in enumerate(adapters)
        ],
    ).lazy()


def by_what(found):
    return {(one.lever, one.amount): one for one in found.levers}


RING = ["a", "b", "c"] * 400
WINDOW = Window(0, 1200 * SECOND)


def test_one_slot_short_is_cured_by_one_slot():
    found = by_what(levers(asked(RING), WINDOW, {"pod-0": 2}))
    assert (found["slots", 1].effect, found["slots", 1].low, found["slots", 1].high) == (1.0, 1.0, 1.0)


def test_a_ring_on_too_few_slots_misses_every_time():
    assert levers(asked(RING), WINDOW, {"pod-0": 2}).replayed_miss_ratio == 1.0


def test_no_lever_where_nothing_swaps():
    found = levers(asked(RING), WINDOW, {"pod-0": 3})
    assert (found.levers, found.replayed_miss_ratio) == ((), 0.0)


def test_slots_without_number_take_no_room():
    found = levers(asked(RING), WINDOW, {"pod-0": 10**15})
    assert (found.levers, found.replayed_miss_ratio) == ((), 0.0)


def test_requests_before_the_window_only_fill_the_slots():
    found = levers(asked(RING, begin=-600 * SECOND), Window(0, 600 * SECOND), {"pod-0": 3})
    assert (found.requests, found.replayed_miss_ratio) == (600, 0.0)


def test_requests_of_a_pod_whose_slots_are_unknown_are_left_out():
    found = levers(asked(RING, pods=("x", "pod-0")), WINDOW, {"pod-0": 2})
    assert found.requests < 500


def test_requests_for_the_base_model_are_no_misses():
    assert levers(asked([None] * 1000), WINDOW, {"pod-0": 1}).requests == 0


def test_no_requests_give_no_levers():
    assert levers(asked([]), WINDOW, {"pod-0": 1}).levers == ()


def test_affinity_routing_cures_what_round_robin_does_to_two_pods():
    names = np.random.default_rng(3).choice(list("abcd"), 4000).tolist()
    found = levers(asked(names, pods=("p0", "p1")), Window(0, 4000 * SECOND), {"p0": 2, "p1": 2})
    assert found.router in {"round robin", "random"}
    assert by_what(found)["routing", 0].effect > 0.9


def test_routing_by_residency_is_no_lever_where_it_is_what_routes():
    codes = np.random.default_rng(3).integers(0, 8, 2000).tolist()
    pods = replay(Trace(codes, pods=2), Fleet(3), LLM_D_RESIDENCY).pod.tolist()
    requests = pl.concat(
        asked([f"a{codes[n]}" if pods[n] == pod else "" for n in range(2000)], pods=(f"p{pod}",)) for pod in (0, 1)
    ).filter(pl.col("adapter") != "")
    found = levers(requests, Window(0, 2000 * SECOND), {"p0": 3, "p1": 3})
    assert found.router == "llm-d's residency scorer"
    assert "routing" not in {one.lever for one in found.levers}


def test_pins_are_never_more_than_the_slots_less_one():
    names = np.random.default_rng(3).choice(list("abcdefghijkl"), 3000).tolist()
    found = by_what(levers(asked(names), Window(0, 3000 * SECOND), {"pod-0": 6}))
    assert set(found) == {("slots", 1), ("slots", 2), ("slots", 4), ("pins", 5)}


def test_a_lever_that_makes_it_worse_says_so():
    ghosts = [*(f"g{n}" for n in range(5))] * 60  # asked for most, then never again
    rest = np.random.default_rng(5).choice(list("abcdefg"), 3000).tolist()
    requests = asked([*ghosts, *rest])
    found = by_what(levers(requests, Window(600 * SECOND, 3300 * SECOND), {"pod-0": 6}))
    assert found["pins", 5].effect != 0.0


def test_where_requests_wait_for_slots_what_is_loaded_again_within_a_step_counts():
    codes = np.random.default_rng(7).integers(0, 8, 1000).tolist()
    hold = 3_500_000
    found = levers(asked([f"a{code}" for code in codes], hold=hold), Window(0, 1000 * SECOND), {"pod-0": 3})
    trace = Trace(codes, hold=[hold] * 1000)
    plain = int((replay(trace, Fleet(3)).lookup[250:] > 0).sum())
    again = []
    for seed in range(20):
        hashes = np.random.default_rng(seed).integers(0, 1 << 62, 8).tolist()
        told = replay(trace, Fleet(3, name_hashes=hashes))
        again.append(int((told.lookup[250:] > 0).sum()) + int((told.reloads.at >= 250 * SECOND).sum()))
    assert min(again) > 1.01 * plain
    assert min(again) <= by_what(found)["slots", 1].base_loads <= max(again)


def test_engine_steps_are_replayed_unless_there_are_too_many_adapters_requests_and_slots():
    few = levers(asked(RING), WINDOW, {"pod-0": 2})
    many = levers(asked([f"a{n % 1000}" for n in range(2000)]), Window(0, 2000 * SECOND), {"pod-0": 100})
    assert {one.method for one in few.levers} == {"replay in engine steps on the recorded pods"}
    assert {one.method for one in many.levers} == {"replay on the recorded pods"}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=200, max_size=400), st.integers(1, 4))
def test_the_effect_of_slots_is_the_difference_of_two_replays(codes, slots):
    found = levers(asked([f"a{code}" for code in codes], begin=-10), Window(0, HOUR), {"pod-0": slots})
    trace = Trace(codes)
    loads = {more: int((replay(trace, Fleet(slots + more)).lookup[1:] > 0).sum()) for more in (0, 1)}
    if loads[0] < LEAST_LOADS:
        assert found.levers == ()
    else:
        assert by_what(found)["slots", 1].effect == pytest.approx(1 - loads[1] / loads[0])


def foretold(plan, adapters=RING, slots=2, pods=("pod-0",), present=None, **how):
    return foretell(asked(adapters, pods=pods, **how), WINDOW, dict.fromkeys(pods, slots), plan, present)


def test_a_plan_that_changes_nothing_is_the_present():
    told = foretold(Plan())
    assert (told.loads, told.swaps, told.effect, told.low, told.high) == (told.base_loads, told.base_swaps, 0.0, 0.0, 0.0)


def test_a_plan_of_one_slot_more_does_what_that_lever_does():
    told, alone = foretold(Plan(slots=1)), by_what(levers(asked(RING), WINDOW, {"pod-0": 2}))["slots", 1]
    assert (told.effect, told.low, told.high, told.loads, told.method) == (
        alone.effect,
        alone.low,
        alone.high,
        alone.loads,
        alone.method,
    )


def test_pins_and_a_slot_together_are_replayed_together():
    told = foretold(Plan(slots=1, pins=1), adapters=["a", "b", "c", "d"] * 300)
    assert told.pinned == 1
    assert told.loads < foretold(Plan(slots=1), adapters=["a", "b", "c", "d"] * 300).loads


def test_pins_without_room_are_not_counted():
    assert foretold(Plan(pins=3)).pinned == 1


def test_variants_take_half_of_the_requests_of_the_most_asked_for():
    assert foretold(Plan(variants=1), slots=3).base_loads == 0
    assert foretold(Plan(variants=1), slots=3).loads > 0
    assert foretold(Plan(variants=1, slots=1), slots=3).loads <= 1


def test_there_are_no_more_variants_than_adapters():
    assert foretold(Plan(variants=50, slots=4)).loads <= 6


def test_variants_of_nothing_change_nothing():
    told = foretold(Plan(variants=2), adapters=[None] * 100)
    assert (told.requests, told.loads, told.effect) == (0, 0, None)


def test_a_plan_may_name_a_router():
    told = foretold(
        Plan(router="the article's affinity router"), adapters=["a", "b"] * 600, slots=1, pods=("x", "y"), present="random"
    )
    assert told.method.endswith("with the article's affinity router")
    assert told.loads < told.base_loads


def test_more_pods_need_a_router():
    with pytest.raises(ValueError, match="name a router"):
        foretold(Plan(pods=1))
    assert foretold(Plan(pods=1), present="round robin").pods == 2


def test_no_effect_is_told_of_few_loads():
    told = foretold(Plan(slots=1), slots=3)
    assert (told.effect, told.low, told.high) == (None, None, None)


def test_nothing_is_foretold_of_nothing():
    assert foretold(Plan(), adapters=[]) is None


def test_a_wait_for_a_slot_ends_with_a_slot_for_each():
    told = foretold(Plan(slots=2), adapters=["a", "b"] * 600, slots=1, hold=3 * SECOND)
    assert told.base_wait_seconds > 0
    assert told.wait_seconds == 0.0


def test_a_lever_tells_the_wait_beside_that_of_the_present():
    found = by_what(levers(asked(["a", "b"] * 600, hold=1_100_000), WINDOW, {"pod-0": 1}))["slots", 1]
    assert found.wait_seconds < found.base_wait_seconds
