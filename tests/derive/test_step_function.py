import math

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from strategies import QUICK

from lora_watch.derive.step_function import held_samples, swept
from lora_watch.model import SECOND, Window
from lora_watch.schema import SAMPLES


def samples(*points: tuple[float, float], series: str = "s") -> pl.DataFrame:
    where = {"cluster": "c", "pool": "p", "role": "", "pod": "x", "engine": "0", "provenance": "activity", "source": "test"}
    return SAMPLES.conform(
        pl.DataFrame([{**where, "series": series, "metric": "m", "at": int(t * SECOND), "value": float(v)} for t, v in points])
    )


def held(frame: pl.DataFrame, start: float = 0, end: float = 100) -> list[tuple[float, float, float]]:
    window = Window(int(start * SECOND), int(end * SECOND))
    return held_samples(frame.lazy(), window).sort("start").select(pl.col("start", "end") / SECOND, "value").collect().rows()


def test_a_value_holds_until_the_next_and_the_last_for_one_spacing():
    assert held(samples((0, 1), (10, 2), (20, 3))) == [(0, 10, 1), (10, 20, 2), (20, 30, 3)]


def test_a_gap_of_more_than_three_spacings_holds_nothing():
    assert held(samples((0, 1), (10, 1), (20, 1), (51, 1), (61, 1))) == [(0, 10, 1), (10, 20, 1), (51, 61, 1), (61, 71, 1)]


def test_the_sample_before_the_window_reaches_into_it():
    assert held(samples((0, 1), (10, 2), (20, 3)), 5, 15) == [(5, 10, 1), (10, 15, 2)]


def test_a_nan_ends_the_value_before_and_holds_nothing():
    assert held(samples((0, 1), (10, math.nan), (20, 3))) == [(0, 10, 1), (20, 30, 3)]


def test_series_of_one_engine_at_one_time_are_added_and_repeats_are_not():
    both = pl.concat([samples((0, 1), (10, 2)), samples((0, 1), (10, 2)), samples((0, 5), (10, 5), series="t")])
    assert held(both) == [(0, 10, 6), (10, 20, 7)]


def test_one_sample_has_no_spacing_and_holds_nothing():
    assert held(samples((0, 1))) == []


@QUICK
@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 30), st.integers(1, 10)), max_size=20))
def test_stacked_spans_have_the_area_of_their_sum(spans: list[tuple[str, int, int]]):
    frame = pl.DataFrame(
        [(group, start * SECOND, (start + length) * SECOND, 1) for group, start, length in spans],
        schema={"group": pl.String, "start": pl.Int64, "end": pl.Int64, "height": pl.Int64},
        orient="row",
    )
    table = swept(frame.lazy(), ["group"]).collect()
    assert (table["height"] * table["seconds"]).sum() == sum(length for _, _, length in spans)
    assert table.is_empty() or table["height"].min() >= 0
