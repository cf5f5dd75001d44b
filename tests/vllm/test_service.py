"""What the service derives from the run against a reference of a few lines computed from the engine's own log."""

from collections.abc import Iterator
from itertools import pairwise

import polars as pl
import pytest
import witness
from story import Story

from lora_watch.config import parse
from lora_watch.derive.misses import request_lookups
from lora_watch.derive.stays import stays
from lora_watch.explore.queries import Overview, Past, overview
from lora_watch.model import DAY, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.service import Service
from lora_watch.sources.configured import sources_of

pytestmark = pytest.mark.vllm

CLOCKS = 0.05
"""Seconds between a log line, written when an activation begins, and its record, written when it is complete."""

REMOVED_BY_HAND = 1
"""The story has the engine remove one adapter from its slot: what is loaded there next made nobody leave."""
ORDER = (0.005, 0.0003)
"""Seconds around a request's scheduling in which two clocks cannot tell what came first; its own load comes later still."""


@pytest.fixture(scope="module")
def service(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Service:
    """The service after it has read the whole run's event logs."""
    folder = tmp_path_factory.mktemp("service")
    settings = parse(
        f"event_logs: [{{folder: '{story.directory}/events', pod: tiny}}]\nstore: {{folder: '{folder}'}}\nexporter: {{port: 0}}"
    )
    newest = max(record["at"] for records in story.records.values() for record in records)
    service = Service(settings, sources_of(settings, lambda: newest + DAY), clock=lambda: newest + DAY)
    service.tick()
    return service


@pytest.fixture(scope="module")
def window(story: Story) -> Window:
    """From the first worker's start to just before the kill: all that its log covers."""
    worker = story.workers()[0]
    last = max(record["at"] for record in worker if record["kind"] in ("load", "evict", "use", "release"))
    return Window(worker[0]["at"], last + 1)


@pytest.fixture(scope="module")
def shown(service: Service, window: Window) -> Overview:
    """What the service derives of that window."""
    return overview(service.store, window, Past(service.store, DAY))


@pytest.fixture(scope="module")
def seen(story: Story, window: Window) -> list[witness.Seen]:
    """The engine's lines of that window."""
    return [line for line in witness.read(story.json_log) if line.at is not None and line.at < window.end / SECOND]


def product_limit(lengths: list[tuple[float, bool]]) -> Iterator[tuple[float, float]]:
    """Age and survival at each completed stay: the Kaplan-Meier estimate, as the textbook has it."""
    survival = 1.0
    for age in sorted({length for length, ended in lengths if ended}):
        at_risk = sum(length >= age for length, _ in lengths)
        survival *= 1 - sum(length == age and ended for length, ended in lengths) / at_risk
        yield age, survival


def test_residency_is_the_logs_own(shown: Overview, seen: list[witness.Seen], window: Window):
    lengths = [((left or window.end / SECOND) - loaded, left is not None) for _, loaded, left in witness.stays(seen)]
    curve = list(product_limit(lengths))
    pod = shown.pods.row(0, named=True)
    assert pod["completed"] == sum(ended for _, ended in lengths)
    for level, name in ((0.5, "p50_seconds"), (0.05, "p95_seconds")):
        assert pod[name] == pytest.approx(next(age for age, survival in curve if survival <= level), abs=CLOCKS)


def test_swaps_and_loads_are_the_logs_own(shown: Overview, seen: list[witness.Seen]):
    pod = shown.pods.row(0, named=True)
    assert pod["loads"] == len(witness.changes(seen))
    assert pod["swaps"] == len(witness.swaps(seen)) - REMOVED_BY_HAND


def test_cold_loads_are_those_the_log_adds_first(shown: Overview, seen: list[witness.Seen]):
    moves = [line for line in seen if line.what != "remove"]
    cold = sum(
        line.what == "activate" and before.what == "add" and before.adapter_id == line.adapter_id
        for before, line in pairwise(moves)
    )
    pod = shown.pods.row(0, named=True)
    assert (pod["cold"], pod["warm"]) == (cold, len(witness.changes(seen)) - cold)


def test_a_request_is_hot_where_the_logs_slot_table_has_its_adapter(
    service: Service, story: Story, seen: list[witness.Seen], window: Window
):
    sat = stays(service.store.scan(ADAPTER_EVENTS))
    found = request_lookups(service.store.scan(REQUESTS, window), sat).filter(pl.col("scheduled") < window.end).collect()
    ids = {name: {i for i, given in story.names.items() if given == name} for name in story.names.values()}
    tables = witness.changes(seen)
    wrong = unsure = 0
    for row in found.iter_rows(named=True):
        scheduled = row["scheduled"] / SECOND
        if any(-ORDER[0] < (change.at or 0) - scheduled < ORDER[1] for change in tables):
            unsure += 1
            continue
        there = set(witness.table_at(seen, scheduled).values()) & ids[row["adapter"]]
        wrong += bool(there) != (row["lookup"] == "hot")
    assert found.height > 200
    assert wrong == 0
    assert unsure < found.height / 4


def test_littles_residual_is_zero_on_the_engines_own_run(shown: Overview, seen: list[witness.Seen], window: Window):
    pod = shown.pods.row(0, named=True)
    end = window.end / SECOND
    occupied = sum((left or end) - loaded for _, loaded, left in witness.stays(seen))
    assert pod["little_residual_ratio"] == 0
    assert pod["resident_adapters"] * window.seconds == pytest.approx(occupied, rel=0.01)
