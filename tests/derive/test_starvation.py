from typing import Any

import polars as pl
import pytest
from builders import requests, rows
from scenes import QUIET, quiet, scene

from lora_watch import names
from lora_watch.derive.starvation import starvation
from lora_watch.model import SECOND, Window
from lora_watch.schema import REQUESTS, SAMPLES

MINUTES = Window(0, 600 * SECOND)


def waiting(**seconds: float) -> pl.DataFrame:
    """Twenty requests of each adapter that all wait so long."""
    return requests(" ".join(f"{name}:{50 - wait}/50/51/52" for name, wait in seconds.items() for _ in range(20)))


def deferred(value: float) -> pl.LazyFrame:
    what = {"metric": names.WAITING_BY_REASON, "labels": '{"reason": "deferred"}', "series": "s", "value": value}
    return rows(SAMPLES, [{**what, "at": n * 30 * SECOND} for n in range(40)]).lazy()


def told(asked: pl.DataFrame, window: Window = MINUTES, **more: Any) -> dict[str, dict[str, Any]]:
    return {row["adapters"][0]: row for row in starvation(asked.lazy(), window, **more).collect().to_dicts()}


def test_an_adapter_that_waits_far_longer_than_the_others_is_named():
    found = told(waiting(a=0.5, b=0.5, c=0.5, d=20))
    assert {name for name, row in found.items() if row["flagged"]} == {"d"}
    assert (found["d"]["wait_p95_seconds"], found["d"]["typical_p95_seconds"], found["d"]["ratio"]) == (20.0, 0.5, 40.0)
    assert (found["d"]["requests"], found["d"]["compared_adapters"]) == (20, 4)


def test_half_a_pool_that_starves_does_not_hide_itself():
    found = told(waiting(a=1, b=1, c=20, d=20))
    assert {name for name, row in found.items() if row["flagged"]} == {"c", "d"}


def test_when_all_wait_alike_nobody_is_named():
    assert not any(row["flagged"] for row in told(waiting(a=20, b=20, c=20, d=20)).values())


def test_short_waits_few_requests_and_few_adapters_are_not_flagged():
    assert not any(row["flagged"] for row in told(waiting(a=0, b=0, c=0, d=0.9)).values())
    assert not any(row["flagged"] for row in told(waiting(a=0, b=0, d=20)).values())
    few = pl.concat([waiting(a=0, b=0, c=0, e=0), requests("d:30/50/51/52", stream="agent/c/pod-0/other")])
    assert not told(few)["d"]["flagged"]


def test_nobody_else_waits_makes_no_ratio():
    assert told(waiting(a=0, b=0, c=0, d=20))["d"]["ratio"] is None


def test_who_was_never_scheduled_waited_to_its_end_and_gave_up():
    never = waiting(a=0, b=0, c=0, d=20).with_columns(
        scheduled=pl.when(pl.col("adapter") == "d").then(None).otherwise("scheduled")
    )
    row = told(never)["d"]
    assert (row["gave_up"], row["wait_p95_seconds"], row["flagged"]) == (20, 22.0, True)


def test_base_model_requests_and_unknown_times_are_left_out():
    asked = waiting(a=1)
    assert told(asked.with_columns(adapter=pl.lit(None, dtype=pl.String))) == {}
    assert told(asked.with_columns(queued=pl.lit(None, dtype=pl.Int64), arrived=pl.lit(None, dtype=pl.Int64))) == {}
    assert told(REQUESTS.empty()) == {}


def test_an_adapter_that_fell_silent_while_others_wait_for_slots_is_named():
    late = Window(100 * SECOND, 700 * SECOND)
    asked = pl.concat([waiting(a=0, d=0), requests(" ".join("a:200/200/201/202" for _ in range(30)))])
    row = told(asked, late, samples=deferred(3.0))["d"]
    assert (row["requests"], row["flagged"], row["deferred_mean"], row["provenance"]) == (0, True, 3.0, "observed")
    assert row["expected_requests"] == pytest.approx(20 / 50 * 600)
    assert (row["start"], row["end"]) == (late.start, late.end)


def test_silence_alone_is_no_starvation():
    late = Window(100 * SECOND, 700 * SECOND)
    assert not told(waiting(a=0, d=0), late)["d"]["flagged"]
    assert not told(waiting(a=0, d=0), late, samples=deferred(0.0))["d"]["flagged"]


def test_behind_the_simulated_cliff_those_who_never_get_a_slot_are_named():
    played = scene("hard-cliff", 0.0, 3.0)
    window = played.hours(2.1, 3)
    found = starvation(played.requests, window, samples=played.samples).collect().filter("flagged")
    served = played.requests.filter(pl.col("scheduled") >= window.start).collect()["adapter"].unique()
    everyone = played.requests.collect()["adapter"].unique()
    assert {adapter for adapters in found["adapters"] for adapter in adapters} == set(everyone) - set(served)
    assert found.height == 2


@pytest.mark.parametrize("name", QUIET)
def test_nobody_starves_in_a_quiet_cluster(name: str):
    played, window = quiet(name)
    assert not starvation(played.requests, window, samples=played.samples).collect()["flagged"].any()
