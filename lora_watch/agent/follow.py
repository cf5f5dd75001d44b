"""
Follows the log of an unmodified vLLM and keeps an ordinary event-log directory of what it says, for the sidecar to serve.

It runs in a process of its own, because it is a *writer* in the sense of event log v1: it holds the lock on the headers, which
the sidecar must see from outside. ``python -m lora_watch.agent.follow LOG DIRECTORY`` prints ``ready`` once it has caught up,
and ends with the process that started it.

Started again it reads the log from its beginning. The converter gives the same records again, and those the directory has already
are passed over, so nothing is there twice. A log whose beginning has been cut off since (``copytruncate``) begins a new boot.
"""

import fcntl
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

from lora_watch.agent.debug_log import Converter, Record
from lora_watch.agent.lines import API, MAX_NAME, MAX_PATH, SEGMENT, WORKER, Header, clip, parse, segment_name, to_line

SEGMENT_BYTES = 8 << 20
POLL_SECONDS = 0.5
QUIET_POLLS = 10
"""Polls without a line after which what is held for a next line is taken as it stands."""
CHUNK = 1 << 20
LONGEST_LINE = 1 << 20
LOCK_ATTEMPTS = 40


class _Log:
    """The files of one boot: appends records in order, and passes over those that are there."""

    def __init__(self, directory: Path, boot: str, role: int, started_at: int) -> None:
        self._directory, self._boot = directory, boot
        self._fd, self._size, self.last_seq = -1, 0, 0
        segments = sorted((int(m[2]), p) for p in directory.iterdir() if (m := SEGMENT.fullmatch(p.name)) and m[1] == boot)
        if segments:
            self.last_seq = segments[-1][0] - 1
            self._continue(segments[-1][1])
        self._header = Header(issued=self.last_seq, role=role, started_at=started_at)
        self._header_fd = os.open(directory / f"{boot}.head", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._take_lock()
        os.pwrite(self._header_fd, self._header.to_bytes(), 0)

    def _take_lock(self) -> None:
        """The writer's lock. A reader's look may be in the way for a moment; OSError where another writer holds it."""
        for attempt in range(LOCK_ATTEMPTS):
            try:
                fcntl.lockf(self._header_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if attempt == LOCK_ATTEMPTS - 1:
                    raise
                time.sleep(0.05)
            else:
                return

    def _continue(self, path: Path) -> None:
        """Take up the newest segment: a torn last line is cut off, it will be written again."""
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        whole = 0
        with path.open("rb") as lines:
            for line in lines:
                record = parse(line, self._boot) if line.endswith(b"\n") else None
                if record is None or record["seq"] != self.last_seq + 1:
                    break
                self.last_seq, whole = record["seq"], whole + len(line)
        os.ftruncate(self._fd, whole)
        self._size = whole

    def append(self, records: list[Record]) -> None:
        """Write what is new, in one ``write``; a snapshot begins a new segment where the old one is full."""
        records = [record for record in records if record["seq"] > self.last_seq]
        batch = b""
        for record in records:
            if self._fd < 0 or (record["kind"] == "snapshot" and self._size + len(batch) >= SEGMENT_BYTES):
                self._write(batch)
                batch = b""
                self._begin(record["seq"])
            batch += to_line(_clipped(record))
            self.last_seq = record["seq"]
        self._write(batch)

    def _begin(self, seq: int) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        path = self._directory / segment_name(self._boot, seq)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._size = 0

    def _write(self, batch: bytes) -> None:
        if not batch:
            return
        self._header.issued = self.last_seq
        os.pwrite(self._header_fd, self._header.to_bytes(), 0)
        self._size += len(batch)
        while batch:
            batch = batch[os.write(self._fd, batch) :]

    def close(self) -> None:
        """Let go of the files, the lock with them."""
        os.close(self._header_fd)
        if self._fd >= 0:
            os.close(self._fd)


def _clipped(record: Record) -> Record:
    for key, limit in (("adapter", MAX_NAME), ("path", MAX_PATH)):
        if isinstance(record.get(key), str):
            record[key] = clip(record[key], limit)
    return record


class Tail:
    """
    New whole lines of a file, whatever is done to it meanwhile.

    Moved away: the old file is read to its end, then the new one from its beginning. Truncated: from the beginning. Half a
    last line waits for its other half. Bytes that are no UTF-8 are replaced. Lines over 1 MiB are passed over, not held.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._offset = 0
        self._half = b""
        self._skipping = False

    def lines(self) -> Iterable[str]:
        """The whole lines that are there now; ends at the end of the file."""
        while True:
            if self._fd < 0 and not self._open():
                return
            if os.fstat(self._fd).st_size < self._offset:
                self._offset, self._half, self._skipping = 0, b"", False
            data = os.pread(self._fd, CHUNK, self._offset)
            if data:
                self._offset += len(data)
                yield from self._split(data)
            elif self._moved():
                self.close()
            else:
                return

    def _open(self) -> bool:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would wait for its writer
        except OSError:
            return False
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            self.close()
            raise OSError(f"{self._path} is no ordinary file")
        self._offset, self._half, self._skipping = 0, b"", False
        return True

    def _moved(self) -> bool:
        try:
            there = os.stat(self._path)
        except OSError:
            return False
        here = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)

    def _split(self, data: bytes) -> Iterable[str]:
        *whole, rest = data.split(b"\n")
        for line in whole:
            if not self._skipping:
                yield (self._half + line).decode("utf-8", "replace")
            self._half, self._skipping = b"", False
        self._half += rest
        if len(self._half) > LONGEST_LINE:
            self._half, self._skipping = b"", True
        elif self._skipping:
            self._half = b""

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


class Follower:
    """From a vLLM log to an event-log directory, as far as the log has come at each ``poll``."""

    def __init__(self, log: Path, directory: Path, converter: Converter) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory, self._converter = directory, converter
        self._tail = Tail(log)
        self._logs: dict[str, _Log] = {}
        self._quiet = 0

    def poll(self) -> int:
        """Take in what the log has new; returns the number of lines."""
        count = 0
        batch: list[Record] = []
        for line in self._tail.lines():
            count += 1
            batch += self._converter.feed(line)
            if len(batch) >= 1000:
                self._write(batch)
                batch = []
        self._quiet = 0 if count else self._quiet + 1
        if self._quiet == QUIET_POLLS:
            batch += self._converter.flush()
        self._write(batch)
        for boot in [boot for boot in self._logs if boot not in self._converter.boots]:
            self._logs.pop(boot).close()  # that process has ended: without a `stop`, a reader says so
        return count

    def _write(self, batch: list[Record]) -> None:
        by_boot: dict[str, list[Record]] = {}
        for record in batch:
            by_boot.setdefault(record["boot"], []).append(record)
        for boot, records in by_boot.items():
            if boot not in self._logs:
                role = API if records[0].get("role") == "api" else WORKER
                self._logs[boot] = _Log(self._directory, boot, role, records[0]["at"])
            self._logs[boot].append(records)

    def close(self) -> None:
        """Let go of every file."""
        self._tail.close()
        for log in self._logs.values():
            log.close()
        self._logs.clear()


def utc_offset_seconds(at: float) -> int:
    """Seconds east of Greenwich of this machine's zone at a moment."""
    return time.localtime(at).tm_gmtoff


def main() -> int:
    """
    ``python -m lora_watch.agent.follow LOG DIRECTORY``: follow until the parent process is gone or SIGTERM comes: 0; or until the
    log can't be read or the directory not be written (a full disk, say): 1. Started again it goes on where it stopped.
    """
    log, directory = Path(sys.argv[1]), Path(sys.argv[2])
    parent, over = os.getppid(), threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        over.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    now = time.time()
    converter = Converter(now=int(now * 1e6), utc_offset_seconds=utc_offset_seconds(now))
    try:
        _follow(log, directory, converter, lambda: os.getppid() == parent and not over.wait(POLL_SECONDS))
    except OSError as error:
        print(f"{log} can't be followed into {directory}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _follow(log: Path, directory: Path, converter: Converter, go_on: Callable[[], bool]) -> None:
    follower = Follower(log, directory, converter)
    try:
        follower.poll()
        print("ready", flush=True)  # noqa: T201 (the sidecar waits for this line)
        while go_on():
            follower.poll()
    finally:
        follower.close()


if __name__ == "__main__":
    sys.exit(main())
