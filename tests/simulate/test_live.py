"""A simulated cluster served on loopback, read by the ordinary sources."""

import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from simulate.small import MIXED

from lora_watch import names
from lora_watch.model import SECOND
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.simulate.live import Served, recordings, serving
from lora_watch.simulate.write import simulate
from lora_watch.sources.agent import AgentEvents, AgentRequests
from lora_watch.sources.exposition import parse_page
from lora_watch.sources.scrape import PodMetrics
from lora_watch.sources.targets import Target, Targets
from lora_watch.sources.vllm import WANTED
from lora_watch.store.tables import Store

HALF_AN_HOUR = 0.5 / 24
SCENARIO = MIXED.model_copy(update={"events": MIXED.events[4:]})
SPEED = 10.0
MOVED = ("at", "arrived", "queued", "scheduled", "first_token", "finished")
SAID_OTHERWISE = ("date", "source", "detail")


def targets(served: tuple[Served, ...]) -> Targets:
    return Targets(
        Target(one.pod.cluster, one.pod.pod, one.pod.pool, one.pod.role, one.playing.metrics_url, one.playing.agent_url)
        for one in served
    )


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Served, ...]]:
    with serving(SCENARIO, HALF_AN_HOUR, 1, ahead=0) as pods:
        yield pods


@pytest.mark.parametrize(("source", "table"), [(AgentEvents, ADAPTER_EVENTS), (AgentRequests, REQUESTS)])
def test_what_a_reader_gets_of_the_sidecars_is_what_the_fast_path_stores(
    served: tuple[Served, ...], tmp_path: Path, source: type[AgentEvents | AgentRequests], table
):
    simulate(SCENARIO, HALF_AN_HOUR, 1, tmp_path)
    stored = Store(tmp_path).scan(table).sort("stream", "seq").collect()
    read = source("agent", targets(served)).read({}, time.time_ns() // 1000)
    assert read.problems == ()
    seen = read.rows.sort("stream", "seq")
    moved = pl.DataFrame({"pod": seen["pod"], "by": seen["at"] - stored["at"]}).unique("pod")
    offset = dict(moved.iter_rows())
    moves = pl.col("pod").replace_strict(offset, return_dtype=pl.Int64)
    back = seen.with_columns(pl.col(name) - moves for name in MOVED if name in seen.columns)
    assert back.drop(SAID_OTHERWISE, strict=False).equals(stored.drop(SAID_OTHERWISE, strict=False))
    assert max(offset.values()) - min(offset.values()) < 2 * SECOND


def test_the_page_reads_as_a_vllms(served: tuple[Served, ...]):
    batch = PodMetrics("vllm", targets(served)).read({}, time.time_ns() // 1000)
    running = batch.rows.filter(pl.col("metric") == names.REQUESTS_RUNNING)
    assert sorted(running["pod"]) == ["a-0", "a-1", "a-2"]
    assert batch.rows.filter(pl.col("metric") == names.SAMPLE_MAX_LORA)["value"].unique().to_list() == [3.0]
    assert names.SAMPLE_IN_FLIGHT in batch.rows["metric"]


def test_the_gauges_series_stay_for_good_and_name_those_in_flight_twice():
    recording = next(iter(recordings(SCENARIO, HALF_AN_HOUR, 1).values()))
    counts = [text.count(f"{names.LORA_REQUESTS_INFO}{{") for _, text in recording.pages]
    assert counts == sorted(counts)
    assert counts[-1] > 5
    page = parse_page([recording.pages[-1][1].encode()], WANTED)
    assert page.problems == ()
    gauges = [sample for sample in page.samples if sample.name == names.LORA_REQUESTS_INFO]
    assert all(one.labels["running_lora_adapters"] == one.labels["waiting_lora_adapters"] for one in gauges)
    assert max(one.value for one in gauges) == pytest.approx(recording.pages[-1][0] / SECOND)


def test_at_ten_times_the_speed_everything_takes_a_tenth():
    real, fast = (next(iter(recordings(SCENARIO, HALF_AN_HOUR, 1, speed).values())) for speed in (1.0, SPEED))
    assert fast.window.seconds == pytest.approx(real.window.seconds / SPEED, rel=0.01)
    for one, other in zip(real.segments.values(), fast.segments.values(), strict=True):
        loads = [[record["seconds"] for record in log if record["kind"] == "load"] for log in (one, other)]
        assert loads[1] == pytest.approx([seconds / SPEED for seconds in loads[0]])
    assert [at for at, _ in fast.pages] == sorted(at for at, _ in fast.pages)


@pytest.mark.parametrize(("days", "speed"), [(1.5, 1.0), (0.0, 1.0), (0.1, 0.0)])
def test_what_is_too_long_to_be_played_is_refused(days: float, speed: float):
    with pytest.raises(ValueError, match="what is played"), serving(SCENARIO, days, 1, ahead=0, speed=speed):
        pass
