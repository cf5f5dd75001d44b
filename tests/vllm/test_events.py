"""The agent's events against the engine's own log lines, one to one and in order."""

from collections.abc import Mapping
from typing import Any

import pytest
import witness
from story import Story

pytestmark = pytest.mark.vllm

KINDS = {("load", "cpu"): "add", ("load", "gpu"): "activate", ("evict", "cpu"): "remove", ("evict", "gpu"): "remove"}


def told(records: list[dict[str, Any]]) -> list[witness.Seen]:
    """The records in the words of the log."""
    moves = [r for r in records if r["kind"] in ("load", "evict") and r.get("ok", True)]
    return [
        witness.Seen(None, what := KINDS[r["kind"], r["tier"]], r["adapter_id"], r["slot"] if what == "activate" else None)
        for r in moves
    ]


def only(seen: list[witness.Seen], *what: str) -> list[tuple[str, int, int | None]]:
    """Lines of these kinds without their times."""
    return [line[1:] for line in seen if line.what in what]


def lost(records: list[dict[str, Any]]) -> int:
    """Records that a kill took."""
    return sum(r["count"] for r in records if r["kind"] == "lost")


@pytest.fixture(params=["killed", "restarted"])
def boot(request: pytest.FixtureRequest, story: Story) -> tuple[list[witness.Seen], list[dict[str, Any]]]:
    """Log lines and records of one worker process. What the kill took may only be missing at the end, and is counted."""
    if request.param == "killed":
        seen, records = witness.read(story.json_log), story.workers()[0]
        missing = len(seen) - len(told(records))
        assert 0 <= missing <= lost(records)
        return seen[: len(seen) - missing], records
    return witness.read(story.second_log), story.workers()[1]


def test_every_activation_in_the_log_is_one_gpu_load_and_the_reverse(boot):
    seen, records = boot
    assert only(told(records), "activate") == only(seen, "activate")


def test_every_removal_in_the_log_is_one_eviction_and_the_reverse(boot):
    seen, records = boot
    assert only(told(records), "remove") == only(seen, "remove")


def test_every_adding_in_the_log_is_one_cpu_load_and_the_reverse(boot):
    seen, records = boot
    assert only(told(records), "add") == only(seen, "add")


def test_loads_and_evictions_come_in_the_order_of_the_log(boot):
    seen, records = boot
    assert [line[1:] for line in told(records)] == [line[1:] for line in seen]


def test_both_logs_of_the_first_server_tell_the_same(story):
    assert [line[1:] for line in witness.read(story.json_log)] == [line[1:] for line in witness.read(story.first_log)]


def test_the_run_swapped_often_enough_to_prove_something(story):
    assert len(witness.swaps(witness.read(story.json_log))) > 200


def test_every_event_bears_the_name_its_id_was_registered_under(story):
    named = {
        r["adapter_id"]: r["adapter"] for r in story.workers()[0] if r["kind"] in ("load", "evict", "use") and r.get("ok", True)
    }
    assert named == {i: name for i, name in story.names.items() if i in named}


def test_the_agent_and_the_log_agree_on_when_to_five_milliseconds_in_the_median(story):
    loads = [r["at"] / 1e6 for r in story.workers()[0] if r["kind"] == "load" and r["tier"] == "gpu" and r["ok"]]
    lines = [line.at for line in witness.read(story.json_log) if line.what == "activate"]
    gaps = sorted(abs(a - b) for a, b in zip(loads, lines, strict=False))
    assert gaps[len(gaps) // 2] < 0.005


def test_seqs_have_no_gap_in_any_boot(story):
    for records in story.records.values():
        expected = 1
        for record in records:
            if record["kind"] == "lost":
                assert record["seq"] == max(record["last"], expected if record["count"] == 0 else 0)
                expected = record["seq"] + 1
            else:
                assert record["seq"] == expected
                expected += 1


def test_times_never_decrease_within_a_boot(story):
    for records in story.records.values():
        times = [record["at"] for record in records]
        assert times == sorted(times)


def test_a_load_from_the_cpu_cache_is_warm_and_one_from_disk_is_cold(story):
    in_cpu: set[int] = set()
    added_last = None
    for record in told_with_tier(story.workers()[0]):
        if record["kind"] == "load" and record["tier"] == "cpu":
            added_last = record["adapter_id"]
            in_cpu.add(record["adapter_id"])
        elif record["kind"] == "load" and record["reason"] != "inplace":
            assert record["from_tier"] == ("disk" if added_last == record["adapter_id"] else "cpu")
            added_last = None
        elif record["kind"] == "evict" and record["tier"] == "cpu":
            in_cpu.discard(record["adapter_id"])


def told_with_tier(records: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """Loads that succeeded and evictions."""
    return [r for r in records if r["kind"] in ("load", "evict") and r.get("ok", True)]


def test_no_more_adapters_are_resident_than_there_are_slots_and_places(story):
    for records in story.workers():
        gpu: dict[int, int] = {}
        cpu: set[int] = set()
        for r in told_with_tier(records):
            if r["kind"] == "load" and r["tier"] == "gpu":
                assert r["slot"] not in gpu
                gpu[r["slot"]] = r["adapter_id"]
            elif r["kind"] == "load":
                cpu.add(r["adapter_id"])
            elif r["tier"] == "gpu":
                assert gpu.pop(r["slot"]) == r["adapter_id"]
            else:
                cpu.remove(r["adapter_id"])
            assert len(gpu) <= 2
            assert len(cpu) <= 5  # one more than places, while a new one is loaded before the oldest goes
        assert set(gpu.values()) <= cpu


def test_the_start_record_says_slots_places_and_rank(story):
    for records in story.workers():
        start = records[0]
        assert (start["kind"], start["slots"], start["cpu_capacity"], start["max_rank"]) == ("start", 2, 4, 16)


def test_ranks_and_bytes_are_those_of_the_adapters(story):
    loads = [r for r in story.workers()[0] if r["kind"] == "load" and r["ok"] and r["adapter"] in ("adapter-00", "adapter-01")]
    assert {(r["adapter"], r["rank"]) for r in loads} == {("adapter-00", 8), ("adapter-01", 16)}
    sizes = {r["adapter"]: r["bytes"] for r in loads if r["tier"] == "cpu"}
    assert 100_000 < sizes["adapter-00"] < sizes["adapter-01"] < 1_000_000


def test_every_load_that_succeeded_has_a_duration(story):
    for records in story.workers():
        assert all(0 < r["seconds"] < 30 for r in records if r["kind"] == "load" and r["ok"])


def test_steps_account_for_time_within_the_wall(story):
    for records in story.workers():
        steps = [r for r in records if r["kind"] == "steps"]
        assert steps
        for r in steps:
            assert r["clock"] == "host"
            assert 0 <= r["adapter_seconds"] <= r["execute_seconds"] <= r["wall_seconds"] * 1.01
