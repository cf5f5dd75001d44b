"""How long each request waited for loads: for its own adapter's, and for those of others that stalled its engine."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.boots import boots
from lora_watch.derive.groups import GROUPS, ranked_provenance, said_once
from lora_watch.derive.stalls import StallClock, stalls
from lora_watch.model import SECOND

TOLERANCE = 50_000
"""µs a load may be recorded after the first token it made possible: the two times are written by two processes of one host."""
_HOST = ("cluster", "pod", "engine")
_TIMES = ("queued", "scheduled", "first_token", "finished")
_COLUMNS = (*GROUPS, "stream", "seq", "at", "arrived", *_TIMES, "finish_reason", "provenance")
NO_TIME = -1
"""Stands for a time that a request did not reach, in arrays."""


@dataclass(frozen=True, slots=True)
class Served:
    """
    The requests of one engine, in the order in which they were queued, and what is known of that engine.

    ``rows`` has the columns of :func:`load_waits` up to ``provenance``, ``loads`` those of
    :func:`~lora_watch.derive.stalls.stalls`. ``watched``: the engine's worker told of its loads at all. ``slots`` is null where
    nobody said.
    """

    rows: pl.DataFrame
    loads: pl.DataFrame
    watched: bool
    slots: int | None

    def times(self, name: str) -> NDArray[np.int64]:
        """A column of times as µs; ``NO_TIME`` for null."""
        return self.rows[name].fill_null(NO_TIME).to_numpy()

    @property
    def clock(self) -> StallClock:
        """The engine's own clock, by the loads whose length is known."""
        spans = self.loads.filter(pl.col("start").is_not_null())
        return StallClock.of(spans["start"].to_numpy(), spans["end"].to_numpy())


def served(requests: pl.LazyFrame, events: pl.LazyFrame) -> Iterator[Served]:
    """
    Engine by engine; requests that were never queued, as far as is known, come first. Where there is no request at all, one
    engine without any, so that results have their columns.

    Requests are matched with loads by cluster, pod and engine. Where several data-parallel engines stand behind one API
    server its requests name no engine: they are of an engine that nobody watches.
    """
    rows, loads, up = pl.collect_all(
        [
            requests.filter(said_once()).with_columns(ranked_provenance().cast(pl.String)).select(_COLUMNS),
            stalls(events),
            boots(events).group_by(_HOST).agg(pl.col("slots").max()),
        ]
    )
    slots = {row[:3]: row[3] for row in up.iter_rows()}
    by_engine = loads.partition_by(_HOST, as_dict=True)
    groups = rows.partition_by(_HOST, as_dict=True) or {(None, None, None): rows}
    for key, part in sorted(groups.items(), key=lambda item: tuple(map(str, item[0]))):
        yield Served(part.sort("queued", "seq"), by_engine.get(key, loads.clear()), key in slots, slots.get(key))


def load_waits(requests: pl.LazyFrame, events: pl.LazyFrame) -> pl.DataFrame:
    """
    One row per finished request: how much of its time its engine stood still for loads.

    Columns: cluster, pool, role, pod, engine, adapter (null: the base model), stream, seq, ``at``, ``arrived``, ``queued``,
    ``scheduled``, ``first_token``, ``finished`` (µs UTC), ``finish_reason``, ``provenance``, then (seconds):

    * ``own_load_seconds``: stalls for its own adapter within ``[queued, finished)``, whoever asked for the load;
    * ``other_load_seconds``: stalls for other adapters there, which this request waits for as well;
    * ``queue_stall_seconds``, ``prefill_stall_seconds``, ``decode_stall_seconds``: the same time told apart by where it fell,
      in ``[queued, scheduled)``, ``[scheduled, first_token)`` and ``[first_token, finished)``; they add up to own + other;
    * ``own_miss``: its adapter's load into a slot was complete within ``[queued, first_token + TOLERANCE]`` (null: unknown);
    * ``unknown_loads``: loads of unknown length recorded while it was there.

    Formula: with L(t) the stalled time of the engine before t (:class:`~lora_watch.derive.stalls.StallClock`) the stall within
    ``[a, b)`` is ``L(b) − L(a)``; own is the same by the adapter's own stalls.

    Null is unknown, not zero: all of it where nobody watches the engine or a load of unknown length fell into the request (a
    log made from the engine's own lines has no lengths), a phase where one of its ends is. A request that was never scheduled
    has no prefill and no decode and waits in the queue until it finished. The wait for a load is a part of what a load costs: it
    also makes others queue longer, see :func:`~lora_watch.derive.queue_replay.queue_replay`.
    """
    return pl.concat([one.rows.with_columns(waits(one)) for one in served(requests, events)])


def waits(one: Served) -> list[pl.Series]:
    """The columns of :func:`load_waits` behind ``provenance``, for the requests of one engine."""
    clock = one.clock
    queued, scheduled, first, finished = (one.times(name) for name in _TIMES)
    never = scheduled == NO_TIME
    unknown_at = np.sort(one.loads.filter(pl.col("start").is_null())["at"].to_numpy())
    there = (queued != NO_TIME) & (finished != NO_TIME) & one.watched
    unknown = np.where(there, _within(unknown_at, queued, finished), 0)
    known = there & (unknown == 0)
    total, own = clock.stalled(finished) - clock.stalled(queued), _own_stalls(one, queued, finished)
    in_queue = clock.stalled(np.where(never, finished, scheduled)) - clock.stalled(queued)
    prefill = clock.stalled(first) - clock.stalled(scheduled)
    started = known & ~never
    reached = started & (first != NO_TIME)
    return [
        _seconds("own_load_seconds", own, known),
        _seconds("other_load_seconds", total - own, known),
        _seconds("queue_stall_seconds", in_queue, known),
        _seconds("prefill_stall_seconds", np.where(never, 0, prefill), known & (never | reached)),
        _seconds("decode_stall_seconds", np.where(never, 0, total - in_queue - prefill), known & (never | reached)),
        pl.Series("own_miss", _own_miss(one, queued, np.where(first == NO_TIME, finished, first)), dtype=pl.Boolean).set(
            pl.Series(~there), None
        ),
        pl.Series("unknown_loads", unknown, dtype=pl.Int64).set(pl.Series(~there), None),
    ]


def _seconds(name: str, micros: NDArray[np.int64], known: NDArray[np.bool_]) -> pl.Series:
    return pl.Series(name, micros / SECOND).set(pl.Series(~known), None)


def _within(at: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of the sorted times lie in each ``[start, end]``."""
    return np.searchsorted(at, end, side="right") - np.searchsorted(at, start, side="left")


def _by_adapter(one: Served, loads: pl.DataFrame) -> Iterator[tuple[NDArray[np.int64], pl.DataFrame]]:
    """The places of the requests of each adapter that has both requests and loads, with those loads."""
    of_loads = loads.filter(pl.col("adapter").is_not_null()).partition_by("adapter", as_dict=True)
    places = one.rows.with_row_index("place").filter(pl.col("adapter").is_not_null()).select("adapter", "place")
    for adapter, rows in places.partition_by("adapter", as_dict=True).items():
        if adapter in of_loads:
            yield rows["place"].to_numpy().astype(np.int64), of_loads[adapter]


def _own_stalls(one: Served, queued: NDArray[np.int64], finished: NDArray[np.int64]) -> NDArray[np.int64]:
    own = np.zeros(len(queued), dtype=np.int64)
    for places, loads in _by_adapter(one, one.loads.filter(pl.col("start").is_not_null())):
        clock = StallClock.of(loads["start"].to_numpy(), loads["end"].to_numpy())
        own[places] = clock.stalled(finished[places]) - clock.stalled(queued[places])
    return own


def _own_miss(one: Served, queued: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.bool_]:
    missed = np.zeros(len(queued), dtype=np.bool_)
    for places, loads in _by_adapter(one, one.loads.filter(pl.col("tier") == "gpu")):
        missed[places] = _within(np.sort(loads["at"].to_numpy()), queued[places], first[places] + TOLERANCE) > 0
    return missed
