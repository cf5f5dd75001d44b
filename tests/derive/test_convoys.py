from itertools import product

import numpy as np
import polars as pl
import pytest
from builders import rows
from hypothesis import given
from hypothesis import strategies as st
from scenes import QUIET, quiet, scene
from strategies import QUICK

from lora_watch.derive.convoys import _chance, _poisson_binomial, convoys
from lora_watch.model import MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS

HALF_AN_HOUR = Window(0, 30 * MINUTE)


def loading(spans: list[tuple[int, float, float]], **common: object) -> pl.LazyFrame:
    """(pod, from, to) in seconds."""
    records = [
        {
            "pod": f"pod-{pod}",
            "stream": f"agent/c/pod-{pod}/boot",
            "at": round(end * SECOND),
            "seconds": end - begin,
            "kind": "load",
            "tier": "gpu",
            "from_tier": "cpu",
            "adapter": f"a{n % 5}",
            "reason": "demand",
            **common,
        }
        for n, (pod, begin, end) in enumerate(spans)
    ]
    return rows(ADAPTER_EVENTS, records).lazy()


def in_turn(pods: int, seconds: float) -> list[tuple[int, float, float]]:
    """For half an hour each pod loads once a minute, one behind the other."""
    return [(pod, 60 * n + 8 * pod, 60 * n + 8 * pod + seconds) for pod, n in product(range(pods), range(30))]


def together(at: float, pods: int, seconds: float) -> list[tuple[int, float, float]]:
    return [(pod, at, at + seconds) for pod in range(pods)]


def test_pods_that_load_together_for_once_are_a_flagged_convoy():
    events = loading(in_turn(4, 1.0) + together(650, 4, 9.0))
    (row,) = convoys(events, HALF_AN_HOUR).collect().filter("flagged").to_dicts()
    assert (row["start"], row["end"]) == (600 * SECOND, 660 * SECOND)
    assert (row["pods"], row["pool_pods"], row["most_pods_at_once"]) == ([f"pod-{n}" for n in range(4)], 4, 4)
    assert row["many_loading_seconds"] == pytest.approx(9.0)
    assert row["swap_share"] == pytest.approx(4 * 10 / 240)
    assert row["ratio"] > 100


def test_pods_that_load_in_turn_are_none():
    assert convoys(loading(in_turn(4, 7.0)), HALF_AN_HOUR).collect().height == 0


def test_a_convoy_below_a_tenth_of_the_time_is_not_flagged():
    frame = convoys(loading(in_turn(4, 0.1) + together(650, 4, 3.0)), HALF_AN_HOUR).collect()
    assert frame.height
    assert not frame["flagged"].any()
    assert frame["swap_share"].max() < 0.1


def test_pods_that_load_all_the_time_are_thrash_and_no_convoy():
    events = loading([(pod, 10 * n, 10 * n + 8.0) for pod, n in product(range(4), range(180))])
    frame = convoys(events, HALF_AN_HOUR).collect()
    assert not frame["flagged"].any()
    assert frame["ratio"].max() < 3


def test_a_step_in_the_load_is_no_convoy():
    """Independent pods that load for 2 % of the time, then for 20 %."""
    random = np.random.default_rng(5)
    spans = []
    for pod in range(6):
        begin = 0.0
        while begin < 1800:
            begin += float(random.exponential(49.0 if begin < 900 else 4.0))
            spans.append((pod, begin, begin + 1.0))
            begin += 1.0
    frame = convoys(loading(spans), HALF_AN_HOUR).collect()
    assert frame["swap_share"].max() > 0.1
    assert not frame["flagged"].any()


def test_convoys_side_by_side_are_one_row_and_those_apart_two():
    joined = loading(in_turn(4, 1.0) + together(645, 4, 12.0) + together(662, 4, 12.0) + together(1250, 4, 12.0))
    frame = convoys(joined, HALF_AN_HOUR).collect().filter("flagged")
    assert [(row["start"], row["end"]) for row in frame.to_dicts()] == [
        (600 * SECOND, 720 * SECOND),
        (1200 * SECOND, 1260 * SECOND),
    ]


def test_pods_that_load_once_and_together_are_a_convoy_too():
    (row,) = convoys(loading(together(650, 4, 9.0)), HALF_AN_HOUR).collect().to_dicts()
    assert (row["flagged"], row["loads"]) == (True, 4)
    assert (row["many_pods"], row["expected_seconds"]) == (4, pytest.approx(60 * (9 / 1800) ** 4))


def test_one_pod_is_no_convoy_and_nothing_makes_no_row():
    assert convoys(loading([(0, 10, 20)]), HALF_AN_HOUR).collect().height == 0
    assert convoys(ADAPTER_EVENTS.empty().lazy(), HALF_AN_HOUR).collect().height == 0


def test_pools_and_roles_are_apart():
    events = pl.concat(
        [loading(together(650, 1, 9.0), pool=pool, role=role) for pool, role in (("p", "x"), ("p", None), ("q", "x"))]
    )
    assert convoys(events, HALF_AN_HOUR).collect().height == 0


def test_a_window_of_one_bin_has_its_own_share_alone():
    frame = convoys(loading(together(10, 3, 9.0)), Window(0, MINUTE)).collect()
    assert frame["expected_seconds"].item() == pytest.approx(60 * 0.15**3)


def test_loads_across_the_windows_edges_count_inside_it():
    events = loading(in_turn(4, 1.0) + together(-5, 4, 14.0))
    (row,) = convoys(events, HALF_AN_HOUR).collect().filter("flagged").to_dicts()
    assert (row["start"], row["many_loading_seconds"]) == (0, pytest.approx(9.0))


@QUICK
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_the_poisson_binomial_is_that_of_every_outcome(shares: list[float]):
    expected = [0.0] * (len(shares) + 1)
    for outcome in product((0, 1), repeat=len(shares)):
        expected[sum(outcome)] += float(np.prod([p if up else 1 - p for p, up in zip(shares, outcome, strict=True)]))
    assert _poisson_binomial(np.array([shares]).T)[:, 0] == pytest.approx(expected)


@pytest.mark.parametrize(("observed", "expected"), [(1.0, 0.1), (5.0, 2.0), (12.0, 4.0)])
def test_the_chance_is_that_of_many_draws(observed: float, expected: float):
    random = np.random.default_rng(3)
    sums = random.gamma(np.maximum(counts := random.poisson(expected, 400_000), 1e-9)) * (counts > 0)
    assert _chance(np.array([observed]), np.array([expected]))[0] == pytest.approx((sums >= observed).mean(), rel=0.05)


def test_the_simulated_convoys_are_found_on_all_pods_when_they_happen():
    played = scene("convoy", 4.2, 2.5)
    window = played.hours(4.5, 6.7)
    frame = convoys(played.events_of(window), window).collect().filter("flagged")
    burst = played.of("burst")
    starts = [burst["start"], burst["start"] + 60 * MINUTE]
    assert frame.height
    for row in frame.to_dicts():
        assert any(row["start"] <= at < row["end"] for at in starts)
        assert row["pods"] == [f"vllm-{n}" for n in range(4)]
        assert set(burst["adapters"]) <= set(row["adapters"])


@pytest.mark.parametrize("name", QUIET)
def test_a_quiet_cluster_has_no_convoy(name: str):
    played, window = quiet(name)
    assert not convoys(played.events_of(window), window).collect()["flagged"].any()
