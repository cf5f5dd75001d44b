"""
Do promises on slots, pods, routing and schedules hold? ``python benchmarks/backtest_study.py levers``: made months, week by week.

Of each held-out week the advice as of its start, and what the same replay of the week itself came to.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from backtest_workloads import START, WORKLOADS, Workload, history

from lora_watch.model import DAY, HOUR, Window
from lora_watch.recommend.advice import Advice, Kind, Setup
from lora_watch.recommend.change_points import changes
from lora_watch.recommend.history import History
from lora_watch.recommend.pins import WEEK
from lora_watch.recommend.present import ROUTERS, Present, present
from lora_watch.recommend.routing import SCORERS
from lora_watch.recommend.schedule import BLOCK, MONDAY, advise_schedule
from lora_watch.recommend.trial import Counted, Trial, foretold, judged_window, trial
from lora_watch.replay.cluster import PinChange
from lora_watch.replay.trace import Trace

SETUP = Setup("study")
SLOTS = {"+1 slot per pod": 1, "+2 slots per pod": 2}
ONE_POD, SCHEDULE = "one more pod", "pins by the hour of the week"
LEVERS = (*SLOTS, ONE_POD, *SCORERS, SCHEDULE)
KINDS = dict.fromkeys(SLOTS, Kind.SLOTS) | {ONE_POD: Kind.PODS}
WHOLE = {"judged by a week": True, "by less, since the mix changed": False}
WORDS: dict[str, Any] = {"what": "", "why": "", "cost": "", "risk": "", "can": None, "how": ""}
ONE_SLOT: Mapping[str, Workload] = {"one slot": Workload(slots=1, hold=12.0)}
"""As little room as there can be, and long requests. Still none waits long for a slot: nothing here is promised of waiting."""


def study(requests: int, seeds: Sequence[int], out: Path) -> None:
    """Every workload and seed, week by week and lever by lever, into ``out``."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w") as told:
        for seed in seeds:
            for name, workload in (WORKLOADS | ONE_SLOT).items():
                for row in rows(history(replace(workload, requests=requests), seed)):
                    told.write(json.dumps({"workload": name, "seed": seed} | row) + "\n")
                    told.flush()


def rows(month: History) -> Iterator[dict[str, Any]]:
    """The last three weeks of a month."""
    weeks: dict[tuple[Window, str | None], Tried] = {}

    def tried(one: History, now: Present) -> Tried:
        """Of a history's judged window; the promise of one week is what came of the one before."""
        key = judged_window(one), now.name
        if key not in weeks:
            weeks[key] = Tried(trial(one, now))
        return weeks[key]

    for n in range(3, 0, -1):
        week = Window(month.window.end - n * WEEK, month.window.end - (n - 1) * WEEK)
        past = month.during(Window(month.window.start, week.start))
        past = replace(past, changes=changes(past))
        now = present(past)
        known = tried(past, now)
        came = tried(replace(month.during(Window(month.window.start, week.end)), changes=()), now)
        for lever in LEVERS[:3] + tuple(SCORERS) * (now.router is not None):
            if lever != now.name and (now.router is not None or lever != ONE_POD):
                advice = known.trial.advice(KINDS.get(lever, Kind.ROUTING), known.told(lever), **WORDS)
                yield _row(week, lever, advice, known, came, known.told(lever), came.told(lever))
        for advice in advise_schedule(known.trial, SETUP, since=max(past.changes, default=None)):
            given, later = (one.trial.count(changes=by_the_hour(advice, month, one.trial.part.window)) for one in (known, came))
            yield _row(week, SCHEDULE, advice, known, came, given, later)


class Tried:
    """A judged window and what each lever makes of it, each replayed once."""

    def __init__(self, one: Trial) -> None:
        self.trial = one
        self._told: dict[str, Counted] = {}

    def told(self, lever: str) -> Counted:
        """What a replay with a lever comes to."""
        if lever not in self._told:
            self._told[lever] = self._count(lever)
        return self._told[lever]

    def _count(self, lever: str) -> Counted:
        one, trace = self.trial, self.trial.part.trace
        if lever in SLOTS:
            return one.count(fleet=one.part.fleet(more_slots=SLOTS[lever]))
        if lever == ONE_POD:
            wider = Trace(trace.adapter, adapters=trace.adapters, pods=trace.pods + 1, at=trace.at, hold=trace.hold)
            return one.count(fleet=one.part.fleet(more_pods=1), trace=wider)
        return one.count(router=ROUTERS[lever])


def _row(week: Window, lever: str, advice: Advice, known: Tried, came: Tried, given: Counted, later: Counted) -> dict[str, Any]:
    waits = advice.effect.waits_removed is not None

    def blocks(told: Counted) -> list[float]:
        return [float(one) for one in (told.waited_seconds if waits else told.swaps)]

    base, other = blocks(came.trial.base), blocks(later)
    return {
        "day": (week.start - START) // DAY,
        "lever": lever,
        "of": advice.effect.of,
        "verdict": advice.verdict,
        "promised": advice.effect.removed,
        "realised": 1 - sum(other) / sum(base) if sum(base) else None,
        "block": known.trial.block,
        "known": (blocks(known.trial.base), blocks(given)),
        "came": (base, other),
    }


def by_the_hour(advice: Advice, month: History, window: Window) -> list[PinChange]:
    """The pins that the places of a schedule make in a window: who goes first, then who comes, at the beginning of each block."""
    adapter, pod = {name: a for a, name in enumerate(month.names)}, {name: p for p, name in enumerate(month.pods)}
    told: list[PinChange] = []
    held: set[tuple[int, int]] = set()
    for at in range((window.start - MONDAY) // BLOCK, (window.end - 1 - MONDAY) // BLOCK + 1):
        hour = (at * BLOCK // HOUR) % (WEEK // HOUR)
        now = {(pod[one.pod], adapter[one.adapter]) for one in advice.places if hour in one.hours}
        moment = max(MONDAY + at * BLOCK, window.start)
        told += [PinChange(moment, p, a, False) for p, a in sorted(held - now)]
        told += [PinChange(moment, p, a, True) for p, a in sorted(now - held)]
        held = now
    return told


def tables(out: Path) -> None:
    """What the README quotes; intervals are as they are made now, from what was known then."""
    every = [json.loads(line) for line in out.read_text().splitlines()]
    for row in every:
        base, other = (np.array(one) for one in row["known"])
        _, *row["interval"] = foretold(base, other)
    seeds = sorted({row["seed"] for row in every})
    print(f"seeds {', '.join(map(str, seeds))}: promises by lever, and by workload\n")
    _table([(lever, [row for row in every if row["lever"] == lever]) for lever in LEVERS])
    print()
    _table([(name, [row for row in every if row["workload"] == name]) for name in WORKLOADS | ONE_SLOT])
    print()
    _table([(told, [row for row in every if (len(row["known"][0]) == 7) is whole]) for told, whole in WHOLE.items()])


def _inside(row: dict[str, Any]) -> bool:
    low, high = row["interval"]
    return bool(low <= row["realised"] <= high)


def _table(groups: Sequence[tuple[str, list[dict[str, Any]]]]) -> None:
    print("| | promises | inside the interval | advised: inside | promised, realised | mean width | off: mean, most |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, those in [*groups, ("all", [row for _, one in groups for row in one])]:
        judged = [row for row in those if row["realised"] is not None and row["promised"] is not None]
        if not judged:
            continue
        advised = [_inside(row) for row in judged if row["verdict"] == "advised"]
        off = np.array([row["realised"] - row["promised"] for row in judged])
        means = [np.mean([row[column] for row in judged]) for column in ("promised", "realised")]
        inside = [_inside(row) for row in judged]
        width = np.mean([row["interval"][1] - row["interval"][0] for row in judged])
        print(
            f"| {name} | {len(judged)} | {sum(inside)} ({np.mean(inside):.0%}) | {sum(advised)} of {len(advised)} "
            f"| {100 * means[0]:.1f}, {100 * means[1]:.1f} % | {width:.3f} "
            f"| {100 * np.abs(off).mean():.1f}, {100 * np.abs(off).max():.1f} points |"
        )
