"""Which findings make one incident, and what it says of itself."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as some

from lora_watch.diagnose.finding import Confidence, Finding, Severity
from lora_watch.diagnose.incidents import APART, UNTOLD, as_json, incidents, named, utc
from lora_watch.diagnose.life import Change, Phase, State
from lora_watch.model import DAY, HOUR, MINUTE

START = 1_796_000_000_000_000
NOW = START + 6 * HOUR
FINDING = Finding("thrash", Severity.WARN, "c", "p", "", START, "it swaps", "too few slots", Confidence.HIGH, 1.0)


def opened(finding: Finding, at: int) -> State:
    return State(at, f"{finding.key}-{at}", Phase.OPEN, Change.OPENED, at, at, None, None, finding.weight, finding)


def after(state: State, at: int, change: Change, *, blind_from: int | None = None, **finding: object) -> State:
    phases = {Change.WORSENED: Phase.WORSENING, Change.EASED: Phase.EASING, Change.CLOSED: Phase.CLOSED}
    missed = at if change is Change.CLOSED else None
    return replace(
        state,
        at=at,
        change=change,
        phase=phases.get(change, Phase.OPEN),
        seen=at - MINUTE if missed else at,
        missed=missed,
        blind_from=blind_from,
        finding=replace(state.finding, **finding),  # type: ignore[arg-type]  # fields by name
    )


def lived(begin: int, end: int | None, **finding: object) -> list[State]:
    """A life from ``begin`` to ``end`` (minutes from START); None: open, and told of just now."""
    whole = replace(FINDING, since=START + begin * MINUTE, **finding)  # type: ignore[arg-type]  # fields by name
    first = opened(whole, START + begin * MINUTE)
    last = after(first, NOW, Change.STILL) if end is None else after(first, START + end * MINUTE, Change.CLOSED)
    return [first, last]


def test_findings_of_one_pool_that_overlap_are_one_incident():
    (one,) = incidents([*lived(0, 30), *lived(20, 60, kind="queue")], NOW)
    assert (one.start, one.end, one.status) == (START, START + 60 * MINUTE, "closed")


def test_a_quarter_of_an_hour_apart_is_one_incident_and_more_are_two():
    apart = APART // MINUTE
    assert len(incidents([*lived(0, 30), *lived(30 + apart, 60)], NOW)) == 1
    assert len(incidents([*lived(0, 30), *lived(31 + apart, 60)], NOW)) == 2


def test_how_a_pool_is_set_up_is_a_condition_and_neither_title_nor_begin_of_what_happens():
    lint = lived(0, None, kind="no-warm-tier", summary="no warm tier")
    event = lived(200, 230, kind="stampede", summary="Stampede")
    told = {one.title: one for one in incidents([*lint, *event], NOW)}
    assert set(told) == {"no warm tier", "Stampede"}
    assert (told["Stampede"].start, told["Stampede"].status) == (START + 200 * MINUTE, "closed")
    assert {life.worst.kind for life in told["Stampede"].lives} == {"no-warm-tier", "stampede"}


def test_beside_a_harm_what_happened_is_its_cause_before_a_set_up():
    lint = lived(0, None, kind="no-warm-tier", summary="no warm tier")
    event = lived(10, 200, kind="new-adapters", summary="twenty new adapters")
    harm = lived(60, 200, kind="saturation", severity=Severity.HARM, summary="saturated")
    one = next(one for one in incidents([*lint, *event, *harm], NOW) if one.severity is Severity.HARM)
    assert (one.title, one.cause) == ("saturated", "twenty new adapters")


def test_other_pools_and_clusters_are_other_incidents():
    states = [*lived(0, 30), *lived(0, 30, pool="q"), *lived(0, 30, cluster="d")]
    assert len(incidents(states, NOW)) == 3


def test_an_incident_is_open_while_one_of_its_findings_is():
    (one,) = incidents([*lived(0, None), *lived(20, 60, kind="queue")], NOW)
    assert (one.end, one.status) == (None, "open")


def test_an_open_finding_that_nobody_tells_of_any_more_is_unknown_and_joins_nothing_later():
    first = lived(0, None)[:1]
    later = incidents([*first, *lived(300, 310, kind="queue")], NOW)
    assert [one.status for one in later] == ["closed", "unknown"]
    assert incidents(first, START + UNTOLD)[0].status == "open"


def test_a_condition_that_lasts_for_days_does_not_glue_incidents_together_and_stands_beside_them():
    now = START + 10 * DAY
    day = DAY // MINUTE
    always = lived(0, 10 * day, kind="no-warm-tier")
    found = incidents([*always, *lived(day, day + 30), *lived(5 * day, 5 * day + 30)], now)
    kinds = [{life.worst.kind for life in one.lives} for one in found]
    assert kinds == [{"no-warm-tier", "thrash"}, {"no-warm-tier", "thrash"}, {"no-warm-tier"}]
    assert [one.start for one in found] == [START + 5 * DAY, START + DAY, START]
    assert len({one.id for one in found}) == 3


def test_a_condition_that_goes_on_stays_an_open_incident_whatever_ended_beside_it():
    day = DAY // MINUTE
    first, _ = lived(0, None, kind="no-warm-tier")
    told = after(first, START + 3 * DAY, Change.STILL)
    found = incidents([first, told, *lived(day, day + 30)], START + 3 * DAY)
    assert [one.status for one in found] == ["closed", "open"]
    assert found[0].leading.worst.kind == "thrash"


def test_conditions_of_a_pool_are_one_incident():
    always = [*lived(0, 5 * DAY // MINUTE), *lived(10, 5 * DAY // MINUTE, kind="no-warm-tier")]
    (one,) = incidents(always, START + 10 * DAY)
    assert (one.start, len(one.lives)) == (START, 2)


def test_a_harm_of_days_is_an_incident_of_days():
    harm = lived(0, 3 * DAY // MINUTE, severity=Severity.HARM)
    (one,) = incidents([*harm, *lived(DAY // MINUTE, DAY // MINUTE + 30, kind="queue")], START + 10 * DAY)
    assert len(one.lives) == 2


def test_the_title_is_the_harm_and_the_cause_stands_beside():
    harm = lived(5, 30, kind="slow", severity=Severity.HARM, summary="users wait 8 s")
    (one,) = incidents([*lived(0, 30), *harm], NOW)
    assert (one.title, one.cause, one.severity) == ("users wait 8 s", "it swaps", Severity.HARM)


def test_without_a_harm_the_cause_is_the_findings_own():
    (one,) = incidents(lived(0, 30), NOW)
    assert (one.title, one.cause) == ("it swaps", "too few slots")


def test_the_severity_is_the_worst_it_ever_was():
    first, last = lived(0, 30)
    worse = after(first, START + 10 * MINUTE, Change.RAISED, severity=Severity.HARM, summary="users wait")
    (one,) = incidents([first, worse, last], NOW)
    assert (one.severity, one.title) == (Severity.HARM, "users wait")


def test_the_timeline_tells_each_change_in_order_and_no_reminder():
    first, last = lived(0, 60)
    worse = after(first, START + 20 * MINUTE, Change.WORSENED)
    still = after(first, START + 50 * MINUTE, Change.STILL)
    (one,) = incidents([last, still, worse, first], NOW)
    assert [(moment.what, (moment.at - START) // MINUTE) for moment in one.timeline] == [
        ("opened", 0),
        ("worsened", 20),
        ("ended", 60),
    ]


def test_a_gap_in_the_looks_stands_in_the_timeline():
    first, _ = lived(0, None)
    again = after(first, START + 3 * HOUR, Change.FOUND_AGAIN, blind_from=START + MINUTE)
    (one,) = incidents([first, again], START + 3 * HOUR)
    assert "what it did in between is unknown" in one.timeline[1].text
    assert utc(START + MINUTE) in one.timeline[1].text


def test_an_end_that_nobody_saw_is_a_span():
    first, last = lived(0, 300)
    (one,) = incidents([first, replace(last, seen=START + 30 * MINUTE)], NOW)
    assert f"after {utc(START + 30 * MINUTE)} and by {utc(START + 300 * MINUTE)}" in one.timeline[-1].text


def test_the_name_of_an_incident_stays_while_it_grows():
    first = lived(0, 30)
    before = incidents(first, NOW)[0].id
    assert incidents([*first, *lived(20, 60, kind="queue")], NOW)[0].id == before


def test_an_incident_is_found_by_its_own_name_and_by_each_findings_name_and_id():
    found = incidents([*lived(0, 30), *lived(20, 60, kind="queue"), *lived(200, 210)], NOW)
    for one in found:
        for name in (one.id, *(life.name for life in one.lives), *(life.id for life in one.lives)):
            assert named(found, name) is one
    assert named(found, "nobody") is None


def test_json_takes_any_finding():
    (one,) = incidents(lived(0, 30, weight=2.0, adapters=("a\ud800</script>",)), NOW)
    assert json.loads(json.dumps(as_json(one)))["status"] == "closed"


def test_a_moment_that_no_calendar_has_is_told_as_a_number():
    assert utc(10**30) == f"{10**30} µs"


spans = some.lists(some.tuples(some.integers(0, 300), some.integers(1, 40), some.sampled_from("pq")), max_size=12)


@given(spans, some.randoms(use_true_random=False))
def test_every_finding_is_in_one_incident_whatever_the_order_of_the_states(drawn: list[tuple[int, int, str]], order):
    states = [
        state
        for number, (begin, length, pool) in enumerate(drawn)
        for state in lived(begin, begin + length, pool=pool, scope=str(number))
    ]
    found = incidents(states, NOW)
    ids = [life.id for one in found for life in one.lives]
    assert sorted(ids) == sorted({state.id for state in states})
    order.shuffle(states)
    assert incidents(states, NOW) == found
    for one in found:
        for other in found:
            if one is not other and one.pool == other.pool:
                assert one.end + APART < other.start or other.end + APART < one.start


def test_a_time_is_told_in_utc_to_the_second_that_has_begun():
    assert utc(1_796_000_000_999_999) == "2026-11-30T00:53:20Z"
