"""
What every alert would have done over stored history, which ones would never stop or could never begin, and which limits would
have let a wanted number of episodes through: ``lora-watch rules calibrate``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from lora_watch import names
from lora_watch.model import DAY, MINUTE
from lora_watch.rules.condition import Clause, Compare, Condition, Episode, episodes
from lora_watch.rules.history import LEVELS, History
from lora_watch.rules.rule import Alert, Tier

ALWAYS = 0.5
"""An alert that fires for half of the time says nothing any more."""
WANTED: Mapping[Tier, float] = {Tier.HARM: 1, Tier.CAUSE: 8}
"""Episodes in ``PER`` that people bear: a page a month, two warnings a week."""
PER = 28 * DAY
_SHARES = frozenset(
    {
        names.POOL_LOADING_RECORD,
        names.POOL_PREDICTED_RECORD,
        names.POOL_NEWMASS_RECORD,
        names.POOL_GPU_BUSY_RECORD,
        names.POOL_INFERENCE_RECORD,
        names.POOL_COLD_RECORD,
        names.POD_KV_CACHE_RECORD,
    }
)
_OF_REQUESTS = frozenset({names.POD_SWAPS_RECORD, names.POD_LOADS_RECORD, names.POOL_SWAPS_RECORD, names.POOL_LOADS_RECORD})
_TRIED = 64
"""Limits that are tried between the lowest and the highest value."""
_Mask = NDArray[np.bool_]


class Verdict(StrEnum):
    """What history says of an alert."""

    ALWAYS = "always"  # it would have fired for half of the time or more
    NEVER = "never"  # it could not have fired: what it counts can't be that high, or that low, with the traffic there was
    QUIET = "quiet"  # it did not fire, and no minute came half of the way from the median to the limit
    UNKNOWN = "unknown"  # a series that it needs is not in the tables
    OFTEN = "often"  # more episodes than wanted
    FINE = "fine"


@dataclass(frozen=True, slots=True)
class Limit:
    """
    One comparison that gives an alert its value: the limit that it has, what was seen (``extreme``: the highest, for ``<`` the
    lowest), the limit that would do, and how high the value can be at all.
    """

    series: str
    operator: str
    value: float
    median: float | None
    extreme: float | None
    proposed: float | None
    ceiling: float | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """An alert over history: its episodes by case, the share of time that it fired somewhere, and its limits."""

    alert: Alert
    verdict: Verdict
    episodes: tuple[tuple[tuple[str, ...], Episode], ...]
    share: float
    wanted: float | None
    limits: tuple[Limit, ...]
    unknown: tuple[str, ...]


def judged(alert: Alert, history: History, wanted: Mapping[Tier, float] | None = None) -> Judged:
    """
    Replay an alert over history. ``wanted``: episodes in 28 days by tier, scaled to the length of the history.

    An alert is unknown where no case has any value of a clause's own series. A limit is proposed where it fires more often than
    wanted, or half of the time: the nearest one, of 64 between what was seen, beyond which no limit fires more often than
    wanted, with everything else of the condition as it is.
    """
    condition = alert.condition
    missing = tuple(name for name in condition.series if not history.lines.get(name))
    clauses = [one for one in condition.any_of if one.main.series not in missing]
    needed = [one for one in clauses if not {other.series for other in one.also} & set(missing)]
    if not needed:
        return Judged(alert, Verdict.UNKNOWN, (), 0.0, None, (), missing)
    allowed = {**WANTED, **(wanted or {})}.get(alert.tier)
    if allowed is not None:
        allowed *= max(float(history.marks[-1] - history.marks[0]) / PER, 0.0)
    known = replace(condition, any_of=tuple(needed))
    found = tuple(_episodes(known, history))
    share = _share(found, history)
    limits = tuple(_limit(known, n, history, allowed, bad=_too_much(len(found), share, allowed)) for n in range(len(needed)))
    return Judged(alert, _verdict(found, share, allowed, limits), found, share, allowed, limits, missing)


def _too_much(count: int, share: float, allowed: float | None) -> bool:
    return share >= ALWAYS or (allowed is not None and count > max(allowed, 1))


def _verdict(
    found: Sequence[tuple[tuple[str, ...], Episode]], share: float, allowed: float | None, limits: Sequence[Limit]
) -> Verdict:
    if share >= ALWAYS:
        return Verdict.ALWAYS
    if _too_much(len(found), share, allowed):
        return Verdict.OFTEN
    if found:
        return Verdict.FINE
    if all(limit.operator == ">" and limit.ceiling is not None and limit.value >= limit.ceiling for limit in limits):
        return Verdict.NEVER
    return Verdict.QUIET if all(_far(limit) for limit in limits) else Verdict.FINE


def _far(limit: Limit) -> bool:
    """Whether nothing that was seen came even half of the way from the median to the limit."""
    if limit.median is None or limit.extreme is None:
        return True
    way = limit.value - limit.median
    return way == 0 or (limit.extreme - limit.median) / way < 0.5


def cases(condition: Condition, history: History) -> list[dict[str, str]]:
    """What the condition is asked of: the labels of every series that may give it its value."""
    told: dict[tuple[str, ...], dict[str, str]] = {}
    for clause in condition.any_of:
        level = LEVELS[clause.main.series.partition(":")[0]]
        for case in history.lines.get(clause.main.series, {}):
            labels = dict(zip(level, case, strict=True))
            told[tuple(labels[name] for name in condition.on)] = labels
    return list(told.values())


def held(condition: Condition, history: History, labels: Mapping[str, str]) -> _Mask:
    """At which minutes the condition holds in one case, as :meth:`Condition.holds` says it of one minute."""
    out = np.zeros(len(history.marks), bool)
    for clause in condition.any_of:
        out |= _clause(clause, history, labels)
    return out


def _clause(clause: Clause, history: History, labels: Mapping[str, str]) -> _Mask:
    out = _compared(clause.main, history, labels)
    for one in clause.also:
        out &= _compared(one, history, labels)
    for one in clause.unless:
        out &= ~_compared(one, history, labels)
    return out


def _compared(compare: Compare, history: History, labels: Mapping[str, str]) -> _Mask:
    if compare.labels:
        raise ValueError(f"{compare.series} with labels of its own is not in the history")
    line = history.of(compare.series, labels)
    if line is None:
        return np.zeros(len(history.marks), bool)
    value = compare.threshold.value
    return np.asarray(line > value if compare.operator == ">" else line < value)


def _episodes(condition: Condition, history: History) -> Iterator[tuple[tuple[str, ...], Episode]]:
    for labels in cases(condition, history):
        case = tuple(labels[name] for name in condition.on)
        for one in _of(held(condition, history, labels), condition, history.marks):
            yield case, one


def _of(mask: _Mask, condition: Condition, marks: NDArray[np.int64]) -> Iterator[Episode]:
    """The episodes of a mask, from the minutes alone at which something can change: its edges, and so long after them."""
    if not mask.any():
        return
    edges = np.flatnonzero(np.diff(mask)) + 1
    begins = np.concatenate([[0], edges])
    lasting = np.diff(np.concatenate([begins, [len(mask)]]))
    wait, keep = (-(-round(length.total_seconds() * 1e6) // MINUTE) for length in (condition.for_, condition.keep))
    told: list[int] = []
    for begin, length in zip(begins, lasting, strict=True):
        later = wait if mask[begin] else keep
        told += [begin, begin + later] if 0 < later < length else [begin]
    told = [*told, len(mask) - 1] if told[-1] != len(mask) - 1 else told
    yield from episodes(((int(marks[n]), bool(mask[n])) for n in told), condition.for_, condition.keep)


def _share(found: Sequence[tuple[tuple[str, ...], Episode]], history: History) -> float:
    """Share of the history in which at least one case fired."""
    firing = np.zeros(len(history.marks), bool)
    for _, one in found:
        firing |= (history.marks >= one.start) & (history.marks < (history.marks[-1] + 1 if one.end is None else one.end))
    return float(firing.mean())


def _limit(condition: Condition, number: int, history: History, allowed: float | None, *, bad: bool) -> Limit:
    main = condition.any_of[number].main
    values = np.concatenate([line[~np.isnan(line)] for line in history.lines[main.series].values()])
    extreme = values.max() if main.operator == ">" else values.min()
    proposed = _proposed(condition, number, history, allowed, values) if bad and allowed is not None else None
    seen = float(np.median(values)), float(extreme)
    return Limit(main.series, main.operator, main.threshold.value, *seen, proposed, _ceiling(main.series, history))


def _ceiling(series: str, history: History) -> float | None:
    """The highest value that a series can have: shares are of one, and no pod loads more often than it is asked."""
    if series in _SHARES:
        return 1.0
    asked = history.lines.get(names.POD_REQUESTS_RECORD)
    if series in _OF_REQUESTS and asked:
        return float(max(np.nanmax(line) for line in asked.values()))
    return None


def _proposed(condition: Condition, number: int, history: History, allowed: float, values: NDArray[np.float64]) -> float | None:
    """None where the clause is not what fires too often: with its own limit it stays within what is allowed."""
    clause = condition.any_of[number]

    def count(limit: float) -> tuple[int, float]:
        moved = replace(clause.main, threshold=replace(clause.main.threshold, value=limit))
        tried = replace(condition, any_of=(replace(clause, main=moved),))
        found = list(_episodes(tried, history))
        return len(found), _share(found, history)

    if not _too_much(*count(clause.main.threshold.value), allowed):
        return None
    tried = np.unique(np.quantile(values, np.linspace(0, 1, _TRIED)))
    chosen = None
    for limit in tried if clause.main.operator == "<" else tried[::-1]:
        if _too_much(*count(float(limit)), allowed):
            break
        chosen = float(limit)
    return chosen
