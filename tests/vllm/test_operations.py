"""What operators do to a server, and what the agent makes of it."""

import pytest
from story import HOSTILE, HOSTILE_2, Story

pytestmark = pytest.mark.vllm


def held_by(story: Story, label: str) -> dict[int, str]:
    """Slot → name in the sidecar's state at a quiet moment."""
    return {slot["slot"]: slot["adapter"] for slot in gpu(story, label)}


def gpu(story: Story, label: str) -> list[dict]:
    """The slots of the one live worker in the sidecar's state."""
    return [slot for boot in story.quiet[label].state["boots"].values() if boot["alive"] for slot in boot["gpu"]]


def between(story: Story, start: str, end: str, kind: str) -> list[dict]:
    """Records of a kind between two quiet moments."""
    after, before = story.quiet[start].end * 1e6, story.quiet[end].start * 1e6
    return [r for records in story.records.values() for r in records if r["kind"] == kind and after < r["at"] < before]


def test_operations_were_answered_as_vllm_answers_them(story):
    bad = {label: status for label, status in story.answers.items() if status != 200}
    assert bad == {"bad path": 404}


def test_unregister_evicts_nothing(story):
    assert between(story, "before unregister", "after unregister", "evict") == []
    assert [r["adapter"] for r in between(story, "before unregister", "after unregister", "unregister")] == ["adapter-03"]
    assert "adapter-03" in held_by(story, "after unregister").values()


def test_a_name_registered_again_gets_a_new_id_and_both_hold_slots(story):
    slots = gpu(story, "after register again")
    assert sorted((slot["adapter"], slot["adapter_id"]) for slot in slots) == [("adapter-03", 4), ("adapter-03", 13)]


def test_a_failed_load_is_told_and_leaves_nothing_resident(story):
    loads = between(story, "after register again", "after bad path", "load")
    assert [(r["adapter"], r["ok"]) for r in loads] == [("nowhere", False)]
    assert loads[0]["error"]
    assert held_by(story, "after bad path") == held_by(story, "after register again")


def test_a_failed_registration_is_told_as_failed(story):
    registers = between(story, "after register again", "after bad path", "register")
    assert [(r["adapter"], r["ok"]) for r in registers] == [("nowhere", False)]


def test_a_preload_is_not_a_demand(story):
    loads = [r for r in between(story, "after bad path", "after preload", "load") if r["ok"]]
    assert [(r["adapter"], r["tier"], r["reason"], r["in_step"]) for r in loads] == [
        ("preloaded", "cpu", "preload", False),
        ("preloaded", "gpu", "preload", False),
    ]


def test_hostile_names_come_through_whole(story):
    loads = {r["adapter"] for r in between(story, "after preload", "after hostile names", "load")}
    assert {HOSTILE, HOSTILE_2} <= loads
    assert set(held_by(story, "after hostile names").values()) == {HOSTILE, HOSTILE_2}


def test_an_inplace_storm_is_reloads_and_no_swaps(story):
    start, end = (story.moments[moment] * 1e6 for moment in ("storm begins", "storm ends"))
    moves = [r for r in story.workers()[0] if start <= r["at"] <= end and r["kind"] in ("load", "evict")]
    assert {(r["adapter"], r["reason"]) for r in moves} == {("adapter-04", "inplace")}
    assert 45 <= sum(r["kind"] == "load" and r["tier"] == "gpu" for r in moves) <= 52


def test_an_explicit_removal_frees_the_slot_and_the_place(story):
    evictions = between(story, "after storm", "after explicit removal", "evict")
    explicit = [(r["tier"], r["adapter_id"]) for r in evictions if r["reason"] == "explicit"]
    assert sorted(explicit) == [("cpu", 20), ("gpu", 20)]
    assert 20 not in (story.quiet["after explicit removal"].held or ())


def test_every_registration_is_told_by_the_api_server(story):
    registered = [
        (r["adapter_id"], r["adapter"]) for r in story.apis()[0] if r["kind"] == "register" and r["ok"] and not r["inplace"]
    ]
    assert dict(registered) == story.names
