"""
Request logs on a disk, read as they grow: rows of `requests`, each line once, through rotation and truncation.

A stream is a file's content, not its name: ``file/<fingerprint>``, where the fingerprint is a hash of the file's beginning, up to
and with the first line that is a JSON object and bears a time. Its position is a byte offset, that of a compressed file's content
too; a row's seq is the offset of its line's end. So a file that is renamed, copied or compressed is read on, and one that was
emptied and begun anew is another stream.
"""

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, cast

import polars as pl

from lora_watch.errors import SourceUnavailable
from lora_watch.schema import REQUESTS, Batch
from lora_watch.sources.base import MAX_PROBLEMS, printable, stream
from lora_watch.sources.event_log import conformed, decode, frame
from lora_watch.sources.request_log import Reader

MAX_LINE = 4 << 20
"""Bytes of a line; a longer one is passed over and counted. Logs that hold prompts have long lines."""
LINES_PER_STREAM = 50_000
GZIP = ".gz"
_TIME = re.compile(rb"\d{4}-\d\d-\d\d|\d{9,}")
_ROTATED = ("{name}.*", "{name}-*")
"""What rotation calls the files that were ``name``."""


@dataclass(frozen=True, slots=True)
class RequestLog:
    """
    Files to read, and how. ``path`` may have ``*`` in its last part; without one, files that rotation made of it are read on
    where they had been begun.
    """

    path: str
    reader: Reader


_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _File:
    """A file whose content has a name; ``stamp`` changes when it does."""

    log: RequestLog
    path: Path
    stamp: _Stamp

    @property
    def length(self) -> tuple[bool, int]:
        """Of two files with one content the longer is read: the other is a copy that was cut off, or is being made."""
        return self.path.suffix != GZIP, self.stamp[1]


class RequestLogs:
    """
    `requests` of request logs. A line that can't be read is counted, the first ones of each reason told with their place; a last
    line that is not whole waits.

    Lines that are no requests (they name no model) are passed over; ``tell_passed`` counts them as problems, too. A file that
    can't be read is a problem, SourceUnavailable where none can. At most ``lines_per_stream`` lines of a file are read at once.
    """

    def __init__(
        self,
        name: str,
        logs: Sequence[RequestLog],
        *,
        lines_per_stream: int = LINES_PER_STREAM,
        tell_passed: bool = False,
    ) -> None:
        self.name = name
        self.table = REQUESTS
        self._logs = tuple(logs)
        self._limit = lines_per_stream
        self._tell_passed = tell_passed
        self._names: dict[Path, tuple[_Stamp, str | None]] = {}
        self._done: dict[str, tuple[_Stamp, int | None]] = {}

    def read(self, positions: Mapping[str, int], _until: int) -> Batch:
        """The lines each file gained since its position."""
        problems: list[str] = []
        files = self._files(positions, problems)
        frames: list[pl.DataFrame] = []
        moved: dict[str, int] = {}
        for name, file in files.items():
            position = positions.get(name)
            if self._done.get(name) == (file.stamp, position):
                continue
            try:
                with _opened(file.path) as lines:
                    if stream("file", fingerprint(lines) or "") != name:
                        continue  # it was rotated just now: next time it has its new name
                    taken = _take(lines, position or 0, self._limit, file.log.reader, name, tell_passed=self._tell_passed)
            except (OSError, EOFError, zlib.error) as error:
                problems.append(_trouble(file.path, error))
                continue
            problems += [f"request log {file.path}: {problem}" for problem in taken.problems()]
            if taken.position > (position or 0):
                moved[name] = taken.position
                frames.append(frame(REQUESTS, taken.rows))
            elif not taken.troubles:
                self._done[name] = (file.stamp, position)
        return Batch(conformed(REQUESTS, frames), moved, tuple(problems))

    def _files(self, positions: Mapping[str, int], problems: list[str]) -> dict[str, _File]:
        """The streams there are, oldest first, each with the file that holds most of it. Raises SourceUnavailable."""
        found: dict[str, _File] = {}
        here: set[Path] = set()
        failed = read = 0
        for log in self._logs:
            for path, only_known in _paths(log.path, problems):
                here.add(path)
                try:
                    name, stamp = self._name(path)
                except (OSError, EOFError, zlib.error) as error:
                    failed += 1
                    problems.append(_trouble(path, error))
                    continue
                read += 1
                if name is None or (only_known and name not in positions):
                    continue
                file = _File(log, path, stamp)
                if name not in found or file.length > found[name].length:
                    found[name] = file
        self._names = {path: known for path, known in self._names.items() if path in here}
        self._done = {name: state for name, state in self._done.items() if name in found}
        if failed and not read:
            raise SourceUnavailable(f"no request log can be read; {problems[0]}")
        return found

    def _name(self, path: Path) -> tuple[str | None, _Stamp]:
        """The stream that a file holds; None while it has no beginning."""
        state = path.stat()
        stamp = (state.st_ino, state.st_size, state.st_mtime_ns)
        known_at, name = self._names.get(path, ((0, 0, 0), None))
        if known_at != stamp:
            with _opened(path) as lines:
                print_ = fingerprint(lines)
            name = None if print_ is None else stream("file", print_)
            self._names[path] = (stamp, name)
        return name, stamp


def _trouble(path: Path, error: Exception) -> str:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return f"request log {path}: {reason}"


def fingerprint(lines: IO[bytes]) -> str | None:
    """
    The name of a file's content: a hash of its beginning, up to the first JSON object with a time; None while it has none.

    A banner that every file of a server begins with is no name; a line with a time is, since two files do not begin with the same
    request at the same microsecond.
    """
    lines.seek(0)
    digest = blake2b(digest_size=12)
    left = MAX_LINE
    while left > 0:
        line = lines.readline(left)
        digest.update(line)
        left -= len(line)
        if not line.endswith(b"\n"):
            return digest.hexdigest() if left <= 0 else None
        if _TIME.search(line) and decode(line) is not None:
            break
    return digest.hexdigest()


@dataclass(slots=True)
class _Taken:
    """Rows of a file, its new position, and what was wrong: reason → how often, and where first."""

    position: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    troubles: dict[str, list[int]] = field(default_factory=dict)
    kept: int = 0

    def trouble(self, reason: str, at: int) -> None:
        """Count a line; past MAX_PROBLEMS reasons they are one."""
        if reason not in self.troubles and len(self.troubles) >= MAX_PROBLEMS:
            reason = "for other reasons"
        count = self.troubles.setdefault(reason, [0, at])
        count[0] += 1

    def problems(self) -> list[str]:
        """One text a reason."""
        return [
            f"the line at byte {first} was left out: {reason}"
            if count == 1
            else f"{count} lines were left out, the first at byte {first}: {reason}"
            for reason, (count, first) in self.troubles.items()
        ]


def _take(lines: IO[bytes], position: int, limit: int, reader: Reader, name: str, *, tell_passed: bool) -> _Taken:
    """At most ``limit`` whole lines behind ``position``."""
    taken = _Taken(position)
    lines.seek(max(position - 1, 0))
    if position:
        before = lines.read(1)
        if not before:
            taken.trouble("the file is shorter than what was read of it: its end was cut off", position)
            return taken
        if before != b"\n":
            taken.trouble("it is not where a line begins: what was read before has been changed", position)
            lines.readline()
            taken.position = lines.tell()
    for line, end, whole in _whole_lines(lines, taken.position):
        at, taken.position = taken.position, end
        if not whole:
            taken.trouble(f"longer than {MAX_LINE} bytes", at)
        elif line.strip():
            row = reader.row(line)
            if isinstance(row, dict):
                taken.rows.append({"stream": name, "seq": end, **row})
            elif row is not None:
                taken.trouble(row, at)
            elif tell_passed:
                taken.trouble("it names no model, so it is no request", at)
        taken.kept += 1
        if taken.kept >= limit:
            break
    return taken


def _whole_lines(lines: IO[bytes], start: int) -> Iterator[tuple[bytes, int, bool]]:
    """Lines that end, where they end, and whether they are short enough to be read; the last one only if it is whole."""
    end, long = start, False
    while line := lines.readline(MAX_LINE):
        end += len(line)
        if line.endswith(b"\n"):
            yield line, end, not long
            long = False
        else:
            long = True


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The content of a file, compressed (``.gz``) or not."""
    with gzip.open(path, "rb") if path.suffix == GZIP else path.open("rb") as lines:
        yield cast(IO[bytes], lines)


def _paths(pattern: str, problems: list[str]) -> list[tuple[Path, bool]]:
    """The files named, oldest first, and those that rotation may have made of them: these only where they were begun."""
    path = Path(pattern)
    if "*" not in path.name:
        old = {one for form in _ROTATED for one in path.parent.glob(form.format(name=_literal(path.name))) if one.is_file()}
        return [*((one, True) for one in sorted(old)), (path, False)]
    found = [one for one in path.parent.glob(path.name) if one.is_file()]
    if not found:
        problems.append(f"request log {printable(pattern, 300)}: no file has such a name")
    return [(one, False) for one in sorted(found, key=lambda one: (one.stat().st_mtime_ns, one.name))]


def _literal(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)
