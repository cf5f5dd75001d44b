from typing import Any

import polars as pl
import pytest
from builders import events, requests, rows
from scenes import QUIET, quiet, scene

from lora_watch.derive.ghosts import ghosts
from lora_watch.derive.stays import stays
from lora_watch.model import HOUR, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS

TWO_HOURS = Window(0, 2 * HOUR)


def log(residents: str, *records: dict[str, Any], start: bool = True) -> pl.LazyFrame:
    """Residents of pod-0's four slots and more records of the same log, with ``at`` in seconds."""
    base = events(residents, start_at=0 if start else None)
    more = [{"ok": True, **record, "at": round(record["at"] * SECOND), "seq": 100 + n} for n, record in enumerate(records)]
    return pl.concat([base, rows(ADAPTER_EVENTS, more)]).lazy() if more else base.lazy()


def told(frame: pl.LazyFrame, window: Window = TWO_HOURS, **more: Any) -> list[dict[str, Any]]:
    return ghosts(frame, stays(frame), window, **more).collect().to_dicts()


def pin(adapter: str, at: float, kind: str = "pin", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "adapter": adapter, "at": at, **more}


def test_a_pinned_adapter_that_nobody_used_for_an_hour_is_a_flagged_ghost():
    (row,) = told(log("a:10- b:20-", pin("a", 11), pin("b", 12, "use"), pin("b", 7000, "release")))
    assert (row["pods"], row["adapters"], row["pinned"], row["flagged"]) == (["pod-0"], ["a"], True, True)
    assert (row["slots_held"], row["slots"], row["least_idle_seconds"]) == (1, 4, 7190.0)
    assert (row["start"], row["end"]) == (10 * SECOND, 2 * HOUR)


def test_without_a_pin_it_explains_and_is_not_flagged():
    (row,) = told(log("a:10- b:3000-"))
    assert (row["adapters"], row["pinned"], row["flagged"], row["slots_held"]) == (["a", "b"], False, False, 2)
    assert (row["least_idle_seconds"], row["most_idle_seconds"]) == (4200.0, 7190.0)


def test_a_pin_that_was_lifted_refused_or_of_an_earlier_stay_is_none():
    for frame in (
        log("a:10-", pin("a", 11), pin("a", 12, "unpin")),
        log("a:10-", pin("a", 11, ok=False)),
        log("a:10-20 a:30-", pin("a", 11)),
    ):
        assert [row["pinned"] for row in told(frame)] == [False]


def test_who_is_in_the_batch_or_was_of_late_is_no_ghost():
    assert told(log("a:10-", pin("a", 11), pin("a", 20, "use"))) == []
    assert told(log("a:10-", pin("a", 11), pin("a", 20, "use"), pin("a", 4000, "release"))) == []


def test_who_came_late_or_has_left_is_no_ghost():
    assert told(log("a:4000-", pin("a", 4001))) == []
    assert told(log("a:10-7000", pin("a", 11))) == []


def test_requests_are_uses_and_show_that_the_engine_tells():
    silent = log("a:10- b:20-", pin("a", 11), start=False).with_columns(
        kind=pl.when(pl.col("kind") == "pin").then(pl.lit("pin")).otherwise("kind")
    )
    assert told(silent) == []
    asked = requests("b:6900/6900/6901/6902").lazy()
    (row,) = told(silent, requests=asked)
    assert (row["adapters"], row["flagged"]) == (["a"], True)
    assert told(silent, requests=requests("a:6900/6900/6901/7300 b:6900/6900/6901/7300").lazy()) == []
    assert told(silent, requests=REQUESTS.empty().lazy()) == []


def test_idleness_is_known_from_where_uses_are_held():
    frame = log("a:10-", pin("a", 11))
    half = Window(5400 * SECOND, 2 * HOUR)
    assert told(frame, half) == []
    (row,) = told(frame, half, since=3000 * SECOND)
    assert (row["least_idle_seconds"], row["start"]) == (4200.0, 3000 * SECOND)
    assert len(told(frame, half, idle=600 * SECOND)) == 1


def test_nothing_resident_makes_no_row():
    assert told(ADAPTER_EVENTS.empty().lazy()) == []


def test_the_simulated_ghost_pins_hold_two_of_four_slots_on_every_pod():
    played = scene("ghost-pins", 5.5, 2.0)
    retired = played.of("retire")
    window = played.hours(6.1, 7.2)
    frame = ghosts(played.events, stays(played.events), window, requests=played.requests).collect().filter("flagged")
    assert sorted(pod for pods in frame["pods"] for pod in pods) == [f"vllm-{n}" for n in range(4)]
    for row in frame.to_dicts():
        assert row["adapters"] == sorted(retired["adapters"])
        assert (row["slots_held"], row["slots"]) == (2, 4)
        assert row["least_idle_seconds"] == pytest.approx(1.1 * 3600)


@pytest.mark.parametrize("name", QUIET)
def test_a_quiet_cluster_has_no_flagged_ghost(name: str):
    played, window = quiet(name)
    assert not ghosts(played.events, stays(played.events), window, requests=played.requests).collect()["flagged"].any()
