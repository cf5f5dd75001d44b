"""A simulated cluster served on loopback, read by the ordinary sources: what it tells is what the fast path stores."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from simulate.small import MIXED

from lora_watch import names
from lora_watch.model import DAY, HOUR, MINUTE, SECOND
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.simulate.feed import Feed
from lora_watch.simulate.live import Clock, Cluster
from lora_watch.simulate.meters import MODEL
from lora_watch.simulate.plan import Plan, plan
from lora_watch.simulate.scenario import load, shipped
from lora_watch.simulate.scrapes import ROUTER
from lora_watch.simulate.write import simulate
from lora_watch.sources.agent import AgentEvents, AgentRequests
from lora_watch.sources.dcgm import Dcgm
from lora_watch.sources.epp import Epp
from lora_watch.sources.exposition import parse_page
from lora_watch.sources.http import HttpDoor
from lora_watch.sources.placed import PlacedPages
from lora_watch.sources.scrape import PodMetrics
from lora_watch.sources.targets import Target, Targets
from lora_watch.sources.vllm import WANTED
from lora_watch.store.tables import Store

COMPARED = ["at", "pod", "engine", "series", "metric", "labels", "adapter", "value", "provenance"]
SETTLE = 2 * MINUTE
SAID_OTHERWISE = ("date", "source", "detail")
WHOLE = MIXED.model_copy(update={"whole_pages": True, "router_attempts": True, "sm_active": True})
LIVE = Plan(WHOLE, MIXED.begin + HOUR, MIXED.begin + 2 * HOUR, 1)


@dataclass
class Now:
    """A clock that stands where it is put."""

    at: int

    def __call__(self) -> int:
        return self.at


@dataclass(frozen=True)
class Played:
    """A cluster whose second hour was played, the first being stored, and what was read of it bit by bit."""

    cluster: Cluster
    store: Store
    now: Now


def targets(cluster: Cluster) -> Targets:
    return Targets(
        Target(one.pod.cluster, one.pod.pod, one.pod.pool, one.pod.role, one.metrics_url, one.agent_url) for one in cluster.pods
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("live")
    store, now = Store(folder / "data"), Now(LIVE.start)
    ledgers = {table: store.ledger(table) for table in (ADAPTER_EVENTS, REQUESTS)}
    (folder / "logs").mkdir()
    with Cluster(Feed(LIVE, 30 * SECOND), folder / "logs") as cluster:
        for told in cluster.feed.past():
            for table, batch in told.batches():
                if table in ledgers:
                    ledgers[table].append(batch, at=told.window.end)
            cluster.skip(told)
        cluster.open(now)
        sources = (AgentEvents("agents-events", targets(cluster)), AgentRequests("agents-requests", targets(cluster)))
        for moment in range(LIVE.start, LIVE.until + 1, 10 * MINUTE):
            now.at = moment
            cluster.tell(moment)
            for source in sources:
                batch = source.read(ledgers[source.table].refresh(), moment)
                assert batch.problems == ()
                ledgers[source.table].append(batch, at=moment)
        yield Played(cluster, store, now)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """The samples that the fast path stores of the two hours."""
    folder = tmp_path_factory.mktemp("stored") / "data"
    simulate(WHOLE, (LIVE.until - MIXED.begin) / DAY, 1, folder)
    return Store(folder).rows(SAMPLES)


@pytest.mark.parametrize("table", [ADAPTER_EVENTS, REQUESTS], ids=lambda table: table.name)
def test_what_was_laid_and_what_was_read_are_together_what_the_fast_path_stores(played: Played, tmp_path: Path, table):
    simulate(MIXED, (LIVE.until - MIXED.begin) / DAY, 1, tmp_path)
    wanted = Store(tmp_path).rows(table).sort("stream", "seq")
    assert wanted.height > 1_000
    assert_frame_equal(
        played.store.rows(table).sort("stream", "seq").drop(SAID_OTHERWISE, strict=False),
        wanted.drop(SAID_OTHERWISE, strict=False),
    )


def test_of_what_was_laid_nothing_is_told_again(played: Played):
    batch = AgentEvents("agents", targets(played.cluster)).read({}, played.now())
    assert batch.rows.filter(pl.col("kind") != "lost")["at"].min() >= LIVE.start
    assert set(batch.rows.filter(pl.col("kind") == "lost")["reason"]) == {"cap"}


def test_a_sidecar_knows_what_was_in_the_slots_before_its_logs_begin(played: Played):
    told = parse_page(
        [HttpDoor(played.cluster.pods[2].agent_url).get("/metrics").body], {names.ADAPTER_LOADED, names.GPU_ADAPTERS}
    )
    resident = [one for one in told.samples if one.name == names.ADAPTER_LOADED and one.labels["level"] == "gpu"]
    assert len(resident) == 3


def test_a_page_reads_as_a_vllms(played: Played):
    batch = PodMetrics("vllm", targets(played.cluster)).read({}, played.now())
    assert batch.problems == ()
    running = batch.rows.filter(pl.col("metric") == names.REQUESTS_RUNNING)
    assert sorted(running["pod"]) == ["a-0", "a-1", "a-2"]
    assert batch.rows.filter(pl.col("metric") == names.SAMPLE_MAX_LORA)["value"].unique().to_list() == [3.0]
    assert names.SAMPLE_IN_FLIGHT in batch.rows["metric"]


def test_the_gauges_series_stay_for_good_and_name_those_in_flight_twice(played: Played):
    page = parse_page([HttpDoor(played.cluster.pods[0].metrics_url).get().body], WANTED)
    gauges = [sample for sample in page.samples if sample.name == names.LORA_REQUESTS_INFO]
    assert len(gauges) > 5
    assert all(one.labels["running_lora_adapters"] == one.labels["waiting_lora_adapters"] for one in gauges)
    assert max(one.value for one in gauges) == pytest.approx(LIVE.until / SECOND, abs=60)


@pytest.mark.parametrize("minute", [0, 1, 16, 30, 44, 59])
def test_what_is_read_of_its_pages_is_what_the_fast_path_stores(minute: int, stored: pl.DataFrame, tmp_path: Path):
    moment = LIVE.start + minute * MINUTE
    now = Now(moment + SETTLE)
    with Cluster(Feed(LIVE, 30 * SECOND), tmp_path, settle=SETTLE) as cluster:
        for told in cluster.feed.past():
            cluster.skip(told)
        cluster.open(now)
        cluster.tell(moment + SETTLE)
        sources = (
            PodMetrics("vllm", targets(cluster)),
            PlacedPages("epp", Targets([Target("simulated", ROUTER, "", "", cluster.router_url)]), Epp({MODEL})),
            PlacedPages("dcgm", Targets([Target("simulated", "gpus", "", "", cluster.gpus_url)]), Dcgm()),
        )
        batches = [source.read({}, moment + 1) for source in sources]
    assert [batch.problems for batch in batches] == [()] * 3
    rows = pl.concat([batch.rows for batch in batches]).filter(
        (pl.col("metric") != names.SAMPLE_SCRAPE_UP) & (pl.col("pod") != ROUTER)
    )
    wanted = stored.filter(pl.col("at") == moment)
    assert wanted.height > 100
    assert_frame_equal(rows.select(COMPARED).sort("series"), wanted.select(COMPARED).sort("series"), check_exact=True)


def test_engines_have_residency_gauges_only_when_asked_to(tmp_path: Path):
    loaded = []
    for residency in (False, True):
        (tmp_path / str(residency)).mkdir()
        with Cluster(Feed(LIVE, 30 * SECOND), tmp_path / str(residency), residency_gauges=residency) as cluster:
            for told in cluster.feed.past():
                cluster.skip(told)
            cluster.open(Now(LIVE.start))
            page = parse_page([HttpDoor(cluster.pods[0].metrics_url).get().body], {names.ADAPTER_LOADED})
            loaded.append([one.labels["level"] for one in page.samples])
    assert loaded[0] == []
    assert loaded[1].count("gpu") == 3


def test_the_gpus_are_those_of_the_pods(played: Played):
    pages = Targets([Target("simulated", "gpus", "", "", played.cluster.gpus_url)])
    batch = PlacedPages("gpus", pages, Dcgm({})).read({}, played.now())
    util = batch.rows.filter(pl.col("metric") == names.GPU_UTIL)
    assert sorted(util["pod"]) == ["a-0", "a-1", "a-2"]
    assert util["value"].is_between(1, 100).all()


def test_positions_are_those_of_the_first_window_that_ends_so_late(played: Played):
    assert played.cluster.positions(LIVE.until + 1) is None
    early, late = (played.cluster.positions(moment) for moment in (LIVE.start, LIVE.until))
    assert early is not None
    assert late is not None
    assert all(late[name] >= seq for name, seq in early.items())
    assert sum(late.values()) > sum(early.values())


def test_the_clock_runs_as_many_times_as_fast_and_stops_at_the_end():
    passed = iter([5_000_000_000, 6_000_000_000, 7_000_000_000, 99_000_000_000])
    clock = Clock(1_000_000, 60, 200_000_000, nanoseconds=lambda: next(passed))
    assert [clock(), clock(), clock()] == [61_000_000, 121_000_000, 200_000_000]


THURSDAY_NOON = 1_796_299_200 * SECOND
"""2026-12-03 12:00 UTC, a Thursday."""


def test_the_incident_is_at_its_own_hour_of_a_weekday_before_today():
    live = plan(load("thursday"), THURSDAY_NOON, 1)
    split = live.scenario.events[0].during(live.scenario.begin)[0]
    assert split == THURSDAY_NOON - 7 * DAY - HOUR - 45 * MINUTE
    assert live.start == split - HOUR


@pytest.mark.parametrize("name", shipped())
def test_every_scenario_is_played_before_today_with_its_first_event_ahead(name: str):
    scenario = load(name)
    live = plan(scenario, THURSDAY_NOON, 1)
    assert live.scenario.begin < live.start < live.until <= THURSDAY_NOON // DAY * DAY
    assert (live.scenario.begin - scenario.begin) % HOUR == 0
    moved = [event.during(live.scenario.begin)[0] for event in live.scenario.events]
    was = [event.during(scenario.begin)[0] for event in scenario.events]
    assert len({(now - before) % (7 * DAY) for now, before in zip(moved, was, strict=True)}) <= 1
    assert all(at > live.start for at in moved)


def test_the_day_before_has_the_same_adapters_and_nothing_happens_in_it():
    live = plan(load("thursday"), THURSDAY_NOON, 1)
    day = live.day_before(2)
    assert (day.scenario.begin, day.until) == (live.scenario.begin - 2 * DAY, live.scenario.begin - DAY)
    assert day.scenario.events == ()
    assert day.scenario.traffic == live.scenario.traffic
    with pytest.raises(ValueError, match="number 1"):
        live.day_before(0)


def test_traffic_has_grown_by_the_day_that_is_played():
    scenario = load("thursday")
    growing = scenario.model_copy(update={"traffic": scenario.traffic.model_copy(update={"growth_per_day": 0.1})})
    live = plan(growing, THURSDAY_NOON, 1)
    assert live.scenario.traffic.requests_per_second == pytest.approx(24 * 1.1)
    assert live.day_before(1).scenario.traffic.requests_per_second == pytest.approx(24)


@pytest.mark.parametrize("name", shipped())
def test_every_scenario_can_be_played(name: str, tmp_path: Path):
    scenario = load(name)
    traffic = scenario.traffic.model_copy(update={"requests_per_second": min(scenario.traffic.requests_per_second, 0.5)})
    live = plan(scenario.model_copy(update={"traffic": traffic}), THURSDAY_NOON, 1)
    short = replace(live, start=live.scenario.begin + 5 * MINUTE, until=live.scenario.begin + 10 * MINUTE)
    with Cluster(Feed(short, 5 * MINUTE), tmp_path) as cluster:
        for told in cluster.feed.past():
            cluster.skip(told)
        cluster.open(Now(short.until))
        cluster.tell(short.until)
        laid = cluster.positions(short.start) or {}
        for source in (AgentEvents("agents", targets(cluster)), PodMetrics("pods", targets(cluster))):
            batch = source.read(laid, short.until)
            assert batch.problems == ()
            assert batch.rows["pod"].n_unique() == len(cluster.pods)
