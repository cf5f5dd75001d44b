"""A condition as a value says what Prometheus would."""

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.rules.condition import Clause, Compare, Condition, Episode, episodes
from lora_watch.rules.thresholds import Threshold

HALF = Threshold(0.5, "half")
MINUTE = timedelta(minutes=1)
US = 60_000_000
A, B, C = (Compare(name, ">", HALF) for name in ("a", "b", "c"))


def values(**known: float | None) -> dict[tuple[str, tuple[tuple[str, str], ...]], float | None]:
    return {(name, ()): value for name, value in known.items()}


def run(pattern: str, for_: int, keep: int) -> list[tuple[int, int, int | None]]:
    """Episodes of a pattern, a letter a minute (x: it holds), in minutes."""
    held = [(n * US, letter == "x") for n, letter in enumerate(pattern)]
    found = episodes(held, for_ * MINUTE, keep * MINUTE)
    return [(one.pending // US, one.start // US, None if one.end is None else one.end // US) for one in found]


@pytest.mark.parametrize(
    ("known", "holds"),
    [({"a": 0.6}, True), ({"a": 0.5}, False), ({"a": None}, False), ({}, False), ({"a": float("nan")}, False)],
)
def test_a_comparison_holds_where_the_value_is_known_and_past_the_limit(known: dict[str, float | None], holds: bool):
    assert A.holds(values(**known)) is holds


def test_all_of_also_must_hold():
    clause = Clause(A, also=(B,))
    assert clause.holds(values(a=1.0, b=1.0))
    assert not clause.holds(values(a=1.0, b=0.1))
    assert not clause.holds(values(a=1.0))


def test_what_is_unknown_excludes_nothing():
    clause = Clause(A, unless=(B,))
    assert clause.holds(values(a=1.0))
    assert not clause.holds(values(a=1.0, b=1.0))


def test_any_clause_is_enough():
    condition = Condition((Clause(A), Clause(B)), MINUTE, MINUTE)
    assert condition.holds(values(b=1.0))
    assert condition.series == ("a", "b")


def test_the_text_is_what_prometheus_evaluates():
    condition = Condition((Clause(A, also=(B,), unless=(C,)), Clause(Compare("d", "<", HALF, (("x", "1"),)))), MINUTE, MINUTE)
    on = "on (cluster, pool, role)"
    assert condition.promql == f'a > 0.5\nand {on} b > 0.5\nunless {on} c > 0.5\nor\nd{{x="1"}} < 0.5'


def test_an_operator_that_is_none_is_refused():
    with pytest.raises(ValueError, match="not '='"):
        Compare("a", "=", HALF)


def test_a_condition_without_clauses_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        Condition((), MINUTE, MINUTE)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (".xxx.....", [(1, 3, 5)]),
        (".x.x.x...", []),
        (".xxx.xx...", [(1, 3, 8)]),
        (".xxxx", [(1, 3, None)]),
        ("xxx...xxx..", [(0, 2, 4), (6, 8, 10)]),
    ],
)
def test_an_alert_waits_fires_and_keeps_firing(pattern: str, found: list[tuple[int, int, int | None]]):
    assert run(pattern, for_=2, keep=1) == found


def test_without_times_an_alert_follows_its_condition():
    assert run(".xx.x", for_=0, keep=0) == [(1, 1, 3), (4, 4, None)]


@given(st.text("x.", max_size=40), st.integers(0, 4), st.integers(0, 4))
def test_episodes_are_in_order_apart_and_start_after_their_wait(pattern: str, for_: int, keep: int):
    found = run(pattern, for_, keep)
    assert all(start - pending >= for_ for pending, start, _ in found)
    assert all(end is None or end > start for _, start, end in found)
    assert all(first[2] is not None and first[2] <= second[0] for first, second in pairwise(found))


def test_an_episode_names_its_moments():
    assert list(episodes([(0, True)], timedelta(0), timedelta(0))) == [Episode(0, 0, None)]
