from typing import Any

import numpy as np
import pytest
from builders import rows
from hypothesis import given
from hypothesis import strategies as st
from strategies import QUICK

from lora_watch.derive.stalls import StallClock, stalls
from lora_watch.model import SECOND
from lora_watch.schema import ADAPTER_EVENTS


def load(adapter: str, done: float, seconds: float | None, **more: Any) -> dict[str, Any]:
    """A load that was complete at ``done`` and took ``seconds``."""
    base = {"kind": "load", "tier": "gpu", "adapter": adapter, "reason": "demand", "ok": True, "in_step": True}
    return {**base, "at": round(done * SECOND), "seconds": seconds, **more}


def spans(*records: dict[str, Any]) -> list[tuple[str, float | None, float | None]]:
    told = stalls(rows(ADAPTER_EVENTS, records).lazy()).collect().sort("at", "start")
    return [
        (adapter, None if start is None else start / SECOND, None if end is None else end / SECOND)
        for adapter, start, end in told.select("adapter", "start", "end").iter_rows()
    ]


def test_a_load_stalls_from_its_begin_until_it_is_complete():
    assert spans(load("a", 10, 2.5)) == [("a", 7.5, 10.0)]


def test_of_two_loads_at_once_the_first_to_begin_has_the_time_they_share():
    assert spans(load("a", 10, 4), load("b", 12, 5)) == [("a", 6.0, 10.0), ("b", 10.0, 12.0)]


def test_a_load_within_another_has_no_time_of_its_own():
    assert spans(load("a", 10, 8), load("b", 6, 2)) == [("b", 6.0, 6.0), ("a", 2.0, 10.0)]


@pytest.mark.parametrize("seconds", [None, float("nan"), float("inf"), -1.0, 1e9])
def test_a_length_that_cannot_be_is_unknown(seconds: float | None):
    assert spans(load("a", 10, seconds)) == [("a", None, None)]


def test_engines_stall_by_themselves():
    assert spans(load("a", 10, 4), load("b", 12, 5, pod="other")) == [("a", 6.0, 10.0), ("b", 7.0, 12.0)]


def test_warm_ups_are_no_stalls_and_what_is_said_twice_counts_once():
    once = load("a", 10, 1)
    assert spans(load("x", 5, 1, reason="warmup"), {**once, "seq": 7}, {**once, "seq": 7}) == [("a", 9.0, 10.0)]


def test_a_failed_load_took_its_time_too():
    assert spans(load("a", 10, 1, ok=False)) == [("a", 9.0, 10.0)]


def test_spans_of_one_clock_never_overlap():
    with pytest.raises(ValueError, match="never overlap"):
        StallClock.of(np.array([0, 3]), np.array([4, 5]))


@st.composite
def clocks(draw: st.DrawFn) -> StallClock:
    steps = draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=8))
    edges = np.cumsum([step for pair in steps for step in pair], dtype=np.int64)
    return StallClock.of(edges[::2], edges[1::2])


@QUICK
@given(clocks(), st.lists(st.integers(-5, 400), min_size=1, max_size=30))
def test_stalled_time_is_the_count_of_stalled_moments(clock: StallClock, times: list[int]):
    at = np.array(sorted(times), dtype=np.int64)
    stalled = [
        sum(any(s <= u < e for s, e in zip(clock.start, clock.end, strict=True)) for u in range(-5, t)) for t in at.tolist()
    ]
    assert clock.stalled(at).tolist() == stalled


@QUICK
@given(clocks(), st.integers(-5, 200))
def test_the_way_to_the_own_clock_and_back_leads_to_where_it_first_showed_the_time(clock: StallClock, own: int):
    real = clock.real(np.array([own]))
    assert clock.own(real).tolist() == [own]
    assert (clock.own(real - 1) < own).all()
