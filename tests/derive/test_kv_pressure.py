import polars as pl
import pytest
from builders import events, rows
from hypothesis import given
from hypothesis import strategies as st
from scenes import QUIET, quiet
from strategies import QUICK

from lora_watch import names
from lora_watch.derive.kv_pressure import TIERS, kv_pressure
from lora_watch.derive.stays import stays
from lora_watch.model import SECOND, Window
from lora_watch.schema import SAMPLES

TEN_MINUTES = Window(0, 600 * SECOND)


def usage(*values: float, every: int = 30, **common: object) -> pl.LazyFrame:
    what = {"metric": names.KV_CACHE_USAGE, "series": "s", "labels": "{}"}
    records = [{**what, "at": every * n * SECOND, "value": value} for n, value in enumerate(values)]
    return rows(SAMPLES, records, **common).lazy()


def told(samples: pl.LazyFrame, residents: str | None = None) -> dict[str, object]:
    sat = stays(events(residents).lazy()) if residents is not None else None
    (row,) = kv_pressure(samples, TEN_MINUTES, stays=sat).collect().to_dicts()
    return row


def test_time_in_each_tier_is_added_up():
    row = told(usage(0.5, 0.86, 0.86, 0.91, 0.91, 0.96, 0.5))
    assert (row["soft_seconds"], row["hard_seconds"], row["critical_seconds"]) == (150.0, 90.0, 30.0)
    assert (row["tier"], row["flagged"], row["observed_seconds"], row["max_ratio"]) == (2, True, 210.0, 0.96)
    assert (row["start"], row["end"], row["pods"]) == (30 * SECOND, 180 * SECOND, ["pod-0"])


@pytest.mark.parametrize(("value", "tier"), [(0.84, 0), (0.85, 1), (0.90, 2), (0.95, 3), (1.0, 3)])
def test_a_tier_begins_at_its_limit(value: float, tier: int):
    row = told(usage(*[value] * 5))
    assert (row["tier"], row["flagged"]) == (tier, tier >= 2)


def test_a_moments_peak_is_not_flagged():
    assert told(usage(0.5, 0.99, 0.5))["tier"] == 0


def test_a_cache_that_is_never_tight_spans_the_window():
    row = told(usage(0.1, 0.2))
    assert (row["start"], row["end"], row["mean_ratio"]) == (0, 600 * SECOND, pytest.approx(0.15))


def test_slots_given_up_under_pressure_are_squeezed():
    """Two adapters until 60 s, then one; the cache is tight from 60 s to 120 s."""
    row = told(usage(0.5, 0.5, 0.92, 0.92, 0.5), "a:-1000 b:0-60")
    assert (row["residents_under_pressure"], row["residents_otherwise"]) == (1.0, pytest.approx(1 + 60 / 90))
    assert row["slots_squeezed"] == pytest.approx(60 / 90)


def test_without_stays_or_without_pressure_nothing_is_known_to_be_squeezed():
    assert told(usage(0.95, 0.95))["slots_squeezed"] is None
    row = told(usage(0.5, 0.5), "a:0-")
    assert (row["residents_under_pressure"], row["slots_squeezed"]) == (None, None)
    assert told(usage(0.95, 0.95), "a:500-")["residents_under_pressure"] == 0.0


def test_a_gap_is_in_no_tier():
    samples = pl.concat([usage(*[0.96] * 4), usage(*[0.96] * 4).with_columns(pl.col("at") + 400 * SECOND)])
    assert told(samples)["critical_seconds"] == pytest.approx(90 + 120)


def test_percentages_and_what_is_no_number_are_left_out():
    assert kv_pressure(usage(85.0, float("nan"), -0.1), TEN_MINUTES).collect().height == 0


def test_each_engine_has_a_row_of_its_own():
    other = usage(0.1, 0.1, 0.1, engine="1").with_columns(series=pl.lit("t"))
    both = pl.concat([usage(0.9, 0.9, 0.9, engine="0"), other])
    frame = kv_pressure(both, TEN_MINUTES).collect()
    assert frame.select("engine", "flagged").rows() == [("0", True), ("1", False)]


@QUICK
@given(st.lists(st.floats(0, 1), min_size=2, max_size=15))
def test_a_higher_tier_never_lasts_longer(values: list[float]):
    row = told(usage(*values))
    lasted = [row[f"{name}_seconds"] for name in ("soft", "hard", "critical")]
    assert lasted == sorted(lasted, reverse=True)
    assert len(lasted) == len(TIERS)


@pytest.mark.parametrize("name", QUIET)
def test_a_quiet_cluster_is_not_flagged(name: str):
    played, window = quiet(name)
    assert not kv_pressure(played.samples, window, stays=stays(played.events)).collect()["flagged"].any()
