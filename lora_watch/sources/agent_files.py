"""The same logs from a disk: a folder that agents wrote to, or one file of lines (docs/event-log-v1.md). No sidecar needed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import polars as pl

from lora_watch.agent.lines import writer_lives
from lora_watch.agent.log import LogReader
from lora_watch.errors import SourceUnavailable
from lora_watch.model import MINUTE, PodId
from lora_watch.schema import REQUESTS, Batch, Table
from lora_watch.sources.agent import RECORDS_PER_STREAM
from lora_watch.sources.base import printable, stream
from lora_watch.sources.event_log import MAX_LINE, Origin, Taken, conformed, decode, frame, read_records, take

QUIET = 10 * MINUTE
"""How long a log is silent before its writer, whose lock is free, is taken for dead: a log that is being copied has no lock."""


@dataclass(frozen=True, slots=True)
class LogFolder:
    """A folder of segments (or one file) and whose it is: the log itself does not say on which pod it was written."""

    path: Path
    pod: PodId


@dataclass(slots=True)
class _Found:
    """What a read has brought so far."""

    frames: list[pl.DataFrame]
    positions: dict[str, int]
    problems: list[str]


class AgentLogFiles:
    """
    `adapter_events` or `requests` of event logs on a disk; streams and positions as in AgentEvents, so either may go on where the
    other stopped.

    A last line that is not whole waits. A process that was killed is told as the sidecar tells it, once its log has been silent
    for QUIET. One file, of whatever name, is the log of the one boot it speaks of, from its beginning. A folder that cannot be
    read is a problem; SourceUnavailable where none can.
    """

    def __init__(
        self, name: str, table: Table, folders: Sequence[LogFolder], *, records_per_stream: int = RECORDS_PER_STREAM
    ) -> None:
        self.name = name
        self.table = table
        self._folders = tuple(folders)
        self._limit = records_per_stream

    def read(self, positions: Mapping[str, int], until: int) -> Batch:
        """What each boot's log gained since its position, at most so many records each; ``until`` says what silence is."""
        found = _Found([], {}, [])
        failed = 0
        for folder in self._folders:
            try:
                if folder.path.is_file():
                    self._file(folder, positions, until, found)
                else:
                    self._folder(folder, positions, until, found)
            except OSError as error:
                failed += 1
                found.problems.append(f"event log {folder.path}: {error.strerror or type(error).__name__}")
        if failed and failed == len(self._folders):
            raise SourceUnavailable(f"no event log can be read; {found.problems[0]}")
        return Batch(conformed(self.table, found.frames), found.positions, tuple(found.problems))

    def _folder(self, folder: LogFolder, positions: Mapping[str, int], until: int, found: _Found) -> None:
        """Every boot of a folder."""
        folder.path.stat()  # the reader takes a folder that is not there for an empty one
        written = _written(folder.path)
        reader = LogReader(folder.path, alive=lambda head: writer_lives(head) or until - written.get(head.stem, until) < QUIET)
        kinds = frozenset({"request", "lost"}) if self.table is REQUESTS else None
        boots = reader.boots()
        found.problems += [
            f"event log {folder.path}, boot {printable(boot)}: {reason}" for boot, reason in reader.unreadable.items()
        ]
        for boot in boots:
            origin = self._origin(folder, boot.boot)
            position, left = positions.get(origin.stream, 0), self._limit
            while left > 0 and position < boot.last_seq:
                lines, complete = reader.read(boot.boot, position, left, kinds)
                records = read_records(lines, boot.boot, position, limit=left + 1, complete=complete)
                taken = take(records, origin, self.table, position, until, complete)
                self._keep(folder, origin, taken, position, found)
                if taken.position <= position:
                    break
                left -= taken.position - position
                position = taken.position

    def _file(self, folder: LogFolder, positions: Mapping[str, int], until: int, found: _Found) -> None:
        """One file; ``kinds`` are told apart by ``take``."""
        boot = _boot_of(folder.path)
        if boot is None:
            found.problems.append(f"event log {folder.path}: no record of an event log is in it")
            return
        origin = self._origin(folder, boot)
        after = positions.get(origin.stream, 0)
        records = read_records(_lines(folder.path), boot, after, limit=self._limit)
        records.repeated = 0  # the file is read from its beginning
        self._keep(folder, origin, take(records, origin, self.table, after, until), after, found)

    def _origin(self, folder: LogFolder, boot: str) -> Origin:
        return Origin(folder.pod, boot, stream("agent", folder.pod.cluster, folder.pod.pod, boot), self.name)

    def _keep(self, folder: LogFolder, origin: Origin, taken: Taken, after: int, found: _Found) -> None:
        found.problems += [f"event log {folder.path}, boot {printable(origin.boot)}: {problem}" for problem in taken.problems]
        if taken.position > after:
            found.positions[origin.stream] = taken.position
            found.frames.append(frame(self.table, taken.rows))


def _written(folder: Path) -> dict[str, int]:
    """When anything of each log was last written, µs UTC, by the first part of its files' names."""
    written: dict[str, int] = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            stem, at = path.name.partition(".")[0], path.stat().st_mtime_ns // 1000
            written[stem] = max(at, written.get(stem, at))
    return written


def _boot_of(path: Path) -> str | None:
    """The boot that the first record of a file speaks of."""
    for line in _lines(path):
        record = decode(line)
        if record is not None and isinstance(record.get("boot"), str) and "seq" in record:
            return str(record["boot"])
    return None


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines of a file; of a line beyond the format's length only the beginning, which is garbage."""
    with path.open("rb") as lines:
        skipping = False
        for line in _pieces(lines):
            if line.endswith(b"\n"):
                if not skipping:
                    yield line
                skipping = False
            elif len(line) > MAX_LINE and not skipping:
                yield line
                skipping = True


def _pieces(lines: BinaryIO) -> Iterator[bytes]:
    while line := lines.readline(MAX_LINE + 1):
        yield line
