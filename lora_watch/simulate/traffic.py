"""Seeded traffic as arrays: Zipf demand that drifts, sessions, time zones, A/B splits, batch jobs, new and retired adapters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.replay.trace import BASE
from lora_watch.simulate.scenario import (
    RANK_16_BYTES,
    RANK_64_BYTES,
    Burst,
    Grow,
    Onboard,
    Retire,
    Scan,
    Scenario,
    Split,
    Traffic,
)

BIN = 5 * MINUTE
"""Rates are constant within a bin (µs)."""
SPAN_REQUESTS = 400_000
"""Requests that are simulated at once: at about 150 bytes each, they bound what a simulation takes in memory."""
PEAK_HOUR = 14.0 + 40 / 60
"""Hour of the day, in an adapter's own zone, at which it is asked for most."""
_TOPICS = ("legal", "medical-qa", "finance", "customer-support", "code-review", "search", "sales", "hr", "summary", "translate")
_REGIONS = ("", "-es", "-de", "-fr", "-ja", "-pt", "-hi", "-it")
_WEEKEND = (5, 6)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Every adapter that ever is, by code: the traffic's own, then the variants of splits, then those that come later."""

    names: tuple[str, ...]
    bytes: NDArray[np.int64]
    rank: NDArray[np.int64]
    born: NDArray[np.int64]
    """µs UTC at which the name is registered."""
    gone: NDArray[np.int64]
    """µs UTC at which the name is withdrawn; far off where it never is."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in the order they arrive: µs UTC, adapter code (``BASE`` for none), tokens; their number of all, from 0."""

    at: NDArray[np.int64]
    adapter: NDArray[np.int32]
    prompt: NDArray[np.uint16]
    generated: NDArray[np.uint16]
    number: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, which: slice | NDArray[np.integer]) -> "Requests":
        return Requests(*(getattr(self, one.name)[which] for one in fields(self)))


def joined(parts: Sequence[Requests]) -> Requests:
    """All of them, one behind the other."""
    return Requests(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Requests)))


def catalogue(scenario: Scenario, seed: int) -> Catalogue:
    """The adapters of a scenario. Which of them are large (rank 64 on Q, K and V) depends on the seed."""
    count = scenario.traffic.adapters
    names = [adapter_name(n) for n in range(count)]
    born = [scenario.begin] * count
    parent = list(range(count))
    for event in scenario.events:
        start = event.during(scenario.begin)[0]
        if isinstance(event, Split):
            names += [names[n] + event.suffix for n in range(event.top)]
            parent += range(event.top)
            born += [start] * event.top
        elif isinstance(event, Onboard):
            parent += range(len(names), len(names) + event.adapters)
            names += [adapter_name(len(names) + n).replace("-v2", "-v1") for n in range(event.adapters)]
            born += [start] * event.adapters
    gone = np.full(len(names), 1 << 60, dtype=np.int64)
    for event in scenario.events:
        if isinstance(event, Retire) and event.unregister:
            gone[list(event.adapters)] = event.during(scenario.begin)[0]
    large = (np.random.default_rng([seed, 1]).random(len(names)) < scenario.traffic.large_share)[parent]
    return Catalogue(
        tuple(names),
        np.where(large, RANK_64_BYTES, RANK_16_BYTES).astype(np.int64),
        np.where(large, 64, 16).astype(np.int64),
        np.array(born, dtype=np.int64),
        gone,
    )


def adapter_name(number: int) -> str:
    """
    The served name of adapter ``number``.

    >>> adapter_name(0), adapter_name(13), adapter_name(93)
    ('legal-v2', 'customer-support-es-v2', 'customer-support-9-v2')
    """
    topic, turn = _TOPICS[number % len(_TOPICS)], number // len(_TOPICS)
    return f"{topic}{_REGIONS[turn] if turn < len(_REGIONS) else f'-{turn}'}-v2"


def profile(traffic: Traffic, at: NDArray[np.int64]) -> NDArray[np.float64]:
    """
    By time (row) and zone (column): the rate as a multiple of a weekday's mean.

    Formula: ``(1 + daily_swing · cos(2π (hour − PEAK_HOUR) ÷ 24)) · (weekend on Saturday and Sunday)``, hour and weekday in the
    zone; its mean over a weekday is 1.
    """
    local = at[:, None] + np.array([round(zone * HOUR) for zone in traffic.zones], dtype=np.int64)
    hour = local % DAY / HOUR
    weekday = (local // DAY + 3) % 7  # 1970-01-01 was a Thursday
    swing = 1 + traffic.daily_swing * np.cos(2 * np.pi * (hour - PEAK_HOUR) / 24)
    return np.asarray(swing * np.where(np.isin(weekday, _WEEKEND), traffic.weekend, 1.0))


def days(scenario: Scenario, known: Catalogue, length: float, seed: int) -> Iterator[Requests]:
    """
    The requests of each day in turn, over ``length`` days; the last may be a part of one.

    Arrivals are Poisson within a bin: ``requests_per_second · weight · profile · growth``, by adapter. A session begun in the
    evening goes on in the next day. Each day is drawn from a generator of its own, so a longer simulation begins with the
    shorter one, and the same seed gives the same arrays.
    """
    end = scenario.begin + round(length * DAY)
    later, came = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)), 0
    for day, begin in enumerate(range(scenario.begin, end, DAY)):
        requests, later = _day(scenario, known, day, begin, end, later, came, seed)
        came += len(requests)
        yield requests


def _day(
    scenario: Scenario,
    known: Catalogue,
    day: int,
    begin: int,
    end: int,
    later: tuple[NDArray[np.int64], NDArray[np.int32]],
    came: int,
    seed: int,
) -> tuple[Requests, tuple[NDArray[np.int64], NDArray[np.int32]]]:
    """The requests of a day that come before ``end``, ``came`` ahead of it; and what of ``later`` and its sessions is later."""
    random = np.random.default_rng([seed, 2, day])
    at, adapter = _asked(scenario, known, day, begin, random)
    at, adapter = np.concatenate([later[0], at]), np.concatenate([later[1], adapter])
    order = np.argsort(at, kind="stable")
    at, adapter = at[order], adapter[order]
    del order
    count = int(np.searchsorted(at, begin + DAY))  # tokens are drawn for the whole day, so that one cut short begins like it
    kept = min(count, int(np.searchsorted(at, end)))
    traffic = scenario.traffic
    prompt = np.minimum(random.geometric(1 / traffic.prompt_tokens, count), 65_535).astype(np.uint16)
    generated = np.minimum(random.geometric(1 / traffic.generated_tokens, count), 65_535).astype(np.uint16)
    numbers = np.arange(came, came + kept, dtype=np.int64)
    requests = Requests(at[:kept], adapter[:kept], prompt[:kept], generated[:kept], numbers)
    return requests, (at[count:].copy(), adapter[count:].copy())


def spans(
    scenario: Scenario, known: Catalogue, length: float, seed: int, most: int = SPAN_REQUESTS
) -> Iterator[tuple[Window, Requests]]:
    """The requests of ``days``, in windows that add up to ``length`` days: of a day or, where it has more than ``most``, less."""
    whole = Window(scenario.begin, scenario.begin + round(length * DAY))
    for day, requests in zip(whole.split(DAY), days(scenario, known, length, seed), strict=True):
        count = -(-len(requests) // most) or 1
        inner = {int(requests.at[len(requests) * n // count]) for n in range(1, count)} - {day.start}
        for start, end in pairwise([day.start, *sorted(inner), day.end]):
            yield Window(start, end), requests[slice(*np.searchsorted(requests.at, [start, end]))]


def everything(scenario: Scenario, known: Catalogue, length: float, seed: int) -> Requests:
    """All days in one."""
    return joined(list(days(scenario, known, length, seed)))


def _asked(
    scenario: Scenario, known: Catalogue, day: int, begin: int, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Arrivals that begin in the day, in no order."""
    traffic = scenario.traffic
    bins = begin + np.arange(0, DAY, BIN, dtype=np.int64)
    rates = _rates(scenario, known, day, bins, random)
    starts = random.poisson(rates * (BIN / SECOND) / traffic.session_requests)
    where = np.repeat(np.arange(starts.size, dtype=np.int64), starts.ravel())
    at = bins[where // len(known)] + random.integers(0, BIN, len(where))
    adapter = (where % len(known)).astype(np.int32)
    if traffic.session_requests > 1:
        at, adapter = _sessions(traffic, at, adapter, random)
    at, adapter = _followed(traffic, at, adapter, random)
    for event, first in zip(scenario.events, _first_codes(scenario), strict=True):
        start, end = event.during(scenario.begin)
        if isinstance(event, Split):
            moved = (adapter < event.top) & (random.random(len(at)) < event.share * event.progress(at, scenario.begin))
            adapter = np.where(moved, adapter + first, adapter).astype(np.int32)
        elif isinstance(event, Retire):
            kept = ~((at >= start) & (at < end) & np.isin(adapter, event.adapters))
            at, adapter = at[kept], adapter[kept]
        elif isinstance(event, (Scan, Burst)):
            more_at, more_adapter = _extra(event, traffic.adapters, start, end, begin, random)
            at, adapter = np.concatenate([at, more_at]), np.concatenate([adapter, more_adapter])
    born = at >= known.born[adapter]
    at, adapter = at[born], adapter[born]
    if traffic.base_share:
        adapter = np.where(random.random(len(at)) < traffic.base_share, BASE, adapter).astype(np.int32)
    return at, adapter


def _first_codes(scenario: Scenario) -> list[int]:
    """For each event, the code of the first adapter it adds; those that add none have that of the next."""
    codes, cursor = [], scenario.traffic.adapters
    for event in scenario.events:
        codes.append(cursor)
        cursor += event.top if isinstance(event, Split) else event.adapters if isinstance(event, Onboard) else 0
    return codes


def _rates(
    scenario: Scenario, known: Catalogue, day: int, bins: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.float64]:
    """Requests per second by bin and adapter."""
    traffic = scenario.traffic
    own = traffic.adapters
    weight = np.zeros(len(known))
    steady = np.array(traffic.weights) if traffic.weights else np.arange(1, own + 1) ** -traffic.zipf
    weight[:own] = steady * np.exp(traffic.drift * random.standard_normal(own))
    weight /= weight.sum()
    for event, first in zip(scenario.events, _first_codes(scenario), strict=True):
        if isinstance(event, Onboard):
            weight[first : first + event.adapters] = event.share / event.adapters
    zone = np.arange(len(known)) % len(traffic.zones)
    rate = traffic.requests_per_second * weight * profile(traffic, bins)[:, zone]
    rate *= (1 + traffic.growth_per_day) ** day
    for event in scenario.events:
        start, end = event.during(scenario.begin)
        if isinstance(event, Split):
            rate *= (1 + (event.growth - 1) * event.progress(bins, scenario.begin))[:, None]
        elif isinstance(event, Grow):
            rate[(bins >= start) & (bins < end)] *= event.factor
    return np.asarray(rate)


def _sessions(
    traffic: Traffic, start: NDArray[np.int64], adapter: NDArray[np.int32], random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Each start becomes a session of one or more requests."""
    if not len(start):
        return start, adapter
    length = random.geometric(1 / traffic.session_requests, len(start))
    gaps = random.exponential(traffic.session_gap_seconds * SECOND, int(length.sum()))
    first = np.cumsum(length) - length
    gaps[first] = 0
    passed = np.cumsum(gaps)
    at = np.repeat(start, length) + (passed - np.repeat(passed[first], length)).astype(np.int64)
    return at, np.repeat(adapter, length)


def _followed(
    traffic: Traffic, at: NDArray[np.int64], adapter: NDArray[np.int32], random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """With the requests that pipelines add behind others; a later line follows what an earlier one added."""
    for line in traffic.pipelines:
        heads = at[(adapter == line.first) & (random.random(len(at)) < line.probability)]
        at = np.concatenate([at, heads + random.exponential(line.delay_seconds * SECOND, len(heads)).astype(np.int64)])
        adapter = np.concatenate([adapter, np.full(len(heads), line.then, dtype=np.int32)])
    return at, adapter


def _extra(
    event: Scan | Burst, own: int, start: int, end: int, begin: int, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The requests of batch jobs and bursts that begin within the day from ``begin``."""
    every = None if event.every_hours is None else round(event.every_hours * HOUR)
    moments = np.arange(start, min(end, begin + DAY), every, dtype=np.int64) if every else np.array([start], dtype=np.int64)
    moments = moments[(moments >= begin) & (moments < begin + DAY)]
    if isinstance(event, Scan):
        one = np.repeat(np.arange(own, dtype=np.int32), event.requests)
        offset = (np.arange(len(one)) * (event.seconds * SECOND / len(one))).astype(np.int64)
        return (moments[:, None] + offset).ravel(), np.tile(one, len(moments))
    adapter = np.tile(np.repeat(np.array(event.adapters, dtype=np.int32), event.requests), len(moments))
    spread = random.integers(0, max(round(event.seconds * SECOND), 1), len(adapter))
    return np.repeat(moments, len(adapter) // max(len(moments), 1)) + spread, adapter
