"""A stretch of a shipped scenario as frames: its own pods and traffic, cut out of its day, with the truth beside it."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from lora_watch.model import HOUR, MINUTE, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.simulate.scenario import Scenario, load
from lora_watch.simulate.write import simulate
from lora_watch.store.tables import Store

QUIET = ("healthy", "benign-growth")
"""Scenarios in which nothing may be flagged, with the hour from which three are played."""
_FROM = {"healthy": 11.0, "benign-growth": 33.0}


@dataclass(frozen=True)
class Scene:
    """The rows of a stretch of a scenario. Its pods start at its begin, with empty slots."""

    scenario: Scenario
    from_hour: float
    window: Window
    events: pl.LazyFrame
    requests: pl.LazyFrame
    samples: pl.LazyFrame
    truth: dict[str, Any]

    def hours(self, a: float, b: float) -> Window:
        """From hour a to hour b of the scenario's own time."""
        return Window(*(self.window.start + round((hour - self.from_hour) * HOUR) for hour in (a, b)))

    def events_of(self, window: Window, before: int = MINUTE) -> pl.LazyFrame:
        """The events of the window, of a minute before it (or so many µs) and of one after it."""
        return self.events.filter(pl.col("at").is_between(window.start - before, window.end + MINUTE))

    def of(self, kind: str) -> dict[str, Any]:
        """The first event of that kind that the truth tells of."""
        found: dict[str, Any] = next(event for event in self.truth["events"] if event["kind"] == kind)
        return found


@cache
def scene(name: str, from_hour: float = 0.0, hours: float = 1.0, seed: int = 7) -> Scene:
    """The scenario from an hour on, with its events moved along."""
    scenario = load(name)
    events = tuple(
        event.model_copy(update={"start": event.start - from_hour, **({"end": event.end - from_hour} if event.end else {})})
        for event in scenario.events
    )
    scenario = scenario.model_copy(update={"begin": scenario.begin + round(from_hour * HOUR), "events": events})
    with TemporaryDirectory() as folder:
        done = simulate(scenario, hours / 24, seed, Path(folder))
        store = Store(folder)
        frames = [store.rows(table).lazy() for table in (ADAPTER_EVENTS, REQUESTS, SAMPLES)]
        truth = json.loads((Path(folder) / "truth.json").read_text())
    return Scene(scenario, from_hour, done.window, *frames, truth)


def quiet(name: str) -> tuple[Scene, Window]:
    """Three hours of a scenario in which nothing happens, and the last two of them: by then its slots have filled."""
    played = scene(name, _FROM[name], 3.0)
    return played, played.hours(_FROM[name] + 1, _FROM[name] + 3)
