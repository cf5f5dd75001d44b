"""
The same logs from a disk: a folder of segments, or one file, as an agent wrote them (docs/event-log-v1.md). No sidecar needed.
"""

import fcntl
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from lora_watch.errors import SourceUnavailable
from lora_watch.model import MINUTE, PodId
from lora_watch.schema import REQUESTS, Batch, Table
from lora_watch.sources.base import printable, stream
from lora_watch.sources.event_log import MAX_LINE, Origin, Records, conformed, decode, frame, read_records, take

RECORDS_PER_STREAM = 50_000
QUIET = 10 * MINUTE
"""How long a log is silent before its writer, whose lock is free, is taken for dead: a copied log has no lock at all."""
_MOST_KILLED = 1_000_000  # a header that says more is garbled

_SEGMENT = re.compile(r"(?P<boot>.+)\.(?P<first>\d{12,19})\.jsonl")
_HEAD = struct.Struct("<4Q")  # magic, version, issued, open


@dataclass(frozen=True, slots=True)
class LogFolder:
    """A folder of segments (or one file) and whose it is: the log itself does not say on which pod it was written."""

    path: Path
    pod: PodId


class AgentLogFiles:
    """
    `adapter_events` or `requests` of event logs on a disk; streams and positions as in AgentEvents.

    A last line that is not whole waits. Where a header says that more was issued than the log holds, its lock is free, there is
    no `stop` and the log has been silent for QUIET, the process was killed: one `lost` row, reason ``killed``. A folder that
    cannot be read is a problem; SourceUnavailable where none can.
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
        frames: list[pl.DataFrame] = []
        moved: dict[str, int] = {}
        problems: list[str] = []
        failed = 0
        for folder in self._folders:
            try:
                for boot, segments in _boots(folder.path).items():
                    self._boot(folder, boot, segments, positions, until, frames, moved, problems)
            except OSError as error:
                failed += 1
                problems.append(f"event log {folder.path}: {error.strerror or type(error).__name__}")
        if failed and failed == len(self._folders):
            raise SourceUnavailable(f"no event log can be read; {problems[0]}")
        return Batch(conformed(self.table, frames), moved, tuple(problems))

    def _boot(
        self,
        folder: LogFolder,
        boot: str,
        segments: Sequence[tuple[int, Path]],
        positions: Mapping[str, int],
        until: int,
        frames: list[pl.DataFrame],
        moved: dict[str, int],
        problems: list[str],
    ) -> None:
        name = stream("agent", folder.pod.cluster, folder.pod.pod, boot)
        after = positions.get(name, 0)
        started = [number for number, (first, _) in enumerate(segments) if first <= after + 1]
        records = read_records(_lines(segments[started[-1] if started else 0 :], after), boot, after, limit=self._limit)
        records.repeated = 0  # a segment is read from its beginning
        if self.table is not REQUESTS and len(records.by_seq) < self._limit:
            _add_killed(records, folder.path / f"{boot}.head", boot, segments[-1][1], after, until)
        taken = take(records, Origin(folder.pod, boot, name, self.name), self.table, after, until)
        problems += [f"event log {folder.path}, boot {printable(boot)}: {problem}" for problem in taken.problems]
        if taken.position > after:
            moved[name] = taken.position
            frames.append(frame(self.table, taken.rows))


def _boots(path: Path) -> dict[str, list[tuple[int, Path]]]:
    """Segments by boot, in the order of their first seq; a file of another name is a log of one boot, from its beginning."""
    if path.is_dir():
        found = [(match, entry) for entry in path.iterdir() if (match := _SEGMENT.fullmatch(entry.name))]
        boots: dict[str, list[tuple[int, Path]]] = {}
        for match, entry in sorted(found, key=lambda pair: (pair[0]["boot"], int(pair[0]["first"]))):
            boots.setdefault(match["boot"], []).append((int(match["first"]), entry))
        return boots
    if match := _SEGMENT.fullmatch(path.name):
        return {match["boot"]: [(int(match["first"]), path)]}
    with path.open("rb") as lines:
        for line in _raw_lines(lines):
            record = decode(line)
            if record is not None and isinstance(record.get("boot"), str):
                return {record["boot"]: [(1, path)]}
    return {}


def _lines(segments: Iterable[tuple[int, Path]], after: int) -> Iterator[bytes]:
    """Whole lines of the segments; of a line beyond the format's length only the beginning, which is garbage."""
    for _, path in segments:
        try:
            lines = path.open("rb")
        except FileNotFoundError:
            continue  # deleted by its writer's cap meanwhile: the gap will say so
        with lines:
            skipping = False
            for line in _raw_lines(lines):
                if line.endswith(b"\n"):
                    if not skipping and not _is_before(line, after):
                        yield line
                    skipping = False
                elif len(line) > MAX_LINE and not skipping:
                    yield line
                    skipping = True


_SEQ = re.compile(rb'\{"v":1,"boot":"[^"\\]{1,100}","seq":(\d{1,18}),[^\r\n]*\}\n')


def _is_before(line: bytes, after: int) -> bool:
    """Is it plainly one record, read before? A shortcut: whatever looks different is decoded."""
    match = _SEQ.fullmatch(line)
    return match is not None and int(match[1]) <= after and line.count(b'{"v":') == 1


def _raw_lines(lines: BinaryIO) -> Iterator[bytes]:
    while line := lines.readline(MAX_LINE + 1):
        yield line


def _add_killed(records: Records, head: Path, boot: str, segment: Path, after: int, until: int) -> None:
    """
    Add the `lost` record that a killed writer could not write, once, after the end of its log.

    Its count is issued − last seq in the log + open operations, its seq the last one it stands for (one past the log where
    nothing is missing): a position beyond the log says that it was given before.
    """
    try:
        _, version, issued, unfinished = _HEAD.unpack_from(head.read_bytes())
        silent = until - segment.stat().st_mtime_ns // 1000
        end = _last_record(segment, boot)
    except (OSError, struct.error):
        return
    if version != 1 or silent < QUIET or end is None or end["kind"] == "stop" or not _is_dead(head):
        return
    last = end["seq"]
    count = max(0, issued - last) + unfinished
    if last < max([after, *records.by_seq]) or count > _MOST_KILLED:
        return
    seq = last + max(count, 1)
    record = {"v": 1, "boot": boot, "seq": seq, "at": end.get("at"), "kind": "lost", "count": count, "reason": "killed"}
    records.by_seq[seq] = {**record, "first": last + 1, "last": seq}


def _last_record(segment: Path, boot: str) -> dict[str, Any] | None:
    """The last whole record of a segment, looking back at most two lines' length."""
    with segment.open("rb") as lines:
        lines.seek(max(0, segment.stat().st_size - 2 * MAX_LINE))
        found = read_records(reversed(lines.read().rpartition(b"\n")[0].split(b"\n")), boot, 0, limit=1)
    return next(iter(found.by_seq.values()), None)


def _is_dead(head: Path) -> bool:
    """Is the lock on the header free?"""
    try:
        descriptor = os.open(head, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
