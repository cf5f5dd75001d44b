"""
What a finding is: a value that says what, since when, by which evidence, why, what will help by how much, and what will not.

A finding is about one moment. Its ``key`` says what it is about, so that the same trouble a minute later is the same finding;
``weight`` is the one number that says how bad it is, so that a life of it can be told (see :mod:`lora_watch.diagnose.life`).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from lora_watch.model import Provenance, worst


class Severity(StrEnum):
    """How much a finding asks of its reader. Ordered from least to most."""

    INFORMATION = "information"  # nice to know; nobody need do anything
    WARN = "warn"  # a cause or a mechanism: look at it today
    HARM = "harm"  # users feel it, or will soon: act now

    @property
    def rank(self) -> int:
        """0 for the least."""
        return list(Severity).index(self)


class Confidence(StrEnum):
    """How sure a finding is of its cause, not of its numbers (those bear their provenance)."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


CONFIGURATION = frozenset({"slots-below-adapters", "no-warm-tier", "pins-fill-slots", "rank-waste", "no-lora-scorer"})
"""Kinds of findings about how a pool is set up: true at any time, so what happens now goes before them."""


class Possible(StrEnum):
    """What a remedy takes. Ordered from what is best to do first."""

    NOW = "now"  # by a call to the running engine, or by those who send the requests
    SCALE = "new pods"  # by scaling: those that run go on
    ROUTER = "router restart"  # by the router's configuration: pods keep what they hold
    RESTART = "restart"  # by a flag of the engine: the pods start anew
    NOT_HERE = "not here"  # this engine or deployment offers no way; said so that nobody looks for it

    @property
    def takes(self) -> str:
        """What it takes, in words."""
        return _TAKES[self]


_TAKES = {
    Possible.NOW: "can be done now",
    Possible.SCALE: "takes new pods, no restart",
    Possible.ROUTER: "takes a restart of the router",
    Possible.RESTART: "takes a restart of the pods",
    Possible.NOT_HERE: "not possible here",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that speaks for the finding: a clause for people, and the number for programs. ``value`` None: not a number."""

    text: str
    name: str
    value: float | None
    unit: str
    provenance: str
    method: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """
    One thing to do and what it is predicted to change.

    ``lever``: slots, cpu-cache, pins, pods, routing, preload, disk, unpin, spread, experiment, capacity, configuration or engine.
    ``effect`` is the share (0 … 1) of the swaps, loads or waits in ``of`` that it removes, null where nothing predicts it;
    ``low`` and ``high`` bound it where the method gives an interval. A negative effect makes it worse.
    """

    lever: str
    text: str
    possible: Possible = Possible.RESTART
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    of: str = "swaps"
    method: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One finding at one moment.

    ``since`` and ``until`` are µs UTC; ``until`` None: it goes on. ``pods`` and ``adapters`` name whom it is about (none: all of
    the pool). ``scope`` tells findings of one kind in one pool apart where there can be several. ``remedies`` are ranked: what is
    possible and predicted to help most comes first. ``avoid``: what looks like a remedy and is none, with the reason.
    """

    kind: str
    severity: Severity
    cluster: str
    pool: str
    role: str
    since: int
    summary: str
    cause: str
    confidence: Confidence
    weight: float
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    avoid: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    until: int | None = None
    scope: str = ""
    unknown: tuple[str, ...] = field(default=())

    @property
    def key(self) -> str:
        """What it is about, 16 hex digits: the same at the next moment and after a restart."""
        text = json.dumps([self.kind, self.cluster, self.pool, self.role, self.scope])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def happens(self) -> bool:
        """Whether it is about what happens in the pool, not about how that is set up."""
        return self.kind not in CONFIGURATION

    @property
    def provenance(self) -> str:
        """The worst of its evidence; ``inferred`` where it has none."""
        return worst({one.provenance for one in self.evidence if one.provenance}) or str(Provenance.INFERRED)

    @property
    def runbook(self) -> str:
        """The name of its runbook."""
        return self.kind


def ranked(remedies: "tuple[Remedy, ...] | list[Remedy]") -> tuple[Remedy, ...]:
    """
    Remedies in the order in which to try them: what cannot be done here last; the larger predicted effect first; of those
    without a prediction what needs no restart first; else as given.
    """
    order = list(Possible)
    return tuple(
        sorted(
            remedies,
            key=lambda one: (
                one.possible is Possible.NOT_HERE,
                one.effect is None,
                -(one.effect or 0.0),
                order.index(one.possible),
            ),
        )
    )


def as_dict(finding: Finding) -> dict[str, Any]:
    """JSON-ready, with ``key`` and ``provenance``; :func:`from_dict` is its inverse."""
    return {**asdict(finding), "key": finding.key, "provenance": finding.provenance}


def from_dict(told: Mapping[str, Any]) -> Finding:
    """A finding from :func:`as_dict`, without what this version does not know; KeyError where something it needs is missing."""
    known = {name: told[name] for name in Finding.__dataclass_fields__ if name in told}
    known |= {"severity": Severity(told["severity"]), "confidence": Confidence(told["confidence"])}
    known["evidence"] = tuple(Evidence(**one) for one in told.get("evidence", ()))
    known["remedies"] = tuple(Remedy(**{**one, "possible": Possible(one["possible"])}) for one in told.get("remedies", ()))
    for name in ("avoid", "pods", "adapters", "unknown"):
        known[name] = tuple(told.get(name, ()))
    return Finding(**known)
