"""How busy an engine was: time in steps and on adapters, by step record and by hour; requests running and waiting, by sample."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import HOUR, Window

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pace:
    """
    ``steps_at`` (µs UTC) ends a step record of ``steps_wall`` µs, of which ``steps_busy`` went into steps and ``steps_stalled``
    of that into loads; records without steps are left out. ``sampled_at``: ``running`` requests, and those that wait for a
    seat or for the engine (``capacity``) or for a slot (``deferred``). By hour of the epoch from ``hour``: µs up, busy, stalled.
    """

    steps_at: Times
    steps_wall: NDArray[np.int32]
    steps_busy: NDArray[np.int32]
    steps_stalled: NDArray[np.int32]
    sampled_at: Times
    running: NDArray[np.int32]
    capacity: NDArray[np.int32]
    deferred: NDArray[np.int32]
    hour: int
    up: Times
    busy: Times
    stalled: Times


def pace(
    life: Window,
    *,
    hours: tuple[int, int],
    steps: int,
    samples: int,
    seats: int,
    arrived: Times,
    started: Times,
    scheduled: Times,
    finished: Times,
    stalls: tuple[Times, Times],
) -> Pace:
    """
    The pace of one life, or of a piece of it, from its requests. ``steps`` and ``samples`` (µs) are the distances of records and
    of samples; of the sums by hour, what lies from the first to the second of ``hours`` is counted.

    Busy is the time in which at least one request was scheduled and not finished: steps then follow each other without a gap.
    ``arrived``, ``started`` (when a seat and a slot were free) and ``scheduled`` are sorted; what has arrived and not started
    waits for a seat where all are taken, else for a slot; what has started and is not scheduled waits for loads to end.
    ``stalls`` are begins and ends of loads, one after the other.
    """
    busy = merged(scheduled, finished)
    edges = _edges(life.start, life.end, steps)
    in_steps, on_loads = np.diff(covered(busy, edges)), np.diff(covered(stalls, edges))
    some = in_steps > 0
    at = np.arange(-(-life.start // samples) * samples, life.end, samples, dtype=np.int64)
    running = _count(scheduled, at) - _count(np.sort(finished), at)
    blocked = _count(arrived, at) - _count(started, at)
    stalled = _count(started, at) - _count(scheduled, at)
    full = running + stalled >= seats
    whole = _edges(*hours, HOUR)
    return Pace(
        edges[1:][some],
        np.diff(edges)[some].astype(np.int32),
        in_steps[some].astype(np.int32),
        np.minimum(on_loads, in_steps)[some].astype(np.int32),
        at,
        running.astype(np.int32),
        (stalled + np.where(full, blocked, 0)).astype(np.int32),
        np.where(full, 0, blocked).astype(np.int32),
        hours[0] // HOUR,
        np.diff(whole),
        np.diff(covered(busy, whole)),
        np.diff(covered(stalls, whole)),
    )


def merged(start: Times, end: Times) -> tuple[Times, Times]:
    """
    The union of spans, sorted by their starts, as spans that do not touch.

    >>> [part.tolist() for part in merged(np.array([0, 2, 9]), np.array([5, 3, 10]))]
    [[0, 9], [5, 10]]
    """
    if not len(start):
        return start, end
    reach = np.maximum.accumulate(end)
    begins = np.append(True, start[1:] > reach[:-1])
    return start[begins], reach[np.append(np.flatnonzero(begins)[1:] - 1, len(start) - 1)]


def covered(spans: tuple[Times, Times], at: Times) -> Times:
    """
    By time: how much of the spans (sorted, one after the other) lies before it.

    >>> covered((np.array([0, 10]), np.array([4, 12])), np.array([-1, 3, 7, 11, 20])).tolist()
    [0, 3, 4, 5, 6]
    """
    start, end = spans
    before = np.searchsorted(start, at, side="right")
    sums = np.concatenate([[0], np.cumsum(end - start)])
    ends = np.concatenate([[0], end])
    return np.asarray(sums[before] - np.maximum(ends[before] - at, 0) * (before > 0))


def _edges(start: int, end: int, step: int) -> Times:
    """Start and end, and the multiples of ``step`` between them."""
    inner = np.arange(start // step + 1, -(-end // step), dtype=np.int64) * step
    return np.concatenate([[start], inner, [end]])


def _count(times: Times, at: Times) -> Times:
    """How many of the sorted times are not later."""
    return np.searchsorted(times, at, side="right")
