"""The fast path stores what reading the pages over HTTP gives, row for row."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import polars as pl
import pytest
from simulate.page_server import Cluster, serving_pages
from simulate.small import MIXED, shrunk

from lora_watch import names
from lora_watch.model import MINUTE, SECOND, PodId, Window
from lora_watch.schema import SAMPLES
from lora_watch.simulate.engines import lives
from lora_watch.simulate.meters import MODEL
from lora_watch.simulate.pages import EnginePages, GpuPage, RouterPage, metered
from lora_watch.simulate.rows import Rows
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.scrapes import ROUTER
from lora_watch.simulate.traffic import catalogue, everything
from lora_watch.simulate.write import simulate
from lora_watch.sources.dcgm import Dcgm
from lora_watch.sources.epp import Epp
from lora_watch.sources.placed import PlacedPages
from lora_watch.sources.scrape import PodMetrics
from lora_watch.store.tables import Store

EVERYTHING = {"whole_pages": True, "router_attempts": True, "sm_active": True}
GPUS = "gpus"
COMPARED = ["at", "pod", "engine", "series", "metric", "labels", "adapter", "value", "provenance"]


def whole(name: str) -> Scenario:
    return shrunk(name, 2.0).model_copy(update={**EVERYTHING, "days": 2 / 24})


@pytest.fixture(scope="module", params=["mixed", "thursday", "prefill-decode-mismatch"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scenario, Store, Cluster]]:
    """A scenario with everything stored, and its pages."""
    scenario = whole(request.param)
    folder = tmp_path_factory.mktemp(request.param) / "data"
    simulate(scenario, scenario.days, 1, folder)
    known = catalogue(scenario, 1)
    served = metered(list(lives(scenario, known, everything(scenario, known, scenario.days, 1), scenario.days, 1)))
    pods = groupby(served, key=lambda meter: f"{meter.life.pool.name}-{meter.life.pod}")
    pages = {pod: EnginePages(list(meters), known) for pod, meters in pods}
    more = {ROUTER: RouterPage(scenario, known, served), GPUS: GpuPage(scenario, known, served, sm_active=True)}
    with serving_pages({**pages, **more}) as cluster:
        yield scenario, Store(folder), cluster


def read(scenario: Scenario, cluster: Cluster, moment: int) -> pl.DataFrame:
    """What the ordinary sources make of all pages at a moment."""
    cluster.moment = moment
    pods = [
        PodId(scenario.cluster, f"{pool.name}-{p}", pool.name, pool.role) for pool in scenario.pools for p in range(pool.pods)
    ]
    sources = (
        PodMetrics("vllm", cluster.targets(*pods)),
        PlacedPages("epp", cluster.targets(PodId(scenario.cluster, ROUTER)), Epp({MODEL})),
        PlacedPages("dcgm", cluster.targets(PodId(scenario.cluster, GPUS)), Dcgm()),
    )
    batches = [source.read({}, moment + 1) for source in sources]
    assert [batch.problems for batch in batches] == [()] * 3
    rows = pl.concat([batch.rows for batch in batches])
    return rows.filter((pl.col("metric") != names.SAMPLE_SCRAPE_UP) & (pl.col("pod") != ROUTER))


def test_the_fast_path_stores_what_reading_the_pages_gives(both: tuple[Scenario, Store, Cluster]):
    scenario, store, cluster = both
    stored = store.scan(SAMPLES).select(COMPARED).collect()
    step = round(scenario.sample_seconds * SECOND)
    first = -(-scenario.begin // step) * step
    for minute in (0, 1, 7, 31, 58, 72, 105, 119):
        moment = first + minute * MINUTE
        told = stored.filter(pl.col("at") == moment).sort("series")
        seen = read(scenario, cluster, moment).select(COMPARED).sort("series")
        assert seen.equals(told), (minute, seen.join(told, on=COMPARED, how="anti", nulls_equal=True).head(5).to_dicts())


def test_windows_of_any_length_tell_the_same_samples():
    scenario = whole("mixed")
    known, until = catalogue(scenario, 1), scenario.begin + 40 * MINUTE
    served = list(lives(scenario, known, everything(scenario, known, scenario.days, 1), scenario.days, 1))
    frames = []
    for length in (40 * MINUTE, 7 * MINUTE, 97 * SECOND + 1):
        rows = Rows(scenario, known, served, until, 1)
        windows = Window(scenario.begin, until).split(length)
        frames.append(pl.concat([part.samples for window in windows for part in rows.parts(window)]).sort("series", "at"))
    assert frames[0].equals(frames[1])
    assert frames[0].equals(frames[2])


def test_without_being_asked_it_stores_neither_histograms_nor_attempts_nor_sm_active(tmp_path: Path):
    simulate(MIXED, 0.02, 1, tmp_path)
    stored = set(Store(tmp_path).scan(SAMPLES).select("metric").unique().collect()["metric"])
    assert stored == {
        names.REQUESTS_RUNNING,
        names.REQUESTS_WAITING,
        names.WAITING_BY_REASON,
        names.PROMPT_TOKENS,
        names.GENERATION_TOKENS,
        names.SAMPLE_MAX_LORA,
        names.SAMPLE_IN_FLIGHT,
        names.GPU_UTIL,
        names.GPU_ENGINE_ACTIVE,
        names.GPU_TENSOR_ACTIVE,
        names.GPU_DRAM_ACTIVE,
    }
