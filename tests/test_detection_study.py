"""What the detection study takes for the rules of the product are the rules of the product, look by look."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch.derive.first_seen import first_seen
from lora_watch.derive.groups import POOL
from lora_watch.derive.hysteresis import Limits, State, step
from lora_watch.diagnose.facts import PoolFacts
from lora_watch.diagnose.finding import Severity
from lora_watch.diagnose.new_adapters import new_adapters
from lora_watch.diagnose.saturation import hard_cliff, saturation
from lora_watch.diagnose.thrash import thrash
from lora_watch.explore.situation import Memory, situation
from lora_watch.model import DAY, HOUR, MINUTE, Window
from lora_watch.simulate.scenario import Loads, Restart, Scenario, Split
from lora_watch.simulate.write import simulate
from lora_watch.store.tables import Store


def loaded() -> ModuleType:
    """The benchmark, which is no part of the package."""
    path = Path(__file__).parents[1] / "benchmarks" / "detection_study.py"
    spec = importlib.util.spec_from_file_location("detection_study", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


STUDY = loaded()
HOURS, CHANGE = 4.0, 2.2
LOOKS = (2.0, 2.2167, 2.25, 2.3, 2.4, 2.7, 3.1, 3.5, 4.0)
"""Hours after the begin."""


def morning() -> Scenario:
    """A quarter of the study's traffic whose loads take so long that the pods suffer as they do there."""
    events = [
        Split(kind="split", start=CHANGE, top=20, share=0.5),
        Restart(kind="restart", pod=2, start=1.7),
        *STUDY.batches(9, HOURS + 1),
    ]
    whole = STUDY.cluster("article", STUDY.MONDAY + 30 * DAY + 9 * HOUR, HOURS / 24, events)
    traffic = whole.traffic.model_copy(update={"requests_per_second": 6.0, "seconds_per_token": 0.06})
    return whole.model_copy(update={"traffic": traffic, "loads": Loads(profile="article", drain_seconds=5.0)})


def usual(scenario: Scenario) -> dict[int, float]:
    """Requests by hour of the eight days before."""
    hours = range(scenario.begin - 8 * DAY, scenario.begin, HOUR)
    return {hour: round(3600 * 6 * (1 + 0.75 * np.cos(2 * np.pi * (hour % DAY / HOUR - 14.67) / 24))) for hour in hours}


class Learned(Memory):
    """A memory of a month in which each of the cluster's own adapters was asked for."""

    def __init__(self, store: Store, scenario: Scenario, own: tuple[str, ...]) -> None:
        super().__init__(store, 30 * DAY)
        self._own, self._past, self._begin = own, usual(scenario), scenario.begin

    def first_seen(self, end: int) -> pl.DataFrame:
        """As of the month before, too."""
        now = super().first_seen(end)
        past = now.select(POOL).unique().join(pl.DataFrame({"adapter": self._own}), how="cross")
        return first_seen(now, past.with_columns(first_seen=pl.lit(self._begin - 20 * DAY)).lazy())

    def hours(self, end: int) -> pl.DataFrame:
        """As of the week before, too."""
        now = super().hours(end)
        pool = super().first_seen(end).select(POOL).unique()
        past = pl.DataFrame(
            {"hour": list(self._past), "requests": list(self._past.values())}, schema=now.select("hour", "requests").schema
        )
        past = pool.join(past.with_columns(provenance=pl.lit("observed")), how="cross").select(now.columns)
        return pl.concat([now.filter(pl.col("hour") >= self._begin), past])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[PoolFacts], Any]:
    """The product's facts at each look, and what the study says of the same morning."""
    scenario, folder = morning(), tmp_path_factory.mktemp("morning")
    simulate(scenario, scenario.days, 5, folder)
    work = STUDY.Simulation.of(scenario, 5)
    ((_, steps),) = work.days()
    peaks = STUDY.Peaks(usual(scenario))
    peaks.add(scenario.begin, steps.finished)
    memory = Learned(Store(folder), scenario, work.known.names[: STUDY.OWN])
    facts = []
    for hour in LOOKS:
        end = scenario.begin + round(hour * 60) * MINUTE
        (pool,) = situation(memory, Window(end - HOUR, end)).pools
        facts.append(pool)
    return facts, STUDY.looks(steps, scenario.begin, work.seen, peaks)


def places(told: tuple[list[PoolFacts], Any]) -> list[tuple[PoolFacts, int, int]]:
    """Each look with its place among minutes and steps."""
    begin = told[1].since
    return [(facts, (facts.window.end - begin) // MINUTE - 1, (facts.window.end - begin) // STUDY.STEP - 1) for facts in told[0]]


def test_the_numbers_of_the_early_warning_are_those_of_the_product(told):
    for facts, minute, place in places(told):
        for name, mine, near in (
            ("predicted_miss_ratio", told[1].predicted[place], 0.01),
            ("rho_peak", told[1].rho_peak[minute], 0.02),
            ("rho_now", told[1].rho_now[minute], 0.02),
            ("hard_cliff", told[1].cliff[minute], 0.02),
        ):
            assert facts.warned(name) == pytest.approx(mine, abs=near), (name, minute)


def test_misses_and_stalls_are_those_of_the_product(told):
    for facts, minute, place in places(told):
        assert facts.loads_per_request == pytest.approx(told[1].misses[place], abs=0.005)
        assert facts.stall_share == pytest.approx(told[1].stall_share[minute], abs=0.01)


def test_the_findings_are_those_of_the_product(told):
    seen = set()
    for facts, minute, place in places(told):
        product = {(one.kind, one.severity) for rule in (new_adapters, thrash, saturation, hard_cliff) for one in rule(facts)}
        study = set()
        if told[1].named[place]:
            study.add(("new-adapters", Severity.WARN if told[1].warned[place] else Severity.INFORMATION))
        if told[1].thrash[minute]:
            hurts = told[1].stall_share[minute] >= STUDY.HARM_SHARE
            study.add(("thrash", Severity.HARM if hurts else Severity.WARN))
        study |= {("saturation", Severity.HARM)} if told[1].saturation[minute] else set()
        study |= {("hard-cliff", Severity.HARM)} if told[1].hard_cliff[minute] else set()
        assert product == study, minute
        seen |= product
    assert {kind for kind, _ in seen} >= {"new-adapters", "thrash", "saturation"}


def test_new_adapters_are_as_many_as_the_product_names(told):
    for facts, _, place in places(told):
        assert sum(len(one.adapters) for one in new_adapters(facts)) == (told[1].names[place] if told[1].named[place] else 0)


@settings(max_examples=50)
@given(
    st.lists(st.one_of(st.floats(0, 1), st.just(float("nan"))), min_size=1, max_size=40),
    st.integers(1, 12),
    st.sampled_from([Limits(0.6, 0.4, 0, 2 * MINUTE), Limits(0.5, 0.5, 2 * MINUTE, 3 * MINUTE)]),
)
def test_an_alarm_is_what_hysteresis_says_after_so_many_rounds(values: list[float], rounds: int, limits: Limits):
    on = STUDY.alarm(np.array(values), limits, rounds)
    for last in range(len(values)):
        state = State()
        for place in range(max(last - rounds + 1, 0), last + 1):
            state = step(state, limits, place * MINUTE, values[place])
        assert on[last] == state.on


def test_a_finding_that_is_missed_for_ten_minutes_goes_on_and_for_longer_opens_again():
    times = np.arange(40) * MINUTE
    on = np.isin(np.arange(40), [0, 1, 12, 30])
    assert STUDY.begins(on, times) == [0, 30 * MINUTE]


def test_a_run_that_never_came_is_later_than_all_others():
    assert STUDY.told_minutes([60.0, 120.0, None]) == "67 %: 2.0, never"
    assert STUDY.told_minutes([None]) == "0 %"
