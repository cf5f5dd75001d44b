"""The values every layer speaks: time windows, provenance, and who a pod is. Times are int64 µs since the epoch, UTC."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

SECOND = 1_000_000
"""Microseconds in a second: the unit of every ``at``."""
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class Provenance(StrEnum):
    """How a row or a number is known. Ordered from best to worst; a result carries the worst of its inputs."""

    OBSERVED = "observed"  # the agent, residency gauges or engine logs said so
    INFERRED = "inferred"  # replayed from uses under the engine's policy
    ACTIVITY = "activity"  # only requests in flight were seen: a lower bound
    REGISTRY = "registry"  # the list of served names
    DESIRED = "desired"  # what a configuration asks for


def worst(provenances: "set[str] | frozenset[str]") -> str | None:
    """
    The provenance a result must carry: the worst of its inputs, None where it has none.

    >>> worst({"observed", "activity"})
    'activity'
    """
    order = [str(p) for p in Provenance]
    return max(provenances, key=order.index) if provenances else None


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time, half-open ``[start, end)`` in µs UTC, never empty."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ValueError(f"a window ends after it starts: [{self.start}, {self.end})")

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end - self.start) / SECOND

    def split(self, step: int) -> Iterator["Window"]:
        """
        Consecutive windows of ``step`` µs that add up to this one; the last may be shorter.

        >>> [(w.start, w.end) for w in Window(0, 25).split(10)]
        [(0, 10), (10, 20), (20, 25)]
        """
        if step <= 0:
            raise ValueError(f"a step is positive, got {step}")
        for start in range(self.start, self.end, step):
            yield Window(start, min(start + step, self.end))


@dataclass(frozen=True, slots=True)
class PodId:
    """Which engine replica a row is about. ``pool`` and ``role`` are labels; cluster and pod are the identity."""

    cluster: str
    pod: str
    pool: str = ""
    role: str = ""
