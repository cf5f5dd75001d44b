"""
How early the service names what went wrong, and how often it cries wolf: ``python benchmarks/detection_study.py``.

A cluster of 8 pods with 4 slots and 40 adapters by Zipf's law, 100 more that are hardly asked for, 8 to 40 requests a second over
the day, popularity that is drawn anew each day, two time zones, three batch jobs a day, an onboarding a week, a restart every
other day. Five things happen to it, each in runs of their own; in healthy weeks nothing does. What is simulated is reduced
at once to steps of 15 s, on which the rules of the product run as arrays; ``tests/test_detection_study.py`` proves that they say
what the product says. Results are added to ``--out`` as they come (a run that is in it is not made again); ``--table`` only tells
them.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.first_seen import USUAL
from lora_watch.derive.forecast import HISTORY_SCHEMA, forecast
from lora_watch.derive.hysteresis import Limits
from lora_watch.derive.saturation import MOST_SHARE
from lora_watch.derive.warning import LIMITS, QUEUE_MINUTES, SPAN
from lora_watch.diagnose.facts import MISSES
from lora_watch.diagnose.life import Rules
from lora_watch.diagnose.new_adapters import CROWD, LEAST_CROWD, LEAST_MISSES, LEAST_SHARE, WORSE
from lora_watch.diagnose.saturation import LOADS_SHARE
from lora_watch.diagnose.thrash import HARM_SHARE
from lora_watch.explore.situation import HISTORY, ROUNDS
from lora_watch.model import DAY, HOUR, MINUTE, SECOND
from lora_watch.replay.stack import stack_distances
from lora_watch.replay.trace import Trace
from lora_watch.simulate.engines import Life, pieces
from lora_watch.simulate.scenario import AnyEvent, Grow, Loads, Onboard, Pool, Restart, Scan, Scenario, Split, Traffic, Truth
from lora_watch.simulate.traffic import Catalogue, catalogue, spans

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Profile = Literal["vllm", "article", "slow"]
Row = dict[str, Any]
"""What came out of one run or week."""

STEP = 15 * SECOND
PER_MINUTE, RECENT, PER_HOUR = MINUTE // STEP, SPAN // STEP, HOUR // STEP
LOOKBACK = 60
"""Minutes of the window that a look is about."""
PODS, SLOTS, OWN = 8, 4, 140
MONDAY = 1_772_409_600_000_000
BATCH_HOURS = (2.0, 13.0, 20.0)
CHANGES: Mapping[str, tuple[float, float, float, AnyEvent | None]] = {
    # name: begin (hour of the day), hours, hour of the change, what happens then (hours are put in later)
    "abrupt 10:15": (8.25, 8.0, 10.25, Split(kind="split", start=0, top=20, share=0.5)),
    "ramp over 4 h": (8.25, 8.0, 10.25, Split(kind="split", start=0, top=20, share=0.5, ramp_hours=4)),
    "abrupt 03:30": (1.5, 14.75, 3.5, Split(kind="split", start=0, top=20, share=0.5)),
    "5 variants, 20 %": (8.25, 8.0, 10.25, Split(kind="split", start=0, top=5, share=0.2, growth=1.0)),
    "+20 % traffic": (8.25, 8.0, 10.25, Grow(kind="grow", start=0, factor=1.2)),
}
ONBOARDED = ((2, 0.015), (3, 0.02), (1, 0.015), (5, 0.03))
"""New adapters of a healthy week and what they ask for, beside what the others do; by the week's number."""


def cluster(profile: Profile, begin: int, days: float, events: Sequence[AnyEvent]) -> Scenario:
    """
    The cluster; a load of the article's profile stalls its pod 0.1 to 0.6 s, one of vLLM's 5 to 60 ms, and one of ``slow``, the
    article's with longer drains, 0.1 to 0.9 s.
    """
    loads = Loads(profile="article", drain_seconds=0.8) if profile == "slow" else Loads(profile=profile)
    zipf = np.arange(1, 41) ** -1.0
    return Scenario(
        name="study",
        about="",
        begin=begin,
        days=days,
        pools=(Pool(name="vllm", pods=PODS, slots=SLOTS, cpu_capacity=64),),
        loads=loads,
        traffic=Traffic(
            requests_per_second=24,
            adapters=OWN,
            weights=(*(zipf / zipf.sum() * 0.99).tolist(), *[0.0001] * 100),
            drift=0.3,
            daily_swing=0.75,
            zones=(0, 0, 0, 1, -6),
            generated_tokens=30,
        ),
        events=tuple(events),
        truth=Truth(),
    )


def batches(hour: float, hours: float) -> list[AnyEvent]:
    """Three a day, in a scenario that begins at an hour of the day."""
    starts = [at - hour + 24 * (at < hour) for at in BATCH_HOURS]
    return [Scan(kind="scan", start=start) for start in starts if start < hours]


def moment(seed: int) -> int:
    """How far into its minute the change of a run comes (µs)."""
    return int(np.random.default_rng([seed, 79]).integers(0, MINUTE))


def run(kind: str, profile: Profile, seed: int) -> Scenario:
    """A run of one of ``CHANGES``, on a Wednesday of the fifth week."""
    hour, hours, at, change = CHANGES[kind]
    random = np.random.default_rng([seed, 77])
    events = batches(hour, hours)
    events.append(Restart(kind="restart", pod=int(random.integers(PODS)), start=round(float(random.uniform(1.5, hours)), 3)))
    if change is not None:
        events.append(change.model_copy(update={"start": at - hour + moment(seed) / HOUR}))
    return cluster(profile, MONDAY + 30 * DAY + round(hour * HOUR), hours / 24, events)


def week(profile: Profile, number: int, days: float = 7) -> Scenario:
    """A healthy week: weeks 0 … 3 are to learn from, 4 … 7 fresh."""
    random = np.random.default_rng([number, 78])
    count, share = ONBOARDED[number % 4]
    events = batches(0, 24)
    day = min(int(random.integers(1, 6)), days - 1)
    events.append(Onboard(kind="onboard", start=24 * day + round(float(random.uniform(8, 18)), 2), adapters=count, share=share))
    for restart in range(1, int(days), 2):
        start = 24 * restart + round(float(random.uniform(0, 24)), 3)
        events.append(Restart(kind="restart", pod=int(random.integers(PODS)), start=start))
    return cluster(profile, MONDAY + 7 * number * DAY, days, events)


@dataclass(frozen=True)
class Steps:
    """
    A stretch of a simulation in steps of 15 s: ``finished`` requests by adapter, loads, swaps and seconds of loads that ended;
    of the requests that ``arrived``, those that LRU would miss on their pod (``arrived_missed``); the same of what finished.
    By minute: ``flight``, seconds in flight of what finished, by pod and adapter; the P95 latency to first and last token; and by
    pod what it got ``done`` a second, loads apart, where requests waited at every sample (NaN: not so).
    """

    finished: Ints
    loads: Ints
    swaps: Ints
    stalls: Floats
    arrived: Ints
    arrived_missed: Ints
    finished_missed: Ints
    flight: NDArray[np.float32]
    ttft: Floats
    e2e: Floats
    done: Floats

    def and_then(self, later: "Steps") -> "Steps":
        """Both, one behind the other."""
        return Steps(*(np.concatenate([getattr(self, one.name), getattr(later, one.name)]) for one in fields(self)))

    def last(self, hours: int) -> "Steps":
        """The last hours of it."""
        by_minute = ("flight", "ttft", "e2e", "done")
        return Steps(*(getattr(self, one.name)[-hours * (60 if one.name in by_minute else PER_HOUR) :] for one in fields(self)))


@dataclass
class Simulation:
    """A scenario on its way: ``seen`` is when a request for each adapter first finished (µs UTC; before all for its own)."""

    scenario: Scenario
    seed: int
    known: Catalogue
    seen: Ints
    asked: Ints
    """When it first arrived."""

    @classmethod
    def of(cls, scenario: Scenario, seed: int) -> "Simulation":
        """Nothing simulated yet; the own adapters are known from the weeks before."""
        known = catalogue(scenario, seed)
        seen = np.full(len(known), 1 << 60, dtype=np.int64)
        seen[:OWN] = 0
        return cls(scenario, seed, known, seen, seen.copy())

    def days(self) -> Iterator[tuple[int, Steps]]:
        """Day after day (the last may be a part of one): its begin and its steps."""
        begin, length = self.scenario.begin, self.scenario.days
        end, day = begin + round(length * DAY), begin
        stream = np.empty((0, 4), dtype=np.int64)
        parts: list[list[NDArray[np.int64]]] = [[], [], []]
        for window, lives in pieces(
            self.scenario, self.known, spans(self.scenario, self.known, length, self.seed), end, self.seed
        ):
            for life in lives:
                parts[0].append(_requests(life, window.start, window.end))
                parts[1].append(_loads(life, window.start, window.end))
                parts[2].append(_waiting(life, window.start, window.end))
            if window.end == min(day + DAY, end):
                requests, loads, waiting = (np.concatenate(part) for part in parts)
                parts = [[], [], []]
                both = np.concatenate([stream, requests[:, :4]])
                both = both[np.argsort(both[:, 0], kind="stable")]
                steps = self._steps(requests, both, loads, waiting, day, window.end)
                yield day, steps
                stream = both[both[:, 3] >= window.end - HOUR]
                day = window.end

    def _steps(self, rows: Ints, stream: Ints, loads: Ints, waiting: Ints, begin: int, end: int) -> Steps:
        """``rows``: arrival, pod, adapter, finish, scheduled, first token; ``stream`` the first four, an hour more of them."""
        count, width = (end - begin) // STEP, len(self.known)
        minutes = count // PER_MINUTE
        at, adapter, done = rows[:, 0], rows[:, 2], rows[:, 3]
        np.minimum.at(self.seen, adapter, done)
        np.minimum.at(self.asked, adapter, at)
        step, minute = (done - begin) // STEP, (done - begin) // MINUTE
        distance = stack_distances(Trace(stream[:, 2], adapters=width, pod=stream[:, 1], pods=PODS))
        new = stream[:, 3] >= begin
        missed = ((distance < 0) | (distance >= SLOTS))[new]
        came, went = ((np.maximum(stream[new, column], begin) - begin) // STEP for column in (0, 3))
        flight = np.bincount(
            (minute * PODS + rows[:, 1]) * width + adapter, (done - rows[:, 4]) / SECOND, minutes * PODS * width
        ).reshape(minutes, PODS, width)
        loaded = (loads[:, 0] - begin) // STEP
        return Steps(
            np.bincount(step * width + adapter, minlength=count * width).reshape(count, width),
            np.bincount(loaded, minlength=count),
            np.bincount(loaded[loads[:, 2] > 0], minlength=count),
            np.bincount(loaded, loads[:, 1] / SECOND, count).astype(np.float64),
            np.bincount(came, minlength=count),
            np.bincount(came[missed], minlength=count),
            np.bincount(went[missed], minlength=count),
            flight.astype(np.float32),
            _p95(minute, rows[:, 5] - at, minutes),
            _p95(minute, done - at, minutes),
            _managed(minute * PODS + rows[:, 1], loads, waiting, begin, minutes),
        )


def _requests(life: Life, start: int, end: int) -> Ints:
    """Rows of what finished: arrival, pod, adapter, finish, scheduled, first token."""
    scheduled = life.ready.copy()
    scheduled[life.loaded.place] = life.loaded.began
    which = np.flatnonzero(~life.cut & (life.finished >= start) & (life.finished < end))
    pod = np.full(len(which), life.pod, dtype=np.int64)
    at, tokens = life.asked.at[life.number[which]], life.first_tokens(which)
    return np.stack([at, pod, life.adapter[which].astype(np.int64), life.finished[which], scheduled[which], tokens], axis=1)


def _loads(life: Life, start: int, end: int) -> Ints:
    """Rows of the loads that were done: when, how long (µs), whether an adapter had to leave, the pod."""
    loaded = life.loaded
    which = (loaded.done >= start) & (loaded.done < end)
    pod = np.full(len(loaded.done), life.pod)
    return np.stack([loaded.done, loaded.done - loaded.began, loaded.victim >= 0, pod], axis=1)[which]


def _waiting(life: Life, start: int, end: int) -> Ints:
    """Rows of the samples: when, the pod, whether a request waited for room in the batch."""
    pace = life.pace
    which = (pace.sampled_at >= start) & (pace.sampled_at < end)
    return np.stack([pace.sampled_at, np.full(len(pace.sampled_at), life.pod), pace.capacity >= 1], axis=1)[which]


def _managed(asked: Ints, loads: Ints, waiting: Ints, begin: int, minutes: int) -> Floats:
    """``derive.capacity`` of each minute and pod."""
    size = minutes * PODS
    count = np.bincount(asked, minlength=size)
    spent = np.bincount((loads[:, 0] - begin) // MINUTE * PODS + loads[:, 3], loads[:, 1] / SECOND, size)
    place = (waiting[:, 0] - begin) // MINUTE * PODS + waiting[:, 1]
    looks_at, waits = np.bincount(place, minlength=size), np.bincount(place[waiting[:, 2] > 0], minlength=size)
    full = (looks_at >= 2) & (waits == looks_at) & (count > 0)
    return np.where(full, count / 60 / (1 - np.clip(spent / 60, 0, MOST_SHARE)), np.nan).reshape(minutes, PODS)


def _p95(bins: Ints, values: Ints, count: int) -> Floats:
    """Seconds of µs by bin; NaN where it is empty."""
    ordered = np.sort(bins << 40 | values)  # one sort of both
    first_of = np.searchsorted(ordered, np.arange(count + 1) << 40)
    size = np.diff(first_of)
    place = np.minimum(first_of[:-1] + np.maximum(np.ceil(0.95 * size).astype(np.int64) - 1, 0), max(len(ordered) - 1, 0))
    return np.where(size > 0, (ordered[place] & ((1 << 40) - 1)) / SECOND, np.nan) if len(ordered) else np.full(count, np.nan)


def rolled(values: NDArray[np.generic], length: int) -> Floats:
    """Sums of the last ``length`` rows, at each row; of what there is at the begin."""
    total = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0, dtype=np.float64)])
    places = np.arange(1, len(values) + 1)
    return np.asarray(total[places] - total[np.maximum(places - length, 0)])


def alarm(values: Floats, limits: Limits, rounds: int) -> Bools:
    """By minute: is an alarm on that was off before the last ``rounds`` values? ``hysteresis.step``, for all at once."""
    padded = np.concatenate([np.full(rounds - 1, np.nan), values])
    on, pending = np.zeros(len(values), dtype=np.bool_), np.full(len(values), -1)
    for place in range(rounds):
        value = padded[place : place + len(values)]
        past = np.where(on, value < limits.leave, value > limits.enter)
        pending = np.where(past, np.where(pending < 0, place, pending), -1)
        turns = past & (place - pending >= np.where(on, limits.keep, limits.for_) // MINUTE)
        on, pending = on ^ turns, np.where(turns, -1, pending)
    return on


class Peaks:
    """The product's forecast, asked once an hour and a minute later: in between only the current rate changes."""

    def __init__(self, hours: Mapping[int, float]) -> None:
        self.hours = dict(hours)
        self._told: dict[int, float] = {}

    def add(self, begin: int, finished: Ints) -> None:
        """The whole hours of a stretch."""
        for place in range(len(finished) // PER_HOUR):
            self.hours[begin + place * HOUR] = float(finished[place * PER_HOUR : (place + 1) * PER_HOUR].sum())

    def at(self, end: int) -> float:
        """Requests a second in the busiest hour ahead, from history alone."""
        moment = end if end % HOUR == 0 else end // HOUR * HOUR + MINUTE
        if moment not in self._told:
            first = end // HOUR * HOUR - HISTORY
            rows = [("c", "p", "", hour, round(n), "observed") for hour, n in self.hours.items() if first <= hour < end]
            past = pl.DataFrame(rows, schema=HISTORY_SCHEMA, orient="row")
            now = pl.DataFrame({"cluster": "c", "pool": "p", "role": "", "requests_per_second": 0.0, "provenance": "observed"})
            self._told[moment] = float(forecast(past, now, moment)["peak_rps"].item())
        return self._told[moment]


@dataclass(frozen=True)
class Looks:
    """
    What the rules say. By step: whether new adapters are named as a warning (``warned``) or at all (``named``), how many, their
    share, the predicted miss ratio. By minute: the other findings, the rivals' numbers. ``since``: the begin.
    """

    since: int
    named: Bools
    warned: Bools
    names: Ints
    share: Floats
    predicted: Floats
    misses: Floats
    thrash: Bools
    stall_share: Floats
    rho_peak: Floats
    rho_now: Floats
    cliff: Floats
    saturation: Bools
    hard_cliff: Bools
    harm: Bools
    active_ratio: Floats
    swap_rate: Floats
    ttft: Floats
    e2e: Floats

    def minutes(self) -> Ints:
        """µs UTC of each look, which is the end of its minute."""
        return self.since + np.arange(1, len(self.harm) + 1) * MINUTE


def looks(steps: Steps, begin: int, seen: Ints, peaks: Peaks) -> Looks:
    """The rules on every step, or every minute, of a stretch that begins at ``begin`` (µs UTC)."""
    ends = begin + np.arange(1, len(steps.loads) + 1) * STEP
    asked, loads = rolled(steps.finished.sum(axis=1), RECENT), rolled(steps.loads, RECENT)
    named, names, share, hurts, predicted = _cause(steps, begin, ends, seen, asked, loads)
    active = (rolled(steps.finished, PER_HOUR) > 0).sum(axis=1)
    hurts |= (names >= max(CROWD * PODS * SLOTS, LEAST_CROWD)) & (active > PODS * SLOTS)
    by_minute = slice(PER_MINUTE - 1, None, PER_MINUTE)
    minutes = ends[by_minute]
    with np.errstate(invalid="ignore", divide="ignore"):
        swaps, requests = (rolled(v, PER_MINUTE)[by_minute] for v in (steps.swaps, steps.finished.sum(axis=1)))
        stall_share = rolled(steps.stalls, RECENT)[by_minute] / PODS / (SPAN / SECOND)
        thrash = alarm(swaps / requests, MISSES, LOOKBACK) & (asked[by_minute] >= 10)
        misses = loads / asked
    rate = asked[by_minute] / (SPAN / SECOND)
    peak = np.maximum([peaks.at(end) for end in minutes.tolist()], rate)
    flight = rolled(steps.flight.reshape(len(steps.flight), -1), SPAN // MINUTE).reshape(steps.flight.shape) / (SPAN / SECOND)
    with np.errstate(invalid="ignore", divide="ignore"):
        growth = np.where(rate > 0, peak / rate, np.nan)
    able = _capacity(steps.done)
    cliff, rho_now, _ = _rho(flight, stall_share, np.ones(len(rate)), rate, able)
    _, rho_peak, of_slots = _rho(flight, stall_share, growth, peak, able)
    hard_cliff = alarm(cliff, LIMITS["hard_cliff"], ROUNDS + 1) & (stall_share < LOADS_SHARE)
    saturation = alarm(rho_peak, LIMITS["rho_peak"], ROUNDS + 1) & ~(of_slots & hard_cliff)
    return Looks(
        begin,
        named,
        named & hurts,
        names,
        share,
        predicted,
        misses,
        thrash,
        stall_share,
        rho_peak,
        rho_now,
        cliff,
        saturation,
        hard_cliff,
        saturation | hard_cliff | (thrash & (stall_share >= HARM_SHARE)),
        active[by_minute] / (PODS * SLOTS),
        swaps / 60 / PODS,
        steps.ttft,
        steps.e2e,
    )


def _cause(
    steps: Steps, begin: int, ends: Ints, seen: Ints, asked: Floats, loads: Floats
) -> tuple[Bools, Ints, Floats, Bools, Floats]:
    """``diagnose.new_adapters`` at each step."""
    new = np.flatnonzero((seen > begin - HOUR) & (seen < ends[-1]))
    fresh = (seen[new] >= ends[:, None] - USUAL.age) & (seen[new] < ends[:, None])
    recent = rolled(steps.finished[:, new], RECENT)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.nan_to_num((recent * fresh).sum(axis=1) / asked)
        now = np.where(asked >= 10, loads / asked, np.nan)
        first = rolled(steps.arrived, RECENT)
        before_span = np.cumsum(steps.arrived) - first, np.cumsum(steps.arrived_missed) - rolled(steps.arrived_missed, RECENT)
        done = np.cumsum(steps.finished.sum(axis=1)) - before_span[0]
        predicted = (np.cumsum(steps.finished_missed) - before_span[1]) / done
    since = np.where(fresh, seen[new], 1 << 60).min(axis=1, initial=1 << 60)
    # whole minutes of the window that began before the first of them was seen
    bins = np.clip(-(-(since - (ends - HOUR)) // MINUTE), 0, LOOKBACK)
    places = np.arange(1, len(ends) + 1)
    low = np.maximum(places - PER_HOUR, 0)
    high = np.clip(places - PER_HOUR + bins * PER_MINUTE, 0, places)
    sums = [np.concatenate([[0], np.cumsum(values)]) for values in (steps.finished.sum(axis=1), steps.loads)]
    requests, moved = (total[np.maximum(high, low)] - total[low] for total in sums)
    with np.errstate(invalid="ignore", divide="ignore"):
        before = np.where((high - low >= 10 * PER_MINUTE) & (requests >= 10), moved / requests, np.nan)
        risen = (now >= LEAST_MISSES) & (np.isnan(before) | (now >= WORSE * before))
        coming = (predicted > LIMITS["predicted_miss_ratio"].enter) & (np.isnan(now) | (now >= LEAST_MISSES))
    spans = (steps.finished[:, new], steps.finished.sum(axis=1))
    newest, all_of = (rolled(values, USUAL.span // STEP) for values in spans)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.maximum(share, np.nan_to_num((newest * fresh).sum(axis=1) / all_of))
    return share > LEAST_SHARE, fresh.sum(axis=1), share, risen | coming, predicted


def _capacity(done: Floats) -> Floats:
    """By minute: requests a second that a pod can do, from the last ``ROUNDS`` and ``SPAN``; NaN where it is not believed."""
    length, told = ROUNDS + SPAN // MINUTE, np.full(len(done), np.nan)
    for place in np.flatnonzero(rolled(np.isfinite(done).sum(axis=1), length) >= QUEUE_MINUTES * PODS).tolist():
        values = done[max(place + 1 - length, 0) : place + 1]
        told[place] = np.quantile(values[np.isfinite(values)], 0.95)
    return told


def _rho(flight: Floats, load_share: Floats, growth: Floats, rate: Floats, able: Floats) -> tuple[Floats, Floats, Bools]:
    """``derive.saturation`` at each minute: the fullest pod's share of slots, rho, and whether slots are what runs out."""
    loads = load_share * growth
    stretch = growth * (1 - np.clip(load_share, 0, MOST_SHARE)) / (1 - np.clip(loads, 0, MOST_SHARE))
    distinct = -np.expm1(-flight * stretch[:, None, None]).sum(axis=2)
    slots = distinct.sum(axis=1) / (PODS * SLOTS)
    others = np.fmax(loads, rate / PODS / (able * (1 - np.clip(loads, 0, MOST_SHARE))))
    return distinct.max(axis=1) / SLOTS, np.maximum(slots, others), slots >= others


# -- runs and what comes out of them -------------------------------------------------------------------------------------


@cache
def usual_hours(profile: Profile, out: Path) -> Mapping[int, float]:
    """Requests by hour of the first week that was learned from."""
    for row in stored(out):
        if row["kind"] == "learn" and row["profile"] == profile:
            return {int(hour): n for hour, n in row["hours"]}
    raise SystemExit("a week to learn from comes first")


def stored(out: Path) -> list[Row]:
    """The results there are."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def first(on: Bools, times: Ints, after: int) -> int | None:
    """The first time at or behind ``after`` at which it is on."""
    places = np.flatnonzero(on & (times >= after))
    return int(times[places[0]]) if len(places) else None


def begins(on: Bools, times: Ints, gap: int = Rules().close_after) -> list[int]:
    """When a finding opens, if it closes once it was not found for ``gap``."""
    found = times[on]
    return [int(at) for n, at in enumerate(found) if n == 0 or at - found[n - 1] > gap + MINUTE]


def sustained(over: Bools, minutes: int = 10) -> Bools:
    """On from the tenth minute in a row."""
    return rolled(over, minutes) >= minutes


def one_run(kind: str, profile: Profile, seed: int, hours: Mapping[int, float]) -> Row:
    """A run of ``CHANGES``: when what was told, in seconds after the change's first request."""
    hour, _, at, _ = CHANGES[kind]
    scenario = run(kind, profile, seed)
    work = Simulation.of(scenario, seed)
    parts = list(work.days())
    steps = parts[0][1]
    for _, later in parts[1:]:
        steps = steps.and_then(later)
    begin = scenario.begin
    behind = (begin - MONDAY) // (7 * DAY) * (7 * DAY)
    peaks = Peaks(
        {
            when + behind - 7 * DAY * back: n
            for back in (0, 1)
            for when, n in hours.items()
            if when + behind - 7 * DAY * back < begin
        }
    )
    peaks.add(begin, steps.finished)
    told = looks(steps, begin, work.seen, peaks)
    changed = begin + round((at - hour) * HOUR) + moment(seed)
    new = len(work.known) - OWN
    start = int(work.asked[OWN:].min()) if new else changed
    ends = begin + np.arange(1, len(told.warned) + 1) * STEP
    minutes, warm = told.minutes(), begin + HOUR
    half = told.names >= max(new, 1) / 2

    def seconds(when: int | None) -> float | None:
        return None if when is None else round((when - start) / SECOND, 1)

    def by_minute(values: NDArray[Any]) -> NDArray[Any]:
        return values[PER_MINUTE - 1 :: PER_MINUTE]

    cause = told.warned & half
    before = (minutes >= warm) & (minutes < changed)
    return {
        "new": new,
        "minute": round((start - begin) / MINUTE, 2),
        "cause_15": seconds(first(cause, ends, start)),
        "cause_60": seconds(first(by_minute(cause), minutes, start)),
        "cause_30": seconds(first(cause[1::2], ends[1::2], start)),
        "named_15": seconds(first(told.named & half, ends, start)),
        "named_60": seconds(first(by_minute(told.named & half), minutes, start)),
        "predicted": seconds(first(by_minute(told.predicted) > LIMITS["predicted_miss_ratio"].enter, minutes, start)),
        "thrash": seconds(first(told.thrash, minutes, start)),
        "harm": seconds(first(told.harm, minutes, start)),
        "saturation": seconds(first(told.saturation | told.hard_cliff, minutes, start)),
        "warned_before": len(begins(by_minute(told.warned) & before, minutes)),
        "harm_before": len(begins(told.harm & before, minutes)),
        "rho_before": round(float(np.nanmax(told.rho_peak[before])), 3),
        "rho_after": round(float(np.nanmax(told.rho_peak[minutes >= changed])), 3),
        "active": seconds(first(told.active_ratio > 0.8, minutes, start)),
        "active_before": round(float((told.active_ratio[before] > 0.8).mean()), 3),
        "swaps": seconds(first(told.swap_rate > 0.5, minutes, start)),
        "swaps_before": round(float((told.swap_rate[before] > 0.5).mean()), 3),
        "misses": [
            round(float(np.nanmean(told.misses[ends < changed][PER_HOUR:])), 3),
            round(float(np.nanmean(told.misses[ends > changed + HOUR])), 3),
        ],
        "begin": begin,
        "thrash_on": "".join(map(str, told.thrash.astype(int))),
        "cliff_on": "".join(map(str, (told.saturation | told.hard_cliff).astype(int))),
        "stall_share": np.round(told.stall_share, 3).tolist(),
        "ttft": np.round(told.ttft, 3).tolist(),
        "e2e": np.round(told.e2e, 3).tolist(),
    }


def one_week(profile: Profile, number: int, days: float, hours: Mapping[int, float]) -> Row:
    """A healthy week: what was told without a reason, and the numbers that limits stand beside."""
    scenario = week(profile, number, days)
    work = Simulation.of(scenario, number)
    shift = scenario.begin - MONDAY - 7 * DAY
    peaks = Peaks({when + shift: n for when, n in hours.items()})
    kept: Steps | None = None
    counts: dict[str, list[NDArray[np.generic]]] = {
        name: []
        for name in (
            "warned",
            "named",
            "harm",
            "thrash",
            "swaps",
            "active",
            "ttft",
            "e2e",
            "rho_peak",
            "cliff",
            "predicted",
            "stall_share",
        )
    }
    for day, steps in work.days():
        peaks.add(day, steps.finished)
        lead = 0 if kept is None else 2
        whole = steps if kept is None else kept.and_then(steps)
        told = looks(whole, day - lead * HOUR, work.seen, peaks)
        own = slice(lead * 60, None)
        by_minute = slice(PER_MINUTE - 1, None, PER_MINUTE)
        for name, values in {
            "warned": told.warned[by_minute],
            "named": told.named[by_minute],
            "harm": told.harm,
            "thrash": told.thrash,
            "swaps": told.swap_rate,
            "active": told.active_ratio,
            "ttft": told.ttft,
            "e2e": told.e2e,
            "rho_peak": told.rho_peak,
            "cliff": told.cliff,
            "predicted": told.predicted[by_minute],
            "stall_share": told.stall_share,
        }.items():
            counts[name].append(values[own])
        kept = steps.last(2)
        say(f"{profile} week {number} day {(day - scenario.begin) // DAY}")
    all_of = {name: np.concatenate(values) for name, values in counts.items()}
    times = scenario.begin + np.arange(1, len(all_of["harm"]) + 1) * MINUTE
    warm = times > scenario.begin + HOUR
    return {
        "days": days,
        "hours": [(hour, n) for hour, n in peaks.hours.items() if hour >= scenario.begin],
        "cause": begins(all_of["warned"] & warm, times),
        "named": begins(all_of["named"] & ~all_of["warned"] & warm, times),
        "harm": begins(all_of["harm"] & warm, times),
        "thrash": begins(all_of["thrash"] & warm, times),
        "active_share": float((all_of["active"] > 0.8)[warm].mean()),
        "swaps_share": float((all_of["swaps"] > 0.5)[warm].mean()),
        "swaps": begins((all_of["swaps"] > 0.5) & warm, times),
        "highest": {
            name: round(float(np.nanmax(all_of[name][warm])), 3)
            for name in ("rho_peak", "cliff", "predicted", "swaps", "stall_share")
        },
        "begin": scenario.begin,
        "ttft": np.round(all_of["ttft"], 3).tolist(),
        "e2e": np.round(all_of["e2e"], 3).tolist(),
        "stall_shares": np.round(all_of["stall_share"], 3).tolist(),
    }


def say(text: str) -> None:
    """Where it is."""
    print(f"{time.process_time():7.0f} s CPU  {text}", flush=True)


# -- the table -----------------------------------------------------------------------------------------------------------

ENGINES: tuple[Profile, ...] = ("article", "vllm", "slow")


def tasks(seeds: int, weeks: int) -> Iterator[tuple[str, Profile, int]]:
    """What is simulated, in that order: what all else needs, runs and fresh weeks in turns, the other weeks to learn from."""
    for profile in ENGINES:
        yield "learn", profile, 0
    for seed in range(max(seeds, 2 * weeks)):
        for kind in CHANGES if seed < seeds else ():
            for profile in ENGINES:
                yield kind, profile, seed
        if seed % 2 and seed // 2 < weeks:
            for profile in ENGINES[:2]:
                yield "fresh", profile, 4 + seed // 2
    for number in range(1, weeks):
        for profile in ENGINES[:2]:
            yield "learn", profile, number


def make(out: Path, seeds: int, weeks: int, days: float) -> None:
    """Simulate what is not in ``out`` yet."""
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {(row["kind"], row["profile"], row["seed"]) for row in stored(out)}
    for kind, profile, seed in tasks(seeds, weeks):
        if (kind, profile, seed) in done:
            continue
        hours = {} if (kind, seed) == ("learn", 0) else usual_hours(profile, out)
        made = one_run(kind, profile, seed, hours) if kind in CHANGES else one_week(profile, seed, days, hours)
        with out.open("a") as file:
            file.write(json.dumps({"kind": kind, "profile": profile, "seed": seed, **made}) + "\n")
        say(
            f"{kind} {profile} {seed}: "
            + ", ".join(f"{k} {v}" for k, v in made.items() if not isinstance(v, list | str) or len(v) < 9)
        )


class Bends:
    """When the P95 latency was above twice the healthy median of its hour of day."""

    def __init__(self, rows: Sequence[Row], latency: str) -> None:
        self._latency = latency
        values = [(at // HOUR % 24, value) for row in rows for at, value in zip(minutes_of(row), row[latency], strict=True)]
        told = pl.DataFrame(values, schema=["hour", "value"], orient="row").filter(pl.col("value").is_finite())
        medians = dict(told.group_by("hour").agg(pl.col("value").median()).iter_rows())
        self._usual = np.array([medians.get(hour, np.nan) for hour in range(24)])

    def on(self, row: Row) -> Bools:
        """By minute, whether it has been so for ten."""
        return sustained(np.array(row[self._latency]) > 2 * self._usual[minutes_of(row) // HOUR % 24])

    def seconds(self, row: Row) -> float | None:
        """Of a run: from the change's first request until the first of such ten minutes began."""
        seconds = since_change(row, self.on(row))
        return None if seconds is None else seconds - 600


def minutes_of(row: Row) -> Ints:
    """The end of each of its minutes (µs UTC)."""
    return np.asarray(row["begin"] + np.arange(1, len(row["ttft"]) + 1) * MINUTE)


def told_in(unit: float, values: Sequence[float | None]) -> str:
    """Share of the runs in which there is one, median and 90th percentile, a run without one being later than all."""
    known = np.array([np.inf if value is None else value for value in values]) / unit
    if not np.isfinite(known).any():
        return "0 %"
    words = [f"{value:.{0 if unit == 1 else 1}f}" for value in np.quantile(known, [0.5, 0.9], method="higher")]
    return f"{np.isfinite(known).mean():.0%}: {', '.join(words)}".replace("inf", "never").replace("%", " %")


def told_minutes(values: Sequence[float | None]) -> str:
    """The same in minutes."""
    return told_in(60, values)


def head(*columns: str) -> None:
    """The head of a table."""
    print("\n| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns))


def line(*cells: object) -> None:
    """A line of a table."""
    print("| " + " | ".join(map(str, cells)) + " |")


def harmed(row: Row) -> Bools:
    """Of a run, at each minute: is a finding of harm there?"""
    thrash, other = (np.array([int(digit) for digit in row[name]], dtype=np.bool_) for name in ("thrash_on", "cliff_on"))
    return (thrash & (np.array(row["stall_share"]) >= HARM_SHARE)) | other


def lead(bend: Sequence[float | None], harm: Sequence[float | None]) -> str:
    """Minutes from harm to the bend in the runs that have one: median and least, and how many bends came before harm."""
    pairs = [(b, np.inf if h is None else h) for b, h in zip(bend, harm, strict=True) if b is not None]
    leads = [(b - h) / 60 for b, h in pairs]
    return f"{np.median(leads):.0f}, {min(leads):.0f} ({sum(one < 0 for one in leads)} of {len(leads)})" if leads else "–"


def table(out: Path) -> None:
    """Tell what is in ``out``, as Markdown."""
    rows = stored(out)
    learned = {profile: [row for row in rows if (row["kind"], row["profile"]) == ("learn", profile)] for profile in ENGINES}
    bends = {(profile, latency): Bends(learned[profile], latency) for profile in ENGINES for latency in ("ttft", "e2e")}
    groups = [(kind, profile) for kind in (*CHANGES, "learn", "fresh") for profile in ENGINES]
    of = {(kind, profile): [row for row in rows if (row["kind"], row["profile"]) == (kind, profile)] for kind, profile in groups}
    runs = [(kind, profile, of[kind, profile]) for kind, profile in groups if kind in CHANGES and of[kind, profile]]
    head("what happens", "engines", "runs", "cause named in time: steps of 15 s, looks each 30 s, each minute",
         "seconds until the cause: steps of 15 s", "a look a minute", "minutes until harm", "until the TTFT bends",
         "until e2e bends", "lead of harm over TTFT: median, least (bends before harm)", "over e2e")  # fmt: skip
    for kind, profile, mine in runs:
        goal = 600 if "ramp" in kind else 60
        cause = ["–"] * 3
        if mine[0]["new"]:
            looked = ("cause_15", "cause_30", "cause_60")
            within = [np.mean([row[name] is not None and row[name] <= goal for row in mine]) for name in looked]
            cause = [", ".join(f"{share:.0%}".replace("%", " %") for share in within)]
            cause += [told_in(1, [row[name] for row in mine]) for name in ("cause_15", "cause_60")]
        harm = [since_change(row, harmed(row)) for row in mine]
        bend = [[bends[profile, latency].seconds(row) for row in mine] for latency in ("ttft", "e2e")]
        line(kind, profile, len(mine), *cause, *map(told_minutes, [harm, *bend]), *(lead(one, harm) for one in bend))
    head("what happens", "engines", "new adapters told at all", "predicted misses > 0.2", "thrash",
         "active ÷ slots > 0.8: time on before", "swaps > 0.5/s: since the change (time on before)",
         "P95 TTFT > 2 × for 10 min", "P95 e2e > 2 × for 10 min", "told before the change: cause, harm")  # fmt: skip
    for kind, profile, mine in runs:
        ten = [
            [None if b is None else b + 600 for b in (bends[profile, latency].seconds(row) for row in mine)]
            for latency in ("ttft", "e2e")
        ]
        line(
            kind,
            profile,
            told_minutes([row["named_60"] for row in mine]) if mine[0]["new"] else "–",
            told_minutes([row["predicted"] for row in mine]),
            told_minutes([row["thrash"] for row in mine]),
            f"{np.mean([row['active_before'] for row in mine]):.2f}",
            f"{told_minutes([row['swaps'] for row in mine])} ({np.mean([row['swaps_before'] for row in mine]):.2f})",
            *map(told_minutes, ten),
            f"{sum(row['warned_before'] for row in mine)}, {sum(row['harm_before'] for row in mine)}",
        )
    head("healthy weeks", "engines", "days", "harm", "cause", "information: new adapters", "thrash",
         "active ÷ slots > 0.8: time on", "swaps > 0.5/s: alarms, time on", "P95 TTFT > 2 × for 10 min: alarms",
         "highest rho, share of time in loads")  # fmt: skip
    for kind, profile in groups:
        if kind in CHANGES or not (mine := of[kind, profile]):
            continue
        bent = sum(len(begins(bends[profile, "ttft"].on(row), minutes_of(row))) for row in mine)
        line(
            "to learn from" if kind == "learn" else kind,
            profile,
            f"{sum(row['days'] for row in mine):g}",
            *(sum(len(row[name]) for row in mine) for name in ("harm", "cause", "named", "thrash")),
            f"{np.mean([row['active_share'] for row in mine]):.2f}",
            f"{sum(len(row['swaps']) for row in mine)}, {np.mean([row['swaps_share'] for row in mine]):.3f}",
            bent,
            ", ".join(f"{max(row['highest'][name] for row in mine):.2f}" for name in ("rho_peak", "stall_share")),
        )


def since_change(row: Row, on: Bools) -> float | None:
    """Of a run: seconds from the change's first request until it is on."""
    start = row["begin"] + round(row["minute"] * MINUTE)
    at = first(on, minutes_of(row), start)
    return None if at is None else (at - start) / SECOND


def main() -> None:
    """Simulate what is missing, then tell all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=Path("detection_study.jsonl"), help="results, one a line; remove it to begin anew"
    )
    parser.add_argument("--seeds", type=int, default=20, help="runs of each kind and profile")
    parser.add_argument("--weeks", type=int, default=4, help="healthy weeks to learn from, and as many fresh ones")
    parser.add_argument("--days", type=float, default=7, help="days of a week")
    parser.add_argument("--table", action="store_true", help="only tell what is there")
    told = parser.parse_args()
    if not told.table:
        make(told.out, told.seeds, told.weeks, told.days)
    table(told.out)


if __name__ == "__main__":
    main()
