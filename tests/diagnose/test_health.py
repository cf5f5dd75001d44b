"""How a pool is, in a word, a sentence and numbers: silence is not health, and unknown is not zero."""

from dataclasses import replace

import pytest
from diagnose.told import adapters, facts, minutes, pods

from lora_watch.derive.hysteresis import Limits
from lora_watch.derive.usual_misses import MissLimit
from lora_watch.diagnose.diagnosis import State
from lora_watch.diagnose.finding import Confidence, Finding, Severity
from lora_watch.diagnose.health import pool_state

FINDING = Finding("thrash", Severity.HARM, "c", "p", "", 1, "60 adapters compete", "why", Confidence.HIGH, 1.0)


def margins(told):
    return {one.name: one for one in pool_state(told, ()).margins}


def test_a_pool_without_findings_is_healthy_and_says_what_loads_cost():
    told = pool_state(facts(), ())
    assert (told.state, told.sentence) == (
        State.HEALTHY,
        "1 pod, 4 slots, 3 adapters in use within 60 min; loads took 0 % of pod time in the last 10 min",
    )


@pytest.mark.parametrize(
    ("severity", "state"),
    [(Severity.HARM, State.HARM), (Severity.WARN, State.WATCH), (Severity.INFORMATION, State.HEALTHY)],
)
def test_the_gravest_open_finding_decides(severity, state):
    told = pool_state(facts(), [replace(FINDING, severity=Severity.INFORMATION), replace(FINDING, severity=severity)])
    assert told.state is state


def test_harm_is_told_in_the_findings_words():
    assert pool_state(facts(), [FINDING]).sentence == "1 pod, 4 slots: 60 adapters compete"


def test_findings_of_others_and_those_that_are_over_do_not_count():
    others = [replace(FINDING, pool="q"), replace(FINDING, role="decode"), replace(FINDING, until=5)]
    assert pool_state(facts(), others).state is State.HEALTHY


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"told": pods({"slots": None})}, "nothing says how many slots there are"),
        ({"lines": minutes()}, "no request and no load was seen in the window"),
        ({"told": pods({"loads": None})}, "no load is told there"),
    ],
)
def test_where_something_needed_is_not_known_health_is_unknown_and_why_is_said(given, why):
    told = pool_state(facts(**given), ())
    assert told.state is State.UNKNOWN
    assert f"{why}, so nobody can tell whether it swaps" in told.sentence


def test_where_no_request_is_told_no_number_of_adapters_is():
    told = pool_state(facts(lines=minutes((60, {"loads": 1, "stall_seconds": 0.1})), known=adapters()), ())
    assert told.sentence == "1 pod, 4 slots, no request is told; loads took 0.2 % of pod time in the last 10 min"


def test_pods_that_tell_no_loads_are_counted_beside_those_that_do():
    told = pool_state(facts(told=pods({}, {"pod": "pod-1", "loads": None})), ())
    assert told.sentence.endswith("; of 1 pod no load is told")


def test_numbers_that_nothing_tells_are_unknown_with_a_reason():
    told = margins(facts(lines=minutes()))
    for name in ("loads_per_request", "swaps_per_request", "stall_share", "rho_peak", "predicted_miss_ratio"):
        assert (told[name].value, bool(told[name].why)) == (None, True)
        assert "unknown" in told[name].text


def test_a_margin_has_the_limit_that_opens_its_finding():
    told = margins(facts(lines=minutes((60, {"requests": 100, "loads": 40, "swaps": 3}))))
    assert (told["swaps_per_request"].value, told["swaps_per_request"].limit) == (pytest.approx(0.03), 0.15)
    assert (told["swaps_per_request"].text, told["swaps_per_request"].trouble) == (
        "swaps per request: 3.0 %",
        "trouble from 15 %",
    )
    assert told["loads_per_request"].limit is None


def test_each_margin_says_what_span_it_is_of():
    given = {"predicted_miss_ratio": 0.1, "rho_peak": 0.5, "pressure": 0.4, "newmass": 0.0}
    told = margins(facts(told=pods({"p50_seconds": 30.0}), warning=given))
    spans = {name: one.over for name, one in told.items()}
    assert (spans["p50_seconds"], spans["stall_share"], spans["newmass"]) == ("last 60 min", "last 10 min", "last 2 min")
    assert (spans["rho_peak"], spans["predicted_miss_ratio"], spans["pressure"]) == ("next 8 h", "last 10 min", "last 10 min")


def test_a_limit_that_is_the_pools_own_says_so():
    own = MissLimit(Limits(0.31, 0.2), 8.0, learned=True)
    told = margins(facts(warning={"predicted_miss_ratio": 0.1}, usual=own))["predicted_miss_ratio"]
    assert (told.limit, told.trouble) == (0.31, "trouble from 31 %, learned from 8 days of this pool")


def test_adapters_that_only_the_router_counts_are_told_as_that():
    told = pool_state(facts(lines=minutes(), routed=True, told=pods({"loads": None}), warning={"predicted_miss_ratio": 0.1}), ())
    assert told.state is State.UNKNOWN
    assert told.sentence.endswith("by the router's counters 10 % of requests would miss")
    seen = pool_state(facts(lines=minutes((60, {"loads": 1})), routed=True), ())
    assert "3 adapters in use within the last 10 min, by the router's counters" in seen.sentence


def test_what_happens_is_told_before_how_the_pool_is_set_up():
    lint = replace(FINDING, kind="no-warm-tier", severity=Severity.WARN, summary="no warm tier", since=9)
    stampede = replace(FINDING, kind="stampede", severity=Severity.WARN, summary="Stampede", since=1)
    assert pool_state(facts(), [lint, stampede]).sentence.endswith("Stampede")


def test_residency_of_pods_is_told_from_to():
    told = margins(facts(told=pods({"p50_seconds": 30.0}, {"pod": "pod-1", "p50_seconds": 300.0})))
    assert told["p50_seconds"].text == "median stay: 30 s … 5 min"
    assert "p95_seconds" not in told


def test_inference_and_what_the_gpu_reads_stand_side_by_side():
    row = {"share_low": 0.4, "share_high": 0.4, "busy_ratio": 0.94, "grade": "A"}
    told = margins(facts(told=pods(row)))["inference_share_ratio"]
    assert told.text == "GPU time spent on inference: 40 %; the GPU reads 94 % busy"
    assert told.method == "grade A"


def test_an_interval_that_says_nothing_is_unknown():
    told = margins(facts(told=pods({"share_low": 0.02, "share_high": 1.0, "grade": "C"})))["inference_share_ratio"]
    assert (told.value, told.text) == (None, "GPU time spent on inference: unknown")


def test_where_only_pages_tell_the_adapters_in_flight_are_a_beginning():
    told = pool_state(facts(lines=minutes(), told=pods({"loads": None, "active_adapters": 9})), ())
    assert "show up to 9 adapters in flight on a pod, but neither loads nor whom a request was for" in told.sentence


def test_an_interval_of_the_share_is_told_as_one():
    told = margins(facts(told=pods({"share_low": 0.3, "share_high": 0.6, "grade": "C"})))
    assert told["inference_share_ratio"].text == "GPU time spent on inference: 30 % … 60 %"


def test_requests_for_new_adapters_are_no_number_while_the_pool_is_learned():
    assert "newmass" not in margins(facts(learning=True))
    assert "newmass" in margins(facts())
