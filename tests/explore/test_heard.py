"""The page Sources: who was heard, what is missing and how to get it."""

import json
from pathlib import Path

import polars as pl
import pytest
from builders import events, requests, rows
from stored import stored

from lora_watch import names
from lora_watch.explore.figures import reached as reached_figure
from lora_watch.explore.heard import heard, losses, lost, partial, reached, step_of
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, SAMPLES
from lora_watch.store.tables import Store

WINDOW = Window(0, HOUR)


def look(at: float, value: float, endpoint: str = "metrics", pod: str = "pod-0", metric: str = names.SAMPLE_SCRAPE_UP):
    labels = {"endpoint": endpoint} if metric == names.SAMPLE_SCRAPE_UP else {}
    return {
        "at": round(at * SECOND),
        "pod": pod,
        "series": f"{metric}/{pod}/{endpoint}",
        "metric": metric,
        "labels": json.dumps(labels),
        "value": value,
    }


@pytest.fixture
def store(tmp_path: Path) -> Store:
    gone = rows(ADAPTER_EVENTS, [{"at": 50 * SECOND, "kind": "lost", "count": 7, "reason": "disk", "seq": 99}])
    samples = [
        look(10, 1.0),
        look(20, 0.0),
        look(20, 1.0, "agent"),
        look(30, 0.25, metric=names.SAMPLE_CLOCK_OFFSET),
        look(3599, 1.0, pod="pod-1"),
        look(3599, 2.0, pod="pod-1", metric=names.REQUESTS_RUNNING),
    ]
    stored(tmp_path, events=events("a:1-30", start_at=0), samples=rows(SAMPLES, samples))
    return stored(tmp_path, events=gone, requests=requests("a:1/2/3/4"))


def row(store: Store, pod: str) -> dict:
    return next(one for one in heard(store, WINDOW, DAY).pods.to_dicts() if one["pod"] == pod)


def test_reached_is_the_share_of_looks_that_reached_it(store: Store):
    told = row(store, "pod-0")
    assert (told["page"], told["sidecar"]) == (0.5, 1.0)
    assert row(store, "pod-1")["sidecar"] is None


def test_how_far_behind_a_pod_is_and_what_its_clock_says(store: Store):
    told = row(store, "pod-0")
    assert told["requests_lag_seconds"] == 3596.0
    assert told["clock_offset_seconds"] == 0.25
    assert row(store, "pod-1")["events_lag_seconds"] is None


def test_lost_records_are_counted_by_reason(store: Store):
    assert row(store, "pod-0")["lost"] == 7
    assert lost(WINDOW, store).select("pod", "reason", "records").rows() == [("pod-0", "disk", 7)]


def test_losses_of_two_windows_add_up(store: Store):
    halves = [lost(Window(0, 40 * SECOND), store), lost(Window(40 * SECOND, HOUR), store)]
    assert losses(halves).drop("last").equals(losses([lost(WINDOW, store)]).drop("last"))


def test_what_a_page_alone_cannot_tell_is_said_with_what_would(store: Store):
    gaps = heard(store, WINDOW, DAY).gaps
    assert set(gaps["pod"]) == {"pod-1"}  # the agent of the other tells all
    stays = (pl.col("pod") == "pod-1") & (pl.col("what") == "residency, swaps")
    assert "lora-watch-agent" in gaps.row(by_predicate=stays, named=True)["how"]


def test_partial_knowledge_is_said_with_its_counts(store: Store):
    first, second = partial(heard(store, WINDOW, DAY).pods)
    assert "1 of 2 pods" in first
    assert "1 of 2 pods" in second


def test_where_rows_came_from_is_told_by_source_and_table(store: Store):
    told = heard(store, WINDOW, DAY).sources
    assert told.select("source", "table", "rows").rows() == [
        ("test", "adapter_events", 4),
        ("test", "requests", 1),
        ("test", "samples", 6),
    ]


def test_a_step_without_a_look_is_empty_in_the_picture(store: Store):
    drawn = reached_figure(reached(WINDOW, store, 10 * MINUTE), WINDOW, 10 * MINUTE)
    grid = dict(zip(drawn.data[0].y, drawn.data[0].z, strict=True))
    assert list(grid["pod-0 page"]) == [0.5, None, None, None, None, None]
    assert list(grid["pod-1 page"]) == [None, None, None, None, None, 1.0]


def test_a_month_has_no_more_steps_than_an_hour():
    assert step_of(WINDOW) == MINUTE
    assert (30 * DAY) // step_of(Window(0, 30 * DAY)) <= 72


def test_an_empty_store_heard_nobody(tmp_path: Path):
    told = heard(Store(tmp_path), WINDOW, DAY)
    assert (told.pods.height, told.gaps.height, told.sources.height) == (0, 0, 0)
