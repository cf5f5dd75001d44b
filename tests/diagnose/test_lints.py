"""What is wrong with how a pool is set up."""

import polars as pl

from lora_watch.derive.setup import setup
from lora_watch.diagnose.lints import lints
from lora_watch.model import SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.sources.router_setup import RouterSetup
from tests.builders import rows


def facts(*pods, **common):
    filled = {
        "cluster": "c",
        "pool": "p",
        "role": "",
        "pod": "pod-0",
        "slots": 4,
        "cpu_capacity": 64,
        "max_rank": 16,
        "known": 3,
        "asked": 0,
        "pinned": 0,
        "largest_rank": 16,
        "largest_bytes": 65_536_000,
        "provenance": "observed",
    }
    return pl.DataFrame([{**filled, **common, **pod} for pod in pods or ({},)])


def kinds(found):
    return [one.kind for one in found]


def test_a_pool_with_room_for_all_is_left_alone():
    assert lints(facts(), 0) == ()


def test_more_adapters_than_slots_is_said_whatever_the_traffic():
    (found,) = lints(facts(known=9, slots=1), 0)
    assert (found.kind, found.summary) == ("slots-below-adapters", "pod-0: 9 adapters are served from 1 slot")


def test_more_adapters_than_slots_is_left_to_the_misses_where_there_is_traffic():
    assert lints(facts(known=9, slots=4, asked=100), 0) == ()


def test_one_slot_for_several_adapters_is_said_with_traffic_too():
    assert kinds(lints(facts(known=2, slots=1, asked=100), 0)) == ["slots-below-adapters"]


def test_a_lint_is_told_since_the_records_say_so():
    since = {"since": 100, "known_at": [5, 7, 120, 300, 400], "pinned_at": [10, 130, 140]}
    found = {
        one.kind: one.since for one in lints(facts({**since, "known": 5, "pinned": 3, "max_rank": 64, "cpu_capacity": 4}), 900)
    }
    assert found == {"slots-below-adapters": 400, "no-warm-tier": 400, "pins-fill-slots": 140, "rank-waste": 100}
    full = lints(facts({**since, "pinned": 4, "pinned_at": [10, 130, 140, 600]}), 900)
    assert [one.since for one in full] == [600]


def test_pods_of_one_trouble_share_a_finding_whatever_its_extent():
    (found,) = lints(facts({"known": 9}, {"pod": "pod-1", "known": 14}, {"pod": "pod-2", "known": 14}), 0)
    assert found.summary == "3 pods: up to 14 adapters are served from 4 slots"
    (more,) = lints(facts({"known": 10}, {"pod": "pod-1", "known": 14}), 0)
    assert found.key == more.key  # an adapter more is no new finding


def test_a_lint_is_told_since_the_first_of_its_pods_was_so():
    found = lints(facts({"since": 300}, {"pod": "pod-1", "since": 200}, known=9, slots=1, since=None), 900)
    assert [one.since for one in found] == [200]


def test_where_no_record_says_since_when_it_is_as_of_the_look():
    (found,) = lints(facts(known=9, slots=1), 900)
    assert found.since == 900


def test_no_warm_tier_says_which_flag_to_raise():
    found = {one.kind: one for one in lints(facts(known=9, cpu_capacity=4), 0)}
    assert "--max-cpu-loras" in found["no-warm-tier"].remedies[0].text


def test_no_warm_tier_is_no_trouble_where_all_fit_the_slots():
    assert lints(facts(known=4, cpu_capacity=4), 0) == ()


def test_pins_that_leave_no_slot_are_said():
    assert kinds(lints(facts(pinned=4), 0)) == ["pins-fill-slots"]


def test_one_free_slot_behind_pins_is_said_too():
    assert "one is left" in lints(facts(pinned=3), 0)[0].summary


def test_two_free_slots_are_enough():
    assert lints(facts(pinned=2), 0) == ()


def test_a_rank_far_above_those_in_use_says_the_bytes_it_wastes():
    (found,) = lints(facts(max_rank=256, largest_rank=16, largest_bytes=10**7, slots=2, known=2), 0)
    assert [one.value for one in found.evidence if one.name == "rank_wasted_bytes"] == [15 * 10**7 * 2]


def test_pods_with_the_same_trouble_share_a_finding():
    found = lints(facts({"pod": "a", "known": 9}, {"pod": "b", "known": 9}), 0)
    assert [one.pods for one in found] == [("a", "b")]


def test_what_is_not_known_is_not_judged():
    unknown = dict.fromkeys(("slots", "cpu_capacity", "max_rank", "known", "largest_rank", "largest_bytes"))
    assert lints(facts().with_columns(**{name: pl.lit(None, dtype=pl.Int64) for name in unknown}), 0) == ()


def test_a_router_that_does_not_look_at_adapters_is_said_by_profile():
    blind = RouterSetup("epp.yaml", {"prefill": {"lora-affinity-scorer": 4.0}, "decode": {"queue-scorer": 2.0}})
    found = [one for one in lints(facts(known=9), 0, [blind]) if one.kind == "no-lora-scorer"]
    assert "profile decode" in found[0].summary


def test_a_router_is_not_judged_where_every_pod_holds_all():
    assert lints(facts(), 0, [RouterSetup("epp.yaml", {"default": {}})]) == ()


def events(*records):
    return rows(ADAPTER_EVENTS, [{"at": n * SECOND, **record} for n, record in enumerate(records)]).lazy()


START = {"kind": "start", "slots": 2, "cpu_capacity": 4, "clock": "host", "detail": '{"max_rank":64}'}


def told(*records, requests=()):
    asked = rows(REQUESTS, [{"at": SECOND, "adapter": name} for name in requests]).lazy()
    return setup(events(START, *records), asked, Window(0, 100 * SECOND)).collect().row(0, named=True)


def test_setup_reads_what_the_worker_said_at_its_start():
    row = told()
    assert (row["slots"], row["cpu_capacity"], row["max_rank"]) == (2, 4, 64)


def test_setup_counts_names_that_were_registered_or_asked_for():
    row = told({"kind": "register", "adapter": "a"}, {"kind": "register", "adapter": "b"}, requests=("b", "c", None))
    assert row["known"] == 3


def test_setup_forgets_a_name_that_was_withdrawn():
    assert told({"kind": "register", "adapter": "a"}, {"kind": "unregister", "adapter": "a"})["known"] is None


def test_setup_counts_a_pin_until_its_adapter_leaves():
    pin = {"kind": "pin", "adapter": "a", "ok": True}
    assert told(pin)["pinned"] == 1
    assert told(pin, {"kind": "evict", "adapter": "a", "tier": "gpu"})["pinned"] == 0


def test_setup_knows_the_bytes_of_the_largest_rank():
    load = {"kind": "load", "tier": "cpu", "from_tier": "disk"}
    row = told({**load, "adapter": "a", "rank": 8, "bytes": 100}, {**load, "adapter": "b", "rank": 16, "bytes": 200})
    assert (row["largest_rank"], row["largest_bytes"]) == (16, 200)
