"""The page Latency: what loads cost, on an engine that stands still for each request's load."""

from pathlib import Path

import pytest
from lru_pod import Pod
from stored import stored

from lora_watch.config import CostSettings
from lora_watch.explore.cost import ATTRIBUTED
from lora_watch.explore.figures import estimates, latency_course, worst_waits
from lora_watch.explore.latency import Latency, latency, summary
from lora_watch.model import DAY, HOUR, SECOND, Window
from lora_watch.store.tables import Store

END = 20_000 * DAY + 12 * HOUR
PRICED = CostSettings(gpu_hour_price=4.0, gpus_per_pod=2, currency="EUR")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Latency:
    """An adapter a second in turn on four slots for ten minutes, each load 0.36 s."""
    made = Pod(slots=4, load=0.36).start(END - HOUR)
    for number in range(600):
        made.ask(END - 600 * SECOND + number * SECOND, f"lora-{number % 6}", hold=0.2)
    store = stored(tmp_path_factory.mktemp("latency"), events=made.event_rows(), requests=made.request_rows())
    return latency(store, Window(END - DAY, END), DAY, PRICED)


def test_a_long_window_is_told_from_its_end(told: Latency):
    assert told.window == Window(END - ATTRIBUTED, END)


def test_a_pool_has_its_delay_and_its_lost_gpu_time_in_one_row(told: Latency):
    (row,) = told.pools.to_dicts()
    assert row["gpu_hours_lost"] == pytest.approx(600 * 0.36 * 2 / 3600)
    assert row["money_lost"] == pytest.approx(row["gpu_hours_lost"] * 4)
    assert row["requests"] == 600


def test_each_minute_with_enough_requests_has_a_p95(told: Latency):
    assert told.course["requests"].sum() == 600
    assert told.course["p95_seconds"].null_count() == 0


def test_the_longest_waits_come_first(told: Latency):
    assert told.worst["ttft_seconds"].is_sorted(descending=True)
    assert told.worst.height == 200


def test_the_tiles_say_hours_money_and_delay(told: Latency):
    drawn = summary(told.pools.to_dicts()[0])
    assert "0.12<small>GPU h" in drawn
    assert "0.48 EUR" in drawn


def test_without_requests_and_loads_there_is_no_row(tmp_path: Path):
    empty = latency(Store(tmp_path), Window(END - HOUR, END), DAY, PRICED)
    assert (empty.pools.height, empty.worst.height, empty.course.height) == (0, 0, 0)


def test_unknown_is_said_to_be_unknown(told: Latency):
    row = dict.fromkeys(told.pools.columns) | {"requests": 0}
    assert summary(row).count(">unknown<") == 4


def test_a_minute_without_requests_is_a_gap_in_the_line(told: Latency):
    drawn = latency_course(told.course, told.window)
    p95 = next(trace for trace in drawn.data if trace.name == "P95")
    assert len(p95.y) == 60
    assert list(p95.y[:49]) == [None] * 49
    assert p95.connectgaps is None


def test_an_unknown_estimate_is_drawn_as_unknown():
    drawn = estimates([("a", None, None, None), ("b", 0.5, 0.4, 0.7)], "share", percents=True)
    assert [trace.text[0] for trace in drawn.data] == ["50 %", "unknown"]
    assert drawn.data[0].error_x.array[0] == pytest.approx(20)


def test_what_a_wait_was_for_adds_up_to_it(told: Latency):
    drawn = worst_waits(told.worst, 3)
    longest = sum(trace.x[-1] for trace in drawn.data)
    assert longest == pytest.approx(told.worst["ttft_seconds"][0])
