from typing import Any

import polars as pl
import pytest
from builders import events, requests, rows

from lora_watch import names
from lora_watch.derive.boots import boots
from lora_watch.derive.occupancy import occupancy
from lora_watch.derive.stays import stays
from lora_watch.model import SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES

HUNDRED = Window(0, 100 * SECOND)


def told(
    frame: pl.DataFrame, window: Window = HUNDRED, by: tuple[str, ...] = ("cluster", "pod"), **sources: pl.DataFrame
) -> pl.DataFrame:
    lazy = {name: source.lazy() for name, source in sources.items()}
    return occupancy(stays(frame.lazy()), boots(frame.lazy()), window, by, **lazy).collect()


def use(*records: tuple[float, str, str]) -> pl.DataFrame:
    """(second, kind, adapter) beside a start at 0."""
    start = {"at": 0, "kind": "start", "slots": 4, "clock": "host"}
    return rows(ADAPTER_EVENTS, [start, *({"at": int(t * SECOND), "kind": kind, "adapter": name} for t, kind, name in records)])


def in_flight(adapter: str, second: float, value: float = 1, **common: Any) -> pl.DataFrame:
    where = {"cluster": "c", "pool": "p", "role": "", "pod": "pod-0", "engine": "0", "source": "test", "provenance": "activity"}
    what = {
        "at": int(second * SECOND),
        "series": adapter,
        "metric": names.SAMPLE_IN_FLIGHT,
        "adapter": adapter,
        "value": float(value),
    }
    return SAMPLES.conform(pl.DataFrame([{**where, **common, **what}]))


def test_residents_are_slot_seconds_over_observed_seconds():
    row = told(events("a:0-50 b:0-", start_at=0)).row(0, named=True)
    assert (row["slots"], row["resident_adapters"], row["occupancy_ratio"], row["observed_seconds"]) == (4, 1.5, 0.375, 100.0)


def test_a_pod_that_started_late_is_observed_from_then():
    row = told(events("a:50-", start_at=50)).row(0, named=True)
    assert (row["observed_seconds"], row["resident_adapters"]) == (50.0, 1.0)


def test_a_pool_adds_slots_and_residents_of_its_pods():
    frame = pl.concat([events("a:0-", start_at=0, slots=2, pod="x"), events("a:0- b:0-", start_at=0, slots=4, pod="y")])
    row = told(frame, by=("cluster", "pool")).row(0, named=True)
    assert (row["slots"], row["resident_adapters"], row["occupancy_ratio"], row["engines"]) == (6, 3.0, 0.5, 2)


def test_unknown_slots_make_ratios_unknown_and_are_counted():
    row = told(events("a:0-", pod="x")).row(0, named=True)
    assert (row["slots"], row["occupancy_ratio"], row["engines_without_slots"], row["resident_adapters"]) == (None, None, 1, 1.0)


def test_active_are_distinct_adapters_queued_or_running_in_the_window():
    asked = requests("a:10/12/13/20 a:30/31/32/33 b:90/150/151/160 c:100/101/102/103 d:1/2/3/5")
    row = told(events("", start_at=0), Window(5 * SECOND, 100 * SECOND), requests=asked).row(0, named=True)
    assert (row["active_adapters"], row["active_per_slot_ratio"]) == (2, 0.5)


def test_an_adapter_in_the_batch_since_before_the_window_is_active():
    frame = use((1, "use", "a"), (2, "use", "b"), (3, "release", "b"), (50, "release", "c"), (60, "use", "d"))
    assert told(frame, Window(10 * SECOND, 100 * SECOND), events=frame)["active_adapters"].item() == 3


def test_what_a_dead_boot_left_in_its_batch_is_not_active():
    frame = pl.concat([use((1, "use", "a")), rows(ADAPTER_EVENTS, [{"at": 5 * SECOND, "kind": "stop", "seq": 9}])])
    assert told(frame, Window(10 * SECOND, 100 * SECOND), events=frame).is_empty()


def test_idle_under_an_agent_is_zero_and_without_one_unknown():
    assert told(events("", start_at=0), events=events("", start_at=0))["active_adapters"].item() == 0
    assert told(events("a:0-"))["active_adapters"].item() is None


def test_samples_count_only_where_nothing_better_is_known():
    sampled = pl.concat([in_flight("x", 5), in_flight("y", 6), in_flight("z", 7, value=0)])
    row = told(events("", start_at=0), samples=sampled).row(0, named=True)
    assert (row["active_adapters"], row["provenance"]) == (2, "activity")
    better = told(events("", start_at=0), samples=sampled, requests=requests("a:1/2/3/4")).row(0, named=True)
    assert (better["active_adapters"], better["provenance"]) == (1, "observed")


def test_an_engine_known_from_samples_only_has_a_row_with_unknown_slots():
    row = told(ADAPTER_EVENTS.empty(), samples=in_flight("x", 5)).row(0, named=True)
    assert (row["active_adapters"], row["slots"], row["resident_adapters"], row["provenance"]) == (1, None, None, "activity")


def test_by_adapter_each_has_its_share_of_the_slots():
    frame = events("a:0-50 b:0-", start_at=0)
    table = told(frame, by=("pod", "adapter"), requests=requests("a:1/2/3/4"), events=frame).sort("adapter")
    assert table.select("adapter", "resident_adapters", "slots", "active_adapters").rows() == [("a", 0.5, 4, 1), ("b", 1.0, 4, 0)]


def test_nothing_in_nothing_out():
    assert told(ADAPTER_EVENTS.empty(), requests=REQUESTS.empty(), samples=SAMPLES.empty()).is_empty()


def test_slot_seconds_add_up_over_windows():
    frame = events("a:0-50 b:10- c:-70", start_at=0)
    halves = [told(frame, window)["occupied_slot_seconds"].sum() for window in HUNDRED.split(37 * SECOND)]
    assert sum(halves) == pytest.approx(told(frame)["occupied_slot_seconds"].sum())


def test_a_gauge_that_names_no_engine_is_not_an_engine_beside_the_one_that_told():
    frame = use((10, "use", "a"))
    row = told(frame, events=frame, samples=in_flight("z", 50, engine=None)).row(0, named=True)
    assert (row["slots"], row["engines"], row["active_adapters"], row["provenance"]) == (4, 1, 1, "observed")


def test_a_gauge_that_names_no_engine_counts_where_nobody_told():
    row = told(events(""), samples=in_flight("z", 50, engine=None)).row(0, named=True)
    assert (row["slots"], row["active_adapters"], row["provenance"]) == (None, 1, "activity")


@pytest.mark.parametrize("engine", ["0", None])
def test_slots_that_no_boot_told_are_those_the_page_says(engine: str | None):
    said = in_flight("z", 40, engine=engine).with_columns(
        metric=pl.lit(names.SAMPLE_MAX_LORA), value=pl.lit(2.0), series=pl.lit("m")
    )
    row = told(events(""), samples=pl.concat([in_flight("z", 50, engine=engine), said])).row(0, named=True)
    assert (row["slots"], row["active_adapters"], row["active_per_slot_ratio"]) == (2, 1, 0.5)


def test_a_page_on_which_nobody_was_in_flight_is_a_pod_with_no_active_adapter():
    nobody = in_flight("z", 50, value=0).with_columns(adapter=pl.lit(None, pl.String))
    said = nobody.with_columns(metric=pl.lit(names.SAMPLE_MAX_LORA), value=pl.lit(2.0), series=pl.lit("m"))
    row = told(events(""), samples=pl.concat([nobody, said])).row(0, named=True)
    assert (row["slots"], row["active_adapters"], row["resident_adapters"], row["provenance"]) == (2, 0, None, "activity")


def test_requests_that_name_no_engine_are_their_pods_and_make_no_engine_of_it():
    two = pl.concat([events("a:0-", start_at=0, engine=engine, stream=f"agent/c/pod-0/{engine}") for engine in ("0", "1")])
    row = told(two, requests=requests("x:10/12/13/20", engine="")).row(0, named=True)
    assert (row["engines"], row["engines_observed"], row["slots"], row["active_adapters"]) == (2, 2, 8, 1)
    alone = told(events(""), requests=requests("x:10/12/13/20", engine="")).row(0, named=True)
    assert (alone["engines"], alone["engines_observed"], alone["slots"], alone["active_adapters"]) == (1, 0, None, 1)


def test_a_log_that_never_tells_of_uses_knows_no_active_adapter():
    frame = use().with_columns(clock=pl.lit(None, pl.String))  # as a log made from an engine's own lines begins
    row = told(frame, events=frame).row(0, named=True)
    assert (row["slots"], row["active_adapters"], row["active_per_slot_ratio"]) == (4, None, None)
