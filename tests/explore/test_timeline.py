"""Who sat in which slot, and what went on meanwhile: on engines small enough to count by hand."""

from pathlib import Path

import polars as pl
import pytest
from builders import events, requests
from hypothesis import given
from hypothesis import strategies as st
from stored import stored

from lora_watch.explore.timeline import BINS, COLUMNS, MOST_STAYS, STEPS, Part, cells, part, step_of, together
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.store.tables import Store

BEGIN = 20_000 * DAY // SECOND
"""Seconds since 1970."""


def spans(*told: tuple[str, int, float, float]) -> str:
    return " ".join(f"{name}:{BEGIN + start:.6f}-" + (f"{BEGIN + end:.6f}" if end >= 0 else "") for name, _, start, end in told)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """a stays for 30 s, b for 20 s after it, c from 10 s on; each is asked for once; it all begins with the engine."""
    happened = events(spans(("a", 0, 0, 30), ("b", 0, 30, 50), ("c", 0, 10, -1)), start_at=BEGIN - 1, slots=2)
    asked = requests(
        " ".join(
            f"{name}:{'/'.join(str(BEGIN + at) for at in times)}"
            for name, times in (("a", (0, 0, 1, 20)), ("c", (8, 10, 12, 25)))
        )
    )
    return stored(tmp_path, events=happened, requests=asked)


def shown(store: Store, start: float = 0, end: float = 60, step: int = 10 * SECOND) -> Part:
    return part(Window(round((BEGIN + start) * SECOND), round((BEGIN + end) * SECOND)), store, DAY, step, 30 * SECOND)


def since(frame: pl.DataFrame, column: str) -> list[float]:
    return [at / SECOND - BEGIN for at in frame[column].to_list()]


def test_a_stay_lasts_from_its_load_to_its_leave_and_is_cut_at_the_window(store: Store):
    stays = shown(store).stays
    assert stays is not None
    told = stays.sort("start", "adapter")
    assert (told["adapter"].to_list(), since(told, "start"), since(told, "end")) == (["a", "c", "b"], [0, 10, 30], [30, 60, 50])


def test_what_ended_a_stay_is_told_and_who_is_still_there_has_no_end(store: Store):
    stays = shown(store).stays
    assert stays is not None
    assert dict(stays.select("adapter", "left_by").iter_rows()) == {"a": "evict", "b": "evict", "c": None}


def test_stays_without_a_told_slot_get_places_of_their_own(store: Store):
    stays = shown(store).stays
    assert stays is not None
    assert dict(stays.select("adapter", "slot").iter_rows()) == {"a": 0, "c": 1, "b": 0}


def test_a_cell_is_of_who_was_there_longest_and_counts_the_others(store: Store):
    told = shown(store, step=20 * SECOND).cells
    row = told.filter((pl.col("slot") == 0) & (pl.col("cell") * 20 == BEGIN + 20)).row(0, named=True)
    assert (row["adapter"], row["filled"], row["adapters"]) == ("a", 0.5, 2)


def test_time_in_slots_adds_up_over_parts(store: Store):
    halves, whole = together([shown(store, 0, 25), shown(store, 25, 60)]), shown(store)
    assert halves.held.sort("adapter").drop("stays").equals(whole.held.sort("adapter").drop("stays"))


def test_a_part_before_a_load_that_is_held_knows_who_was_there(store: Store):
    stays = shown(store, 40, 60).stays
    assert stays is not None
    assert sorted(stays["adapter"].to_list()) == ["b", "c"]


def test_rates_are_those_of_a_pod_and_a_bin_is_begun_by_its_time(store: Store):
    told = shown(store).course
    assert since(told, "at") == [0, 30]
    assert told["requests"].to_list() == [2, 0]
    assert told["loads_per_second"].to_list() == [pytest.approx(2 / 30), pytest.approx(1 / 30)]


def test_latency_is_the_time_to_the_first_token_and_no_p95_is_told_of_two_requests(store: Store):
    row = shown(store).course.row(0, named=True)
    assert (row["p50_seconds"], row["p95_seconds"], row["latency_of"]) == (pytest.approx(2.5), None, 2)


def test_an_engine_that_starts_in_the_window_is_marked(store: Store):
    assert since(shown(store, -5, 60).restarts, "at") == [-1]


def test_a_pod_of_which_only_requests_are_known_is_there_and_untold(tmp_path: Path):
    asked = requests(f"a:{BEGIN}/{BEGIN + 1}/{BEGIN + 2}/{BEGIN + 3}")
    told = shown(stored(tmp_path, requests=asked))
    assert told.pods.select("pod", "told").rows() == [("pod-0", False)]
    assert (told.count, told.provenance) == (0, None)


def test_who_was_loaded_weeks_ago_and_never_evicted_is_still_drawn(tmp_path: Path):
    quiet = events(spans(("old", 0, -20 * 86_400, -1)), pod="quiet", start_at=BEGIN - 20 * 86_400 - 1)
    awake = requests(f"old:{BEGIN}/{BEGIN + 1}/{BEGIN + 2}/{BEGIN + 3}", pod="quiet")
    stays = shown(stored(tmp_path, events=quiet, requests=awake)).stays
    assert stays is not None
    assert stays.select("adapter", "start", "end").rows() == [("old", BEGIN * SECOND, (BEGIN + 60) * SECOND)]


def test_more_stays_than_are_drawn_are_told_as_cells_only(tmp_path: Path):
    many = " ".join(
        f"a{number % 7}:{BEGIN + number * 0.02:.6f}-{BEGIN + number * 0.02 + 0.01:.6f}" for number in range(MOST_STAYS + 1)
    )
    told = shown(stored(tmp_path, events=events(many, start_at=BEGIN - 1)))
    assert (told.stays, told.count) == (None, MOST_STAYS + 1)
    assert told.cells.height > 0


def test_an_empty_store_has_nothing_to_draw(tmp_path: Path):
    told = shown(Store(tmp_path))
    assert (told.count, told.cells.height, told.course.height, told.pods.height) == (0, 0, 0, 0)


@pytest.mark.parametrize("length", [SECOND, 15 * MINUTE, HOUR, DAY, 30 * DAY, 366 * DAY])
def test_no_window_has_more_cells_or_bins_than_are_drawn(length: int):
    window = Window(BEGIN * SECOND, BEGIN * SECOND + length)
    assert length // step_of(window, COLUMNS) <= COLUMNS
    assert length // step_of(window, BINS) <= max(BINS, 366)


def test_every_step_divides_the_day():
    assert all(DAY % step == 0 for step in STEPS)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200), st.integers(1, 80)), max_size=12), st.integers(1, 60))
def test_no_cell_is_more_than_full_and_none_is_lost(told: list[tuple[int, int, int]], step: int):
    ends = [0, 0, 0, 0]
    rows = []
    for slot, gap, length in told:
        start = ends[slot] + gap
        ends[slot] = start + length
        rows.append({"slot": slot, "adapter": f"a{gap % 3}", "start": start, "end": ends[slot]})
    schema = {"slot": pl.Int64, "adapter": pl.String, "start": pl.Int64, "end": pl.Int64}
    sat = pl.DataFrame(rows, schema=schema).with_columns(
        pl.lit(None, pl.String).alias(name) for name in ("cluster", "pool", "role", "pod", "engine")
    )
    found = cells(sat, step)
    assert found["filled"].max() is None or found["filled"].max() <= 1 + 1e-9  # type: ignore[operator]  # a column of numbers
    touched = {(row["slot"], cell) for row in rows for cell in range(row["start"] // step, (row["end"] - 1) // step + 1)}
    assert set(found.select("slot", "cell").iter_rows()) == touched
