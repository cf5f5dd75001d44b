"""
Months of requests whose making is known, as arrays: what the backtest study judges advice on.

Every workload has three time zones, weekends, popularity that drifts from day to day, adapters that are retired and others that
are introduced, and batch jobs that touch every adapter; each stresses one thing more.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.recommend.history import History
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.routers import ARTICLE, LLM_D, ROUND_ROBIN, Router
from lora_watch.replay.trace import Trace

BIN = 10 * MINUTE
START = 1_790_553_600_000_000
"""A Monday, 00:00 UTC."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One way in which a month can go."""

    zipf: float = 1.0
    session: float = 1.0  # mean requests of a session, which come 15 s apart
    slots: int = 4
    pods: int = 8
    adapters: int = 79
    router: Router = ARTICLE
    ghost: float = 0.0  # share of the first week's requests that go to one adapter, which is never asked for again
    split: int | None = None  # days before the end at which the top 20 hand half of their requests to 20 new adapters
    scans: int = 1  # a day: every adapter, a few requests each, one adapter after the other
    drift: float = 0.08  # sd of the daily step of log popularity
    zones: float = 0.8  # how much less a zone asks for at night
    days: int = 30
    requests: int = 3_000_000
    hold: float = 1.5  # mean seconds that a request runs


WORKLOADS: Mapping[str, Workload] = {
    "sessions": Workload(session=12),
    "no sessions": Workload(),
    "tight (2 slots)": Workload(slots=2),
    "Zipf 1.5": Workload(zipf=1.5),
    "round robin": Workload(router=ROUND_ROBIN, slots=8),
    "ghost week": Workload(ghost=0.2),
    "A/B start": Workload(split=10),
    "batch scans": Workload(scans=12),
    "llm-d's scorer": Workload(router=LLM_D),
}


def _rates(
    workload: Workload, seed: int, random: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
    """
    Relative rates by bin and adapter, the bin of each adapter's begin (−1: long before), and which are experiments. The month
    begins on another day of the week for each seed.
    """
    base, bins = workload.adapters, workload.days * DAY // BIN
    extra = 20 if workload.split is not None else 0
    count = base + extra + (1 if workload.ghost else 0)
    weight = np.zeros(count)
    weight[:base] = 1 / np.arange(1, base + 1) ** workload.zipf
    steps = random.normal(0, workload.drift, (workload.days, base)).cumsum(axis=0)
    day = np.arange(bins) * BIN // DAY
    hour = np.arange(bins) * BIN % DAY / HOUR
    rates = np.zeros((bins, count))
    rates[:, :base] = weight[:base] * np.exp(steps[day])
    zone = random.integers(0, 3, count) * 8.0
    awake = np.clip(np.sin((hour[:, None] - 6 - zone) / 24 * 2 * np.pi), 0, None) ** 0.7
    weekend = np.where((day + seed) % 7 >= 5, 0.5, 1.0)[:, None]
    rates *= (1 - workload.zones + workload.zones * awake) * weekend
    begin = np.full(count, -1, dtype=np.int64)
    for a in random.choice(np.arange(5, base), 4, replace=False).tolist():
        begin[a] = int(random.integers(3, workload.days - 2)) * (DAY // BIN)
        rates[: begin[a], a] = 0
    for a in random.choice(np.arange(3, base), 4, replace=False).tolist():
        rates[int(random.integers(3, workload.days - 2)) * (DAY // BIN) :, a] = 0
    experiment = np.zeros(count, dtype=np.bool_)
    if workload.split is not None:
        since = (workload.days - workload.split) * (DAY // BIN)
        rates[since:, base : base + 20] = 0.5 * rates[since:, :20]
        rates[since:, :20] *= 0.5
        begin[base : base + 20] = since
        experiment[base : base + 20] = True
    if workload.ghost:
        week = 7 * DAY // BIN
        rates[:week, -1] = rates[:week].sum(axis=1) * workload.ghost / (1 - workload.ghost)
    return rates, begin, experiment


def history(workload: Workload, seed: int) -> History:
    """The month of a workload, with the pods that its router chose."""
    random = np.random.default_rng(seed)
    rates, begin, experiment = _rates(workload, seed, random)
    count = rates.shape[1]
    scanned = workload.scans * workload.days * workload.adapters * 5
    expected = rates / rates.sum() * max(workload.requests - scanned, 0) / workload.session
    drawn = random.poisson(expected)
    first = np.repeat(np.repeat(np.arange(len(drawn)), count), drawn.ravel()) * BIN
    adapter = np.repeat(np.tile(np.arange(count, dtype=np.int32), len(drawn)), drawn.ravel())
    at = first + random.integers(0, BIN, len(first))
    if workload.session > 1:
        length = random.geometric(1 / workload.session, len(at))
        place = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        adapter, at = np.repeat(adapter, length), np.repeat(at, length)
        gaps = random.exponential(15 * SECOND, len(at)).astype(np.int64)
        total = np.cumsum(np.where(place == 0, 0, gaps))
        at = at + total - np.repeat(total[place == 0], length)
    jobs = np.sort(random.integers(0, workload.days * DAY - 2 * HOUR, workload.scans * workload.days))
    touched = np.tile(np.repeat(np.arange(workload.adapters, dtype=np.int32), 5), len(jobs))
    when = np.repeat(jobs, workload.adapters * 5) + np.tile(np.arange(workload.adapters * 5) * 2 * SECOND, len(jobs))
    alive = rates[np.minimum(when // BIN, len(rates) - 1), touched] > 0
    adapter, at = np.concatenate([adapter, touched[alive]]), np.concatenate([at, when[alive]])
    inside = at < workload.days * DAY
    adapter, at = adapter[inside], at[inside]
    order = np.argsort(at, kind="stable")
    adapter, at = adapter[order], at[order] + START
    hold = random.exponential(workload.hold * SECOND, len(at)).astype(np.int64)
    free = Trace(adapter, adapters=count, pods=workload.pods, at=at, hold=hold)
    pod = replay(free, Fleet(workload.slots), workload.router).pod
    return History(
        window=Window(START, START + workload.days * DAY),
        trace=Trace(adapter, adapters=count, pod=pod, pods=workload.pods, at=at, hold=hold),
        names=tuple(f"adapter-{a:02d}" + ("-experiment" if experiment[a] else "") for a in range(count)),
        pods=tuple(f"pod-{p}" for p in range(workload.pods)),
        slots=(workload.slots,) * workload.pods,
        load_seconds=np.full(count, 0.4),
        bytes=np.full(count, 65_536_000, dtype=np.int64),
        first_seen=np.where(begin < 0, START - 60 * DAY, START + begin * BIN),
        experiment=experiment,
        provenance="observed",
    )
