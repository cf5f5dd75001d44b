"""The miss-ratio curve kept up to date request by request: a fading histogram of reuse times for each pool or pod."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from lora_watch.derive.groups import POOL, group_columns
from lora_watch.derive.locality import ErrorClass, Method, streams
from lora_watch.model import worst
from lora_watch.replay.reuse import BUCKETS, count_reuse, miss_ratios

MEMORY = 5_000
"""
Requests after which one counts e times less than the newest, unless told otherwise: ten minutes at 8 a second. A memory of n
requests makes the curve waver by up to ``0.5 ÷ √n``.
"""


@dataclass(frozen=True, slots=True)
class ReuseCounts:
    """
    How often adapters were used again after how many requests: what histograms of different pods have in common.

    ``mass`` is requests by bucket of reuse time, faded, the last bucket first uses. Added up, counts of several pods tell what
    their mean request would miss at so many slots *a pod*, where pods get streams that are alike.
    """

    mass: NDArray[np.float64]

    def __add__(self, other: "ReuseCounts") -> "ReuseCounts":
        return ReuseCounts(self.mass + other.mass)

    @property
    def requests(self) -> float:
        """Requests that the counts amount to after fading: at most the memory."""
        return float(self.mass.sum())

    def curve(self, slots: Sequence[int]) -> NDArray[np.float64]:
        """LRU's miss ratio at each number of slots; NaN where nothing was counted. See ``replay.reuse.miss_ratios``."""
        return miss_ratios(self.mass, np.asarray(slots, dtype=np.int64))


class ReuseHistogram:
    """
    Reuse times of one stream of requests, in O(1) time a request and a few kB, with nothing kept of the request itself.

    A reuse time is counted in requests, the newest included, and not in seconds, which mislead where traffic is uneven. The
    past fades by ``exp(−1 ÷ memory)`` a request, so the curve is that of about the last ``memory`` requests.

    >>> histogram = ReuseHistogram()
    >>> histogram.update([0, 1, 0, 1, 0, 1])
    >>> histogram.curve([1, 2]).round(2).tolist()
    [1.0, 0.33]
    """

    def __init__(self, memory: int = MEMORY) -> None:
        if memory < 1:
            raise ValueError(f"a memory is one request or more, got {memory}")
        self.memory = memory
        self.seen = 0
        self._weight = 1.0
        self._mass: NDArray[np.float64] = np.zeros(BUCKETS + 1)
        self._last: NDArray[np.int64] = np.full(64, -1, dtype=np.int64)

    def update(self, codes: ArrayLike) -> None:
        """Count requests in the order they came: integer codes of adapters from 0, below 0 for the base model (no use)."""
        adapter = np.array(codes, dtype=np.int32)
        need = int(adapter.max(initial=-1)) + 1
        if need > len(self._last):
            grown = np.full(max(need, 2 * len(self._last)), -1, dtype=np.int64)
            grown[: len(self._last)] = self._last
            self._last = grown
        growth = math.exp(1 / self.memory)
        self.seen, self._weight = count_reuse(adapter, self._last, self._mass, self.seen, self._weight, growth)

    @property
    def counts(self) -> ReuseCounts:
        """What was counted, the newest request weighing 1: to be added to that of other pods, or asked for its curve."""
        return ReuseCounts(self._mass / self._weight)

    def curve(self, slots: Sequence[int]) -> NDArray[np.float64]:
        """LRU's miss ratio at each number of slots; NaN where nothing was counted."""
        return self.counts.curve(slots)


class ReuseHistograms:
    """
    A histogram for each pool (or pod), fed with frames of requests; the caller keeps it from one minute to the next.

    Requests of a frame are put in order of arrival; between frames they may overlap by the length of a generation, as they are
    written when they finish, which moves reuse times by a few requests.
    """

    def __init__(self, by: Sequence[str] = POOL, memory: int = MEMORY) -> None:
        self._keys = group_columns(by)
        self._memory = memory
        self._codes: dict[str, int] = {}
        self._held: dict[tuple[str | None, ...], ReuseHistogram] = {}
        self._provenance: dict[tuple[str | None, ...], str | None] = {}

    def update(self, requests: pl.LazyFrame, end: int) -> None:
        """Count the requests that came before ``end`` (µs UTC); each must be handed over once."""
        told = streams(requests, self._keys, end)
        codes = np.array([self._codes.setdefault(name, len(self._codes)) for name in told.adapters], dtype=np.int32)
        pod = told.trace.pods_or_one()
        order = np.argsort(pod, kind="stable")
        ends = np.cumsum(np.bincount(pod, minlength=told.trace.pods))
        for place, row in enumerate(told.groups.iter_rows(named=True)):
            key = tuple(row[column] for column in self._keys)
            mine = order[ends[place - 1] if place else 0 : ends[place]]
            self._held.setdefault(key, ReuseHistogram(self._memory)).update(codes[told.trace.adapter[mine]])
            known = {word for word in (row["provenance"], self._provenance.get(key)) if word is not None}
            self._provenance[key] = worst(known)

    def curves(self, slots: Sequence[int]) -> pl.DataFrame:
        """
        Miss ratios of each group at each number of slots (the group's own: a pod's by pod, all by pool).

        Columns: the group's, ``slots``, ``miss_ratio``, ``requests`` (that it rests on, faded), ``method``, ``error_class``
        (while fewer than the memory have come, too high, as first uses are misses), ``provenance``.
        """
        rows = []
        for key, histogram in sorted(self._held.items(), key=lambda item: tuple(part or "" for part in item[0])):
            counts = histogram.counts
            young = histogram.seen < histogram.memory
            error = ErrorClass.FADING if young else ErrorClass.THREE_POINTS
            for place, ratio in zip(slots, counts.curve(slots).tolist(), strict=True):
                rows.append((*key, place, ratio, counts.requests, str(Method.HISTOGRAM), str(error), self._provenance[key]))
        schema: dict[str, pl.DataType] = dict.fromkeys(self._keys, pl.String())
        schema |= {"slots": pl.Int64(), "miss_ratio": pl.Float64(), "requests": pl.Float64()}
        schema |= dict.fromkeys(("method", "error_class", "provenance"), pl.String())
        return pl.DataFrame(rows, schema=schema, orient="row").with_columns(pl.col("miss_ratio").fill_nan(None))
