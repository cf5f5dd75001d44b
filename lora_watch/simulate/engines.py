"""
The pods at work: who serves which request when, what each load stalls, and what every engine did from its start to its end.

Who goes where, who is evicted and who waits for a slot is ``replay``'s word, through ``stalls``: a load runs inside the step, so
nothing on the pod makes progress while it lasts. Profile ``article`` is the same with longer loads, the drain being their first
part. What is left out: a drain is a stall, though the batch still computes in it; requests of a batch don't slow each other.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import DAY, SECOND, Window
from lora_watch.replay.cluster import AFTER_ALL, NEVER
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import Trace
from lora_watch.simulate.pace import Pace, pace
from lora_watch.simulate.scenario import ROUTERS, Pool, Restart, Scenario, SlowDisk
from lora_watch.simulate.stalls import Costs, Stalls, Told
from lora_watch.simulate.traffic import Catalogue, Requests, joined

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Loaded:
    """
    The loads of a life, in order: ``place`` of the request each was for, when it ``began`` and was ``done`` (µs UTC), the
    ``gpu_part`` (µs) that went from the CPU cache into the slot, and the slot. ``victim`` left ``victim_slot`` for it,
    ``cpu_victim`` the CPU cache; −1 for none.
    """

    place: NDArray[np.int32]
    began: Times
    done: Times
    gpu_part: Times
    slot: NDArray[np.int16]
    victim: NDArray[np.int16]
    victim_slot: NDArray[np.int16]
    cpu_victim: NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Life:
    """
    One engine process from its start to its end: its requests in the order in which they started, as arrays.

    ``number`` is the request's place in ``asked``, what came to the engine; a prompt takes ``prefill_per_token`` µs a token.
    ``ready`` (µs UTC, never decreasing) is when the engine got to it with its adapter in the slot; a request that loaded it was
    scheduled when that load began, every other one when it was ready. ``lookup``: 0 hot, 1 warm, 2 cold, −1 base model.
    ``cut``: it ended with the engine. ``opens`` are the places of the requests with which their adapter entered the running
    batch, ``opened`` (µs UTC) when that was, ``open_slots`` its slots and ``closes`` when it left the batch again. The
    ``refused`` waited in vain when the engine ended. ``pace`` is how busy it was.

    Of a life that is told piece by piece a value holds what is needed for one window: the requests from the first on that ends
    within it or later, up to what started within it. Whatever lies in the window is then as in the whole life; a batch whose
    first request is not among them has the place of another one in ``opens``, and a time past the window's end that is still
    to come may be told too early, never before that end.
    """

    pool: Pool
    pod: int
    boot: int
    begin: int
    end: int
    asked: Requests
    prefill_per_token: float
    number: NDArray[np.int32]
    adapter: NDArray[np.int16]
    ready: Times
    finished: Times
    lookup: NDArray[np.int8]
    cut: NDArray[np.bool_]
    loaded: Loaded
    opens: NDArray[np.int32]
    opened: Times
    open_slots: NDArray[np.int16]
    closes: Times
    refused: NDArray[np.int32]
    pace: Pace

    def first_tokens(self, places: NDArray[np.int64]) -> Times:
        """When these requests had their first token (µs UTC): their prefill behind ``ready`` and what loads came between."""
        began, done = self.loaded.began, self.loaded.done
        sums = np.concatenate([[0], np.cumsum(done - began)])
        clock = self.ready[places] - sums[np.searchsorted(self.loaded.place, places, side="right")]
        target = clock + (self.asked.prompt[self.number[places]] * self.prefill_per_token).astype(np.int64)
        behind = sums[np.searchsorted(began - sums[:-1], target, side="left")]
        return np.asarray(np.minimum(target + behind, self.finished[places]))


def lives(scenario: Scenario, known: Catalogue, requests: Requests, length: float, seed: int) -> Iterator[Life]:
    """Every life of every engine whole, pool by pool and pod by pod, for requests that come within ``length`` days."""
    window = Window(scenario.begin, scenario.begin + round(length * DAY))
    for _, told in pieces(scenario, known, [(window, requests)], window.end, seed):
        yield from told


def pieces(
    scenario: Scenario, known: Catalogue, spans: Iterable[tuple[Window, Requests]], until: int, seed: int
) -> Iterator[tuple[Window, list[Life]]]:
    """
    The lives piece by piece: for each span, of what comes within it, the lives that have not ended before it.

    Spans follow each other from the scenario's begin to ``until`` (µs UTC); where they are cut makes no difference to what lies
    within them. What runs at ``until`` goes on to its end. Behind a pool for prefill stands one for decode: a request comes
    there when it has left the first.
    """
    pools = [_Engines(scenario, known, place, until, seed) for place in range(len(scenario.pools))]
    for window, requests in spans:
        told: list[Life] = []
        for engines in pools:
            own = engines.through(requests, window)
            told += own
            if engines.pool.role == "prefill":
                requests = _handed_on(own, window, engines.handed)
                engines.handed += len(requests)
        yield window, told


def _handed_on(told: Sequence[Life], window: Window, before: int) -> Requests:
    """The requests that left these engines within the window, in that order, as they come to the next pool after ``before``."""
    left = [np.flatnonzero(~life.cut & (life.finished >= window.start) & (life.finished < window.end)) for life in told]
    at = np.concatenate([life.finished[places] for life, places in zip(told, left, strict=True)])
    order = np.argsort(at, kind="stable")
    asked = joined([life.asked[life.number[places]] for life, places in zip(told, left, strict=True)])[order]
    return replace(asked, at=at[order], number=np.arange(before, before + len(at), dtype=np.int64))


@dataclass(frozen=True, slots=True)
class _Served:
    """
    Requests of one life that started, in that order, and the last ones still waiting: what a later window needs of them.

    ``start`` is on the pod's clock (``NEVER``: waits), ``since`` when the batch began in which the adapter is.
    """

    at: Times
    number: NDArray[np.int64]
    adapter: NDArray[np.int16]
    prompt: NDArray[np.uint16]
    generated: NDArray[np.uint16]
    start: Times
    since: Times
    lookup: NDArray[np.int8]
    slot: NDArray[np.int16]
    victim: NDArray[np.int16]
    cpu_victim: NDArray[np.int16]
    length: NDArray[np.int32]
    gpu_part: NDArray[np.int32]

    def __getitem__(self, which: slice | NDArray[np.integer]) -> "_Served":
        return _Served(*(getattr(self, one.name)[which] for one in fields(self)))

    def and_then(self, later: "_Served") -> "_Served":
        """Both, one behind the other."""
        return _Served(*(np.concatenate([getattr(self, one.name), getattr(later, one.name)]) for one in fields(self)))


@dataclass(slots=True)
class _Living:
    """A life between two windows: what it still needs, and what the loads before took and left."""

    served: _Served
    behind: int
    """µs of the loads of requests that are not kept any more."""
    slots: NDArray[np.int16]
    """By adapter: the slot into which the last of those loads brought it, −1 where there was none."""


class _Engines:
    """The engines of one pool, and what goes through them."""

    def __init__(self, scenario: Scenario, known: Catalogue, place: int, until: int, seed: int) -> None:
        self.pool = pool = scenario.pools[place]
        self.handed = 0
        """Requests that went on to the next pool."""
        self._scenario, self._known, self._until, self._seed = scenario, known, until, seed
        self._step, self._sample = round(scenario.steps_seconds * SECOND), round(scenario.sample_seconds * SECOND)
        restarts = [
            (event.during(scenario.begin)[0], event.pod)
            for event in scenario.events
            if isinstance(event, Restart) and event.pool == place and event.during(scenario.begin)[0] < until
        ]
        bounds = [[scenario.begin, *sorted(at for at, pod in restarts if pod == p), 1 << 60] for p in range(pool.pods)]
        self._spans = [list(pairwise(of_pod)) for of_pod in bounds]
        self._living: dict[tuple[int, int], _Living] = {}
        pins = [(p, pin.adapter) for pin in pool.pins for p in (pin.pods or range(pool.pods))]
        router = ROUTERS[pool.router]
        self._at_home = router is None
        if router is not None and pool.scrape_seconds:
            router = replace(router, scrape=round(pool.scrape_seconds * SECOND))
        fleet = Fleet(pool.slots, pool.cpu_capacity, pool.seats, pins=pins)
        self._stalls = Stalls(fleet, pool.pods, len(known), router, self._costs(), restarts)
        self._waiting = Requests(*(np.empty(0, dtype=kind) for kind in ("i8", "i4", "u2", "u2", "i8")))

    def through(self, requests: Requests, window: Window) -> list[Life]:
        """Replay the requests of the window, the next one; then one engine after the other."""
        came = joined([self._waiting, requests])
        told = self._told(requests, window)
        waits = told.start == NEVER
        order = np.argsort(told.start, kind="stable")  # of those that start together, the first that came
        order = np.concatenate([order[waits.sum() :], np.flatnonzero(waits)])
        order = order[np.argsort(told.pod[order], kind="stable")]
        bounds = np.searchsorted(told.pod[order], np.arange(self.pool.pods + 1))
        answer = []
        for p, spans in enumerate(self._spans):
            of_pod = order[bounds[p] : bounds[p + 1]]
            for boot, (begin, end) in enumerate(spans):
                if begin >= window.end or end < window.start:
                    continue
                own = of_pod[told.boot[of_pod] == boot]
                answer.append(self._life(told, came, own, (p, boot), window))
        still = np.flatnonzero(waits & (told.boot == np.array([len(offsets) - 1 for offsets in told.offsets])[told.pod]))
        self._waiting = came[still]
        return answer

    @property
    def _per_token(self) -> tuple[float, float]:
        """µs of a token of the prompt and of a generated one; a role that has no part in one takes no time for it."""
        traffic, role = self._scenario.traffic, self.pool.role
        prefill = 0.0 if role == "decode" else SECOND / traffic.prefill_tokens_per_second
        return prefill, 0.0 if role == "prefill" else traffic.seconds_per_token * SECOND

    def _work(self, prompt: NDArray[np.uint16], generated: NDArray[np.uint16]) -> Times:
        """µs that requests compute, 1 at least."""
        prefill, decode = self._per_token
        work = (prompt * prefill).astype(np.int64)
        work += (generated * decode).astype(np.int64)
        return np.maximum(work, 1, out=work)

    def _told(self, requests: Requests, window: Window) -> Told:
        trace = Trace(
            requests.adapter,
            adapters=len(self._known),
            pod=(np.maximum(requests.adapter, 0) % self.pool.pods).astype(np.int32) if self._at_home else None,
            pods=self.pool.pods,
            at=requests.at,
            hold=self._work(requests.prompt, requests.generated),
        )
        return self._stalls.through(trace, AFTER_ALL if window.end >= self._until else window.end - 1)

    def _costs(self) -> Costs:
        """What a load takes; see ``Loads``. The article's drain is drawn, its other phases nearly the same each time."""
        loads, size = self._scenario.loads, self._known.bytes.astype(np.float64)
        gpu, disk = size / loads.gpu_bytes_per_second, size / loads.disk_bytes_per_second
        slow = [
            (event.during(self._scenario.begin), event.factor) for event in self._scenario.events if isinstance(event, SlowDisk)
        ]
        spans = np.array([span for span, _ in slow], dtype=np.int64).reshape(-1, 2)
        vllm = loads.profile == "vllm"
        fixed = (loads.warm_seconds, loads.cold_seconds) if vllm else (0.005 + 0.02 + 0.05, 0.0)
        more = 0.05 + loads.drain_seconds
        return Costs(
            gpu=(gpu + fixed[0]) * SECOND,
            disk=(disk + fixed[1]) * SECOND,
            gpu_more=0.0 if vllm else more * SECOND,
            least=0.8 if vllm else 1.0,
            spread=0.4 if vllm else 0.0,
            slow_begin=spans[:, 0].copy(),
            slow_end=spans[:, 1].copy(),
            factor=np.array([factor for _, factor in slow], dtype=np.float64),
            seed=self._seed % 1_000_003,
        )

    def _life(self, told: Told, came: Requests, own: NDArray[np.intp], name: tuple[int, int], window: Window) -> Life:
        """
        One life in real time: ``t = v + S``, where S is the offset of the life and the loads before v on its clock.

        A request is scheduled once the loads ahead of it are done, and it ends before a load that begins at its end.
        """
        (p, boot), (begin, end) = name, self._spans[name[0]][name[1]]
        new = _Served(
            came.at[own],
            came.number[own],
            came.adapter[own].astype(np.int16),
            came.prompt[own],
            came.generated[own],
            told.start[own],
            np.full(len(own), NEVER, dtype=np.int64),
            told.lookup[own],
            told.slot[own],
            told.victim[own],
            told.cpu_victim[own],
            told.length[own],
            told.gpu_part[own],
        )
        before = self._living.pop(name, None) or _Living(new[:0], 0, np.full(len(self._known), -1, dtype=np.int16))
        every = before.served.and_then(new)
        started = int(np.count_nonzero(every.start != NEVER))
        served = every[:started]
        clock, adapter = served.start + told.offsets[p][boot], served.adapter
        loads = np.flatnonzero(served.lookup > 0)
        length = served.length[loads].astype(np.int64)
        sums = before.behind + np.concatenate([[0], np.cumsum(length)])
        ahead = np.searchsorted(loads, np.arange(started), side="right")  # loads up to and with the request's own

        def real(v: Times) -> Times:
            return np.asarray(v + sums[np.searchsorted(clock[loads], v, side="left")])

        ready = clock + sums[ahead]
        scheduled = ready.copy()
        scheduled[loads] -= length
        finished = real(clock + self._work(served.prompt, served.generated))
        cut = finished > end
        np.minimum(finished, end, out=finished)
        slot, victim = served.slot, served.victim[loads]
        since = np.where(served.since == NEVER, ready, served.since)
        opens, closes, of_batch = _batches(adapter, ready, np.maximum(finished, ready))
        since[adapter >= 0] = since[opens][of_batch]
        if end >= window.end and window.end < self._until:
            # what a record of steps that ends in the next window covers begins up to a step earlier
            late = finished >= window.end // self._step * self._step
            first = int(np.argmax(late)) if late.any() else started
            gone = loads[: np.searchsorted(loads, first)]
            slots = before.slots.copy()
            slots[adapter[gone]] = slot[gone]
            kept = replace(served[first:], since=since[first:])
            self._living[name] = _Living(kept, int(sums[len(gone)]), slots)
        last = min(end, self._until)
        return Life(
            pool=self.pool,
            pod=p,
            boot=boot,
            begin=begin,
            end=end,
            asked=Requests(every.at, every.adapter.astype(np.int32), every.prompt, every.generated, every.number),
            prefill_per_token=self._per_token[0],
            number=np.arange(started, dtype=np.int32),
            adapter=adapter,
            ready=ready,
            finished=finished,
            lookup=served.lookup,
            cut=cut,
            loaded=Loaded(
                loads.astype(np.int32),
                scheduled[loads],
                ready[loads],
                served.gpu_part[loads].astype(np.int64),
                slot[loads],
                victim,
                _slots_left(adapter[loads], slot[loads], victim, before.slots),
                served.cpu_victim[loads],
            ),
            opens=opens.astype(np.int32),
            opened=since[opens],
            open_slots=slot[opens],
            closes=closes,
            refused=np.arange(started, len(every.at), dtype=np.int32),
            pace=pace(
                Window(
                    max(begin, (window.start - 1) // self._step * self._step),
                    min(last, -(-window.end // self._step) * self._step),
                ),
                hours=(max(begin, window.start), min(last, window.end)),
                steps=self._step,
                samples=self._sample,
                seats=self.pool.seats,
                arrived=np.sort(every.at),
                started=np.sort(np.maximum(served.at, real(clock))),
                scheduled=scheduled,
                finished=finished,
                stalls=(scheduled[loads], ready[loads]),
            ),
        )


def pins_of(pool: Pool, pod: int) -> list[int]:
    """The adapters pinned on a pod, in the order of their codes, in which they are loaded."""
    return sorted({pin.adapter for pin in pool.pins if not pin.pods or pod in pin.pods})


def _batches(adapter: NDArray[np.int16], ready: Times, finished: Times) -> tuple[NDArray[np.intp], Times, NDArray[np.intp]]:
    """
    Places of the requests with which their adapter entered the running batch, when it left the batch again (µs UTC), and the
    number of its batch for each request with an adapter.
    """
    served = np.flatnonzero(adapter >= 0)
    if not len(served):
        return served, np.empty(0, dtype=np.int64), served
    order = np.argsort(adapter[served], kind="stable")
    code, enter, leave = adapter[served][order].astype(np.int64), ready[served][order], finished[served][order]
    base = int(enter.min())
    stride = int(leave.max()) - base + 1
    last = np.maximum.accumulate(code * stride + (leave - base))  # a running maximum for each adapter
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = (code[1:] != code[:-1]) | (code[1:] * stride + (enter[1:] - base) > last[:-1])
    first = np.flatnonzero(opens)
    final = np.append(first[1:], len(order)) - 1
    closes = last[final] - code[final] * stride + base
    back = np.argsort(order[first], kind="stable")
    number = np.empty(len(order), dtype=np.intp)
    number[order] = np.argsort(back, kind="stable")[np.cumsum(opens) - 1]
    return served[order[first][back]], closes[back], number


def _slots_left(
    adapter: NDArray[np.int16], slot: NDArray[np.int16], victim: NDArray[np.int16], before: NDArray[np.int16]
) -> NDArray[np.int16]:
    """
    By load: the slot that its victim leaves, which is that of the victim's newest load before; −1 where there is no victim.

    ``before`` are the slots of loads ahead of all these, by adapter.
    """
    left = np.full(len(adapter), -1, dtype=np.int16)
    evictions, size = np.flatnonzero(victim >= 0), len(adapter)
    if len(evictions):
        loads = np.argsort(adapter, kind="stable")
        keys = adapter[loads].astype(np.int64) * size + loads
        found = loads[np.searchsorted(keys, victim[evictions].astype(np.int64) * size + evictions) - 1]
        own = (adapter[found] == victim[evictions]) & (found < evictions)
        left[evictions] = np.where(own, slot[found], before[victim[evictions]])
    return left
