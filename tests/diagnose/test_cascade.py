"""Chains of swaps."""

from diagnose.told import WINDOW, found

from lora_watch.diagnose.cascade import LEAST_CHAINS, LONG, cascade
from lora_watch.diagnose.finding import Severity

ROW = {"adapters": ["a", "b", "a", "c"], "swaps": LONG, "mean_reload_seconds": 4.0, "flagged": False}


def told(*rows):
    return list(cascade(found("cascades", *rows), WINDOW))


def test_chains_of_a_thrashing_pool_are_told_with_their_ring():
    (one,) = told(*[ROW] * LEAST_CHAINS)
    assert one.severity is Severity.INFORMATION
    assert one.adapters == ("a", "b", "c")
    assert f"up to {LONG} swaps in a row on pod-0 (a, b and c)" in one.summary


def test_a_few_chains_are_not_worth_telling():
    assert told(*[ROW] * (LEAST_CHAINS - 1)) == []


def test_short_chains_are_in_healthy_pools_too():
    assert told(*[{**ROW, "swaps": LONG - 1}] * 9) == []


def test_the_longest_chain_speaks_for_all():
    (one,) = told(*[ROW] * LEAST_CHAINS, {**ROW, "swaps": 40, "pods": ["pod-9"]})
    assert one.weight == 40
    assert "40 swaps in a row on pod-9" in one.summary
