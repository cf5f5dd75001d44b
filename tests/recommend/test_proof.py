import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch.model import DAY, Window
from lora_watch.recommend.advice import Verdict
from lora_watch.recommend.judge import Judged
from lora_watch.recommend.proof import UNFORESEEN, Measure, effect, proof


def week(*loads: float, preloads: int = 0, wait: float | None = None, each: float = 1.0) -> Judged:
    """Loads by day, each costing as much."""
    counts = np.array(loads)
    return Judged(
        Window(0, len(loads) * DAY),
        int(10 * counts.sum()),
        counts.astype(np.int64),
        counts * each,
        counts.astype(np.int64),
        preloads,
        preloads * each,
        wait,
    )


days = st.lists(st.integers(3, 100), min_size=7, max_size=7)


def test_the_same_share_every_day_is_sure():
    told = proof([(week(*[100] * 7), week(*[80] * 7))])
    assert told is not None
    assert (told.share, told.lower) == (pytest.approx(0.2), pytest.approx(0.2))
    assert told.low == pytest.approx(0.2 - 1.96 * UNFORESEEN)
    assert told.verdict is Verdict.ADVISED


def test_preloads_count_as_loads():
    told = proof([(week(*[100] * 7), week(*[80] * 7, preloads=70))])
    assert told is not None
    assert told.share == pytest.approx(0.1)


def test_one_good_day_proves_nothing():
    told = proof([(week(*[100] * 7), week(30, *[102] * 6))])
    assert told is not None
    assert told.share > 0.03
    assert told.lower < 0
    assert told.verdict is Verdict.NOT_WORTH


def test_what_is_within_the_replays_own_error_is_not_worth_it():
    told = proof([(week(*[100] * 7), week(*[98] * 7))])
    assert told is not None
    assert told.verdict is Verdict.NOT_WORTH


def test_what_adds_loads_is_harmful():
    told = proof([(week(*[100] * 7), week(*[150] * 7))])
    assert told is not None
    assert told.verdict is Verdict.HARMFUL


def test_weeks_that_differ_widen_the_interval():
    alike = proof([(week(*[100] * 7), week(*[80] * 7))] * 2)
    apart = proof([(week(*[100] * 7), week(*[70] * 7)), (week(*[100] * 7), week(*[90] * 7))])
    assert alike is not None
    assert apart is not None
    assert apart.high - apart.low > 2 * (alike.high - alike.low)


def test_nothing_is_proven_where_there_was_nothing_to_remove():
    assert proof([(week(*[0] * 7), week(*[0] * 7, preloads=3))]) is None


def test_a_handful_of_loads_proves_nothing():
    assert proof([(week(19, *[0] * 6), week(*[0] * 7))]) is None
    assert proof([(week(20, *[0] * 6), week(*[0] * 7))]) is not None


def test_swaps_and_load_time_are_measured_apart():
    before, after = week(*[100] * 7, each=2.0), week(*[90] * 7, each=1.0)
    cost, swaps = proof([(before, after)]), proof([(before, after)], Measure.SWAPS)
    assert cost is not None
    assert swaps is not None
    assert (cost.share, swaps.share) == (pytest.approx(0.55), pytest.approx(0.1))


@settings(deadline=None, max_examples=30)
@given(days, days)
def test_the_bounds_are_on_their_sides_of_the_share(before: list[int], after: list[int]):
    told = proof([(week(*before), week(*after))])
    assert told is not None
    assert told.lower <= told.share + 1e-9
    assert told.low <= told.share <= told.high


def test_an_effect_counts_swaps_and_hours_of_a_month():
    told = effect(week(*[100] * 7, each=36.0, wait=2.0), week(*[60] * 7, preloads=70, each=36.0, wait=0.5), measured=True)
    assert (told.swaps, told.base_swaps, told.swaps_removed) == (490, 700, pytest.approx(0.3))
    assert (told.low, told.high) == (pytest.approx(0.3), pytest.approx(0.3))
    assert told.p95_seconds_saved == 1.5
    assert told.gpu_hours_saved == pytest.approx(210 * 36 / 3600 * 730 / 168)


def test_gpu_hours_are_those_of_every_gpu_of_a_pod():
    one, two = (effect(week(*[100] * 7), week(*[60] * 7), measured=True, gpus_per_pod=gpus) for gpus in (1, 2))
    assert one.gpu_hours_saved is not None
    assert two.gpu_hours_saved == 2 * one.gpu_hours_saved


def test_what_nobody_measured_is_unknown():
    told = effect(week(*[0] * 7), week(*[0] * 7), measured=False)
    assert (told.swaps_removed, told.low, told.high, told.p95_seconds_saved, told.gpu_hours_saved) == (None,) * 5
