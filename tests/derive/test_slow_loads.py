from typing import Any

import polars as pl
import pytest
from builders import rows
from scenes import QUIET, quiet, scene

from lora_watch.derive.slow_loads import slow_loads, usual_load_seconds
from lora_watch.model import HOUR, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS

WINDOW = Window(1000 * SECOND, 1600 * SECOND)
MEGABYTES = 65_536_000


def loads(count: int, seconds: float | None, *, at: float = 1100, tier: str = "cpu", **common: Any) -> list[dict[str, Any]]:
    told = {"kind": "load", "tier": tier, "from_tier": "disk", "adapter": "a", "reason": "demand", "bytes": MEGABYTES, "ok": True}
    return [{**told, "seconds": seconds, "at": round((at + n) * SECOND), **common} for n in range(count)]


def told(*parts: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    frame = rows(ADAPTER_EVENTS, [record for part in parts for record in part])
    return slow_loads(frame.lazy(), WINDOW, **more).collect().to_dicts()


def test_loads_far_slower_than_before_are_flagged_with_their_phase():
    (row,) = told(loads(30, 0.05, at=100), loads(10, 2.0))
    assert (row["phase"], row["flagged"], row["pods"], row["adapters"]) == ("disk", True, ["pod-0"], ["a"])
    assert (row["loads"], row["slow_loads"], row["slow_seconds"]) == (10, 10, 20.0)
    assert (row["p95_seconds"], row["usual_loads"], row["usual_p50_seconds"], row["ratio"]) == (2.0, 30, 0.05, 40.0)
    assert (row["start"], row["end"]) == (1098 * SECOND, 1109 * SECOND + 1)


def test_the_copy_is_told_from_the_read():
    slow = loads(10, 0.4, tier="gpu")
    found = told(loads(30, 0.05, at=100), loads(30, 0.006, at=200, tier="gpu"), loads(10, 0.05), slow)
    assert {row["phase"]: row["flagged"] for row in found} == {"disk": False, "copy": True}


def test_what_nobody_feels_is_not_slow():
    (row,) = told(loads(30, 0.002, at=100, tier="gpu"), loads(10, 0.02, tier="gpu"))
    assert (row["slow_loads"], row["flagged"], row["pods"]) == (0, False, [])


def test_as_slow_as_ever_is_not_slower():
    (row,) = told(loads(30, 3.0, at=100), loads(10, 3.0))
    assert not row["flagged"]


def test_a_third_of_a_slow_past_does_not_hide_it():
    (row,) = told(loads(20, 0.05, at=100), loads(10, 2.0, at=200), loads(10, 2.0))
    assert row["flagged"]


def test_without_a_past_storage_that_anyone_has_is_the_measure():
    (row,) = told(loads(6, 41.0))
    assert (row["usual_p50_seconds"], row["ratio"], row["flagged"]) == (None, None, True)
    assert row["allowed_seconds"] == pytest.approx(1 + MEGABYTES / 200e6)
    (row,) = told(loads(6, 1.0))
    assert not row["flagged"]


def test_bytes_that_are_not_told_allow_for_a_large_adapter():
    (row,) = told(loads(6, 5.0, bytes=None))
    assert (row["size_class"], row["allowed_seconds"], row["flagged"]) == (-1, 6.0, False)


def test_a_large_adapter_is_not_slow_beside_small_ones():
    found = told(loads(30, 0.05, at=100), loads(30, 0.4, at=200, bytes=8 * MEGABYTES), loads(10, 0.4, bytes=8 * MEGABYTES))
    assert not any(row["flagged"] for row in found)


def test_few_loads_and_a_single_slow_one_are_not_flagged():
    assert not told(loads(30, 0.05, at=100), loads(4, 2.0))[0]["flagged"]
    assert not told(loads(30, 0.05, at=100), loads(1, 2.0), loads(9, 0.05, at=1200))[0]["flagged"]


@pytest.mark.parametrize(
    "common", [{"ok": False}, {"reason": "warmup"}, {"seconds": None}, {"seconds": float("nan")}, {"tier": None}]
)
def test_loads_that_say_nothing_are_left_out(common: dict[str, Any]):
    assert told([{**record, **common} for record in loads(10, 2.0)]) == []


def test_what_is_usual_can_be_kept_instead_of_the_past():
    usual = usual_load_seconds(rows(ADAPTER_EVENTS, loads(30, 0.05, at=100)).lazy()).collect()
    assert usual.height == 1
    (row,) = told(loads(10, 2.0), usual=usual.lazy())
    assert (row["flagged"], row["usual_loads"]) == (True, 30)


def test_the_simulated_slow_disk_is_found_in_its_hours_and_not_before():
    played = scene("slow-load", 7.0, 3.0)
    slow = played.of("slow-disk")
    before, during = (slow_loads(played.events, played.hours(a, b)).collect() for a, b in ((8, 9), (9, 10)))
    assert not before["flagged"].any()
    (row,) = during.filter("flagged").to_dicts()
    assert (row["phase"], row["slow_loads"], row["loads"]) == ("disk", row["loads"], row["slow_loads"])
    assert slow["start"] <= row["start"]
    assert row["pods"] == ["vllm-0", "vllm-1", "vllm-2"]
    assert row["ratio"] == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize("name", QUIET)
def test_a_quiet_cluster_has_no_slow_loads(name: str):
    played, window = quiet(name)
    assert not slow_loads(played.events_of(window, HOUR), window).collect()["flagged"].any()


def test_no_loads_make_no_row():
    assert slow_loads(ADAPTER_EVENTS.empty().lazy(), WINDOW).collect().height == 0
    assert usual_load_seconds(pl.LazyFrame(schema=ADAPTER_EVENTS.empty().schema)).collect().height == 0
