"""Plans on histories small enough to count by hand, and against a simulation in which they are really applied."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch.derive.saturation import Bottleneck
from lora_watch.errors import NotEnoughHistory
from lora_watch.model import SECOND, Window
from lora_watch.recommend.advice import Place
from lora_watch.recommend.history import History
from lora_watch.recommend.present import ROUTERS, Present
from lora_watch.recommend.what_if import ROUTING, Added, Number, WhatIf, foresee, timed
from lora_watch.replay.trace import Trace

RECORDED = Present(None, None, 0, 0)
RING = [0, 1, 2] * 800


def history(codes, *, slots=(2,), pods=None, gap=SECOND, hold=0, seconds=0.1, **changes):
    """One request every ``gap``; letters of the alphabet by code."""
    count = max(codes) + 1
    trace = Trace(
        codes,
        adapters=count,
        pod=pods or [0] * len(codes),
        pods=len(slots),
        at=np.arange(len(codes)) * gap,
        hold=[hold] * len(codes),
    )
    made = History(
        Window(0, len(codes) * gap),
        trace,
        tuple("abcdefghijklmnopqrstuvwxyz"[:count]),
        tuple(f"pod-{n}" for n in range(len(slots))),
        tuple(slots),
        np.full(count, seconds),
        np.full(count, -1),
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.bool_),
        provenance="observed",
    )
    return replace(made, **changes)


def foreseen(plan, past=None, present=RECORDED):
    return foresee(history(RING) if past is None else past, present, plan)


def routed(name):
    return Present(ROUTING[name], ROUTERS[ROUTING[name]], 0, 0)


def test_a_plan_that_changes_nothing_is_the_present():
    told = foreseen(WhatIf())
    assert told.now == told.then
    assert told.effect.swaps_removed == 0.0


def test_one_slot_more_cures_a_ring_that_is_one_slot_short():
    told = foreseen(WhatIf(slots=Number(3)))
    assert (told.now.miss_ratio, told.then.miss_ratio, told.effect.swaps_removed) == (1.0, 0.0, 1.0)


@pytest.mark.parametrize("slots", [Number(3), Number(1, more=True)], ids=["all", "more"])
def test_slots_may_be_told_in_all_or_as_so_many_more(slots):
    assert foreseen(WhatIf(slots=slots)).then.slots == 3


def test_the_state_tells_swaps_loads_and_residency_in_their_units():
    now = foreseen(WhatIf()).now
    assert (now.pods, now.slots, now.adapters) == (1, 2, 3)
    assert now.swaps_per_second == 1.0  # each request takes a slot from another adapter
    assert now.load_share == pytest.approx(0.1)  # a load of 0.1 s each second
    assert now.load_share_worst == pytest.approx(0.1)
    assert now.wait_p95_seconds == pytest.approx(0.1)
    assert now.residency_p50_seconds == 2.0  # in at one request, out two later


def test_stays_that_nobody_ends_have_no_residency():
    told = foreseen(WhatIf(slots=Number(3)))
    assert (told.then.residency_p50_seconds, told.then.residency_p95_seconds) == (None, None)


def test_what_loads_cost_is_unknown_where_nobody_measured_any():
    now = foreseen(WhatIf(), history(RING, seconds=float("nan"))).now
    assert (now.load_share, now.load_share_worst, now.wait_p95_seconds) == (None, None, None)
    assert now.peak is not None
    assert now.peak.loads is None


def test_loads_that_take_all_the_time_are_what_runs_out_first():
    peak = foreseen(WhatIf(), history(RING, seconds=0.9)).now.peak
    assert peak is not None
    assert (peak.bottleneck, peak.rho) == (Bottleneck.LOADS, pytest.approx(0.9))


def test_adapters_in_flight_fill_slots_by_little():
    now = foreseen(WhatIf(), history([0] * 2400, hold=SECOND // 2)).now
    assert now.peak is not None
    assert now.peak.slots == pytest.approx((1 - np.exp(-0.5)) / 2)


def test_requests_of_the_base_model_are_no_misses():
    now = foreseen(WhatIf(), history([*[0, -1] * 600])).now
    assert now.requests < 1200
    assert now.miss_ratio == 0.0


def test_a_pin_keeps_its_adapter_where_it_is_asked_for_most():
    told = foreseen(WhatIf(pins=("c",)))
    assert told.pins == (Place("c", "pod-0"),)
    assert told.then.miss_ratio == pytest.approx(2 / 3, abs=0.01)


def test_pins_leave_a_slot_free_on_every_pod():
    assert foreseen(WhatIf(pins=("a", "b"))).pins == (Place("a", "pod-0"),)


def test_a_pin_of_nobody_is_refused_by_name():
    with pytest.raises(ValueError, match="asks for 'zz'"):
        foreseen(WhatIf(pins=("zz",)))


def test_pins_that_are_there_stay_and_count():
    told = foreseen(WhatIf(pins=("b",)), history(RING, slots=(2,), pinned=((0, 0),)))
    assert told.pins == ()


def test_other_routing_is_replayed():
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 4, 3000).tolist()
    past = history(codes, slots=(2, 2), pods=(np.arange(3000) % 2).tolist())
    told = foreseen(WhatIf(router="affinity"), past, routed("round-robin"))
    assert told.now.miss_ratio > 0.4
    assert told.then.miss_ratio < 0.05
    assert told.method.endswith("with the article's affinity router, against round robin")


def test_more_pods_bring_their_slots():
    rng = np.random.default_rng(3)
    past = history(rng.integers(0, 6, 3000).tolist(), slots=(2, 2), pods=(np.arange(3000) % 2).tolist())
    told = foreseen(WhatIf(pods=Number(3)), past, routed("residency"))
    assert (told.now.pods, told.then.pods, told.then.slots) == (2, 3, 6)
    assert told.then.miss_ratio < told.now.miss_ratio


def test_fewer_pods_take_theirs_away():
    past = history(RING, slots=(2, 2), pods=(np.arange(2400) % 2).tolist())
    told = foreseen(WhatIf(pods=Number(-1, more=True)), past, routed("residency"))
    assert (told.then.pods, told.then.slots) == (1, 2)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (WhatIf(pods=Number(2)), "name --routing"),
        (WhatIf(pods=Number(0)), "one pod or more"),
        (WhatIf(slots=Number(0)), "too few"),
        (WhatIf(slots=Number(-2, more=True)), "too few"),
        (WhatIf(added=Added(0, 1)), "one or more"),
        (WhatIf(added=Added(1, 0)), "one or more"),
        (WhatIf(added=Added(1, 1, share=1.5)), "between 0 and 1"),
        (WhatIf(added=Added(1)), "need a rate"),
        (WhatIf(added=Added(1, rate=0.0)), "need a rate"),
        (WhatIf(added=Added(1, rate=1e6)), "a lower rate, or a shorter --last"),
        (WhatIf(added=Added(1, rate=1e308)), "a lower rate, or a shorter --last"),
        (WhatIf(added=Added(1, ("zz",))), "asks for 'zz'"),
    ],
)
def test_what_cannot_be_replayed_is_refused(plan, said):
    with pytest.raises(ValueError, match=said):
        foreseen(plan)


def test_slots_below_the_pins_there_are_refused():
    with pytest.raises(ValueError, match="too few"):
        foreseen(WhatIf(slots=Number(1)), history(RING, pinned=((0, 0),)))


def test_a_handful_of_requests_tells_nothing():
    with pytest.raises(NotEnoughHistory, match="below 200"):
        foreseen(WhatIf(), history(RING[:150]))


def test_variants_take_their_share_of_the_requests_of_the_most_asked_for():
    told = foreseen(WhatIf(added=Added(1, 1, share=0.3)), history([0, 0, 1] * 800))
    assert told.moved == pytest.approx(0.3 * 2 / 3, abs=0.03)
    assert (told.now.adapters, told.then.adapters) == (2, 3)


def test_a_share_of_one_moves_every_request():
    told = foreseen(WhatIf(added=Added(1, ("a",), share=1.0)), history([0, 0, 1] * 800))
    assert (told.moved, told.then.adapters) == (pytest.approx(2 / 3, abs=0.001), 2)


def test_more_variants_than_adapters_share_in_turn():
    told = foreseen(WhatIf(added=Added(5, 2, share=1.0)), history([0, 1] * 1200))
    assert (told.moved, told.then.adapters) == (1.0, 5)


def test_variants_keep_the_number_and_the_time_of_requests():
    told = foreseen(WhatIf(added=Added(3, 3)))
    assert told.then.requests == told.now.requests


def test_adapters_with_traffic_of_their_own_bring_it_at_their_rate():
    told = foreseen(WhatIf(added=Added(4, rate=0.5, zipf=0.0)))
    assert told.then.requests / told.now.requests == pytest.approx(1.5, abs=0.05)
    assert told.moved == pytest.approx(1 / 3, abs=0.02)
    assert told.then.adapters == 7


def test_traffic_that_is_added_comes_when_the_others_come():
    quiet_then_busy = np.concatenate([np.arange(600) * 10 * SECOND, 6000 * SECOND + np.arange(6000) * SECOND // 10])
    past = history([0] * 6600)
    trace = Trace([0] * 6600, pod=[0] * 6600, at=quiet_then_busy.astype(np.int64))
    told = foreseen(WhatIf(added=Added(1, rate=1.0)), replace(past, trace=trace, window=Window(0, 6600 * SECOND)))
    assert told.moved == pytest.approx(0.5, abs=0.02)  # 6,600 of its own, nine in ten in the busy part, as the others


def test_loads_of_added_adapters_take_what_is_said_of_them():
    same = foreseen(WhatIf(added=Added(1, 1, share=1.0)))
    slow = foreseen(WhatIf(added=Added(1, 1, share=1.0, load_seconds=0.4)))
    assert same.then.load_share == pytest.approx(0.1)
    assert slow.then.load_share == pytest.approx((0.4 + 0.1 + 0.1) / 3, abs=0.002)


def test_where_nobody_measured_loads_those_said_of_the_added_stand_for_all():
    told = foreseen(WhatIf(added=Added(1, 1, load_seconds=0.2)), history(RING, seconds=float("nan")))
    assert told.now.load_share is None
    assert told.then.load_share == pytest.approx(0.2, abs=0.01)


@settings(max_examples=8, deadline=None)
@given(codes=st.lists(st.integers(0, 6), min_size=400, max_size=600), slots=st.integers(1, 5))
def test_on_recorded_pods_more_slots_never_miss_more(codes, slots):
    told = foreseen(WhatIf(slots=Number(slots + 1)), history(codes, slots=(slots,), seconds=0.0))
    assert told.then.miss_ratio <= told.now.miss_ratio


@settings(max_examples=8, deadline=None)
@given(share=st.floats(0, 1), count=st.integers(1, 8), top=st.integers(1, 8))
def test_shares_and_misses_are_ratios_whatever_is_split(share, count, top):
    told = foreseen(WhatIf(added=Added(count, top, share)))
    assert 0 <= told.moved <= 1
    assert 0 <= told.then.miss_low <= told.then.miss_ratio <= told.then.miss_high <= 1


def test_the_same_plan_gives_the_same_answer():
    plan = WhatIf(added=Added(2, 2), slots=Number(3))
    assert foreseen(plan) == foreseen(plan)


def test_a_pods_loads_take_the_mean_of_what_was_measured():
    assert timed(history(RING, load_seconds=np.array([0.1, 0.3, np.nan]))).cold_load == SECOND // 5


def test_what_is_too_much_for_engine_steps_is_replayed_request_by_request():
    few = foreseen(WhatIf())
    many = foreseen(WhatIf(slots=Number(10**6)))
    assert few.method == "replay in engine steps on the recorded pods"
    assert many.method == "replay on the recorded pods"


def test_ten_minutes_without_a_request_are_no_peak():
    at = np.concatenate([np.arange(300) * SECOND, 4000 * SECOND + np.arange(300) * SECOND])
    trace = Trace([0, 1, 2] * 200, pod=[0] * 600, at=at, hold=[SECOND] * 600)
    told = foreseen(WhatIf(), replace(history(RING[:600]), trace=trace, window=Window(0, 4300 * SECOND)))
    assert told.now.peak is not None
    assert told.now.peak.slots > 0


def accuracy() -> ModuleType:
    """The benchmark, which is no part of the package."""
    path = Path(__file__).parents[2] / "benchmarks" / "what_if_accuracy.py"
    spec = importlib.util.spec_from_file_location("what_if_accuracy", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", ["the article's router", "round robin, sessions"])
def test_plans_that_are_really_applied_miss_as_foretold(name):
    module = accuracy()
    found = list(module.measured(name, 1.0, seed=21))  # no rule was chosen by this seed
    assert len(found) >= 10
    errors = sorted(abs(one.error) for one in found)
    assert errors[len(errors) // 2] <= module.TOLERANCE / 2
    assert errors[-1] <= module.TOLERANCE


def test_a_slot_more_that_is_really_applied_misses_as_foretold():
    (told,) = accuracy().measured("the article's router", 0.2, only=1)
    assert told.now - told.truth > 0.03
    assert abs(told.error) <= accuracy().TOLERANCE
