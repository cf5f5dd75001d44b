"""More adapters in use than slots."""

import pytest
from diagnose.told import WINDOW, adapters, facts, lever, minutes, pods, text

from lora_watch.derive.cusum import Evidence
from lora_watch.diagnose.finding import Confidence, Possible, Severity
from lora_watch.diagnose.thrash import thrash
from lora_watch.model import MINUTE, SECOND

QUIET = {"requests": 100, "loads": 5, "swaps": 5, "stall_seconds": 0.5}
BUSY = {"requests": 100, "loads": 30, "swaps": 30, "stall_seconds": 9.0}
LINES = minutes((40, QUIET), (20, BUSY))
MANY = adapters(*(f"a{n}" for n in range(16)))
SINCE = WINDOW.end - 20 * MINUTE


def told(**given):
    return list(thrash(facts(**{"lines": LINES, "known": MANY, **given})))


def test_a_quiet_pool_does_not_thrash():
    assert told(lines=minutes((60, QUIET))) == []


def test_thrash_says_the_working_set_the_slots_and_how_the_misses_rose():
    (one,) = told()
    assert one.summary == "Thrash: 16 adapters are in use on 4 slots (4 per pod); misses 5.0 % → 30 %"
    assert one.cause.startswith("Working set above the slots")
    assert (one.since, one.until, one.confidence) == (SINCE, None, Confidence.HIGH)


@pytest.mark.parametrize(("stall", "severity"), [(20.9, Severity.WARN), (21.0, Severity.HARM)])
def test_it_is_harm_where_a_third_of_the_time_goes_into_loads(stall, severity):
    lines = minutes((40, QUIET), (20, {**BUSY, "stall_seconds": stall}))
    assert [one.severity for one in told(lines=lines)] == [severity]


def test_where_no_load_has_a_length_it_warns_and_says_what_is_unknown():
    lines = minutes((40, QUIET), (20, {**BUSY, "stall_seconds": 0.0}))
    (one,) = told(lines=lines)
    assert one.severity is Severity.WARN
    assert "How long loads take" in one.unknown[0]
    assert "stood still" not in text(one)


def test_new_adapters_near_the_onset_are_its_cause_and_named_by_what_they_share():
    new = adapters(*(f"{n}-experiment" for n in "abcd"), requests=30, first_seen=SINCE)
    (one,) = told(known=MANY.vstack(new))
    assert "4 new adapters (`*-experiment`) carry 43 % of requests; 20 adapters now compete for 4 slots" in one.summary
    assert len(one.adapters) == 4
    assert [it.possible for it in one.remedies if it.lever == "experiment"] == [Possible.NOW]


def test_new_adapters_with_next_to_no_requests_are_not_blamed():
    new = adapters("x", requests=1, first_seen=SINCE)
    (one,) = told(known=MANY.vstack(new))
    assert "new adapter" not in one.summary


def test_one_slot_that_removes_all_is_told_as_one_slot_short():
    (one,) = told(levers=[lever("slots", 1, 1.0), lever("slots", 2, 1.0), lever("slots", 4, 1.0)])
    assert one.summary == "One slot short: 16 adapters on 4 slots per pod; one more slot removes every swap; misses 5.0 % → 30 %"
    assert [it.text for it in one.remedies] == ["+1 slot per pod (--max-loras 4 → 5)"]


def test_levers_are_ranked_by_what_they_remove_with_the_impossible_last():
    (one,) = told(levers=[lever("pins", 5, 0.9), lever("slots", 1, 0.3), lever("routing", 0, 0.4)])
    assert [it.lever for it in one.remedies] == ["routing", "slots", "pins"]
    assert one.remedies[-1].possible is Possible.NOT_HERE


def test_pins_are_said_to_be_the_end_of_an_engine_that_runs_too_many_other_adapters():
    (one,) = told(levers=[lever("pins", 5, 0.9)])
    assert "dies of a batch that wants more adapters than there are slots without an idle pin" in one.remedies[0].why


def test_a_slot_is_set_against_pins_only_where_pins_were_replayed():
    (one,) = told(levers=[lever("slots", 1, 0.3), lever("pins", 5, 0.1)])
    assert "helps more than pins: 30 % of the swaps against 10 %" in one.cause
    assert "pins" not in told(levers=[lever("slots", 1, 0.3)])[0].cause


def test_a_lever_that_does_nothing_or_harm_is_no_remedy_and_that_is_said():
    (one,) = told(levers=[lever("slots", 1, 0.0), lever("slots", 2, 1.0), lever("routing", 0, -0.2)])
    assert [it.text for it in one.remedies] == ["+2 slots per pod (--max-loras 4 → 6)"]
    assert "+1 slot per pod (--max-loras 4 → 5): it removes nothing of the swaps." in one.avoid
    assert "Routing 0: it adds 20 % to the swaps." in one.avoid


def test_where_requests_wait_for_slots_a_lever_is_judged_by_the_wait_and_not_by_the_loads():
    slots = lever("slots", 1, -0.4, wait=5.0, base_wait=20.0)
    pins = lever("pins", 5, 0.4, wait=50.0, base_wait=20.0)
    (one,) = told(levers=[slots, pins])
    (remedy,) = one.remedies
    assert (remedy.lever, remedy.effect, remedy.of, remedy.low) == ("slots", 0.75, "wait for a slot (p95)", None)
    assert "helps more than pins: 75 % of the wait for a slot (p95); pins make it longer" in one.cause
    assert "Pins 5: it adds 150 % to the wait for a slot (p95)." in one.avoid


def test_a_wait_too_short_to_hurt_leaves_levers_to_their_loads():
    (one,) = told(levers=[lever("slots", 1, 0.3, wait=0.1, base_wait=0.2)])
    assert (one.remedies[0].effect, one.remedies[0].of) == (0.3, "swaps")


def test_adding_replicas_alone_is_warned_of_where_they_do_little_or_nobody_knows():
    for levers in ([], [lever("pods", 1, 0.02)]):
        assert any(it.startswith("Adding replicas alone") for it in told(levers=levers)[0].avoid)
    assert not any("replicas" in it for it in told(levers=[lever("pods", 1, 0.5)])[0].avoid)


def test_routing_is_blamed_where_all_would_fit_the_pool():
    fleet = pods(*({"pod": f"pod-{n}"} for n in range(4)))
    (one,) = told(told=fleet, levers=[lever("routing", 0, 0.8)])
    assert one.summary.startswith("Thrash by routing: 16 adapters would fit 16 slots")


def test_where_only_requests_are_seen_their_replay_warns_and_says_it_is_one():
    blind = pods({"loads": None})
    (one,) = told(
        told=blind,
        lines=minutes((60, {"requests": 100})),
        warning={"predicted_miss_ratio": 0.6, "method": "arrivals"},
        alarms=["predicted_miss_ratio"],
    )
    assert one.summary == (
        "Thrash, by replay of the requests: 16 adapters are in use on 4 slots (4 per pod); 60 % of requests would miss"
    )
    assert (one.severity, one.confidence, one.provenance) == (Severity.WARN, Confidence.MEDIUM, "inferred")
    assert "no load is told" in one.unknown[0]


def test_where_only_the_router_counts_requests_its_rates_warn_with_little_confidence():
    (one,) = told(
        told=pods({"loads": None}),
        lines=minutes(),
        warning={
            "predicted_miss_ratio": 0.6,
            "predicted_miss_ratio_one_slot_more": 0.45,
            "method": "che",
            "error_class": "within 0.01 for independent requests",
        },
        alarms=["predicted_miss_ratio"],
        routed=True,
    )
    assert one.summary.startswith("Thrash, by the router's counters: 16 adapters are in use on 4 slots (4 per pod); 60 % of")
    assert (one.confidence, one.provenance) == (Confidence.LOW, "inferred")
    assert one.evidence[0].method == "che: within 0.01 for independent requests"
    assert "trouble from 20 %, the same for all pools" in one.evidence[0].text
    assert "sessions" in one.unknown[1]
    (slot,) = one.remedies
    assert (slot.lever, slot.effect, slot.of, slot.method) == ("slots", pytest.approx(0.25), "misses", "che")


def test_slots_of_a_part_of_the_pods_are_at_least_so_many():
    (one,) = told(told=pods({}, {"pod": "pod-1", "slots": None}), levers=[lever("routing", 0, 0.8)])
    assert one.summary.startswith("Thrash: 16 adapters are in use on at least 4 slots (those of 1 pod are unknown) (4 per pod)")
    assert [it.value for it in one.evidence if it.name == "active_per_slot_ratio"] == [None]


def test_a_lever_says_what_it_takes():
    (one,) = told(levers=[lever("pods", 1, 0.2), lever("slots", 1, 0.3), lever("routing", 0, 0.4)])
    takes = {it.lever: it.possible for it in one.remedies}
    assert takes == {"pods": Possible.SCALE, "slots": Possible.RESTART, "routing": Possible.ROUTER}


def test_a_prediction_alone_is_no_thrash_where_loads_are_seen():
    lines = minutes((60, QUIET))
    assert told(lines=lines, warning={"predicted_miss_ratio": 0.6}, alarms=["predicted_miss_ratio"]) == []


def test_where_nobody_knows_the_slots_nobody_can_say():
    assert told(told=pods({"slots": None})) == []


def test_misses_that_have_doubled_against_the_usual_of_the_hour_are_told_as_a_second_opinion():
    doubled = Evidence(total=40.0, at=WINDOW.end, rising_since=WINDOW.end - 900 * SECOND)
    (one,) = told(doubled=doubled)
    assert [part.value for part in one.evidence if part.name == "cusum"] == [40.0]


def test_evidence_that_has_not_reached_its_limit_is_not_told():
    (one,) = told(doubled=Evidence(total=5.0, at=WINDOW.end, rising_since=WINDOW.end - 900 * SECOND))
    assert "cusum" not in {part.name for part in one.evidence}
