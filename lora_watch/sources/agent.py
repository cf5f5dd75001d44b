"""
What the agents beside the engines recorded, read from their sidecars over HTTP (`GET /events`, docs/event-log-v1.md).

Tells, observed: every load, eviction, use, pin, registration and stall, and every finished request with its adapter. One log
feeds two tables, so there are two sources, each with positions of its own. `AgentStatus` measures how far each sidecar's clock is
from ours.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl

from lora_watch import names
from lora_watch.errors import SourceError, SourceRejected, SourceUnavailable
from lora_watch.model import SECOND
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, Batch, Table
from lora_watch.sources.base import Turns, printable, stream
from lora_watch.sources.event_log import Origin, conformed, frame, read_records, take
from lora_watch.sources.http import HttpDoor
from lora_watch.sources.series import sample_frame, sample_row
from lora_watch.sources.targets import Target, Targets

RECORDS_PER_STREAM = 50_000
"""Records taken of one stream in one read, so that a pod that has an hour to tell does not starve the others."""
RECORDS_PER_READ = 500_000
"""Records taken of all streams in one read (about 500 MB while they become rows), shared evenly by the pods: after an outage a
hundred of them have an hour to tell each."""
_LEAST_PER_POD = 1_000
_RECORDS_PER_ANSWER = 10_000
_BYTES_PER_ANSWER = 32 << 20


class _Boot(msgspec.Struct):
    """One process's log, as the sidecar lists it."""

    boot: str
    last_seq: int
    role: str = ""


class _Boots(msgspec.Struct):
    """The sidecar's answer without ``boot``."""

    now: int
    boots: list[_Boot]
    unreadable: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Doors:
    """How sidecars are reached: threads at once, time-outs and limits (see HttpDoor)."""

    threads: int = 8
    timeout: tuple[float, float] = (3.0, 10.0)
    deadline_seconds: float = 30.0

    def to(self, target: Target) -> HttpDoor:
        """The door to the sidecar of ``target``."""
        return HttpDoor(target.agent_url, target.credentials, self.timeout, self.deadline_seconds, 4 * _BYTES_PER_ANSWER)


DOORS = Doors()


def _boots(door: HttpDoor) -> _Boots:
    body = door.get("/events").body
    try:
        return msgspec.json.decode(body, type=_Boots)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SourceRejected(f"{door!r}: not the list of an agent's logs ({error}); is the port the sidecar's?") from None


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines of an answer, as far as _BYTES_PER_ANSWER; half a last line is left for the next answer."""
    rest = b""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
        if size > _BYTES_PER_ANSWER:
            return


class _AgentSource:
    """Reads one table out of every sidecar's logs."""

    def __init__(
        self,
        name: str,
        table: Table,
        kinds: str,
        targets: Targets,
        records_per_stream: int = RECORDS_PER_STREAM,
        doors: Doors = DOORS,
    ) -> None:
        self.name = name
        self.table = table
        self._kinds = kinds
        self._targets = targets
        self._limit = records_per_stream
        self._doors = doors
        self._turns = Turns(doors.threads)

    def read(self, positions: Mapping[str, int], until: int) -> Batch:
        """
        What each boot's log gained since its position, at most so many records each, and so many in all (``RECORDS_PER_READ``).

        ``until`` does not cut the rows: a log advances by seq, and a pod's clock may be ahead of ours. Of the pods that failed
        last time so many are asked as there are threads (see ``Turns``). One pod that fails is a problem; SourceUnavailable or
        SourceRejected only where all of them failed.
        """
        targets, problems = self._targets.read()
        known = {stream("agent", target.cluster, target.pod): target for target in targets if target.agent_url}
        waiting = self._turns.waiting(list(known))
        picked = self._turns.pick(list(known))
        asked = [known[name] for name in picked]
        with ThreadPoolExecutor(self._doors.threads) as pool:
            share = max(RECORDS_PER_READ // max(len(asked), 1), _LEAST_PER_POD)
            answers = list(pool.map(lambda target: self._pod(target, positions, until, share), asked))
        self._turns.settle({name: answer.failure is None for name, answer in zip(picked, answers, strict=True)}, known)
        failures = [answer.failure for answer in answers if answer.failure is not None]
        if failures and len(failures) == len(asked):
            kind = SourceUnavailable if any(isinstance(error, SourceUnavailable) for error in failures) else SourceRejected
            raise kind(f"none of {len(asked)} agents could be read; the first: {failures[0]}")
        moved = {name: position for answer in answers for name, position in answer.positions.items()}
        found = [problem for answer in answers for problem in answer.problems]
        return Batch(
            conformed(self.table, (f for answer in answers for f in answer.frames)), moved, (*problems, *waiting, *found)
        )

    def _pod(self, target: Target, positions: Mapping[str, int], until: int, share: int) -> "_Answer":
        answer = _Answer([], {}, [], left=share)
        try:
            door = self._doors.to(target)
            listed = _boots(door)
            answer.problems += [
                f"agent of pod {printable(target.pod)}: the log {printable(boot)} can't be read there: {printable(reason)}"
                for boot, reason in listed.unreadable.items()
            ]
            for boot in listed.boots:
                if self.table is not REQUESTS or boot.role != "worker":  # a worker finishes no requests
                    self._boot(door, target, boot, positions, until, answer)
        except SourceError as error:
            answer.problems.append(f"agent of pod {printable(target.pod)}: {error}")
            if not answer.positions:
                answer.failure = error
        return answer

    def _boot(
        self, door: HttpDoor, target: Target, boot: _Boot, positions: Mapping[str, int], until: int, answer: "_Answer"
    ) -> None:
        """Take what one log has new, an answer at a time; each answer counts even if the next one fails."""
        name = stream("agent", target.cluster, target.pod, boot.boot)
        origin = Origin(target.pod_id, boot.boot, name, self.name)
        position = positions.get(name, 0)
        left = self._limit
        while left > 0 and answer.left > 0 and position < boot.last_seq:
            limit = min(left, answer.left, _RECORDS_PER_ANSWER)
            params = {"boot": boot.boot, "after": str(position), "limit": str(limit)} | (
                {"kinds": self._kinds} if self._kinds else {}
            )
            with door.open("/events", params) as (headers, chunks):
                text = headers.get("x-lora-watch-last-seq", "")
                complete = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
                counted = _Counted(chunks)
                records = read_records(_lines(counted), boot.boot, position, limit=limit + 1, complete=complete)
            taken = take(records, origin, self.table, position, until, complete if counted.whole else None)
            answer.problems += [f"agent of pod {printable(target.pod)}, boot {printable(boot.boot)}: {p}" for p in taken.problems]
            if taken.position <= position:
                return
            answer.frames.append(frame(self.table, taken.rows))
            left -= taken.position - position
            answer.left -= taken.position - position
            position = answer.positions[name] = taken.position


@dataclass(slots=True)
class _Answer:
    """What one pod brought, how many records it may still bring, and the failure that left it with nothing."""

    frames: list[pl.DataFrame]
    positions: dict[str, int]
    problems: list[str]
    left: int
    failure: SourceError | None = None


class _Counted:
    """Chunks passed on; ``whole`` once the last one has been taken."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.whole = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks
        self.whole = True


class AgentEvents(_AgentSource):
    """
    `adapter_events` from every target with an ``agent_url``: streams ``agent/<cluster>/<pod>/<boot>``, position the last seq.

    It also keeps the account of what each log lost, as `lost` rows (see event_log.take), so it reads the requests too and leaves
    them.
    """

    def __init__(
        self, name: str, targets: Targets, *, records_per_stream: int = RECORDS_PER_STREAM, doors: Doors = DOORS
    ) -> None:
        super().__init__(name, ADAPTER_EVENTS, "", targets, records_per_stream, doors)


class AgentRequests(_AgentSource):
    """`requests` from the same logs, with positions of its own; what a log lost is a problem here and a row there."""

    def __init__(
        self, name: str, targets: Targets, *, records_per_stream: int = RECORDS_PER_STREAM, doors: Doors = DOORS
    ) -> None:
        super().__init__(name, REQUESTS, "request,lost", targets, records_per_stream, doors)


class AgentStatus:
    """
    Samples about the sidecars: ``lora_watch:clock_offset_seconds`` and ``lora_watch:scrape_up{endpoint="agent"}``.

    offset = sidecar's ``now`` − (our clock before + our clock after) / 2, in seconds; it is right within half the time the answer
    took, and is not given where that took more than 2 s. ``clock`` gives µs UTC. Stream ``agent-status/<cluster>/<pod>``,
    position the exclusive end of the last look; a pod looked at within half an ``interval`` is passed over.
    """

    def __init__(
        self, name: str, targets: Targets, clock: Callable[[], int], interval: int = 15 * SECOND, *, doors: Doors = DOORS
    ) -> None:
        self.name = name
        self.table = SAMPLES
        self._targets = targets
        self._clock = clock
        self._interval = interval
        self._doors = doors
        self._turns = Turns(doors.threads)

    def read(self, positions: Mapping[str, int], until: int) -> Batch:
        """One look at each sidecar that is due."""
        targets, problems = self._targets.read()
        streams = {stream("agent-status", target.cluster, target.pod): target for target in targets if target.agent_url}
        due = {name: target for name, target in streams.items() if 2 * (until - positions.get(name, 0)) >= self._interval}
        waiting = self._turns.waiting(list(due))
        picked = self._turns.pick(list(due))
        with ThreadPoolExecutor(self._doors.threads) as pool:
            looks = list(pool.map(lambda name: self._look(due[name], until), picked))
        self._turns.settle({name: rows[-1]["value"] == 1.0 for name, (rows, _) in zip(picked, looks, strict=True)}, streams)
        rows = [row for look, _ in looks for row in look]
        return Batch(
            sample_frame(rows), dict.fromkeys(picked, until), (*problems, *waiting, *(text for _, text in looks if text))
        )

    def _look(self, target: Target, until: int) -> tuple[list[dict[str, Any]], str]:
        rows: list[dict[str, Any]] = []
        up, problem = 1.0, ""
        try:
            door = self._doors.to(target)
            before = self._clock()
            now = _boots(door).now
            after = self._clock()
            if 0 <= after - before <= 2 * SECOND:
                offset = (now - (before + after) / 2) / SECOND
                rows.append(sample_row(target.pod_id, until - 1, names.SAMPLE_CLOCK_OFFSET, offset, {}, self.name))
        except SourceError as error:
            up, problem = 0.0, f"agent of pod {printable(target.pod)}: {error}"
        rows.append(sample_row(target.pod_id, until - 1, names.SAMPLE_SCRAPE_UP, up, {"endpoint": "agent"}, self.name))
        return rows, problem
