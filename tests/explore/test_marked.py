"""What a browser says was marked becomes a window, or nothing."""

from typing import Any

import pytest

from lora_watch.explore.marked import marked
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
