"""Scenarios made small: three hours and a few thousand requests, everything that happens moved along."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lora_watch.model import Window
from lora_watch.simulate.scenario import (
    Burst,
    Loads,
    Onboard,
    Pin,
    Pool,
    Restart,
    Retire,
    Scenario,
    Split,
    Traffic,
    Truth,
    load,
)
from lora_watch.simulate.write import simulate
from lora_watch.store.tables import Store

HOURS = 3.0


def shrunk(name: str, requests_per_second: float = 0.4) -> Scenario:
    """The scenario with its hours pressed into ``HOURS``, and at most so many requests a second; ``mixed`` as it is."""
    if name == "mixed":
        return MIXED
    scenario = load(name)
    factor = HOURS / (scenario.days * 24)
    events = []
    for event in scenario.events:
        moved: dict[str, Any] = {"start": event.start * factor}
        if event.end is not None:
            moved["end"] = event.end * factor
        if getattr(event, "every_hours", None) is not None:
            moved["every_hours"] = event.every_hours * factor
        if hasattr(event, "seconds"):
            moved["seconds"] = max(event.seconds * factor, 1.0)
        events.append(event.model_copy(update=moved))
    rate = min(scenario.traffic.requests_per_second, requests_per_second)
    return scenario.model_copy(
        update={
            "events": tuple(events),
            "days": HOURS / 24,
            "traffic": scenario.traffic.model_copy(update={"requests_per_second": rate}),
        }
    )


MIXED = Scenario(
    name="mixed",
    about="Everything that no scenario has: restarts under load, pins, large adapters, the base model, a stale router.",
    days=HOURS / 24,
    pools=(
        Pool(
            name="a",
            pods=3,
            slots=3,
            cpu_capacity=5,
            seats=6,
            scrape_seconds=5,
            pins=(Pin(adapter=3), Pin(adapter=1, pods=(0,))),
        ),
    ),
    loads=Loads(profile="article"),
    traffic=Traffic(
        requests_per_second=1.5,
        adapters=14,
        base_share=0.2,
        large_share=0.3,
        drift=0.2,
        session_requests=2,
        zones=(0, 8),
        daily_swing=0.5,
        generated_tokens=200,
    ),
    events=(
        Restart(kind="restart", start=0.5, pod=1),
        Restart(kind="restart", start=1.75, pod=1),
        Restart(kind="restart", start=1.2, pod=0),
        Split(kind="split", start=1, top=5),
        Retire(kind="retire", start=1.5, adapters=(2,), unregister=True),
        Onboard(kind="onboard", start=0.7, adapters=2),
        Burst(kind="burst", start=1.19, adapters=(7, 8, 9, 10), requests=20),
    ),
    truth=Truth(),
)


@dataclass(frozen=True)
class Laid:
    """A scenario in a store."""

    scenario: Scenario
    store: Store
    folder: Path
    window: Window


def laid(scenario: Scenario, folder: Path, seed: int = 1) -> Laid:
    done = simulate(scenario, scenario.days, seed, folder)
    return Laid(scenario, Store(folder), folder, done.window)
