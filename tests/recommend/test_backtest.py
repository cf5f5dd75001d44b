"""Advice given at a week's start from what lay before, judged by what came."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch.model import DAY, Window
from lora_watch.recommend.advice import Verdict
from lora_watch.recommend.backtest import ONE_SLOT, TOP_5, TOP_5_WEEK, TOP_10, backtest, held_out
from lora_watch.recommend.bounds import HINDSIGHT, PER_POD, POOLED
from lora_watch.recommend.present import Present
from tests.recommend.months import month, ring

GIVEN = Present(None, None, 0, 0)


def zipf(days: int, adapters: int, seed: int, per_day: int = 120) -> list[int]:
    weights = 1 / np.arange(1, adapters + 1)
    return [int(a) for a in np.random.default_rng(seed).choice(adapters, days * per_day, p=weights / weights.sum())]


def test_a_ring_keeps_its_promise_every_week():
    told = backtest(month(ring(4, 30), 30), 4)
    assert [week.window.start // DAY for week in told.weeks] == [2, 9, 16, 23]
    assert [week.kept for week in told.weeks] == [None, True, True, True]
    assert [week.advice.verdict for week in told.weeks][:2] == [Verdict.UNPROVEN, Verdict.ADVISED]
    assert told.weeks[-1].realised.swaps_removed == pytest.approx(0.5, abs=0.01)
    assert told.weeks[-1].realised == told.weeks[-1].unreleased
    assert (told.weeks[0].router, told.provenance) == (None, "observed")


def test_a_week_without_advice_changes_nothing():
    week = backtest(month(ring(4, 30), 30), 4).weeks[0]
    assert (week.realised.swaps_removed, week.realised.swaps, week.advice.places) == (0.0, 280, ())


def test_rules_and_bounds_stand_beside():
    week = backtest(month(ring(4, 30), 30), 1).weeks[0]
    assert set(week.rules) == {TOP_5, TOP_10, TOP_5_WEEK, ONE_SLOT}
    assert set(week.bounds) == {POOLED, PER_POD, HINDSIGHT}
    assert week.rules[ONE_SLOT].swaps_removed == 1.0
    assert week.bounds[HINDSIGHT] == pytest.approx(0.5, abs=0.01)
    assert week.bounds[POOLED] == week.bounds[PER_POD] == pytest.approx(2 / 3, abs=0.02)


def test_progress_is_told_week_by_week():
    seen: list[tuple[int, int]] = []
    backtest(month(ring(4, 16), 16), 4, progress=lambda done, every: seen.append((done, every)))
    assert seen == [(1, 2), (2, 2)]


def test_a_history_of_a_week_has_no_held_out_week():
    assert backtest(month(ring(4, 8), 8), 4).weeks == ()


def test_where_nothing_is_loaded_there_are_no_bounds():
    week = backtest(month(ring(3, 16), 16), 1).weeks[0]
    assert (week.bounds, week.kept, week.realised.swaps_removed, week.miss_ratio) == ({}, None, None, 0.0)


def test_pins_of_a_change_are_released_within_the_hour():
    per_day = 24 * 60
    codes = [n % 4 if n < 19 * per_day else 4 + n % 4 for n in range(23 * per_day)]
    since = [-(1 << 50)] * 4 + [19 * DAY] * 4
    week = backtest(month(codes, 23, first_seen=since), 1).weeks[0]
    assert week.advice.verdict is Verdict.ADVISED
    assert week.realised.swaps_removed is not None
    assert week.unreleased.swaps_removed is not None
    assert week.realised.swaps_removed == pytest.approx(3 / 7 * 0.5, abs=0.01)
    assert week.unreleased.swaps_removed <= week.realised.swaps_removed


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_what_comes_in_the_week_changes_nothing_of_its_advice(before: int, after: int):
    past, future = zipf(14, 8, before), zipf(7, 8, after)
    one = month([*past, *future], 21, slots=(3,))
    other = month([*past, *future[::-1]], 21, slots=(3,))
    week = Window(14 * DAY, 21 * DAY)
    assert held_out(one, week).advice == held_out(other, week).advice


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_on_a_mix_that_stays_pins_never_miss_more_than_lru_by_a_hundredth_and_never_beat_belady(seed: int, slots: int):
    for week in backtest(month(zipf(23, 9, seed), 23, slots=(slots,)), 2, now=GIVEN).weeks:
        assert week.realised.swaps_removed is not None
        assert week.realised.swaps_removed >= -0.01
        assert week.realised.swaps_removed <= week.bounds[POOLED] + slots / week.loads
        assert week.bounds[HINDSIGHT] <= week.bounds[POOLED] + slots / week.loads


def test_codes_that_were_never_asked_for_do_no_harm():
    history = month(ring(4, 16), 16, adapters=7)
    assert backtest(replace(history, names=("</script>", "a\n", *history.names[2:])), 1).weeks[0].advice.amount == 2
