"""Adapters that follow each other, as the steps of a pipeline do: kept on one pod."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lora_watch.model import MINUTE, SECOND
from lora_watch.recommend.advice import Advice, Kind, Place, Setup
from lora_watch.recommend.history import History
from lora_watch.recommend.means import means
from lora_watch.recommend.trial import Trial
from lora_watch.replay.following import followers
from lora_watch.replay.trace import Trace

SPAN = 8 * SECOND
"""So soon the next step of a pipeline comes."""
LOCAL = 10 * MINUTE
"""Rates are taken over so long: chance follows the hours of the day."""
CONFIDENT = 0.2
"""Of the requests for one, how many more the other follows than chance makes it."""
FALSE_SHARE = 0.05
"""Of the pairs that are told, the share that may be chance (Benjamini and Hochberg)."""
LOOKED_AT = 1_000_000
"""Requests that are looked at, the newest."""
MOST = 1000
"""Adapters whose pairs are looked at, those with most requests: their number counts twice."""


class Pair(NamedTuple):
    """``second`` follows ``first``: ``seen`` times, how often it would by chance, and the share of the rest that it follows."""

    first: int
    second: int
    seen: int
    expected: float
    confidence: float


def advise_groups(trial: Trial, setup: Setup) -> Iterator[Advice]:
    """
    What it would do to keep the adapters of each group on a pod of their own choosing, the others routed as they are.

    A group is what pairs connect; one larger than a pod has slots is left out. Above a few requests a second most pairs can't be
    told from chance without session ids, so that no group is no proof that there are none.
    """
    slots = min(trial.part.slots)
    found = [group for group in connected(pairs(trial.part)) if len(group) <= slots]
    if not found or trial.present.router is None or trial.part.trace.pods < 2:
        return
    trace = trial.part.trace
    work = np.bincount(trace.adapter[trace.adapter >= 0], minlength=trace.adapters)
    home = np.full(trace.adapters + 1, -1, dtype=np.int32)  # the last entry is the base model's
    total = [0] * trace.pods
    for group in sorted(found, key=lambda one: (-int(work[list(one)].sum()), one)):
        pod = min(range(trace.pods), key=lambda at: (total[at], at))
        home[list(group)] = pod
        total[pod] += int(work[list(group)].sum())
    can, how = means(Kind.GROUPS, setup)
    names = trial.history.names
    members = [a for group in found for a in group]
    yield trial.advice(
        Kind.GROUPS,
        trial.count(placed=home[trace.adapter]),
        what=f"keep {len(found)} {'group' if len(found) == 1 else 'groups'} of adapters together ({len(members)} in all)",
        why=f"their requests follow each other within {SPAN // SECOND} s more often than chance has it",
        cost="no restart of engines",
        risk="a pod that has a busy group is the busiest",
        can=can,
        how=how,
        amount=len(found),
        adapters=[names[a] for a in members],
        places=[Place(names[a], trial.part.pods[int(home[a])]) for a in members],
    )


def pairs(history: History) -> list[Pair]:
    """
    Which adapter follows which within ``SPAN``, the surest first.

    By chance b follows a request for a with ``1 − exp(−λ_b · SPAN)``, λ_b being b's rate in the same ``LOCAL`` span; expected is
    the sum over a's requests. Told are pairs whose count a Poisson variable with that mean hardly reaches (false discovery rate
    ``FALSE_SHARE`` over all pairs) and whose ``confidence = (count − expected) ÷ (requests for a − expected)`` is above
    ``CONFIDENT``.
    """
    whole = history.trace
    used = np.flatnonzero(whole.adapter >= 0)[-LOOKED_AT:]
    busiest = np.argsort(-np.bincount(whole.adapter[used], minlength=whole.adapters), kind="stable")[:MOST]
    place = np.full(whole.adapters, -1, dtype=np.int32)
    place[busiest] = np.arange(len(busiest), dtype=np.int32)
    used = used[place[whole.adapter[used]] >= 0]
    trace = Trace(place[whole.adapter[used]], adapters=len(busiest), at=whole.at[used])
    if len(trace) < 2:
        return []
    counts = followers(trace, SPAN)
    span = (trace.at - trace.at[0]) // LOCAL
    spans, adapters = int(span[-1]) + 1, trace.adapters
    asked = np.bincount(span * adapters + trace.adapter, minlength=spans * adapters).reshape(spans, adapters).astype(np.float64)
    expected = asked.T @ (1 - np.exp(-asked * (SPAN / LOCAL)))
    total = asked.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        confidence = (counts - expected) / (total[:, None] - expected)
    np.fill_diagonal(confidence, 0.0)
    likely = np.argwhere((confidence > CONFIDENT) & (counts > expected))
    tests = adapters * (adapters - 1)
    by_chance = sorted((chance(int(counts[a, b]), float(expected[a, b])), int(a), int(b)) for a, b in likely.tolist())
    kept = max((rank for rank, (p, _, _) in enumerate(by_chance, 1) if p <= FALSE_SHARE * rank / tests), default=0)
    return [
        Pair(int(busiest[a]), int(busiest[b]), int(counts[a, b]), float(expected[a, b]), float(confidence[a, b]))
        for _, a, b in by_chance[:kept]
    ]


def chance(count: int, mean: float) -> float:
    """
    The probability that a Poisson variable reaches a count: ``Σ e^−mean · mean^k ÷ k!`` over k from there on.

    >>> round(chance(3, 1.0), 4), chance(0, 1.0)
    (0.0803, 1.0)
    """
    if count <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    total, k = 0.0, count
    while k <= mean or term > total * 1e-12:
        total += term
        k += 1
        term *= mean / k
    return min(total, 1.0)


def connected(found: list[Pair]) -> list[tuple[int, ...]]:
    """The groups that pairs make: adapters that are connected by any number of them, each group sorted."""
    group: dict[int, set[int]] = {}
    for one in found:
        merged = group.get(one.first, {one.first}) | group.get(one.second, {one.second})
        for a in merged:
            group[a] = merged
    return sorted({tuple(sorted(members)) for members in group.values()})
