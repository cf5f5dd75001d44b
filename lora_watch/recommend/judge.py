"""What a change would have made of a window of the past: both replayed, warmed by the day before, and compared day by day."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import DAY, SECOND, Window
from lora_watch.recommend.history import History
from lora_watch.replay.cluster import PinChange, replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.policies import LRU, Policy
from lora_watch.replay.routers import Router
from lora_watch.replay.trace import Trace

WARM = DAY
"""So much before a window only fills the slots."""
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Judged:
    """
    What one replay comes to, by day of the window (24 hours from its start): ``loads`` that requests waited for, their ``cost``
    (``load_cost`` each), ``swaps`` (evictions by them). ``preloads`` and ``preload_cost`` are those of pins that the pool has not
    yet, once for the window: each takes a slot from somebody. ``wait_seconds`` is the 95th percentile of what requests waited for
    a slot and their own adapter's load; None without a request, or with loads that nobody measured.
    """

    window: Window
    requests: int
    loads: NDArray[np.int64]
    cost: NDArray[np.float64]
    swaps: NDArray[np.int64]
    preloads: int
    preload_cost: float
    wait_seconds: float | None

    @property
    def miss_ratio(self) -> float | None:
        """Loads ÷ requests for an adapter; None without one."""
        return float(self.loads.sum()) / self.requests if self.requests else None


def load_cost(history: History) -> NDArray[np.float64]:
    """Seconds of a load by adapter; the mean of the others where its own is unknown, and 1 for all where nobody measured any."""
    seconds = history.seconds_of_loads()
    return np.where(np.isfinite(seconds), seconds, 1.0)


def judged(
    history: History,
    window: Window,
    router: Router | None,
    *,
    pins: Iterable[tuple[int, int]] | None = None,
    more_slots: int = 0,
    more_pods: int = 0,
    policy: Policy = LRU,
    changes: Sequence[PinChange] = (),
) -> Judged:
    """
    The replay of ``window`` on the pool's pods with ``pins`` (pod, adapter; None: those it has now), with so many slots more on
    each and so many pods more. Without a router requests keep their pods, and ValueError where pods are added. MIN (in
    ``policy``) is replayed without holds, on the recorded pods. ``changes`` are pins that begin or end meanwhile.
    """
    if more_pods and router is None:
        raise ValueError("requests as they were recorded go to no pod more: a router is needed")
    chosen = None if pins is None else tuple(pins)
    fleet = history.fleet(more_slots=more_slots, more_pods=more_pods, pins=chosen)
    return told(
        history, window, router, Fleet(fleet.slots, seats=fleet.seats, pins=fleet.pins, policy=policy), more_pods, changes
    )


def told(
    history: History, window: Window, router: Router | None, fleet: Fleet, more_pods: int = 0, changes: Sequence[PinChange] = ()
) -> Judged:
    """The same for any fleet."""
    part = history.during(Window(window.start - WARM, window.end)).trace
    known = fleet.policy.eviction == 3
    trace = Trace(
        part.adapter,
        adapters=part.adapters,
        pod=part.pods_or_one() if router is None else None,
        pods=part.pods + more_pods,
        at=part.at,
        hold=None if known else part.hold,
    )
    outcome = replay(trace, fleet, router, changes=changes)
    inside = trace.at >= window.start
    days = -(-(window.end - window.start) // DAY)
    day = (trace.at - window.start) // DAY
    loaded = inside & (outcome.lookup > 0)
    started = inside & (outcome.lookup >= 0)
    cost = load_cost(history)
    new = set(fleet.pins) - set(history.pinned)
    waits = (outcome.start[started] - trace.at[started]) / SECOND
    missed = loaded[started]
    waits[missed] += history.seconds_of_loads()[trace.adapter[started][missed]]
    p95 = float(np.quantile(waits, 0.95)) if len(waits) else float("nan")
    return Judged(
        window,
        int((inside & (trace.adapter >= 0)).sum()),
        np.bincount(day[loaded], minlength=days),
        np.bincount(day[loaded], weights=cost[trace.adapter[loaded]], minlength=days).astype(np.float64),
        np.bincount(day[inside & (outcome.victim >= 0)], minlength=days),
        len(new),
        float(sum(cost[a] for _, a in new)),
        p95 if np.isfinite(p95) else None,
    )
