from typing import Any

import polars as pl
from builders import events, rows
from hypothesis import given
from hypothesis import strategies as st
from strategies import QUICK, Log, lru_logs

from lora_watch.derive.stays import stays
from lora_watch.model import SECOND
from lora_watch.schema import ADAPTER_EVENTS

LOAD = {"kind": "load", "tier": "gpu", "from_tier": "cpu", "reason": "demand", "ok": True}
EVICT = {"kind": "evict", "tier": "gpu", "reason": "lru"}


def told(*records: dict[str, Any]) -> list[tuple[Any, ...]]:
    """(adapter, loaded, left, left_by) of each stay in seconds, in order; ``t`` in a record is its second."""
    frame = rows(
        ADAPTER_EVENTS, [{"at": record["t"] * SECOND, **{k: v for k, v in record.items() if k != "t"}} for record in records]
    )
    return stays_of(frame)


def stays_of(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    second = pl.col("loaded_at", "left_at") // SECOND
    found = stays(frame.lazy()).with_columns(second).select("adapter", "loaded_at", "left_at", "left_by").collect()
    return sorted(found.rows(), key=lambda row: (row[0] or "", row[1] if row[1] is not None else -1, row[2] or 0))


def test_a_load_and_its_evict_make_a_stay():
    assert stays_of(events("a:0-30")) == [("a", 0, 30, "evict")]


def test_a_stay_still_open_has_no_end():
    assert stays_of(events("b:10-")) == [("b", 10, None, None)]


def test_an_evict_with_no_load_before_it_has_an_unknown_load_time():
    assert stays_of(events("c:-20")) == [("c", None, 20, "evict")]


def test_a_load_with_no_evict_between_closes_the_first_as_reload():
    assert stays_of(events("a:0- a:40-50")) == [("a", 0, 40, "reload"), ("a", 40, 50, "evict")]


def test_seq_orders_records_of_one_time():
    assert told({"t": 5, **EVICT, "adapter": "a"}, {"t": 5, **LOAD, "adapter": "a"}, {"t": 5, **EVICT, "adapter": "a"}) == [
        ("a", None, 5, "evict"),
        ("a", 5, 5, "evict"),
    ]


def test_an_inplace_reload_makes_two_stays():
    evict, load = {**EVICT, "reason": "inplace"}, {**LOAD, "reason": "inplace"}
    assert told({"t": 0, **LOAD, "adapter": "a"}, {"t": 9, **evict, "adapter": "a"}, {"t": 9, **load, "adapter": "a"}) == [
        ("a", 0, 9, "evict"),
        ("a", 9, None, None),
    ]


def test_an_evict_for_a_restart_does_not_count_as_a_measured_end():
    assert told({"t": 0, **LOAD, "adapter": "a"}, {"t": 9, **EVICT, "reason": "restart", "adapter": "a"}) == [
        ("a", 0, 9, "restart")
    ]


def test_failed_loads_warm_up_and_the_cpu_tier_make_no_stay():
    nothing = [
        {"t": 0, **LOAD, "ok": False, "adapter": "a"},
        {"t": 1, **LOAD, "reason": "warmup", "adapter": "warmup_1"},
        {"t": 2, **EVICT, "reason": "warmup", "adapter": "warmup_1"},
        {"t": 3, **LOAD, "tier": "cpu", "from_tier": "disk", "adapter": "a"},
        {"t": 4, **LOAD},
    ]
    assert told(*nothing) == []


def test_two_ids_of_one_name_are_two_chains():
    assert told(
        {"t": 0, **LOAD, "adapter": "a", "adapter_id": 1, "slot": 0},
        {"t": 5, **LOAD, "adapter": "a", "adapter_id": 7, "slot": 1},
        {"t": 8, **EVICT, "adapter": "a", "adapter_id": 1, "slot": 0},
    ) == [("a", 0, 8, "evict"), ("a", 5, None, None)]


def test_another_adapter_in_the_slot_says_that_the_evict_is_lost():
    assert told({"t": 0, **LOAD, "adapter": "a", "slot": 0}, {"t": 7, **LOAD, "adapter": "b", "slot": 0}) == [
        ("a", 0, 7, "lost"),
        ("b", 7, None, None),
    ]


def test_a_new_start_of_the_engine_closes_what_was_open():
    old = {"stream": "agent/c/pod-0/old"}
    assert told(
        {"t": 0, "kind": "start", "slots": 2, **old, "seq": 1},
        {"t": 1, **LOAD, "adapter": "a", **old, "seq": 2},
        {"t": 60, "kind": "start", "slots": 2, "stream": "agent/c/pod-0/new", "seq": 1},
        {"t": 70, **LOAD, "adapter": "a", "stream": "agent/c/pod-0/new", "seq": 2},
    ) == [("a", 1, 60, "restart"), ("a", 70, None, None)]


def test_a_start_of_another_data_parallel_engine_closes_nothing():
    assert told(
        {"t": 0, "kind": "start", "slots": 2, "stream": "x", "engine": "0", "seq": 1},
        {"t": 1, **LOAD, "adapter": "a", "stream": "x", "engine": "0", "seq": 2},
        {"t": 60, "kind": "start", "slots": 2, "stream": "y", "engine": "1", "seq": 1},
    ) == [("a", 1, None, None)]


def test_stop_and_killed_close_what_was_open():
    load = {"t": 1, **LOAD, "adapter": "a"}
    assert told(load, {"t": 9, "kind": "stop"}) == [("a", 1, 9, "stop")]
    assert told(load, {"t": 9, "kind": "lost", "reason": "killed", "count": 0}) == [("a", 1, 9, "lost")]
    assert told(load, {"t": 9, "kind": "lost", "reason": "disk", "count": 3}) == [("a", 1, None, None)]


def test_a_killed_boot_that_is_noticed_late_ended_when_the_next_one_started():
    assert told(
        {"t": 1, **LOAD, "adapter": "a", "stream": "old", "seq": 1},
        {"t": 60, "kind": "start", "slots": 2, "stream": "new", "seq": 1},
        {"t": 90, "kind": "lost", "reason": "killed", "count": 1, "stream": "old", "seq": 2},
    ) == [("a", 1, 60, "lost")]


def test_a_second_start_within_a_boot_empties_the_slots():
    assert told(
        {"t": 0, "kind": "start", "slots": 2},
        {"t": 1, **LOAD, "adapter": "a"},
        {"t": 5, "kind": "start", "slots": 2},
        {"t": 7, **EVICT, "adapter": "a"},
    ) == [("a", None, 7, "evict"), ("a", 1, 5, "restart")]


def test_an_end_before_the_load_by_the_clocks_of_two_boots_is_moved_to_the_load():
    assert told(
        {"t": 9, **LOAD, "adapter": "a", "stream": "old", "seq": 2},
        {"t": 4, "kind": "start", "slots": 2, "stream": "old", "seq": 1},
        {"t": 6, "kind": "start", "slots": 2, "stream": "new", "seq": 1},
    ) == [("a", 9, 9, "restart")]


def test_an_unseen_load_is_known_from_the_first_record_unless_the_start_is_held():
    resident = pl.col("resident_from") // SECOND
    late = stays(events("a:5-30 c:-20").lazy()).filter(pl.col("loaded_at").is_null()).select(resident).collect()
    assert late.item() == 5
    whole = stays(events("a:5-30 c:-20", start_at=0).lazy()).filter(pl.col("loaded_at").is_null()).select(resident).collect()
    assert whole.item() == 20


def test_a_stay_says_where_it_came_from_and_how_it_is_known():
    records = [
        {"at": 0, **LOAD, "from_tier": "disk", "reason": "preload", "seconds": 1.5, "adapter": "a"},
        {"at": 9, **EVICT, "adapter": "a", "provenance": "inferred"},
    ]
    (row,) = stays(rows(ADAPTER_EVENTS, records).lazy()).collect().rows(named=True)
    assert (row["from_tier"], row["reason"], row["seconds"], row["left_reason"], row["provenance"]) == (
        "disk",
        "preload",
        1.5,
        "lru",
        "inferred",
    )


def test_times_of_1970_and_2100_pass():
    year_2100 = 4_102_444_800
    assert told({"t": 0, **LOAD, "adapter": "a"}, {"t": year_2100, **EVICT, "adapter": "a"}) == [("a", 0, year_2100, "evict")]


def test_no_events_make_no_stays():
    assert stays(ADAPTER_EVENTS.empty().lazy()).collect().is_empty()


@QUICK
@given(lru_logs(), st.randoms(use_true_random=False))
def test_a_complete_log_gives_every_stay_in_any_order_and_said_twice(log: Log, random: Any):
    order = list(range(len(log.events))) * 2
    random.shuffle(order)
    found = stays(log.events[order].lazy()).select("pod", "adapter", "loaded_at", "left_at").collect().rows()
    assert sorted(found, key=repr) == sorted(log.stays, key=repr)


@QUICK
@given(lru_logs(with_slots=False))
def test_slots_need_not_be_known(log: Log):
    found = stays(log.events.lazy()).select("pod", "adapter", "loaded_at", "left_at").collect().rows()
    assert sorted(found, key=repr) == sorted(log.stays, key=repr)


@QUICK
@given(lru_logs())
def test_loads_less_evicts_are_the_stays_still_open(log: Log):
    kinds = log.events["kind"].value_counts()
    count = dict(kinds.rows())
    still = stays(log.events.lazy()).filter(pl.col("left_at").is_null()).collect()
    assert count.get("load", 0) - count.get("evict", 0) == len(still)
