"""The inference share of every scenario against its truth, by what is there to tell it: steps, GPU counters, gauges, nothing."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from simulate.small import HOURS, laid, shrunk

from lora_watch import names
from lora_watch.derive.boots import boots
from lora_watch.derive.inference_share import inference_share
from lora_watch.model import HOUR, Window
from lora_watch.schema import ADAPTER_EVENTS, SAMPLES
from lora_watch.simulate.scenario import Scenario, load, shipped

METRIC = pl.col("metric")
NO_STEPS = pl.col("kind") != "steps"
NO_ENGINE_COUNTER = ~METRIC.is_in([names.GPU_ENGINE_ACTIVE, names.GPU_UTIL])
NO_GPU = ~METRIC.str.starts_with("DCGM")
SLOP = 1e-6
"""The truth is rounded to so much."""


@dataclass(frozen=True)
class Run:
    """What was laid, and what is true of it."""

    begin: int
    boots: pl.DataFrame
    events: pl.DataFrame
    samples: pl.DataFrame
    pods: dict[str, Any]
    reloaded: frozenset[str]

    def shares(self, hour: int, events: pl.DataFrame, samples: pl.DataFrame) -> Iterator[tuple[dict[str, Any], float]]:
        """By pod, what is derived of these rows for an hour, and the truth."""
        window = Window(self.begin + hour * HOUR, self.begin + (hour + 1) * HOUR)
        rows = inference_share(events.lazy(), window, boots=self.boots.lazy(), samples=samples.lazy()).collect()
        assert sorted(rows["pod"]) == sorted(self.pods)
        for row in rows.iter_rows(named=True):
            yield row, self.pods[row["pod"]]["inference_share"][hour]


def run_of(scenario: Scenario, folder: Path) -> Run:
    done = laid(scenario.model_copy(update={"sm_active": True}), folder)
    truth = json.loads((folder / "truth.json").read_text())
    reloaded = frozenset(pod for event in truth["events"] if event["kind"] == "reload" for pod in event["pods"])
    events, samples = (done.store.scan(table).collect() for table in (ADAPTER_EVENTS, SAMPLES))
    return Run(done.window.start, boots(events.lazy()).collect(), events, samples, truth["pods"], reloaded)


@pytest.fixture(scope="module", params=[*shipped(), "mixed"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(shrunk(request.param, 3.0), tmp_path_factory.mktemp(request.param) / "data")


def every(
    run: Run, events: pl.DataFrame, samples: pl.DataFrame, hours: Sequence[int] = range(int(HOURS))
) -> list[tuple[dict[str, Any], float]]:
    return [one for hour in hours for one in run.shares(hour, events, samples)]


def contains(row: dict[str, Any], share: float) -> bool:
    return bool(row["share_low"] - SLOP <= share <= row["share_high"] + SLOP)


def test_timed_steps_tell_the_share_within_0_02(run: Run):
    found = every(run, run.events, run.samples)
    assert {row["grade"] for row, _ in found} == {"A"}
    far = [(row["pod"], row["share"], share) for row, share in found if abs(row["share"] - share) > 0.02]
    assert [one for one in far if one[0] not in run.reloaded] == []


def test_busy_gpus_and_timed_loads_give_an_interval_that_contains_the_share(run: Run):
    found = every(run, run.events.filter(NO_STEPS), run.samples)
    assert {row["grade"] for row, _ in found} == {"B"}
    assert [(row, share) for row, share in found if not contains(row, share)] == []
    assert max(row["share_high"] - row["share_low"] for row, _ in found) < 0.4


def test_other_counters_give_an_interval_that_contains_the_share(run: Run):
    found = every(run, run.events.filter(NO_STEPS), run.samples.filter(NO_ENGINE_COUNTER))
    assert {row["grade"] for row, _ in found} == {"C"}
    assert [(row, share) for row, share in found if not contains(row, share)] == []


def test_tensor_and_memory_counters_alone_do_so_too(run: Run):
    found = every(run, run.events.filter(NO_STEPS), run.samples.filter(NO_ENGINE_COUNTER & (METRIC != names.GPU_SM_ACTIVE)))
    assert {row["grade"] for row, _ in found} == {"C"}
    assert [(row, share) for row, share in found if not contains(row, share)] == []


def test_gpus_beside_loads_of_unknown_length_give_an_interval_that_contains_the_share(run: Run):
    untimed = run.events.filter(NO_STEPS).with_columns(seconds=pl.lit(None, dtype=pl.Float64))
    found = every(run, untimed, run.samples)
    assert {row["grade"] for row, _ in found} <= {"B", "C"}
    assert [(row, share) for row, share in found if not contains(row, share)] == []


def test_gpus_without_an_agent_give_an_interval_that_contains_the_share(run: Run):
    found = every(run, ADAPTER_EVENTS.empty(), run.samples)
    assert {row["grade"] for row, _ in found} == {"C"}
    assert [(row, share) for row, share in found if not contains(row, share)] == []


def test_gauges_alone_are_grade_d(run: Run):
    found = every(run, run.events.filter(NO_STEPS), run.samples.filter(NO_GPU), hours=(1,))
    assert {row["grade"] for row, _ in found} == {"D"}


def test_with_nothing_there_is_no_number(run: Run):
    found = every(run, run.events.filter(NO_STEPS), SAMPLES.empty(), hours=(1,))
    assert {(row["grade"], row["share"], row["share_low"], row["share_high"]) for row, _ in found} == {(None, None, None, None)}


def thursday_morning() -> Scenario:
    """The Thursday of the scenario from 09:00 to 12:00, with the change at 10:15."""
    scenario = load("thursday")
    moved = tuple(event.model_copy(update={"start": 1.25}) for event in scenario.events)
    return scenario.model_copy(update={"begin": scenario.begin + 33 * HOUR, "days": HOURS / 24, "events": moved})


def test_after_the_change_on_thursday_the_dashboard_reads_busy_and_little_of_it_is_inference(tmp_path: Path):
    run = run_of(thursday_morning(), tmp_path)
    without_steps = run.events.filter(NO_STEPS)
    before, after = ([row for row, _ in run.shares(hour, run.events, run.samples)] for hour in (0, 2))
    guessed = [row for row, _ in run.shares(2, without_steps, run.samples)]
    assert min(row["busy_ratio"] for row in after) > 0.99
    assert max(row["share"] for row in after) < 0.75
    assert sum(row["busy_minus_inference"] for row in before) / len(before) < 0.15
    assert min(row["busy_minus_inference"] for row in after) > 0.25
    assert {row["grade"] for row in guessed} == {"B"}
    assert min(row["busy_minus_inference"] for row in guessed) > 0.25


def test_in_a_cascade_the_dashboard_reads_busier_than_what_is_inference(tmp_path: Path):
    run = run_of(shrunk("cascade", 1.0), tmp_path)
    for row, share in run.shares(2, run.events.filter(NO_STEPS), run.samples):
        assert row["busy_ratio"] - share > 0.15
        assert row["busy_minus_inference"] > 0.1
