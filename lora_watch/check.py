"""
``lora-watch check``: one look, at whatever there is, without a service.

What is looked at is first read into tables, as the service would read it: a store as it is, pods and Prometheus servers and
files into a folder that is removed again. Then the same questions are asked of it.
"""

import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

import polars as pl
from pydantic import ValidationError

from lora_watch import import_history as history
from lora_watch import names
from lora_watch.config import Settings, TargetSettings
from lora_watch.diagnose.diagnosis import Diagnosis, Gap
from lora_watch.diagnose.finding import Severity
from lora_watch.errors import LoraWatchError, SourceError
from lora_watch.explore import cards
from lora_watch.explore.around import WARM_UP
from lora_watch.explore.queries import newest
from lora_watch.explore.situation import Memory, diagnosis, given
from lora_watch.explore.status import window_of
from lora_watch.jobs import collect
from lora_watch.model import SECOND, PodId, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, TABLES, Table
from lora_watch.service import wall_clock
from lora_watch.sources.base import Source, printable
from lora_watch.sources.configured import sources_of
from lora_watch.store.tables import Store

FAILS = {"warn": Severity.WARN, "harm": Severity.HARM}
READS = 1_000
"""Reads of one source at most; an agent's log of a day on a busy pod takes a few hundred."""
_SURE = {ADAPTER_EVENTS.name: "kind", REQUESTS.name: "finished", SAMPLES.name: "metric"}
"""A column that tells rows of a table from those of another with the same key."""


@dataclass(slots=True)
class Gathered:
    """What is looked at: the tables, and what went wrong on the way to them."""

    store: Store
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for: what to look at, and which window of it."""

    data: Path | None = None
    prometheus: str | None = None
    pods: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    last: str = "1h"
    at: str | None = None
    watch: float = 15.0

    @property
    def nothing(self) -> bool:
        """Nothing is named: the configuration says what to look at."""
        return self.data is None and self.prometheus is None and not (self.pods or self.agents or self.files)


def run(settings: Settings, asked: Asked, *, format: str, fail_on: str | None, now: Callable[[], int] = wall_clock) -> int:
    """Look, print, and return the exit code: 1 where a finding that goes on is as grave as ``fail_on``. Raises LoraWatchError."""
    with looked_at(settings, asked, now) as gathered:
        told = look(gathered, settings, asked, now())
    if format == "json":
        sys.stdout.write(cards.as_json(told) + "\n")
    elif format == "md":
        sys.stdout.write(cards.as_markdown(told))
    else:
        cards.show(told)
    return int(fail_on is not None and told.worst is not None and told.worst.rank >= FAILS[fail_on].rank)


def look(gathered: Gathered, settings: Settings, asked: Asked, now: int) -> Diagnosis:
    """The diagnosis of what was gathered; what could not be read stands among the gaps."""
    length, at = window_of(asked.last, asked.at)
    end = ends(gathered.store, at, now)
    memory = Memory(gathered.store, round(settings.derive.lookback.total_seconds() * SECOND))
    told = diagnosis(memory, Window(end - length, end), **given(settings.diagnose))
    trouble = tuple(
        Gap("part of what was asked for", problem, "see that it can be reached and read") for problem in gathered.problems
    )
    return replace(told, gaps=(*trouble, *told.gaps))


@contextmanager
def looked_at(settings: Settings, asked: Asked, now: Callable[[], int]) -> Iterator[Gathered]:
    """The tables that are asked for; temporary ones are gone when the block is left. LoraWatchError where they can't be had."""
    named = (asked.data is not None, asked.prometheus is not None, bool(asked.pods or asked.agents), bool(asked.files))
    if sum(named) > 1:
        raise LoraWatchError("name one thing to look at: --data, --prometheus, --pod and --agent, or --history")
    folder = asked.data or (settings.store.folder if asked.nothing else None)
    if len(asked.files) == 1 and _holds_tables(asked.files[0]):
        folder = asked.files[0]
    if folder is not None and _holds_tables(folder):
        yield Gathered(Store(folder))
        return
    if asked.data is not None:
        raise LoraWatchError(f"there are no tables in {asked.data}: run `lora-watch serve`, or name what to look at otherwise")
    with temporary() as store, history.bar() as show:
        if asked.prometheus is not None:
            length, at = window_of(asked.last, asked.at)
            end = now() if at is None else at
            whole = Window(end - length - WARM_UP, end)
            gathered = from_prometheus(store, settings, asked.prometheus, whole, now, show)
        elif asked.files:
            gathered = from_files(store, settings, asked.files, "pod", now, show)
        else:
            targets = settings if asked.nothing else pods(asked.pods, asked.agents, settings)
            gathered = from_targets(store, targets, now, watch=asked.watch)
        if gathered.problems and not _told_anything(store):
            more = f" (and {len(gathered.problems) - 1} more problems)" if len(gathered.problems) > 1 else ""
            raise LoraWatchError(f"nothing could be read: {gathered.problems[0]}{more}")
        yield gathered


@contextmanager
def temporary() -> Iterator[Store]:
    """Tables that are gone when the block is left, also on SIGTERM."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with tempfile.TemporaryDirectory(prefix="lora-watch-check-") as folder:
            yield Store(folder)
    finally:
        signal.signal(signal.SIGTERM, before)


def from_targets(
    store: Store,
    settings: Settings,
    clock: Callable[[], int],
    *,
    watch: float,
    sleep: Callable[[float], None] = time.sleep,
) -> Gathered:
    """
    Everything that the targets of ``settings`` hold now, read until nothing more comes; then again ``watch`` seconds later,
    since what an engine's own page says takes two looks to become a rate. A target that can't be read is a problem.
    """
    gathered = Gathered(store)
    sources = sources_of(settings, clock)
    if not sources:
        raise LoraWatchError("there is nothing to look at: name pods, a Prometheus, files or a store")
    for look in range(2 if watch else 1):
        if look:
            sleep(watch)
        for source in sources:
            _exhaust(source, store, clock, gathered)
    return gathered


def _told_anything(store: Store) -> bool:
    """Whether there is a row but those that say how reading itself went."""
    if any(store.newest(table) is not None for table in (ADAPTER_EVENTS, REQUESTS)):
        return True
    told = ~pl.col("metric").is_in([names.SAMPLE_SCRAPE_UP, names.SAMPLE_CLOCK_OFFSET])
    return store.rows(SAMPLES, where=told, columns=["at"]).height > 0


def _exhaust(source: Source, store: Store, clock: Callable[[], int], gathered: Gathered) -> None:
    ledger = store.ledger(source.table)
    for _ in range(READS):
        now = clock()
        try:
            done = collect(source, ledger, until=now, now=now)
        except SourceError as error:
            _tell(gathered, str(error))
            return
        for problem in done.problems:
            _tell(gathered, problem)
        if not done.rows or source.table is SAMPLES:
            return


def pods(metrics: Sequence[str], agents: Sequence[str], settings: Settings) -> Settings:
    """
    Settings that name these pages and sidecars and nothing else. The n-th sidecar belongs to the n-th page; there may be only
    pages or only sidecars. A pod is called after its host and port; of several behind one, after the path, too. LoraWatchError
    where there are both in different numbers, one is no address, or one is named twice.
    """
    if metrics and agents and len(metrics) != len(agents):
        raise LoraWatchError(f"{len(metrics)} pages and {len(agents)} sidecars: name one --agent for each --pod, in their order")
    count = max(len(metrics), len(agents))
    named = [(metrics[n] if metrics else None, agents[n] if agents else None) for n in range(count)]
    hosts = [_host(*one) for one in named]
    targets = tuple(
        _target(host if hosts.count(host) == 1 else (page or agent or "").partition("://")[2], page, agent)
        for host, (page, agent) in zip(hosts, named, strict=True)
    )
    try:
        return Settings(cluster=settings.cluster, targets=targets)
    except ValidationError as error:
        raise LoraWatchError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error


def _host(metrics: str | None, agent: str | None) -> str:
    return (metrics or agent or "").partition("://")[2].partition("/")[0]


def _target(pod: str, metrics: str | None, agent: str | None) -> TargetSettings:
    try:
        return TargetSettings(pod=pod or None, metrics=metrics, agent=agent)
    except ValidationError as error:
        raise LoraWatchError(
            f"{printable(metrics or agent or '')}: {error.errors()[0]['msg'].removeprefix('Value error, ')}"
        ) from error


def from_prometheus(
    store: Store, settings: Settings, url: str, window: Window, clock: Callable[[], int], show: history.Bar
) -> Gathered:
    """Every raw sample of the window that the server at ``url`` holds of engines, routers and GPUs."""
    done = history.from_prometheus(settings, history.server_of(settings, None, url), window, store, clock, show)
    return Gathered(store, list(done.problems))


def from_files(
    store: Store, settings: Settings, files: Sequence[Path], pod: str, clock: Callable[[], int], show: history.Bar
) -> Gathered:
    """
    Files and folders, each read as what it is: a folder or file of event logs, or a table in Parquet, CSV or JSON lines.
    LoraWatchError where nobody can tell what a file is, or nothing is in any.
    """
    gathered = Gathered(store)
    filling = history.filling(settings.cluster, None)
    for file in files:
        kind = kind_of(file)
        if kind is None:
            done = history.from_event_logs([file], PodId(settings.cluster, pod), store, clock, show)
        else:
            done = history.from_tables([file], kind, filling, store, clock, show)
        gathered.problems += done.problems
    return gathered


def kind_of(file: Path) -> Table | None:
    """
    The table whose rows a file holds, None for event logs. By its columns, or by the first record of JSON lines.

    LoraWatchError where it is not there, or is neither.
    """
    if _holds_tables(file):
        raise LoraWatchError(f"{file} holds tables of ours: look at it alone, with --data")
    if file.is_dir():
        return None
    if not file.is_file():
        if file.exists():
            raise LoraWatchError(f"{file} is neither a file nor a folder: write what it gives to a file first")
        raise LoraWatchError(f"there is no file {file}")
    columns = _columns(file)
    if {"v", "boot", "seq", "kind"} <= columns and "stream" not in columns:
        return None
    for table in (ADAPTER_EVENTS, REQUESTS, SAMPLES):
        if set(table.key) <= columns and _SURE[table.name] in columns:
            return table
    raise LoraWatchError(
        f"{file} is neither an event log nor a table of {', '.join(table.name for table in TABLES)}: "
        "use `lora-watch import` with a format for request logs, then `check --data`"
    )


def _holds_tables(folder: Path) -> bool:
    try:
        return any((folder / table.name).is_dir() for table in TABLES)
    except OSError as error:
        raise LoraWatchError(f"cannot look into {folder}: {error.strerror or error}") from error


def _columns(file: Path) -> set[str]:
    try:
        if file.suffix == ".parquet":
            return set(pl.read_parquet_schema(file))
        with file.open(encoding="utf-8-sig") as lines:  # a spreadsheet begins with a mark of the byte order
            first = lines.readline()
    except (OSError, UnicodeDecodeError, pl.exceptions.PolarsError) as error:
        raise LoraWatchError(f"cannot read {file}: {error}") from error
    with suppress(ValueError, RecursionError):  # no JSON, or a number of thousands of digits
        record = json.loads(first)
        if isinstance(record, dict):
            return set(record)
    return {name.strip().strip('"') for name in first.split(",")}


def _tell(gathered: Gathered, problem: str) -> None:
    if problem not in gathered.problems:
        gathered.problems.append(problem)


def ends(store: Store, at: int | None, now: int) -> int:
    """Where the window ends, µs UTC: where told, else where the data end, but not later than now."""
    end = at if at is not None else newest(store, now + SECOND)
    if end is None:
        raise LoraWatchError("there is no data to look at: nothing could be read, or nothing is there")
    return end
