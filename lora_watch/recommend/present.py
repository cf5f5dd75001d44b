"""Which router stands for the present one: of those that replay knows, the one that loads and places as was recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from lora_watch.recommend.history import History
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.routers import ARTICLE, LLM_D, LLM_D_RESIDENCY, RANDOM, ROUND_ROBIN, Router
from lora_watch.replay.trace import Trace

NEAR = 0.25
"""A router whose loads differ by more than this share from the recorded pods' stands for none."""
FEW = 0.01
"""Loads are compared as shares of the recorded ones, or of so many of the requests where that is more: none are near none."""
PARTS = 8
"""
Replays of each router: of stretches of the history, from its first day to its last, since what is busy looks alike. A history of
one stretch is replayed so often with other draws, since chance alone moves a router's loads by a tenth.
"""
PART = 50_000
"""Requests of a stretch: half a second for all stretches and routers."""
ROUTERS: Mapping[str, Router] = {
    "round robin": ROUND_ROBIN,
    "random": RANDOM,
    "the article's affinity router": ARTICLE,
    "llm-d's lora-affinity-scorer": LLM_D,
    "llm-d's residency scorer": LLM_D_RESIDENCY,
}


@dataclass(frozen=True, slots=True)
class Present:
    """
    The router in the loop: its name in ``ROUTERS`` and itself, both None where requests keep the pods they were recorded on.

    ``loads`` are those of its replay (of several of a stretch: their mean), ``recorded_loads`` those of the recorded pods.
    """

    name: str | None
    router: Router | None
    loads: int
    recorded_loads: int

    @property
    def how(self) -> str:
        """What was replayed, in words."""
        return "on the recorded pods" if self.name is None else f"with {self.name}"


def stays(adapter: NDArray[np.int32], pod: NDArray[np.int32]) -> float:
    """
    The share of requests that go to the pod to which the one before for the same adapter went: high behind a router that looks
    at what is resident, one in so many pods behind one that does not. 1 where no adapter is asked for twice.

    Which pod is which does not matter, since a router that starts elsewhere sends the same requests to other pods.
    """
    used = adapter >= 0
    order = np.argsort(adapter[used], kind="stable")
    by, where = adapter[used][order], pod[used][order]
    same = by[1:] == by[:-1]
    return float((where[1:] == where[:-1])[same].mean()) if same.any() else 1.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What a replay comes to: its loads, of so many requests for adapters; :func:`stays`; what share a pod has, least first."""

    loads: int
    requests: int
    stays: float
    shares: tuple[float, ...]


def seen(adapter: NDArray[np.int32], pod: NDArray[np.int32], lookup: NDArray[np.int8], pods: int) -> Seen:
    """What a replay comes to, of so many pods; adapters, pods and lookups of the requests that count."""
    shares = np.sort(np.bincount(pod, minlength=pods) / max(len(pod), 1))
    return Seen(int((lookup > 0).sum()), int((adapter >= 0).sum()), stays(adapter, pod), tuple(shares.tolist()))


def apart(one: Seen, other: Seen) -> float:
    """
    How differently two replays place the same requests: ``|stays − stays| + ½ Σ |share − share|`` over the pods by rank, 0 to 2.

    Of two routers that keep adapters where they are, one that fills pods evenly differs in the second part only.
    """
    return abs(one.stays - other.stays) + sum(abs(a - b) for a, b in zip(one.shares, other.shares, strict=True)) / 2


def nearest(
    loads: Mapping[str, Sequence[int]],
    recorded: Sequence[int],
    requests: Sequence[int] | None = None,
    elsewhere: Mapping[str, Sequence[float]] | None = None,
) -> str | None:
    """
    The name of the replay that is nearest to the recorded pods, stretch by stretch; None where none is near.

    Formula: near is whose median over stretches of ``|loads − recorded| ÷ max(recorded, FEW · requests)`` is at most ``NEAR``.
    The median, since where requests wait for slots every router comes to much the same. Of the near ones it is the one with the
    least median of ``elsewhere`` (:func:`apart`), where that is told: two routers come to the same loads in different ways, and
    which of them has a few more is chance. Else the one with the nearest loads. Without ``requests``, stretches without a
    recorded load count for nothing.

    >>> nearest({"one": [70, 80, 40], "other": [11, 12, 30]}, [10, 12, 40]), nearest({"one": [9]}, [100])
    ('other', None)
    >>> nearest({"one": [0], "other": [50]}, [1], [2000])
    'one'
    """
    least = [0.0] * len(recorded) if requests is None else [FEW * one for one in requests]
    of = [max(count, few) for count, few in zip(recorded, least, strict=True)]
    counted = [i for i, count in enumerate(of) if count]
    if not counted:
        return None
    off = {name: median(abs(told[i] - recorded[i]) / of[i] for i in counted) for name, told in loads.items()}
    near = [name for name in off if off[name] <= NEAR]
    rank = off if elsewhere is None else {name: median(told) for name, told in elsewhere.items()}
    return min(near, key=lambda one: rank[one], default=None)


def present(history: History, fleet: Fleet | None = None) -> Present:
    """
    The router that stands for the pool's own, found on ``PARTS`` replays of stretches of its requests, of each of which a quarter
    only fills slots.

    None stands where there is one pod, or none comes near: then slots and pins are judged on the recorded pods. ``fleet`` stands
    for the history's own pods: such whose loads take time, where they take long.

    Routers that keep adapters where they are decide alike once each has its pod, and differ in where a new one goes: of two such
    the wrong one may stand, as ``benchmarks/README.md`` counts.
    """
    size, pods = len(history.trace), fleet or history.fleet()
    starts = sorted({max(size - PART, 0) * i // (PARTS - 1) for i in range(PARTS)}) if size > PART else [0]
    stretches = [_cut(history.trace, slice(start, min(start + PART, size))) for start in starts]
    recorded = [_seen(pods, stretch, None) for stretch in stretches]
    every = sum(one.loads for one in recorded)
    if history.trace.pods == 1:
        return Present(None, None, every, every)
    again = PARTS if len(stretches) == 1 else 1
    recorded, stretches = recorded * again, stretches * again

    def drawn_of(router: Router) -> list[Seen]:
        drawn = [replace(router, seed=router.seed + draw) for draw in range(len(stretches))]
        return [_seen(pods, stretch, one) for stretch, one in zip(stretches, drawn, strict=True)]

    told = {name: drawn_of(router) for name, router in ROUTERS.items()}
    name = nearest(
        {name: [one.loads for one in replays] for name, replays in told.items()},
        [one.loads for one in recorded],
        [one.requests for one in recorded],
        {name: [apart(one, other) for one, other in zip(replays, recorded, strict=True)] for name, replays in told.items()},
    )
    if name is None:
        return Present(None, None, every, every)
    return Present(name, ROUTERS[name], round(sum(one.loads for one in told[name]) / again), every)


def _cut(trace: Trace, cut: slice) -> Trace:
    pod = trace.pods_or_one()[cut]
    return Trace(trace.adapter[cut], adapters=trace.adapters, pod=pod, pods=trace.pods, at=trace.at[cut], hold=trace.hold[cut])


def _seen(fleet: Fleet, trace: Trace, router: Router | None) -> Seen:
    """All but the first quarter of a stretch; on the recorded pods where there is no router."""
    if router is not None:
        trace = Trace(trace.adapter, adapters=trace.adapters, pods=trace.pods, at=trace.at, hold=trace.hold)
    told = replay(trace, fleet, router)
    counted = slice(len(trace) // 4, None)
    return seen(trace.adapter[counted], told.pod[counted], told.lookup[counted], trace.pods)
