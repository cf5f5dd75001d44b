from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import requests, rows
from derive.test_stalls import load

from lora_watch.derive.attribution import SCHEMA, around_evictions, attribution
from lora_watch.derive.contrast import WARNING
from lora_watch.derive.queue_replay import queue_replay
from lora_watch.model import HOUR, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS

WINDOW = Window(0, 2 * HOUR)
POD = ("cluster", "pod")


def steady(
    *,
    every: float = 2.0,
    stall_every: float = 20.0,
    stall: float | None = 1.0,
    work: float = 0.1,
    hours: float = 2.0,
    **where: Any,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """
    Requests for h each ``every`` seconds that take ``work`` to the first token and as much to the last, and a load of x with an
    eviction of y each ``stall_every``; one that is queued while x loads waits until the load is done.
    """
    asked, happened = [], []
    ends = np.arange(stall_every, hours * 3600, stall_every)
    for end in ends.tolist():
        happened.append({**load("x", end, stall), **where})
        happened.append({"kind": "evict", "tier": "gpu", "adapter": "y", "reason": "lru", "at": round(end * SECOND), **where})
    for queued in np.arange(1.5, hours * 3600, every).tolist():
        behind = [end for end in ends.tolist() if end - (stall or 0) <= queued < end]
        start = behind[0] if behind else queued
        times = {
            "queued": queued,
            "arrived": queued,
            "scheduled": start,
            "first_token": start + work,
            "finished": start + 2 * work,
        }
        asked.append({**{name: round(value * SECOND) for name, value in times.items()}, "adapter": "h", **where})
    for row in asked:
        row["at"] = row["finished"]
    return rows(REQUESTS, asked), rows(ADAPTER_EVENTS, happened)


def told(asked: pl.DataFrame, happened: pl.DataFrame, **more: Any) -> dict[str, Any]:
    replayed = queue_replay(asked.lazy(), happened.lazy())
    return attribution(replayed, happened.lazy(), WINDOW, **{"by": POD, **more}).row(0, named=True)


def test_slow_requests_that_waited_for_a_load_are_its_doing():
    row = told(*steady(), slow_seconds=0.3)
    assert (row["requests"], row["slow"], row["attributable_fraction"]) == (3600, 359, 1.0)
    assert (row["attributable_fraction_low"], row["attributable_fraction_high"]) == (1.0, 1.0)
    assert row["mean_delay_seconds"] == pytest.approx(0.5 * 359 / 3600)
    assert row["own_wait_fraction"] == 0.0  # nobody asked for x here


def test_requests_that_are_slow_by_themselves_are_not():
    row = told(*steady(work=0.5, stall=0.001), slow_seconds=0.3)
    assert (row["slow"], row["attributable_fraction"], row["replay_error_seconds"]) == (3600, 0.0, pytest.approx(0, abs=1e-6))


def test_without_a_limit_slow_is_above_the_p95_of_a_world_without_stalls():
    row = told(*steady())
    assert (row["slow_seconds"], row["slow"]) == (pytest.approx(0.1), 359)
    assert row["p95_effect_seconds"] == pytest.approx(0.5)
    assert row["p95_effect_seconds_low"] <= 0.5 <= row["p95_effect_seconds_high"]


def test_to_the_last_token_is_another_latency():
    assert told(*steady(), measure="e2e")["slow_seconds"] == pytest.approx(0.2)


def test_the_three_figures_come_with_their_warning():
    row = told(*steady(every=1.0))
    assert row["p95_with_eviction_warning"] == WARNING
    assert row["p95_with_eviction_raw_seconds"] == pytest.approx(0.5)
    assert row["p95_with_eviction_placebo_seconds"] == pytest.approx(-0.5)  # what is not 0 here is no effect there


def test_loads_of_unknown_length_leave_the_replay_unknown_and_the_contrast_told():
    asked, happened = steady(stall_every=1.0)
    row = told(asked, happened.with_columns(seconds=pl.lit(None, dtype=pl.Float64)), slow_seconds=0.3)
    assert row["unknown_loads"] > 0
    unknown = ("attributable_fraction", "p95_without_seconds", "p95_effect_seconds", "mean_delay_seconds", "own_wait_seconds")
    assert [row[name] for name in unknown] == [None] * 5
    assert (row["slow"], row["p95_seconds"]) == (3599, pytest.approx(0.6))


def test_a_pod_that_nobody_watches_is_unknown():
    asked, happened = steady(hours=0.1)
    dark = asked.with_columns(pod=pl.lit("dark"), stream=pl.lit("dark"))
    row = told(dark, happened)
    assert (row["requests"], row["unknown"], row["attributable_fraction"], row["p95_seconds"]) == (0, dark.height, None, None)


def test_an_hour_has_an_interval_and_a_half_has_none():
    for hours, known in ((1.0, True), (0.5, False)):
        row = told(*steady(hours=hours), slow_seconds=0.3)
        assert (row["attributable_fraction_low"] is not None) is known


def test_the_same_seed_gives_the_same_answer_whatever_the_order():
    asked, happened = steady(hours=1.5)
    assert told(asked, happened) == told(asked.reverse(), happened.reverse())


def test_pods_of_a_pool_are_one_row_with_the_worst_provenance():
    asked, happened = steady(hours=1.0)
    more, others = steady(hours=1.0, pod="pod-1", provenance="inferred")
    row = told(pl.concat([asked, more]), pl.concat([happened, others]), by=("cluster", "pool"))
    assert (row["requests"], row["provenance"]) == (3600, "inferred")


def test_no_requests_give_no_rows_and_all_columns():
    happened = steady(hours=0.1)[1].lazy()
    nothing = attribution(queue_replay(requests("").lazy(), happened), happened, WINDOW)
    assert (nothing.height, nothing.columns) == (0, ["cluster", "pod", *SCHEMA])


def around(asked: pl.DataFrame, happened: pl.DataFrame, **more: Any) -> pl.DataFrame:
    replayed = queue_replay(asked.lazy(), happened.lazy())
    return around_evictions(replayed, happened.lazy(), WINDOW, **{"by": POD, **more})


def test_latency_around_an_eviction_is_high_where_the_load_was():
    frame = around(*steady())
    peak = frame.filter(pl.col("lag_seconds") == 0.5).row(0, named=True)  # the load takes a second
    assert (peak["latency_seconds"], peak["without_seconds"]) == (pytest.approx(0.6), pytest.approx(0.1))
    assert peak["latency_seconds_low"] <= peak["latency_seconds"] <= peak["latency_seconds_high"]
    far = frame.filter((pl.col("lag_seconds") < 0) | (pl.col("lag_seconds") > 1))
    assert far["latency_seconds"].to_list() == pytest.approx([0.1] * far.height)


def test_each_pair_of_an_eviction_and_a_request_counts():
    asked, happened = steady(every=4.0, stall_every=40.0)
    frame = around(asked, happened)
    assert frame["pairs"].sum() == pytest.approx(5 * 179, abs=5)


def test_the_picture_is_of_engines_not_of_adapters():
    with pytest.raises(ValueError, match="by pod or pool"):
        around(*steady(hours=0.1), by=("cluster", "adapter"))


def test_without_requests_there_is_no_picture():
    assert around(requests(""), steady(hours=0.1)[1]).height == 0
