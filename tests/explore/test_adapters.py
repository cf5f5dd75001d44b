"""The page Adapters: an engine whose rows can be counted in the head."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import rows
from diagnose.told import HOSTILE
from lru_pod import Pod
from stored import stored

from lora_watch.explore import adapter_figures, adapter_words
from lora_watch.explore.adapters import NEW, Before, Known, asked, hours_of_week, joined, known, nothing_asked, sat
from lora_watch.explore.hours import before
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS
from lora_watch.store.tables import Store

END = 20_000 * DAY + 12 * HOUR
WINDOW = Window(END - HOUR, END)
MONDAY = 20_003 * DAY
"""2024-10-07."""


def ring(folder: Path, names: tuple[str, ...] = ("a", "b", "c"), slots: int = 2) -> Store:
    """The names in turn, one a second, for a minute up to two seconds before the end."""
    made = Pod(slots=slots, load=0.1, read=None).start(END - HOUR)
    for number in range(60):
        made.ask(END - (62 - number) * SECOND, names[number % len(names)], hold=0.2)
    return stored(folder, events=made.event_rows(), requests=made.request_rows())


def told(store: Store, window: Window = WINDOW) -> Known:
    return known(sat(store, window, DAY), asked(window, store), before(store, window.start), window)


def row(frame: pl.DataFrame, adapter: str) -> dict[str, Any]:
    return frame.filter(pl.col("adapter") == adapter).row(0, named=True)


def test_a_row_has_its_share_of_the_requests_and_what_they_found_adds_up(tmp_path: Path):
    one = row(told(ring(tmp_path)).rows, "a")
    assert (one["requests"], one["share"]) == (20, pytest.approx(1 / 3))
    assert (one["served"], sum(one[f"{where}_ratio"] for where in ("hot", "warm", "cold"))) == (20, 1.0)


def test_shares_are_of_the_requests_of_which_it_is_known_where_they_found_it(tmp_path: Path):
    made = Pod(slots=2, load=0.1, read=None).start(END - HOUR)
    for number in range(60):
        made.ask(END - (62 - number) * SECOND, "abc"[number % 3], hold=0.2)
    events = made.event_rows()
    late = stored(tmp_path, events=events.filter(pl.col("at") >= END - 30 * SECOND), requests=made.request_rows())
    one = row(told(late).rows, "a")
    assert one["unknown"] > 0
    assert sum(one[f"{where}_ratio"] for where in ("hot", "warm", "cold")) == pytest.approx(1.0)


def test_a_row_has_its_loads_stays_and_size(tmp_path: Path):
    one = row(told(ring(tmp_path)).rows, "a")
    assert (one["loads"], one["stays"], one["pods"], one["bytes"]) == (20, 20, 1, 65_536_000)
    assert one["load_seconds"] == pytest.approx(0.1)
    assert one["p50_seconds"] == pytest.approx(1.9, abs=0.2)


def test_a_variant_is_put_beside_what_its_name_says_it_is_of(tmp_path: Path):
    one = row(told(ring(tmp_path, ("legal", "legal-experiment", "x"))).rows, "legal-experiment")
    assert (one["family"], one["kind"]) == ("legal", "experiment")


def test_nobody_is_new_on_the_first_day(tmp_path: Path):
    found = told(ring(tmp_path))
    assert (found.learning, found.new.height) == (True, 0)
    assert "unknown" in adapter_words.new(found)


def test_who_was_asked_for_first_today_is_new_where_the_store_is_older(tmp_path: Path):
    store = ring(tmp_path)
    keys = {"cluster": "c", "pool": "p", "role": ""}
    earlier = Before(pl.DataFrame([{**keys, "adapter": name, "first": END - 2 * NEW} for name in ("a", "b")]), END - 2 * NEW)
    found = known(sat(store, WINDOW, DAY), asked(WINDOW, store), earlier, WINDOW)
    assert found.new["adapter"].to_list() == ["c"]
    assert "1 new" in adapter_words.new(found)
    assert "33 %" in adapter_words.new(found)


def test_who_evicts_whom_is_counted(tmp_path: Path):
    pairs = sat(ring(tmp_path), WINDOW, DAY).pairs
    assert dict(pairs.select(pl.concat_str("adapter", "by"), "count").iter_rows()) == {"ac": 20, "ba": 19, "cb": 19}


def test_where_it_sat_has_its_share_of_the_time_and_whether_it_is_there_now(tmp_path: Path):
    pods = sat(ring(tmp_path), WINDOW, DAY).pods
    assert dict(pods.select("adapter", "resident").iter_rows()) == {"a": 0, "b": 1, "c": 1}
    assert pods["share"].sum() == pytest.approx(2 * 62 / 3600, rel=0.1)


def test_a_pin_that_still_holds_is_told(tmp_path: Path):
    made = Pod(slots=2, load=0.1).start(END - HOUR)
    made.ask(END - MINUTE, "kept")
    made.ask(END - MINUTE + SECOND, "freed")
    pins = [("kept", "pin", 50), ("freed", "pin", 50), ("freed", "unpin", 40)]
    for name, kind, ago in pins:
        made.events.append({"at": END - ago * SECOND, "kind": kind, "adapter": name, "ok": True})
    found = told(stored(tmp_path, events=made.event_rows(), requests=made.request_rows()))
    assert dict(found.rows.select("adapter", "pinned").iter_rows()) == {"kept": 1, "freed": None}


def test_a_store_with_requests_only_tells_them_and_leaves_the_slots_unknown(tmp_path: Path):
    made = Pod(slots=2).start(END - HOUR)
    made.ask(END - MINUTE, "a")
    one = row(told(stored(tmp_path, requests=made.request_rows())).rows, "a")
    assert (one["requests"], one["share"], one["stays"], one["pinned"]) == (1, 1.0, None, None)


def test_an_empty_store_has_no_rows(tmp_path: Path):
    found = told(Store(tmp_path))
    assert (found.rows.height, found.learning) == (0, True)


def test_slots_are_of_the_end_of_a_long_window(tmp_path: Path):
    assert sat(Store(tmp_path), Window(END - DAY, END), DAY).window == Window(END - 3 * HOUR, END)


def test_search_finds_a_part_of_a_name_or_a_family_whatever_its_case(tmp_path: Path):
    found = told(ring(tmp_path, ("legal", "legal-experiment", "x")))
    assert sorted(adapter_words.rows(found, " LEG ")["adapter"]) == ["legal", "legal-experiment"]
    assert adapter_words.rows(found, "").height == 3
    assert adapter_words.rows(found, "nobody").is_empty()


def test_hours_of_the_week_are_means_of_the_time_that_the_window_has_of_them():
    keys = {"cluster": "c", "pool": "p", "role": "", "adapter": "a"}
    counts = [(MONDAY + 9 * HOUR, 30), (MONDAY + 7 * DAY + 9 * HOUR, 10), (MONDAY + 7 * DAY + 10 * HOUR, 6)]
    requests = joined([pl.DataFrame([{**keys, "hour": hour, "requests": count, "first": hour} for hour, count in counts])])
    found = hours_of_week(requests, "a", Window(MONDAY, MONDAY + 7 * DAY + 10 * HOUR + 30 * MINUTE))
    spot = {(day, hour): mean for day, hour, mean in found.iter_rows()}
    assert (spot[0, 9], spot[0, 10], spot[1, 9]) == (20.0, pytest.approx(6 / 1.5), 0.0)
    assert len(spot) == 168


def test_an_hour_of_the_week_that_the_window_lacks_is_unknown():
    found = hours_of_week(nothing_asked(), "a", Window(MONDAY + 9 * HOUR, MONDAY + 10 * HOUR))
    assert found["mean"].null_count() == 167


def test_names_in_words_and_figures_stay_names(tmp_path: Path):
    store = ring(tmp_path, HOSTILE, slots=4)
    found, slots = told(store), sat(store, WINDOW, DAY)
    for name in HOSTILE:
        text = adapter_words.title(name, row(found.rows, name))
        text += adapter_figures.others(slots.pairs.filter(pl.col("by") == name), "adapter", "times").to_json()
        for raw in ("<script", "</script", "<b> |", "\x1b", "\u202e"):
            assert raw not in text


def test_a_heat_map_has_a_row_a_day_and_a_column_an_hour():
    (trace,) = adapter_figures.hours_of_week(hours_of_week(nothing_asked(), "a", Window(MONDAY, MONDAY + DAY)), "#123456").data
    assert (len(trace.z), len(trace.z[0]), next(iter(trace.y))) == (7, 24, "Mon")


def test_rank_and_bytes_are_the_newest_that_are_known(tmp_path: Path):
    load = {"kind": "load", "tier": "gpu", "adapter": "a", "ok": True, "seconds": 0.1, "reason": "demand"}
    happened = rows(
        ADAPTER_EVENTS,
        [{**load, "at": END - 3 * MINUTE, "rank": 8, "bytes": 10}, {**load, "at": END - 2 * MINUTE, "rank": 16}],
    )
    one = row(told(stored(tmp_path, events=happened)).rows, "a")
    assert (one["rank"], one["bytes"]) == (16, 10)
