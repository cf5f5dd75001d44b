import json
from typing import Any

import polars as pl
import pytest
from builders import rows, snapshot
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import QUICK, logs_with_snapshots

from lora_watch.derive.boots import boots
from lora_watch.derive.carry import carry
from lora_watch.derive.snapshots import listings, read_details, snapshots
from lora_watch.derive.stays import stays
from lora_watch.model import SECOND
from lora_watch.schema import ADAPTER_EVENTS

LOAD = {"kind": "load", "tier": "gpu", "from_tier": "cpu", "reason": "demand", "ok": True}
EVICT = {"kind": "evict", "tier": "gpu", "reason": "lru"}
STAY = ["adapter", "adapter_id", "slot", "loaded_at", "left_at", "left_by"]


def load(name: str, slot: int = 0) -> dict[str, Any]:
    return {**LOAD, "adapter": name, "adapter_id": ord(name), "slot": slot}


def evict(name: str, slot: int = 0) -> dict[str, Any]:
    return {**EVICT, "adapter": name, "adapter_id": ord(name), "slot": slot}


def log(*records: tuple[float, dict[str, Any]] | None) -> pl.DataFrame:
    """Records of one boot, each with its second, in the order of their seqs; None is a record that is lost."""
    numbered = [(seq, record) for seq, record in enumerate(records, 1) if record is not None]
    return rows(ADAPTER_EVENTS, [{"seq": seq, "at": round(record[0] * SECOND), **record[1]} for seq, record in numbered])


def told(*records: tuple[float, dict[str, Any]] | None) -> list[tuple[Any, ...]]:
    """(adapter, known by, loaded, left, left by) of each stay in seconds, in order."""
    second = pl.col("loaded_at", "left_at") / SECOND
    found = stays(log(*records).lazy()).with_columns(second).select("adapter", "known_by", "loaded_at", "left_at", "left_by")
    return sorted(found.collect().rows(), key=lambda row: (row[0], row[2] is None, row[2], row[3] or 0))


def test_who_is_listed_and_has_no_open_load_has_a_stay_since_the_time_the_snapshot_says():
    assert told((60, snapshot("a:0@20 b:1@50")), (80, evict("a"))) == [
        ("a", "snapshot", 20, 80, "evict"),
        ("b", "snapshot", 50, None, None),
    ]


def test_where_the_snapshot_does_not_say_since_when_the_load_is_unknown_and_it_is_there_from_the_snapshot_on():
    frame = stays(log((60, snapshot("a:0@")), (80, evict("a"))).lazy()).collect()
    assert frame.select("loaded_at", "resident_from", "left_at").row(0) == (None, 60 * SECOND, 80 * SECOND)


def test_a_snapshot_that_agrees_changes_nothing():
    assert told((5, load("a")), (60, snapshot("a:0@5")), (70, snapshot("a:0@5")), (80, evict("a"))) == [
        ("a", "load", 5, 80, "evict")
    ]


def test_who_is_not_listed_any_more_left_unseen_before_the_snapshot():
    assert told((5, load("a")), None, (60, snapshot("")), (70, snapshot(""))) == [("a", "load", 5, 60, "lost")]


def test_who_is_listed_once_and_then_not_any_more_left_unseen():
    assert told((60, snapshot("a:0@20")), None, (90, snapshot("b:0@70"))) == [
        ("a", "snapshot", 20, 70, "lost"),
        ("b", "snapshot", 70, None, None),
    ]


def test_the_evict_of_a_lost_reload_is_not_the_end_of_the_first_stay():
    assert told((5, load("a")), None, (60, snapshot("")), None, (90, evict("a"))) == [
        ("a", "load", 5, 60, "lost"),
        ("a", "evict", None, 90, "evict"),
    ]


def test_an_evict_that_came_before_the_snapshot_by_seq_is_the_end():
    assert told((5, load("a")), (60, evict("a")), (60, snapshot(""))) == [("a", "load", 5, 60, "evict")]


def test_a_later_time_of_load_tells_that_evict_and_load_were_lost():
    assert told((5, load("a")), None, None, (60, snapshot("a:0@40")), (90, evict("a"))) == [
        ("a", "load", 5, 40, "reload"),
        ("a", "snapshot", 40, 90, "evict"),
    ]


def test_who_took_the_slot_of_another_did_so_when_the_snapshot_says():
    assert told((5, load("a")), None, None, (60, snapshot("b:0@40"))) == [
        ("a", "load", 5, 40, "lost"),
        ("b", "snapshot", 40, None, None),
    ]


def test_a_snapshot_right_behind_a_load_says_nothing_about_it():
    assert told((5, load("a")), (5.01, snapshot("")), (60, snapshot("a:0@5.02")), (80, evict("a"))) == [
        ("a", "load", 5, 80, "evict")
    ]


def test_an_incomplete_snapshot_says_who_is_there_and_not_who_is_gone():
    assert told((5, load("a")), (60, snapshot("b:1@50", part=1, parts=2)), None, (90, evict("b", 1))) == [
        ("a", "load", 5, None, None),
        ("b", "snapshot", 50, 90, "evict"),
    ]


def test_parts_are_one_snapshot_whatever_lies_between_their_times():
    first, second = snapshot("a:0@5", part=1, parts=2), snapshot("b:1@7", part=2, parts=2)
    assert told((5, load("a")), (7, load("b", 1)), (8, load("c", 2)), (60, evict("c", 2)), (61, first), (62, second)) == [
        ("a", "load", 5, None, None),
        ("b", "load", 7, None, None),
        ("c", "load", 8, 60, "evict"),
    ]


def test_a_new_start_within_the_boot_closes_what_a_snapshot_listed():
    assert told((60, snapshot("a:0@20")), (70, {"kind": "start", "slots": 2}), (80, snapshot(""))) == [
        ("a", "snapshot", 20, 70, "restart")
    ]


def test_an_evict_after_a_snapshot_without_it_was_loaded_after_the_snapshot():
    frame = stays(log((10, load("b", 1)), (60, snapshot("b:1@10")), None, (90, evict("a"))).lazy()).collect()
    assert frame.filter(pl.col("adapter") == "a")["resident_from"].item() == 90 * SECOND


def test_an_api_servers_snapshot_says_nothing_about_slots_and_makes_no_worker():
    names = {
        "kind": "snapshot",
        "detail": json.dumps({"registered": [["a", 1, '/"gpu":/a']], "part": 1, "parts": 1, "role": "api"}),
    }
    assert told((5, load("a")), (9, names)) == [("a", "load", 5, None, None)]
    assert boots(log((9, names)).lazy()).collect().is_empty()
    assert boots(log((9, snapshot("", slots=4))).lazy()).collect()["slots"].to_list() == [4]


@pytest.mark.parametrize(
    "detail",
    [
        "",
        "[]",
        '{"gpu":7}',
        '{"gpu":[7]}',
        '{"gpu":[],"part":0}',
        '{"gpu":[],"part":3,"parts":2}',
        '{"gpu":[],"part":"1"}',
        '{"gpu":[],"part":99999999999999999999,"parts":99999999999999999999}',
        '{"gpu":' + "[" * 5000,
        '{"gpu":[[0,"a",97,1e999]]}',
    ],
)
def test_what_is_no_snapshot_changes_nothing(detail: str):
    assert read_details(pl.Series([detail])).to_list() == [None]
    assert told((5, load("a")), (6, load("b", 1)), (9, {"kind": "snapshot", "detail": detail})) == [
        ("a", "load", 5, None, None),
        ("b", "load", 6, None, None),
    ]


@pytest.mark.parametrize("entry", ["[]", "[0]", "[0,null,null,5]", '["0","a",97,5]', '[0,"a",true,5]', "[0,7,97,5]"])
def test_an_entry_that_is_none_is_nobody(entry: str):
    detail = f'{{"gpu":[{entry},[1,"b",98,5000000,"more"]]}}'
    (said,) = read_details(pl.Series([detail])).to_list()
    assert said["gpu"] == [{"slot": 1, "adapter": "b", "adapter_id": 98, "loaded_at": 5_000_000}]


def test_a_time_of_load_after_the_snapshot_or_before_1970_is_unknown():
    detail = '{"gpu":[[0,"a",97,99000000],[1,"b",98,-1]]}'
    found = listings(snapshots(log((9, {"kind": "snapshot", "detail": detail})).lazy())).collect()
    assert found["loaded_at"].to_list() == [None, None]


def test_who_is_listed_twice_counts_once():
    assert told((60, snapshot("a:1@30 a:0@20"))) == [("a", "snapshot", 20, None, None)]


def test_a_carried_snapshot_keeps_all_its_parts_and_only_the_newest_whole_one():
    parts = [(61, snapshot("a:0@5", part=1, parts=2)), (62, snapshot("b:1@7", part=2, parts=2))]
    frame = log((60, snapshot("c:0@1")), *parts, (63, snapshot("a:0@5", part=1, parts=2)), (99, evict("a")))
    kept = carry(frame.lazy(), 90 * SECOND).filter(pl.col("kind") == "snapshot").collect()
    assert kept["seq"].to_list() == [2, 3, 4]


def test_an_adapter_evicted_since_the_carried_snapshot_does_not_come_back():
    frame = log((60, snapshot("a:0@20")), (70, evict("a")), (71, load("b")))
    alive = stays(carry(frame.lazy(), 90 * SECOND)).filter(pl.col("left_at").is_null()).collect()
    assert alive["adapter"].to_list() == ["b"]


def test_a_load_that_the_newest_snapshot_does_not_confirm_is_not_carried():
    frame = log(
        (5, load("a")), (6, load("b", 1)), (7, load("c", 2)), (60, snapshot("b:1@6 c:2@50")), (61, snapshot("b:1@6 c:2@50"))
    )
    kept = carry(frame.lazy(), 90 * SECOND).filter(pl.col("kind") == "load").collect()
    assert kept["adapter"].to_list() == ["b"]


@QUICK
@given(logs_with_snapshots())
def test_true_snapshots_in_a_complete_log_change_no_stay(drawn: tuple[pl.DataFrame, pl.DataFrame]):
    plain, snapped = drawn
    columns = [*STAY, "known_by", "resident_from", "from_tier", "reason", "left_reason", "seconds", "provenance"]
    expected, found = (stays(frame.lazy()).select(columns).sort(columns).collect() for frame in (plain, snapped))
    assert found.equals(expected)


@QUICK
@given(logs_with_snapshots(ties=False), st.data())
def test_a_log_that_begins_with_a_snapshot_has_every_later_stay(drawn: tuple[pl.DataFrame, pl.DataFrame], data: st.DataObject):
    _, snapped = drawn
    heads = snapshots(snapped.lazy()).collect().sort("seq")
    assume(len(heads))
    head = heads.row(data.draw(st.integers(0, len(heads) - 1)), named=True)
    gone_before = snapped.filter((pl.col("kind") == "evict") & (pl.col("seq") < head["seq"])).select("adapter", left_at="at")
    whole = stays(snapped.lazy()).select(*STAY, "resident_from").collect()
    later = snapped.filter(pl.col("seq") >= head["seq"])
    found = stays(later.lazy()).select(*STAY, "resident_from").collect()
    expected = whole.join(gone_before, on=["adapter", "left_at"], how="anti")
    assert found.sort(STAY).equals(expected.sort(STAY))


@QUICK
@given(logs_with_snapshots(), st.data())
def test_after_a_loss_every_stay_from_the_next_snapshot_on_is_right(
    drawn: tuple[pl.DataFrame, pl.DataFrame], data: st.DataObject
):
    _, snapped = drawn
    heads = snapshots(snapped.lazy()).filter(pl.col("seq") > 2).collect().sort("seq")
    assume(len(heads))
    head = heads.row(data.draw(st.integers(0, len(heads) - 1)), named=True)
    first = data.draw(st.integers(1, head["seq"] - 1))
    lossy = snapped.filter(~pl.col("seq").is_between(first, head["seq"] - 1))
    after = pl.col("loaded_at") > head["at"]
    expected, found = (stays(frame.lazy()).filter(after).select(STAY).sort(STAY).collect() for frame in (snapped, lossy))
    assert found.equals(expected)
    there = pl.col("left_at").is_null()
    now, then = (stays(frame.lazy()).filter(there).select("adapter", "slot").collect() for frame in (snapped, lossy))
    assert sorted(now.rows()) == sorted(then.rows())


@QUICK
@given(logs_with_snapshots(), st.data())
def test_what_is_carried_tells_the_same_and_can_be_carried_on(drawn: tuple[pl.DataFrame, pl.DataFrame], data: st.DataObject):
    _, snapped = drawn
    lost = data.draw(st.integers(0, len(snapped) - 1))
    frame = snapped.filter(pl.col("seq") != lost).lazy()
    end = snapped["at"].to_list()[-1] + SECOND
    early, late = sorted(data.draw(st.tuples(st.integers(0, end), st.integers(0, end))))
    alive = pl.col("left_at").is_null() | (pl.col("left_at") >= late)
    held = carry(frame.filter(pl.col("at") < early), early)
    on = carry(pl.concat([held, frame.filter(pl.col("at") >= early)]), late).collect()
    direct = carry(frame, late).collect()
    expected, found, again = (
        stays(part.lazy()).filter(alive).select(STAY).sort(STAY).collect() for part in (frame.collect(), direct, on)
    )
    assert found.equals(expected)
    assert again.equals(expected)
