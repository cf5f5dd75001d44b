"""What went on in each pool, minute by minute."""

import polars as pl
import pytest
from builders import events, requests, rows
from hypothesis import given
from hypothesis import strategies as some

from lora_watch.derive.hysteresis import Limits
from lora_watch.derive.timeline import high_spans, timeline
from lora_watch.model import MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS

WINDOW = Window(0, 3 * MINUTE)
NONE = REQUESTS.empty()


def lines(seen: pl.DataFrame, asked: pl.DataFrame = NONE, window: Window = WINDOW, **given_) -> pl.DataFrame:
    return timeline(seen.lazy(), asked.lazy(), window, **given_).collect()


def test_each_minute_counts_its_requests_loads_and_swaps():
    told = lines(events("a:10-70 b!:70-80 c:80-"), requests("a:5/5/6/20 a:60/60/61/90 b:70/70/71/100"))
    assert told.select("at", "requests", "loads", "cold_loads", "swaps").rows() == [
        (0, 1, 1, 0, 0),
        (MINUTE, 2, 2, 1, 2),
    ]


def test_ratios_are_per_request_and_unknown_without_one():
    told = lines(events("a:10-70 b:70-"), requests("a:5/5/6/70 a:5/5/6/71"))
    assert told.select("loads_per_request", "swaps_per_request").rows() == [(None, None), (0.5, 0.5)]


def test_a_minute_in_which_nothing_happened_has_no_row():
    assert lines(events("a:10- b:130-"))["at"].to_list() == [0, 2 * MINUTE]


def test_the_window_is_half_open():
    told = lines(events("a:0- b:60- c:180-"), window=Window(MINUTE, 3 * MINUTE))
    assert told.select("at", "loads").rows() == [(MINUTE, 1)]


def test_requests_for_the_base_model_do_not_count():
    asked = rows(REQUESTS, [{"at": SECOND, "adapter": None}, {"at": SECOND, "adapter": "a"}])
    assert lines(ADAPTER_EVENTS.empty(), asked)["requests"].to_list() == [1]


def load(at: float, **fields):
    base = {"at": round(at * SECOND), "kind": "load", "tier": "gpu", "adapter": "a", "ok": True, "in_step": True, "seconds": 3.0}
    return {**base, **fields}


def test_engines_stand_still_for_the_length_of_their_loads():
    (row,) = lines(rows(ADAPTER_EVENTS, [load(10), load(30, adapter="b")])).to_dicts()
    assert (row["stall_seconds"], row["stall_share"]) == (6.0, pytest.approx(0.1))


def test_the_share_is_of_all_pods_with_a_record_in_the_minute():
    two = pl.concat([rows(ADAPTER_EVENTS, [load(10)]), rows(ADAPTER_EVENTS, [load(10)], pod="pod-1")])
    (row,) = lines(two).to_dicts()
    assert (row["pods"], row["stall_share"]) == (2, pytest.approx(0.05))


def test_the_last_minute_may_be_shorter():
    (row,) = lines(rows(ADAPTER_EVENTS, [load(10)]), window=Window(0, 30 * SECOND)).to_dicts()
    assert row["stall_share"] == pytest.approx(0.1)


def test_loads_in_place_failed_ones_and_warm_up_are_no_loads():
    odd = [load(10, reason="inplace"), load(20, ok=False), load(30, reason="warmup")]
    assert lines(rows(ADAPTER_EVENTS, odd))["loads"].to_list() == [0]


def test_where_no_load_has_a_length_the_time_is_unknown_and_no_zero():
    told = lines(rows(ADAPTER_EVENTS, [load(10, seconds=None), {"at": 70 * SECOND, "kind": "use", "adapter": "a"}]))
    assert told.select("loads", "stall_seconds", "stall_share").rows() == [(1, None, None), (0, 0.0, 0.0)]


def test_a_load_without_a_length_counts_as_long_as_the_others_of_its_tier_in_the_pool():
    known = [load(10, seconds=1.0), load(20, seconds=3.0), load(40, seconds=9.0), load(130, seconds=5.0, tier="cpu")]
    unknown = rows(ADAPTER_EVENTS, [load(10, seconds=None), load(100, seconds=None)], pod="pod-1")
    told = lines(pl.concat([rows(ADAPTER_EVENTS, known), unknown]))
    assert told["stall_seconds"].to_list() == [16.0, 3.0, 5.0]


def test_rows_said_twice_count_once():
    seen, asked = events("a:10-20 b:20-"), requests("a:5/5/6/20 b:5/5/6/30")
    assert lines(pl.concat([seen, seen]), pl.concat([asked, asked])).equals(lines(seen, asked))


def test_pools_are_told_apart_and_one_without_a_name_is_one():
    both = pl.concat([events("a:10-"), events("b:10-", pool=None)])
    assert sorted(lines(both)["pool"].to_list(), key=str) == [None, "p"]


def test_other_groups_and_bins_may_be_asked_for():
    both = pl.concat([events("a:10-"), events("b:40-", pod="pod-1")])
    told = lines(both, by=("pod",), bin=30 * SECOND)
    assert told.select("pod", "at", "loads").rows() == [("pod-0", 0, 1), ("pod-1", 30 * SECOND, 1)]


def test_a_minute_is_known_as_well_as_the_worst_of_its_rows():
    told = lines(events("a:10-"), requests("a:5/5/6/20 a:5/5/6/70", provenance="activity"))
    assert told["provenance"].to_list() == ["activity", "activity"]


def test_nothing_at_all_has_no_rows_and_all_columns():
    told = lines(ADAPTER_EVENTS.empty())
    assert told.height == 0
    assert {"at", "requests", "stall_share", "provenance"} <= set(told.columns)


@given(some.lists(some.integers(0, 179), min_size=1, max_size=30, unique=True), some.integers(1, 179))
def test_counts_of_two_windows_side_by_side_add_up(seconds: list[int], cut: int):
    loads = rows(ADAPTER_EVENTS, [load(at, adapter=f"a{at}") for at in seconds])
    middle = cut * SECOND
    parts = [lines(loads, window=window)["loads"].sum() for window in (Window(0, middle), Window(middle, 3 * MINUTE))]
    assert sum(parts) == lines(loads)["loads"].sum() == len(seconds)


SIMPLE = Limits(0.5, 0.2)


def spans(*values: float | None, limits: Limits = SIMPLE):
    frame = pl.DataFrame({"at": range(len(values)), "value": values}, schema={"at": pl.Int64, "value": pl.Float64})
    return high_spans(frame, "value", limits, len(values))


def test_a_number_is_high_from_its_upper_limit_to_its_lower_one():
    assert spans(0.1, 0.6, 0.4, 0.1, 0.7, 0.1) == [(1, 3), (4, 5)]


def test_what_is_still_high_at_the_end_has_no_end():
    assert spans(0.1, 0.6, 0.4) == [(1, None)]


def test_a_number_that_is_unknown_neither_begins_nor_ends_anything():
    assert spans(None, 0.6, None, 0.4) == [(1, None)]
    assert spans(None, None) == []


def test_a_limit_that_must_hold_for_a_while_is_told_since_it_was_passed():
    assert spans(0.1, 0.6, 0.6, 0.6, limits=Limits(0.5, 0.2, for_=2)) == [(1, None)]
    assert spans(0.1, 0.6, 0.1, 0.6, limits=Limits(0.5, 0.2, for_=2)) == []


def test_stored_requests_are_counted_as_they_are():
    asked = requests("a:5/5/6/20")
    twice = pl.concat([asked, asked])
    assert [lines(ADAPTER_EVENTS.empty(), twice, stored=stored)["requests"].to_list() for stored in (False, True)] == [[1], [2]]
