"""
Reads event logs while their writers work, and after they died: nothing twice, and a record for whatever is missing.

The reader never changes a log. What it makes up (``lost`` records) depends on the files alone, so it is the same at every
reading and after every restart.
"""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lora_watch.agent.lines import API, BOOT, MAX_LINE, SEGMENT, WORKER, Header, parse, to_line, writer_lives

DEFAULT_LIMIT = 10_000
MAX_LIMIT = 100_000
ANSWER_BYTES = 16 << 20
"""An answer ends early past this; its position says how far it came."""
SCAN_BYTES = 64 << 20
"""So does one whose filter passes over more than this."""

_ROLES = {WORKER: "worker", API: "api", WORKER | API: "both"}
_SETTLED_NS = 2_000_000_000
"""A directory's time of change is trusted once it is older than any file system's clock ticks."""
_BLOCK = 256 << 10
_LONGEST = 16 * MAX_LINE
"""A line longer than this is given up: no writer of ours makes one."""


@dataclass(frozen=True, slots=True)
class Boot:
    """One process and what its log holds; ``last_seq`` counts the ``lost`` record that stands for its death."""

    boot: str
    role: str
    first_seq: int
    last_seq: int
    alive: bool
    started_at: int
    engine: str

    def to_json(self) -> dict[str, Any]:
        """As ``/events`` lists it."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class _Segment:
    first: int
    path: Path
    inode: int = 0
    size: int = 0
    head: bytes = b""
    marks: list[tuple[int, int]] = field(default_factory=list)  # (seq, offset): records up to seq end at offset
    latest: tuple[int, int] = (0, 0)  # where the latest reading stopped, likewise: the next one mostly goes on there
    tail: tuple[int, dict[str, Any] | None] = (-1, None)  # the last record when the segment had this size


@dataclass(slots=True)
class _Answer:
    """What a reading has found so far."""

    position: int
    limit: int
    kinds: Collection[str] | None
    parsed: bool = False  # records are wanted, not lines
    lines: list[bytes] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    weight: int = 0
    scanned: int = 0
    garbage: bool = False

    def full(self) -> bool:
        count = len(self.lines) + len(self.records)
        return count >= self.limit or self.weight >= ANSWER_BYTES or self.scanned >= SCAN_BYTES

    def add(self, record: dict[str, Any], line: bytes) -> None:
        self.position = record["seq"]
        if self.kinds is None or record["kind"] in self.kinds:
            if self.parsed:
                self.records.append(record)
            else:
                self.lines.append(line)
            self.weight += len(line)


class LogReader:
    """
    The logs in ``directory``.

    ``alive`` tells whether the writer of a header lives; the default asks for its lock, which only another process can. Memory
    is bounded by one answer: of each segment a few dozen offsets are kept. Not thread-safe: one reader a thread, or a lock
    around it.
    """

    def __init__(self, directory: Path, *, alive: Callable[[Path], bool] = writer_lives) -> None:
        self._directory = directory
        self._alive = alive
        self._segments: dict[Path, _Segment] = {}
        self._listed: dict[str, list[_Segment]] = {}
        self._names_of: int | None = None  # when the names that were listed had last changed; None: they may have since
        self.unreadable: dict[str, str] = {}

    def boots(self) -> list[Boot]:
        """
        Every process that left a log here, the oldest first. Those whose files can't be read are in ``unreadable``, each with the
        reason, and stop no other; OSError where the directory can't be read.
        """
        segments = self._list()
        found, self.unreadable = [], {}
        for name in sorted(set(segments) | self._headers()):
            try:
                if (boot := self._boot(name, segments.get(name, []))) is not None:
                    found.append(boot)
            except OSError as error:
                self.unreadable[name] = error.strerror or type(error).__name__
        return sorted(found, key=lambda boot: (boot.started_at, boot.boot))

    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for boot in self._list().values() for segment in boot)

    def read(
        self, boot: str, after: int = 0, limit: int = DEFAULT_LIMIT, kinds: Collection[str] | None = None
    ) -> tuple[list[bytes], int]:
        """
        Records of ``boot`` with ``seq > after`` in order, at most ``limit``, and the seq up to which that is complete.

        Lines are as they were written. Where records are missing a ``lost`` record stands for them, with the seq of the last
        one: reason ``cap`` before the oldest segment, ``garbage`` where unreadable bytes are in their place, ``killed`` after
        the last record of a process that died, else ``gap``. ``kinds`` filters; what it passes over counts as read. The answer
        may end early (``ANSWER_BYTES``, ``SCAN_BYTES``); ask again from its position until that stands still. A boot nobody
        knows gives ``([], after)``.
        """
        answer = self._read(boot, _Answer(after, min(limit, MAX_LIMIT), kinds))
        return answer.lines, answer.position

    def records(self, boot: str, after: int, limit: int) -> tuple[list[dict[str, Any]], int]:
        """As ``read``, each record parsed (and parsed once)."""
        answer = self._read(boot, _Answer(after, limit, None, parsed=True))
        return answer.records, answer.position

    def _read(self, boot: str, asked: _Answer) -> _Answer:
        for _ in range(3):  # a segment may be deleted while it is read; then what is left is read anew
            header_path = self._directory / f"{boot}.head"
            dead = not self._alive(header_path)  # asked before reading: what a dead writer wrote is all there is
            header = Header.read(header_path)
            answer = _Answer(asked.position, asked.limit, asked.kinds, parsed=asked.parsed)
            try:
                whole = self._scan(boot, answer)
            except FileNotFoundError:
                continue
            if whole and dead and header is not None:
                self._death(boot, header, answer)
            return answer
        return asked

    # --- scanning --------------------------------------------------------------------------------------------------------------

    def _scan(self, boot: str, answer: _Answer) -> bool:
        """Read forward until the answer is full (False) or the log ends (True)."""
        segments = self._of(boot)
        start = max((i for i, segment in enumerate(segments) if segment.first <= answer.position + 1), default=0)
        for index, segment in enumerate(segments[start:], start):
            head = _head(segment.path)
            if head != segment.head:  # cut to nothing and written on past its old size: offsets lead astray
                segment.marks.clear()
                segment.latest = (0, 0)
                segment.head = head
            offset = max(mark[1] for mark in ((0, 0), segment.latest, *segment.marks) if mark[0] <= answer.position)
            oldest = index == 0 and answer.position + 1 < segment.first
            for line, end in _lines(segment.path, offset):
                answer.scanned += end - offset
                offset = end
                record = parse(line, boot)
                if record is None:
                    answer.garbage |= bool(line.strip())
                    continue
                if not segment.marks or end - segment.marks[-1][1] >= _BLOCK:
                    segment.marks.append((record["seq"], end))
                segment.latest = (record["seq"], end)
                if record["seq"] > answer.position:
                    self._take(boot, record, line, answer, oldest=oldest)
                oldest = False
                answer.garbage = False
                if answer.full():
                    return False
        return True

    def _take(self, boot: str, record: dict[str, Any], line: bytes, answer: _Answer, *, oldest: bool) -> None:
        first = record["seq"]
        if record["kind"] == "lost" and type(record.get("first")) is int:
            first = min(first, record["first"])
        if first > answer.position + 1:
            reason = "garbage" if answer.garbage else "cap" if oldest else "gap"
            self._lost(boot, answer, first - 1, record["at"], reason, record.get("engine", "0"))
            if answer.full():
                return
        start = line.rfind(b'{"v":1,')
        answer.add(record, (line[start:].rstrip() if start else line.rstrip()) + b"\n")

    def _lost(self, boot: str, answer: _Answer, last: int, at: int, reason: str, engine: str, *, seq: int | None = None) -> None:
        first = answer.position + 1
        at_seq = last if seq is None else seq
        record = {
            "v": 1,
            "boot": boot,
            "seq": at_seq,
            "at": at,
            "kind": "lost",
            "engine": engine,
            "tp_rank": 0,
            "count": last - first + 1,
            "first": first,
            "last": last,
            "reason": reason,
        }
        answer.add(record, to_line(record))

    def _death(self, boot: str, header: Header, answer: _Answer) -> None:
        """Account for the end of a dead writer: what it had issued and not written, or only that it died."""
        last = self._last(boot, self._of(boot))
        end = _end_of(header, last)
        if end <= answer.position:
            return
        at = header.started_at if last is None else last["at"]
        engine = str(header.engine if last is None else last.get("engine", header.engine))
        if last is None and header.issued:
            self._lost(boot, answer, end, at, "cap", engine)
        elif header.stopped:
            self._lost(boot, answer, end, at, "garbage" if answer.garbage else "gap", engine)
        else:
            missing = max(header.issued + header.open, answer.position)
            self._lost(boot, answer, missing, at, "killed", engine, seq=end)

    # --- files -----------------------------------------------------------------------------------------------------------------

    def _of(self, boot: str) -> list[_Segment]:
        """
        The segments of ``boot`` as they are now.

        Where no name has come or gone since they were last listed, only its own files are looked at: reading each log of a
        directory would else list it whole as many times as it has logs.
        """
        known = self._listed.get(boot, [])
        if self._changed() != self._names_of:
            return self._list().get(boot, [])
        for segment in known:
            try:
                status = os.stat(segment.path, follow_symlinks=False)
            except FileNotFoundError:
                return self._list().get(boot, [])
            if (status.st_ino, stat.S_ISREG(status.st_mode)) != (segment.inode, True) or status.st_size < segment.size:
                return self._list().get(boot, [])
            segment.size = status.st_size
        return known

    def _changed(self) -> int:
        """When a name last came to the directory or went, ns; 0 where that is too fresh to tell a later change from."""
        with contextlib.suppress(OSError):
            changed = os.stat(self._directory).st_mtime_ns
            return changed if time.time_ns() - changed > _SETTLED_NS else 0
        return 0

    def _list(self) -> dict[str, list[_Segment]]:
        """Segments by boot in the order of their first seq; offsets of a file that was replaced or cut are forgotten."""
        found: dict[Path, _Segment] = {}
        boots: dict[str, list[_Segment]] = {}
        names_of = self._changed() or None
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._directory):
                match = SEGMENT.fullmatch(entry.name)
                if match is None:
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if not stat.S_ISREG(status.st_mode):
                        continue
                    path = Path(entry.path)
                    segment = self._segments.get(path)
                    if segment is None or segment.inode != status.st_ino or status.st_size < segment.size:
                        segment = _Segment(int(match[2]), path, status.st_ino)
                    segment.size = status.st_size
                    found[path] = segment
                    boots.setdefault(match[1], []).append(segment)
        self._segments = found
        for segments in boots.values():
            segments.sort(key=lambda segment: segment.first)
        self._listed, self._names_of = boots, names_of
        return boots

    def _headers(self) -> set[str]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return set()
        return {name[:36] for name in names if name.endswith(".head") and BOOT.fullmatch(name[:-5])}

    def _boot(self, boot: str, segments: list[_Segment]) -> Boot | None:
        path = self._directory / f"{boot}.head"
        alive = self._alive(path)
        header = Header.read(path)
        last = self._last(boot, segments)
        if header is None and last is None:
            return None
        header = header or Header(stopped=1)
        last_seq = last["seq"] if last is not None else 0
        if not alive:
            last_seq = _end_of(header, last)
        role = _ROLES.get(header.role) or self._role(boot, segments)
        started_at = header.started_at or (last["at"] if last is not None else 0)
        first_seq = segments[0].first if segments else last_seq + 1
        engine = str(last.get("engine", header.engine)) if last is not None else str(header.engine)
        return Boot(boot, role, first_seq, last_seq, alive, started_at, engine)

    def _role(self, boot: str, segments: list[_Segment]) -> str:
        """What a log without a header says of its writer: the role of its first record, "" where that is no `start`."""
        for segment in segments[:1]:
            with contextlib.suppress(FileNotFoundError):
                for line, _ in _lines(segment.path, 0):
                    return str((parse(line, boot) or {}).get("role", ""))
        return ""

    def _last(self, boot: str, segments: list[_Segment]) -> dict[str, Any] | None:
        """The last whole record, looked for from the end in growing pieces."""
        for segment in reversed(segments):
            if segment.tail[0] != segment.size:
                last = None
                for back in (_BLOCK, segment.size):
                    with contextlib.suppress(FileNotFoundError):
                        for line, _ in _lines(segment.path, max(segment.size - back, 0)):
                            last = parse(line, boot) or last
                    if last is not None:
                        break
                segment.tail = (segment.size, last)
            if segment.tail[1] is not None:
                return segment.tail[1]
        return None


def _head(path: Path) -> bytes:
    """How the file begins: its first record, which no other file of the same name has; shorter while it is short."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.pread(fd, 80, 0)
    finally:
        os.close(fd)


def _end_of(header: Header, last: dict[str, Any] | None) -> int:
    """
    The seq that a dead writer's log ends with, ``last`` being its last record; a death that cost nothing takes one more seq.
    """
    in_log = 0 if last is None else int(last["seq"])
    missing = header.issued if header.stopped else header.issued + header.open
    if missing > in_log:
        return missing
    return in_log if header.stopped or last is None else in_log + 1


def _lines(path: Path, offset: int) -> Iterator[tuple[bytes, int]]:
    """
    Whole lines from ``offset`` on, each with the offset behind it; one that never ends is handed out in pieces and is garbage.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        rest = b""
        while block := os.pread(fd, _BLOCK, offset + len(rest)):
            data = rest + block
            start = 0
            while (end := data.find(b"\n", start)) >= 0:
                yield data[start : end + 1], offset + end + 1
                start = end + 1
            rest = data[start:]
            offset += start
            if len(rest) > _LONGEST:
                yield b"?", offset + len(rest)
                offset += len(rest)
                rest = b""
    finally:
        os.close(fd)
