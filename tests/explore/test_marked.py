"""What a browser says was marked becomes a window, or nothing."""

from typing import Any

import pytest

from lora_watch.explore.marked import clicked, marked
from lora_watch.model import SECOND, Window

NOON = 1_772_712_000 * SECOND


def test_a_box_over_time_is_a_window():
    assert marked({"box": [{"x": ["2026-03-05 12:00:00.25", "2026-03-05 12:00:02"]}]}) == Window(
        NOON + SECOND // 4, NOON + 2 * SECOND
    )


def test_a_box_drawn_from_right_to_left_is_the_same():
    assert marked({"box": [{"x": ["2026-03-05 12:00:02", "2026-03-05 12:00"]}]}) == Window(NOON, NOON + 2 * SECOND)


def test_a_box_as_thin_as_a_line_is_a_second():
    assert marked({"box": [{"x": ["2026-03-05 12:00:00", "2026-03-05 12:00:00"]}]}) == Window(NOON, NOON + SECOND)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"box": []},
        {"box": [{}]},
        {"box": [{"x": [1, 2]}]},
        {"box": [{"x": ["soon", "later"]}]},
        {"box": [{"x": ["2026-03-05"]}]},
        {"box": [{"x": ["1926-03-05", "2026-03-05"]}]},
        {"box": [{"x": ["2020-03-05", "2026-03-05"]}]},
        {"box": "x"},
    ],
)
def test_what_makes_no_sense_is_nothing(said: dict[str, Any]):
    assert marked(said) is None


def test_a_bar_that_is_clicked_is_its_adapter():
    said = {"points": [{"curve_number": 0, "customdata": [1]}, {"curve_number": 3, "customdata": [0]}]}
    assert clicked(said, ["a", "b"]) == "b"
    assert clicked({"points": [{"curve_number": 0, "customdata": 0}]}, ["a", "b"]) == "a"


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"points": []},
        {"points": "x"},
        {"points": [{"curve_number": 1, "customdata": [0]}]},
        {"points": [{"curve_number": 0, "customdata": [2]}]},
        {"points": [{"curve_number": 0, "customdata": [-1]}]},
        {"points": [{"curve_number": 0, "customdata": ["a"]}]},
        {"points": [{"curve_number": 0}]},
    ],
)
def test_a_click_that_makes_no_sense_is_nothing(said: dict[str, Any]):
    assert clicked(said, ["a", "b"]) is None
