"""
When an alert is raised, as a value: recorded series, comparisons and times, so that a program can replay it without Prometheus.

:meth:`Condition.promql` is what Prometheus evaluates; :meth:`Condition.holds` and :func:`episodes` say the same of stored values.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from operator import gt, lt
from types import MappingProxyType

from lora_watch.rules.thresholds import Threshold

_COMPARES = MappingProxyType({">": gt, "<": lt})
Key = tuple[str, tuple[tuple[str, str], ...]]
"""A recorded series and the labels that are asked of it, sorted: what a value is looked up by."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A recorded series against a threshold; ``labels`` are matchers beside those of the level (such as a phase)."""

    series: str
    operator: str
    threshold: Threshold
    labels: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.operator not in _COMPARES:
            raise ValueError(f"a comparison is one of {', '.join(_COMPARES)}, not {self.operator!r}")

    @property
    def key(self) -> Key:
        """What its value is looked up by."""
        return self.series, tuple(sorted(self.labels))

    @property
    def promql(self) -> str:
        """As Prometheus evaluates it: the samples for which it holds."""
        matchers = ",".join(f'{name}="{value}"' for name, value in sorted(self.labels))
        return f"{self.series}{f'{{{matchers}}}' if matchers else ''} {self.operator} {self.threshold.value:g}"

    def holds(self, values: Mapping[Key, float | None]) -> bool:
        """Whether it holds; unknown (absent, null, NaN) does not."""
        value = values.get(self.key)
        return value is not None and bool(_COMPARES[self.operator](value, self.threshold.value))


@dataclass(frozen=True, slots=True)
class Clause:
    """
    ``main``, and every one of ``also``, and none of ``unless``. ``main`` gives the alert its value and its labels.

    Series beside ``main`` are matched by the labels of ``on``, which name one sample of each.
    """

    main: Compare
    also: tuple[Compare, ...] = ()
    unless: tuple[Compare, ...] = ()

    def promql(self, on: tuple[str, ...]) -> str:
        """As Prometheus evaluates it."""
        by = f"on ({', '.join(on)})"
        parts = [self.main.promql]
        parts += [f"and {by} {one.promql}" for one in self.also]
        parts += [f"unless {by} {one.promql}" for one in self.unless]
        return "\n".join(parts)

    def holds(self, values: Mapping[Key, float | None]) -> bool:
        """Whether it holds. A series that is unknown fulfils no ``also`` and excludes nothing."""
        required = self.main.holds(values) and all(one.holds(values) for one in self.also)
        return required and not any(one.holds(values) for one in self.unless)


@dataclass(frozen=True, slots=True)
class Condition:
    """
    Any of the clauses, without a break for ``for_``; then it goes on until none held for ``keep``.

    ``on`` are the labels by which one case is told from another: those of the level that the series are recorded at.
    """

    any_of: tuple[Clause, ...]
    for_: timedelta
    keep: timedelta
    on: tuple[str, ...] = ("cluster", "pool", "role")

    def __post_init__(self) -> None:
        if not self.any_of:
            raise ValueError("a condition has at least one clause")

    @property
    def promql(self) -> str:
        """As Prometheus evaluates it; ``for`` and ``keep_firing_for`` stand beside it."""
        return "\nor\n".join(clause.promql(self.on) for clause in self.any_of)

    @property
    def compares(self) -> tuple[Compare, ...]:
        """Every comparison in it."""
        return tuple(one for clause in self.any_of for one in (clause.main, *clause.also, *clause.unless))

    @property
    def series(self) -> tuple[str, ...]:
        """The recorded series it reads, each once."""
        return tuple(dict.fromkeys(one.series for one in self.compares))

    def holds(self, values: Mapping[Key, float | None]) -> bool:
        """Whether it holds at one moment, of one case, by the values of :attr:`Compare.key` at that moment."""
        return any(clause.holds(values) for clause in self.any_of)


@dataclass(frozen=True, slots=True)
class Episode:
    """One firing, µs UTC: since when it was ``pending``, the evaluations at which it fired first and no more (``end``)."""

    pending: int
    start: int
    end: int | None


def episodes(held: Iterable[tuple[int, bool]], for_: timedelta, keep: timedelta) -> Iterator[Episode]:
    """
    When an alert would have fired, from whether its condition held at each evaluation (µs UTC, in order), as Prometheus does it.

    It fires at the first evaluation ``for_`` or longer after the one since which the condition held at all; it ends at the
    first one ``keep`` or longer after the one at which it held no more. ``end`` None: it fires at the last evaluation.

    >>> minute = 60_000_000
    >>> held = [(n * minute, 1 <= n < 5) for n in range(9)]
    >>> [(one.pending // minute, one.start // minute, one.end // minute)
    ...  for one in episodes(held, timedelta(minutes=2), timedelta(minutes=1))]
    [(1, 3, 6)]
    """
    wait, stay = (round(length.total_seconds() * 1_000_000) for length in (for_, keep))
    pending: int | None = None
    start: int | None = None
    gone: int | None = None
    for at, true in held:
        if true:
            gone = None
            if pending is None:
                pending = at
            if start is None and at - pending >= wait:
                start = at
        elif start is None:
            pending = None
        else:
            gone = at if gone is None else gone
            if at - gone >= stay:
                assert pending is not None
                yield Episode(pending, start, at)
                pending = start = gone = None
    if start is not None and pending is not None:
        yield Episode(pending, start, None)
