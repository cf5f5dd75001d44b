"""What share of its requests a pool usually misses, and the limit that this teaches."""

from typing import Any

import polars as pl
import pytest
from builders import rows

from lora_watch.derive.groups import POOL
from lora_watch.derive.hysteresis import Limits
from lora_watch.derive.usual_misses import BIN, LEAST, LEAST_REQUESTS, miss_history, miss_limits
from lora_watch.derive.warning import LIMITS
from lora_watch.model import DAY, HOUR, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS

FIXED = LIMITS["predicted_miss_ratio"]
WINDOW = Window(0, 10 * BIN)


def told(requests: dict[int, int], loads: dict[int, int], **load: Any) -> list[tuple[Any, ...]]:
    """The history of so many requests and loads by bin."""
    asked = [{"at": bin * BIN + n * SECOND, "adapter": "a"} for bin, count in requests.items() for n in range(count)]
    one = {"kind": "load", "tier": "gpu", "reason": "demand", "ok": True, "adapter": "a", **load}
    made = [{"at": bin * BIN + n * SECOND, **one} for bin, count in loads.items() for n in range(count)]
    history = miss_history(rows(ADAPTER_EVENTS, made).lazy(), rows(REQUESTS, asked).lazy(), WINDOW)
    return history.select(pl.col("at") // BIN, "requests", "misses", "miss_ratio").rows()


def test_a_bin_has_its_requests_its_misses_and_their_ratio():
    assert told({0: 40, 1: 50}, {0: 10, 1: 5}) == [(0, 40, 10, 0.25), (1, 50, 5, 0.1)]


def test_a_bin_without_a_load_between_two_missed_nothing():
    assert told({0: 40, 1: 40, 2: 40}, {0: 4, 2: 4})[1] == (1, 40, 0, 0.0)


def test_before_the_first_load_and_after_the_last_nobody_may_have_told_them():
    assert [row[0] for row in told({0: 40, 1: 40, 2: 40}, {1: 4})] == [1]


def test_few_requests_make_no_ratio():
    assert told({0: LEAST_REQUESTS - 1}, {0: 4}) == [(0, LEAST_REQUESTS - 1, 4, None)]


def test_there_are_no_more_misses_than_requests():
    assert told({0: 40}, {0: 60}) == [(0, 40, 40, 1.0)]


@pytest.mark.parametrize("load", [{"tier": "cpu"}, {"reason": "preload"}, {"ok": False}, {"kind": "evict"}])
def test_what_no_request_needed_is_no_miss(load):
    assert told({0: 40}, {0: 4}, **load) == []


def past(days: float, *ratios: float | None, pool: str | None = "p") -> pl.DataFrame:
    """A history whose bins have these ratios in turn."""
    count = round(days * DAY / BIN) + 1
    return pl.DataFrame(
        [("c", pool, "", n * BIN, ratios[n % len(ratios)]) for n in range(count)],
        schema={**dict.fromkeys(POOL, pl.String), "at": pl.Int64, "miss_ratio": pl.Float64},
        orient="row",
    )


def test_a_week_teaches_a_limit_above_what_is_usual():
    (limit,) = miss_limits(past(8, 0.3, 0.25), FIXED).values()
    assert (limit.learned, limit.limits.enter, limit.days) == (True, 0.3, pytest.approx(8.0))
    assert limit.limits == Limits(0.3, 0.7 * 0.3, FIXED.for_, FIXED.keep)


def test_a_pool_that_misses_next_to_nothing_gets_the_least_limit():
    assert miss_limits(past(8, 0.01), FIXED)["c", "p", ""].limits.enter == LEAST


def test_less_than_a_week_leaves_the_fixed_limit_and_says_how_much_was_held():
    (limit,) = miss_limits(past(3, 0.3), FIXED).values()
    assert (limit.limits, limit.learned, limit.days) == (FIXED, False, pytest.approx(3.0))


def test_a_history_of_bins_with_few_requests_teaches_nothing():
    (limit,) = miss_limits(past(8, None), FIXED).values()
    assert (limit.limits, limit.learned, limit.days) == (FIXED, False, 0.0)


@pytest.mark.parametrize("pool", ["p", None])
def test_what_users_felt_is_not_usual(pool):
    harmed = pl.col("at").is_between(DAY, 3 * DAY, closed="left")
    history = past(8, 0.05, pool=pool).with_columns(miss_ratio=pl.when(harmed).then(0.9).otherwise("miss_ratio"))
    assert miss_limits(history, FIXED)["c", pool, ""].limits.enter == 0.9
    known = {("c", pool or "", ""): [(DAY, 3 * DAY)]}
    assert miss_limits(history, FIXED, known)["c", pool, ""].limits.enter == LEAST


def test_each_pool_has_its_own_limit():
    both = pl.concat([past(8, 0.3), past(8, 0.5, pool="q")])
    assert {key[1]: limit.limits.enter for key, limit in miss_limits(both, FIXED).items()} == {"p": 0.3, "q": 0.5}


def test_no_history_has_no_limits():
    assert miss_limits(past(8, 0.3).clear(), FIXED) == {}
    assert miss_history(ADAPTER_EVENTS.empty().lazy(), REQUESTS.empty().lazy(), Window(0, HOUR)).is_empty()
