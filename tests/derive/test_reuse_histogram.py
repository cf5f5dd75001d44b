import numpy as np
import polars as pl
import pytest
from derive.asked import QUICK, named
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lora_watch.derive.groups import POD
from lora_watch.derive.locality import ErrorClass
from lora_watch.derive.reuse_histogram import ReuseHistogram, ReuseHistograms
from lora_watch.model import MINUTE
from lora_watch.replay.reuse import BUCKETS, edges
from lora_watch.replay.stack import misses_by_slots
from lora_watch.replay.trace import Trace

LONG = 10**9
"""A memory in which nothing fades."""


def zipf(adapters: int, requests: int, *, session: int = 1, seed: int = 1) -> NDArray[np.int32]:
    """Zipf(1.0) requests; with ``session``, 30 interleaved runs of so many requests for one adapter."""
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, adapters + 1)
    drawn = random.choice(adapters, requests, p=weights / weights.sum()).astype(np.int32)
    if session == 1:
        return drawn
    now, out = drawn[:30].copy(), np.empty(requests, dtype=np.int32)
    which, fresh = random.integers(0, 30, requests), random.random(requests) < 1 / session
    for i in range(requests):
        if fresh[i]:
            now[which[i]] = drawn[i]
        out[i] = now[which[i]]
    return out


@pytest.mark.parametrize("session", [1, 12])
@pytest.mark.parametrize("adapters", [40, 60, 500])
def test_it_is_within_three_points_of_the_exact_curve(adapters: int, session: int):
    codes = zipf(adapters, 60_000, session=session)
    slots = list(range(1, adapters + 1))
    histogram = ReuseHistogram(LONG)
    histogram.update(codes)
    exact = misses_by_slots(Trace(codes, adapters=adapters))[0, 1:] / len(codes)
    assert np.abs(histogram.curve(slots) - exact).max() < 0.03


def test_a_cycle_misses_until_it_fits():
    histogram = ReuseHistogram(LONG)
    histogram.update(list(range(5)) * 2000)
    assert histogram.curve([1, 4, 5]).tolist() == pytest.approx([1.0, 1.0, 0.0], abs=0.01)


def test_the_past_fades():
    histogram = ReuseHistogram(1000)
    histogram.update(np.arange(20_000) % 50)
    histogram.update(np.zeros(20_000, dtype=np.int32))
    assert histogram.curve([1])[0] < 0.001
    assert histogram.counts.requests == pytest.approx(1000, rel=0.01)


def test_the_weights_never_overflow():
    histogram = ReuseHistogram(1)
    histogram.update(np.zeros(5000, dtype=np.int32))
    assert histogram.counts.requests == pytest.approx(1 / (1 - np.exp(-1)), rel=1e-6)


def test_one_request_at_a_time_is_the_same_as_all_at_once():
    codes = zipf(20, 500)
    whole, bits = ReuseHistogram(100), ReuseHistogram(100)
    whole.update(codes)
    for code in codes:
        bits.update([code])
    assert bits.counts.mass.tolist() == pytest.approx(whole.counts.mass.tolist())


def test_counts_of_like_pods_add_up_to_the_mean_pod():
    parts = [ReuseHistogram(LONG) for _ in range(2)]
    for seed, part in enumerate(parts):
        part.update(zipf(40, 30_000, seed=seed))
    both = (parts[0].counts + parts[1].counts).curve([4, 16])
    assert both.tolist() == pytest.approx(parts[0].counts.curve([4, 16]).tolist(), abs=0.01)


def test_the_base_model_is_no_use():
    histogram = ReuseHistogram(LONG)
    histogram.update([0, -1, 0, -1, 0])
    assert (histogram.seen, histogram.curve([1])[0]) == (3, pytest.approx(1 / 3))


def test_nothing_counted_is_unknown():
    assert np.isnan(ReuseHistogram().counts.curve([1, 2])).all()


def test_a_memory_of_nothing_is_refused():
    with pytest.raises(ValueError, match="one request or more"):
        ReuseHistogram(0)


def test_buckets_lie_side_by_side():
    assert (np.diff(edges()) >= 1).all()
    assert len(edges()) == BUCKETS + 1


@QUICK
@given(st.integers(1, 200_000))
def test_a_reuse_time_falls_between_its_edges(reuse: int):
    histogram = ReuseHistogram(LONG)
    histogram.update([0])
    histogram.update(np.ones(min(reuse - 1, 1), dtype=np.int32))
    histogram.update(np.ones(max(reuse - 2, 0), dtype=np.int32))
    before = histogram.counts.mass.copy()
    histogram.update([0])
    bucket = int(np.argmax(histogram.counts.mass - before))
    assert edges()[bucket] < reuse <= edges()[bucket + 1]


@QUICK
@given(st.lists(st.integers(0, 12), min_size=1, max_size=300))
def test_more_slots_never_miss_more_and_one_slot_for_each_leaves_first_uses(codes: list[int]):
    histogram = ReuseHistogram(LONG)
    histogram.update(codes)
    curve = histogram.curve(range(400))
    assert (np.diff(curve) <= 1e-12).all()
    assert curve[0] == pytest.approx(1.0)
    assert curve[-1] >= len(set(codes)) / len(codes) - 1e-6


def test_frames_feed_a_histogram_for_each_pod():
    told = ReuseHistograms(POD)
    told.update(pl.concat([named("aaaa", pod="x"), named("abab", pod="y")]).lazy(), MINUTE)
    curves = told.curves([1, 2])
    assert curves.select("pod", "slots").rows() == [("x", 1), ("x", 2), ("y", 1), ("y", 2)]
    assert curves["miss_ratio"].to_list() == pytest.approx([0.25, 0.25, 1.0, 0.5], abs=1e-3)
    assert curves["error_class"].unique().to_list() == [ErrorClass.FADING]


def test_feeding_in_parts_is_the_same_as_at_once_and_the_worst_provenance_is_kept():
    whole, parts = ReuseHistograms(), ReuseHistograms()
    first, second = named("abcab", stream="one"), named("bacca", stream="two").with_columns(pl.col("queued") + MINUTE)
    whole.update(pl.concat([first, second.with_columns(provenance=pl.lit("inferred"))]).lazy(), 2 * MINUTE)
    parts.update(first.lazy(), 2 * MINUTE)
    parts.update(second.with_columns(provenance=pl.lit("inferred")).lazy(), 2 * MINUTE)
    assert parts.curves([1, 2, 3]).equals(whole.curves([1, 2, 3]))
    assert parts.curves([1])["provenance"].item() == "inferred"


def test_a_histogram_older_than_its_memory_is_within_three_points():
    told = ReuseHistograms(memory=5)
    told.update(named("abcabcabc").lazy(), MINUTE)
    assert told.curves([1])["error_class"].item() == ErrorClass.THREE_POINTS


def test_no_requests_have_no_curve():
    told = ReuseHistograms()
    told.update(named("").lazy(), MINUTE)
    assert told.curves([1]).is_empty()
