"""What the service publishes of a look for findings, against the truth of a simulated cluster."""

from dataclasses import replace

import polars as pl
import pytest
from simulate.small import MIXED

from lora_watch.config import parse
from lora_watch.explore.signals import Signals, signals
from lora_watch.explore.situation import Finder, Situation
from lora_watch.model import DAY, HOUR, MINUTE, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.simulate.write import simulate
from lora_watch.store.tables import Store

END = MIXED.begin + 100 * MINUTE
RECENT = Window(END - 10 * MINUTE, END)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("signals") / "data"
    whole = MIXED.model_copy(update={"whole_pages": True, "router_attempts": True, "sm_active": True})
    simulate(whole, 2 * HOUR / DAY, 1, folder)
    return Store(folder)


@pytest.fixture(scope="module")
def situation(store: Store) -> Situation:
    seen: list[Situation] = []
    finder = Finder(store, parse(f"store: {{folder: '{store.root}'}}"), see=lambda told, _: seen.append(told))
    finder(Window(END - HOUR, END))
    return seen[0]


@pytest.fixture(scope="module")
def measured(store: Store, situation: Situation) -> Signals:
    return signals(store, situation, ())


def rate(store: Store, pod: str, what: pl.Expr) -> float:
    rows = store.rows(ADAPTER_EVENTS, RECENT, (pl.col("pod") == pod) & what)
    return rows.height / RECENT.seconds


def test_swaps_and_loads_are_those_of_the_last_ten_minutes(store: Store, measured: Signals):
    gpu, kind = pl.col("tier") == "gpu", pl.col("kind")
    for row in measured.pods.iter_rows(named=True):
        load = (kind == "load") & gpu & pl.col("ok").ne_missing(False) & ~pl.col("reason").is_in(["warmup", "inplace"])
        assert row["swaps_per_second"] == pytest.approx(
            rate(store, row["pod"], (kind == "evict") & gpu & (pl.col("reason") == "lru"))
        )
        assert row["loads_per_second"] == pytest.approx(rate(store, row["pod"], load))


def test_requests_are_those_for_an_adapter(store: Store, measured: Signals):
    rows = store.rows(REQUESTS, RECENT, pl.col("adapter").is_not_null())
    counted = dict(rows.group_by("pod").len().iter_rows())
    told = dict(measured.pods.select("pod", "requests_per_second").iter_rows())
    assert {pod: value for pod, value in told.items() if value} == pytest.approx(
        {pod: count / RECENT.seconds for pod, count in counted.items()}
    )


def test_shares_are_shares_and_bear_a_provenance(measured: Signals):
    for name in ("stall_share", "share_high", "busy_ratio"):
        known = measured.pods[name].drop_nulls()
        assert len(known)
        assert known.is_between(0.0, 1.01).all()
    assert measured.pods["provenance"].is_not_null().all()


def test_a_pod_that_tells_no_loads_has_none_that_is_zero(store: Store, situation: Situation):
    silent = situation.overview.pods.with_columns(loads=pl.lit(None, dtype=pl.Int64))
    told = replace(situation, overview=replace(situation.overview, pods=silent))
    pods = signals(store, told, ()).pods
    assert (
        pods.select("swaps_per_second", "loads_per_second", "miss_ratio", "stall_share").null_count().row(0) == (pods.height,) * 4
    )


def test_while_a_pool_is_learned_nothing_of_it_is_new(measured: Signals):
    assert measured.pools["newmass"].to_list() == measured.pools["new_adapters"].to_list() == [None] * measured.pools.height


def test_the_working_set_rises_with_its_span(measured: Signals):
    for rows in measured.working_set.with_columns(pl.col("seconds").cast(pl.Float64)).partition_by("cluster", "pool", "role"):
        assert rows.sort("seconds")["adapters"].is_sorted()


def test_a_phase_with_few_loads_has_no_mean(measured: Signals):
    assert set(measured.load_seconds["phase"]) <= {"disk", "copy"}
    assert (measured.load_seconds["load_seconds"] > 0).all()
