import math

import numpy as np
import polars as pl
import pytest
from derive.asked import QUICK
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.derive.che import characteristic_seconds, che, distinct, loads
from lora_watch.model import SECOND, Window
from lora_watch.replay.stack import misses_by_slots
from lora_watch.replay.trace import Trace

HUNDRED = Window(0, 100 * SECOND)
positive = st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=50)


def by_name(**per_second: float) -> pl.LazyFrame:
    frame = {"cluster": "c", "pool": "p", "role": "", "provenance": "observed"}
    return pl.LazyFrame([{**frame, "adapter": name, "requests_per_second": rate} for name, rate in per_second.items()])


def test_two_equal_adapters_and_one_slot_miss_every_other_time():
    row = che(by_name(a=1.0, b=1.0), 1).row(0, named=True)
    assert (row["adapters"], row["requests_per_second"]) == (2, 2.0)
    assert row["miss_ratio"] == pytest.approx(0.5)
    assert row["residency_seconds"] == pytest.approx(1.0)
    assert (row["method"], row["provenance"]) == ("che", "observed")


def test_a_slot_for_each_adapter_has_no_loads_and_stays_without_end():
    row = che(by_name(a=1.0, b=1.0), 2).row(0, named=True)
    assert (row["characteristic_seconds"], row["loads_per_second"], row["miss_ratio"], row["residency_seconds"]) == (
        None,
        0.0,
        0.0,
        None,
    )


def test_silent_adapters_and_the_base_model_take_no_slot():
    base = pl.LazyFrame(
        [{"cluster": "c", "pool": "p", "role": "", "provenance": "observed", "adapter": None, "requests_per_second": 9.0}]
    )
    told = che(pl.concat([by_name(a=1.0, b=0.0), base], how="vertical_relaxed"), [1])
    assert told.select("adapters", "miss_ratio").rows() == [(1, 0.0)]


def test_slots_may_be_a_frame_by_pool():
    slots = pl.LazyFrame({"pool": ["p", "q"], "slots": [1, 2]})
    assert che(by_name(a=1.0, b=1.0), slots)["slots"].to_list() == [1]


def test_slots_that_belong_to_nobody_are_refused():
    with pytest.raises(ValueError, match="stands beside them"):
        che(by_name(a=1.0), pl.LazyFrame({"slots": [1]}))


def test_no_rates_have_no_row():
    assert che(by_name(a=0.0), 1).is_empty()


def test_it_is_within_a_point_of_the_exact_curve_for_independent_requests():
    random = np.random.default_rng(4)
    weights = 1 / np.arange(1, 61)
    codes = random.choice(60, 200_000, p=weights / weights.sum())
    exact = misses_by_slots(Trace(codes, adapters=60))[0] / len(codes)
    frame = by_name(**{f"a{n}": float(rate) for n, rate in enumerate(np.bincount(codes, minlength=60) / 1000)})
    told = che(frame, range(4, 33))["miss_ratio"].to_numpy()
    assert np.abs(told - exact[4:33]).max() < 0.01


@QUICK
@given(positive, st.floats(0.01, 0.99))
def test_the_characteristic_time_fills_the_slots(rate: list[float], share: float):
    each = np.array(rate)
    slots = share * len(each)
    seconds = characteristic_seconds(each, slots)
    assert distinct(each, seconds) == pytest.approx(slots, rel=1e-6)
    assert 0 <= loads(each, seconds) <= each.sum()


@QUICK
@given(positive)
def test_more_slots_never_miss_more(rate: list[float]):
    told = che(by_name(**{f"a{n}": one for n, one in enumerate(rate)}), range(1, len(rate) + 1))
    assert (np.diff(told["miss_ratio"].to_numpy()) <= 1e-9).all()


def test_no_slot_at_all_loads_for_every_request():
    assert characteristic_seconds(np.array([1.0, 2.0]), 0) == 0.0
    assert che(by_name(a=1.0, b=2.0), 0)["miss_ratio"].item() == 1.0


def test_a_rate_that_is_nearly_nothing_ends_in_no_time_at_all():
    assert characteristic_seconds(np.array([1.0, 1e-320]), 1.5) == math.inf


def test_infinite_where_fewer_are_asked_for_than_slots():
    assert characteristic_seconds(np.array([1.0, 0.0]), 1) == math.inf
