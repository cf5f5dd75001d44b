"""What a finding is about, and how it is told and read back."""

from dataclasses import replace

from lora_watch.diagnose.finding import Confidence, Evidence, Finding, Possible, Remedy, Severity, as_dict, from_dict, ranked

FINDING = Finding(
    kind="thrash",
    severity=Severity.HARM,
    cluster="c",
    pool="p",
    role="",
    since=5,
    summary="60 adapters compete for 32 slots",
    cause="more adapters than slots",
    confidence=Confidence.HIGH,
    weight=0.3,
    evidence=(
        Evidence("60 adapters", "active_adapters", 60.0, "", "activity"),
        Evidence("4 slots", "slots", 4.0, "", "observed"),
    ),
    remedies=(Remedy("slots", "one more slot", effect=0.3),),
    adapters=("a</script>",),
)


def test_a_finding_a_minute_later_is_the_same_one():
    assert replace(FINDING, since=65, weight=0.5, summary="61 adapters").key == FINDING.key


def test_findings_about_other_pools_kinds_and_scopes_are_others():
    others = {replace(FINDING, **{name: "other"}).key for name in ("kind", "cluster", "pool", "role", "scope")}
    assert len(others | {FINDING.key}) == 6


def test_a_finding_is_no_better_known_than_its_worst_evidence():
    assert FINDING.provenance == "activity"


def test_a_finding_survives_the_way_through_json():
    assert from_dict(as_dict(FINDING)) == FINDING


def test_what_a_newer_version_added_is_left_out():
    assert from_dict({**as_dict(FINDING), "later": 1}) == FINDING


def test_what_helps_most_comes_first_and_what_cannot_be_done_here_last():
    some = (
        Remedy("pins", "pin", Possible.NOT_HERE, effect=0.9),
        Remedy("routing", "route", Possible.RESTART),
        Remedy("unpin", "unpin", Possible.NOW),
        Remedy("pins", "pin", Possible.RESTART, effect=0.1),
        Remedy("slots", "slot", Possible.RESTART, effect=0.3),
    )
    assert [one.lever for one in ranked(some)] == ["slots", "pins", "unpin", "routing", "pins"]


def test_severities_are_ordered():
    assert [one.rank for one in (Severity.INFORMATION, Severity.WARN, Severity.HARM)] == [0, 1, 2]
