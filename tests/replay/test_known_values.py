"""Figures that must come out: miss ratios with a closed form or a measured counterpart, and the incident's consistent pair."""

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_watch.model import SECOND
from lora_watch.replay.cluster import NEVER, Outcome, replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.routers import ARTICLE, ROUND_ROBIN
from lora_watch.replay.stack import misses_by_slots
from lora_watch.replay.trace import Trace

REQUESTS = 60_000
ZIPF_40 = 1 / np.arange(1, 41)
"""Forty adapters, Zipf 1.0."""
AFTER = np.concatenate([ZIPF_40[:20] / 2, ZIPF_40[20:], ZIPF_40[:20] / 2])
"""The A/B test: the twenty most used are split evenly with a variant each, so that the variants carry 42 % of requests."""


def drawn(
    weights: NDArray[np.float64], requests: int, *, per_second: float = 1.0, hold_seconds: float = 0.0, pods: int = 1
) -> Trace:
    """Independent requests, Poisson arrivals, exponential holds."""
    random = np.random.default_rng(11)
    at = np.cumsum(random.exponential(SECOND / per_second, requests)).astype(np.int64)
    hold = (random.exponential(hold_seconds, requests) * SECOND).astype(np.int64)
    adapter = random.choice(len(weights), requests, p=weights / weights.sum())
    return Trace(adapter, adapters=len(weights), at=at, hold=hold, pods=pods)


def swaps_per_pod_second(told: Outcome, pods: int) -> float:
    return told.swaps / pods / (int(told.at[-1]) - int(told.at[0])) * SECOND


def test_fifty_uniform_adapters_on_eight_slots_miss_84_percent_under_round_robin():
    told = replay(drawn(np.ones(50), 20_000, pods=12), Fleet(8), ROUND_ROBIN)
    assert told.loads / told.uses == pytest.approx(1 - 8 / 50, abs=0.01)


def test_with_ten_adapters_carrying_70_percent_they_miss_62_percent():
    skewed = np.concatenate([np.full(10, 0.7 / 10), np.full(40, 0.3 / 40)])
    told = replay(drawn(skewed, 20_000, pods=12), Fleet(8), ROUND_ROBIN)
    assert told.loads / told.uses == pytest.approx(0.62, abs=0.02)


def test_the_variants_carry_42_percent():
    assert AFTER[40:].sum() / AFTER.sum() == pytest.approx(0.42, abs=0.001)


PAIR = pytest.mark.parametrize(
    ("weights", "per_second", "swaps", "hit"),
    [(ZIPF_40, 3.7, 0.034, 0.926), (AFTER, 3.7 * 1.05, 0.129, 0.735)],
    ids=["before", "after"],
)


@PAIR
def test_one_pool_of_32_slots_gives_the_consistent_pair(
    weights: NDArray[np.float64], per_second: float, swaps: float, hit: float
):
    miss = misses_by_slots(drawn(weights, REQUESTS))[0, 32] / REQUESTS
    assert miss * per_second / 8 == pytest.approx(swaps, rel=0.05)
    assert 1 - miss == pytest.approx(hit, rel=0.05)


@PAIR
def test_the_articles_router_on_8_pods_of_4_comes_near_it(
    weights: NDArray[np.float64], per_second: float, swaps: float, hit: float
):
    """Little above the pool's miss ratio: a miss goes to the least busy pod, and not to the one with the oldest adapter."""
    trace = drawn(weights, REQUESTS, per_second=per_second, hold_seconds=1.0, pods=8)
    told = replay(trace, Fleet(4, seats=8), ARTICLE)
    pooled = misses_by_slots(Trace(trace.adapter))[0, 32]
    assert 0 <= (told.loads - pooled) / REQUESTS < 0.015
    assert swaps_per_pod_second(told, 8) == pytest.approx(swaps, rel=0.10)
    assert told.swaps == pytest.approx(told.loads, abs=32)
    assert 1 - told.loads / told.uses == pytest.approx(hit, rel=0.05)


@pytest.mark.parametrize(
    ("weights", "per_second", "mean", "p50", "p95"),
    [(ZIPF_40, 3.7, 116, 60, 273), (AFTER, 3.7 * 1.05, 31, 22, 68)],
    ids=["before", "after"],
)
def test_the_pairs_stays_are_as_long_as_measured(
    weights: NDArray[np.float64], per_second: float, mean: float, p50: float, p95: float
):
    """In a pool of 32 slots: a stay lasts slots ÷ loads per second on average (Little)."""
    told = replay(drawn(weights, REQUESTS, per_second=per_second), Fleet(32))
    stays = (told.left - told.start)[told.left != NEVER] / SECOND
    assert np.quantile(stays, 0.5) == pytest.approx(p50, rel=0.1)
    assert np.quantile(stays, 0.95) == pytest.approx(p95, rel=0.1)
    assert stays.mean() == pytest.approx(mean, rel=0.1)
