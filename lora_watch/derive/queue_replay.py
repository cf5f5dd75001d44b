"""Each pod's recorded requests replayed with and without its stalls: what latency would have been had loads taken no time."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.load_waits import NO_TIME, Served, served, waits
from lora_watch.derive.stalls import Times
from lora_watch.model import SECOND
from lora_watch.replay.cluster import NEVER, replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import BASE, Trace

ENDED_EARLY = ("error", "abort")
"""Finish reasons of requests that nobody served to their end: they take a seat, and have no latency."""


def queue_replay(requests: pl.LazyFrame, events: pl.LazyFrame) -> pl.DataFrame:
    """
    The rows of :func:`~lora_watch.derive.load_waits.load_waits`, each with its latency as it was and as it would have been.

    Further columns (seconds; null: unknown):

    * ``ttft_seconds``, ``e2e_seconds``: from ``arrived`` (``queued`` where nobody said) to the first and to the last token;
    * ``ttft_without_seconds``, ``e2e_without_seconds``: the same without the stalls, never longer than it was by more than the
      request's own part of a queue (see below);
    * ``replay_error_seconds``: how much later (earlier: negative) than recorded the replay *with* the stalls ends the request.
      It is 0 where the engine works as the replay thinks; look at it before you believe the rest;
    * ``in_flight_before``: other requests queued or running on its engine when it was queued.

    Method. An engine serves a batch, so no single queue says what a stall costs: it stops everything at once. On the engine's
    own clock v, which stands still with it, nothing is ever stalled (:class:`~lora_watch.derive.stalls.StallClock`). A request
    then works ``w = v(finished) − v(scheduled)``, whatever stalled. It is replayed twice through
    :func:`~lora_watch.replay.cluster.replay` (longest waiting first; it needs a seat of the batch and its adapter a slot, and is
    passed by those who need none): once with arrivals at ``v(queued)``, its end moved back by t(v), which is the world as it
    was; once with arrivals at ``queued``, in which loads take no time. What is saved is the difference, and

    ``e2e_without = e2e − (end with − end without)``,

    so that what the replay does not know of (a full KV cache, a budget of tokens) stays as it was recorded. With one seat this
    is Lindley's recursion ``start = max(arrival, end before)``.

    Slots are what the engine said, else the greatest number of adapters that ever ran at once; seats (``max_num_seqs``, which
    no log says) the greatest number of requests that ever did: if the limit was never reached, it never mattered.

    What is held fixed: the pod that served each request (without stalls the router would have chosen otherwise now and
    then), and w (fewer requests at once would have made each step a little shorter). Loads still happen; they take no time.
    Null where the wait is unknown, where the request was never scheduled or was cut off (``ENDED_EARLY``: its seat counts); of
    engines with loads of unknown length the others are replayed without those.
    """
    parts = []
    for one in served(requests, events):
        waited = waits(one)
        known = ~waited[0].is_null().to_numpy()
        parts.append(one.rows.with_columns(waited).with_columns(_latencies(one, known)))
    return pl.concat(parts)


@dataclass(frozen=True, slots=True)
class _Replayed:
    """When requests would have been scheduled, in µs: with the stalls on the engine's own clock, without them in real time."""

    own_start: Times
    real_start: Times


def _latencies(one: Served, known_wait: NDArray[np.bool_]) -> list[pl.Series]:
    """The columns of :func:`queue_replay` behind those of waits."""
    queued, scheduled, first, finished = (one.times(name) for name in ("queued", "scheduled", "first_token", "finished"))
    arrived = one.times("arrived")
    arrived = np.where(arrived == NO_TIME, queued, arrived)
    ran = (queued != NO_TIME) & (scheduled >= queued) & (finished >= scheduled)
    whole = ran & ~one.rows["finish_reason"].is_in(ENDED_EARLY).fill_null(value=False).to_numpy()
    spoke = whole & (first >= scheduled)
    clock = one.clock
    began = clock.own(scheduled)
    work = np.maximum(clock.own(finished) - began, 0)
    until_first = np.maximum(clock.own(first) - began, 0)
    places = np.flatnonzero(ran)
    done = _replayed(one, places, clock.own(queued[places]), work[places])
    told = whole & known_wait
    error = np.zeros(len(queued), dtype=np.int64)
    saved = {"ttft": error.copy(), "e2e": error.copy()}
    for name, length in (("ttft", until_first), ("e2e", work)):
        there = np.maximum(clock.real(done.own_start + length[places]), queued[places])
        saved[name][places] = there - (done.real_start + length[places])
        if name == "e2e":
            error[places] = there - finished[places]
    columns = []
    for name, end, known in (("ttft", first, spoke), ("e2e", finished, whole)):
        columns.append(_seconds(f"{name}_seconds", end - arrived, known))
        without = np.maximum(end - arrived - saved[name], 0)
        columns.append(_seconds(f"{name}_without_seconds", without, known & told))
    came = queued != NO_TIME
    gone = np.searchsorted(np.sort(finished[came]), queued, side="right")
    in_flight = np.arange(len(queued)) - int((~came).sum()) - gone
    return [
        *columns,
        _seconds("replay_error_seconds", error, told),
        pl.Series("in_flight_before", in_flight, dtype=pl.Int64).set(pl.Series(~came), None),
    ]


def _replayed(one: Served, places: NDArray[np.int64], own_queued: Times, work: Times) -> _Replayed:
    """Both replays of the requests that ran; they are in the order in which they were queued, on either clock."""
    queued, scheduled, finished = (one.times(name)[places] for name in ("queued", "scheduled", "finished"))
    names = one.rows["adapter"][places]
    codes = names.rank("dense").fill_null(0).cast(pl.Int32).to_numpy().astype(np.int32) - 1  # null: the base model
    assert BASE == -1
    adapters = int(codes.max(initial=-1)) + 1
    enough = adapters + 1  # with more slots nothing changes, but what the replay takes
    slots = max(min(one.slots or 0, enough), _most_at_once(codes, scheduled, finished), 1)
    seats = max(_most_at_once(np.arange(len(places), dtype=np.int32), scheduled, finished), 1)
    fleet = Fleet(slots=slots, seats=seats)

    def starts(at: Times) -> Times:
        if not len(at):
            return at
        base = int(at[0])
        start = replay(Trace(codes, adapters=adapters, at=at - base, hold=work), fleet).start
        return np.asarray(np.where(start == NEVER, at, start + base))

    return _Replayed(starts(own_queued), starts(queued))


def _most_at_once(codes: NDArray[np.int32], start: Times, end: Times) -> int:
    """The greatest number of distinct codes (0 and up) with a request in ``[start, end)`` at one time."""
    served_codes = codes >= 0
    code, start, end = codes[served_codes].astype(np.int64), start[served_codes], end[served_codes]
    order = np.lexsort((start, code))
    code, start, end = code[order], start[order], end[order]
    if not len(code):
        return 0
    base = int(start.min())
    stride = int(end.max()) - base + 1
    if int(code[-1]) * stride >= 1 << 62:
        raise ValueError("so many codes over so long a time do not fit 64 bits")
    reach = np.maximum.accumulate(code * stride + (end - base))  # a running maximum of the ends for each code
    opens = np.append(True, (code[1:] != code[:-1]) | (code[1:] * stride + (start[1:] - base) > reach[:-1]))
    begins = np.flatnonzero(opens)
    last = np.append(begins[1:], len(code)) - 1
    ends = np.sort(reach[last] - code[last] * stride + base)
    starts = np.sort(start[begins])
    return int((np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")).max(initial=0))


def _seconds(name: str, micros: Times, known: NDArray[np.bool_]) -> pl.Series:
    return pl.Series(name, micros / SECOND).set(pl.Series(~known), None)
