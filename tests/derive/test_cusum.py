import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.derive.cusum import LEARNED_REQUESTS, THRESHOLD, Evidence, add, cusum, usual_miss_ratio
from lora_watch.model import DAY, HOUR, MINUTE

P = ("c", "p", "")


def hours(ratios: dict[int, float], requests: int = 1000) -> pl.DataFrame:
    rows = [
        {"cluster": "c", "pool": "p", "role": "", "hour": hour, "requests": requests, "misses": round(ratio * requests)}
        for hour, ratio in ratios.items()
    ]
    schema = {**dict.fromkeys(("cluster", "pool", "role"), pl.String), **dict.fromkeys(("hour", "requests", "misses"), pl.Int64)}
    return pl.DataFrame(rows, schema=schema)


def minutes(*pairs: tuple[int, int], start: int) -> pl.DataFrame:
    rows = [
        {"cluster": "c", "pool": "p", "role": "", "at": start + i * MINUTE, "requests": n, "misses": k}
        for i, (k, n) in enumerate(pairs)
    ]
    return pl.DataFrame(rows)


def test_the_usual_miss_ratio_adds_no_evidence():
    evidence = Evidence()
    for at in range(100):
        evidence = add(evidence, at, 7, 100, 0.07)
    assert evidence.total == 0.0
    assert evidence.rising_since is None


def test_a_doubled_miss_ratio_is_told_within_a_thousand_requests():
    evidence, at = Evidence(), 0
    while evidence.total <= THRESHOLD:
        evidence, at = add(evidence, at, 14, 100, 0.07), at + 1
    assert at * 100 <= 1000
    assert evidence.rising_since == 0


def test_evidence_is_bounded_so_that_it_comes_down_again():
    evidence = Evidence()
    for at in range(1000):
        evidence = add(evidence, at, 50, 100, 0.07)
    assert evidence.total == 2 * THRESHOLD
    for at in range(1000, 1020):
        evidence = add(evidence, at, 7, 100, 0.07)
    assert evidence.total < THRESHOLD


def test_a_minute_is_counted_once():
    once = add(Evidence(), 5, 10, 10, 0.1)
    assert add(once, 5, 10, 10, 0.1) == once


def test_more_misses_than_requests_are_refused():
    with pytest.raises(ValueError, match="3 of 2"):
        add(Evidence(), 0, 3, 2, 0.1)


@given(st.integers(0, 1000), st.integers(0, 1000), st.floats(0, 1))
def test_evidence_is_never_below_nothing_whatever_is_usual(misses: int, hits: int, usual: float):
    assert 0 <= add(Evidence(3.0), 0, misses, misses + hits, usual).total <= 2 * THRESHOLD


def test_what_is_usual_is_the_same_hour_of_the_week():
    ratios = {hour: 0.3 if hour % (7 * DAY) == 10 * HOUR else 0.1 for hour in range(0, 21 * DAY, HOUR)}
    at = 21 * DAY + 10 * HOUR
    assert usual_miss_ratio(hours(ratios), at).select("usual", "basis").rows() == [(pytest.approx(0.3), "hour of week")]
    assert usual_miss_ratio(hours(ratios), at + HOUR)["usual"].item() == pytest.approx(0.1)


def test_with_days_only_it_is_the_same_hour_of_the_day():
    ratios = {hour: 0.3 if hour % DAY == 10 * HOUR else 0.1 for hour in range(0, 3 * DAY, HOUR)}
    told = usual_miss_ratio(hours(ratios), 3 * DAY + 10 * HOUR)
    assert told.select("usual", "basis", "requests").rows() == [(pytest.approx(0.3), "hour of day", 3000)]


def test_with_one_day_it_is_the_median_of_every_hour():
    told = usual_miss_ratio(hours(dict.fromkeys(range(0, DAY, HOUR), 0.1)), DAY + 10 * HOUR)
    assert told["basis"].item() == "every hour"


def test_today_is_no_yardstick_for_today():
    ratios = dict.fromkeys(range(0, 2 * DAY, HOUR), 0.1) | dict.fromkeys(range(2 * DAY, 2 * DAY + 9 * HOUR, HOUR), 0.9)
    assert usual_miss_ratio(hours(ratios), 2 * DAY + 10 * HOUR)["usual"].item() == pytest.approx(0.1)
    assert usual_miss_ratio(hours(dict.fromkeys(range(9), 0.9)), 9 * HOUR).is_empty()


def test_too_few_requests_are_not_learned_from():
    assert usual_miss_ratio(hours({0: 0.1}, LEARNED_REQUESTS - 1), DAY).is_empty()
    assert usual_miss_ratio(hours({0: 0.1}, 0), DAY).is_empty()


def test_pools_without_a_yardstick_are_passed_over_and_what_was_held_is_kept():
    held = {("c", "q", ""): Evidence(4.0)}
    told = cusum(held, minutes((10, 10), start=DAY), hours({}))
    assert told == held


def test_minutes_in_parts_are_the_same_as_at_once():
    past = hours(dict.fromkeys(range(0, DAY, HOUR), 0.07))
    rows = [(20, 100), (7, 100), (30, 100), (15, 100)]
    start = DAY + 2 * HOUR - 2 * MINUTE
    whole = cusum({}, minutes(*rows, start=start), past)
    first = cusum({}, minutes(*rows[:1], start=start), past)
    assert cusum(first, minutes(*rows, start=start), past) == whole
    assert whole[P].total > 0
