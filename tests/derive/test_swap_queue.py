from typing import Any

import polars as pl
import pytest
from builders import events, requests

from lora_watch import names
from lora_watch.derive.stays import stays
from lora_watch.derive.swap_queue import swap_queue
from lora_watch.model import SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES

HUNDRED = Window(0, 100 * SECOND)


def told(asked: pl.DataFrame, frame: pl.DataFrame, by: tuple[str, ...] = ("cluster", "pod"), **more: Any) -> dict[str, Any]:
    return swap_queue(asked.lazy(), stays(frame.lazy()), HUNDRED, by, **more).collect().row(0, named=True)


def deferred(*values: float, pod: str = "pod-0", reason: str = "deferred") -> pl.LazyFrame:
    """One sample every 10 s from 0 on."""
    where = {"cluster": "c", "pool": "p", "role": "", "pod": pod, "engine": "0", "provenance": "activity", "source": "test"}
    what = {"series": f"{pod}/{reason}", "metric": names.WAITING_BY_REASON, "labels": f'{{"reason": "{reason}"}}'}
    return SAMPLES.conform(
        pl.DataFrame([{**where, **what, "at": 10 * n * SECOND, "value": float(v)} for n, v in enumerate(values)])
    ).lazy()


def test_a_wait_for_an_adapter_on_no_slot_is_in_the_queue():
    row = told(requests("a:10/30/31/32 a:20/30/31/32"), events("b:0- a:30-"))
    assert (row["mean_depth"], row["max_depth"], row["nonzero_seconds"], row["requests"]) == (pytest.approx(0.3), 2, 20.0, 2)


def test_a_wait_for_a_resident_adapter_is_not():
    row = told(requests("a:10/30/31/32"), events("a:0-"))
    assert (row["mean_depth"], row["max_depth"], row["nonzero_seconds"], row["requests"]) == (0, 0, 0, 0)


def test_a_wait_is_cut_by_the_window():
    assert told(requests("a:90/150/151/152"), events("b:0-"))["nonzero_seconds"] == 10.0


def test_without_stays_or_times_a_wait_is_unknown_and_counted():
    assert told(requests("a:10/30/31/32"), ADAPTER_EVENTS.empty())["unknown"] == 1
    never = requests("a:10/30/31/32").with_columns(queued=pl.lit(None, dtype=pl.Int64))
    row = told(never, events("b:0-"))
    assert (row["unknown"], row["requests"]) == (1, 0)


def test_samples_fill_in_for_engines_without_requests():
    row = told(REQUESTS.empty(), ADAPTER_EVENTS.empty(), samples=deferred(0, 2, 2, 0))
    assert (row["mean_depth"], row["max_depth"], row["nonzero_seconds"], row["requests"]) == (1.0, 2, 20.0, None)
    assert (row["observed_seconds"], row["provenance"]) == (40.0, "activity")


def test_other_reasons_to_wait_are_no_swap_queue():
    assert (
        swap_queue(
            REQUESTS.empty().lazy(), stays(ADAPTER_EVENTS.empty().lazy()), HUNDRED, samples=deferred(5, 5, reason="capacity")
        )
        .collect()
        .is_empty()
    )


def test_requests_are_better_than_samples():
    row = told(requests("a:10/30/31/32"), events("a:0-"), samples=deferred(9, 9, 9))
    assert (row["mean_depth"], row["provenance"]) == (0, "observed")


def test_a_pool_stacks_the_queues_of_its_pods():
    asked = pl.concat([requests("a:10/30/31/32", pod="x"), requests("a:20/40/41/42", pod="y")])
    frame = pl.concat([events("b:0-", pod="x"), events("b:0-", pod="y")])
    row = told(asked, frame, ("cluster", "pool"))
    assert (row["max_depth"], row["nonzero_seconds"], row["mean_depth"]) == (2, 30.0, pytest.approx(0.4))


def test_by_adapter_only_requests_tell():
    row = told(requests("a:10/30/31/32"), events("b:0-"), ("adapter",), samples=deferred(1, 1, pod="other"))
    assert (row["adapter"], row["requests"]) == ("a", 1)


def test_nothing_in_nothing_out():
    assert (
        swap_queue(REQUESTS.empty().lazy(), stays(ADAPTER_EVENTS.empty().lazy()), HUNDRED, samples=SAMPLES.empty().lazy())
        .collect()
        .is_empty()
    )
