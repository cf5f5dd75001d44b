"""The whole answer about a window: the state of each pool in words, what was found, and what can't be known."""

from dataclasses import dataclass
from enum import StrEnum

from lora_watch.diagnose.finding import Finding, Severity
from lora_watch.model import Window


class State(StrEnum):
    """How a pool is, in one word. Ordered from best to worst; ``unknown`` is no state of the pool but of our knowledge."""

    HEALTHY = "healthy"
    WATCH = "watch"
    HARM = "harm"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Margin:
    """
    How far one number is from where it would be trouble. ``value`` None: not known, ``why`` says why not.

    ``limit`` is the value at which a finding would open; ``text`` is the number in words, ``over`` what span it is of, and
    ``trouble`` the limit in the words of ``text``, with a reason where it is not the same for all pools.
    """

    name: str
    text: str
    value: float | None
    limit: float | None
    unit: str = ""
    provenance: str | None = None
    method: str = ""
    why: str = ""
    over: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class PoolState:
    """One pool of one role: how it is and with what margins. ``slots``: of all its pods, None where any's are unknown."""

    cluster: str
    pool: str
    role: str
    pods: int
    slots: int | None
    adapters: int | None
    state: State
    sentence: str
    margins: tuple[Margin, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that can't be told from what is there: ``what``, ``why``, and what would make it known (``how``)."""

    what: str
    why: str
    how: str
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a diagnosis of a window says. ``findings``: the gravest first, those that are over last."""

    window: Window
    pools: tuple[PoolState, ...]
    findings: tuple[Finding, ...]
    gaps: tuple[Gap, ...]

    @property
    def worst(self) -> Severity | None:
        """The gravest severity of the findings that go on, None where there is none."""
        grave = [one.severity for one in self.findings if one.until is None]
        return max(grave, key=lambda one: one.rank) if grave else None


def in_order(findings: "tuple[Finding, ...] | list[Finding]") -> tuple[Finding, ...]:
    """
    Findings that go on before those that are over, the graver first, what happens before how a pool is set up, then the newer,
    then by what they are about.
    """
    return tuple(
        sorted(
            findings,
            key=lambda one: (
                one.until is not None,
                -one.severity.rank,
                not one.happens,
                -one.since,
                one.kind,
                one.pool,
                one.scope,
            ),
        )
    )
