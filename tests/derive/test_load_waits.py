from typing import Any

import polars as pl
import pytest
from builders import requests, rows
from derive.test_stalls import load

from lora_watch.derive.load_waits import load_waits
from lora_watch.model import SECOND
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS

SECONDS = ("own_load", "other_load", "queue_stall", "prefill_stall", "decode_stall")


def told(asked: str | pl.DataFrame, *records: dict[str, Any]) -> list[dict[str, Any]]:
    frame = requests(asked) if isinstance(asked, str) else asked
    return load_waits(frame.lazy(), rows(ADAPTER_EVENTS, records).lazy()).to_dicts()


def seconds(row: dict[str, Any]) -> list[float | None]:
    return [row[f"{name}_seconds"] for name in SECONDS]


def test_the_wait_for_its_own_adapter_falls_into_the_prefill():
    (row,) = told("a:10/10/13/20", load("a", 12, 2))
    assert seconds(row) == [2.0, 0.0, 0.0, 2.0, 0.0]
    assert row["own_miss"] is True


def test_loads_of_others_stall_the_queue_the_prefill_and_the_decode():
    (row,) = told("a:10/12/14/20", load("b", 11, 2), load("c", 13, 0.5), load("d", 21, 3))
    assert seconds(row) == [0.0, pytest.approx(3.5), 1.0, 0.5, pytest.approx(2.0)]
    assert row["own_miss"] is False


def test_a_request_that_met_no_load_waited_zero():
    (row,) = told("a:10/12/14/20", load("b", 9, 2))
    assert seconds(row) == [0.0] * 5


def test_a_load_of_unknown_length_makes_the_wait_unknown():
    (row,) = told("a:10/12/14/20", load("a", 13, None))
    assert seconds(row) == [None] * 5
    assert (row["unknown_loads"], row["own_miss"]) == (1, True)


def test_nothing_is_known_of_an_engine_that_nobody_watches():
    (row,) = told(requests("a:10/12/14/20", pod="dark"), load("a", 13, 1))
    assert seconds(row) == [None] * 5
    assert (row["unknown_loads"], row["own_miss"]) == (None, None)


def test_a_request_that_was_never_scheduled_waited_in_the_queue():
    never = requests("a:10/12/14/20").with_columns(scheduled=pl.lit(None, pl.Int64), first_token=pl.lit(None, pl.Int64))
    (row,) = told(never, load("b", 15, 1))
    assert seconds(row) == [0.0, 1.0, 1.0, 0.0, 0.0]


def test_without_a_first_token_the_phases_behind_the_queue_are_unknown():
    (row,) = told(requests("a:10/12/14/20").with_columns(first_token=pl.lit(None, pl.Int64)), load("b", 15, 1))
    assert seconds(row) == [0.0, 1.0, 0.0, None, None]


def test_the_base_model_waits_for_loads_too_and_has_none_of_its_own():
    record = {"at": 20 * SECOND, "queued": 10 * SECOND, "scheduled": 12 * SECOND, "finished": 20 * SECOND}
    (row,) = told(rows(REQUESTS, [{**record, "first_token": 13 * SECOND}]), load("b", 15, 1))
    assert (row["own_load_seconds"], row["other_load_seconds"], row["own_miss"]) == (0.0, 1.0, False)


def test_a_request_said_twice_has_one_row():
    twice = requests("a:10/12/14/20")
    assert len(told(pl.concat([twice, twice]), load("b", 15, 1))) == 1


def test_no_requests_give_no_rows_and_all_columns():
    nothing = load_waits(requests("").lazy(), rows(ADAPTER_EVENTS, [load("b", 15, 1)]).lazy())
    assert nothing.height == 0
    assert {f"{name}_seconds" for name in SECONDS} <= set(nothing.columns)


def test_names_are_any_text():
    name = "x\"'\n</script>🦙" * 100
    (row,) = told(requests("a:10/10/13/20").with_columns(adapter=pl.lit(name)), load(name, 12, 2))
    assert row["own_load_seconds"] == 2.0
