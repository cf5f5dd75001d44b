import polars as pl
import pytest
from derive.asked import QUICK, asked, traffic
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.derive.forecast import HISTORY_SCHEMA, Basis, forecast, hourly
from lora_watch.model import DAY, HOUR, SECOND, Window

MONDAY = 4 * DAY  # 1970-01-05
WEEK = 7 * DAY


def history(rates: dict[int, float]) -> pl.DataFrame:
    """Requests a second in hours that begin at these µs."""
    rows = [
        {"cluster": "c", "pool": "p", "role": "", "hour": hour, "requests": round(rate * 3600), "provenance": "inferred"}
        for hour, rate in rates.items()
    ]
    return pl.DataFrame(rows, schema=HISTORY_SCHEMA)


def now(rate: float) -> pl.DataFrame:
    return pl.DataFrame([{"cluster": "c", "pool": "p", "role": "", "requests_per_second": rate, "provenance": "observed"}])


def days(count: int, until: int, peak_hour: int = 14, peak: float = 10.0) -> dict[int, float]:
    """Days of 1 request a second and a peak at one hour, up to ``until``."""
    hours = range(until - count * DAY, until, HOUR)
    return {hour: peak if hour % DAY == peak_hour * HOUR else 1.0 for hour in hours}


def test_the_peak_is_the_same_hour_of_the_week_before():
    end = MONDAY + 2 * WEEK + 10 * HOUR
    row = forecast(history(days(14, end)), now(1.0), end).row(0, named=True)
    assert (row["peak_rps"], row["peak_at"], row["level"], row["hours"], row["method"]) == (
        pytest.approx(10.0),
        MONDAY + 2 * WEEK + 14 * HOUR,
        1.0,
        2,
        str(Basis.WEEK),
    )
    assert row["provenance"] == "inferred"


def test_the_median_of_weeks_forgets_one_odd_week():
    end = MONDAY + 4 * WEEK + 10 * HOUR
    past = days(28, end) | {MONDAY + 2 * WEEK + 14 * HOUR: 90.0}
    assert forecast(history(past), now(1.0), end)["peak_rps"].item() == pytest.approx(10.0)


def test_with_less_than_a_week_it_is_the_same_hour_of_the_day():
    end = MONDAY + 10 * HOUR
    row = forecast(history(days(2, end)), now(1.0), end).row(0, named=True)
    assert (row["peak_rps"], row["hours"], row["method"]) == (pytest.approx(10.0), 2, str(Basis.DAY))


def test_with_less_than_a_day_it_is_the_current_rate():
    row = forecast(history({MONDAY: 9.0}), now(3.0), MONDAY + 2 * HOUR).row(0, named=True)
    assert (row["peak_rps"], row["peak_at"], row["hours"], row["method"], row["provenance"]) == (
        3.0,
        MONDAY + 2 * HOUR,
        0,
        str(Basis.NOW),
        "observed",
    )


def test_a_day_twice_as_busy_has_a_peak_twice_as_high():
    end = MONDAY + 2 * WEEK + 10 * HOUR
    today = dict.fromkeys(range(end - 3 * HOUR, end, HOUR), 2.0)
    row = forecast(history(days(14, end) | today), now(2.0), end).row(0, named=True)
    assert (row["peak_rps"], row["level"]) == (pytest.approx(20.0), pytest.approx(2.0))


def test_a_handful_of_requests_says_nothing_of_the_level():
    end = MONDAY + 2 * WEEK + 10 * HOUR
    past = {hour: rate / 1000 for hour, rate in days(14, end).items()} | {end - HOUR: 0.05}
    assert forecast(history(past), now(0.001), end)["level"].item() == 1.0


def test_the_current_rate_is_the_least_it_says():
    end = MONDAY + 2 * WEEK + 16 * HOUR
    row = forecast(history(days(14, end)), now(50.0), end).row(0, named=True)
    assert (row["peak_rps"], row["peak_at"], row["method"]) == (50.0, end, str(Basis.WEEK))


def test_a_peak_past_the_horizon_is_not_in_it():
    end = MONDAY + 2 * WEEK + 10 * HOUR
    assert forecast(history(days(14, end)), now(1.0), end, horizon=3 * HOUR)["peak_rps"].item() == pytest.approx(1.0)


def test_the_hour_that_is_not_over_is_no_history():
    end = MONDAY + WEEK + 14 * HOUR + HOUR // 2
    past = days(7, MONDAY + WEEK + 14 * HOUR) | {MONDAY + WEEK + 14 * HOUR: 0.0}
    row = forecast(history(past), now(10.0), end).row(0, named=True)
    assert (row["peak_rps"], row["peak_at"]) == (10.0, end)


def test_hours_are_whole_and_inside_the_window():
    frame = asked([(0, "a"), (3600, "a"), (3601, None), (7199, "b"), (7200, "a"), (11_000, "a")])
    told = hourly(frame.lazy(), Window(1 * SECOND, 10_700 * SECOND))
    assert told.select("hour", "requests", "provenance").rows() == [(HOUR, 3, "observed")]


@QUICK
@given(traffic(), st.integers(0, 3))
def test_hours_of_adjoining_windows_are_one_history(frame: pl.DataFrame, cut: int):
    slow = frame.with_columns(at=pl.col("at") * 144)  # up to four hours
    whole = hourly(slow.lazy(), Window(0, 5 * HOUR))
    parts = [hourly(slow.lazy(), part) for part in (Window(0, (cut + 1) * HOUR), Window((cut + 1) * HOUR, 5 * HOUR))]
    assert pl.concat(parts).sort("cluster", "pool", "role", "hour").equals(whole)


def test_without_history_each_pool_has_its_row():
    assert forecast(history({}), now(3.0), MONDAY)["peak_rps"].to_list() == [3.0]
