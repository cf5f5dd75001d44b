"""SIGKILL to the whole server in the middle of traffic, and a restart into the same directory."""

import pytest
import witness
from story import Story

pytestmark = pytest.mark.vllm


def boots_before(story: Story) -> list[str]:
    """Boots of the server that was killed."""
    return list(story.before_kill)


def test_traffic_was_under_way_when_the_kill_came(story):
    assert any(a.finished and a.sent < story.moments["kill"] for a in story.broken)
    assert any(not a.finished for a in story.broken)


def test_nothing_is_told_twice_after_a_kill(story):
    for boot in boots_before(story):
        before, after, end = story.before_kill[boot], story.after_kill[boot], story.records[boot]
        assert after[: len(before)] == before
        assert end == after
        seqs = [r["seq"] for r in end]
        assert len(set(seqs)) == len(seqs)


def test_each_killed_boot_ends_with_one_count_of_what_is_missing(story):
    for boot in boots_before(story):
        lost = [r for r in story.records[boot] if r["kind"] == "lost"]
        assert [(r["reason"], r is story.records[boot][-1]) for r in lost] == [("killed", True)]


def test_what_the_log_knows_beyond_the_events_is_counted_as_lost(story):
    records = story.workers()[0]
    moves = sum(r["kind"] in ("load", "evict") and r.get("ok", True) for r in records)
    missing = len(witness.read(story.json_log)) - moves
    assert 0 <= missing <= records[-1]["count"]


def test_requests_answered_before_the_kill_are_recorded_or_counted_as_lost(story):
    records = story.apis()[0]
    told = " ".join(r["request_id"] for r in records if r["kind"] == "request")
    answered = [a for a in story.broken if a.finished and a.status == 200]
    assert len(answered) > 5
    assert sum(a.request_id not in told for a in answered) <= records[-1]["count"]


def test_the_restarted_server_has_boots_of_its_own(story):
    assert len(story.workers()) == len(story.apis()) == 2
    assert set(story.records) - set(boots_before(story)) == {story.workers()[1][0]["boot"], story.apis()[1][0]["boot"]}


def test_a_clean_stop_is_told_by_both_processes(story):
    assert story.exit_status == 0
    assert [records[-1]["kind"] for records in (story.workers()[1], story.apis()[1])] == ["stop", "stop"]
