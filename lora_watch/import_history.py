"""
``lora-watch import``: the past into the store, from Prometheus, tables in files, event logs and request logs.

Everything is committed step by step together with its positions, so an import that was interrupted, or killed, goes on with the
same command and stores each row once. What had been read before is looked through again for what came late.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from lora_watch.config import PrometheusSettings, Settings
from lora_watch.errors import LoraWatchError, SourceError, SourceUnavailable
from lora_watch.jobs import Collected, collect
from lora_watch.model import SECOND, PodId, Provenance, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, TABLES, Batch, Table
from lora_watch.sources.agent_files import AgentLogFiles, LogFolder
from lora_watch.sources.base import Source, printable
from lora_watch.sources.configured import pod_labels_of, prometheus_sources
from lora_watch.sources.dcgm import FAMILIES as GPU_FAMILIES
from lora_watch.sources.epp import FAMILIES as ROUTER_FAMILIES
from lora_watch.sources.history import READING, VLLM_GROUPS, Again, HistoryOf, history_id
from lora_watch.sources.history_tables import Filling, TableFile
from lora_watch.sources.request_log import Reader, load_formats
from lora_watch.sources.request_log_files import RequestLog, RequestLogs
from lora_watch.store.tables import Ledger, Store

SHOWN = 20
"""Problems printed one by one."""


Bar = Callable[[str, float, float | None], None]
"""Where progress is shown: what is being read, how much is done, of how much (None: nobody knows)."""


def silent(_what: str, _done: float, _whole: float | None) -> None:
    """Progress that nobody looks at."""


@dataclass(slots=True)
class Imported:
    """
    What an import did: ``rows`` are new, ``repeated`` were stored already, ``late`` are new rows of a span that had been read
    before; ``problems`` in the order they came, each once; ``complete``: nothing is left to read.
    """

    rows: int = 0
    repeated: int = 0
    late: int = 0
    complete: bool = True
    problems: dict[str, None] = field(default_factory=dict)

    def add(self, done: Collected, *, late: bool = False) -> None:
        """Count one step."""
        self.rows += done.rows
        self.repeated += done.duplicates
        self.late += done.rows if late else 0
        self.problems |= dict.fromkeys(done.problems)

    def tell(self, console: Console) -> None:
        """Print it."""
        for problem in list(self.problems)[:SHOWN]:
            said = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in problem)  # nothing to obey
            console.print(f"problem: {said}", markup=False, highlight=False)
        if len(self.problems) > SHOWN:
            console.print(f"and {len(self.problems) - SHOWN} more problems", highlight=False)
        late = f" ({self.late:,} of them came late)" if self.late else ""
        console.print(f"stored {self.rows:,} new rows{late}; {self.repeated:,} were stored already", highlight=False)
        if not self.complete:
            console.print("not everything could be read: the same command goes on from here", highlight=False)


@contextmanager
def bar(console: Console | None = None) -> Iterator[Bar]:
    """A bar with an estimate of the time left, on standard error where that is a terminal; nothing elsewhere."""
    console = console or Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=None)

        def show(what: str, done: float, whole: float | None) -> None:
            progress.update(task, description=printable(what, 60), completed=done, total=whole)

        yield show


def from_prometheus(
    settings: Settings, server: PrometheusSettings, window: Window, store: Store, now: Callable[[], int], show: Bar = silent
) -> Imported:
    """
    Every raw sample of a span: of vLLM, and of routers and GPUs where the server's ``systems`` name them.

    A metric that is refused stays where it is and stops no other; a server that is gone ends the import, incomplete. What an
    earlier run had read is read once more at the end. While the service reads the same span of the same server, a sample may be
    stored by both: import what lies before it ``begun``.
    """
    ledger, done = store.ledger(SAMPLES), Imported()
    parts = _histories(settings, server, window)
    had = [part.begins(ledger.refresh()) for part in parts]
    whole = float(sum(part.whole for part in parts))
    passed = 0.0
    for part in parts:
        positions: Mapping[str, int] = ledger.refresh()
        while (read := part.done(positions)) < part.whole:
            show(f"{server.name} {_day(window.start + read)}", passed + read, whole)
            before = part.begins(positions)
            if isinstance(_step(part, ledger, now, done), SourceUnavailable):
                return done
            positions = ledger.refresh()
            if part.begins(positions) == before:
                done.complete = False
                break
        passed += part.whole
    for part, upto in zip(parts, had, strict=True):
        again = Again(part, {name: end for name, end in upto.items() if end > window.start})
        while again.left:
            show(f"{server.name}: what came late", whole, whole)
            if isinstance(_step(again, ledger, now, done, late=True), SourceUnavailable):
                return done
            if not again.taken():
                done.complete = False
                break
    return done


def _step(source: Source, ledger: Ledger, now: Callable[[], int], done: Imported, *, late: bool = False) -> SourceError | None:
    """One step into the table, or why there is none."""
    try:
        done.add(collect(source, ledger, until=now(), now=now()), late=late)
    except SourceError as error:
        done.problems[str(error)] = None
        done.complete = False
        return error
    return None


def _histories(settings: Settings, server: PrometheusSettings, window: Window) -> list[HistoryOf]:
    """One for each group of metrics that is read in step."""
    name, labels = history_id(server.name, window.start), pod_labels_of(settings, server)
    families: Mapping[str, Sequence[str]] = {"router": tuple(ROUTER_FAMILIES), "gpu": tuple(GPU_FAMILIES)}
    found: list[HistoryOf] = []
    for system in dict.fromkeys(server.systems):
        alone = server.model_copy(update={"systems": (system,)})
        groups = VLLM_GROUPS if system == "vllm" else (families[system],)
        for group in groups:
            only = group if system == "vllm" else None
            (inner,) = prometheus_sources(settings, alone, name, labels, READING, metrics=only)
            found.append(HistoryOf(inner, group, window))
    return found


def from_tables(
    files: Sequence[Path], table: Table, filling: Filling, store: Store, now: Callable[[], int], show: Bar = silent
) -> Imported:
    """Rows of one of our own tables. A file that can't be read as a whole is a problem and stops no other."""
    ledger, done = store.ledger(table), Imported()
    for number, path in enumerate(files):
        show(str(path), number, len(files))
        try:
            source = TableFile(path, table, filling)
        except LoraWatchError as error:
            done.problems[str(error)] = None
            done.complete = False
            continue
        done.problems |= dict.fromkeys(source.problems)
        while source.left:
            done.add(collect(source, ledger, until=now(), now=now()))
            source.taken()
    return done


def from_event_logs(paths: Sequence[Path], pod: PodId, store: Store, now: Callable[[], int], show: Bar = silent) -> Imported:
    """Event logs of one pod: folders of segments, or files; what a sidecar's log has given already is not read again."""
    done = Imported()
    folders = [LogFolder(path, pod) for path in paths]
    for table in (ADAPTER_EVENTS, REQUESTS):
        _drain(AgentLogFiles("import", table, folders), store.ledger(table), now, done, show)
    return done


def from_request_logs(files: Sequence[str], reader: Reader, store: Store, now: Callable[[], int], show: Bar = silent) -> Imported:
    """Request logs; the service goes on where the import stopped, and the other way round."""
    done = Imported()
    logs = [RequestLog(file, reader) for file in files]
    _drain(RequestLogs("import", logs, tell_passed=True), store.ledger(REQUESTS), now, done, show)
    return done


class _Watched:
    """A source of which one can ask whether its last read brought it on."""

    def __init__(self, source: Source) -> None:
        self.name, self.table = source.name, source.table
        self._source = source
        self.moved = True

    def read(self, positions: Mapping[str, int], until: int) -> Batch:
        batch = self._source.read(positions, until)
        self.moved = bool(batch.positions)
        return batch


def _drain(source: Source, ledger: Ledger, now: Callable[[], int], done: Imported, show: Bar) -> None:
    """Read a source to its end."""
    watched = _Watched(source)
    while watched.moved:
        show(f"{source.table.name}: {done.rows:,} rows", 0, None)
        if _step(watched, ledger, now, done) is not None:
            return


def begun(store: Store, server: PrometheusSettings, now: int) -> int:
    """
    Where the service's own reading of a server began, µs UTC; ``now`` where it never did.

    An import that ends there by default and the service never store the same sample at the same time.
    """
    own = [server.name, *(f"{server.name}-{system}" for system in server.systems)]
    rows = store.scan(SAMPLES).filter(pl.col("source").is_in(own)).select(pl.col("at").min())
    first = rows.collect(engine="streaming").item()
    return now if first is None else int(first)


def span(begin: str, end: str | None, latest: int) -> Window:
    """
    The span from ``begin`` to ``end`` (``latest``, µs UTC, where absent), each an ISO 8601 date, which is its midnight in UTC, or
    a moment with a zone.

    LoraWatchError where one is not readable, or the span is empty.
    """
    start, stop = _moment(begin), latest // SECOND * SECOND if end is None else _moment(end)
    if not start < stop:
        raise LoraWatchError(f"the span ends at {_day(stop)}, before it begins at {_day(start)}")
    return Window(start, stop)


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise LoraWatchError(f"{text!r} is no date and no moment: write 2026-11-30 or 2026-11-30T10:15:00Z") from error
    if moment.tzinfo is None:
        if len(text) > len("2026-11-30"):
            raise LoraWatchError(f"{text!r} has no time zone: add Z or an offset such as +01:00")
        moment = moment.replace(tzinfo=UTC)
    if moment.timestamp() < 0:
        raise LoraWatchError(f"{text!r} lies before 1970: nothing can be stored of it")
    return round(moment.timestamp() * SECOND)


def _day(at: int) -> str:
    return datetime.fromtimestamp(at / SECOND, UTC).isoformat(sep=" ", timespec="minutes").removesuffix("+00:00")


def server_of(settings: Settings, name: str | None, url: str | None) -> PrometheusSettings:
    """
    The server meant: the one at ``url``, the one called ``name``, or the only one there is. LoraWatchError where nobody can tell,
    or the ``url`` is none.

    One at a ``url`` is called ``name``, else after its address, so that two servers have streams of their own.
    """
    if url is not None:
        own = re.sub(r"[^A-Za-z0-9_.-]+", "-", name or url.partition("://")[2] or url).strip("-") or "prometheus"
        try:
            return PrometheusSettings(name=own, url=url, systems=("vllm", "router", "gpu"))
        except ValidationError as error:
            raise LoraWatchError(f"{printable(url)}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
    known = {server.name: server for server in settings.prometheus}
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name in known:
        return known[name]
    said = f"there is none called {name!r}" if name else "the configuration names " + ("several" if known else "none")
    raise LoraWatchError(f"which Prometheus? {said}; name it with --server ({', '.join(known) or 'none'}) or --url")


def filling(cluster: str, provenance: str | None) -> Filling:
    """What rows get that do not say it. LoraWatchError for a provenance that is none."""
    try:
        return Filling(cluster, None if provenance is None else Provenance(provenance))
    except ValueError:
        raise LoraWatchError(f"{provenance!r} is no provenance; there are {', '.join(Provenance)}") from None


def reader_of(settings: Settings, format: str, pod: PodId) -> Reader:
    """How the lines of a format are read. LoraWatchError for a format that nobody knows."""
    formats = load_formats(settings.request_log_formats)
    if format not in formats:
        raise LoraWatchError(f"format {format!r} is not known; known here: {', '.join(formats)}")
    return Reader(formats[format], pod, "import", frozenset(settings.base_models))


def table_named(name: str) -> Table:
    """The table of that name. LoraWatchError names those there are."""
    for table in TABLES:
        if table.name == name:
            return table
    raise LoraWatchError(f"there is no table {name!r}; there are {', '.join(table.name for table in TABLES)}")


def finish(done: Imported) -> int:
    """Print what an import did; 0 where it is complete, else 1."""
    done.tell(Console(file=sys.stdout, soft_wrap=True))
    return 0 if done.complete else 1
