"""What a replayed difference proves: its lower bound over days drawn anew, and what the next week may bring."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from lora_watch.recommend.advice import MONTH_HOURS, Effect, Verdict
from lora_watch.recommend.judge import RESAMPLES, Judged
from lora_watch.recommend.levers import LEAST_LOADS

MODEL_ERROR = 0.03
"""Share of the loads within which the replay of a router may be wrong: a smaller effect is none."""
UNFORESEEN = 0.02
"""
Standard deviation of what a week brings beyond what its days show, as a share of the loads.

Held against two studies of benchmarks/README.md: with it promises on pins held in 49 of 52 weeks. For slots, pods, schedules and
the residency scorer half of it would do: on one seed each of these held in 93 % of its weeks at least with 0.01, 97 % with 0.02.
"""
NORMAL = 1.96
"""Standard deviations on each side of a mean that hold 95 % of what is normally distributed."""
WEEK = 7


class Measure(StrEnum):
    """What is to become less."""

    COST = "load time"
    SWAPS = "swaps"


@dataclass(frozen=True, slots=True)
class Proof:
    """
    The share of load time or swaps that a change removes: ``share``, its ``lower`` 5 % bound over days, and the 95 % interval in
    which the share of a next week lies: ``low`` … ``high``.
    """

    share: float
    lower: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """What the share and its bounds prove."""
        return ruled(self.share, self.lower, self.high)


def ruled(share: float, low: float, high: float) -> Verdict:
    """
    Advised where the share of what hurts that is gone is above the replay's own error, and its lower bound above zero; harmful
    where even the upper bound is below zero.

    >>> [str(ruled(*one)) for one in ((0.1, 0.02, 0.2), (0.02, 0.01, 0.03), (-0.1, -0.2, 0.01), (-0.1, -0.2, -0.01))]
    ['advised', 'not worth it', 'not worth it', 'harmful']
    """
    if low > 0 and share > MODEL_ERROR:
        return Verdict.ADVISED
    return Verdict.HARMFUL if high < 0 else Verdict.NOT_WORTH


def _drawn(base: NDArray[np.float64], saved: NDArray[np.float64], days: int) -> NDArray[np.float64]:
    """Shares of ``days`` days drawn from all, many times; those without loads are left out."""
    picks = np.random.default_rng(1).integers(0, len(base), (RESAMPLES, days))
    bases, saves = base[picks].sum(axis=1), saved[picks].sum(axis=1)
    return np.asarray(saves[bases > 0] / bases[bases > 0])


def proof(pairs: Sequence[tuple[Judged, Judged]], measure: Measure = Measure.COST) -> Proof | None:
    """
    From (without, with) of each judged week; None where there were fewer than ``LEAST_LOADS`` loads, or none of
    the measure: that would be chance.

    ``share = Σ (without − with − preloads) ÷ Σ without``, of the load cost or of swaps; preloads are spread over the days of
    their week. The lower bound is the 5 % quantile over days drawn anew. A next week of seven such days deviates by the spread of
    seven days drawn, by that of this estimate, by what weeks differed, and by ``UNFORESEEN``; variances of n days are widened
    by n ÷ (n − 1).
    """
    before = [_by_day(without, measure) for without, _ in pairs]
    after = [_by_day(given, measure) for _, given in pairs]
    base, saved = np.concatenate(before), np.concatenate(before) - np.concatenate(after)
    if sum(int(without.loads.sum()) for without, _ in pairs) < LEAST_LOADS or base.sum() <= 0:
        return None
    share = float(saved.sum() / base.sum())
    shares = _drawn(base, saved, len(base))
    week = _drawn(base, saved, min(WEEK, len(base)))
    weekly = [1 - given.sum() / without.sum() for without, given in zip(before, after, strict=True) if without.sum() > 0]
    between = float(np.var(weekly, ddof=1)) if len(weekly) > 1 else 0.0
    small = len(base) / max(len(base) - 1, 1)
    deviation = float(np.sqrt((np.var(week) + np.var(shares)) * small + between + UNFORESEEN**2))
    lower = share - (share - float(np.quantile(shares, 0.05))) * float(np.sqrt(small))
    return Proof(share, lower, share - NORMAL * deviation, share + NORMAL * deviation)


def _by_day(judged: Judged, measure: Measure) -> NDArray[np.float64]:
    if measure is Measure.COST:
        return judged.cost + judged.preload_cost / len(judged.cost)
    return np.asarray(judged.swaps + judged.preloads / len(judged.swaps), dtype=np.float64)


def effect(base: Judged, other: Judged, *, measured: bool, gpus_per_pod: int = 1) -> Effect:
    """
    What a change did to one judged window: swaps with the preloads, which take slots from others too; interval over its days.

    ``measured`` says whether load times are known; without them GPU hours (load time × ``gpus_per_pod``) are not.
    """
    before, after = _by_day(base, Measure.SWAPS), _by_day(other, Measure.SWAPS)
    swaps, base_swaps = int(other.swaps.sum()) + other.preloads, int(base.swaps.sum()) + base.preloads
    hours = (base.cost.sum() + base.preload_cost - other.cost.sum() - other.preload_cost) / 3600
    waits = None if base.wait_seconds is None or other.wait_seconds is None else base.wait_seconds - other.wait_seconds
    removed, low, high = None, None, None
    if base_swaps:
        removed = 1 - swaps / base_swaps
        low, high = (float(one) for one in np.quantile(_drawn(before, before - after, len(before)), [0.025, 0.975]))
        low, high = min(low, removed), max(high, removed)
    gpu_hours = float(hours * gpus_per_pod * MONTH_HOURS * 3600 / base.window.seconds) if measured else None
    return Effect(removed, low, high, swaps, base_swaps, waits, gpu_hours)
