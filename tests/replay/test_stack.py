from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.traces import ADAPTERS, QUICK, placed

from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.stack import DEEP, FIRST, misses_by_slots, stack_distances, tree_distances
from lora_watch.replay.trace import BASE, Trace


def test_the_distance_counts_distinct_others_since_the_last_use():
    assert stack_distances(Trace([0, 1, 1, 2, 0, 2])).tolist() == [FIRST, FIRST, 0, FIRST, 2, 1]


def test_pods_have_a_stack_each():
    assert stack_distances(Trace([0, 1, 0, 0], pod=[0, 0, 1, 0])).tolist() == [FIRST, FIRST, FIRST, 1]


def test_the_base_model_stands_in_no_curve():
    trace = Trace([0, BASE, 0])
    assert stack_distances(trace).tolist() == [FIRST, FIRST, 0]
    assert misses_by_slots(trace).tolist() == [[2, 1]]


def test_no_request_has_no_miss():
    assert misses_by_slots(Trace([], adapters=2)).tolist() == [[0, 0, 0]]
    assert misses_by_slots(Trace([], adapters=0)).tolist() == [[0]]


def test_the_curve_begins_with_all_uses_and_ends_with_first_uses():
    assert misses_by_slots(Trace([0, 1, 0, 2, 0])).tolist() == [[5, 5, 3, 3]]


@QUICK
@given(placed())
def test_list_and_tree_agree(trace: Trace):
    by_tree = np.empty(len(trace), dtype=np.int32)
    tree_distances(trace.adapter, trace.pods_or_one(), trace.pods, ADAPTERS, by_tree)
    assert by_tree.tolist() == stack_distances(trace).tolist()


def test_the_base_model_stands_in_no_tree_either():
    trace = Trace([0, BASE, 1, 0], adapters=DEEP)
    assert stack_distances(trace).tolist() == [FIRST, FIRST, FIRST, 1]
    assert misses_by_slots(trace)[0, :3].tolist() == [3, 3, 2]


def test_many_adapters_take_the_tree_and_come_to_the_same_curve():
    adapter = np.random.default_rng(5).zipf(1.3, 3000) % DEEP
    few = misses_by_slots(Trace(adapter, adapters=DEEP - 1 if adapter.max() < DEEP - 1 else DEEP))
    trace = Trace(adapter, adapters=DEEP + 50, pods=2, pod=np.zeros(3000, dtype=np.int32))
    many = misses_by_slots(trace)
    width = few.shape[1]
    assert many[0, :width].tolist() == few[0].tolist()
    assert many[1].tolist() == [0] * (DEEP + 51)


@QUICK
@given(placed())
def test_replay_misses_what_the_stack_says_at_every_size(trace: Trace):
    curve = misses_by_slots(trace).sum(axis=0)
    distance = stack_distances(trace)
    for slots in range(1, ADAPTERS + 1):
        told = replay(trace, Fleet(slots))
        assert told.loads == curve[slots]
        assert ((told.lookup == 0) == ((distance >= 0) & (distance < slots))).all()


@QUICK
@given(placed())
def test_more_slots_never_miss_more(trace: Trace):
    for row in misses_by_slots(trace):
        assert all(more <= fewer for fewer, more in pairwise(row))


@QUICK
@given(placed())
def test_with_a_slot_for_each_adapter_only_first_uses_miss(trace: Trace):
    firsts = len(set(zip(trace.pod.tolist() if trace.pod is not None else [], trace.adapter.tolist(), strict=True)))
    assert misses_by_slots(trace)[:, ADAPTERS].sum() == replay(trace, Fleet(ADAPTERS)).loads == firsts


@QUICK
@given(placed(), st.permutations(range(ADAPTERS)))
def test_relabelling_adapters_changes_no_distance(trace: Trace, names: list[int]):
    other = Trace(np.array(names)[trace.adapter], adapters=ADAPTERS, pod=trace.pod, pods=trace.pods)
    assert stack_distances(other).tolist() == stack_distances(trace).tolist()


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_repeating_a_request_at_once_adds_no_miss(slots: int):
    once = Trace([0, 1, 2, 0, 1, 3])
    twice = Trace(np.repeat(once.adapter, 2))
    assert misses_by_slots(once)[0, slots] == misses_by_slots(twice)[0, slots]
