"""The judged week: what it is, what a change does to it, and when that is proven."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.errors import NotEnoughHistory
from lora_watch.model import DAY, HOUR, Window
from lora_watch.recommend.advice import Effect, Verdict
from lora_watch.recommend.present import Present, present
from lora_watch.recommend.proof import MODEL_ERROR
from lora_watch.recommend.trial import Told, Trial, counted, foretold, hashes, judged_window, trial, verdict
from lora_watch.replay.cluster import Reloads
from lora_watch.replay.trace import Trace
from tests.histories import drawn, history

RECORDED = Present(None, None, 0, 0)
RING = ["a", "b", "c"] * 1000


def judged(one) -> Trial:
    return trial(one, present(one))


def test_the_last_week_of_a_month_is_judged():
    one = history(RING, days=30)
    assert judged_window(one) == Window(one.window.end - 7 * DAY, one.window.end)


def test_of_a_day_seven_eighths_are_judged():
    one = history(RING, days=1)
    assert judged_window(one) == Window(one.window.start + 3 * HOUR, one.window.end)


def test_what_is_judged_begins_where_the_mix_changed():
    one = history(RING, days=30)
    changed = one.window.end - 3 * DAY
    assert judged_window(history(RING, days=30, changes=(changed,))).start == changed


def test_a_change_of_the_last_day_is_too_young_to_judge_by():
    one = history(RING, days=30)
    assert judged_window(history(RING, days=30, changes=(one.window.end - HOUR,))).start == one.window.end - 7 * DAY


def test_a_handful_of_requests_tells_nothing():
    with pytest.raises(NotEnoughHistory, match="any change is chance"):
        judged(history(RING[:30]))


def test_no_request_tells_nothing():
    with pytest.raises(NotEnoughHistory, match="no request"):
        judged(history([]))


def test_loads_that_no_request_asked_for_take_their_time_where_no_request_missed():
    told = judged(history(RING))
    trace = told.part.trace
    at, nobody = np.array([told.judged.start], dtype=np.int64), np.array([-1], dtype=np.int64)
    reloads = Reloads(at, nobody + 1, nobody + 1, nobody + 2, nobody + 1, nobody, nobody, nobody)
    hits = np.zeros(len(trace), dtype=np.int8)
    found = counted(told, Told(hits, np.full(len(trace), -1, dtype=np.int32), trace.at, reloads), trace)
    assert (int(found.loads.sum()), float(found.load_seconds.sum())) == (1, 1.0)


def test_a_ring_on_too_few_slots_swaps_at_every_request():
    told = judged(history(RING))
    assert int(told.base.swaps.sum()) == told.requests == 2100


def test_a_slot_more_removes_all_of_it_every_day():
    told = judged(history(RING))
    effect = told.effect(told.count(fleet=told.part.fleet(more_slots=1)))
    assert (effect.swaps_removed, effect.high, effect.swaps) == (1.0, 1.0, 0)


def test_the_next_week_may_differ_by_what_no_day_of_this_one_shows():
    told = judged(history(RING))
    effect = told.effect(told.count(fleet=told.part.fleet(more_slots=1)))
    assert effect.low == pytest.approx(1 - 1.96 * 0.02)


def test_of_loads_that_a_change_adds_more_is_unforeseen_than_of_those_there_are():
    base = np.full(7, 100)
    same, more = foretold(base, base), foretold(base, base * 6)
    assert same == (0.0, pytest.approx(-1.96 * 0.02), pytest.approx(1.96 * 0.02))
    assert more == (-5.0, pytest.approx(-5 - 1.96 * 0.22), pytest.approx(-5 + 1.96 * 0.22))


def test_gpu_hours_are_those_of_a_month():
    told = judged(history(RING))
    effect = told.effect(told.count(fleet=told.part.fleet(more_slots=1)))
    assert effect.gpu_hours_saved == pytest.approx(2100 / 3600 * 730 / (7 * 24))


def test_hours_of_half_a_day_tell_nothing_of_a_month():
    told = judged(history(RING, days=0.5))
    effect = told.effect(told.count(fleet=told.part.fleet(more_slots=1)))
    assert (effect.gpu_hours_saved, effect.swaps_removed) == (None, 1.0)


def test_the_p95_falls_by_a_load_where_every_request_misses():
    told = judged(history(RING))
    assert told.effect(told.count(fleet=told.part.fleet(more_slots=1))).p95_seconds_saved == 1.0


def test_loads_that_nobody_timed_cost_an_unknown_time():
    told = judged(history(RING, load_seconds=np.full(3, np.nan)))
    effect = told.effect(told.count(fleet=told.part.fleet(more_slots=1)))
    assert (effect.gpu_hours_saved, effect.p95_seconds_saved, effect.swaps_removed) == (None, None, 1.0)


def test_of_no_swaps_no_share_can_be_gone():
    told = judged(history(["a", "b"] * 1000))
    assert told.effect(told.base).swaps_removed is None


def test_where_requests_wait_for_slots_the_waiting_is_what_hurts():
    one = history(drawn("abcdef", 3000), days=0.1, hold=9_000_000)
    told = judged(one)
    effect = told.effect(told.count(fleet=told.part.fleet(more_slots=4)))
    assert (effect.of, effect.waits_removed) == ("waiting for slots", 1.0)


def test_one_pod_is_judged_as_recorded():
    assert "on the recorded pods" in judged(history(RING)).method


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.01, 0.5, Verdict.ADVISED),
        (0.001, 2 * MODEL_ERROR - 0.002, Verdict.NOT_WORTH),
        (-0.1, 0.5, Verdict.NOT_WORTH),
        (-0.2, -0.1, Verdict.HARMFUL),
        (None, None, Verdict.UNPROVEN),
    ],
)
def test_a_verdict_is_the_lower_bound_beside_the_replays_own_error(low, high, said):
    share = None if low is None else (low + high) / 2
    assert verdict(Effect(share, low, high, 1, 2)) is said


@given(st.integers(0, 3), st.integers(1, 4), st.integers(0, 2**30))
def test_the_interval_holds_the_share(more, slots, seed):
    told = trial(history(drawn("abcdefg", 600, seed), slots=slots, days=8), RECORDED)
    effect = told.effect(told.count(fleet=told.part.fleet(more_slots=more)))
    if effect.swaps_removed is not None:
        assert effect.low is not None
        assert effect.high is not None
        assert effect.low <= effect.swaps_removed <= effect.high


def test_what_began_late_is_judged_from_there():
    told = judged(history(RING))
    later = told.since(told.judged.end - 6 * HOUR)
    assert later.judged.end - later.judged.start == 6 * HOUR
    assert 0 < later.requests < told.requests


def test_a_month_of_many_requests_is_not_replayed_step_by_step():
    codes = np.zeros(200_000, dtype=np.int64)
    one = history(["a"] * 10)
    large = replace(one, trace=Trace(codes, adapters=1, at=one.window.start + codes))
    assert hashes(large) is None
    assert len(hashes(one)) == 1


def test_before_the_judged_week_another_is_judged_alike():
    one = judged(history(RING, days=30))
    assert one.before().judged == Window(one.judged.start - 7 * DAY, one.judged.start)


def test_before_all_that_is_held_nothing_is_judged():
    one = judged(history(RING, days=30))
    first = replace(one, judged=Window(one.history.window.start, one.judged.end))
    with pytest.raises(NotEnoughHistory, match="nothing is held"):
        first.before()
