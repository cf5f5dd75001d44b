"""The sidecar's account during the run, against the log lines and the engine's own table."""

import pytest
import witness
from prometheus_client.parser import text_string_to_metric_families
from story import Sample, Story

pytestmark = pytest.mark.vllm

LATE = 0.7
"""Seconds after which the sidecar must have seen what the log said: events of a step are written at its end."""


def loaded(sample: Sample, level: str) -> set[str]:
    """Names whose ``lora_adapter_loaded`` is 1 in a tier."""
    families = text_string_to_metric_families(sample.metrics)
    series = [s for family in families for s in family.samples if s.name == "vllm:lora_adapter_loaded"]
    assert all(s.value == 1 for s in series)
    return {s.labels["adapter_name"] for s in series if s.labels["level"] == level}


def value(sample: Sample, name: str) -> float:
    """The sum of a metric's series."""
    return sum(s.value for family in text_string_to_metric_families(sample.metrics) for s in family.samples if s.name == name)


def names_in(story: Story, table: dict[int, int]) -> set[str]:
    """Names of the ids in a slot table."""
    return {story.names[adapter_id] for adapter_id in table.values()}


def test_at_every_quiet_moment_the_gauge_equals_the_slot_table_of_the_log(story):
    seen = witness.read(story.json_log)
    for label, sample in story.quiet.items():
        if label != "after explicit removal":  # an emptied slot leaves no `Activating` line
            assert loaded(sample, "gpu") == names_in(story, witness.table_at(seen, sample.start)), label


def test_at_every_quiet_moment_the_cpu_tier_equals_the_engines_own_list(story):
    for label, sample in story.quiet.items():
        assert sample.held is not None
        assert loaded(sample, "cpu") == {story.names[adapter_id] for adapter_id in sample.held}, label


def test_amid_traffic_the_gauge_is_a_state_the_log_passed_through(story):
    seen = witness.read(story.json_log)
    assert len(story.busy) > 10
    for sample in story.busy:
        tables = [names_in(story, table) for table in witness.tables_between(seen, sample.start - LATE, sample.end)]
        assert loaded(sample, "gpu") in tables


def test_counts_of_loads_and_evictions_equal_the_log(story):
    seen = [line for line in witness.read(story.json_log) if (line.at or 0) <= story.quiet["at the end"].start]
    sample = story.quiet["at the end"]
    lines = sum(line.what != "remove" for line in seen)
    assert value(sample, "lora_watch_agent_loads_total") == lines
    assert value(sample, "lora_watch_agent_evictions_total") == len(seen) - lines


def test_slots_are_exported(story):
    assert value(story.quiet["started"], "vllm:max_gpu_lora_adapters") == 2
    assert value(story.quiet["at the end"], "vllm:num_gpu_loaded_lora_adapters") == 2


def test_the_sidecar_names_every_boot_with_its_role_and_last_seq(story):
    assert {boot["boot"]: boot["last_seq"] for boot in story.boots} == {b: r[-1]["seq"] for b, r in story.records.items()}
    assert sorted(boot["role"] for boot in story.boots) == ["api", "api", "worker", "worker"]
