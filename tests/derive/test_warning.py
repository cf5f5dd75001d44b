from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import rows
from derive.asked import asked
from polars.testing import assert_frame_equal

from lora_watch.derive.cusum import Evidence
from lora_watch.derive.expected import parse
from lora_watch.derive.first_seen import first_seen, no_first_seen
from lora_watch.derive.groups import POD
from lora_watch.derive.locality import ErrorClass, Method
from lora_watch.derive.miss_ratio_curve import miss_ratio_curve
from lora_watch.derive.reuse_histogram import ReuseHistograms
from lora_watch.derive.warning import LIMITS, alarms, warning
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.names import EPP_ATTEMPTS
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES

NOW = 30 * DAY
FLEET = pl.LazyFrame(
    [{"cluster": "c", "pool": "p", "role": "", "pod": f"pod-{n}", "slots": 4} for n in (0, 1)],
    schema_overrides={"slots": pl.Int64},
)


def ten_minutes(adapters: int, *, rate: float = 4.0, takes: float = 0.5, new: float = 0.0, seed: int = 1) -> pl.DataFrame:
    """Zipf requests of the last ten minutes on two pods; in the last two, the share ``new`` goes to variants."""
    random = np.random.default_rng(seed)
    count = int(600 * rate)
    weights = 1 / np.arange(1, adapters + 1)
    names = random.choice(adapters, count, p=weights / weights.sum())
    seconds = NOW / SECOND - 600 + np.arange(count) / rate - takes
    fresh = (seconds > NOW / SECOND - 120) & (random.random(count) < new)
    asked_for = [
        (float(at), f"a{name}" + ("-experiment" if variant else ""))
        for at, name, variant in zip(seconds, names, fresh, strict=True)
    ]
    return pl.concat([asked(asked_for[pod::2], takes=takes, pod=f"pod-{pod}") for pod in (0, 1)])


def known(adapters: int) -> pl.DataFrame:
    return first_seen(no_first_seen(), asked([(0, f"a{n}") for n in range(adapters)]).lazy())


def row(frame: pl.DataFrame, adapters: int = 12, **more: Any) -> dict[str, Any]:
    return warning(frame.lazy(), NOW, more.pop("fleet", FLEET), more.pop("seen", known(adapters)), **more).row(0, named=True)


def test_the_usual_adapters_are_no_news():
    told = row(ten_minutes(12))
    assert (told["newmass"], told["new_adapters"], told["learning"]) == (0.0, [], False)
    assert (told["at"], told["pods"], told["slots"], told["provenance"]) == (NOW, 2, 8, "observed")
    assert told["requests_per_second"] == pytest.approx(4.0, rel=0.01)


def test_variants_that_nobody_announced_are_the_cause():
    told = row(ten_minutes(12, new=0.4))
    assert 0.3 < told["newmass"] < 0.5
    assert told["new_adapters"][0] == "a0-experiment"


def test_announced_ones_inform():
    plan = parse("- {start: 1970-01-01T00:00Z, end: 1971-01-01T00:00Z, adapters: ['*-experiment']}")
    told = row(ten_minutes(12, new=0.4), expected=plan)
    assert told["newmass"] == 0.0
    assert 0.3 < told["expected_newmass"] < 0.5


def test_without_curves_che_says_what_misses_are_to_come():
    told = row(ten_minutes(24))
    assert (told["method"], told["error_class"]) == (Method.CHE, ErrorClass.INDEPENDENT)
    assert (
        0
        < told["predicted_miss_ratio_one_slot_more"]
        < told["predicted_miss_ratio"]
        < told["predicted_miss_ratio_one_slot_fewer"]
        < 1
    )


def test_a_curve_of_the_pool_is_read_at_all_its_slots():
    frame = ten_minutes(24)
    curve = miss_ratio_curve(frame.lazy(), Window(NOW - 10 * MINUTE, NOW))
    told = row(frame, curves=curve)
    at = {one["slots"]: one["miss_ratio"] for one in curve.iter_rows(named=True)}
    assert [told[f"predicted_miss_ratio{move}"] for move in ("", "_one_slot_more", "_one_slot_fewer")] == [at[8], at[10], at[6]]
    assert (told["method"], told["error_class"]) == ("arrivals", "exact")


def test_curves_of_pods_are_weighed_by_their_requests():
    frame = ten_minutes(24)
    histograms = ReuseHistograms(POD)
    histograms.update(frame.lazy(), NOW)
    curves = histograms.curves(range(1, 6))
    told = row(frame, curves=curves)
    each = curves.filter(pl.col("slots") == 4)
    assert told["predicted_miss_ratio"] == pytest.approx((each["miss_ratio"] * each["requests"]).sum() / each["requests"].sum())
    assert told["method"] == "reuse histogram"


def test_with_the_last_slot_gone_everything_misses():
    one_slot = FLEET.with_columns(slots=pl.lit(1, dtype=pl.Int64))
    assert row(ten_minutes(24), fleet=one_slot)["predicted_miss_ratio_one_slot_fewer"] == 1.0


def test_pressure_is_the_working_set_of_five_minutes_over_the_slots():
    assert row(ten_minutes(24))["pressure"] == pytest.approx(24 / 8, rel=0.02)


def test_long_generations_of_many_adapters_are_a_hard_cliff():
    told = row(ten_minutes(24, takes=20.0))
    assert told["hard_cliff"] > 1
    assert (told["rho_now"] > 1, told["now_bottleneck"]) == (True, "slots")
    assert row(ten_minutes(24, takes=0.05))["hard_cliff"] < 0.1


def test_the_peak_of_the_week_before_is_what_the_harm_is_told_for():
    past = pl.DataFrame(
        [
            {"cluster": "c", "pool": "p", "role": "", "hour": hour, "requests": 144_000 if hour % DAY == 3 * HOUR else 14_400,
             "provenance": "observed"}
            for hour in range(NOW - 14 * DAY, NOW, HOUR)
        ]
    )  # fmt: skip
    told = row(ten_minutes(12), history=past)
    assert (told["peak_rps"], told["peak_at"]) == (pytest.approx(40.0), NOW + 3 * HOUR)
    assert told["rho_peak"] > 2 * told["rho_now"]
    assert told["peak_method"] == "the same hour of the week"


def test_loads_of_the_ten_minutes_count_as_time():
    loads = rows(
        ADAPTER_EVENTS,
        [
            {
                "at": NOW - (i + 1) * SECOND,
                "kind": "load",
                "tier": "gpu",
                "ok": True,
                "in_step": True,
                "reason": "demand",
                "seconds": 0.5,
            }
            for i in range(240)
        ],
    )
    told = row(ten_minutes(12), events=loads.lazy())
    assert (told["stall_seconds"], told["load_share"]) == (pytest.approx(0.5), pytest.approx(0.1))


def test_unknown_slots_leave_what_needs_them_unknown():
    nobody = FLEET.with_columns(slots=pl.lit(None, dtype=pl.Int64))
    told = row(ten_minutes(12, new=0.4), fleet=nobody)
    assert [told[name] for name in ("slots", "predicted_miss_ratio", "pressure", "rho_peak", "hard_cliff", "method")] == [
        None
    ] * 6
    assert told["newmass"] > 0.3


def test_a_pool_outside_the_fleet_has_a_row_with_what_is_known():
    told = row(ten_minutes(12), fleet=FLEET.filter(pl.lit(value=False)))
    assert (told["pods"], told["rho_peak"], told["load_share"]) == (None, None, None)
    assert told["requests_per_second"] > 3


def test_a_capacity_that_rests_on_few_minutes_with_a_queue_is_not_believed():
    few = {"cluster": "c", "pool": "p", "role": "", "capacity_rps": 0.1, "minutes": 3, "provenance": "observed"}
    assert row(ten_minutes(12), capacity=pl.DataFrame([few]))["rho_now"] == row(ten_minutes(12))["rho_now"]
    assert row(ten_minutes(12), capacity=pl.DataFrame([{**few, "minutes": 4}]))["now_bottleneck"] == "capacity"


def attempts(rates: dict[str, dict[str, float]], *, pool: str = "the router's word", **more: Any) -> pl.LazyFrame:
    """Counters of a router: by pod, requests a second of each adapter, sampled every 15 s for ten minutes."""
    samples = [
        {"at": NOW - (40 - n) * 15 * SECOND, "metric": EPP_ATTEMPTS[0], "pod": pod, "adapter": adapter, "pool": pool,
         "series": f"{pod}/{adapter}", "value": n * 15 * rate, "labels": "{}"}
        for pod, asked_for in rates.items() for adapter, rate in asked_for.items() for n in range(40)
    ]  # fmt: skip
    return rows(SAMPLES, samples, **more).lazy()


def by_router(rates: dict[str, dict[str, float]], frame: pl.DataFrame | None = None, **more: Any) -> pl.DataFrame:
    asked_for = REQUESTS.empty() if frame is None else frame
    return warning(asked_for.lazy(), NOW, FLEET, no_first_seen(), attempts=attempts(rates, **more))


def test_without_requests_the_routers_counters_tell_rates_pressure_and_misses_by_che():
    (told,) = by_router({pod: {f"a{n}": 0.1 for n in range(8)} for pod in ("pod-0", "pod-1")}).to_dicts()
    assert (told["pool"], told["method"], told["error_class"]) == ("p", Method.CHE, ErrorClass.INDEPENDENT)
    assert told["requests_per_second"] == pytest.approx(1.6)
    assert told["predicted_miss_ratio"] == pytest.approx(0.5)  # eight alike on four slots
    assert told["predicted_miss_ratio_one_slot_more"] == pytest.approx(3 / 8)
    assert told["pressure"] == pytest.approx(1.0)  # all eight within five minutes, on eight slots
    assert [told[name] for name in ("newmass", "learning", "rho_peak", "hard_cliff")] == [None] * 4


def test_the_misses_of_pods_are_those_of_what_is_routed_to_each():
    one = {f"a{n}": 0.1 for n in range(8)}
    (told,) = by_router({"pod-0": one, "pod-1": {"b": 0.8}}).to_dicts()
    assert told["predicted_miss_ratio"] == pytest.approx(0.25)  # half of the requests miss half of the time


def test_where_requests_are_held_the_router_is_not_asked():
    frame = ten_minutes(12)
    told = by_router({"pod-0": {"other": 5.0}}, frame)
    assert_frame_equal(told, warning(frame.lazy(), NOW, FLEET, no_first_seen()))


def test_pods_that_nobody_but_the_router_knows_have_no_row():
    assert by_router({"elsewhere": {"a": 1.0}}).is_empty()


def test_more_slots_are_not_predicted_to_miss_more_by_the_router_either():
    told = by_router({"pod-0": {f"a{n}": 0.02 * (n + 1) for n in range(9)}}).row(0, named=True)
    ratios = [told[f"predicted_miss_ratio{move}"] for move in ("_one_slot_fewer", "", "_one_slot_more")]
    assert ratios == sorted(ratios, reverse=True)


def test_the_worst_provenance_of_all_inputs_is_carried():
    frame = ten_minutes(12)
    assert row(frame.with_columns(provenance=pl.lit("inferred")))["provenance"] == "inferred"
    capacity = pl.DataFrame(
        [{"cluster": "c", "pool": "p", "role": "", "capacity_rps": 3.0, "minutes": 4, "provenance": "activity"}]
    )
    told = row(frame, capacity=capacity)
    assert (told["provenance"], told["now_bottleneck"]) == ("activity", "capacity")
    assert told["rho_now"] == pytest.approx(2 / 3, rel=0.01)


def test_silence_has_no_row():
    assert warning(REQUESTS.empty().lazy(), NOW, FLEET, no_first_seen()).is_empty()


def test_the_order_of_rows_does_not_matter():
    frame = ten_minutes(12, new=0.2)
    told, other = (warning(one.lazy(), NOW, FLEET, known(12)) for one in (frame, frame.reverse()))
    assert_frame_equal(told, other)


def warned(at: int, **values: Any) -> pl.DataFrame:
    signals = {"newmass": 0.0, "predicted_miss_ratio": 0.0, "rho_peak": 0.0, "hard_cliff": 0.0, "learning": False}
    return pl.DataFrame([{"cluster": "c", "pool": "p", "role": "", "at": at, **signals, **values}])


def on(held: pl.DataFrame) -> set[str]:
    return set(held.filter("on")["signal"])


def test_new_mass_is_an_alarm_at_once_and_harm_after_two_minutes():
    held = None
    seen = []
    for minute in range(4):
        held = alarms(held, warned(minute * MINUTE, newmass=0.4, rho_peak=0.95))
        seen.append(on(held))
    assert seen == [{"newmass"}, {"newmass"}, {"newmass", "rho_peak"}, {"newmass", "rho_peak"}]


def test_while_a_pool_is_learned_new_mass_is_no_alarm():
    held = alarms(None, warned(0, newmass=1.0, learning=True))
    assert on(held) == set()
    assert held.filter(pl.col("signal") == "newmass")["value"].item() is None


def test_silence_and_unknown_end_no_alarm():
    held = alarms(None, warned(0, newmass=0.4))
    for minute in range(1, 30):
        held = alarms(held, warned(minute * MINUTE, newmass=None))
    assert on(alarms(held, warned(0).clear())) == {"newmass"}


def test_an_alarm_ends_ten_minutes_after_its_value_did():
    held = alarms(None, warned(0, newmass=0.4))
    for minute in range(1, 11):
        held = alarms(held, warned(minute * MINUTE))
        assert on(held) == {"newmass"}
    held = alarms(held, warned(11 * MINUTE))
    assert on(held) == set()
    assert held.filter(pl.col("signal") == "newmass")["since"].item() == MINUTE


def test_evidence_of_a_doubled_miss_ratio_is_an_alarm_of_its_own():
    held = alarms(None, warned(0), evidence={("c", "p", ""): Evidence(30.0), ("c", "q", ""): Evidence(30.0)})
    assert held.filter("on").select("pool", "signal", "value").rows() == [("p", "cusum", 30.0)]


def test_limits_stand_in_the_answer_and_can_be_told():
    own = {**LIMITS, "rho_peak": type(LIMITS["rho_peak"])(0.1, 0.05)}
    held = alarms(None, warned(0, rho_peak=0.2), limits=own)
    assert held.filter("on").select("signal", "enter", "leave").rows() == [("rho_peak", 0.1, 0.05)]


def test_a_pools_own_limit_goes_before_the_common_one():
    own = {("c", "p", ""): {"predicted_miss_ratio": LIMITS["predicted_miss_ratio"].__class__(0.5, 0.35)}}
    row = warned(0, predicted_miss_ratio=0.4)
    other = row.with_columns(pool=pl.lit("q"))
    held = None
    for minute in range(3):
        both = pl.concat([row, other]).with_columns(at=pl.lit(minute * MINUTE, dtype=pl.Int64))
        held = alarms(held, both, own=own)
    assert held.filter("on").select("pool", "signal").rows() == [("q", "predicted_miss_ratio")]
    enter = held.filter(pl.col("signal") == "predicted_miss_ratio").select("pool", "enter").rows()
    assert enter == [("p", 0.5), ("q", LIMITS["predicted_miss_ratio"].enter)]


def test_a_limit_is_left_below_where_it_is_entered():
    assert all(limits.leave < limits.enter for limits in LIMITS.values())


def test_more_slots_are_never_predicted_to_miss_more():
    frame = ten_minutes(24)
    ratios = [
        row(frame, fleet=FLEET.with_columns(slots=pl.lit(slots, dtype=pl.Int64)))["predicted_miss_ratio"]
        for slots in range(1, 13)
    ]
    assert all(more <= fewer + 1e-12 for fewer, more in pairwise(ratios))
