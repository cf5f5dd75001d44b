import polars as pl
from builders import events, rows

from lora_watch import names
from lora_watch.derive.clocks import clock_offsets, on_one_clock
from lora_watch.model import SECOND
from lora_watch.schema import SAMPLES


def looks(*values: float, pod: str = "pod-0", metric: str = names.SAMPLE_CLOCK_OFFSET) -> pl.LazyFrame:
    records = [{"at": n, "pod": pod, "metric": metric, "value": v, "series": pod, "labels": "{}"} for n, v in enumerate(values)]
    return rows(SAMPLES, records).lazy()


def test_the_offset_is_the_median_so_one_slow_look_moves_nothing():
    (row,) = clock_offsets(looks(0.2, 0.2, 9.0)).collect().to_dicts()
    assert (row["offset"], row["looks"]) == (200_000, 3)


def test_other_metrics_and_values_that_are_no_number_are_left_out():
    assert clock_offsets(looks(1.0, metric="other")).collect().height == 0
    assert clock_offsets(looks(float("nan"), float("inf"))).collect().height == 0


def test_times_are_moved_by_the_offset_of_their_pod():
    moved = on_one_clock(events("a:10-20").lazy(), clock_offsets(looks(2.0)), "at").sort("at").collect()
    assert moved["at"].to_list() == [8 * SECOND, 18 * SECOND]
    assert moved["clock_error"].to_list() == [5_000, 5_000]


def test_without_an_offset_times_stay_and_the_error_is_wide():
    for offsets in (None, clock_offsets(looks(2.0, pod="another"))):
        moved = on_one_clock(events("a:10-").lazy(), offsets, "at").collect()
        assert (moved["at"].item(), moved["clock_error"].item()) == (10 * SECOND, 50_000)
