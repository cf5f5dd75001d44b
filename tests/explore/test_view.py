"""The explorer's view: what stands in an address, and what becomes of an address that somebody mangled."""

from itertools import pairwise
from urllib.parse import parse_qs

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.explore.view import MOST_NAMES, USUAL, View, days, length_of, read
from lora_watch.links import KEYS, explorer
from lora_watch.model import DAY, HOUR, MINUTE, Window

names = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=4, unique=True).map(tuple)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    start = draw(st.integers(0, 10**12))
    return Window(start * 1000, (start + draw(st.integers(1000, 86_400_000))) * 1000)


@given(
    st.builds(View, st.just("6h"), st.none(), st.booleans(), names, names, names, names, names)
    | st.builds(View, st.just(USUAL), windows(), st.just(value=False), names, names, names, names, names)
)
def test_a_view_is_read_back_from_its_query_string(view: View):
    assert read(view.query()) == (view, ())


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), st.lists(st.text(max_size=30), max_size=3)))
def test_any_query_string_gives_a_view_that_can_be_shown(query: dict[str, list[str]]):
    view, _ = read(query)
    assert view.window(2000 * DAY).seconds >= 1
    assert set(view.query()) <= set(KEYS)


def test_what_boards_write_is_read():
    address = explorer("http://x", {"from": "1796000000000", "to": "1796003600000", "pod": "{vllm-0,vllm-1}", "pool": ".*"})
    view, problems = read(parse_qs(address.partition("?")[2]))
    assert problems == ()
    assert view == View(span=Window(1_796_000_000_000_000, 1_796_003_600_000_000), pod=("vllm-0", "vllm-1"))


def test_an_address_without_a_window_is_the_last_hour_of_the_data():
    assert read({})[0].window(10 * DAY) == Window(10 * DAY - HOUR, 10 * DAY)


@pytest.mark.parametrize("query", [{"from": ["x"], "to": ["1"]}, {"from": ["5"]}, {"from": ["9"], "to": ["9"]}, {"to": ["٣"]}])
def test_a_window_that_makes_no_sense_is_said_and_passed_over(query: dict[str, list[str]]):
    view, problems = read(query)
    assert view.span is None
    assert "window in the address" in problems[0]


@pytest.mark.parametrize("last", ["soon", "-1h", "0s", "400d", "1" * 400 + "d"])
def test_a_length_that_makes_no_sense_is_said_and_passed_over(last: str):
    view, problems = read({"last": [last]})
    assert view.last == USUAL
    assert len(problems) == 1
    assert len(problems[0]) < 300


def test_more_names_than_anybody_chooses_are_cut_and_said():
    view, problems = read({"adapter": [f"a{number}" for number in range(200)]})
    assert len(view.adapter) == MOST_NAMES
    assert "200" in problems[0]


def test_any_length_that_the_configuration_takes_will_do():
    assert length_of("1h30m") == 90 * MINUTE


def test_the_chosen_pods_are_whole_pods_whatever_adapter_is_chosen():
    assert View(adapter=("a",)).pods_where() is None
    assert View(pod=("a",)).pods_where() is not None


@given(windows())
def test_the_days_of_a_window_add_up_to_it(window: Window):
    parts = days(window)
    assert (parts[0].start, parts[-1].end) == (window.start, window.end)
    assert all(before.end == after.start and after.start % DAY == 0 for before, after in pairwise(parts))


POOLS = pl.DataFrame({"cluster": ["c", "c"], "pool": ["a", "b"], "role": ["", None]})


def test_a_choice_that_leaves_no_pool_out_is_none():
    chosen = View(cluster=("c",), pool=("b", "a"), pod=("pod-0",))
    assert chosen.beside(POOLS) == View(pod=("pod-0",))


def test_a_choice_that_leaves_a_pool_out_stands():
    assert View(pool=("a",)).beside(POOLS) == View(pool=("a",))


def test_rows_that_name_no_role_are_left_out_by_a_choice_of_roles():
    assert View(role=("",)).beside(POOLS) == View(role=("",))
