from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import requests, rows
from derive.test_stalls import load
from hypothesis import given
from hypothesis import strategies as st
from strategies import QUICK

from lora_watch.derive.queue_replay import queue_replay
from lora_watch.model import DAY, SECOND
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import Trace
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.simulate.engines import lives
from lora_watch.simulate.rows import Rows
from lora_watch.simulate.scenario import Loads, Pool, Scenario, Traffic, Truth
from lora_watch.simulate.traffic import catalogue, everything


def told(asked: str | pl.DataFrame, *records: dict[str, Any]) -> list[dict[str, Any]]:
    frame = requests(asked) if isinstance(asked, str) else asked
    return queue_replay(frame.lazy(), rows(ADAPTER_EVENTS, records).lazy()).sort("seq").to_dicts()


def test_a_stall_is_taken_off_a_request_that_ran_through_it():
    (row,) = told("a:10/10/13/20", load("b", 12, 2))
    assert (row["ttft_seconds"], row["ttft_without_seconds"]) == (3.0, 1.0)
    assert (row["e2e_seconds"], row["e2e_without_seconds"], row["replay_error_seconds"]) == (10.0, 8.0, 0.0)


def test_a_request_that_came_during_a_stall_would_have_begun_at_once():
    (row,) = told("a:10/12/13/20", load("b", 12, 4))
    assert (row["ttft_without_seconds"], row["e2e_without_seconds"]) == (1.0, 8.0)


def test_with_one_seat_the_queue_behind_a_stall_is_gone_too():
    """One at a time: the first works 2 s through a stall of 4 s, the next two wait behind it."""
    rows_told = told("a:0/0/6/6 a:1/6/8/8 a:7/8/10/10", load("b", 5, 4))
    assert [row["e2e_seconds"] for row in rows_told] == [6.0, 7.0, 3.0]
    assert [row["e2e_without_seconds"] for row in rows_told] == [2.0, 3.0, 2.0]
    assert [row["replay_error_seconds"] for row in rows_told] == [0.0, 0.0, 0.0]


def test_a_wait_that_the_replay_does_not_know_of_stays():
    (row,) = told("a:0/3/4/5", load("b", 20, 1))
    assert (row["ttft_without_seconds"], row["replay_error_seconds"]) == (4.0, -3.0)


def test_latency_counts_from_the_arrival():
    early = requests("a:10/10/13/20").with_columns(arrived=pl.lit(9 * SECOND))
    (row,) = told(early, load("b", 12, 2))
    assert (row["ttft_seconds"], row["ttft_without_seconds"]) == (4.0, 2.0)


def test_what_was_cut_off_has_no_latency_but_held_its_seat():
    cut = requests("a:0/0/1/6 b:1/6/7/8").with_columns(finish_reason=pl.Series(["abort", "stop"]))
    first, second = told(cut, load("c", 5, 4))
    assert (first["e2e_seconds"], first["e2e_without_seconds"]) == (None, None)
    assert second["e2e_without_seconds"] == 3.0


def test_without_lengths_of_loads_there_is_no_world_without_them():
    (row,) = told("a:10/10/13/20", load("b", 12, None))
    assert (row["e2e_seconds"], row["e2e_without_seconds"], row["replay_error_seconds"]) == (10.0, None, None)


def test_slots_without_number_take_no_room():
    start = {"at": 0, "kind": "start", "slots": 10**15}
    assert told("a:10/10/13/20", start, load("b", 12, 2))[0]["ttft_without_seconds"] == 1.0


def test_no_requests_give_no_rows_and_all_columns():
    nothing = queue_replay(requests("").lazy(), rows(ADAPTER_EVENTS, [load("b", 15, 1)]).lazy())
    full = queue_replay(requests("a:1/2/3/4").lazy(), rows(ADAPTER_EVENTS, [load("b", 15, 1)]).lazy())
    assert (nothing.height, nothing.schema) == (0, full.schema)


@QUICK
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), min_size=1, max_size=25),
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 20)), max_size=8),
)
def test_one_at_a_time_it_is_lindleys_recursion(asked: list[tuple[int, int]], loads: list[tuple[int, int]]):
    queued = np.cumsum([gap for gap, _ in asked])
    spans, at = [], 0
    for gap, length in loads:
        spans.append((at + gap, at + gap + length))
        at += gap + length

    def served(stalled: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """When each is scheduled and finished: moment by moment, one at a time, nothing while stalled."""
        answer, free = [], 0
        for came, (_, work) in zip(queued.tolist(), asked, strict=True):
            now = max(came, free)
            while any(start <= now < end for start, end in stalled):
                now += 1
            begin, left = now, work
            while left:
                left -= not any(start <= now < end for start, end in stalled)
                now += 1
            answer.append((begin, now))
            free = now
        return answer

    records = [
        {"queued": int(q), "arrived": int(q), "scheduled": s, "first_token": f, "finished": f, "at": f, "adapter": "a"}
        for q, (s, f) in zip(queued, served(spans), strict=True)
    ]
    stalls = [load("b", end / SECOND, (end - start) / SECOND) for start, end in spans]
    frame = queue_replay(rows(REQUESTS, records).lazy(), rows(ADAPTER_EVENTS, [*stalls, load("c", 1, 0)]).lazy()).sort("seq")
    without = [finish - q for q, (_, finish) in zip(queued.tolist(), served([]), strict=True)]
    assert (frame["e2e_without_seconds"] * SECOND).round().to_list() == without
    assert (frame["replay_error_seconds"] == 0).all()


@pytest.mark.parametrize("seats", [1, 3, 180])
def test_it_is_the_simulated_world_in_which_loads_take_no_time(seats: int):
    scenario = Scenario(
        name="small",
        about="",
        pools=(Pool(pods=2, slots=3, cpu_capacity=30, seats=seats),),
        loads=Loads(profile="article"),
        traffic=Traffic(requests_per_second=2.0 if seats == 1 else 6.0, adapters=20, generated_tokens=10.0),
        truth=Truth(),
    )
    days = 1 / 24
    known = catalogue(scenario, 1)
    asked = everything(scenario, known, days, 1)
    served = list(lives(scenario, known, asked, days, 1))
    pod = np.zeros(len(asked), dtype=np.int32)
    for life in served:
        pod[life.asked.number[life.number]] = life.pod
    work = (asked.prompt * 200.0).astype(np.int64) + (asked.generated * 15_000.0).astype(np.int64)
    trace = Trace(asked.adapter, adapters=len(known), pod=pod, pods=2, at=asked.at, hold=work)
    true = replay(trace, Fleet(3, 30, seats)).start - asked.at + work
    parts = list(Rows(scenario, known, served, scenario.begin + round(days * DAY), 1).parts())
    rows_of = pl.concat([part.requests for part in parts])
    told_of = queue_replay(rows_of.lazy(), pl.concat([part.events for part in parts]).lazy())
    numbers = rows_of.select("stream", "seq", number=pl.col("request_id").str.extract(r"(\d+)$").cast(pl.Int64))
    joined = told_of.join(numbers, on=["stream", "seq"]).filter(pl.col("e2e_without_seconds").is_not_null())
    assert joined.height > 0.95 * len(asked)
    error = joined["e2e_without_seconds"].to_numpy() * SECOND - true[joined["number"].to_numpy()]
    assert np.quantile(np.abs(error), 0.999) < 10
    assert joined["replay_error_seconds"].abs().quantile(0.999) < 1e-5
