"""The channel for servers nobody may change: the same log, through the parser, tells what the agent told."""

from pathlib import Path
from typing import Any

import pytest
from story import Story

from lora_watch.agent.debug_log import convert

pytestmark = pytest.mark.vllm


def converted(log: Path, story: Story) -> list[dict[str, Any]]:
    """Worker records of a log."""
    with log.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        return list(convert(lines, now=int(story.moments["kill"] * 1e6)))


def moves(records: list[dict[str, Any]]) -> list[tuple]:
    """Kind, tier, adapter, id, slot and reason of each load and eviction; demand and preload are not told apart."""
    keys = ("kind", "tier", "adapter", "adapter_id", "slot")
    return [
        (*(r.get(key) for key in keys), "demand" if r["reason"] == "preload" else r["reason"])
        for r in records
        if r["kind"] in ("load", "evict") and r.get("ok", True)
    ]


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_first_servers_log_tells_what_the_agent_told(story, form):
    told = moves(converted(story.json_log if form == "json" else story.first_log, story))
    agent = moves(story.workers()[0])
    assert told[: len(agent)] == agent
    assert len(told) - len(agent) <= story.workers()[0][-1]["count"]


def test_the_plain_text_of_the_second_server_tells_what_the_agent_told(story):
    assert moves(converted(story.second_log, story)) == moves(story.workers()[1])


def test_a_load_ahead_of_demand_is_told_apart_where_its_name_is_new(story):
    def ahead(records):
        return [r["adapter_id"] for r in records if r["kind"] == "load" and r.get("ok", True) and r["reason"] == "preload"]

    agent = ahead(story.workers()[0])
    assert set(agent) - set(ahead(converted(story.json_log, story))) <= {5}  # a load in place of a name that was not resident


def test_where_a_load_came_from_is_the_same(story):
    def origins(records):
        return [
            (r["adapter_id"], r["from_tier"])
            for r in records
            if r["kind"] == "load" and r.get("ok", True) and r["reason"] != "inplace"
        ]

    agent = origins(story.workers()[0])
    assert origins(converted(story.json_log, story))[: len(agent)] == agent


def test_times_of_the_json_form_are_within_a_step_of_the_agents(story):
    agent = [r["at"] for r in story.workers()[0] if r["kind"] == "load" and r["tier"] == "gpu" and r["ok"]]
    told = [r["at"] for r in converted(story.json_log, story) if r["kind"] == "load" and r["tier"] == "gpu"]
    assert max(abs(a - b) for a, b in zip(agent, told, strict=False)) < 1_000_000


def test_no_line_is_taken_for_lost(story):
    assert [r for r in converted(story.json_log, story) if r["kind"] == "lost"] == []


def test_the_start_record_says_slots_and_places(story):
    starts = [r for r in converted(story.second_log, story) if r["kind"] == "start" and r["role"] == "worker"]
    assert [(r["slots"], r["cpu_capacity"]) for r in starts] == [(2, 4)]
