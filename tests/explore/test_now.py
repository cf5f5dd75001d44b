"""The page Now: four numbers of each pool, on an engine whose numbers can be counted in the head."""

from pathlib import Path

import pytest
from lru_pod import Pod
from stored import stored

from lora_watch.diagnose.diagnosis import Margin
from lora_watch.explore.now import Limits, Now, limits, now
from lora_watch.explore.now_tiles import numbers
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.store.tables import Store

END = 20_000 * DAY + 12 * HOUR


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Now:
    """Six adapters in turn on four slots, one a second for the last ten minutes: each request swaps, each stay lasts four."""
    folder = tmp_path_factory.mktemp("now")
    made = Pod(slots=4, load=0.1).start(END - HOUR)
    for number in range(600):
        made.ask(END - 600 * SECOND + number * SECOND, f"lora-{number % 6}", hold=0.2)
    store = stored(folder, events=made.event_rows(), requests=made.request_rows())
    return now(store, Window(END - HOUR, END), DAY)


def test_a_pool_has_one_row_with_its_four_numbers(told: Now):
    (row,) = told.pools.to_dicts()
    assert row["p50_seconds"] == pytest.approx(4.0, abs=0.2)
    assert row["swaps_per_second_per_pod"] == pytest.approx(596 / 3600)
    assert (row["active_adapters"], row["slots"], row["active_per_slot_ratio"]) == (6, 4, 1.5)
    assert row["requests"] == 600


def test_a_course_has_a_point_every_five_minutes_and_ends_with_the_window(told: Now):
    assert told.course["at"].to_list() == [END - part * 5 * MINUTE for part in range(11, -1, -1)]


def test_a_course_shows_when_it_began(told: Now):
    swaps = told.course.sort("at")["swaps_per_second_per_pod"].to_list()
    assert swaps[:10] == [0.0] * 10
    assert swaps[10:] == [pytest.approx(296 / 300), pytest.approx(1.0)]


def test_an_adapter_is_active_in_the_hour_after_its_request(told: Now):
    assert told.course.sort("at")["active_per_slot_ratio"].to_list()[-2:] == [1.5, 1.5]


def test_a_window_without_data_has_no_pool(tmp_path: Path):
    assert now(Store(tmp_path), Window(END - HOUR, END), DAY).pools.is_empty()


def test_a_short_window_has_bins_of_a_minute(told: Now, tmp_path: Path):
    made = Pod(slots=4, load=0.1).start(END - HOUR)
    made.ask(END - SECOND, "a", hold=0.2)
    store = stored(tmp_path, events=made.event_rows(), requests=made.request_rows())
    assert now(store, Window(END - 5 * MINUTE, END), DAY).course["at"].to_list() == [
        END - part * MINUTE for part in range(4, -1, -1)
    ]


def test_limits_of_a_pool_are_in_the_units_of_its_numbers():
    margins = [Margin("swaps_per_request", "", 0.2, 0.15), Margin("stall_share", "", 0.1, 0.35)]
    told = limits(margins, {"requests": 28_800, "pods": 2, "slots": 8})
    assert told == Limits(pytest.approx(0.6), pytest.approx(4 / 0.6), pytest.approx(0.65))


def test_a_pool_without_margins_has_no_limits():
    assert limits([], {"requests": None, "pods": None, "slots": None}) == Limits()


def test_numbers_that_are_not_known_are_said_to_be_unknown(told: Now):
    row = dict.fromkeys(told.pools.columns)
    assert numbers(row, told.course.clear(), Limits()).count(">unknown<") == 4


def test_a_number_past_its_limit_is_marked(told: Now):
    (row,) = told.pools.to_dicts()
    assert "value lw-bad" not in numbers(row, told.course, Limits())
    assert "value lw-bad" in numbers(row, told.course, Limits(swaps_per_second=0.1))
