from typing import Any

import polars as pl
import pytest
from builders import events, requests, rows, snapshot
from hypothesis import given
from hypothesis import strategies as st
from strategies import HORIZON, QUICK, Log, lru_logs

from lora_watch.derive.misses import adapter_numbers, misses, numbered, request_lookups
from lora_watch.derive.stays import stays
from lora_watch.model import SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS

HUNDRED = Window(0, 100 * SECOND)


def lookups(asked: pl.DataFrame, frame: pl.DataFrame) -> list[Any]:
    return request_lookups(asked.lazy(), stays(frame.lazy())).sort("seq").collect()["lookup"].to_list()


def told(asked: pl.DataFrame, frame: pl.DataFrame, by: tuple[str, ...] = ("cluster", "pod"), **more: Any) -> dict[str, Any]:
    found = request_lookups(asked.lazy(), stays(frame.lazy()))
    return misses(asked.lazy(), found, HUNDRED, by, **more).collect().row(0, named=True)


def test_hot_is_in_a_slot_when_scheduled():
    assert lookups(requests("a:0/10/11/12 a:0/29/30/31"), events("a:10-30")) == ["hot", "hot"]


def test_the_load_a_request_waits_for_says_warm_or_cold():
    assert lookups(requests("a:0/9/11/12 b:0/9/11/12"), events("a:10- b!:10-")) == ["warm", "cold"]


def test_evicted_at_the_moment_of_scheduling_is_not_hot():
    assert lookups(requests("a:0/30/32/33"), events("a:10-30 a:31-")) == ["warm"]


def test_a_load_after_the_first_token_explains_nothing():
    assert lookups(requests("a:0/5/6/7"), events("a:10-")) == [None]


def test_a_load_recorded_just_after_the_first_token_still_counts():
    assert lookups(requests("a:0/5/9.96/12"), events("a:10-")) == ["warm"]


def test_a_load_of_unknown_origin_is_unknown():
    frame = events("a:10-").with_columns(from_tier=pl.lit(None, dtype=pl.String))
    assert lookups(requests("a:0/9/11/12"), frame) == [None]


def test_a_request_that_was_never_scheduled_is_unknown():
    asked = requests("a:0/1/2/3").with_columns(scheduled=pl.lit(None, dtype=pl.Int64))
    assert lookups(asked, events("a:0-")) == [None]


def test_without_a_first_token_the_finish_is_the_deadline():
    asked = requests("a:0/9/9/11").with_columns(first_token=pl.lit(None, dtype=pl.Int64))
    assert lookups(asked, events("a:10-")) == ["warm"]


def test_another_pods_copy_and_another_engines_copy_do_not_count():
    frame = pl.concat([events("a:0-", pod="x"), events("a:0-", engine="1", stream="s")])
    assert lookups(requests("a:0/5/6/7"), frame) == [None]


def test_an_unknown_engine_index_meets_its_like():
    frame = events("a:0-").with_columns(engine=pl.lit(None, dtype=pl.String))
    assert lookups(requests("a:0/5/6/7").with_columns(engine=pl.lit(None, dtype=pl.String)), frame) == ["hot"]


def test_of_two_ids_of_one_name_the_one_that_stays_keeps_it_hot():
    load = {"kind": "load", "tier": "gpu", "from_tier": "cpu", "adapter": "a"}
    frame = rows(
        ADAPTER_EVENTS,
        [
            {**load, "at": 0, "adapter_id": 1},
            {**load, "at": 5 * SECOND, "adapter_id": 2},
            {**load, "kind": "evict", "at": 8 * SECOND, "adapter_id": 2},
        ],
    )
    assert lookups(requests("a:0/9/10/11"), frame) == ["hot"]


def test_a_ghost_hit_is_evicted_within_thirty_seconds():
    row = told(requests("a:0/10/11/12 a:0/9/11/12"), events("a:0-40"))
    assert (row["hot"], row["ghost_hits"]) == (2, 1)


def test_counts_and_ratio_with_what_they_leave_out():
    asked = requests("a:0/20/21/22 b:0/9/11/12 c:0/50/51/52")
    base = requests("x:0/1/2/3", stream="s").with_columns(adapter=pl.lit(None, dtype=pl.String))
    row = told(pl.concat([asked, base]), events("a:10-90 b!:10-"))
    assert [row[name] for name in ("requests", "hot", "warm", "cold", "unknown", "base_model_requests")] == [3, 1, 0, 1, 1, 1]
    assert (row["miss_ratio"], row["uses"]) == (0.5, None)


def test_only_unknown_requests_make_an_unknown_ratio():
    assert told(requests("c:0/50/51/52"), events("a:10-90"))["miss_ratio"] is None


def test_a_request_belongs_to_the_window_it_was_scheduled_in():
    asked = requests("a:0/99/100/150 a:0/100/101/102")
    assert told(asked, events("a:0-"))["requests"] == 1


def test_uses_tell_where_no_request_rows_are():
    found = [
        {"at": n * SECOND, "kind": "use", "adapter": "a", "lookup": how} for n, how in enumerate(["hot", "warm", "cold", None])
    ]
    frame = rows(ADAPTER_EVENTS, found)
    row = told(REQUESTS.empty(), frame, events=frame.lazy())
    assert (row["requests"], row["miss_ratio"], row["uses"], row["use_misses"], row["use_unknown"]) == (0, None, 4, 2, 1)
    assert row["use_miss_ratio"] == pytest.approx(2 / 3)


def test_by_adapter_there_is_no_base_model():
    row = told(requests("a:0/20/21/22"), events("a:10-90"), ("adapter",), events=events("a:10-90").lazy())
    assert (row["adapter"], row["hot"], row["base_model_requests"]) == ("a", 1, None)


def test_the_worst_provenance_of_request_and_stay_wins():
    frame = events("a:0-", provenance="inferred")
    assert told(requests("a:0/20/21/22"), frame)["provenance"] == "inferred"
    assert told(requests("a:0/20/21/22", provenance="gossip"), frame)["provenance"] == "desired"


def test_rows_said_twice_count_once():
    asked = requests("a:0/20/21/22")
    assert told(pl.concat([asked, asked]), events("a:10-90"))["requests"] == 1


def test_nothing_in_nothing_out():
    found = request_lookups(REQUESTS.empty().lazy(), stays(ADAPTER_EVENTS.empty().lazy()))
    assert misses(REQUESTS.empty().lazy(), found, HUNDRED).collect().is_empty()


def test_a_request_that_waited_for_a_load_only_a_snapshot_dates_found_its_adapter_nobody_knows_where():
    frame = rows(ADAPTER_EVENTS, [{"at": 60 * SECOND, **snapshot("a:0@20")}])
    (row,) = request_lookups(requests("a:0/10/21/22").lazy(), stays(frame.lazy())).collect().rows(named=True)
    assert (row["lookup"], row["loaded_at"]) == (None, 20 * SECOND)


@given(st.permutations([(pod, name) for pod in ("pod-0", "pod-1") for name in "abc"]), st.integers(0, 5))
def test_the_number_of_an_adapter_does_not_depend_on_the_order_of_evaluation(order: list[tuple[str, str]], repeated: int):
    frame = pl.concat([events(f"{name}:0-9", pod=pod) for pod, name in [*order, order[repeated]]]).lazy()
    numbers = adapter_numbers(stays(frame))
    asked = [numbered(part, numbers).select("pod", "adapter", "number") for part in (stays(frame), frame)]
    once, again = pl.collect_all(asked, engine="streaming")
    expected = {("pod-0", "a"): 0, ("pod-0", "b"): 1, ("pod-0", "c"): 2, ("pod-1", "a"): 3, ("pod-1", "b"): 4, ("pod-1", "c"): 5}
    assert {row[:2]: row[2] for row in once.rows()} == expected
    assert {row[:2]: row[2] for row in again.rows()} == expected


@QUICK
@given(lru_logs(), st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, HORIZON)), min_size=1, max_size=20))
def test_hot_is_what_a_loop_over_the_stays_finds(log: Log, asked: list[tuple[str, int]]):
    drawn = requests(" ".join(f"{name}:{t}/{t}/{t}.01/{t + 1}" for name, t in asked))
    hot = [
        any(
            pod == "pod-0" and name == one and loaded <= t * SECOND and (left is None or t * SECOND < left)
            for pod, one, loaded, left in log.stays
        )
        for name, t in asked
    ]
    assert [lookup == "hot" for lookup in lookups(drawn, log.events)] == hot
