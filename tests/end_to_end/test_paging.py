"""Page once, with the reason: simulator, sidecars and exporter, Debian's Prometheus and Alertmanager, and a webhook."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest
from paging import Message, Told, alertmanager, alerts, jobs, problems, prometheus, wait_for, webhook
from processes import Process
from simulated import Played

from lora_watch.model import HOUR, MINUTE, SECOND
from lora_watch.rules.pace import Pace
from lora_watch.rules.render import rules
from lora_watch.rules.rule import Install
from lora_watch.schema import REQUESTS
from lora_watch.store.tables import Store

pytestmark = pytest.mark.slow

SPEED = 60.0
"""Seconds of the cluster in one of ours; rules, looks and Alertmanager's waits are that much faster too."""
THURSDAY = """\
name: thursday-in-minutes
about: An A/B test that nobody announced grows over an hour on two pods while the day's peak comes; then it is stopped.
days: 1.6
begin: 1772582400000000 # 2026-03-04 00:00 UTC, a Wednesday
pools: [{name: vllm, pods: 2, slots: 4, cpu_capacity: 64, router: article}]
loads: {profile: article}
traffic: {requests_per_second: 4.4, adapters: 10, zipf: 1.0, daily_swing: 0.3}
events:
  - {kind: split, start: 33, end: 35, top: 10, share: 0.5, suffix: -experiment, growth: 1.5, ramp_hours: 1}
truth:
  must_say: [new adapters]
"""
BEGIN, START, STOPPED, LATEST = 32.7, 33.0, 35.0, 38.0
"""Hours after the scenario's begin: it is played from, the test starts, it is stopped, all must be over."""
CAUSES = ("LoraNewAdapters", "LoraPredictedMisses")
HARM = ("LoraSaturation", "LoraGpuBusyNotInferring")


@dataclass
class Stage:
    """What runs."""

    played: Played
    told: Told
    prometheus: str
    alertmanager: str
    service: Process
    suppressed: set[str] = field(default_factory=set)
    """Alerts that Alertmanager held back for another one, ever."""

    def now(self) -> float:
        """Hours after the scenario's begin."""
        return self.hours(time.time())

    def hours(self, at: float) -> float:
        passed = (time.monotonic() - time.time() + at) - self.played.began / 1e9
        return (self.played.start / SECOND + passed * self.played.speed) / 3600

    @property
    def open(self) -> list[str]:
        """Alerts of the pool that are not only of a configuration; a service is late where the machine is busy."""
        told = [one["labels"] for one in alerts(self.alertmanager)]
        return [labels["alertname"] for labels in told if labels["severity"] != "info" and "watcher" not in labels]

    def watch(self, until: float) -> None:
        """Wait until that hour."""
        while self.now() < until:
            held = alerts(self.alertmanager)
            self.suppressed |= {one["labels"]["alertname"] for one in held if one["status"]["inhibitedBy"]}
            time.sleep(0.25)


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    scenario = folder / "thursday.yaml"
    scenario.write_text(THURSDAY)
    logs, data = folder / "logs", folder / "data"
    logs.mkdir()
    # laying a day takes some seconds: the clock starts when that is done, so both processes read it from the file then
    played = Played(str(scenario), round(BEGIN * HOUR), SPEED, 0, str(data), str(logs))
    file = played.save(folder / "played.json")
    with ExitStack() as stack:
        stack.enter_context(
            Process("simulated", "cluster", str(file), word="cluster", log=folder / "cluster.log", wait=120, environment=PATHS)
        )
        played = Played(**json.loads(file.read_text()))
        service = stack.enter_context(
            Process("simulated", "service", str(file), word="metrics", log=folder / "service.log", environment=PATHS)
        )
        told = stack.enter_context(webhook())
        manager = stack.enter_context(alertmanager(folder, told.url, SPEED))
        addresses = json.loads((logs / "addresses.json").read_text())
        server = stack.enter_context(
            prometheus(folder, rules(Install.FULL, pace=Pace(SPEED)), jobs(addresses, service.address), manager)
        )
        yield Stage(played, told, server, manager, service)


PATHS = {"PYTHONPATH": str(Path(__file__).parents[1])}


@dataclass(frozen=True)
class Story:
    """What was told and what was true."""

    messages: list[Message]
    hours: dict[int, float]
    suppressed: set[str]
    left: list[str]
    broken: list[str]
    bend: float

    def at(self, message: Message) -> float:
        return self.hours[id(message)]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The whole of it, from quiet to quiet."""
    folder = tmp_path_factory.mktemp("paging")
    with stage(folder) as on:
        on.watch(STOPPED)
        while on.now() < LATEST and (on.open or not on.told.over("page")):
            on.watch(on.now() + 1 / 60)
        messages = list(on.told.messages)
        hours = {id(one): on.hours(one.at) for one in messages}
        left, broken = on.open, problems(on.prometheus)
        suppressed, played = on.suppressed, on.played
    requests = Store(Path(played.data)).rows(REQUESTS)
    return Story(messages, hours, suppressed, left, broken, bend(requests, played.plan.scenario.begin))


def bend(requests: pl.DataFrame, begin: int) -> float:
    """Hours after the begin at which the P95 of requests' latency had been over twice that of before for ten minutes."""
    took = requests.select("arrived", took=pl.col("finished") - pl.col("arrived")).drop_nulls()
    before = took.filter(pl.col("arrived").is_between(begin + (START - 2) * HOUR, begin + START * HOUR))["took"].quantile(0.95)
    minutes = took.group_by(minute=(pl.col("arrived") - begin) // MINUTE).agg(p95=pl.col("took").quantile(0.95)).sort("minute")
    high = minutes.filter(pl.col("minute") >= START * 60).select("minute", high=pl.col("p95") > 2 * before)
    long = high.with_columns(run=pl.col("high").rle_id()).filter("high").group_by("run").agg(pl.col("minute").min(), n=pl.len())
    return long.filter(pl.col("n") >= 10)["minute"].min() / 60 + 10 / 60


def test_every_rule_could_be_evaluated(story: Story):
    assert story.broken == []


def test_it_pages_exactly_once(story: Story):
    pages = [one for one in story.messages if one.receiver == "page" and one.firing]
    assert len(pages) == 1, [(one.firing, story.at(one)) for one in pages]
    assert set(pages[0].firing) <= set(HARM)


def test_the_page_carries_the_cause_and_what_helps(story: Story):
    (page,) = (one for one in story.messages if one.receiver == "page" and one.firing)
    told = page.body["alerts"][0]["annotations"]
    assert "new adapters" in told["cause"]
    assert "-experiment" in told["cause"]
    assert told["remedy"]
    assert told["evidence"]
    assert told["runbook_url"]
    assert told["explorer_url"]


def test_it_pages_before_the_latency_bends(story: Story):
    (page,) = (one for one in story.messages if one.receiver == "page" and one.firing)
    assert START < story.at(page) < story.bend


def test_the_cause_is_warned_of_before_the_harm_is_paged(story: Story):
    (page,) = (one for one in story.messages if one.receiver == "page" and one.firing)
    warned = min(story.at(one) for one in story.messages if set(CAUSES) & set(one.firing))
    assert START < warned < story.at(page)


def test_nothing_is_said_of_a_pool_before_anything_happens(story: Story):
    early = [alert["labels"] for one in story.messages if story.at(one) < START for alert in one.body["alerts"]]
    # a service that is late on a busy machine says so: that is of the watcher, not of the pool
    assert [labels for labels in early if labels["severity"] != "info" and "watcher" not in labels] == []


def test_causes_are_silent_under_harm(story: Story):
    assert set(CAUSES) & story.suppressed


def test_all_resolves_after_the_test_is_stopped(story: Story):
    (over,) = (one for one in story.messages if one.receiver == "page" and one.resolved and not one.firing)
    assert STOPPED < story.at(over) < LATEST
    assert story.left == []


def test_without_lora_watch_the_raw_rules_still_warn_and_the_watcher_says_it_is_blind(tmp_path: Path):
    with stage(tmp_path) as on:
        on.watch(BEGIN + 0.15)
        on.service.kill()
        wait_for(lambda: bool(on.told.firing("LoraWatchBlind")), 60, lambda: on.told.messages)
        wait_for(lambda: bool(on.told.firing("LoraPredictedMisses")), 150, lambda: on.told.messages)
        assert on.hours(on.told.firing("LoraPredictedMisses")[0].at) > START
