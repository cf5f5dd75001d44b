from typing import Any

import polars as pl
import pytest
from builders import events, rows
from hypothesis import given
from hypothesis import strategies as st
from strategies import QUICK, Log, cut, lru_logs, windows

from lora_watch.derive.boots import boots
from lora_watch.derive.swaps import swaps, swaps_per_minute
from lora_watch.model import MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS

LOAD = {"kind": "load", "tier": "gpu", "from_tier": "cpu", "reason": "demand", "ok": True, "adapter": "a"}
EVICT = {"kind": "evict", "tier": "gpu", "reason": "lru", "adapter": "b"}


def log(*records: dict[str, Any]) -> pl.LazyFrame:
    """Records at second ``t``."""
    at = [{"at": int(record["t"] * SECOND), **{k: v for k, v in record.items() if k != "t"}} for record in records]
    return rows(ADAPTER_EVENTS, at).lazy()


def one(frame: pl.LazyFrame) -> dict[str, Any]:
    return frame.collect().row(0, named=True)


HUNDRED = Window(0, 100 * SECOND)


def test_a_swap_is_an_lru_eviction_and_rates_are_over_the_window():
    row = one(swaps(log({"t": 1, **EVICT}, {"t": 1, **LOAD}, {"t": 50, **EVICT}, {"t": 50, **LOAD}), HUNDRED))
    assert (row["swaps"], row["loads"], row["fills"], row["swaps_per_second"], row["loads_per_second"]) == (2, 2, 0, 0.02, 0.02)


def test_warm_and_cold_loads_and_preloads_are_told_apart():
    found = one(
        swaps(
            log(
                {"t": 1, **LOAD}, {"t": 2, **LOAD, "from_tier": "disk", "reason": "preload"}, {"t": 3, **LOAD, "from_tier": None}
            ),
            HUNDRED,
        )
    )
    assert (found["loads"], found["warm"], found["cold"], found["preloads"], found["fills"]) == (3, 1, 1, 1, 3)


def test_an_inplace_reload_is_a_load_and_neither_swap_nor_fill():
    row = one(swaps(log({"t": 1, **EVICT, "reason": "inplace"}, {"t": 1, **LOAD, "reason": "inplace"}), HUNDRED))
    assert (row["swaps"], row["loads"], row["fills"]) == (0, 1, 0)


def test_failed_loads_and_warm_up_do_not_count():
    row = one(
        swaps(
            log({"t": 1, **EVICT}, {"t": 1, **LOAD, "ok": False}, {"t": 2, **LOAD}, {"t": 3, **LOAD, "reason": "warmup"}), HUNDRED
        )
    )
    assert (row["swaps"], row["loads"], row["fills"]) == (1, 1, 1)


def test_an_eviction_just_before_the_window_made_room_for_the_load_in_it():
    assert one(swaps(log({"t": 9.9, **EVICT}, {"t": 10, **LOAD}), Window(10 * SECOND, 20 * SECOND)))["fills"] == 0


def test_a_pod_without_a_record_in_the_window_is_zero_only_if_its_boot_was_up():
    old = events("a:0-1", start_at=0)
    later = Window(200 * SECOND, 300 * SECOND)
    assert swaps(old.lazy(), later).collect().is_empty()
    assert one(swaps(old.lazy(), later, boots=boots(old.lazy())))["swaps"] == 0
    ended = pl.concat([old, rows(ADAPTER_EVENTS, [{"at": 150 * SECOND, "kind": "stop", "seq": 99}])])
    row = one(swaps(ended.lazy(), later, boots=boots(ended.lazy())))
    assert (row["swaps"], row["loads"], row["swaps_per_second"], row["pods"]) == (None, None, None, 0)


def test_a_boot_of_the_future_is_not_there_yet():
    frame = events("", start_at=500)
    assert swaps(frame.lazy(), HUNDRED, boots=boots(frame.lazy())).collect().is_empty()


def test_a_pool_adds_its_pods_and_divides_by_them():
    frame = pl.concat([events("a:0-10", pod="x"), events("a:0-20 b:0-30 c:0-40", pod="y")])
    row = one(swaps(frame.lazy(), HUNDRED, ("cluster", "pool")))
    assert (row["swaps"], row["pods"], row["swaps_per_second"], row["swaps_per_second_per_pod"]) == (4, 2, 0.04, 0.02)


def test_by_adapter_counts_each_adapters_own():
    table = swaps(events("a:0-10 b:0-20 a:30-", start_at=0).lazy(), HUNDRED, ("adapter",)).sort("adapter").collect()
    assert table.select("adapter", "swaps", "loads").rows() == [("a", 1, 2), ("b", 1, 1)]


def test_grouping_by_an_unknown_column_is_refused():
    with pytest.raises(ValueError, match="cannot group by 'nodes'"):
        swaps(events("a:0-10").lazy(), HUNDRED, ("nodes",))


def test_no_events_make_no_row():
    assert swaps(ADAPTER_EVENTS.empty().lazy(), HUNDRED).collect().is_empty()
    assert swaps_per_minute(ADAPTER_EVENTS.empty().lazy(), HUNDRED).collect().is_empty()


def test_a_minute_has_mean_p99_and_max_of_its_seconds():
    frame = log({"t": 0, "kind": "use"}, *({"t": 5.1, **EVICT} for _ in range(3)), {"t": 7, **EVICT}, {"t": 59, "kind": "use"})
    row = one(swaps_per_minute(frame, Window(0, MINUTE)))
    assert (row["swaps"], row["mean_swaps_per_second"], row["max_swaps_per_second"]) == (4, pytest.approx(4 / 60), 3)
    assert row["p99_swaps_per_second"] == pytest.approx(1 + 0.41 * 2)
    assert (row["seconds_above_half_per_second"], row["seconds_above_one_per_second"]) == (2, 1)


def test_a_window_of_one_second_has_one_bin():
    assert one(swaps_per_minute(log({"t": 0, **EVICT}), Window(0, SECOND)))["p99_swaps_per_second"] == 1


def test_minutes_between_the_records_of_a_boot_are_quiet_and_others_unknown():
    frame = log({"t": 70, **EVICT}, {"t": 250, "kind": "use"})
    table = swaps_per_minute(frame, Window(0, 10 * MINUTE)).collect()
    assert table.select(pl.col("minute") // MINUTE, "swaps").rows() == [(1, 1), (2, 0), (3, 0), (4, 0)]


@QUICK
@given(lru_logs(), windows(), st.floats(0.1, 0.9))
def test_windows_add_up(log: Log, window: Window, share: float):
    parts = cut(window, share)
    if parts is None:
        return
    twice = pl.concat([log.events, log.events]).lazy()
    whole, *halves = (swaps(twice, part, ("cluster",)).collect() for part in (window, *parts))
    for column in ("swaps", "loads", "warm", "cold", "preloads", "fills"):
        assert sum(half[column].sum() for half in halves) == whole[column].sum()


@QUICK
@given(lru_logs())
def test_loads_are_swaps_and_fills(log: Log):
    for row in swaps(log.events.lazy(), Window(0, 10_000 * SECOND)).collect().rows(named=True):
        assert row["loads"] == row["swaps"] + row["fills"]
        assert row["fills"] <= log.slots


@QUICK
@given(lru_logs())
def test_minutes_sum_to_the_window(log: Log):
    window = Window(0, 100 * MINUTE)
    assert (
        swaps_per_minute(log.events.lazy(), window).collect()["swaps"].sum()
        == swaps(log.events.lazy(), window).collect()["swaps"].sum()
    )
