from collections import Counter
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from lora_watch.explore.changes import HEADING, Line, change, lines, text
from lora_watch.explore.queries import Overview
from lora_watch.model import MINUTE, Window

USUAL = Line(
    pool="p",
    window=Window(0, 5 * MINUTE),
    pods=2,
    adapters=Counter({"legal-v2": 500, "search-v2": 300, "sales-v2": 200}),
    slots=8,
    swaps=0.1,
    misses=0.05,
    queue=0.2,
    p50=(20.0, 60.0),
    open=False,
    inference=0.9,
    busy=0.99,
)
KNOWN = frozenset(USUAL.adapters)


def test_nothing_has_changed_where_all_is_as_before():
    assert change([USUAL, USUAL], USUAL, KNOWN) is None


def test_without_anything_before_nothing_has_changed():
    assert change([], USUAL, KNOWN) is None


def test_new_adapters_are_told_by_their_family_their_share_and_the_slots_they_want():
    new = replace(USUAL, adapters=USUAL.adapters + Counter({"legal-v2-test": 300, "hr-v2-test": 200}), swaps=0.4, p50=(5.0, 9.0))
    said = change([USUAL], new, KNOWN)
    assert said == (
        "2 new adapters (`*-test`) carry 33 % of requests; 5 adapters now want 8 slots, where 3 did before: swaps per second and "
        "pod 0.100 → 0.400, misses 5 % → 5 %, an adapter stays 20 s … 60 s → 5.0 s … 9.0 s (medians of the pods)."
    )


def test_new_adapters_that_begin_alike_are_a_family_too():
    new = replace(USUAL, adapters=USUAL.adapters + Counter({"tenant-a": 300, "tenant-b": 200}))
    assert "(`tenant-*`)" in (change([USUAL], new, KNOWN) or "")


def test_new_adapters_that_have_nothing_in_common_have_no_family():
    new = replace(USUAL, adapters=USUAL.adapters + Counter({"x": 300, "y": 200}))
    assert "2 new adapters carry" in (change([USUAL], new, KNOWN) or "")


def test_one_new_adapter_or_one_nobody_asks_for_is_no_change():
    assert change([USUAL], replace(USUAL, adapters=USUAL.adapters + Counter({"x-1": 100})), KNOWN) is None
    assert change([USUAL], replace(USUAL, adapters=USUAL.adapters + Counter({"x-1": 1, "x-2": 1})), KNOWN) is None


def test_adapters_no_request_of_which_ends_any_more_are_named_and_may_be_waited_for():
    said = change([USUAL], replace(USUAL, adapters=Counter({"legal-v2": 1000})), KNOWN)
    assert said is not None
    assert said.startswith(
        "no request for search-v2, sales-v2 ends any more (50 % of requests before): they wait, or nobody asks"
    )


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (replace(USUAL, adapters=Counter({name: 2 * n for name, n in USUAL.adapters.items()})), "6.7 requests per second come"),
        (replace(USUAL, swaps=0.3), "the same traffic makes more swaps"),
        (replace(USUAL, misses=0.2), "the same traffic misses more"),
        (replace(USUAL, queue=4.0), "requests wait for adapters, 4.0 on average"),
    ],
)
def test_what_else_can_change_is_told_with_the_figures(now: Line, words: str):
    said = change([USUAL, USUAL], now, KNOWN)
    assert said is not None
    assert said.startswith(words)
    assert "swaps per second and pod 0.100 →" in said


@pytest.mark.parametrize("now", [{"misses": 0.4}, {"swaps": 0.06}, {"adapters": Counter({"legal-v2": 16, "search-v2": 5})}])
def test_a_handful_of_requests_differs_by_chance_and_that_is_no_change(now: dict[str, Any]):
    few = replace(USUAL, pods=1, misses=0.3, swaps=0.03, adapters=Counter({"legal-v2": 20, "search-v2": 9, "sales-v2": 1}))
    assert change([few, few, few], replace(few, **now), KNOWN) is None


def test_what_is_not_known_is_a_dash_and_no_change():
    nothing = replace(USUAL, swaps=None, misses=None, queue=None, p50=None, inference=None, busy=None, slots=None)
    assert change([nothing], nothing, KNOWN) is None
    assert text(nothing).split() == ["3/–", "3.3", "–", "–", "–", "–", "–"]
    assert len(text(nothing)) == len(HEADING)


def test_a_median_that_is_not_reached_is_a_lower_bound():
    assert "20 s … > 2.5 h" in text(replace(USUAL, p50=(20.0, 9000.0), open=True))


def pods(**columns: list[float | None]) -> pl.DataFrame:
    names = ("warm_requests", "cold_requests", "hot", "p50_seconds", "p50_lower_bound_seconds", "slots", "swaps_per_second")
    names += ("swap_queue_mean", "share_high", "busy_ratio")
    empty = {name: [None, None] for name in names}
    return pl.DataFrame({"pool": ["p", "p"], "pod": ["a", "b"], **empty, **columns}, strict=False)


def adapters(rows: list[tuple[str, str, int]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["pool", "adapter", "requests"], orient="row")


def test_a_pool_is_the_sum_of_its_pods_and_the_range_of_their_medians():
    shown = Overview(
        Window(0, MINUTE),
        pods(
            hot=[90, 60],
            warm_requests=[10, 20],
            cold_requests=[0, 20],
            p50_seconds=[30.0, None],
            p50_lower_bound_seconds=[None, 300.0],
            slots=[4, 4],
            swaps_per_second=[0.2, 0.4],
            share_high=[0.5, 0.7],
        ),
        adapters([("p", "x", 3), ("p", "x", 4), ("p", "y", 0), ("q", "z", 1)]),
    )
    (line,) = lines(shown)
    assert (line.pool, line.pods, line.adapters, line.slots) == ("p", 2, Counter({"x": 7}), 8)
    assert line.swaps == pytest.approx(0.3)
    assert (line.misses, line.inference) == (pytest.approx(0.25), pytest.approx(0.6))
    assert (line.p50, line.open, line.busy) == ((30.0, 300.0), True, None)


def test_no_pods_are_no_lines():
    assert lines(Overview(Window(0, MINUTE), pods().clear(), adapters([]))) == []
