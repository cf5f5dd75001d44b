"""When a scenario is played live: moved to a real date before today, from a roll-out of its pods until some hours later."""

from dataclasses import dataclass
from math import floor

from lora_watch.model import DAY, HOUR, MINUTE
from lora_watch.simulate.scenario import Scenario

WEEK = 7 * DAY
AHEAD = HOUR
"""What is played begins so long before the first thing that happens."""
QUIET = 10 * HOUR
"""Where nothing happens, so long after the scenario's begin."""
WARM = 3 * HOUR
"""Pods were rolled out at least so long before, if the scenario has begun by then."""
LENGTH = 14 * HOUR
"""From the roll-out to the end."""
LEAST = 15 * MINUTE
"""Of what is played so much lies in the past when it begins, at least."""


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What is simulated live: ``scenario`` begins with the roll-out, what lies before ``start`` is history, it ends at ``until``.

    """

    scenario: Scenario
    start: int
    until: int
    seed: int

    def day_before(self, number: int) -> "Plan":
        """
        The day that ends ``number`` − 1 days before the roll-out, as a plan of its own: the same adapters and popularity, other
        draws, and nothing happens. Its pods were rolled out at its begin.
        """
        if number < 1:
            raise ValueError(f"the day before is number 1, not {number}")
        begin = self.scenario.begin - number * DAY
        quiet = _grown(self.scenario, -number).model_copy(update={"begin": begin, "events": ()})
        return Plan(quiet, begin, begin + DAY, self.seed + number)


def plan(scenario: Scenario, now: int, seed: int) -> Plan:
    """
    The scenario moved by whole weeks, so that what is played ends before the day of ``now`` (µs UTC) begins; its weekday stays.

    It begins ``AHEAD`` of the scenario's first event (``QUIET`` after its begin where there is none), and the pods were rolled
    out at the whole hour ``WARM`` before that; what the scenario had before is left out. What is played never overtakes ``now``.
    """
    first = min((event.start * HOUR for event in scenario.events), default=None)
    start = QUIET if first is None else max(round(first) - AHEAD, LEAST)
    rolled_out = max(floor((start - WARM) / HOUR), 0) * HOUR
    end = scenario.begin + rolled_out + LENGTH
    moved = scenario.begin + (now // DAY * DAY - end) // WEEK * WEEK
    earlier = rolled_out / HOUR
    events = tuple(
        event.model_copy(update={"start": event.start - earlier, "end": None if event.end is None else event.end - earlier})
        for event in scenario.events
    )
    grown = _grown(scenario, rolled_out // DAY)
    live = grown.model_copy(update={"begin": moved + rolled_out, "events": events})
    return Plan(live, moved + start, moved + rolled_out + LENGTH, seed)


def _grown(scenario: Scenario, days: int) -> Scenario:
    traffic = scenario.traffic
    rate = traffic.requests_per_second * (1 + traffic.growth_per_day) ** days
    return scenario.model_copy(update={"traffic": traffic.model_copy(update={"requests_per_second": rate})})
