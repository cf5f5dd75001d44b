import polars as pl
import pytest
from builders import events, rows, snapshot
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.duration.survfunc import SurvfuncRight
from strategies import QUICK, Log, cut, lru_logs, subjects, windows

from lora_watch.derive.residency import kaplan_meier, residency
from lora_watch.derive.stays import stays
from lora_watch.model import HOUR, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS


def of(text: str, start: float, end: float, **common: object) -> dict[str, object]:
    """The one row of residency for stays written as text, over a window in seconds."""
    window = Window(int(start * SECOND), int(end * SECOND))
    return residency(stays(events(text, **common).lazy()), window).collect().row(0, named=True)


@QUICK
@given(subjects())
def test_the_curve_is_that_of_statsmodels(drawn: pl.DataFrame):
    ours = kaplan_meier(drawn.lazy(), ["group"]).collect()
    for (group,), part in drawn.partition_by("group", as_dict=True).items():
        theirs = SurvfuncRight(part["exit"].to_numpy(), part["event"].to_numpy().astype(int), entry=part["entry"].to_numpy())
        mine = ours.filter((pl.col("group") == group) & (pl.col("events") > 0))
        assert mine["age"].to_list() == theirs.surv_times.tolist()
        assert mine["at_risk"].to_list() == theirs.n_risk.tolist()
        assert mine["survival"].to_list() == pytest.approx(theirs.surv_prob.tolist(), abs=1e-12)


def test_without_groups_the_curve_is_one():
    drawn = pl.LazyFrame({"entry": [0, 0, 1], "exit": [2, 3, 3], "event": [True, False, True]})
    assert kaplan_meier(drawn).collect().rows() == [(2, 3, 1, pytest.approx(2 / 3)), (3, 2, 1, pytest.approx(1 / 3))]


def test_no_subjects_have_no_curve():
    schema = {"entry": pl.Int64, "exit": pl.Int64, "event": pl.Boolean}
    assert kaplan_meier(pl.LazyFrame(schema=schema)).collect().is_empty()


def test_completed_stays_give_plain_quantiles():
    row = of("a:0-10 b:0-20 c:0-30 d:0-40", 0, 100)
    assert (row["p50_seconds"], row["p95_seconds"], row["p50_lower_bound_seconds"], row["completed"]) == (20.0, 40.0, None, 4)


def test_slot_time_counts_long_stays_by_their_length():
    row = of("a:0-10 b:0-10 c:0-10 d:0-70", 0, 100)
    assert (row["p50_seconds"], row["slot_time_p50_seconds"]) == (10.0, 70.0)
    assert row["slot_time_under_30s_ratio"] == pytest.approx(0.3)
    assert row["slot_time_under_5min_ratio"] == pytest.approx(1.0)


def test_a_stay_of_just_30_seconds_is_not_under_30_seconds():
    assert of("a:0-30 b:0-29", 0, 100)["slot_time_under_30s_ratio"] == pytest.approx(29 / 59)


def test_a_quantile_that_is_not_reached_is_unknown_with_a_lower_bound():
    row = of("a:0-10 b:0- c:0-", 0, 100)
    assert (row["p50_seconds"], row["p50_lower_bound_seconds"], row["p95_lower_bound_seconds"]) == (None, 100.0, 100.0)
    assert (row["completed"], row["censored"]) == (1, 2)


def test_the_share_of_short_stays_is_unknown_while_all_are_young_and_open():
    row = of("a:0- b:5-", 0, 20)
    assert (row["slot_time_under_30s_ratio"], row["slot_time_under_5min_ratio"]) == (None, None)


def test_a_stay_still_open_is_cut_at_the_window():
    assert of("a:0-50", 0, 20)["occupied_slot_seconds"] == 20.0
    assert of("a:0-50", 0, 20)["completed"] == 0


def test_a_stay_from_before_the_window_enters_late():
    row = of("a:0-50 b:40-45", 40, 100)
    assert (row["entered_before"], row["loads"], row["completed"]) == (1, 1, 2)
    assert row["p50_seconds"] == 5.0


def test_a_leave_at_the_windows_start_belongs_to_it_and_one_at_its_end_does_not():
    assert of("a:0-50 b:0-99", 50, 60)["completed"] == 1
    assert of("a:0-50", 40, 50)["completed"] == 0


def test_an_unknown_load_time_is_left_out_and_counted():
    row = of("c:-20 a:5-15", 0, 100)
    assert (row["left_truncated"], row["completed"], row["p50_seconds"]) == (1, 1, 10.0)


def test_a_restart_censors():
    log = pl.concat([events("a:0-", start_at=0, stream="old"), events("b:30-", start_at=20, stream="new")])
    row = residency(stays(log.lazy()), Window(0, 100 * SECOND)).collect().row(0, named=True)
    assert (row["completed"], row["censored"], row["occupied_slot_seconds"]) == (0, 2, 90.0)


def test_the_mean_is_by_littles_law_and_unknown_without_loads():
    assert of("a:0-10 b:0-30", 0, 100)["mean_seconds"] == 20.0
    assert of("a:0-50", 10, 20)["mean_seconds"] is None


def test_pods_and_adapters_are_told_apart():
    log = pl.concat([events("a:0-10 b:0-20", pod="x"), events("a:0-30", pod="y")])
    table = residency(stays(log.lazy()), Window(0, HOUR), ("cluster", "pod", "adapter")).sort("pod", "adapter").collect()
    assert table.select("pod", "adapter", "p50_seconds").rows() == [("x", "a", 10.0), ("x", "b", 20.0), ("y", "a", 30.0)]


def test_prefill_and_decode_are_never_averaged_together():
    log = pl.concat([events("a:0-10", pod="x", role="prefill"), events("a:0-30", pod="y", role="decode")])
    table = residency(stays(log.lazy()), Window(0, HOUR), ("cluster", "pool")).sort("role").collect()
    assert table.select("role", "p50_seconds").rows() == [("decode", 30.0), ("prefill", 10.0)]


def test_the_worst_provenance_wins():
    log = pl.concat([events("a:0-10"), events("b:0-10", provenance="inferred", stream="s")])
    assert residency(stays(log.lazy()), Window(0, HOUR)).collect()["provenance"].item() == "inferred"


def test_no_stays_have_no_row():
    assert residency(stays(ADAPTER_EVENTS.empty().lazy()), Window(0, HOUR)).collect().is_empty()


@QUICK
@given(lru_logs(), windows(), st.floats(0.1, 0.9))
def test_windows_add_up(log: Log, window: Window, share: float):
    parts = cut(window, share)
    if parts is None:
        return
    found = stays(log.events.lazy()).collect().lazy()
    whole, *halves = (residency(found, part, ("cluster",)).collect() for part in (window, *parts))
    for column in ("completed", "loads", "occupied_slot_seconds"):
        assert sum(half[column].sum() for half in halves) == pytest.approx(whole[column].sum())


@QUICK
@given(lru_logs())
def test_weights_of_one_make_slot_time_the_curve_itself_on_complete_data(log: Log):
    """Slot-time quantiles of completed stays equal the plainly weighted ones."""
    window = Window(0, 100 * HOUR)
    done = stays(log.events.lazy()).filter(pl.col("left_by") == "evict").collect()
    lengths = sorted(((done["left_at"] - done["loaded_at"]) / SECOND).to_list())
    table = residency(done.lazy(), window, ("cluster",)).collect()
    total = sum(lengths)
    if total == 0:
        assert table.is_empty() or table["slot_time_p50_seconds"].item() is None
        return
    median = next(length for length in lengths if sum(one for one in lengths if one > length) <= total / 2 + 1e-6)
    assert table["slot_time_p50_seconds"].item() == pytest.approx(median)


@QUICK
@given(lru_logs(), windows())
def test_shares_are_ratios_and_quantiles_do_not_cross(log: Log, window: Window):
    for row in residency(stays(log.events.lazy()), window).collect().rows(named=True):
        for name in ("slot_time_under_30s_ratio", "slot_time_under_5min_ratio"):
            assert row[name] is None or 0 <= row[name] <= 1
        assert row["p50_seconds"] is None or row["p95_seconds"] is None or row["p50_seconds"] <= row["p95_seconds"]
        for name in ("p50", "p95"):
            assert row[f"{name}_seconds"] is None or row[f"{name}_lower_bound_seconds"] is None


def test_at_risk_min_is_the_smallest_risk_set_that_the_median_hangs_on():
    row = of("a:0-10 b:0-20 c:0-30 d:0-40 e:0-50", 0, 100)
    assert (row["p50_seconds"], row["at_risk_min"]) == (30.0, 3)


def test_at_risk_min_counts_a_tiny_early_risk_set_though_many_came_later():
    many = " ".join(f"b{n}:0-{120 + n}" for n in range(20))
    row = of(f"a:90-100 {many}", 95, 200)
    assert (row["p50_seconds"], row["at_risk_min"], row["completed"]) == (10.0, 1, 21)


def test_at_risk_min_is_of_the_whole_curve_where_the_median_is_not_reached_and_null_where_nothing_ended():
    assert of("a:0-10 b:0- c:0-", 0, 100)["at_risk_min"] == 3
    assert of("a:0- b:0-", 0, 100)["at_risk_min"] is None


def test_a_load_that_only_a_snapshot_dates_is_none_that_is_counted():
    log = rows(ADAPTER_EVENTS, [{"at": 60 * SECOND, **snapshot("a:0@20 b:1@30")}])
    row = residency(stays(log.lazy()), Window(0, 100 * SECOND)).collect().row(0, named=True)
    assert (row["loads"], row["censored"], row["left_truncated"], row["occupied_slot_seconds"]) == (0, 2, 0, 150.0)
