"""Histories small enough to think about: requests in a pattern, evenly spread over days."""

from collections.abc import Sequence

import numpy as np

from lora_watch.model import DAY, Window
from lora_watch.recommend.history import History
from lora_watch.replay.trace import Trace

LONG_AGO = -100 * DAY


def month(
    codes: Sequence[int],
    days: float,
    *,
    slots: Sequence[int] = (3,),
    pod: Sequence[int] | None = None,
    adapters: int | None = None,
    hold: int = 0,
    first_seen: Sequence[int] | None = None,
    experiment: Sequence[bool] | None = None,
    load_seconds: Sequence[float] | None = None,
    changes: tuple[int, ...] = (),
    pinned: tuple[tuple[int, int], ...] = (),
) -> History:
    """``codes`` are the adapters asked for, from the epoch on for so many days; pods p0, p1, … as ``slots`` has."""
    end = round(days * DAY)
    at = np.arange(len(codes), dtype=np.int64) * end // max(len(codes), 1)
    trace = Trace(
        np.array(codes, dtype=np.int32),
        adapters=adapters,
        pod=np.zeros(len(codes), dtype=np.int32) if pod is None else np.array(pod, dtype=np.int32),
        pods=len(slots),
        at=at,
        hold=np.full(len(codes), hold, dtype=np.int64),
    )
    count = trace.adapters
    return History(
        window=Window(0, end),
        trace=trace,
        names=tuple(f"a{a}" for a in range(count)),
        pods=tuple(f"p{p}" for p in range(len(slots))),
        slots=tuple(slots),
        load_seconds=np.full(count, np.nan) if load_seconds is None else np.array(load_seconds, dtype=np.float64),
        bytes=np.full(count, -1, dtype=np.int64),
        first_seen=np.full(count, LONG_AGO) if first_seen is None else np.array(first_seen, dtype=np.int64),
        experiment=np.zeros(count, dtype=np.bool_) if experiment is None else np.array(experiment, dtype=np.bool_),
        pinned=pinned,
        changes=changes,
        provenance="observed",
    )


def ring(adapters: int, days: int, per_day: int = 40) -> list[int]:
    """0, 1, …, 0, 1, …: what LRU with one slot too few misses every time."""
    return [n % adapters for n in range(days * per_day)]
