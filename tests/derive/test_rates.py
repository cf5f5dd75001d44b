from typing import Any

import polars as pl
import pytest
from derive.asked import QUICK, asked, named, traffic
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.derive.che import che
from lora_watch.derive.groups import POD, POOL
from lora_watch.derive.rates import at_pods_of, rates, rates_from_attempts
from lora_watch.model import SECOND, Window
from lora_watch.names import EPP_ATTEMPTS
from lora_watch.schema import SAMPLES

HUNDRED = Window(0, 100 * SECOND)


def counter(*values: float, adapter: str | None = "a", pod: str = "pod-0", step: float = 25.0, **more: Any) -> pl.DataFrame:
    """Samples of one series of attempts, 25 s apart from 0 s on."""
    common = {"cluster": "c", "pool": "p", "role": "", "pod": pod, "engine": None, "adapter": adapter, "source": "test"}
    common |= {"metric": EPP_ATTEMPTS[0], "series": f"{adapter}@{pod}", "provenance": "observed", **more}
    return SAMPLES.conform(
        pl.DataFrame([{**common, "at": round(i * step * SECOND), "value": value} for i, value in enumerate(values)])
    )


def told(*frames: pl.DataFrame, by: tuple[str, ...] = POOL) -> list[tuple[Any, ...]]:
    found = rates_from_attempts(pl.concat(frames).lazy(), HUNDRED, by).sort("adapter").collect()
    return found.select("adapter", "requests", "requests_per_second").rows()


def test_a_rate_is_the_increase_over_the_time_between_first_and_last():
    assert told(counter(100, 110, 120, 130)) == [("a", 40, 0.4)]


def test_a_counter_that_begins_anew_counts_from_nothing():
    assert told(counter(100, 110, 5, 15)) == [("a", 33, pytest.approx(25 / 75))]


def test_series_of_pods_and_routers_add_up():
    frames = counter(0, 10, 20), counter(0, 30, 40, pod="pod-1"), counter(0, 0, 5, series="another router")
    assert told(*frames) == [("a", 130, pytest.approx(1.3))]
    assert sorted(row[2] for row in told(*frames, by=POD)) == pytest.approx([0.5, 0.8])


def test_one_sample_or_two_close_together_make_no_rate():
    assert told(counter(5)) == told(counter(5, 9, step=10)) == []


def test_values_that_are_no_number_and_samples_said_twice_are_passed_over():
    frame = counter(0, float("nan"), 20)
    assert told(frame, frame) == [("a", 40, 0.4)]


def test_other_metrics_and_other_times_do_not_count():
    assert told(counter(0, 10, 20, metric="other")) == []
    assert told(counter(0, 10, 20, 30, 40, 9000)) == [("a", 40, 0.4)]


def test_counters_feed_che():
    frame = pl.concat([counter(0, 25, 50), counter(0, 25, 50, adapter="b")]).lazy()
    assert che(rates_from_attempts(frame, HUNDRED), 1)["miss_ratio"].item() == pytest.approx(0.5)


def test_requests_count_when_they_finish_and_once():
    frame = pl.concat([named("aab"), asked([(99, "a")], takes=5.0, stream="late"), asked([(5, None)], stream="base")])
    found = rates(pl.concat([frame, frame]).lazy(), HUNDRED).sort("adapter", nulls_last=True).collect()
    assert found.select("adapter", "requests", "requests_per_second").rows() == [("a", 2, 0.02), ("b", 1, 0.01), (None, 1, 0.01)]


@QUICK
@given(traffic(), st.integers(1, 100))
def test_requests_of_adjoining_windows_add_up(frame: pl.DataFrame, cut: int):
    def counted(window: Window) -> pl.DataFrame:
        return rates(frame.lazy(), window, POD).collect()

    whole = counted(Window(0, 101 * SECOND))
    parts = pl.concat([counted(Window(0, cut * SECOND)), counted(Window(cut * SECOND, 101 * SECOND))])
    added = parts.group_by(*POD, "adapter").agg(pl.col("requests").sum())
    assert added.sort(pl.all()).equals(whole.select(added.columns).sort(pl.all()))


def test_a_router_counts_for_the_pool_that_the_fleet_has_a_pod_in():
    fleet = pl.LazyFrame([{"cluster": "c", "pool": "theirs", "role": "decode", "pod": "pod-0"}])
    frames = pl.concat([counter(0, 10, 20), counter(0, 30, 40, pod="pod-1"), counter(0, 5, 9, pod="epp-0", adapter=None)])
    found = at_pods_of(rates_from_attempts(frames.lazy(), HUNDRED, POD), fleet).collect()
    assert found.select(*POD, "adapter", "requests").rows() == [("c", "theirs", "decode", "pod-0", "a", 40)]


def test_a_pod_that_stands_in_two_pools_is_counted_once():
    fleet = pl.LazyFrame([{"cluster": "c", "pool": pool, "role": "", "pod": "pod-0"} for pool in "qp"])
    found = at_pods_of(rates_from_attempts(counter(0, 10, 20).lazy(), HUNDRED, POD), fleet).collect()
    assert found["pool"].to_list() == ["p"]
