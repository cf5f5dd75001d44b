from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from builders import rows
from scenes import QUIET, quiet, scene

from lora_watch.derive.scans import scans
from lora_watch.model import HOUR, MINUTE, SECOND, Window
from lora_watch.schema import REQUESTS

THREE_HOURS = Window(0, 3 * HOUR)


def asked(times: list[tuple[float, str]], **common: object) -> pl.DataFrame:
    """Requests of named adapters at seconds."""
    records = [
        {"adapter": adapter, "at": round((at + 1) * SECOND), "queued": round(at * SECOND), "scheduled": round(at * SECOND)}
        for at, adapter in sorted(times)
    ]
    return rows(REQUESTS, records, **common)


def background(adapters: int = 20, each: int = 10, hours: float = 3.0) -> list[tuple[float, str]]:
    random = np.random.default_rng(1)
    return [(float(at), f"a{n:02}") for n in range(adapters) for at in random.uniform(0, hours * 3600, each)]


def scan(start: float, adapters: int = 20, requests: int = 3, every: float = 5.0) -> list[tuple[float, str]]:
    return [(start + (n * requests + k) * every, f"a{n:02}") for n in range(adapters) for k in range(requests)]


def test_one_adapter_after_another_is_a_scan_in_their_order():
    (row,) = scans(asked(background() + scan(3700)).lazy(), THREE_HOURS).collect().to_dicts()
    assert sum(later < earlier for earlier, later in pairwise(row["adapters"])) <= 2  # a user's request may lie just before a run
    assert row["scanned_adapters"] >= 18
    assert (row["pool_adapters"], row["flagged"], row["every_seconds"]) == (20, True, None)
    assert 3700 * SECOND <= row["start"] < row["end"] <= 4000 * SECOND
    assert row["requests_per_adapter"] == pytest.approx(3, abs=0.5)


def test_two_scans_an_hour_apart_have_that_period():
    frame = scans(asked(background() + scan(1800) + scan(5400) + scan(9000)).lazy(), THREE_HOURS).collect()
    assert frame.height == 3
    assert frame["every_seconds"].to_list() == pytest.approx([3600.0] * 3, rel=0.02)


def test_scans_at_odd_times_have_none():
    frame = scans(asked(background() + scan(600) + scan(2400) + scan(9000)).lazy(), THREE_HOURS).collect()
    assert frame["every_seconds"].to_list() == [None] * 3


def test_a_scan_across_the_edge_of_a_span_is_one():
    assert scans(asked(background() + scan(3600 - 150)).lazy(), THREE_HOURS).collect().height == 1


def test_sessions_all_day_are_no_scan():
    """Runs of three requests all the time, by everybody."""
    random = np.random.default_rng(2)
    sessions = [(float(at) + k, f"a{n:02}") for n in range(20) for at in random.uniform(0, 10_700, 20) for k in range(3)]
    assert scans(asked(sessions).lazy(), THREE_HOURS).collect().height == 0


def test_few_adapters_are_no_scan_and_neither_is_a_small_part_of_many():
    assert scans(asked(background(9) + scan(3700, 9)).lazy(), THREE_HOURS).collect().height == 0
    assert scans(asked(background(60) + scan(3700, 20)).lazy(), THREE_HOURS).collect().height == 0


def test_a_window_shorter_than_two_spans_cannot_tell():
    assert scans(asked(scan(10)).lazy(), Window(0, 19 * MINUTE)).collect().height == 0
    assert scans(REQUESTS.empty().lazy(), Window(0, MINUTE)).collect().height == 0


def test_pools_are_apart_and_rows_said_twice_count_once():
    one, other = asked(background() + scan(3700)), asked(background(), pool="q")
    frame = scans(pl.concat([one, one, other]).lazy(), THREE_HOURS).collect()
    assert frame["pool"].to_list() == ["p"]
    assert frame["requests_per_adapter"].item() == pytest.approx(3, abs=0.5)


def test_the_simulated_scan_is_found_at_two_o_clock():
    played = scene("batch-scan", 0.5, 3.0)
    job = played.of("scan")
    (row,) = scans(played.requests, played.window).collect().to_dicts()
    assert job["start"] <= row["start"] < row["end"] <= job["start"] + 10 * MINUTE
    assert row["scanned_adapters"] >= 0.5 * len(job["adapters"])
    assert row["requests_per_adapter"] == pytest.approx(4, abs=0.7)


@pytest.mark.parametrize("name", QUIET)
def test_a_quiet_cluster_is_not_scanned(name: str):
    played, window = quiet(name)
    assert scans(played.requests, window).collect().height == 0


def test_users_sessions_in_the_night_shift_are_no_scan():
    played = scene("night-shift", 2.0, 2.0)
    assert scans(played.requests, played.window).collect().height == 0


def test_requests_that_are_nearly_all_there_are_interrupt_nothing():
    assert scans(asked(scan(3700)).lazy(), THREE_HOURS).collect().is_empty()
