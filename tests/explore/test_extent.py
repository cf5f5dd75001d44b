"""Where the data end, and who is in them."""

from pathlib import Path

import builders
import pytest
from stored import stored

from lora_watch.explore.extent import STEP, adapters_of, ago, data_end, pods_of, pools_of
from lora_watch.model import DAY, HOUR, SECOND, Window
from lora_watch.store.tables import Store

NOON = 20_000 * DAY + 12 * HOUR


def requests(*, pod: str, at: int, adapter: str = "a"):
    return builders.rows(builders.REQUESTS, [{"at": at, "finished": at, "adapter": adapter}], pod=pod)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    stored(tmp_path, requests=requests(pod="pod-1", at=NOON))
    stored(tmp_path, requests=requests(pod="pod-0", at=NOON - DAY, adapter="b"))
    return stored(tmp_path, events=builders.events("a:0-1"))


def test_old_data_end_behind_their_newest_row(store: Store):
    assert data_end(store, NOON + DAY) == NOON + 1


def test_an_empty_store_ends_nowhere(tmp_path: Path):
    assert data_end(Store(tmp_path), NOON) is None


def test_data_that_are_being_collected_end_at_a_step(store: Store):
    end = data_end(store, NOON + SECOND)
    assert end == NOON + 1 - (NOON + 1) % STEP


def test_rows_from_the_future_do_not_move_the_end(store: Store):
    assert data_end(store, NOON - HOUR) == NOON - DAY + 1


def test_the_pods_and_adapters_of_a_window_are_those_with_rows_in_it(store: Store):
    assert pods_of(store, Window(NOON - HOUR, NOON + 1))["pod"].to_list() == ["pod-1"]
    assert adapters_of(store, Window(NOON - DAY, NOON - DAY + HOUR)) == ["b"]


def test_every_pool_of_which_anything_is_stored_is_told_once(store: Store):
    whole = pools_of(store, Window(0, NOON + 1))
    assert whole.columns == ["cluster", "pool", "role"]
    assert whole.height == whole.unique().height >= 1


def test_how_long_ago_data_ended_is_said_in_words():
    assert [ago(0, gone) for gone in (SECOND, 6 * 60 * SECOND, 3 * HOUR, 40 * DAY)] == [
        "",
        "6 minutes ago",
        "3 hours ago",
        "40 days ago",
    ]
