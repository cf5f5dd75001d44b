"""
The life of a finding: opened, worse, better, closed. What has been told of it, what is told next, and what nobody can know.

A life is known from its told states alone, so a restart of the service or a second service beside it goes on with the same lives.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from lora_watch.diagnose.finding import Finding
from lora_watch.model import DAY, MINUTE


class Phase(StrEnum):
    """Where a finding stands."""

    OPEN = "open"  # found, and about as bad as it was
    WORSENING = "worsening"
    EASING = "easing"
    CLOSED = "closed"


class Change(StrEnum):
    """Why a state was told."""

    OPENED = "opened"
    WORSENED = "worsened"  # its weight left the told one upwards, for a while
    EASED = "eased"
    RAISED = "raised"  # its severity is higher
    LOWERED = "lowered"
    FOUND_AGAIN = "found again"  # after a time in which nobody looked
    STILL = "still there"  # nothing new; told now and then, so that a reader knows that somebody looked
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Rules:
    """
    When a state is told; times are µs.

    A life closes once it was not found for ``close_after``: less, and it only flickered. It is worse once its weight was at
    least ``worse`` times the told one at every look for ``lasting``, better at ``better`` times: a half more or a third less is
    beyond the noise of a ratio over a few hundred requests, and both steps undo each other. ``still`` is how often a life without
    news is told. After ``blind_after`` without a look, what was between is unknown. What closed is remembered for ``remember``,
    so that a past trouble that the evidence still shows does not open again.
    """

    close_after: int = 10 * MINUTE
    worse: float = 1.5
    better: float = 0.67
    lasting: int = 3 * MINUTE
    still: int = 30 * MINUTE
    blind_after: int = 5 * MINUTE
    remember: int = DAY


@dataclass(frozen=True, slots=True)
class State:
    """
    What was told of a finding at one look (``at``, µs UTC like every time here).

    ``id`` names the life: the finding's key and when it opened. ``seen`` is the last look that found it, ``missed`` the first
    that did not (None: it is found); so it ended after ``seen`` and by ``missed``. ``blind_from`` is the look before this one
    where it was too long ago: what was between is unknown. ``told_weight`` is what worse and better are measured from.
    """

    at: int
    id: str
    phase: Phase
    change: Change
    opened: int
    seen: int
    missed: int | None
    blind_from: int | None
    told_weight: float
    finding: Finding


@dataclass(frozen=True, slots=True)
class Lived:
    """
    A life between two looks: what was ``told`` last, and what the looks since then saw.

    ``drift`` is 1 while the finding is worse than told, −1 while it is better, 0 else; it has been so since ``drift_since``.
    """

    told: State
    finding: Finding
    seen: int
    missed: int | None = None
    drift: int = 0
    drift_since: int = 0

    @property
    def closed(self) -> bool:
        """Is it over?"""
        return self.told.phase is Phase.CLOSED


@dataclass(frozen=True, slots=True)
class Advanced:
    """What one look brought: the states to tell, and the lives as they are then, those that closed not long ago among them."""

    states: tuple[State, ...]
    lives: tuple[Lived, ...]


def advance(
    lives: Sequence[Lived], found: Sequence[Finding], at: int, rules: Rules | None = None, *, looked: int | None = None
) -> Advanced:
    """
    The lives after a look at ``at`` (µs UTC) that ``found`` these findings; ``looked`` is when somebody looked last (None: never
    yet).

    Per key, the worst of several findings counts. One that goes on and has no life opens one; its id is ``<key>-<at>``. One
    that is over (``until`` at or before ``at``) and that no life knows opens a life that ends at ``until``. A life that is not
    found closes after ``rules.close_after``, counted from the first look that missed it.

    Edge cases. A look that is not later than the last one (a clock set back, a second service that looked meanwhile) changes
    nothing: nothing is told until the clock has caught up. After a gap in the looks (``rules.blind_after``) what was found before
    and after is one life, told with ``blind_from``; one that is gone has ended some time in between, and closes ``close_after``
    later, with ``seen`` before the gap and ``missed`` behind it. A weight that is not a number is neither worse nor better.
    """
    rules = rules or Rules()
    if looked is not None and at <= looked:
        return Advanced((), tuple(lives))
    blind_from = looked if looked is not None and at - looked > rules.blind_after else None
    waiting = _worst_by_key(found)
    over = {key: one.until for key, one in waiting.items() if one.until is not None and one.until <= at}
    told: list[State] = []
    after: list[Lived] = []
    for life in sorted(lives, key=lambda one: (one.told.opened, one.told.id)):
        if life.closed:
            if at - life.told.at < rules.remember:
                after.append(life)
            continue
        key = life.finding.key
        finding = waiting.pop(key, None)
        if finding is None:
            state, life = _missed(life, at, rules, blind_from)
        elif key in over:
            seen = max(life.seen, over[key])
            missed = max(seen, over[key] if life.missed is None else life.missed)
            state, life = _missed(replace(life, finding=finding, seen=seen, missed=missed), at, rules, None)
        else:
            state, life = _found(life, finding, at, rules, blind_from)
        told += [state] if state else []
        after.append(life)
    known = {life.finding.key: life.seen for life in after}
    for key, finding in sorted(waiting.items()):
        ended = over.get(key)
        if ended is not None and key in known and ended <= known[key] + rules.close_after:
            continue  # the past that a life was about, told a little otherwise
        seen = at if ended is None else ended
        state = State(at, f"{key}-{at}", Phase.OPEN, Change.OPENED, at, seen, None, None, finding.weight, finding)
        told.append(state)
        after.append(Lived(state, finding, seen, ended))
    return Advanced(tuple(told), tuple(after))


def remember(states: Iterable[State], known: Sequence[Lived] = ()) -> tuple[Lived, ...]:
    """
    The lives that told states make known: for each id the last state, and of ``known`` what is newer than that.

    What the looks since the last telling saw is known to their own service only: another begins anew from what was told.
    """
    lives = {life.told.id: life for life in known}
    for state in sorted(states, key=lambda one: (one.at, one.id)):
        had = lives.get(state.id)
        if had is None or state.at > had.told.at:
            seen = max(state.seen, had.seen) if had else state.seen
            lives[state.id] = Lived(state, state.finding, seen, state.missed)
    return tuple(lives.values())


def _worst_by_key(found: Iterable[Finding]) -> dict[str, Finding]:
    worst: dict[str, Finding] = {}
    for finding in found:
        had = worst.get(finding.key)
        if had is None or _badness(finding) > _badness(had):
            worst[finding.key] = finding
    return worst


def _badness(finding: Finding) -> tuple[bool, int, float]:
    """To order findings of one key by: one that goes on before one that is over, then severity, then weight."""
    return finding.until is None, finding.severity.rank, finding.weight if math.isfinite(finding.weight) else -math.inf


def _missed(life: Lived, at: int, rules: Rules, blind_from: int | None) -> tuple[State | None, Lived]:
    missed = at if life.missed is None or blind_from is not None else life.missed
    life = replace(life, missed=missed, drift=0)
    if at - missed < rules.close_after:
        return None, life
    state = replace(
        life.told,
        at=at,
        phase=Phase.CLOSED,
        change=Change.CLOSED,
        seen=life.seen,
        missed=missed,
        blind_from=None,
        finding=life.finding,
    )
    return state, replace(life, told=state)


def _found(life: Lived, finding: Finding, at: int, rules: Rules, blind_from: int | None) -> tuple[State | None, Lived]:
    drift = _drift(life.told, finding, rules)
    anew = drift != life.drift or blind_from is not None
    since = at if anew else life.drift_since
    life = replace(life, finding=finding, seen=at, missed=None, drift=drift, drift_since=since)
    rank, told_rank = finding.severity.rank, life.told.finding.severity.rank
    settled = drift != 0 and at - since >= rules.lasting
    phase, weight = life.told.phase, finding.weight
    if rank > told_rank:
        change, phase = Change.RAISED, Phase.WORSENING
    elif settled and rank < told_rank:
        change, phase = Change.LOWERED, Phase.EASING
    elif settled:
        change, phase = (Change.WORSENED, Phase.WORSENING) if drift > 0 else (Change.EASED, Phase.EASING)
    else:
        weight = life.told.told_weight if math.isfinite(life.told.told_weight) else finding.weight
        if blind_from is not None:
            change = Change.FOUND_AGAIN
        elif at - life.told.at >= rules.still:
            change, phase = Change.STILL, Phase.OPEN if drift == 0 else phase
        else:
            return None, life
    severity = finding.severity
    if rank < told_rank and change is not Change.LOWERED:
        severity = life.told.finding.severity  # lower, but not for long enough to be told
    state = State(
        at, life.told.id, phase, change, life.told.opened, at, None, blind_from, weight, replace(finding, severity=severity)
    )
    return state, replace(life, told=state, drift=0 if settled or rank > told_rank else drift)


def _drift(told: State, finding: Finding, rules: Rules) -> int:
    """1: worse than told, −1: better, 0: neither. A lower severity is better whatever the weight."""
    if finding.severity.rank < told.finding.severity.rank:
        return -1
    weight, before = finding.weight, told.told_weight
    if not (math.isfinite(weight) and math.isfinite(before)):
        return 0
    if before <= 0:
        return 1 if weight > 0 and weight > before else 0
    return 1 if weight >= rules.worse * before else -1 if weight <= rules.better * before else 0
