"""
The pods at work: who serves which request when, what each load stalls, and what every engine did from its start to its end.

Who goes where, who is evicted and who waits for a slot is ``replay``'s word, through ``stalls``: a load runs inside the step, so
nothing on the pod makes progress while it lasts. Profile ``article`` is the same with longer loads, the drain being their first
part. What is left out: a drain is a stall, though the batch still computes in it; requests of a batch don't slow each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import DAY, SECOND, Window
from lora_watch.replay.cluster import NEVER
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import Trace
from lora_watch.simulate.pace import Pace, pace
from lora_watch.simulate.scenario import ROUTERS, Pool, Restart, Scenario, SlowDisk
from lora_watch.simulate.stalls import Costs, Told, stalled
from lora_watch.simulate.traffic import Catalogue, Requests

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

    ``number`` is the request's place in ``asked``, all that came to its pool; a prompt takes ``prefill_per_token`` µs a token.
    ``ready`` (µs UTC, never decreasing) is when the engine got to it with its adapter in the slot; a request that loaded it was
    scheduled when that load began, every other one when it was ready. ``lookup``: 0 hot, 1 warm, 2 cold, −1 base model.
    ``cut``: it ended with the engine. ``opens`` are the places of the requests with which their adapter entered the running
    batch, ``open_slots`` its slots and ``closes`` (µs UTC) when it left the batch again. The ``refused`` waited in vain when the
    engine ended. ``pace`` is how busy it was.
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
    """
    Every life of every engine, pool by pool and pod by pod, for requests that come within ``length`` days.

    Behind a pool for prefill stands one for decode: a request comes there when it has left the first.
    """
    until = scenario.begin + round(length * DAY)
    for place, pool in enumerate(scenario.pools):
        restarts = sorted(
            (event.during(scenario.begin)[0], event.pod)
            for event in scenario.events
            if isinstance(event, Restart) and event.pool == place and event.during(scenario.begin)[0] < until
        )
        engines = _Engines(scenario, known, pool, requests, restarts, until, seed)
        handed: list[tuple[NDArray[np.int32], Times]] = []
        for life in engines.lives():
            if pool.role == "prefill":
                handed.append((life.number[~life.cut], life.finished[~life.cut]))
            yield life
        if handed:
            number = np.concatenate([numbers for numbers, _ in handed])
            at = np.concatenate([times for _, times in handed])
            number, at = number[np.argsort(at, kind="stable")], np.sort(at)
            inside = at < until
            number, at = number[inside], at[inside]
            requests = Requests(at, requests.adapter[number], requests.prompt[number], requests.generated[number])


class _Engines:
    """The engines of one pool, and what goes through them."""

    def __init__(
        self,
        scenario: Scenario,
        known: Catalogue,
        pool: Pool,
        requests: Requests,
        restarts: list[tuple[int, int]],
        until: int,
        seed: int,
    ) -> None:
        self._scenario, self._known, self._pool, self._requests = scenario, known, pool, requests
        self._restarts, self._until, self._seed = restarts, until, seed

    def lives(self) -> Iterator[Life]:
        """Replay, then one engine after the other."""
        told = self._told()
        for p in range(self._pool.pods):
            bounds = [self._scenario.begin, *(at for at, pod in self._restarts if pod == p), 1 << 60]
            served = np.flatnonzero(told.pod == p)
            for boot, (begin, end) in enumerate(pairwise(bounds)):
                own = served[told.boot[served] == boot]
                never = told.start[own] == NEVER
                places = own[~never]
                places = places[np.argsort(told.start[places], kind="stable")]
                yield _packed(self._life(told, p, boot, (begin, end), places, own[never]))

    @property
    def _per_token(self) -> tuple[float, float]:
        """µs of a token of the prompt and of a generated one; a role that has no part in one takes no time for it."""
        traffic, role = self._scenario.traffic, self._pool.role
        prefill = 0.0 if role == "decode" else SECOND / traffic.prefill_tokens_per_second
        return prefill, 0.0 if role == "prefill" else traffic.seconds_per_token * SECOND

    def _work(self, which: slice | NDArray[np.int64]) -> Times:
        """µs that requests compute, 1 at least."""
        prefill, decode = self._per_token
        work = (self._requests.prompt[which] * prefill).astype(np.int64)
        work += (self._requests.generated[which] * decode).astype(np.int64)
        return np.maximum(work, 1, out=work)

    def _told(self) -> Told:
        pool, requests = self._pool, self._requests
        pins = [(p, pin.adapter) for pin in pool.pins for p in (pin.pods or range(pool.pods))]
        router = ROUTERS[pool.router]
        given = None
        if router is None:
            given = (np.maximum(requests.adapter, 0) % pool.pods).astype(np.int32)
        elif pool.scrape_seconds:
            router = replace(router, scrape=round(pool.scrape_seconds * SECOND))
        trace = Trace(
            requests.adapter,
            adapters=len(self._known),
            pod=given,
            pods=pool.pods,
            at=requests.at,
            hold=self._work(slice(None)),
        )
        return stalled(trace, Fleet(pool.slots, pool.cpu_capacity, pool.seats, pins=pins), router, self._costs(), self._restarts)

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

    def _life(
        self, told: Told, p: int, boot: int, span: tuple[int, int], places: NDArray[np.int64], refused: NDArray[np.int64]
    ) -> Life:
        """
        One life in real time: ``t = v + S``, where S is the offset of the life and the loads before v on its clock.

        A request is scheduled once the loads ahead of it are done, and it ends before a load that begins at its end.
        """
        begin, end = span
        clock = told.start[places] + told.offsets[p][boot]
        loads = np.flatnonzero(told.lookup[places] > 0)
        which = np.searchsorted(told.loads, places[loads])
        length = told.lengths[which].astype(np.int64)
        sums = np.concatenate([[0], np.cumsum(length)])
        ahead = np.searchsorted(loads, np.arange(len(places)), side="right")  # loads up to and with the request's own

        def real(v: Times) -> Times:
            return np.asarray(v + sums[np.searchsorted(clock[loads], v, side="left")])

        ready = clock + sums[ahead]
        scheduled = ready.copy()
        scheduled[loads] -= length
        finished = real(clock + self._work(places))
        cut = finished > end
        np.minimum(finished, end, out=finished)
        arrived = self._requests.at[places]
        adapter = self._requests.adapter[places].astype(np.int16)
        victim, slot = told.victim[places[loads]], told.slot[places]
        opens, closes = _batches(adapter, ready, np.maximum(finished, ready))
        return Life(
            pool=self._pool,
            pod=p,
            boot=boot,
            begin=begin,
            end=end,
            asked=self._requests,
            prefill_per_token=self._per_token[0],
            number=places.astype(np.int32),
            adapter=adapter,
            ready=ready,
            finished=finished,
            lookup=told.lookup[places],
            cut=cut,
            loaded=Loaded(
                loads.astype(np.int32),
                scheduled[loads],
                ready[loads],
                told.gpu_parts[which].astype(np.int64),
                slot[loads],
                victim,
                _slots_left(adapter[loads], slot[loads], victim),
                told.cpu_victim[places[loads]],
            ),
            opens=opens.astype(np.int32),
            open_slots=slot[opens],
            closes=closes,
            refused=refused.astype(np.int32),
            pace=pace(
                Window(begin, min(end, self._until)),
                steps=round(self._scenario.steps_seconds * SECOND),
                samples=round(self._scenario.sample_seconds * SECOND),
                seats=self._pool.seats,
                arrived=np.sort(np.concatenate([arrived, self._requests.at[refused]])),
                started=np.sort(np.maximum(arrived, real(clock))),
                scheduled=scheduled,
                finished=finished,
                stalls=(scheduled[loads], ready[loads]),
            ),
        )


def _packed(life: Life) -> Life:
    """The same with its arrays in one block: left where they were made, they would hold the free space between them."""
    arrays = {one.name: getattr(life, one.name) for one in fields(life) if isinstance(getattr(life, one.name), np.ndarray)}
    ends = np.cumsum([-(-array.nbytes // 8) * 8 for array in arrays.values()])
    block = np.empty(int(ends[-1]), dtype=np.uint8)
    moved = {}
    for (name, array), end in zip(arrays.items(), ends.tolist(), strict=True):
        begin = end - -(-array.nbytes // 8) * 8
        moved[name] = block[begin : begin + array.nbytes].view(array.dtype)
        moved[name][:] = array
    return replace(life, **moved)


def pins_of(pool: Pool, pod: int) -> list[int]:
    """The adapters pinned on a pod, in the order of their codes, in which they are loaded."""
    return sorted({pin.adapter for pin in pool.pins if not pin.pods or pod in pin.pods})


def _batches(adapter: NDArray[np.int16], ready: Times, finished: Times) -> tuple[NDArray[np.int64], Times]:
    """Places of the requests with which their adapter entered the running batch, and when it left the batch again (µs UTC)."""
    served = np.flatnonzero(adapter >= 0)
    if not len(served):
        return served, np.empty(0, dtype=np.int64)
    order = served[np.argsort(adapter[served], kind="stable")]
    code, enter, leave = adapter[order].astype(np.int64), ready[order], finished[order]
    base = int(enter.min())
    stride = int(leave.max()) - base + 1
    last = np.maximum.accumulate(code * stride + (leave - base))  # a running maximum for each adapter
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = (code[1:] != code[:-1]) | (code[1:] * stride + (enter[1:] - base) > last[:-1])
    first = np.flatnonzero(opens)
    final = np.append(first[1:], len(order)) - 1
    closes = last[final] - code[final] * stride + base
    back = np.argsort(order[first], kind="stable")
    return order[first][back], closes[back]


def _slots_left(adapter: NDArray[np.int16], slot: NDArray[np.int16], victim: NDArray[np.int16]) -> NDArray[np.int16]:
    """By load: the slot that its victim leaves, which is that of the victim's newest load before; −1 where there is no victim."""
    left = np.full(len(adapter), -1, dtype=np.int16)
    evictions, size = np.flatnonzero(victim >= 0), len(adapter)
    if len(evictions):
        loads = np.argsort(adapter, kind="stable")
        keys = adapter[loads].astype(np.int64) * size + loads
        found = np.searchsorted(keys, victim[evictions].astype(np.int64) * size + evictions) - 1
        left[evictions] = slot[loads[found]]
    return left
