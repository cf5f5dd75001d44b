"""Figures that must come out of stored rows, through the ordinary reading query."""

from pathlib import Path

import polars as pl
import pytest
from simulate.small import laid, shrunk

from lora_watch import names
from lora_watch.explore.queries import Past, overview
from lora_watch.model import HOUR, Window
from lora_watch.schema import REQUESTS, SAMPLES
from lora_watch.simulate.scenario import Pool, Scenario, Split, Traffic, Truth

CHANGE = 4
"""Hour of the A/B test."""
PAIR = Scenario(
    name="pair",
    about="The consistent pair: 8 pods of 4 slots, Zipf 1.0, 3.7 requests a second, 40 adapters and then 60.",
    days=8 / 24,
    pools=(Pool(pods=8, slots=4, seats=8),),
    traffic=Traffic(requests_per_second=3.7, adapters=40, zipf=1.0, generated_tokens=60),
    events=(Split(kind="split", start=CHANGE, top=20, share=0.5, growth=1.05),),
    truth=Truth(),
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    run = laid(PAIR, tmp_path_factory.mktemp("pair") / "data")
    hours = {"before": (1, CHANGE), "after": (CHANGE + 1, 8)}
    windows = {when: Window(run.window.start + a * HOUR, run.window.start + b * HOUR) for when, (a, b) in hours.items()}
    return {when: overview(run.store, window, Past(run.store, 12 * HOUR)).pods for when, window in windows.items()}


@pytest.mark.parametrize(
    ("when", "swaps", "hit", "mean_stay"), [("before", 0.034, 0.926, 116), ("after", 0.129, 0.735, 31)], ids=["before", "after"]
)
def test_the_consistent_pair_comes_out(pair: dict[str, pl.DataFrame], when: str, swaps: float, hit: float, mean_stay: float):
    """The pair is that of one pool of 32 slots; the article's router comes within a tenth of it."""
    pods = pair[when]
    assert pods["swaps_per_second"].mean() == pytest.approx(swaps, rel=0.1)
    missed = pods["warm_requests"].sum() + pods["cold_requests"].sum()
    assert 1 - missed / pods["requests"].sum() == pytest.approx(hit, abs=0.015)
    assert 4 / pods["loads_per_second"].mean() == pytest.approx(mean_stay, rel=0.1)
    assert pods["little_residual_ratio"].to_list() == [0.0] * 8


@pytest.mark.parametrize(("when", "p50", "p95"), [("before", 60, 273), ("after", 22, 68)], ids=["before", "after"])
def test_residency_falls_as_in_the_pair(pair: dict[str, pl.DataFrame], when: str, p50: float, p95: float):
    """The pair's quantiles are the pool's; half of eight pods with a router are above and half below."""
    assert pair[when]["p50_seconds"].median() == pytest.approx(p50, rel=0.15)
    assert pair[when]["p95_seconds"].median() == pytest.approx(p95, rel=0.15)


def shared(weights: tuple[float, ...], folder: Path) -> float:
    """Miss ratio of 50 adapters on 12 pods of 8 slots under round robin, from stored rows."""
    run = laid(
        Scenario(
            name="shared",
            about="50 adapters on 12 pods of 8 slots.",
            days=1 / 24,
            pools=(Pool(pods=12, slots=8, router="round-robin"),),
            traffic=Traffic(requests_per_second=8, adapters=50, weights=weights),
            truth=Truth(),
        ),
        folder,
    )
    window = Window(run.window.start + HOUR // 4, run.window.end)
    pods = overview(run.store, window, Past(run.store, HOUR)).pods
    return float((pods["warm_requests"].sum() + pods["cold_requests"].sum()) / pods["requests"].sum())


def test_fifty_uniform_adapters_on_eight_slots_miss_84_percent(tmp_path: Path):
    assert shared((1.0,) * 50, tmp_path / "data") == pytest.approx(0.84, abs=0.01)


def test_with_ten_adapters_carrying_70_percent_they_miss_62_percent(tmp_path: Path):
    assert shared((0.07,) * 10 + (0.0075,) * 40, tmp_path / "data") == pytest.approx(0.62, abs=0.02)


def test_at_the_hard_cliff_two_adapters_of_six_wait_without_end(tmp_path: Path):
    run = laid(shrunk("hard-cliff"), tmp_path / "data")
    deferred = (
        run.store.scan(SAMPLES)
        .filter((pl.col("metric") == names.WAITING_BY_REASON) & pl.col("labels").str.contains("deferred"))
        .sort("at")
        .collect()["value"]
    )
    quarter = len(deferred) // 6
    assert deferred[:quarter].max() == 0
    last_hour = deferred[-quarter * 2 :].to_list()
    assert last_hour[-1] > last_hour[len(last_hour) // 2] > last_hour[0] > 100
    late = run.store.scan(REQUESTS).filter(pl.col("scheduled") > run.window.end - HOUR).collect()
    assert late["adapter"].n_unique() == 4
