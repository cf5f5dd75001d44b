"""A simulation told piece by piece: the rows and the truth are those of the whole, wherever it is cut."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulate.small import MIXED, shrunk

from lora_watch.model import DAY, HOUR, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.simulate.engines import lives, pieces
from lora_watch.simulate.rows import Part, Rows
from lora_watch.simulate.scenario import Reload, Scenario
from lora_watch.simulate.traffic import catalogue, everything
from lora_watch.simulate.truth import Hours

ODD = MIXED.model_copy(
    update={
        "begin": MIXED.begin + 1_234_567,
        "steps_seconds": 7,
        "sample_seconds": 11,
        "days": 1 / 24,
        "events": (*MIXED.events, Reload(kind="reload", start=0.3, adapter=0, pod=2, every_seconds=2)),
    }
)
"""Records, samples and hours that fall on no cut; an adapter that is read again and again."""


def told(scenario: Scenario, cuts: Sequence[int]) -> tuple[list[pl.DataFrame], dict[str, object]]:
    """All rows of a scenario that is cut at these µs after its begin, table by table, and the hours of its pods."""
    known, until = catalogue(scenario, 1), scenario.begin + round(scenario.days * DAY)
    asked = everything(scenario, known, scenario.days, 1)
    inner = sorted({scenario.begin + cut for cut in cuts if 0 < cut < until - scenario.begin})
    bounds = [scenario.begin, *inner, until]
    spans = [(Window(start, end), asked[slice(*np.searchsorted(asked.at, [start, end]))]) for start, end in pairwise(bounds)]
    rows, hours, parts = Rows(scenario, known, (), until, 1), Hours(scenario, until), list[Part]()
    for window, own in pieces(scenario, known, spans, until, 1):
        rows.go_on(own)
        parts += rows.parts(window)
        hours.count(own, window)
    frames = [
        pl.concat([getattr(part, name) for part in parts]).sort(table.key)
        for name, table in (("events", ADAPTER_EVENTS), ("requests", REQUESTS), ("samples", SAMPLES))
    ]
    return frames, hours.told()


@cache
def odd() -> tuple[list[pl.DataFrame], dict[str, object]]:
    return told(ODD, ())


@settings(max_examples=6)
@given(st.lists(st.integers(1, HOUR), min_size=1, max_size=5))
@example([HOUR // 2])  # where pod 1 starts anew
@example([HOUR // 2 + 1])
@example([60_000_000 - 1_234_567, 120_000_000 - 1_234_567])
@example([1_516_022_554, 3_491_731_487])  # between a look of the router and the next request
def test_wherever_a_simulation_is_cut_the_same_rows_come_out(cuts: list[int]):
    frames, hours = told(ODD, cuts)
    assert [one.equals(two) for one, two in zip(frames, odd()[0], strict=True)] == [True] * 3
    assert hours == odd()[1]


@pytest.mark.parametrize("name", ["hard-cliff", "prefill-decode-mismatch", "cascade", "reload-loop", "mixed"])
def test_every_quarter_of_an_hour_tells_what_the_whole_does(name: str):
    scenario = shrunk(name)
    whole, quarters = told(scenario, ()), told(scenario, range(HOUR // 4, 3 * HOUR, HOUR // 4))
    assert [one.equals(two) for one, two in zip(quarters[0], whole[0], strict=True)] == [True] * 3
    assert quarters[1] == whole[1]


def test_a_piece_holds_what_its_window_needs_and_no_more():
    known, until = catalogue(ODD, 1), ODD.begin + HOUR
    asked = everything(ODD, known, ODD.days, 1)
    windows = list(Window(ODD.begin, until).split(HOUR // 12))
    spans = [(window, asked[slice(*np.searchsorted(asked.at, [window.start, window.end]))]) for window in windows]
    whole = {(life.pod, life.boot): len(life.ready) for life in lives(ODD, known, asked, ODD.days, 1)}
    largest = dict.fromkeys(whole, 0)
    for window, own in pieces(ODD, known, spans, until, 1):
        for life in own:
            name = (life.pod, life.boot)
            largest[name] = max(largest[name], len(life.ready))
            assert life.begin < window.end
            assert life.end >= window.start
    assert all(largest[name] < whole[name] / 4 for name in whole if whole[name] > 1000)
    assert sum(whole.values()) > 4000
