from typing import Any

import polars as pl
import pytest
from builders import rows
from scenes import QUIET, quiet, scene

from lora_watch.derive.families import families
from lora_watch.derive.prefix_reuse import prefix_reuse
from lora_watch.model import SECOND, Window
from lora_watch.schema import REQUESTS

MINUTES = Window(0, 1000 * SECOND)


def asked(count: int, adapter: str, start: float, cached: int | None, prompt: int | None = 100) -> list[dict[str, Any]]:
    told = {"adapter": adapter, "prompt_tokens": prompt, "cached_tokens": cached}
    return [{**told, "arrived": round((start + n) * SECOND), "at": round((start + n) * SECOND)} for n in range(count)]


def told(*parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    frame = rows(REQUESTS, [record for part in parts for record in part]).lazy()
    return prefix_reuse(frame, families(frame, MINUTES), MINUTES).collect().to_dicts()


def test_a_split_that_halves_reuse_is_flagged_with_what_it_costs():
    (row,) = told(asked(60, "x", 0, 80), asked(30, "x", 200, 40), asked(30, "x-exp", 200, 40))
    assert (row["adapters"], row["variants"], row["flagged"]) == (["x", "x-exp"], ["x-exp"], True)
    assert (row["requests_before"], row["requests_after"], row["start"]) == (60, 60, 200 * SECOND)
    assert (row["cached_share_before"], row["cached_share_after"], row["lost_share"]) == (0.8, 0.4, pytest.approx(0.4))
    assert (row["prompt_tokens_after"], row["recomputed_tokens"]) == (6000, pytest.approx(2400))


def test_reuse_that_stays_or_grows_loses_nothing():
    (row,) = told(asked(60, "x", 0, 40), asked(60, "x-exp", 200, 60))
    assert (row["lost_share"], row["flagged"]) == (0.0, False)


def test_few_requests_say_nothing():
    assert not told(asked(10, "x", 0, 80), asked(60, "x-exp", 200, 10))[0]["flagged"]


def test_a_variant_from_the_beginning_leaves_no_before():
    (row,) = told(asked(60, "x", 0, 80), asked(60, "x-exp", 0, 10))
    assert (row["requests_before"], row["cached_share_before"], row["lost_share"], row["flagged"]) == (0, None, None, False)


def test_requests_without_counts_are_left_out():
    assert told(asked(60, "x", 0, None), asked(60, "x-exp", 200, None)) == []
    assert told(asked(60, "x", 0, 1, prompt=0), asked(60, "x-exp", 200, 1, prompt=None)) == []


def test_families_without_a_parent_and_strangers_have_no_row():
    assert told(asked(60, "x-v1", 0, 80), asked(60, "x-v2", 200, 10), asked(60, "y", 0, 80)) == []


@pytest.mark.parametrize("name", ["thursday", *QUIET])
def test_where_no_prefix_was_ever_cached_none_is_lost(name: str):
    """Simulated engines have no prefix cache."""
    played, window = quiet(name) if name in QUIET else ((lone := scene(name, 34.0, 0.5)), lone.window)
    found = prefix_reuse(played.requests, families(played.requests, window), window).collect()
    assert not found["flagged"].any()
    assert found.filter(pl.col("cached_share_after") > 0).height == 0
