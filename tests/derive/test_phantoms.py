from typing import Any

import polars as pl
import pytest
from builders import events, rows
from scenes import QUIET, quiet, scene

from lora_watch.derive.phantoms import IN_ENGINE, NOWHERE, phantoms
from lora_watch.derive.stays import stays
from lora_watch.model import HOUR, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS

TWO_HOURS = Window(0, 2 * HOUR)
API = {"kind": "start", "detail": '{"role":"api"}'}


def registry(*records: dict[str, Any], boot: str = "api") -> pl.LazyFrame:
    """Records with ``at`` in seconds."""
    known = [{**record, "at": round(record.get("at", 0) * SECOND), "stream": f"agent/c/pod-0/{boot}"} for record in records]
    return rows(ADAPTER_EVENTS, known).lazy()


def named(kind: str, adapter: str, at: float, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "adapter": adapter, "at": at, "ok": True, **more}


def told(registered: pl.LazyFrame, residents: str = "", window: Window = TWO_HOURS) -> list[dict[str, Any]]:
    frame = events(residents, start_at=0, slots=4).lazy()
    return phantoms(registered, stays(frame), window).collect().to_dicts()


def test_weights_that_stay_behind_a_withdrawn_name_are_still_in_the_engine():
    (row,) = told(registry(named("register", "bob", 0), named("unregister", "bob", 100)), "bob:10-")
    assert (row["kind"], row["pods"], row["adapters"], row["flagged"]) == (IN_ENGINE, ["pod-0"], ["bob"], True)
    assert (row["start"], row["end"]) == (100 * SECOND, 2 * HOUR)
    assert (row["slots_held"], row["held_slot_seconds"], row["longest_seconds"]) == (1, 7100.0, 7100.0)


def test_weights_that_left_soon_are_not_flagged_and_hold_no_slot():
    (row,) = told(registry(named("unregister", "bob", 100)), "bob:10-130")
    assert (row["flagged"], row["slots_held"], row["end"]) == (False, 0, 130 * SECOND)


def test_weights_that_had_left_before_are_no_phantom():
    assert told(registry(named("unregister", "bob", 100)), "bob:10-90") == []


def test_a_load_behind_the_withdrawal_counts_from_then_on():
    (row,) = told(registry(named("unregister", "bob", 100)), "bob:200-")
    assert row["start"] == 200 * SECOND


def test_a_refused_withdrawal_and_a_name_registered_anew_are_none():
    assert told(registry(named("unregister", "bob", 100, ok=False)), "bob:10-") == []
    assert told(registry(named("unregister", "bob", 100), named("register", "bob", 101)), "bob:10-") == []


def test_a_name_that_was_nowhere_for_an_hour_explains():
    (row,) = told(registry(named("register", "carol", 0)), "bob:10-")
    assert (row["kind"], row["adapters"], row["flagged"], row["slots_held"]) == (NOWHERE, ["carol"], False, 0)


def test_a_name_of_late_or_that_some_pod_holds_is_not_nowhere():
    assert told(registry(named("register", "carol", 3700)), "bob:10-") == []
    assert told(registry(named("register", "bob", 0)), "bob:10-") == []


def test_names_of_a_server_that_was_replaced_ended_with_it():
    before = registry({**API, "at": 0}, named("register", "old", 1), boot="one")
    after = registry({**API, "at": 50}, named("register", "bob", 51), boot="two")
    assert told(pl.concat([before, after]), "bob:60-") == []


def test_a_workers_start_is_no_server():
    told_by_worker = registry({"kind": "start", "slots": 4, "at": 900}, boot="worker")
    known = registry(named("unregister", "bob", 100))
    assert len(told(pl.concat([known, told_by_worker]), "bob:10-")) == 1


def test_without_a_registry_nothing_disagrees():
    assert told(ADAPTER_EVENTS.empty().lazy(), "bob:10-") == []


def test_the_worst_provenance_is_carried():
    known = registry(named("unregister", "bob", 100)).with_columns(provenance=pl.lit("registry"))
    assert told(known, "bob:10-")[0]["provenance"] == "registry"


def test_the_simulated_phantoms_are_the_withdrawn_adapters_that_stayed():
    played = scene("phantom", 7.0, 2.0)
    retired = played.of("retire")
    window = played.hours(8, 9)
    sat = stays(played.events).collect().lazy()
    frame = phantoms(played.events, sat, window).collect().filter("flagged")
    assert frame["kind"].unique().to_list() == [IN_ENGINE]
    assert {adapter for adapters in frame["adapters"] for adapter in adapters} <= set(retired["adapters"])
    still = sat.filter(
        pl.col("adapter").is_in(retired["adapters"]) & (pl.col("left_at").is_null() | (pl.col("left_at") >= window.end))
    ).collect()
    assert frame["slots_held"].sum() == still.height > 0
    assert frame["start"].min() >= retired["start"]


@pytest.mark.parametrize("name", QUIET)
def test_a_quiet_cluster_has_no_phantom(name: str):
    played, window = quiet(name)
    assert not phantoms(played.events, stays(played.events), window).collect()["flagged"].any()
