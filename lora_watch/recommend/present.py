"""Which router stands for the present one: of those that replay knows, the one whose loads come nearest to the recorded pods'."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
PARTS = 8
"""Stretches of the history that are replayed to find the router, from its first day to its last: what is busy looks alike."""
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

    ``loads`` are those of its replay, ``recorded_loads`` those of the recorded pods.
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


def nearest(
    loads: Mapping[str, Sequence[int]],
    recorded: Sequence[int],
    stayed: Mapping[str, Sequence[float]] | None = None,
    recorded_stays: Sequence[float] = (),
) -> str | None:
    """
    The name of the replay whose loads are nearest to the recorded pods', stretch by stretch; None where none is near.

    Formula: the median over stretches of ``|loads − recorded| ÷ recorded``, near if at most ``NEAR``. The median, since where
    requests wait for slots every router comes to much the same. Of those that are near, the one with the least sum of that and
    of the median of ``|stayed − recorded stays|``, where it is told: two routers can come to the same loads in different ways.

    >>> nearest({"one": [70, 80, 40], "other": [11, 12, 30]}, [10, 12, 40]), nearest({"one": [9]}, [100])
    ('other', None)
    """
    counted = [i for i, count in enumerate(recorded) if count]
    if not counted:
        return None
    off = {name: median(abs(told[i] - recorded[i]) / recorded[i] for i in counted) for name, told in loads.items()}
    near = [name for name in off if off[name] <= NEAR]
    elsewhere = {
        name: median(abs(one - other) for one, other in zip(told, recorded_stays, strict=True))
        for name, told in (stayed or {}).items()
    }
    return min(near, key=lambda one: off[one] + elsewhere.get(one, 0.0), default=None)


def present(history: History, fleet: Fleet | None = None) -> Present:
    """
    The router that stands for the pool's own, found on ``PARTS`` stretches of its requests, of each of which a quarter only
    fills slots.

    None stands where there is one pod, or none comes near: then slots and pins are judged on the recorded pods. ``fleet`` stands
    for the history's own pods: such whose loads take time, where they take long.
    """
    size = len(history.trace)
    starts = sorted({max(size - PART, 0) * i // (PARTS - 1) for i in range(PARTS)}) if size > PART else [0]
    stretches = [_cut(history.trace, slice(start, min(start + PART, size))) for start in starts]

    def seen(router: Router | None) -> tuple[list[int], list[float]]:
        told = [_seen(fleet or history.fleet(), stretch, router) for stretch in stretches]
        return [loads for loads, _ in told], [stayed for _, stayed in told]

    recorded, stayed = seen(None)
    if history.trace.pods == 1:
        return Present(None, None, sum(recorded), sum(recorded))
    told = {name: seen(router) for name, router in ROUTERS.items()}
    every = {name: loads for name, (loads, _) in told.items()}
    name = nearest(every, recorded, {name: stays for name, (_, stays) in told.items()}, stayed)
    if name is None:
        return Present(None, None, sum(recorded), sum(recorded))
    return Present(name, ROUTERS[name], sum(every[name]), sum(recorded))


def _cut(trace: Trace, cut: slice) -> Trace:
    pod = trace.pods_or_one()[cut]
    return Trace(trace.adapter[cut], adapters=trace.adapters, pod=pod, pods=trace.pods, at=trace.at[cut], hold=trace.hold[cut])


def _seen(fleet: Fleet, trace: Trace, router: Router | None) -> tuple[int, float]:
    """Loads, and how often an adapter stays, of all but the first quarter; on the recorded pods where there is no router."""
    if router is not None:
        trace = Trace(trace.adapter, adapters=trace.adapters, pods=trace.pods, at=trace.at, hold=trace.hold)
    told = replay(trace, fleet, router)
    counted = slice(len(trace) // 4, None)
    return int((told.lookup[counted] > 0).sum()), stays(trace.adapter[counted], told.pod[counted])
