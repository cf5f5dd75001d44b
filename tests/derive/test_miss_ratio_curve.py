import numpy as np
import polars as pl
import pytest
from derive.asked import QUICK, asked, named, traffic
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.derive.groups import POD, POOL
from lora_watch.derive.miss_ratio_curve import miss_ratio_curve, miss_ratio_curves
from lora_watch.model import SECOND, Window
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import Trace

MINUTE = Window(0, 60 * SECOND)


def replayed(frame: pl.DataFrame, window: Window, slots: int) -> int:
    """Loads in the window of one cache that serves the frame's adapters in order of arrival, from empty."""
    rows = frame.filter(pl.col("adapter").is_not_null()).sort("queued", "seq", "stream")
    codes = {name: code for code, name in enumerate(sorted(set(rows["adapter"])))}
    trace = Trace([codes[name] for name in rows["adapter"]], at=rows["queued"].to_numpy())
    inside = (trace.at >= window.start) & (trace.at < window.end)
    return int((replay(trace, Fleet(slots)).lookup[inside] > 0).sum())


def test_the_curve_ends_where_only_first_uses_miss():
    told = miss_ratio_curve(named("abcabc").lazy(), MINUTE)
    assert told.select("slots", "requests", "misses", "first_uses").rows() == [(1, 6, 6, 3), (2, 6, 6, 3), (3, 6, 3, 3)]
    assert told.select("method", "error_class", "provenance", "held_from").unique().rows() == [
        ("arrivals", "exact", "observed", 0)
    ]


def test_the_past_warms_the_slots_and_is_not_counted():
    told = miss_ratio_curve(named("abcabc").lazy(), Window(3 * SECOND, 60 * SECOND), slots=[3])
    assert told.select("requests", "misses", "first_uses").rows() == [(3, 0, 0)]


def test_pods_have_slots_of_their_own():
    frame = pl.concat([named("abab", pod="x"), named("aaaa", pod="y")]).lazy()
    told = miss_ratio_curve(frame, MINUTE, POD, slots=[1])
    assert told.select("pod", "misses").rows() == [("x", 4), ("y", 1)]


def test_the_slots_told_are_the_rows_whatever_the_adapters():
    told = miss_ratio_curve(named("ab").lazy(), MINUTE, slots=[9, 0, 9])
    assert told.select("slots", "misses").rows() == [(0, 2), (9, 2)]


def test_negative_slots_are_refused():
    with pytest.raises(ValueError, match="0 or more, got -1"):
        miss_ratio_curve(named("ab").lazy(), MINUTE, slots=[-1])


def test_a_group_silent_in_the_window_has_no_row():
    frame = pl.concat([named("ab", pod="x"), asked([(50, "a")], pod="y")]).lazy()
    assert miss_ratio_curve(frame, Window(40 * SECOND, 60 * SECOND), POD)["pod"].unique().to_list() == ["y"]


def test_nothing_in_nothing_out():
    assert miss_ratio_curve(asked([(1, None)]).lazy(), MINUTE).is_empty()


def test_rows_said_twice_count_once():
    frame = named("abab")
    assert miss_ratio_curve(pl.concat([frame, frame]).lazy(), MINUTE)["requests"].to_list() == [4, 4]


@QUICK
@given(traffic(), st.integers(0, 90))
def test_it_equals_a_replay_at_every_number_of_slots(frame: pl.DataFrame, start: int):
    window = Window(start * SECOND, 101 * SECOND)
    for row in miss_ratio_curve(frame.lazy(), window, POOL, slots=range(1, 8)).iter_rows(named=True):
        assert row["misses"] == replayed(frame, window, row["slots"])


@QUICK
@given(traffic())
def test_by_pod_it_equals_a_replay_of_each_pod(frame: pl.DataFrame):
    window = Window(0, 101 * SECOND)
    for row in miss_ratio_curve(frame.lazy(), window, POD, slots=range(1, 8)).iter_rows(named=True):
        assert row["misses"] == replayed(frame.filter(pl.col("pod") == row["pod"]), window, row["slots"])


@QUICK
@given(traffic())
def test_it_never_rises_and_windows_add_up(frame: pl.DataFrame):
    whole = miss_ratio_curve(frame.lazy(), Window(0, 101 * SECOND), slots=range(8))
    assert (np.diff(whole["misses"].to_numpy()) <= 0).all()
    halves = [miss_ratio_curve(frame.lazy(), part, slots=range(8)) for part in Window(0, 101 * SECOND).split(37 * SECOND)]
    added = pl.concat(halves).group_by("slots").agg(pl.col("misses").sum()).sort("slots")
    if not whole.is_empty():
        assert added["misses"].to_list() == whole["misses"].to_list()


@QUICK
@given(traffic(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(frame: pl.DataFrame, random: object):
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=random.randrange(2**31))  # type: ignore[attr-defined]
    assert miss_ratio_curve(shuffled.lazy(), MINUTE).equals(miss_ratio_curve(frame.lazy(), MINUTE))


def test_curves_of_several_windows_from_one_pass_are_those_of_each():
    frame = named("abcabcaabbccabcabd").lazy()
    windows = [Window(start * SECOND, (start + 6) * SECOND) for start in (0, 3, 9)]
    for slots in (None, [0, 2, 7]):
        told = miss_ratio_curves(frame, windows, slots=slots)
        assert [one.rows() for one in told] == [miss_ratio_curve(frame, window, slots=slots).rows() for window in windows]
