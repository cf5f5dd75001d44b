"""Advice on pins, on histories whose best pins are plain to see."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch.model import DAY, MINUTE, SECOND, Window
from lora_watch.recommend.advice import Place, Verdict
from lora_watch.recommend.change_points import changes
from lora_watch.recommend.pins import advise_pins, lengths, moves_with_pins, rule_pins
from lora_watch.recommend.placement import replicas
from lora_watch.recommend.present import Present
from lora_watch.replay.routers import ARTICLE, LLM_D, LLM_D_RESIDENCY, ROUND_ROBIN
from lora_watch.replay.trace import Trace
from tests.recommend.months import month, ring

GIVEN = Present(None, None, 0, 0)
AFFINE = Present("the article's affinity router", ARTICLE, 0, 0)


def test_in_a_ring_one_slot_too_long_all_slots_but_one_are_pinned_and_half_of_the_swaps_are_gone():
    told = advise_pins(month(ring(4, 16), 16), GIVEN)
    advice = told.advice
    assert advice.verdict is Verdict.ADVISED
    assert (advice.amount, len(advice.places), advice.what) == (2, 2, "pin 2 adapters on 1 pod")
    assert advice.effect.swaps_removed == pytest.approx(0.5, abs=0.01)
    assert advice.effect.low is not None
    assert advice.effect.low > 0.4
    assert advice.judged == Window(2 * DAY, 16 * DAY)
    assert advice.learned == Window(0, 16 * DAY)
    assert advice.provenance == "observed"


def test_where_nothing_is_loaded_nothing_is_pinned():
    told = advise_pins(month(ring(3, 16), 16), GIVEN)
    assert told.advice.verdict is Verdict.NOT_WORTH
    assert (told.advice.what, told.advice.places, told.advice.effect.swaps_removed) == ("pin nothing", (), 0.0)
    assert "nothing is loaded" in told.advice.why


def test_what_gains_less_than_the_replays_own_error_is_not_advised():
    codes = np.random.default_rng(3).integers(0, 4, 16 * 200).tolist()  # all alike, and independent: no policy is better
    told = advise_pins(month(codes, 16), GIVEN)
    assert told.advice.verdict is Verdict.NOT_WORTH
    assert "own error" in told.advice.why


def test_less_than_eight_days_prove_nothing():
    told = advise_pins(month(ring(4, 7), 7), GIVEN)
    assert (told.advice.verdict, told.advice.places, told.article, told.base) == (Verdict.UNPROVEN, (), None, None)
    assert "7.0 days" in told.advice.why
    assert advise_pins(month(ring(4, 8), 8), GIVEN).advice.verdict is Verdict.ADVISED


def test_nothing_is_learned_from_before_a_change():
    told = advise_pins(month(ring(4, 20), 20, changes=(4 * DAY,)), GIVEN)
    assert told.learning_cut == 4 * DAY
    assert told.advice.learned == Window(4 * DAY, 20 * DAY)
    assert advise_pins(month(ring(4, 20), 20, changes=(15 * DAY,)), GIVEN).advice.verdict is Verdict.UNPROVEN


def test_the_articles_rule_is_judged_alike():
    ghosts = [4] * 300 + [5] * 300 + ring(4, 16)  # asked for most, at the begin only
    told = advise_pins(month(ghosts, 16 + 600 / 40, slots=(3,)), GIVEN)
    assert told.article is not None
    assert told.article.verdict is Verdict.NOT_WORTH
    assert set(told.article.adapters) == {"a4", "a5"}
    assert told.advice.verdict is Verdict.ADVISED
    assert not set(told.advice.adapters) & {"a4", "a5"}


def test_experiments_are_pinned_only_if_they_are_opted_in():
    history = month(ring(4, 16), 16, experiment=[True] * 4)
    assert advise_pins(history, GIVEN).advice.verdict is Verdict.NOT_WORTH
    assert advise_pins(history, GIVEN, opt_in=["a1"]).advice.adapters == ("a1",)


def test_what_nobody_asked_for_lately_is_not_pinned_any_more():
    codes = ring(4, 16)
    codes[-4 * 40 :] = [4, 5, 6, 7] * 40
    told = advise_pins(month(codes, 16), GIVEN)
    assert not set(told.advice.adapters) & {"a0", "a1", "a2", "a3"}


def test_a_pin_is_worth_what_its_loads_take():
    history = month(ring(4, 16), 16, load_seconds=[0.1, 0.1, 0.1, 5.0])
    told = advise_pins(history, GIVEN)
    assert "a3" in told.advice.adapters
    assert told.advice.effect.gpu_hours_saved is not None
    both = advise_pins(history, GIVEN, gpus_per_pod=2).advice.effect
    assert both.gpu_hours_saved == pytest.approx(2 * told.advice.effect.gpu_hours_saved)


def test_swaps_and_their_share_are_of_all_judged_weeks():
    effect = advise_pins(month(ring(4, 16), 16), GIVEN).advice.effect
    assert (effect.base_swaps, effect.swaps_removed) == (14 * 40, pytest.approx(1 - effect.swaps / effect.base_swaps))


def test_the_number_of_pins_is_said_to_be_chosen_by_the_weeks_that_judge_it():
    told = advise_pins(month(ring(4, 16), 16), GIVEN).advice
    assert "learned before each judged week" in told.why
    assert "more surely than other numbers of pins" in told.why


def test_pins_that_there_are_now_are_the_present():
    told = advise_pins(month(ring(5, 16), 16, slots=(4,), pinned=((0, 0),)), GIVEN)
    assert told.advice.what == "pin 3 adapters on 1 pod, instead of the 1 that is pinned now"
    assert told.base is not None
    assert told.base.loads.sum() == 7 * 32
    assert told.advice.effect.swaps_removed == pytest.approx(0.5, abs=0.02)


def test_behind_an_affinity_router_each_pin_is_on_one_pod():
    random = np.random.default_rng(5)
    weights = 1 / np.arange(1, 16)
    codes = [int(a) for a in random.choice(15, 16 * 400, p=weights / weights.sum())]
    told = advise_pins(month(codes, 16, slots=(3, 3), hold=SECOND), AFFINE)
    assert len({place.adapter for place in told.advice.places}) == len(told.advice.places)
    for pod in ("p0", "p1"):
        assert sum(place.pod == pod for place in told.advice.places) <= 2


def test_an_adapter_that_keeps_a_pod_busy_is_tried_on_a_second_one():
    bursts = np.repeat(np.arange(9 * 96) % 6, 160)  # every quarter of an hour 160 requests at once, for six adapters in turn
    history = month(bursts.tolist(), 9, slots=(3, 3))
    burst = np.repeat(np.arange(9 * 96) * (DAY // 96), 160)
    trace = history.trace
    busy = Trace(trace.adapter, adapters=6, pod=trace.pod, pods=2, at=burst, hold=np.full(len(trace), 5 * MINUTE))
    assert replicas(replace(history, trace=busy)) == [2] * 6
    told = advise_pins(replace(history, trace=busy), AFFINE)
    assert all(sum(place.pod == pod for place in told.advice.places) <= 2 for pod in ("p0", "p1"))


def test_where_nobody_asks_any_more_nothing_is_pinned():
    told = advise_pins(month([*ring(4, 16), *[-1] * 160], 20), GIVEN)
    assert told.advice.verdict is Verdict.NOT_WORTH
    assert "no adapter is a candidate any more" in told.advice.why


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 3), min_size=1, max_size=2), st.sampled_from([GIVEN, AFFINE]))
def test_no_pod_is_ever_pinned_full_and_the_same_history_gives_the_same_advice(seed: int, slots: list[int], now: Present):
    random = np.random.default_rng(seed)
    codes, pod = random.integers(0, 6, 9 * 60), random.integers(0, len(slots), 9 * 60)
    history = month(codes.tolist(), 9, slots=slots, pod=pod.tolist())
    told = advise_pins(history, now)
    for p, count in enumerate(slots):
        assert sum(place.pod == f"p{p}" for place in told.advice.places) < count
    assert advise_pins(history, now).advice == told.advice


def test_rules_of_thumb_count_requests_and_stay_within_the_slots():
    history = month([0] * 50 + [1, 2, 2, 3, 3, 3], 10, slots=(2, 2))
    assert rule_pins(history, 5, 30 * DAY) == ((0, 0), (1, 3))
    assert rule_pins(history, 2, DAY) == ((0, 3), (1, 2))
    assert rule_pins(month([], 10, adapters=3), 5, DAY) == ()


def test_numbers_of_pins_are_spread_up_to_all():
    assert lengths(0) == []
    assert lengths(3) == [1, 2, 3]
    assert lengths(56) == [7, 14, 21, 28, 35, 42, 49, 56]


@pytest.mark.parametrize(
    ("router", "moves"), [(None, False), (ROUND_ROBIN, False), (LLM_D, False), (ARTICLE, True), (LLM_D_RESIDENCY, True)]
)
def test_a_pin_moves_requests_where_the_router_looks_at_what_is_resident(router, moves: bool):
    assert moves_with_pins(Present("x", router, 0, 0)) is moves


def test_the_router_is_found_where_it_is_not_given():
    assert advise_pins(month(ring(4, 16), 16)).advice.method.startswith("replay on the recorded pods")


def test_pins_are_places_by_name():
    told = advise_pins(month(ring(4, 16), 16), GIVEN)
    assert set(told.advice.places) <= {Place(f"a{a}", "p0") for a in range(4)}
    assert changes(month(ring(4, 16), 16)) == ()
