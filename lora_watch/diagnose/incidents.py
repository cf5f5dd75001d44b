"""Incidents: findings of one pool that lived at about the same time, told as one story. Pure: states in, values out."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lora_watch.diagnose.finding import Finding, Severity, as_dict
from lora_watch.diagnose.life import Change, Phase, Rules, State
from lora_watch.model import DAY, MINUTE, SECOND

APART = 15 * MINUTE
"""Findings of one pool that lie no further apart than this are one incident: a quarter of an hour is one shift's attention."""
CHRONIC = DAY
"""
A finding below harm that lasts longer, or is about how the pool is set up, is a condition of the pool, no event: it joins no two
events that it spans.
"""
UNTOLD = 45 * MINUTE
"""An open finding is told at least every half hour; after so long without a word nobody knows whether it goes on."""
CERTAIN = Rules().blind_after
"""An end is a moment if the looks around it are no further apart than this, else it is said as a span."""


@dataclass(frozen=True, slots=True)
class Life:
    """The told states of one finding, in the order of their times; at least one."""

    states: tuple[State, ...]

    @property
    def id(self) -> str:
        """The finding's key and when it opened."""
        return self.states[0].id

    @property
    def name(self) -> str:
        """A short name for people: when it opened and a part of a digest of its id."""
        opened = utc(self.opened)[:16].translate({ord("-"): None, ord(":"): None, ord("T"): "-"})
        return f"{opened}-{hashlib.sha256(self.id.encode('utf-8', 'backslashreplace')).hexdigest()[:6]}"

    @property
    def opened(self) -> int:
        """When it was found first, µs UTC."""
        return self.states[0].opened

    @property
    def start(self) -> int:
        """Since when its evidence shows it: at its opening or before, µs UTC."""
        return min(self.opened, self.states[0].finding.since)

    @property
    def last(self) -> State:
        """What was told last."""
        return self.states[-1]

    @property
    def end(self) -> int | None:
        """By when it had ended, µs UTC; None while it goes on as far as is known."""
        return _ended(self.last) if self.last.phase is Phase.CLOSED else None

    @property
    def worst(self) -> Finding:
        """The finding as it was at its worst: the highest severity, of those the greatest weight, of those the last."""
        return max(self.states, key=lambda one: (one.finding.severity.rank, _weight(one.finding), one.at)).finding

    def untold(self, now: int) -> bool:
        """Is it open, but nobody has told of it for so long that it may be over?"""
        return self.end is None and now - self.last.at > UNTOLD

    def reaches(self, now: int) -> int:
        """Until when it is known to have gone on, µs UTC."""
        if self.end is not None:
            return self.end
        return self.last.at if self.untold(now) else max(now, self.last.at)


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of a timeline: at (µs UTC), in words what happened, and to which life."""

    at: int
    what: str
    text: str
    severity: Severity
    role: str
    id: str


@dataclass(frozen=True, slots=True)
class Incident:
    """
    Findings of one cluster and pool that lived at about the same time, the first to begin first; ``now`` is when this was asked.

    Findings of different roles may share an incident (prefill starves, decode waits); their evidence is never mixed.
    """

    lives: tuple[Life, ...]
    now: int

    @property
    def id(self) -> str:
        """
        The name of the life that opened first, conditions beside others aside; :func:`named` finds an incident by the name or id
        of any of its lives.
        """
        return min(self._events, key=lambda life: (life.opened, life.id)).name

    @property
    def cluster(self) -> str:
        """Its cluster."""
        return self.lives[0].last.finding.cluster

    @property
    def pool(self) -> str:
        """Its pool."""
        return self.lives[0].last.finding.pool

    @property
    def start(self) -> int:
        """Since when the evidence shows any of it, µs UTC; chronic findings that stand beside others do not count."""
        return min(life.start for life in self._events)

    @property
    def end(self) -> int | None:
        """By when all of it had ended, µs UTC; None while something goes on or nobody knows."""
        ends = [life.end for life in self._events]
        return None if None in ends else max(end for end in ends if end is not None)

    @property
    def status(self) -> str:
        """``open``, ``closed``, or ``unknown``: what is open was not told of for ``UNTOLD``."""
        if self.end is not None:
            return "closed"
        going = [life for life in self._events if life.end is None]
        return "unknown" if all(life.untold(self.now) for life in going) else "open"

    @property
    def severity(self) -> Severity:
        """The worst of its findings at their worst."""
        return max((life.worst.severity for life in self.lives), key=lambda severity: severity.rank)

    @property
    def leading(self) -> Life:
        """
        The life whose sentence is the title: of the worst severity the one that opened first, what happened before how the pool
        is set up, conditions aside.
        """
        return max(self._events, key=lambda life: (life.worst.severity.rank, life.worst.happens, -life.opened, life.id))

    @property
    def title(self) -> str:
        """What it did: the sentence of the leading finding at its worst."""
        return self.leading.worst.summary

    @property
    def cause(self) -> str:
        """Why: beside a harm the sentence of the first finding that warns of a cause, else the leading finding's own cause."""
        first = [*self._events, *(life for life in self.lives if life not in self._events)]
        warned = [life.worst for life in first if life.worst.severity is Severity.WARN]
        causes = [one.summary for one in sorted(warned, key=lambda one: not one.happens)]
        return causes[0] if self.severity is Severity.HARM and causes else self.leading.worst.cause

    @property
    def timeline(self) -> tuple[Moment, ...]:
        """What happened to its findings, in the order of the times."""
        moments = [moment for life in self.lives for moment in _moments(life)]
        return tuple(sorted(moments, key=lambda one: (one.at, one.id)))

    @property
    def _events(self) -> tuple[Life, ...]:
        """The lives that make its span: all but chronic ones that others are beside."""
        events = tuple(life for life in self.lives if not _is_chronic(life, self.now))
        return events or self.lives


def incidents(states: Iterable[State], now: int) -> tuple[Incident, ...]:
    """
    Told states as incidents, the newest first; ``now`` (µs UTC) is how far an open one reaches.

    Two findings of one cluster and pool are in one incident if a chain of findings joins them whose spans (from ``since`` to the
    end) overlap or lie at most ``APART`` from each other. A finding below harm that lasts longer than ``CHRONIC`` joins only its
    like: such conditions are incidents of their own, and stand in every other incident that they overlap besides. An open
    finding that nobody told of for ``UNTOLD`` reaches until it was told of last.
    """
    pools: dict[tuple[str, str], list[Life]] = {}
    for life in lives(states):
        finding = life.last.finding
        pools.setdefault((finding.cluster, finding.pool), []).append(life)
    found = [incident for pool in pools.values() for incident in _of_pool(pool, now)]
    return tuple(sorted(found, key=lambda one: (one.start, one.id), reverse=True))


def lives(states: Iterable[State]) -> list[Life]:
    """States by their finding's life, each in the order of time; the first to open first."""
    by_id: dict[str, list[State]] = {}
    for state in states:
        by_id.setdefault(state.id, []).append(state)
    found = [Life(tuple(sorted(told, key=lambda one: one.at))) for told in by_id.values()]
    return sorted(found, key=lambda life: (life.start, life.id))


def named(found: Sequence[Incident], name: str) -> Incident | None:
    """The incident of that id, else one with a life of that name or id; None where there is none."""
    for wanted in (
        lambda one: one.id == name,
        lambda one: any(name in (life.name, life.id) for life in one.lives),
    ):
        for incident in found:
            if wanted(incident):
                return incident
    return None


def as_json(incident: Incident) -> dict[str, Any]:
    """JSON-ready: the incident, its findings as they were told last, and its timeline; times as ISO 8601 in UTC."""
    return {
        "id": incident.id,
        "cluster": incident.cluster,
        "pool": incident.pool,
        "status": incident.status,
        "severity": str(incident.severity),
        "start": utc(incident.start),
        "end": None if incident.end is None else utc(incident.end),
        "title": incident.title,
        "cause": incident.cause,
        "findings": [
            {
                "id": life.id,
                "state": "unknown" if life.untold(incident.now) else str(life.last.phase),
                "opened": utc(life.opened),
                "start": utc(life.start),
                "seen": utc(life.last.seen),
                "end": None if life.end is None else utc(life.end),
                "worst": as_dict(life.worst),
                "finding": as_dict(life.last.finding),
            }
            for life in incident.lives
        ],
        "timeline": [
            {
                "at": utc(moment.at),
                "what": moment.what,
                "text": moment.text,
                "severity": str(moment.severity),
                "role": moment.role,
                "id": moment.id,
            }
            for moment in incident.timeline
        ],
    }


def utc(at: int) -> str:
    """µs as ISO 8601 in UTC, whole seconds; the number itself where no calendar has it (an import may say anything)."""
    try:
        return datetime.fromtimestamp(at // SECOND, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{at} µs"


def _of_pool(pool: Sequence[Life], now: int) -> list[Incident]:
    conditions = [life for life in pool if _is_chronic(life, now)]
    found = [Incident(tuple(group), now) for group in _joined(conditions, now)]
    for group in _joined([life for life in pool if not _is_chronic(life, now)], now):
        beside = [
            life for life in conditions if any(life.start <= one.reaches(now) and one.start <= life.reaches(now) for one in group)
        ]
        found.append(Incident(tuple(sorted([*group, *beside], key=lambda one: (one.start, one.id))), now))
    return found


def _joined(pool: Sequence[Life], now: int) -> list[list[Life]]:
    groups: list[list[Life]] = []
    reach = 0
    for life in sorted(pool, key=lambda one: (one.start, one.id)):
        if not groups or life.start > reach + APART:
            groups.append([])
            reach = life.reaches(now)
        groups[-1].append(life)
        reach = max(reach, life.reaches(now))
    return groups


def _is_chronic(life: Life, now: int) -> bool:
    lasting = not life.worst.happens or life.reaches(now) - life.start > CHRONIC
    return life.worst.severity is not Severity.HARM and lasting


def _moments(life: Life) -> list[Moment]:
    first = life.states[0]
    found = [_moment(life, life.opened, "opened", _opening(life), first.finding)]
    for state in life.states:
        finding = state.finding
        if state.blind_from is not None:
            gap = f"Nobody looked from {utc(state.blind_from)} on until now: what it did in between is unknown. {finding.summary}"
            found.append(_moment(life, state.at, str(Change.FOUND_AGAIN), gap, finding))
        elif state.change is Change.CLOSED:
            found.append(_moment(life, _ended(state), "ended", _ending(state), finding))
        elif state.change not in (Change.OPENED, Change.STILL):
            found.append(_moment(life, state.at, str(state.change), finding.summary, finding))
    return found


def _moment(life: Life, at: int, what: str, text: str, finding: Finding) -> Moment:
    return Moment(at, what, text, finding.severity, finding.role, life.id)


def _opening(life: Life) -> str:
    summary = life.states[0].finding.summary
    return summary if life.start >= life.opened else f"{summary} (the evidence shows it since {utc(life.start)})"


def _ending(state: State) -> str:
    ended = _ended(state)
    if ended - state.seen <= CERTAIN:
        return f"No longer found. {state.finding.summary}"
    return f"Ended some time after {utc(state.seen)} and by {utc(ended)}; when is unknown. {state.finding.summary}"


def _ended(state: State) -> int:
    return state.at if state.missed is None else state.missed


def _weight(finding: Finding) -> float:
    return finding.weight if finding.weight == finding.weight else float("-inf")
