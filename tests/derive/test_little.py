from typing import Any

import polars as pl
import pytest
from builders import events, rows, snapshot
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import HORIZON, QUICK, Log, lru_logs, windows

from lora_watch.derive.boots import boots
from lora_watch.derive.little import little
from lora_watch.derive.stays import stays
from lora_watch.model import SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS

HUNDRED = Window(0, 100 * SECOND)
WHOLE = Window(0, 2 * HORIZON * SECOND)


def account(frame: pl.DataFrame, window: Window, by: tuple[str, ...] = ("cluster", "pod")) -> pl.DataFrame:
    return little(frame.lazy(), window, by, boots=boots(frame.lazy()), stays=stays(frame.lazy())).collect()


def told(frame: pl.DataFrame, window: Window = HUNDRED, by: tuple[str, ...] = ("cluster", "pod")) -> dict[str, Any]:
    return account(frame, window, by).row(0, named=True)


def test_residents_loads_and_leaves_balance():
    row = told(events("a:0-60 b:20- c:60-", start_at=0, slots=2), Window(10 * SECOND, 100 * SECOND))
    assert (row["resident_start"], row["loads"], row["leaves"], row["resident_end"], row["flow_residual"]) == (1, 2, 1, 2, 0)
    assert (row["occupied_slot_seconds"], row["residual_ratio"]) == (50 + 80 + 40, 0.0)


def test_an_evict_without_its_load_shows_from_there_to_the_end():
    row = told(events("b:0- a:-30 c:30-", start_at=0, slots=2))
    assert (row["unseen_loads"], row["residual_slot_seconds"], row["flow_residual"]) == (1, 70.0, -1)


def test_a_load_without_the_evict_before_shows_from_there_to_the_end():
    row = told(events("a:0- a:40-", start_at=0))
    assert (row["unseen_leaves"], row["residual_slot_seconds"], row["flow_residual"]) == (1, 60.0, 1)


def test_more_residents_than_slots_show_a_lost_evict():
    row = told(events("a:0- b:10- c:70-", start_at=0, slots=2))
    assert (row["unseen_leaves"], row["residual_slot_seconds"]) == (0, 30.0)


def test_an_lru_eviction_must_be_followed_by_its_load():
    row = told(events("a:0-10 b:0-30 c:30-", start_at=0, slots=2))
    assert (row["unseen_loads"], row["residual_slot_seconds"]) == (1, 20.0)


def test_a_last_eviction_may_still_be_waiting_for_its_load():
    assert told(events("a:0-60", start_at=0))["residual_ratio"] == 0.0
    assert told(events("a:0-10", start_at=0))["unseen_loads"] == 1


def test_a_boot_whose_start_is_not_held_is_an_edge_and_no_loss():
    row = told(events("b:0- a:-30 c:30-"), Window(10 * SECOND, 100 * SECOND))
    assert (row["unseen_loads"], row["flow_residual"], row["residual_ratio"], row["resident_start"]) == (0, 0, 0.0, 2)


def test_an_edge_may_lie_within_the_window():
    assert told(events("b:5- a:-30 c:30-"))["flow_residual"] == 0


def test_the_end_of_a_boot_is_a_leave():
    frame = pl.concat(
        [events("a:0-", start_at=0), rows(ADAPTER_EVENTS, [{"at": 50 * SECOND, "kind": "lost", "reason": "killed", "seq": 9}])]
    )
    row = told(frame)
    assert (row["leaves"], row["flow_residual"], row["residual_ratio"], row["occupied_slot_seconds"]) == (1, 0, 0.0, 50.0)


LOST_LOAD = [
    {"at": 0, "kind": "start", "slots": 2, "seq": 1},
    {"at": 60 * SECOND, "seq": 3, **snapshot("a:0@30")},
    {
        "at": 80 * SECOND,
        "seq": 4,
        "kind": "evict",
        "tier": "gpu",
        "adapter": "a",
        "adapter_id": 97,
        "slot": 0,
        "reason": "explicit",
    },
]


def test_a_load_that_only_a_snapshot_tells_of_shows_from_when_it_was():
    row = told(rows(ADAPTER_EVENTS, LOST_LOAD))
    assert (row["loads"], row["unseen_loads"], row["residual_slot_seconds"], row["flow_residual"]) == (0, 1, 70.0, -1)
    assert row["occupied_slot_seconds"] == 50.0


def test_a_leave_that_only_a_snapshot_tells_of_shows_from_there_to_the_end():
    gone = rows(ADAPTER_EVENTS, [{"at": 90 * SECOND, "seq": 9, **snapshot("")}])
    row = told(pl.concat([events("a:0-", start_at=0).with_columns(adapter_id=pl.lit(97, pl.Int64)), gone]))
    assert (row["unseen_leaves"], row["residual_slot_seconds"], row["flow_residual"]) == (1, 10.0, 1)


def test_what_a_snapshot_dates_before_the_first_record_held_is_an_edge_and_no_loss():
    row = told(rows(ADAPTER_EVENTS, LOST_LOAD[1:]))
    assert (row["loads"], row["unseen_loads"], row["flow_residual"], row["residual_ratio"]) == (1, 0, 0, 0.0)


def test_by_adapter_only_pairing_can_be_checked():
    table = account(events("a:0- a:40- b:0-", start_at=0), HUNDRED, ("adapter",)).sort("adapter")
    assert table.select("adapter", "unseen_leaves").rows() == [("a", 1), ("b", 0)]


def test_nothing_in_nothing_out():
    assert account(ADAPTER_EVENTS.empty(), HUNDRED).is_empty()


@QUICK
@given(lru_logs(), windows())
def test_a_complete_log_leaves_no_residual_in_any_window(log: Log, window: Window):
    for row in account(log.events, window).rows(named=True):
        assert (row["flow_residual"], row["unseen_loads"], row["unseen_leaves"]) == (0, 0, 0)
        assert row["residual_slot_seconds"] == pytest.approx(0)
        assert row["occupied_slot_seconds"] <= log.slots * window.seconds + 1e-6


@QUICK
@given(lru_logs(), windows())
def test_occupied_slot_time_is_the_area_under_the_count(log: Log, window: Window):
    counted = 0.0
    for row in log.events.filter(pl.col("kind").is_in(["load", "evict"])).rows(named=True):
        sign = 1 if row["kind"] == "load" else -1
        counted += sign * max(0, window.end - max(row["at"], window.start)) / SECOND
    occupied = account(log.events, window, ("cluster",))["occupied_slot_seconds"].sum()
    assert occupied == pytest.approx(counted)


@QUICK
@given(lru_logs(), st.data())
def test_a_missing_evict_shows(log: Log, data: st.DataObject):
    evicts = log.events.filter(pl.col("kind") == "evict")
    assume(len(evicts))
    gone = data.draw(st.integers(0, len(evicts) - 1))
    left = log.events.join(evicts[[gone]], on=["stream", "seq"], how="anti")
    table = account(left, WHOLE, ("cluster",))
    assert table["residual_slot_seconds"].sum() > 0 or table["unseen_leaves"].sum() > 0


@QUICK
@given(lru_logs(), st.data())
def test_a_missing_load_that_made_room_shows(log: Log, data: st.DataObject):
    before = pl.col("kind").shift(1).over("stream")
    loads = log.events.sort("stream", "seq").filter((pl.col("kind") == "load") & (before == "evict"))
    assume(len(loads))
    gone = data.draw(st.integers(0, len(loads) - 1))
    left = log.events.join(loads[[gone]], on=["stream", "seq"], how="anti")
    table = account(left, WHOLE, ("cluster",))
    assert table["residual_slot_seconds"].sum() > 0 or table["unseen_loads"].sum() > 0
