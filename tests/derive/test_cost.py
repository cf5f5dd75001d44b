from typing import Any

import polars as pl
import pytest
from builders import rows
from derive.test_stalls import load
from hypothesis import given
from hypothesis import strategies as st
from strategies import QUICK

from lora_watch.derive.cost import cost
from lora_watch.model import SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS

HOUR = Window(0, 3600 * SECOND)
START = {"kind": "start", "at": 0, "slots": 4, "clock": "host"}
POD = ("cluster", "pod")


def told(*records: dict[str, Any], window: Window = HOUR, by: tuple[str, ...] = POD, **more: Any) -> list[dict[str, Any]]:
    return cost(rows(ADAPTER_EVENTS, records).lazy(), window, by, **more).collect().sort(list(by)).to_dicts()


def test_hours_lost_are_stall_seconds_times_gpus():
    (row,) = told(START, load("a", 100, 9), load("b", 200, 27), gpus_per_pod=4)
    assert (row["loads"], row["stall_seconds"], row["gpu_hours_lost"]) == (2, 36.0, pytest.approx(0.04))
    assert (row["gpu_hours"], row["lost_ratio"]) == (4.0, pytest.approx(0.01))


def test_money_is_hours_times_the_price():
    (row,) = told(START, load("a", 100, 36), gpu_hour_price=2.5, currency="EUR")
    assert (row["money_lost"], row["money_lost_lower_bound"], row["currency"]) == (
        pytest.approx(0.025),
        pytest.approx(0.025),
        "EUR",
    )


def test_without_a_price_there_is_no_money():
    (row,) = told(START, load("a", 100, 36), currency="EUR")
    assert (row["money_lost"], row["money_lost_lower_bound"], row["currency"]) == (None, None, None)


def test_an_unknown_length_makes_the_cost_unknown_with_a_lower_bound():
    (row,) = told(START, load("a", 100, 36), load("b", 200, None), gpu_hour_price=2.0)
    assert (row["loads"], row["unknown_loads"], row["stall_seconds"], row["money_lost"]) == (2, 1, None, None)
    assert (row["lost_ratio"], row["gpu_hours_lost"], row["gpu_hours_lost_lower_bound"]) == (None, None, pytest.approx(0.01))
    assert (row["stall_seconds_lower_bound"], row["money_lost_lower_bound"]) == (36.0, pytest.approx(0.02))


def test_the_adapter_that_was_loaded_pays():
    one, other = told(START, load("a", 100, 9), load("b", 105, 9), load("a", 300, 1), by=(*POD, "adapter"))
    assert (one["adapter"], one["stall_seconds"], one["gpu_hours"], one["lost_ratio"]) == ("a", 10.0, None, None)
    assert (other["adapter"], other["stall_seconds"]) == ("b", 5.0)  # four seconds of its nine were a's


def test_an_engine_without_loads_lost_nothing():
    (row,) = told(START, {"kind": "steps", "at": 5 * SECOND, "count": 3})
    assert (row["loads"], row["stall_seconds"], row["lost_ratio"]) == (0, 0.0, 0.0)


def test_an_engine_that_came_up_half_way_has_half_the_hours():
    (row,) = told({**START, "at": 1800 * SECOND}, load("a", 2000, 18))
    assert (row["gpu_hours"], row["lost_ratio"]) == (0.5, pytest.approx(0.01))


def test_a_load_cut_by_the_window_counts_with_its_part():
    records = (START, load("a", 105, 10))
    first, second = (
        told(*records, window=Window(0, 100 * SECOND))[0],
        told(*records, window=Window(100 * SECOND, 200 * SECOND))[0],
    )
    assert (first["stall_seconds"], second["stall_seconds"]) == (5.0, 5.0)
    assert (first["loads"], second["loads"]) == (0, 1)


def test_pods_of_a_pool_are_added_up():
    other = {"pod": "pod-1"}
    (row,) = told(START, {**START, **other}, load("a", 100, 9), load("a", 100, 9, **other), by=("cluster", "pool"))
    assert (row["stall_seconds"], row["gpu_hours"]) == (18.0, 2.0)


def test_two_boots_of_one_engine_are_not_two_gpus():
    again = {"stream": "agent/c/pod-0/second", "seq": 1}
    (row,) = told(START, {**START, **again, "at": 1800 * SECOND})
    assert row["gpu_hours"] == 1.0


def test_the_worst_provenance_wins():
    (row,) = told(START, load("a", 100, 9, provenance="inferred"))
    assert row["provenance"] == "inferred"


@pytest.mark.parametrize("wrong", [{"gpus_per_pod": 0}, {"gpu_hour_price": -1.0}, {"gpu_hour_price": float("nan")}])
def test_a_price_or_a_number_of_gpus_that_cannot_be_is_refused(wrong: dict[str, Any]):
    with pytest.raises(ValueError, match="got"):
        told(START, **wrong)


@QUICK
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3000), st.integers(0, 400)), max_size=12),
    st.integers(1, 3599),
)
def test_stalls_add_up_over_windows_and_over_adapters(loads: list[tuple[str, int, int]], cut: int):
    records = [START, *(load(adapter, at, seconds) for adapter, at, seconds in loads)]
    (whole,) = told(*records)
    parts = [told(*records, window=window)[0] for window in (Window(0, cut * SECOND), Window(cut * SECOND, HOUR.end))]
    by_adapter = told(*records, by=(*POD, "adapter"))
    assert sum(part["stall_seconds"] for part in parts) == pytest.approx(whole["stall_seconds"])
    assert sum(row["stall_seconds"] for row in by_adapter) == pytest.approx(whole["stall_seconds"])
    busy = {t for _, at, seconds in loads for t in range(max(at - seconds, 0), at)}
    assert whole["stall_seconds"] == len(busy)


def test_no_events_cost_nothing():
    assert cost(ADAPTER_EVENTS.empty().lazy(), HOUR).collect().height == 0
    assert isinstance(cost(ADAPTER_EVENTS.empty().lazy(), HOUR, ("cluster", "adapter")).collect(), pl.DataFrame)
