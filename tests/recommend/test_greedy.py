"""The greedy order: by exact gains, within the slots, and near the best set that there is."""

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch.recommend.greedy import pooled_order, recorded_order
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import Trace
from tests.recommend.months import month, ring


def everybody(history) -> np.ndarray:
    return np.ones(history.trace.adapters, dtype=np.bool_)


def cost(trace: Trace, slots: int, pins: tuple[int, ...]) -> int:
    """Loads with their preloads."""
    return replay(trace, Fleet(slots, pins=[(0, a) for a in pins])).loads + len(pins)


def test_in_a_ring_all_but_one_slot_are_worth_a_pin():
    history = month(ring(4, 7), 7)
    assert len(pooled_order(history, everybody(history))) == len(recorded_order(history, everybody(history))) == 2


def test_a_pin_that_is_worth_something_beside_others_only_comes_behind_them():
    history = month(ring(3, 7), 7)  # everything fits: no pin is worth its load
    assert len(pooled_order(history, everybody(history))) == len(recorded_order(history, everybody(history))) == 2


def test_nobody_else_than_who_is_allowed_is_pinned():
    history = month(ring(4, 7), 7)
    assert pooled_order(history, np.array([False, False, True, False])) == [2]
    assert recorded_order(history, np.array([False, False, True, False])) == [(0, 2)]


def test_a_load_that_takes_longer_is_worth_more():
    history = month(ring(4, 7), 7, load_seconds=[1, 1, 9, 1])
    assert pooled_order(history, everybody(history))[0] == 2


def test_old_gains_fade():
    codes = [n % 3 for n in range(240)] + [3 + n % 3 for n in range(160)]  # a ring of three, and in the last four days another
    history = month(codes, 10, slots=(2,))
    assert pooled_order(history, everybody(history), None)[0] in {0, 1, 2}
    assert pooled_order(history, everybody(history))[0] in {3, 4, 5}


def test_pods_are_learned_from_apart():
    codes, pod = [n // 2 % 3 for n in range(280)], [n % 2 for n in range(280)]
    codes = [code if p == 0 else 3 for code, p in zip(codes, pod, strict=True)]
    history = month(codes, 7, slots=(2, 2), pod=pod)
    assert recorded_order(history, everybody(history))[0][0] == 0


def test_a_history_without_adapters_has_no_order():
    history = month([-1] * 20, 7, adapters=0)
    assert pooled_order(history, everybody(history)) == recorded_order(history, everybody(history)) == []


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_the_first_choice_is_never_worse_than_none_and_the_set_loads_at_most_a_third_more_than_the_best(seed: int, slots: int):
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, 8)
    trace = Trace(random.choice(7, 300, p=weights / weights.sum()), adapters=7)
    history = month(trace.adapter.tolist(), 7, slots=(slots,), adapters=7)
    order = tuple(pooled_order(history, everybody(history), None))
    none = cost(trace, slots, ())
    ours = min(cost(trace, slots, order[:count]) for count in range(len(order) + 1))
    best = min(cost(trace, slots, pins) for count in range(slots) for pins in combinations(range(7), count))
    assert best <= ours <= none
    assert ours <= 4 / 3 * best
