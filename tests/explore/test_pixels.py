"""Pictures of pixels: what a reader of PNG finds in them."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lora_watch.explore.pixels import png

COLOURS = [(0, 0, 0, 0), (255, 0, 0, 255), (0, 0, 255, 71)]
rows = st.integers(1, 6).flatmap(lambda width: st.lists(st.lists(st.integers(0, 2), min_size=width, max_size=width), min_size=1))


@given(rows)
def test_a_reader_finds_the_colour_of_each_pixel(numbers: list[list[int]]):
    pixels = np.array(numbers, dtype=np.uint8)
    read = Image.open(io.BytesIO(png(pixels, COLOURS))).convert("RGBA")
    assert np.asarray(read).tolist() == [[list(COLOURS[number]) for number in row] for row in numbers]


def test_rows_that_are_alike_take_next_to_nothing():
    row = np.random.default_rng(1).integers(0, 3, size=(1, 1000), dtype=np.uint8)
    assert len(png(np.repeat(row, 500, axis=0), COLOURS)) < 10 * len(png(row, COLOURS))


def test_a_pixel_without_a_colour_is_refused():
    with pytest.raises(ValueError, match="3 colours"):
        png(np.array([[3]], dtype=np.uint8), COLOURS)
