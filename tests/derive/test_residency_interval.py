import numpy as np
import polars as pl
import pytest
from builders import events
from hypothesis import given
from strategies import HORIZON, QUICK, Log, lru_logs

from lora_watch.derive.residency import residency
from lora_watch.derive.residency_interval import _known, _Pieces, _quantiles, residency_interval
from lora_watch.derive.stays import stays
from lora_watch.model import SECOND, Window

HOUR = Window(0, 3600 * SECOND)
POOL = ("cluster", "pool")


def many(pods: int, per_pod: int, *, window: Window, seed: int = 1, mean: float = 60.0) -> pl.DataFrame:
    """Stays of exponential length on one slot a pod, one after the other; all were evicted."""
    random = np.random.default_rng(seed)
    lengths = random.exponential(mean * SECOND, (pods, per_pod)).astype(np.int64) + 1
    left = window.start + np.cumsum(lengths, axis=1)
    names = pl.Series([f"pod-{n}" for n in range(pods)])
    where = {"cluster": pl.lit("c"), "pool": pl.lit("p"), "role": pl.lit(""), "engine": pl.lit("0"), "adapter": pl.lit("a")}
    return pl.DataFrame({"loaded_at": (left - lengths).ravel(), "left_at": left.ravel()}).with_columns(
        pod=names.gather(np.repeat(np.arange(pods), per_pod)),
        resident_from="loaded_at",
        left_by=pl.lit("evict"),
        known_by=pl.lit("load"),
        provenance=pl.lit("observed"),
        **where,
    )


@QUICK
@given(lru_logs())
def test_with_every_block_once_the_quantiles_are_those_of_residency(log: Log):
    window = Window(HORIZON // 8 * SECOND, HORIZON // 2 * SECOND)
    sat = stays(log.events.lazy()).collect()
    plain = residency(sat.lazy(), window, by=POOL).collect()
    known = _known(sat.lazy(), window)
    if known.height == 0:
        return
    pods = known["pod"].rank("dense").to_numpy().astype(np.int64) - 1
    pieces = _Pieces(known, pods, window, 100 * SECOND)
    ones = np.ones((1, pieces.pods * pieces.pieces))
    ((p50, p95),) = _quantiles(ones, pieces.age, pieces.kind, pieces.block)
    expected = [np.inf if value is None else value for value in plain.select("p50_seconds", "p95_seconds").row(0)]
    assert [p50, p95] == pytest.approx(expected)


def test_the_interval_lies_around_the_quantile_and_narrows_with_more_pods():
    widths = []
    for pods in (2, 50):
        sat = many(pods, 200, window=HOUR)
        row = residency_interval(sat.lazy(), HOUR, POOL).row(0, named=True)
        p50 = residency(sat.lazy(), HOUR, POOL).collect()["p50_seconds"].item()
        assert row["p50_low_seconds"] < p50 < row["p50_high_seconds"]
        widths.append(row["p50_high_seconds"] - row["p50_low_seconds"])
    assert widths[1] < widths[0] / 3


def test_intervals_of_independent_stays_hold_the_truth_in_19_of_20_runs():
    window = Window(0, 1800 * SECOND)
    rows = [
        residency_interval(many(6, 90, window=window, seed=seed).lazy(), window, POOL, replicates=200).row(0, named=True)
        for seed in range(150)
    ]
    for name, truth in (("p50", 60 * np.log(2)), ("p95", 60 * np.log(20))):
        held = [row[f"{name}_low_seconds"] <= truth <= (row[f"{name}_high_seconds"] or np.inf) for row in rows]
        assert 0.9 <= np.mean(held) <= 0.99


def test_the_same_rows_in_any_order_give_the_same_interval():
    sat = many(3, 100, window=HOUR)
    first, second = (residency_interval(frame.lazy(), HOUR, POOL) for frame in (sat, sat.reverse()))
    assert first.equals(second)


def test_stays_that_nobody_saw_end_leave_the_upper_end_open():
    row = residency_interval(stays(events("a:0- b:0- c:0-600 d:100-3000").lazy()), HOUR).row(0, named=True)
    assert (row["p95_high_seconds"], row["completed"]) == (None, 2)


def test_a_window_of_a_minute_has_no_interval():
    row = residency_interval(many(4, 50, window=HOUR).lazy(), Window(0, 60 * SECOND), POOL).row(0, named=True)
    assert [row[f"{name}_seconds"] for name in ("p50_low", "p50_high", "p95_low", "p95_high")] == [None] * 4
    assert row["blocks"] == 4


@pytest.mark.parametrize(("seconds", "block"), [(300, 60), (900, 60), (3600, 90), (86_400, 600)])
def test_blocks_are_ten_minutes_or_as_short_as_a_window_needs(seconds: int, block: int):
    window = Window(0, seconds * SECOND)
    row = residency_interval(many(1, 20, window=window).lazy(), window).row(0, named=True)
    assert (row["block_seconds"], row["blocks"]) == (block, seconds // block)


def test_no_stays_give_no_rows():
    assert residency_interval(stays(events("").lazy()), HOUR).height == 0
