"""Whether the hours of a day ask for adapters of their own."""

import polars as pl
import pytest

from lora_watch.derive.shifts import shifts
from lora_watch.model import HOUR, SECOND, Window
from lora_watch.schema import REQUESTS
from tests.builders import rows

DAY = Window(0, 24 * HOUR)


def asked(*blocks):
    """300 requests of each block of four hours, its adapters in turn."""
    return rows(
        REQUESTS,
        [
            {"at": at, "queued": at, "adapter": names[n % len(names)]}
            for block, names in enumerate(blocks)
            for n in range(300)
            for at in [block * 4 * HOUR + n * 20 * SECOND]
        ],
    ).lazy()


def found(*blocks, window=DAY):
    return shifts(asked(*blocks), window).collect().to_dicts()


def test_the_same_mix_at_all_hours_is_no_shift():
    (row,) = found("ab", "ab", "ab")
    assert (row["flagged"], row["least_overlap_ratio"]) == (False, 1.0)


def test_day_and_night_with_nothing_in_common_are_flagged():
    (row,) = found("ab", "ab", "cd")
    assert (row["flagged"], row["least_overlap_ratio"], row["least_from"], row["least_to"]) == (True, 0.0, 0, 8 * HOUR)


def test_overlap_is_the_share_of_requests_two_blocks_have_in_common():
    (row,) = found("ab", "ac")
    assert row["least_overlap_ratio"] == pytest.approx(0.5)


def test_one_block_has_nothing_to_be_compared_with():
    assert found("ab") == []


def test_blocks_that_the_window_cuts_are_left_out():
    assert found("ab", "cd", window=Window(HOUR, 24 * HOUR)) == []


def test_a_block_of_a_few_requests_is_left_out():
    few = rows(REQUESTS, [{"at": 20 * HOUR, "queued": 20 * HOUR, "adapter": "z"}]).lazy()
    (row,) = shifts(pl.concat([asked("ab", "ab"), few]), DAY).collect().to_dicts()
    assert row["blocks"] == 2


def test_requests_for_the_base_model_are_no_mix():
    assert found([None], [None]) == []
