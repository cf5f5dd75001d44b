"""
Writes event log v1 from inside an engine process: ordered, synchronous, and never silent about what it could not keep.

A record made inside an engine step waits for the end of that step; every other one is written at once. A batch is one ``write``
to an ``O_APPEND`` file, so a reader never sees half of two batches mixed. The header is written in place with ``pwrite`` rather
than mapped: a mapped file that somebody truncates kills the process that touches it, and this process is the engine.
"""

import atexit
import contextlib
import fcntl
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lora_watch.agent.lines import WORKER, Header, segment_name, to_line
from lora_watch.agent.retention import prune

SEGMENT_BYTES = 8 << 20
DEFAULT_MAX_BYTES = 512 << 20
DEFAULT_DIRECTORY = "/tmp/lora-watch"
LOOK_SECONDS = 1.0
"""How often the file is checked for having been moved, deleted or truncated."""
SNAPSHOT_SECONDS = 6 * 3600.0
"""After so long without one a snapshot follows: a reader that looks back for a day still learns who came in long before."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the log goes and how much of it is kept."""

    directory: Path = Path(DEFAULT_DIRECTORY)
    max_bytes: int = DEFAULT_MAX_BYTES
    segment_bytes: int = SEGMENT_BYTES

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Place":
        """``LORA_WATCH_LOG_DIR`` and ``LORA_WATCH_LOG_MAX_BYTES``; a cap that is no positive number raises ValueError."""
        text = environment.get("LORA_WATCH_LOG_MAX_BYTES") or str(DEFAULT_MAX_BYTES)
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise ValueError(f"LORA_WATCH_LOG_MAX_BYTES is a positive number of bytes, got {text!r}")
        max_bytes = int(text)
        directory = Path(environment.get("LORA_WATCH_LOG_DIR") or DEFAULT_DIRECTORY)
        return cls(directory, max_bytes, min(SEGMENT_BYTES, max(max_bytes // 4, 1 << 16)))


@dataclass(slots=True)
class _Dropped:
    """Records that could not be kept, not yet said: seq ``first`` … ``last``."""

    first: int
    last: int
    at: int


class Recorder:
    """
    The log of this process. Thread-safe; a forked child that records gets a boot of its own.

    ``snapshot`` gives the bodies of the ``snapshot`` records that say how things are: they head every segment but the first,
    follow a loss, and come again after ``SNAPSHOT_SECONDS``. ``clock`` is wall time in µs, ``monotonic`` seconds.
    """

    def __init__(
        self,
        place: Place,
        snapshot: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place
        self._snapshot = snapshot
        self._clock = clock
        self._monotonic = monotonic
        self.engine = "0"
        self.before_stop: Callable[[], None] | None = None
        self._forget()
        os.register_at_fork(after_in_child=self._forget_in_child)
        atexit.register(self.close)

    def _forget(self) -> None:
        self._lock = threading.RLock()
        self._boot = ""
        self._prefix = ""
        self._seq = 0
        self._last_at = 0
        self.held = False
        self.waiting: list[tuple[int, int, bytes]] = []  # seq, at, line
        self._dropped: _Dropped | None = None
        self._torn = False
        self._fd = -1
        self._path = Path()
        self._size = 0
        self._looked = float("-inf")
        self._said = float("inf")
        self._header = Header()
        self._header_fd = -1
        self._header_path = Path()

    def _forget_in_child(self) -> None:
        # closing is safe for the parent: POSIX locks belong to a process, not to the file description the child inherited
        for fd in (self._fd, self._header_fd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._forget()

    @property
    def boot(self) -> str:
        """UUID of this process's log; empty before its first record."""
        return self._boot

    @property
    def last_at(self) -> int:
        """``at`` of the newest record, µs UTC; 0 before the first."""
        return self._last_at

    def now(self) -> int:
        """Wall clock in µs UTC, as records get it."""
        return self._clock()

    def write(self) -> None:
        """Write what waits. While ``held`` is true (an engine step runs) records wait in ``waiting`` for it."""
        with self._lock:
            self._flush()

    def begin(self, count: int = 1) -> None:
        """``count`` operations began that will be a record each; a kill before they are is counted as a loss."""
        with self._lock:
            self._header.open += count
            self._put_header()

    def record(self, kind: str, fields: Mapping[str, Any], *, ends: int = 0, at: int | None = None, role: int = WORKER) -> None:
        """
        Add one record of ``kind``.

        ``ends`` operations announced with ``begin`` end with it. ``at`` is when it had happened (default: now); it is raised to
        the last record's where it would go back. Text in ``fields`` is clipped by the caller. Nothing is raised for a disk that
        refuses: the record is counted and a ``lost`` record says so once writing works again.
        """
        with self._lock:
            if not self._boot:
                self._begin_boot()
            self._add(kind, fields, at, ends, role)
            if not self.held:
                self._flush()

    def close(self) -> None:
        """
        Write ``stop`` and let go of the files. A process that recorded nothing leaves no file.

        A record after it (an engine built anew in the same process) begins another boot.
        """
        with self._lock:
            if not self._boot:
                return
            self.held = False
            if self.before_stop is not None:
                self.before_stop()
            role = "worker" if self._header.role & WORKER else "api"
            self._add("stop", {"role": role}, None, 0, self._header.role)
            self._flush()
            if self._dropped is None:
                self._header.stopped = 1
                self._put_header()
            for fd in (self._fd, self._header_fd):
                if fd >= 0:
                    os.close(fd)
            lock = self._lock
            self._forget()
            self._lock = lock

    def _begin_boot(self) -> None:
        self._boot = str(uuid.uuid4())
        self._said = self._monotonic()
        self._prefix = f'{{"v":1,"boot":"{self._boot}","seq":'
        engine = int(self.engine) if self.engine.isdecimal() else 0
        self._header = Header(open=self._header.open, started_at=self._clock(), engine=engine)
        # a process started by multiprocessing's fork leaves without atexit, but runs its finalizers
        if (util := sys.modules.get("multiprocessing.util")) is not None:
            util.Finalize(None, self.close, exitpriority=0)

    def _add(self, kind: str, fields: Mapping[str, Any], at: int | None, ends: int, role: int) -> None:
        self._last_at = at = max(self._last_at, self._clock() if at is None else at)
        self._seq = seq = self._seq + 1
        head = f'{self._prefix}{seq},"at":{at},"kind":"{kind}","engine":"{self.engine}","tp_rank":0'
        body = to_line(fields)
        line = head.encode() + (b"," + body[1:] if len(body) > 3 else b"}\n")
        header = self._header
        header.issued = seq
        header.open = max(header.open - ends, 0)
        header.role |= role
        self._put_header()
        self.waiting.append((seq, at, line))

    # --- files -----------------------------------------------------------------------------------------------------------------

    def _put_header(self) -> None:
        if self._header_fd >= 0:
            with contextlib.suppress(OSError):
                os.pwrite(self._header_fd, self._header.to_bytes(), 0)

    def _flush(self) -> None:
        """Write what waits, then whatever a full segment or an ended loss calls for."""
        if not self.waiting:
            return
        batch, self.waiting = self.waiting, []
        now = self._monotonic()
        fresh = False
        if now - self._looked >= LOOK_SECONDS or self._fd < 0:
            # a disk that refused is asked again with every batch, but a directory that can't be opened only once a second
            if self._fd < 0 and now - self._looked < LOOK_SECONDS:
                self._drop(batch)
                return
            self._looked = now
            fresh = self._look(batch[0][0])
            if self._fd < 0:
                self._drop(batch)
                return
        recovered = self._dropped is not None
        if not self._write(batch):
            return
        if recovered or (fresh and batch[0][0] > 1) or now - self._said >= SNAPSHOT_SECONDS:
            self._add_snapshot()
        if self._size >= self._place.segment_bytes:
            self._rotate()

    def _write(self, batch: list[tuple[int, int, bytes]]) -> bool:
        """Write ``batch``, led by the account of what was lost before it; True if all of it is in the file."""
        lead = b"\n" if self._torn else b""
        if (lost := self._dropped) is not None:
            lead += self._lost_line(lost)
        data = lead + b"".join(line for _, _, line in batch)
        written = 0
        try:
            while written < len(data):
                count = os.write(self._fd, data[written:])
                if count <= 0:
                    break
                written += count
        except OSError:
            pass
        self._size += written
        if written == len(data):
            self._torn = False
            self._dropped = None
            return True
        if written:
            self._torn = data[written - 1 : written] != b"\n"
        if written >= len(lead):
            self._dropped = None
        end = len(lead)
        for index, (_, _, line) in enumerate(batch):
            end += len(line)
            if end > written:
                self._drop(batch[index:])
                break
        return False

    def _lost_line(self, lost: _Dropped) -> bytes:
        count = lost.last - lost.first + 1
        body = f'"count":{count},"first":{lost.first},"last":{lost.last},"reason":"disk"'
        head = f'{self._prefix}{lost.last},"at":{lost.at},"kind":"lost","engine":"{self.engine}","tp_rank":0'
        return f"{head},{body}}}\n".encode()

    def _drop(self, batch: list[tuple[int, int, bytes]]) -> None:
        first = batch[0][0] if self._dropped is None else self._dropped.first
        self._dropped = _Dropped(first, batch[-1][0], batch[-1][1])

    def _add_snapshot(self) -> None:
        self._said = self._monotonic()
        role = "worker" if self._header.role & WORKER else "api"
        for body in self._snapshot():
            self._add("snapshot", {"role": role, **body}, None, 0, 0)
        if self.waiting:
            batch, self.waiting = self.waiting, []
            self._write(batch)

    def _rotate(self) -> None:
        """Begin the next segment; the snapshot is its first record."""
        self._said = self._monotonic()
        role = "worker" if self._header.role & WORKER else "api"
        for body in self._snapshot():
            self._add("snapshot", {"role": role, **body}, None, 0, 0)
        if not self.waiting:
            return
        batch, self.waiting = self.waiting, []
        if not self._open_segment(batch[0][0]):
            self._drop(batch)
            return
        self._write(batch)
        prune(self._place.directory, self._place.max_bytes, only=self._boot)

    def _look(self, seq: int) -> bool:
        """Make sure both files are where they should be; True if a segment was begun, at ``seq``."""
        if self._header_fd < 0 or not _same(self._header_fd, self._header_path):
            self._open_header()
        if self._fd >= 0 and _same(self._fd, self._path):
            self._size = os.fstat(self._fd).st_size
            return False
        return self._open_segment(seq if self._dropped is None else min(seq, self._dropped.first))

    def _open_header(self) -> None:
        """Create the header under another name, lock it, then show it: no reader sees it unlocked."""
        if self._header_fd >= 0:
            os.close(self._header_fd)
            self._header_fd = -1
        path = self._place.directory / f"{self._boot}.head"
        hidden = path.with_suffix(".new")
        try:
            _make_directory(self._place.directory)
            fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            os.write(fd, self._header.to_bytes())
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(hidden, path)
        except OSError:
            os.close(fd)
            return
        self._header_fd, self._header_path = fd, path

    def _open_segment(self, seq: int) -> bool:
        path = self._place.directory / segment_name(self._boot, seq)
        try:
            _make_directory(self._place.directory)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            return False
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._path, self._torn = fd, path, False
        self._size = os.fstat(fd).st_size
        return True


def _same(fd: int, path: Path) -> bool:
    try:
        there, here = os.stat(path, follow_symlinks=False), os.fstat(fd)
    except OSError:
        return False
    return (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev)


def _make_directory(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
