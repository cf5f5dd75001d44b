import math
from typing import Any

import polars as pl
import pytest
from builders import events, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch import names
from lora_watch.derive.boots import boots
from lora_watch.derive.inference_share import inference_share
from lora_watch.model import SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, SAMPLES

HUNDRED = Window(0, 100 * SECOND)
START = {"at": 0, "kind": "start", "slots": 4}


def steps(
    at: float, execute: float | None, adapter: float = 0.0, wall: float = 10.0, clock: str = "cuda", **more: Any
) -> dict[str, Any]:
    seconds = {"wall_seconds": wall, "execute_seconds": execute, "adapter_seconds": adapter}
    return {"at": int(at * SECOND), "kind": "steps", "clock": clock, **seconds, **more}


def running(*values: float, spacing: int = 10, **common: Any) -> pl.LazyFrame:
    where = {"cluster": "c", "pool": "p", "role": "", "pod": "pod-0", "engine": "0", "provenance": "activity", "source": "test"}
    what = {"series": "s", "metric": names.REQUESTS_RUNNING}
    found = [{**where, **common, **what, "at": spacing * n * SECOND, "value": float(v)} for n, v in enumerate(values)]
    return SAMPLES.conform(pl.DataFrame(found)).lazy()


def told(frame: pl.DataFrame, window: Window = HUNDRED, by: tuple[str, ...] = ("cluster", "pod"), **more: Any) -> dict[str, Any]:
    return inference_share(frame.lazy(), window, by, boots=boots(frame.lazy()), **more).collect().row(0, named=True)


def gpu(metric: str, *values: float, spacing: int = 10, uuid: str = "g", **common: Any) -> pl.LazyFrame:
    where = {"cluster": "c", "pool": "", "role": "", "pod": "pod-0", "provenance": "observed", "source": "test"}
    what = {"series": f"{metric}/{uuid}", "metric": metric}
    found = [{**where, **what, **common, "at": spacing * n * SECOND, "value": float(v)} for n, v in enumerate(values)]
    return SAMPLES.conform(pl.DataFrame(found)).lazy()


TIMED = {"at": 15 * SECOND, "kind": "load", "tier": "gpu", "adapter": "a", "in_step": True, "seconds": 4.0}
UNTIMED = {**TIMED, "seconds": None}
ENGINE, SM, TENSOR, DRAM, UTIL = (
    names.GPU_ENGINE_ACTIVE,
    names.GPU_SM_ACTIVE,
    names.GPU_TENSOR_ACTIVE,
    names.GPU_DRAM_ACTIVE,
    names.GPU_UTIL,
)


def log(*records: dict[str, Any]) -> pl.DataFrame:
    return rows(ADAPTER_EVENTS, [START, *records])


def test_cuda_timed_steps_are_grade_a():
    row = told(log(steps(10, 8, 2), steps(20, 9, 1)))
    assert (row["grade"], row["share"], row["share_low"], row["share_high"], row["adapter_share"]) == (
        "A",
        0.14,
        0.14,
        0.14,
        0.03,
    )
    assert (row["observed_seconds"], row["unobserved_seconds"]) == (100.0, 0.0)


def test_one_host_timed_record_lowers_the_grade():
    assert told(log(steps(10, 8), steps(20, 9, clock="host")))["grade"] == "A-"


def test_a_record_across_the_edge_is_split_pro_rata():
    assert told(log(steps(105, 8)))["share"] == pytest.approx(0.04)
    assert told(log(steps(15, 8)), Window(10 * SECOND, 20 * SECOND))["share"] == pytest.approx(0.4)


def test_time_before_the_boot_is_unobserved():
    late = rows(ADAPTER_EVENTS, [{**START, "at": 75 * SECOND}, steps(100, 10)])
    row = told(late, Window(0, 101 * SECOND))
    assert (row["observed_seconds"], row["unobserved_seconds"], row["share"]) == (26.0, 75.0, pytest.approx(10 / 26))


def test_bad_records_are_left_out_and_counted():
    bad = [
        steps(20, math.nan),
        steps(30, math.inf),
        steps(40, None),
        steps(50, -1),
        steps(60, 5, wall=0.0),
        steps(70, 5, math.nan),
    ]
    row = told(log(steps(10, 8), *bad))
    assert (row["bad_records"], row["share"], row["grade"]) == (6, 0.08, "A")


def test_only_bad_records_measure_nothing():
    row = told(log(steps(10, math.nan)))
    assert (row["share"], row["grade"], row["bad_records"], row["engines_unknown"]) == (None, None, 1, 1)


def test_adapter_time_is_at_most_the_execute_time():
    assert told(log(steps(10, 2, 5)))["share"] == 0.0


def test_an_idle_engine_that_tells_its_steps_is_zero():
    assert told(log(steps(10, 8)), Window(50 * SECOND, 60 * SECOND))["share"] == 0.0


def test_rows_said_twice_count_once():
    frame = log(steps(10, 8))
    assert told(pl.concat([frame, frame]))["share"] == 0.08


def test_samples_and_timed_loads_make_grade_d():
    load = {"at": 15 * SECOND, "kind": "load", "tier": "gpu", "adapter": "a", "in_step": True, "seconds": 4.0}
    row = told(log(load), samples=running(0, 1, 2, 0))
    assert (row["grade"], row["share"], row["adapter_share"], row["observed_seconds"]) == ("D", 0.4, 0.1, 40.0)
    assert (row["unobserved_seconds"], row["provenance"]) == (60.0, "activity")


def test_a_load_of_unknown_length_makes_an_interval():
    loads = [
        {"at": 15 * SECOND, "kind": "load", "tier": "gpu", "adapter": "a", "seconds": 4.0},
        {"at": 16 * SECOND, "kind": "load", "tier": "gpu", "adapter": "b"},
    ]
    row = told(log(*loads), samples=running(0, 1, 2, 0))
    assert (row["share"], row["share_low"], row["share_high"], row["adapter_share"]) == (None, 0.0, 0.4, None)


def test_loads_between_steps_stall_nothing():
    load = {"at": 15 * SECOND, "kind": "load", "tier": "gpu", "adapter": "a", "in_step": False, "seconds": 4.0}
    assert told(log(load), samples=running(0, 1, 2, 0))["share"] == 0.5


def test_an_engine_with_samples_only_has_an_interval():
    row = told(ADAPTER_EVENTS.empty(), samples=running(0, 1, 2, 0))
    assert (row["share_low"], row["share_high"], row["grade"]) == (0.0, 0.5, "D")


def test_a_gap_in_the_samples_is_unobserved():
    with_gap = pl.concat([running(1, 1, 1, 1), running(1, 1, 1).with_columns(at=pl.col("at") + 70 * SECOND)])
    row = told(log(), samples=with_gap)
    assert (row["observed_seconds"], row["unobserved_seconds"], row["share"]) == (60.0, 40.0, 1.0)


def test_steps_beat_samples():
    assert told(log(steps(10, 8)), samples=running(1, 1, 1))["grade"] == "A"


def test_a_pool_has_its_worst_grade_and_a_ratio_of_sums():
    other = rows(ADAPTER_EVENTS, [{**START, "at": 50 * SECOND}, steps(60, 10)], pod="y").with_columns(clock=pl.lit("host"))
    row = told(pl.concat([log(steps(10, 5)), other]), by=("cluster", "pool"))
    assert (row["grade"], row["share"], row["engines"]) == ("A-", pytest.approx(15 / 150), 2)


def test_a_busy_gpu_with_timed_loads_is_grade_b_from_less_all_stalls_to_more_by_the_gaps_between_kernels():
    row = told(log(TIMED), samples=gpu(ENGINE, *[0.6] * 10))
    assert (row["grade"], row["share"], row["adapter_share"]) == ("B", None, 0.04)
    assert (row["share_low"], row["share_high"]) == (pytest.approx(0.56), pytest.approx(0.6 / 0.9))
    assert (row["observed_seconds"], row["provenance"]) == (100.0, "observed")


def test_what_loads_took_is_not_inference_however_busy_the_gpu_was():
    row = told(log({**TIMED, "at": 60 * SECOND, "seconds": 50.0}), samples=gpu(ENGINE, *[1.0] * 10))
    assert (row["share_low"], row["share_high"]) == (pytest.approx(0.5), pytest.approx(0.5))


def test_of_a_load_across_the_edge_the_part_inside_is_a_stall():
    loads = [{**TIMED, "at": 1 * SECOND}, {**TIMED, "at": 103 * SECOND}]
    row = told(log(*loads), samples=gpu(ENGINE, *[0.5] * 10))
    assert row["adapter_share"] == pytest.approx(0.02)


def test_a_counter_that_is_read_late_widens_both_ends():
    row = told(log(), Window(0, 120 * SECOND), samples=gpu(ENGINE, 0.0, 0.9, 0.9, 0.9, 0.0, 0.0, 0.0, spacing=30))
    assert (row["share_low"], row["share_high"]) == (pytest.approx(0.9 / 2), pytest.approx(0.9 * 0.75 / 0.9))


def test_a_gpu_beside_loads_of_unknown_length_is_grade_c_from_nothing_on_since_all_may_have_been_loads():
    counters = [gpu(ENGINE, 0.45, 0.45), gpu(SM, 0.4, 0.4), gpu(TENSOR, 0.1, 0.1), gpu(DRAM, 0.3, 0.3)]
    row = told(log(UNTIMED), samples=pl.concat(counters))
    assert (row["grade"], row["share"], row["adapter_share"]) == ("C", None, None)
    assert (row["share_low"], row["share_high"]) == (0.0, pytest.approx(0.5))


def test_without_the_engine_counter_the_greater_of_tensor_and_dram_less_the_stall_is_the_lower_end():
    row = told(log(TIMED), samples=pl.concat([gpu(TENSOR, *[0.1] * 10), gpu(DRAM, *[0.3] * 10)]))
    assert (row["grade"], row["adapter_share"]) == ("C", 0.04)
    assert (row["share_low"], row["share_high"]) == (pytest.approx(0.26), pytest.approx(0.96))


def test_sm_active_is_the_lower_end_where_it_is_on():
    row = told(log(), samples=pl.concat([gpu(SM, 0.2, 0.2), gpu(DRAM, 0.3, 0.3)]))
    assert (row["grade"], row["share_low"], row["share_high"]) == ("C", pytest.approx(0.2), 1.0)


def test_the_upper_end_is_the_lesser_of_busy_and_nonidle():
    seen = [gpu(ENGINE, *[0.9] * 10), running(0, 1, 1, 1, 1, 0, 0, 0, 0, 0), tokens(0, 0, 1, 2, 3, 4, 4, 4, 4, 4)]
    row = told(log(UNTIMED), samples=pl.concat(seen))
    assert (row["grade"], row["share_low"], row["share_high"]) == ("C", 0.0, pytest.approx(0.5))
    assert row["provenance"] == "activity"


def test_a_gauge_without_a_count_of_tokens_bounds_nothing():
    row = told(log(UNTIMED), samples=pl.concat([gpu(ENGINE, *[0.9] * 4), running(0, 1, 1, 0)]))
    assert (row["share_low"], row["share_high"]) == (0.0, 1.0)


def test_a_lower_end_is_never_above_the_upper_one():
    row = told(log(), samples=pl.concat([gpu(DRAM, *[0.8] * 4), running(0, 1, 0, 0), tokens(0, 0, 1, 1)]))
    assert (row["share_low"], row["share_high"]) == (0.5, 0.5)


def test_gpu_util_alone_is_no_grade_but_what_the_dashboard_shows():
    row = told(log(), samples=gpu(UTIL, 94, 94))
    assert (row["grade"], row["share"], row["busy_ratio"], row["busy_minus_inference"]) == (None, None, pytest.approx(0.94), None)


def test_a_dashboard_that_reads_busy_while_steps_say_otherwise_is_told():
    row = told(log(steps(10, 8, 2), steps(20, 9, 1)), samples=pl.concat([gpu(UTIL, 94, 94), gpu(ENGINE, 0.9, 0.9)]))
    assert (row["grade"], row["share"]) == ("A", 0.14)
    assert (row["busy_ratio"], row["busy_minus_inference"]) == (pytest.approx(0.94), pytest.approx(0.80))


def test_steps_beat_busy_gpus_and_busy_gpus_beat_running_requests():
    both = pl.concat([gpu(ENGINE, 0.5, 0.5), running(1, 1, 1)])
    assert [told(log(*records), samples=both)["grade"] for records in ([steps(10, 8)], [TIMED], [UNTIMED])] == ["A", "B", "C"]


def test_several_gpus_of_a_pod_are_averaged_over_time_and_gpus():
    two = pl.concat([gpu(ENGINE, 0.8, 0.8), gpu(ENGINE, 0.4, 0.4, uuid="h")])
    row = told(log(), samples=two)
    assert (row["share_low"], row["observed_seconds"], row["engines"]) == (pytest.approx(0.6), 20.0, 1)


def test_engines_of_one_pod_share_its_gpus():
    second = rows(ADAPTER_EVENTS, [START], engine="1").with_columns(stream=pl.lit("agent/c/pod-0/other"))
    row = told(pl.concat([log(), second]), samples=gpu(ENGINE, 0.5, 0.5))
    assert (row["share_low"], row["grade"], row["engines"], row["busy_ratio"]) == (0.5, "B", 2, 0.5)


def test_a_pod_that_only_its_gpu_knows_is_not_taken_for_an_engine():
    nobody = ADAPTER_EVENTS.empty().lazy()
    assert inference_share(nobody, HUNDRED, boots=boots(nobody), samples=gpu(ENGINE, 0.5, 0.5)).collect().is_empty()


def test_the_gpus_of_one_pod_say_nothing_of_another():
    row = told(log(TIMED), samples=gpu(ENGINE, 0.5, 0.5, pod="pod-1"))
    assert (row["grade"], row["busy_ratio"]) == (None, None)


@pytest.mark.parametrize("value", [-0.1, 1.5, math.nan, math.inf, 9.2e18])
def test_a_ratio_that_is_none_says_nothing(value: float):
    row = told(log(), samples=gpu(ENGINE, 0.5, value, 0.5, 0.5))
    assert (row["share_low"], row["observed_seconds"]) == (0.5, 30.0)


@settings(deadline=None)
@given(
    busy=st.floats(0, 1),
    sm=st.none() | st.floats(0, 1),
    dram=st.none() | st.floats(0, 1),
    requests=st.lists(st.integers(0, 3), min_size=2, max_size=5),
    timed=st.booleans(),
)
def test_shares_are_an_interval_within_0_and_1(busy, sm, dram, requests, timed):
    known = [gpu(metric, value, value) for metric, value in ((ENGINE, busy), (SM, sm), (DRAM, dram)) if value is not None]
    row = told(log(TIMED if timed else UNTIMED), samples=pl.concat([*known, running(*requests)]))
    assert 0 <= row["share_low"] <= row["share_high"] <= 1
    assert row["busy_minus_inference"] >= 0


def test_adapters_share_steps_and_can_not_be_told_apart():
    with pytest.raises(ValueError, match="one step serves many"):
        inference_share(log().lazy(), HUNDRED, ("adapter",), boots=boots(log().lazy()))


def test_nothing_in_nothing_out():
    empty = ADAPTER_EVENTS.empty().lazy()
    assert inference_share(empty, HUNDRED, boots=boots(empty), samples=SAMPLES.empty().lazy()).collect().is_empty()
    assert inference_share(events("").lazy(), HUNDRED, boots=boots(empty)).collect().is_empty()


def tokens(*values: float) -> pl.LazyFrame:
    metric, provenance = pl.lit(names.GENERATION_TOKENS), pl.lit("observed")
    return running(*values).with_columns(metric=metric, series=pl.lit("t"), provenance=provenance)


def test_requests_between_two_scrapes_widen_what_the_gauge_saw():
    samples = pl.concat([running(0, 0, 0, 0, 0, 0, 0, 0, 0, 0), tokens(5, 5, 9, 9, 9, 2, 2, 2, 2, 2)])
    row = told(log(), samples=samples)
    assert (row["grade"], row["share_low"], row["share_high"]) == ("D", 0.0, 0.2)


def test_tokens_of_a_busy_stretch_add_nothing_to_it():
    samples = pl.concat([running(*[1] * 10), tokens(*range(10))])
    row = told(log(), samples=samples)
    assert (row["share_low"], row["share_high"]) == (1.0, 1.0)


def test_a_request_that_runs_without_a_token_yet_may_have_run_since_the_last_scrape():
    samples = pl.concat([running(0, 0, 1, 0, 0), tokens(5, 5, 5, 6, 6)])
    row = told(log(), samples=samples)
    assert (row["share_low"], row["share_high"]) == (0.2, 0.4)
