"""When each engine stood still because it loaded an adapter, and the engine's own clock, which stands still then."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.groups import ENGINE, GROUPS, ranked_provenance, said_once
from lora_watch.derive.stays import counted
from lora_watch.model import HOUR, SECOND

Times = NDArray[np.int64]
LONGEST_LOAD = HOUR
"""A load that says it took longer than this says nothing: its length is unknown."""


def stalls(events: pl.LazyFrame) -> pl.LazyFrame:
    """
    One row per load of any tier, failed ones and reloads in place included, with the span in which its engine stood still for it.

    Columns: cluster, pool, role, pod, engine, adapter, ``at`` (the load was complete), ``tier``, ``reason``, ``in_step``,
    ``start`` and ``end`` (µs UTC; null: the length is not known), ``provenance``. Warm-up records are left out, rows said
    twice count once.

    Formula: a load took ``[at − seconds, at)``. Where loads of one engine overlap (the phases of a cold load, two clocks) the
    time belongs to the one that began first: in order of begin, ``start = max(begin, every end before)``, so that spans of one
    engine never overlap and their lengths add up to the time in which it stood still. What is wholly within another has an
    empty span (start = end).

    That a load stalls everything on its engine is vLLM's behaviour: loads run inside the step, or between two steps where an
    API call asked. ``seconds`` that are absent, negative, no number or above ``LONGEST_LOAD`` are unknown.
    """
    seconds = pl.col("seconds")
    usable = seconds.is_finite() & (seconds >= 0) & (seconds <= LONGEST_LOAD / SECOND)
    began = pl.when(usable).then(pl.col("at") - (seconds * SECOND).round().cast(pl.Int64, strict=False))
    loads = (
        events.filter((pl.col("kind") == "load") & pl.col("tier").is_in(["gpu", "cpu"]) & counted())
        .filter(said_once())
        .select(*GROUPS, "at", "tier", "reason", "in_step", ranked_provenance(), began=began)
    )
    known = (
        loads.filter(pl.col("began").is_not_null())
        .with_columns(end=pl.col("at"))
        .sort(*ENGINE, "began", "at")
        .with_columns(before=pl.col("end").cum_max().shift(1).over(ENGINE))
        .with_columns(start=pl.min_horizontal(pl.max_horizontal("began", "before"), "end"))
    )
    unknown = loads.filter(pl.col("began").is_null()).with_columns(
        start=pl.lit(None, dtype=pl.Int64), end=pl.lit(None, dtype=pl.Int64)
    )
    columns = [*GROUPS, "at", "tier", "reason", "in_step", "start", "end", "provenance"]
    return pl.concat([known.select(columns), unknown.select(columns)]).with_columns(pl.col("provenance").cast(pl.String))


@dataclass(frozen=True, slots=True)
class StallClock:
    """
    An engine's own clock v, which stands still while the engine does: ``v(t) = t − L(t)``, L being the stalled µs before t.

    ``start`` and ``end`` are its spans, sorted, none empty, none overlapping. On v nothing is ever stalled, so what takes w µs
    there takes w µs in a world without loads: that is what makes an exact replay without them possible. The way back is
    ``t(v) = v + `` the lengths of all spans that begin before v on it.
    """

    start: Times
    end: Times

    @staticmethod
    def of(start: Times, end: Times) -> "StallClock":
        """The clock of spans in any order, empty ones among them; ValueError where two overlap."""
        some = end > start
        order = np.argsort(start[some], kind="stable")
        start, end = start[some][order], end[some][order]
        if (start[1:] < end[:-1]).any():
            raise ValueError("spans of one engine's stalls never overlap")
        return StallClock(start, end)

    def stalled(self, at: Times) -> Times:
        """
        The stalled µs before each time.

        >>> StallClock(np.array([0, 10]), np.array([4, 12])).stalled(np.array([-1, 3, 7, 11, 20])).tolist()
        [0, 3, 4, 5, 6]
        """
        if not len(self.start):
            return np.zeros(len(at), dtype=np.int64)
        place = np.searchsorted(self.start, at, side="right")
        ends = np.concatenate([[0], self.end])
        return np.asarray(self._sums()[place] - np.maximum(ends[place] - at, 0) * (place > 0))

    def own(self, at: Times) -> Times:
        """v at each real time; never decreases where ``at`` does not."""
        return np.asarray(at - self.stalled(at))

    def real(self, own: Times) -> Times:
        """
        The real time at which the clock first shows each v: what ends at v ends before a load that begins then.

        >>> StallClock(np.array([0, 10]), np.array([4, 12])).real(np.array([-1, 0, 1, 6, 7])).tolist()
        [-1, 0, 5, 10, 13]
        """
        sums = self._sums()
        return np.asarray(own + sums[np.searchsorted(self.start - sums[:-1], own, side="left")])

    def _sums(self) -> Times:
        return np.concatenate([[0], np.cumsum(self.end - self.start)])
