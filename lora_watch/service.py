"""
The service: clocks, threads and signals, and nothing else. The only module that schedules.

The scheduler only ticks; what was read is known from the positions in the store, so a tick that was missed, a restart or an hour
of outage needs no memory: the next tick reads on from there, a bounded amount at a time.
"""

import json
import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType

import polars as pl
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from lora_watch import jobs
from lora_watch.config import LogSettings, Settings
from lora_watch.diagnose.life import Change, Rules
from lora_watch.errors import LoraWatchError, NotEnoughHistory, StoreError
from lora_watch.explore import hours
from lora_watch.explore.queries import Past, overview
from lora_watch.exporter import Exporter
from lora_watch.model import DAY, MINUTE, SECOND, Window
from lora_watch.schema import FINDINGS
from lora_watch.sources.base import Source
from lora_watch.store.layout import Layout
from lora_watch.store.tables import Ledger, Store

LOG = logging.getLogger("lora_watch")
WAKE_SECONDS = 1.0
"""A signal that lands just as a wait begins is slept through until the wait ends."""
FIRST_DERIVE_SECONDS = 3.0
"""After the first look at the sources: figures made before it would be about nothing."""
BLIND_LOOKS = 5
"""After so many looks that did not happen, what was in between is unknown."""
FIRST_LONG_SECONDS = 300.0
"""After the start what takes processors for long begins: a service that starts again looks first, it may be in an incident."""
HOURS_SECONDS = 600.0
"""Between two looks for hours that are closed by now."""
HOURS_LATE = 5 * MINUTE
"""So long after its end an hour is closed: what comes later has its day worked out again."""
HOURS_AT_ONCE_SECONDS = 20.0
"""After so long no further day is begun until the next look: who starts with a long history works it out little by little."""
NEW_PROBLEMS_SHOWN = 10
"""Lines one source may write in one tick; the rest is a count. A thousand broken pods must not drown the log."""
_STORE = "the store"
"""Whose problems those of the tables are; no source can be called so."""
REPORT_SECONDS = 300.0
"""Between two looks whether the weekly report is due: it is late by so much at most."""
ADVISE_SECONDS = 3600.0
"""Between two looks whether advice is due."""
ADVICE_EVERY = DAY
"""Advice is a minute of two processors and a gigabyte, and a day changes little of it."""
_READERS = ("derive", "diagnose", "report", "advise")
"""Jobs about what others collected."""
_LONG = ("hours", "advise")
"""Jobs that take long after a pause."""
_OUTCOMES = {EVENT_JOB_MISSED: "missed", EVENT_JOB_MAX_INSTANCES: "skipped", EVENT_JOB_ERROR: "crashed"}


def wall_clock() -> int:
    """Now, µs UTC."""
    return time.time_ns() // 1000


class Service:
    """
    Collects, derives, diagnoses and maintains on a schedule, and serves the exporter. ``clock`` gives µs UTC; without ``find``,
    which says what is wrong in a window, nothing is diagnosed, and without ``report``, which is told the time and makes what is
    due, no report is made; without ``advise``, which is told the time and works out rows of advice, none is stored.

    Each source is a job of its own, so that one that hangs holds up nobody else; each runs at most once at a time and a tick that
    comes too early is skipped, not queued.
    """

    def __init__(
        self,
        settings: Settings,
        sources: Iterable[Source],
        *,
        clock: Callable[[], int] = wall_clock,
        find: jobs.Find | None = None,
        report: Callable[[int], None] | None = None,
        advise: Callable[[int], pl.DataFrame] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._latest = clock()
        self._store = Store(settings.store.folder)
        whole_days = math.ceil(settings.store.retention / timedelta(days=1))  # a part of a day keeps all of it
        self._layout = Layout(self._store, retention_days=whole_days)
        self.exporter = Exporter(adapters=settings.exporter.adapters, explorer=settings.exporter.explorer)
        self._past = Past(self._store, _micros(settings.derive.lookback.total_seconds()))
        self._jobs: dict[str, tuple[float, Callable[[], None]]] = {}
        every = settings.collect.interval.total_seconds()
        for source in sources:
            self._jobs[f"collect {source.name}"] = (every, _Collector(self, source).run)
        self._jobs["derive"] = (settings.derive.interval.total_seconds(), self.derive)
        if find is not None:
            self._jobs["diagnose"] = (settings.diagnose.interval.total_seconds(), _Looks(self, settings, find).run)
        if report is not None:
            self._jobs["report"] = (REPORT_SECONDS, lambda: report(self.now()))
        if advise is not None:
            self._jobs["advise"] = (ADVISE_SECONDS, lambda: self._advise(advise))
        self._jobs["hours"] = (HOURS_SECONDS, self.close_hours)
        self._jobs["maintain"] = (settings.store.maintenance.total_seconds(), self.maintain)
        self._states: dict[str, set[str]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()

    @property
    def settle(self) -> int:
        """How long the newest data is left before it is read, µs."""
        return _micros(self._settings.collect.settle.total_seconds())

    @property
    def store(self) -> Store:
        """The tables this service writes."""
        return self._store

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then let running jobs end. Raises LoraWatchError where it cannot start."""
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self._on_signal)
        address, stop_serving = self._serve()
        for line in (f"metrics   {address}", f"data      {self._settings.store.folder}"):
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
        scheduler = self._schedule()
        scheduler.start()
        LOG.info("watching", extra={"fields": {"jobs": len(self._jobs), "data": str(self._settings.store.folder)}})
        while not self._stop.wait(WAKE_SECONDS):
            pass
        LOG.info("stopping: running jobs end first")
        scheduler.shutdown(wait=True)
        stop_serving()
        LOG.info("stopped")

    def stop(self) -> None:
        """Make ``run`` return; safe from a signal handler or another thread."""
        self._stop.set()

    def tick(self) -> None:
        """Every job once, in order, in this thread: what tests and one-shot commands use instead of ``run``."""
        for name in self._jobs:
            self._run_job(name)

    def derive(self) -> None:
        """Compute the published figures over the window that ends where collecting has settled."""
        settings = self._settings.derive
        end = self.now() - self.settle
        window = Window(end - _micros(settings.window.total_seconds()), end)
        try:
            self.exporter.publish(overview(self._store, window, self._past))
        except StoreError:
            self.report(_STORE, set(self._layout.repair()))
            raise

    def close_hours(self) -> None:
        """Work out what closed hours say, for wide windows of the explorer."""
        started = time.perf_counter()
        jobs.close_hours(
            self._store,
            partial(hours.stale, self._store),
            lambda day: hours.of_day(self._store, day, _micros(self._settings.derive.lookback.total_seconds())),
            until=self.now() - self.settle - HOURS_LATE,
            goes_on=lambda: time.perf_counter() - started < HOURS_AT_ONCE_SECONDS,
        )

    def _advise(self, give: Callable[[int], pl.DataFrame]) -> None:
        """New advice once a day; where too little is held for any, that is no failure."""
        now = self.now()
        with suppress(NotEnoughHistory):
            jobs.advise(self._store, lambda: give(now), now=now, every=ADVICE_EVERY)

    def maintain(self) -> None:
        """Merge, sort and drop in the store."""
        done = self._layout.maintain(self.now())
        self.report(_STORE, set(done.problems))

    def now(self) -> int:
        """The clock; a step back is said once and everything waits until it has caught up, since stored times never go back."""
        now = self._clock()
        if now < self._latest - SECOND:
            behind = (self._latest - now) / SECOND
            self.report(
                "clock", {f"the clock was set back by about {behind:.0f} s; samples wait until it has caught up, events go on"}
            )
        else:
            self.report("clock", set())
            self._latest = max(self._latest, now)
        return now

    def report(self, what: str, problems: set[str]) -> None:
        """One line for each problem that is new and one when all are over; nothing while nothing changes."""
        with self._lock:
            before = self._states.get(what, set())
            self._states[what] = problems
        if problems == before:
            return
        new = sorted(problems - before)
        for problem in new[:NEW_PROBLEMS_SHOWN]:
            LOG.warning(problem, extra={"fields": {"source": what}})
        if len(new) > NEW_PROBLEMS_SHOWN:
            LOG.warning(f"and {len(new) - NEW_PROBLEMS_SHOWN} more of this kind", extra={"fields": {"source": what}})
        if before and not problems:
            LOG.info("all is well again", extra={"fields": {"source": what}})

    def _run_job(self, name: str) -> None:
        _, function = self._jobs[name]
        started = time.perf_counter()
        try:
            function()
        except LoraWatchError as error:
            self.exporter.job_runs.labels(name, "failed").inc()
            self.report(name, {str(error)})
        else:
            self.exporter.job_runs.labels(name, "succeeded").inc()
            self.exporter.job_success.labels(name).set(self._clock() / SECOND)
            self.report(name, set())
        self.exporter.job_seconds.labels(name).observe(time.perf_counter() - started)

    def _schedule(self) -> BackgroundScheduler:
        scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(max_workers=len(self._jobs) + 2)},
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )
        scheduler.add_listener(self._on_scheduler, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES | EVENT_JOB_ERROR)
        for name, (seconds, _) in self._jobs.items():
            scheduler.add_job(
                self._run_job,
                "interval",
                args=[name],
                id=name,
                seconds=seconds,
                jitter=seconds / 20,
                next_run_time=datetime.fromtimestamp(time.time() + _first_seconds(name), UTC),
            )
        return scheduler

    def _on_scheduler(self, event: JobEvent) -> None:
        self.exporter.job_runs.labels(event.job_id, _OUTCOMES[event.code]).inc()
        if event.code == EVENT_JOB_ERROR:
            LOG.error(
                "a job crashed: this is a defect of lora_watch",
                exc_info=event.exception,
                extra={"fields": {"source": event.job_id}},
            )

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stop()

    def _serve(self) -> tuple[str, Callable[[], None]]:
        settings = self._settings.exporter
        try:
            return self.exporter.serve(settings.host, settings.port)
        except OSError as error:
            where, why = f"{settings.host}:{settings.port}", error.strerror or str(error)
            raise LoraWatchError(f"cannot listen on {where}: {why}; set exporter.port (0 picks a free one)") from error


class _Collector:
    """The job of one source: reads it into its ledger, counts what came, and says how far behind the source is."""

    def __init__(self, service: Service, source: Source) -> None:
        self._service = service
        self._source = source
        self._ledger: Ledger | None = None
        self._until: int | None = None

    def run(self) -> None:
        """One read. Raises LoraWatchError where the source or the store failed as a whole."""
        service, name, exporter = self._service, self._source.name, self._service.exporter
        now = service.now()
        until = now - service.settle
        errors = exporter.source_errors.labels(name)
        try:
            self._ledger = self._ledger or service.store.ledger(self._source.table)
            done = jobs.collect(self._source, self._ledger, until=until, now=now)
        except LoraWatchError as error:
            errors.inc()
            if isinstance(error, StoreError):
                self._ledger = None  # the next tick opens the table as it is then
            raise
        exporter.source_rows.labels(name).inc(done.rows)
        exporter.source_lost.labels(name).inc(done.lost)
        exporter.source_late.labels(name).inc(done.late)
        errors.inc(len(done.problems))
        exporter.source_success.labels(name).set(now / SECOND)
        if self._until is None:
            exporter.source_lag.labels(name).set_function(self._lag_seconds)
        self._until = until
        service.report(name, set(done.problems))

    def _lag_seconds(self) -> float:
        return (self._service.now() - (self._until or 0)) / SECOND


class _Looks:
    """The job that looks for findings: stores what changed of them and says it in the log."""

    def __init__(self, service: Service, settings: Settings, find: jobs.Find) -> None:
        self._service = service
        self._find = find
        looks = settings.diagnose
        self._length, self._lookback = (_micros(one.total_seconds()) for one in (looks.window, looks.lookback))
        defaults = Rules()
        self._rules = Rules(
            close_after=_micros(looks.close_after.total_seconds()),
            blind_after=max(defaults.blind_after, _micros(BLIND_LOOKS * looks.interval.total_seconds())),
        )
        self._diagnoser: jobs.Diagnoser | None = None

    def run(self) -> None:
        """One look. Raises LoraWatchError where the diagnosis or the store failed; then the next look opens the table anew."""
        service = self._service
        now = service.now()
        end = now - service.settle
        try:
            self._diagnoser = self._diagnoser or jobs.Diagnoser(service.store, self._find, self._rules, lookback=self._lookback)
            done = self._diagnoser.look(Window(end - self._length, end), now=now)
        except StoreError:
            self._diagnoser = None
            raise
        service.report(FINDINGS.name, set(done.problems))
        service.exporter.publish_findings(self._diagnoser.open)
        for state in done.states:
            if state.change is not Change.STILL:
                finding = state.finding
                LOG.log(
                    logging.WARNING if finding.severity.rank and state.change is not Change.CLOSED else logging.INFO,
                    f"{state.change}: {finding.summary}",
                    extra={"fields": {"source": f"{finding.cluster}/{finding.pool}", "finding": finding.kind, "id": state.id}},
                )


def _first_seconds(job: str) -> float:
    """How long after the start a job runs first."""
    if job in _LONG:
        return FIRST_LONG_SECONDS
    return FIRST_DERIVE_SECONDS if job in _READERS else 0.0


def _micros(seconds: float) -> int:
    return round(seconds * SECOND)


class _TextFormatter(logging.Formatter):
    """``2026-11-30T10:15:00Z WARNING source: message`` for people."""

    def format(self, record: logging.LogRecord) -> str:
        fields = dict(getattr(record, "fields", {}))
        source = fields.pop("source", None)
        rest = "".join(f" {key}={value}" for key, value in fields.items())
        text = f"{_stamp(record)} {record.levelname:<7} {source + ': ' if source else ''}{record.getMessage()}{rest}"
        text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)  # nothing for a terminal to obey
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class _JsonFormatter(logging.Formatter):
    """One JSON object a line for machines."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _stamp(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _stamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def set_up_logging(settings: LogSettings) -> None:
    """Log to standard error in the form asked for; libraries only from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if settings.format == "json" else _TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)  # what it has to say is counted by the listener
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # every try again; what came of it is ours to say
    LOG.setLevel(settings.level.upper())
