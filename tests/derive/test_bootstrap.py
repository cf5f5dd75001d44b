import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import QUICK

from lora_watch.derive.bootstrap import (
    FEWEST_BLOCKS,
    Interval,
    block_weights,
    interval,
    quantiles,
    ratio_interval,
    standardised,
    stratified_weights,
)


def test_the_same_seed_draws_the_same_blocks():
    assert (block_weights(9, 5, seed=3) == block_weights(9, 5, seed=3)).all()
    assert (block_weights(9, 5, seed=3) != block_weights(9, 5, seed=4)).any()


def test_an_interval_leaves_a_fortieth_out_at_either_end():
    assert interval(np.arange(1001), blocks=50) == Interval(25.0, 975.0)


def test_few_blocks_give_no_interval():
    assert interval(np.arange(100), blocks=FEWEST_BLOCKS - 1) == Interval(None, None)


def test_replicates_without_a_value_may_be_few_only():
    values = np.arange(100.0)
    values[:5] = np.nan
    assert interval(values, blocks=50).low is not None
    values[:6] = np.nan
    assert interval(values, blocks=50) == Interval(None, None)


def test_a_constant_ratio_has_an_interval_of_no_width():
    blocks = np.arange(1.0, 9.0)
    span = ratio_interval(block_weights(8, 50), 3 * blocks, blocks)
    assert (span.low, span.high) == (pytest.approx(3), pytest.approx(3))


def test_a_ratio_to_nothing_has_no_interval():
    assert ratio_interval(block_weights(8, 50), np.ones(8), np.zeros(8)) == Interval(None, None)


def test_the_interval_of_a_mean_holds_it_in_19_of_20_runs():
    random = np.random.default_rng(1)
    held = 0
    for run in range(300):
        span = ratio_interval(block_weights(40, 200, run), random.normal(5, 1, 40), np.ones(40))
        assert span.low is not None
        assert span.high is not None
        held += span.low <= 5 <= span.high
    assert 0.9 <= held / 300 <= 0.98


def test_few_blocks_in_strata_that_differ_hold_the_mean_too():
    random = np.random.default_rng(2)
    held = 0
    for run in range(300):
        values = np.repeat([0.0, 10.0, 20.0], 5) + random.normal(0, 1, 15)
        means = (stratified_weights(3, 5, 300, run) @ values) / 15
        low, high = np.quantile(means, [0.025, 0.975])
        assert high - low < 3
        held += low <= 10 <= high
    assert 0.9 <= held / 300 <= 0.98


def test_weights_of_a_stratum_sum_up_to_its_blocks():
    weights = stratified_weights(4, 6, 10)
    assert weights.reshape(10, 4, 6).sum(axis=2) == pytest.approx(6)
    assert (weights >= 0).all()


def test_one_block_is_refused():
    with pytest.raises(ValueError, match="one block"):
        stratified_weights(3, 1)


def test_what_was_not_exposed_is_weighted_to_the_strata_of_what_was():
    """Stratum 0: one exposed, three not; stratum 1: two exposed, one not; stratum 2 has no exposed and is left out."""
    (counts,) = standardised(
        np.ones((1, 1)),
        block=np.zeros(8, dtype=np.int64),
        stratum=np.array([0, 0, 0, 0, 1, 1, 1, 2]),
        exposed=np.array([True, False, False, False, True, True, False, False]),
        place=np.array([1, 0, 0, 0, 1, 1, 1, 0]),
    )
    assert counts[1].tolist() == [0, 3]
    assert counts[0].tolist() == pytest.approx([1, 2])


def test_nothing_has_an_empty_histogram():
    nothing = np.empty(0, dtype=np.int64)
    counts = standardised(np.ones((3, 1)), block=nothing, stratum=nothing, exposed=nothing.astype(bool), place=nothing)
    assert counts.shape == (3, 2, 1)
    assert np.isnan(quantiles(counts, np.zeros(1), 0.95)).all()


@QUICK
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.sampled_from([0.5, 0.9, 0.95]))
def test_a_quantile_of_a_histogram_is_that_of_its_values(values: list[int], level: float):
    counts = np.bincount(values, minlength=10).astype(float)
    expected = np.quantile(values, level, method="inverted_cdf")
    assert quantiles(counts[None, :], np.arange(10.0), level).tolist() == [expected]
