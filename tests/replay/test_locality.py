import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.traces import QUICK, placed

from lora_watch.model import Window
from lora_watch.replay.locality import NEVER, next_uses, reuse_times, working_set
from lora_watch.replay.stack import stack_distances
from lora_watch.replay.trace import BASE, Trace


def test_a_reuse_time_counts_the_pods_own_uses():
    assert reuse_times(Trace([0, 1, 0, 0, BASE, 0], pod=[0, 1, 1, 0, 0, 0])).tolist() == [-1, -1, -1, 1, -1, 1]


def test_the_next_use_is_on_the_same_pod():
    assert next_uses(Trace([0, 0, 0, 1], pod=[0, 1, 0, 0])).tolist() == [2, NEVER, NEVER, NEVER]


@QUICK
@given(placed())
def test_a_stack_distance_is_below_the_reuse_time(trace: Trace):
    distance, reuse = stack_distances(trace), reuse_times(trace)
    assert ((distance < 0) == (reuse < 0)).all()
    assert (distance[reuse >= 0] <= reuse[reuse >= 0] - 1).all()


def test_the_working_set_counts_adapters_and_not_uses():
    trace = Trace([0, 1, 0, 1], at=[0, 10, 20, 30])
    assert working_set(trace, Window(0, 40), [20]).tolist() == [[2.0]]


def test_a_span_as_long_as_the_window_is_unknown():
    assert np.isnan(working_set(Trace([0], at=[0]), Window(0, 10), [10, 11])).all()


def test_a_span_without_length_is_refused():
    with pytest.raises(ValueError, match="at least 1 µs"):
        working_set(Trace([0]), Window(0, 10), [0])


def test_requests_outside_the_window_count_nowhere():
    trace = Trace([0, 1, 2], at=[-5, 5, 10])
    assert working_set(trace, Window(0, 10), [5]).tolist() == [[1.0]]


@QUICK
@given(st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 1), st.integers(0, 3)), max_size=20), st.integers(1, 30))
def test_the_working_set_is_the_mean_of_what_each_microsecond_sees(uses: list[tuple[int, int, int]], span: int):
    at = np.cumsum([gap for _, _, gap in uses]).tolist() if uses else []
    trace = Trace([a for a, _, _ in uses], adapters=5, pod=[p for _, p, _ in uses], pods=2, at=at)
    window = Window(2, 40)
    for pod in range(2):
        seen = [
            len({a for (a, p, _), t in zip(uses, at, strict=True) if a >= 0 and p == pod and max(now - span, 1) < t <= now})
            for now in range(window.start + span, window.end)
        ]
        assert working_set(trace, window, [span])[pod, 0] == pytest.approx(np.mean(seen))


@QUICK
@given(placed())
def test_the_working_set_rises_with_the_span(trace: Trace):
    curve = working_set(trace, Window(0, 10**11), [10**6, 10**8, 10**10])
    assert (np.diff(curve, axis=1) >= -1e-9).all()
