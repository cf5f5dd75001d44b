"""
Lines of event log v1 (docs/event-log-v1.md) as rows: read once, checked field by field, and nothing lost silently.

Pure: lines in, rows out. Where lines come from is agent.py's (the sidecar) and agent_files.py's (segments on a disk) business.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import polars as pl

from lora_watch.model import PodId, Provenance
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, Table
from lora_watch.sources.base import capped, printable

MAX_LINE = 1 << 16
"""Bytes of a line by the format; a longer one is garbage."""
EARLIEST = 946_684_800_000_000
"""2000-01-01 in µs UTC. A time before it is an unset clock."""
LATEST = 4_102_444_800_000_000
"""2100-01-01 in µs UTC."""
_LARGEST = (1 << 63) - 1
_MAX_JUMP = 1_000_000_000  # a seq further ahead than this is a garbled number, not a loss
_START = b'{"v":1,'
_HALF_PAIR = re.compile("[\ud800-\udfff]")

_Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_time(value: Any) -> bool:
    return _is_int(value) and EARLIEST <= value < LATEST


_EVENT_FIELDS: Mapping[str, _Check] = {
    "engine": _is_text,
    "tier": _is_text,
    "from_tier": _is_text,
    "adapter": _is_text,
    "adapter_id": _is_int,
    "slot": _is_int,
    "lookup": _is_text,
    "seconds": _is_number,
    "rank": _is_int,
    "bytes": _is_int,
    "reason": _is_text,
    "in_step": _is_bool,
    "ok": _is_bool,
    "slots": _is_int,
    "cpu_capacity": _is_int,
    "count": _is_int,
    "wall_seconds": _is_number,
    "execute_seconds": _is_number,
    "adapter_seconds": _is_number,
    "clock": _is_text,
}
_REQUEST_FIELDS: Mapping[str, _Check] = {
    "engine": _is_text,
    "request_id": _is_text,
    "adapter": _is_text,
    "arrived": _is_time,
    "queued": _is_time,
    "scheduled": _is_time,
    "first_token": _is_time,
    "finished": _is_time,
    "prompt_tokens": _is_int,
    "generated_tokens": _is_int,
    "cached_tokens": _is_int,
    "preemptions": _is_int,
    "finish_reason": _is_text,
}
_ENVELOPE = frozenset({"v", "boot", "seq", "at", "kind"})


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose log it is: the pod, the boot, the stream's name, and the source that reads it."""

    pod: PodId
    boot: str
    stream: str
    source: str


@dataclass(slots=True)
class Records:
    """What was read of a stream after a position: records by seq, and what was beside them."""

    by_seq: dict[int, dict[str, Any]] = field(default_factory=dict)
    garbage: int = 0
    repeated: int = 0
    versions: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows (not conformed) of one stream, its new position, and problems."""

    rows: list[dict[str, Any]]
    position: int
    problems: tuple[str, ...]


def decode(line: bytes) -> dict[str, Any] | None:
    """
    The JSON object of a line; None where there is none.

    After a torn write two records may stand on one line: then the last one counts. Half of a surrogate pair, which JSON may
    escape and UTF-8 cannot hold, becomes the text of its escape, so that two names stay two.
    """
    for text in (line, line[line.rfind(_START) :] if line.rfind(_START) > 0 else b""):
        if not text:
            continue
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            try:
                found = json.loads(_HALF_PAIR.sub(_as_text, json.dumps(json.loads(text), ensure_ascii=False)))
            except (ValueError, RecursionError):
                continue
        if isinstance(found, dict):
            return found
    return None


def _as_text(half: re.Match[str]) -> str:
    """JSON for the text of the escape of half a surrogate pair."""
    return f"\\\\u{ord(half[0]):04x}"


def read_records(lines: Iterable[bytes], boot: str, after: int, *, limit: int, complete: int | None = None) -> Records:
    """
    At most ``limit`` records of ``boot`` with a seq above ``after``.

    A record not above ``after`` or seen before is counted as repeated; the order of lines does not matter. A line without an
    object, a seq, a kind, of another boot or with a seq above ``complete`` (where the writer said how far it is) is garbage. A
    record of another version is not read: see ``take``.
    """
    records = Records()
    furthest = after
    for line in lines:
        if len(records.by_seq) >= limit:
            break
        if not line.strip():
            continue
        record = decode(line) if len(line) <= MAX_LINE else None
        if record is not None and record.get("v") != 1 and "v" in record:
            version = record["v"]
            records.versions.add(str(version) if _is_int(version) else printable(str(version)))
            continue
        seq = record.get("seq") if record is not None else None
        if record is None or not isinstance(seq, int) or not _is_int(seq) or not _is_of(record, boot):
            records.garbage += 1
        elif seq <= after or seq in records.by_seq:
            records.repeated += 1
        elif seq > (complete if complete is not None else furthest + _MAX_JUMP):
            records.garbage += 1
        else:
            records.by_seq[seq] = record
            furthest = max(furthest, seq)
    return records


def _is_of(record: Mapping[str, Any], boot: str) -> bool:
    return record.get("boot") == boot and isinstance(record.get("kind"), str)


def take(records: Records, origin: Origin, table: Table, after: int, until: int, complete: int | None = None) -> Taken:
    """
    The rows of ``table`` in ``records``, and the new position: ``complete`` where it is known, else the last seq read.

    For `adapter_events` each seq after ``after`` is accounted for: by a row, by a request (which is a row of the other table), or
    by a `lost` row. A gap that no `lost` record declares becomes one, with reason ``garbage`` where unreadable lines came with
    it, else ``gap``; a record with a field of a wrong type, or with a time outside 2000 … 2100, becomes one with reason
    ``garbage``. A made-up row has the seq of the last record it stands for, and the time of the record after it, else before it,
    else ``until`` − 1. For `requests` losses are problems only: `adapter_events` keeps the account of a boot.

    Where every record is of another version, nothing is taken and the stream waits for a newer reader.
    """
    problems: list[str] = []
    if records.versions and not records.by_seq:
        said = ", ".join(sorted(records.versions))
        return Taken([], after, (f"event log of version {said}: this lora-watch reads version 1; upgrade it, the log is kept",))
    if records.versions:
        problems.append(
            f"records of another version among those of version 1 were left out: {', '.join(sorted(records.versions))}"
        )
    if records.garbage:
        problems.append(f"{records.garbage} lines are no records")
    if records.repeated:
        problems.append(f"{records.repeated} records came twice and were passed over")
    rows: list[dict[str, Any]] = []
    end = max([after, *records.by_seq]) if complete is None else max(complete, after)
    if table is REQUESTS:
        rows = list(_request_rows(records, origin, problems))
    else:
        rows = list(_event_rows(records, origin, after, end, until, problems))
    return Taken(rows, end, capped(problems))


def _event_rows(
    records: Records, origin: Origin, after: int, end: int, until: int, problems: list[str]
) -> Iterator[dict[str, Any]]:
    """Rows of `adapter_events` for each seq in ``(after, end]``, requests aside."""
    declared = _Declared(records.by_seq.values())
    times = {seq: record["at"] for seq, record in records.by_seq.items() if _is_time(record.get("at"))}
    order = sorted(records.by_seq)
    later = until - 1
    if times:
        later = times[max(times)]
    next_time: dict[int, int] = {}
    for seq in reversed(order):
        later = times.get(seq, later)
        next_time[seq] = later
    tail_time = times[max(times)] if times else until - 1
    reason = "garbage" if records.garbage or records.versions else "gap"
    previous = after
    lost = 0
    for seq in order:
        if missing := declared.leaves(previous + 1, seq - 1):
            lost += missing
            yield _lost_row(origin, seq - 1, next_time[seq], missing, reason)
        record = records.by_seq[seq]
        if record["kind"] != "request" and (fault := _fault(record, _EVENT_FIELDS)):
            problems.append(f"record {seq} ({printable(record['kind'])}) was left out: {fault}")
            yield _lost_row(origin, seq, next_time[seq], 1, "garbage")
        elif record["kind"] != "request":
            if record["kind"] == "lost" and record.get("count"):
                problems.append(f"{record['count']} records were lost: {printable(str(record.get('reason')))}")
            yield _event_row(origin, record)
        previous = seq
    if missing := declared.leaves(previous + 1, end):
        lost += missing
        yield _lost_row(origin, end, tail_time, missing, reason)
    if lost:
        problems.append(f"{lost} records are missing and counted as lost")


class _Declared:
    """Seqs that `lost` records account for, as spans that do not touch, in order."""

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(span for record in records for span in _span(record)):
            if self._ends and start <= self._ends[-1] + 1:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def leaves(self, first: int, last: int) -> int:
        """How many of ``first`` … ``last`` no span covers."""
        missing = max(0, last - first + 1)
        index = bisect_left(self._ends, first)
        while missing and index < len(self._starts) and self._starts[index] <= last:
            missing -= min(last, self._ends[index]) - max(first, self._starts[index]) + 1
            index += 1
        return missing


def _span(record: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """The seqs a `lost` record stands for; nothing for other records and for one that is not sound."""
    if record["kind"] != "lost" or _fault(record, _EVENT_FIELDS):
        return
    last = record.get("last", record["seq"])
    if _is_int(last):
        first = record.get("first", last - (record.get("count") or 0) + 1)
        if _is_int(first) and first <= last:
            yield first, last


def _fault(record: Mapping[str, Any], checks: Mapping[str, _Check]) -> str:
    """What is wrong with a record, or ""."""
    if not _is_time(record.get("at")):
        return f"its time {printable(str(record.get('at')))} is not between 2000 and 2100"
    for name, check in checks.items():
        value = record.get(name)
        if value is not None and not check(value):
            return f"field {name} is {printable(json.dumps(value))}"
    return ""


def _event_row(origin: Origin, record: Mapping[str, Any]) -> dict[str, Any]:
    known = _EVENT_FIELDS.keys() | _ENVELOPE
    rest = {name: value for name, value in record.items() if name not in known and (name, value) != ("tp_rank", 0)}
    return {
        **_where(origin),
        "at": record["at"],
        "seq": record["seq"],
        "kind": record["kind"],
        **{name: record.get(name) for name in _EVENT_FIELDS},
        "detail": json.dumps(rest, ensure_ascii=False, sort_keys=True, separators=(",", ":")) if rest else None,
    }


def _lost_row(origin: Origin, seq: int, at: int, count: int, reason: str) -> dict[str, Any]:
    return {
        **_where(origin),
        "at": at,
        "seq": seq,
        "kind": "lost",
        **dict.fromkeys(_EVENT_FIELDS),
        "count": count,
        "reason": reason,
        "detail": None,
    }


def _request_rows(records: Records, origin: Origin, problems: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of `requests`; ``at`` is the end of the request."""
    lost = 0
    for seq in sorted(records.by_seq):
        record = records.by_seq[seq]
        if record["kind"] == "lost" and _is_int(record.get("count")):
            lost += max(0, record["count"])
        if record["kind"] != "request":
            continue
        if fault := _fault(record, _REQUEST_FIELDS):
            problems.append(f"request record {seq} was left out: {fault}")
            continue
        fields = {name: record.get(name) for name in _REQUEST_FIELDS}
        yield {**_where(origin), "at": record["at"] if fields["finished"] is None else fields["finished"], "seq": seq, **fields}
    if lost:
        problems.append(f"{lost} records of this log were lost; requests may be among them")


def _where(origin: Origin) -> dict[str, Any]:
    pod = origin.pod
    return {
        "cluster": pod.cluster,
        "pool": pod.pool,
        "role": pod.role,
        "pod": pod.pod,
        "stream": origin.stream,
        "provenance": str(Provenance.OBSERVED),
        "source": origin.source,
    }


def frame(table: Table, rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a frame of ``table``'s columns, not yet conformed: what one pod brought."""
    return pl.DataFrame(rows, schema={name: dtype for name, dtype in table.schema.items() if name not in {"date", "bucket"}})


def conformed(table: Table, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """All frames as one conformed frame; none gives the empty one."""
    found = [one for one in frames if one.height]
    return table.conform(pl.concat(found)) if found else table.empty()


TABLES = (ADAPTER_EVENTS, REQUESTS)
"""The tables one log feeds."""
