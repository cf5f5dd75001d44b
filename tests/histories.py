"""Histories small enough to count by hand: who was asked for, in order, and on which pod."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lora_watch.model import DAY, SECOND, Window
from lora_watch.recommend.history import History
from lora_watch.replay.trace import Trace

MONDAY = 1_790_553_600_000_000
"""A Monday, 00:00 UTC."""


def history(
    asked: Sequence[str],
    *,
    pods: int = 1,
    slots: int = 2,
    days: float = 10,
    hold: int = 0,
    start: int = MONDAY,
    pod: Sequence[int] | None = None,
    at: Sequence[int] | None = None,
    **known: Any,
) -> History:
    """
    Requests spread evenly over the days, the pods taking turns unless told. ``""`` is the base model. Every adapter's load takes
    a second and every one is old, unless told.
    """
    names = tuple(sorted({name for name in asked if name}))
    code = {name: at for at, name in enumerate(names)} | {"": -1}
    window = Window(start, start + round(days * DAY))
    times = start + np.arange(len(asked), dtype=np.int64) * ((window.end - start) // max(len(asked), 1)) if at is None else at
    trace = Trace(
        np.array([code[name] for name in asked], dtype=np.int32),
        adapters=len(names),
        pod=np.arange(len(asked)) % pods if pod is None else pod,
        pods=pods,
        at=times,
        hold=np.full(len(asked), hold, dtype=np.int64),
    )
    told: dict[str, Any] = {
        "load_seconds": np.ones(len(names)),
        "bytes": np.full(len(names), 1_000_000, dtype=np.int64),
        "first_seen": np.full(len(names), start - 30 * DAY, dtype=np.int64),
        "experiment": np.zeros(len(names), dtype=np.bool_),
        "provenance": "observed",
        **known,
    }
    return History(window, trace, names, tuple(f"pod-{n}" for n in range(pods)), (slots,) * pods, **told)


def drawn(letters: str, count: int, seed: int = 1) -> list[str]:
    """Names drawn evenly."""
    return np.random.default_rng(seed).choice(list(letters), count).tolist()


def after(one: History, seconds: float) -> int:
    """A moment (µs UTC) so long after a history's start."""
    return one.window.start + round(seconds * SECOND)
