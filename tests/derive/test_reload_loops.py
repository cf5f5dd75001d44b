from typing import Any

import polars as pl
import pytest
from builders import events, rows
from scenes import QUIET, quiet, scene

from lora_watch.derive.reload_loops import reload_loops
from lora_watch.model import SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS

MINUTES = Window(0, 600 * SECOND)


def again(count: int, every: float, *, reason: str = "inplace", **common: Any) -> list[dict[str, Any]]:
    """Evict and load of one adapter, so many times, so many seconds apart."""
    records: list[dict[str, Any]] = []
    for n in range(count):
        at = {"at": round(every * n * SECOND), "adapter": "a", "reason": reason, **common}
        records.append({**at, "kind": "evict", "tier": "gpu"})
        records.append({**at, "kind": "load", "tier": "cpu", "from_tier": "disk", "seconds": 0.03})
        records.append({**at, "kind": "load", "tier": "gpu", "from_tier": "disk", "seconds": 0.01})
    return records


def told(records: list[dict[str, Any]], window: Window = MINUTES) -> list[dict[str, Any]]:
    return reload_loops(rows(ADAPTER_EVENTS, records).lazy(), window).collect().to_dicts()


def test_an_adapter_read_again_ten_times_a_second_is_a_flagged_loop():
    (row,) = told(again(50, 0.1))
    assert (row["pods"], row["adapters"], row["flagged"]) == (["pod-0"], ["a"], True)
    assert (row["reloads"], row["disk_reads"], row["lru_evictions"]) == (50, 50, 0)
    assert (row["reloads_per_second"], row["reload_seconds"]) == (pytest.approx(10), pytest.approx(50 * 0.04))
    assert (row["start"], row["end"]) == (0, round(4.9 * SECOND) + 1)


def test_the_engines_steps_in_that_time_stand_beside_it():
    steps = {"at": 4 * SECOND, "kind": "steps", "count": 100, "wall_seconds": 5.0}
    (row,) = told([*again(50, 0.1), steps])
    assert (row["steps_per_second"], row["reloads_per_step"]) == (20.0, 0.5)
    (row,) = told(again(50, 0.1))
    assert (row["steps_per_second"], row["reloads_per_step"]) == (None, None)


def test_a_log_that_calls_them_demand_is_read_by_who_left_and_who_came():
    (row,) = told(again(30, 0.1, reason="demand"))
    assert row["reloads"] == 30


def test_an_operators_replacements_are_not_flagged():
    assert told(again(10, 55.0))[0]["flagged"] is False
    assert told(again(3, 0.1)) == []
    assert told(again(10, 61.0), Window(0, 1000 * SECOND)) == []


def test_swaps_of_two_adapters_are_no_loop():
    swaps = " ".join(f"a:{n}-{n + 0.5} b:{n + 0.5}-{n + 1}" for n in range(50))
    assert reload_loops(events(swaps).lazy(), MINUTES).collect().height == 0


def test_loads_at_one_moment_are_flagged_though_they_have_no_rate():
    (row,) = told(again(25, 0.0, seconds=None))
    assert (row["reloads_per_second"], row["flagged"]) == (None, True)


def test_rows_said_twice_count_once():
    frame = rows(ADAPTER_EVENTS, again(10, 0.1))
    assert reload_loops(pl.concat([frame, frame]).lazy(), MINUTES).collect()["reloads"].item() == 10


def test_the_simulated_loop_is_found_on_its_pod_alone():
    played = scene("reload-loop", 3.9, 0.4)
    reload = played.of("reload")
    frame = reload_loops(played.events, played.window).collect().filter("flagged")
    assert {(tuple(pods), tuple(adapters)) for pods, adapters in zip(frame["pods"], frame["adapters"], strict=True)} == {
        (tuple(reload["pods"]), tuple(reload["adapters"]))
    }
    assert frame["start"].min() >= reload["start"]
    assert frame["reloads_per_second"].max() == pytest.approx(10, rel=0.01)
    assert frame["lru_evictions"].sum() == 0


@pytest.mark.parametrize("name", [*QUIET])
def test_a_quiet_cluster_has_no_loop(name: str):
    played, window = quiet(name)
    assert not reload_loops(played.events_of(window), window).collect()["flagged"].any()


def test_thrash_is_no_loop():
    played = scene("cascade")
    assert not reload_loops(played.events, played.window).collect()["flagged"].any()
