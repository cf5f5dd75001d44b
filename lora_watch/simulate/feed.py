"""
A simulated cluster told as its time passes: first all that lies before a moment, then bit by bit, each record into its log.

The whole of it is one simulation, so what was laid in tables and what is read of the logs are parts of the same streams: the
logs begin with the record behind the last one that was laid.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import polars as pl

from lora_watch.agent.lines import API, WORKER, Header, segment_name
from lora_watch.agent.log import LogReader
from lora_watch.model import DAY, MINUTE, SECOND, PodId, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, Batch, Table
from lora_watch.simulate.engines import Life, pieces
from lora_watch.simulate.plan import Plan
from lora_watch.simulate.rows import Part, Rows
from lora_watch.simulate.traffic import Catalogue, Requests, catalogue, days
from lora_watch.sources.base import parse_stream

SEGMENT_BYTES = 2 << 20
SEGMENTS = 8
"""Of a process so many segments are kept: a minute of a busy pod at sixty times its pace."""
AT_ONCE = 15 * MINUTE
"""Of the past so much is told at once."""
_LEFT_OUT = ("date", "bucket", "cluster", "pool", "role", "pod", "stream", "provenance", "source", "detail")


@dataclass(frozen=True, slots=True)
class Told:
    """What happened in one window: its rows, some pods a part, and the engines that did it."""

    window: Window
    parts: Sequence[Part]
    lives: Sequence[Life]

    @property
    def positions(self) -> dict[str, int]:
        """The last seq of each log at the window's end, of those of which something was told so far."""
        return {name: seq for part in self.parts for name, seq in part.event_positions.items()}

    def batches(self) -> Iterator[tuple[Table, Batch]]:
        """The rows of each table, with how far the streams have come."""
        requests = {name: seq for part in self.parts for name, seq in part.request_positions.items()}
        yield ADAPTER_EVENTS, Batch(pl.concat([part.events for part in self.parts]), self.positions)
        yield REQUESTS, Batch(pl.concat([part.requests for part in self.parts]), requests)
        yield SAMPLES, Batch(pl.concat([part.samples for part in self.parts]))


class Feed:
    """
    The simulation of a plan, told once from its begin: in quarters of an hour up to ``plan.start``, then ``step`` µs at a time.

    ``step`` is made a multiple of the step records' distance, so that no window cuts one. Memory is that of one window and of
    the requests of one day.
    """

    def __init__(self, plan: Plan, step: int) -> None:
        scenario = plan.scenario
        records = round(scenario.steps_seconds * SECOND)
        self.plan = plan
        self.step = max(-(-step // records), 1) * records
        self.known: Catalogue = catalogue(scenario, plan.seed)
        self.told_until = scenario.begin
        self._rows = Rows(scenario, self.known, (), plan.until, plan.seed)
        self._pieces = pieces(scenario, self.known, self._spans(), plan.until, plan.seed)

    @property
    def next_end(self) -> int:
        """Where the next window ends, µs UTC; ``plan.until`` where there is none any more."""
        plan, begin = self.plan, self.told_until
        if begin < plan.start:
            return min(begin + AT_ONCE, plan.start)
        return min((begin // self.step + 1) * self.step, plan.until)

    def past(self) -> Iterator[Told]:
        """All that lies before ``plan.start``, bit by bit."""
        while self.told_until < self.plan.start:
            yield self.tell()

    def due(self, now: int) -> Iterator[Told]:
        """The windows that have ended by ``now`` (µs UTC) and were not told yet."""
        while self.told_until < self.plan.until and self.next_end <= now:
            yield self.tell()

    def tell(self) -> Told:
        """The next window."""
        window, lives = next(self._pieces)
        self._rows.go_on(lives)
        told = Told(window, list(self._rows.parts(window, samples=window.end <= self.plan.start)), lives)
        self.told_until = window.end
        return told

    def _spans(self) -> Iterator[tuple[Window, Requests]]:
        plan = self.plan
        length = (plan.until - plan.scenario.begin) / DAY
        for requests in days(plan.scenario, self.known, length, plan.seed):
            day_ends = min((self.told_until - plan.scenario.begin) // DAY * DAY + DAY + plan.scenario.begin, plan.until)
            while self.told_until < day_ends:
                window = Window(self.told_until, min(self.next_end, day_ends))
                yield window, requests[slice(*np.searchsorted(requests.at, [window.start, window.end]))]


@dataclass(slots=True)
class _Log:
    """The log of one process: its newest segment, and the others that are still there."""

    header: Header
    segments: deque[Path] = field(default_factory=deque)
    file: BinaryIO | None = None
    size: int = 0


class PodLogs:
    """
    The folder of one pod's sidecar, with a log of each of its processes; the oldest segments are deleted as real agents do.

    A process lives from its `start`, or from ``begin``, to its `stop`.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.folder = folder
        self._logs: dict[str, _Log] = {}

    def reader(self) -> LogReader:
        """What the sidecar reads with: nobody holds a lock on these headers, so it asks us who lives."""
        return LogReader(self.folder, alive=lambda head: head.stem in self._logs)

    def begin(self, boot: str, role: str, started_at: int) -> None:
        """A process (``worker`` or ``api``) that has written nothing here so far."""
        self._logs[boot] = _Log(Header(role=WORKER if role == "worker" else API, started_at=started_at))
        self._head(boot)

    def write(self, boot: str, records: Sequence[Mapping[str, Any]]) -> None:
        """Append records, which come in order and behind what was written."""
        if records[0]["kind"] == "start":
            self.begin(boot, records[0]["role"], records[0]["at"])
        log = self._logs[boot]
        lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
        if log.file is None or log.size >= SEGMENT_BYTES:
            if log.file is not None:
                log.file.close()
            path = self.folder / segment_name(boot, records[0]["seq"])
            log.file, log.size = path.open("wb", buffering=0), 0
            log.segments.append(path)
            while len(log.segments) > SEGMENTS:
                log.segments.popleft().unlink()
        log.file.write(lines)
        log.size += len(lines)
        if records[-1]["kind"] == "stop":
            log.header.issued, log.header.stopped = records[-1]["seq"], 1
            self._head(boot)
            self.close(boot)

    def close(self, boot: str | None = None) -> None:
        """Let go of the files of one process, or of all; nothing more is written."""
        for name in [boot] if boot else list(self._logs):
            if (file := self._logs.pop(name).file) is not None:
                file.close()

    def _head(self, boot: str) -> None:
        (self.folder / f"{boot}.head").write_bytes(self._logs[boot].header.to_bytes())


def records_of(events: pl.DataFrame, requests: pl.DataFrame) -> dict[tuple[PodId, str], list[dict[str, Any]]]:
    """The records of event log v1 that rows came from, by pod and boot in order: null is absent, ``detail`` is spread out."""
    logs: dict[tuple[PodId, str], list[dict[str, Any]]] = {}
    whose: dict[str, tuple[tuple[PodId, str], str]] = {}
    for frame, kind in ((events, None), (requests, "request")):
        for row in frame.iter_rows(named=True):
            name = row["stream"]
            if name not in whose:
                boot = parse_stream(name)[-1]
                whose[name] = (PodId(row["cluster"], row["pod"], row["pool"], row["role"]), boot), boot
            key, boot = whose[name]
            record = {"v": 1, "boot": boot, "seq": row["seq"], "at": row["at"], "kind": kind or row["kind"], "tp_rank": 0}
            detail = row.get("detail")
            for column in _LEFT_OUT:
                row.pop(column, None)
            record |= {column: value for column, value in row.items() if value is not None}
            if detail:
                record |= msgspec.json.decode(detail)
            logs.setdefault(key, []).append(record)
    for records in logs.values():
        records.sort(key=lambda record: record["seq"])
    return logs
