import math
from typing import Any

import polars as pl
import pytest
from builders import rows
from derive.asked import asked

from lora_watch.derive.capacity import capacity
from lora_watch.derive.saturation import in_flight, load_seconds, saturation
from lora_watch.model import MINUTE, SECOND, Window
from lora_watch.names import WAITING_BY_REASON
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES

HUNDRED = Window(0, 100 * SECOND)
POD_0 = {"cluster": "c", "pool": "p", "role": "", "pod": "pod-0"}


def flight(*per_adapter: float | None, pod: str = "pod-0") -> pl.LazyFrame:
    rows_ = [{**POD_0, "pod": pod, "adapter": f"a{n}", "in_flight": value} for n, value in enumerate(per_adapter)]
    return pl.LazyFrame(rows_, schema_overrides={"in_flight": pl.Float64})


def fleet(slots: int | None = 4, seats: int | None = None, pod: str = "pod-0") -> pl.LazyFrame:
    return pl.LazyFrame(
        [{**POD_0, "pod": pod, "slots": slots, "seats": seats}], schema_overrides={"slots": pl.Int64, "seats": pl.Int64}
    )


def demand(**asked_: float | None) -> pl.LazyFrame:
    usual: dict[str, Any] = {
        "growth": 1.0, "rate": 2.0, "miss_ratio": None, "stall_seconds": None, "load_share": None, "capacity_rps": None,
    }  # fmt: skip
    row = {"cluster": "c", "pool": "p", "role": "", **usual, **asked_}
    return pl.LazyFrame([row], schema_overrides=dict.fromkeys(usual, pl.Float64))


def told(flying: pl.LazyFrame, pods: pl.LazyFrame, wanted: pl.LazyFrame) -> dict[str, Any]:
    return saturation(flying, pods, wanted).row(0, named=True)


def load(at: float, seconds: float | None, **more: Any) -> dict[str, Any]:
    return {
        "at": round(at * SECOND),
        "kind": "load",
        "tier": "gpu",
        "ok": True,
        "in_step": True,
        "reason": "demand",
        "seconds": seconds,
        **more,
    }


def test_adapters_in_flight_fill_slots():
    row = told(flight(100.0, 100.0, math.log(2)), fleet(), demand())
    assert (row["rho_slots"], row["rho"], row["bottleneck"]) == (pytest.approx(2.5 / 4), pytest.approx(2.5 / 4), "slots")


def test_six_adapters_that_never_end_are_past_four_slots():
    assert told(flight(*[50.0] * 6), fleet(), demand())["rho"] == pytest.approx(1.5)


def test_the_base_model_takes_a_seat_and_no_slot():
    base = flight(3.0).with_columns(adapter=pl.lit(None, dtype=pl.String))
    row = told(base, fleet(seats=6), demand())
    assert (row["rho_slots"], row["rho_seats"], row["bottleneck"]) == (0.0, pytest.approx(0.5), "seats")


def test_measured_loads_grow_with_the_rate_and_make_requests_longer():
    row = told(flight(1.0), fleet(seats=10), demand(growth=2.0, load_share=0.2))
    assert row["rho_loads"] == pytest.approx(0.4)
    assert row["rho_seats"] == pytest.approx(0.1 * 2 * 0.8 / 0.6)


def test_loads_that_are_not_measured_are_those_predicted():
    row = told(flight(1.0), fleet(), demand(rate=4.0, miss_ratio=0.5, stall_seconds=0.4))
    assert (row["rho_loads"], row["bottleneck"]) == (pytest.approx(0.8), "loads")


def test_at_the_present_rate_nothing_is_stretched():
    row = told(flight(0.5), fleet(seats=1), demand(rate=4.0, miss_ratio=0.5, stall_seconds=0.4))
    assert row["rho_seats"] == pytest.approx(0.5)


def test_a_capacity_that_was_seen_counts_less_what_loads_take():
    row = told(flight(0.1), fleet(), demand(rate=6.0, load_share=0.25, capacity_rps=10.0))
    assert (row["rho_capacity"], row["bottleneck"]) == (pytest.approx(0.8), "capacity")


def test_loads_beyond_all_time_are_past_the_end_and_finite():
    row = told(flight(0.1), fleet(), demand(growth=10.0, load_share=0.3, capacity_rps=1.0))
    assert row["rho_loads"] == pytest.approx(3.0)
    assert math.isfinite(row["rho"])


def test_pods_add_up_and_the_fullest_is_named():
    flying = pl.concat([flight(100.0, pod="x"), flight(100.0, 100.0, 100.0, pod="y")])
    row = told(flying, pl.concat([fleet(pod="x"), fleet(pod="y")]), demand())
    assert (row["rho_slots"], row["slots"], row["pods"]) == (pytest.approx(0.5), 8, 2)
    assert (row["fullest_pod"], row["fullest_pod_rho_slots"]) == ("y", pytest.approx(0.75))


def test_unknown_stays_unknown():
    row = told(flight(None), fleet(slots=None), demand())
    assert (row["rho"], row["bottleneck"], row["rho_slots"], row["slots"]) == (None, None, None, None)
    nobody = told(flight(1.0), fleet(pod="x").filter(pl.lit(value=False)), demand())
    assert (nobody["rho"], nobody["pods"]) == (None, None)


def test_requests_in_flight_are_their_seconds_over_the_window():
    frame = pl.concat([asked([(0, "a"), (10, "a")], takes=20.0), asked([(95, "a")], takes=20.0, stream="late")])
    assert in_flight(frame.lazy(), HUNDRED).collect().select("in_flight", "requests", "seconds").rows() == [(0.4, 2, 20.0)]


def test_requests_without_a_start_say_nothing_of_how_many_are_in_flight():
    frame = asked([(1, "a")]).with_columns(scheduled=None, queued=None, arrived=None)
    assert in_flight(REQUESTS.conform(frame.drop("date", "bucket")).lazy(), HUNDRED).collect()["in_flight"].item() is None


def test_a_stall_is_a_load_with_the_read_from_disk_before_it():
    frame = rows(
        ADAPTER_EVENTS,
        [
            load(1, 0.3, tier="cpu", from_tier="disk"),
            load(1, 0.1),
            load(2, 0.2),
            load(3, None),
            load(4, 9.0, reason="warmup"),
            load(5, 9.0, in_step=False),
            load(6, 9.0, ok=False),
            load(200, 9.0),
        ],
    )
    row = load_seconds(pl.concat([frame, frame]).lazy(), HUNDRED).collect().row(0, named=True)
    assert (row["loads"], row["timed"], row["load_seconds"], row["stall_seconds"]) == (
        3,
        2,
        pytest.approx(0.6),
        pytest.approx(0.3),
    )


def test_a_quiet_pool_under_an_agent_had_no_load_and_no_stall_to_tell():
    frame = rows(ADAPTER_EVENTS, [{"at": SECOND, "kind": "steps"}])
    assert load_seconds(frame.lazy(), HUNDRED).collect().select("loads", "load_seconds", "stall_seconds").rows() == [
        (0, 0.0, None)
    ]


def waiting(*values: float, reason: str = "capacity") -> pl.DataFrame:
    """Samples 20 s apart from 5 s on."""
    return SAMPLES.conform(
        pl.DataFrame(
            [
                {**POD_0, "engine": "0", "at": (5 + 20 * i) * SECOND, "series": reason, "metric": WAITING_BY_REASON,
                 "labels": f'{{"reason":"{reason}"}}', "value": value, "provenance": "observed", "source": "test"}
                for i, value in enumerate(values)
            ]
        )
    )  # fmt: skip


def test_capacity_is_what_a_minute_with_a_queue_got_done_without_its_loads():
    done = asked([(i / 2, "a") for i in range(240)])
    loads = rows(ADAPTER_EVENTS, [load(10, 15.0)])
    row = capacity(done.lazy(), waiting(1, 2, 1, 0, 0, 0).lazy(), loads.lazy(), Window(0, 2 * MINUTE)).row(0, named=True)
    assert (row["capacity_rps"], row["minutes"], row["provenance"]) == (pytest.approx(2 / 0.75), 1, "observed")


@pytest.mark.parametrize("queue", [waiting(1, 0, 1), waiting(1), waiting(5, 5, 5, reason="deferred")])
def test_without_a_queue_for_room_all_through_a_minute_nobody_knows_the_capacity(queue: pl.DataFrame):
    done = asked([(i / 2, "a") for i in range(100)])
    assert capacity(done.lazy(), queue.lazy(), ADAPTER_EVENTS.empty().lazy(), Window(0, MINUTE)).is_empty()
