"""
What the agents of one engine write from its start to its end: the worker's records, and the API server's, in order and numbered.

Records are columns of codes, so that millions of them are cheap; ``rows`` makes rows of them.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import SECOND, PodId, Window
from lora_watch.simulate.engines import Life, pins_of
from lora_watch.simulate.scenario import Reload, Scenario
from lora_watch.simulate.traffic import Catalogue
from lora_watch.sources.base import stream

RELOAD_SECONDS = 0.004
"""A reload in place, on top of what the requests were simulated to take."""

KINDS = ("start", "load", "evict", "use", "release", "pin", "steps", "stop", "register", "unregister")
START, LOAD, EVICT, USE, RELEASE, PIN, STEPS, STOP, REGISTER, UNREGISTER = range(10)
TIERS = ("gpu", "cpu")
FROM_TIERS = ("cpu", "disk")
REASONS = ("demand", "preload", "lru", "inplace")
LOOKUPS = ("hot", "warm", "cold")
_RANK = {START: 0, PIN: 1, RELEASE: 1 << 20, USE: (1 << 20) + 9, STEPS: 1 << 21, STOP: 1 << 22}
"""Order of records of one µs; loads and evictions have places of their own between RELEASE and USE."""
_LOADING = (1 << 20) + 1
COLUMNS: Mapping[str, type[np.generic]] = {
    "at": np.int64,
    "rank": np.int32,
    "kind": np.int8,
    "adapter": np.int16,
    "slot": np.int16,
    "tier": np.int8,
    "from_tier": np.int8,
    "lookup": np.int8,
    "reason": np.int8,
    "seconds": np.float64,
    "count": np.int32,
    "wall_seconds": np.float64,
    "execute_seconds": np.float64,
    "adapter_seconds": np.float64,
}
MISSING = -1
"""Stands for a code or a time that a record does not have."""

Columns = dict[str, NDArray[np.generic]]


class Engine:
    """
    The two logs of a life, told window by window up to ``until`` (µs UTC), where the simulation ends.

    ``life`` may be a piece that holds the next window, and another for the one after it.
    """

    def __init__(self, scenario: Scenario, known: Catalogue, life: Life, until: int, seed: int) -> None:
        self.life = life
        self.where = PodId(scenario.cluster, f"{life.pool.name}-{life.pod}", life.pool.name, life.pool.role)
        draws = np.random.default_rng([seed, 4, *life.pool.name.encode(), life.pod, life.boot]).bytes(32)
        boots = [str(UUID(bytes=draws[part : part + 16], version=4)) for part in (0, 16)]
        self.worker, self.server = (stream("agent", self.where.cluster, self.where.pod, boot) for boot in boots)
        self._scenario, self._known, self._until = scenario, known, until
        self._worker_seq = self._server_seq = 0

    @property
    def positions(self) -> dict[str, int]:
        """How far the two logs have been told: the last seq by stream; none where nothing has."""
        told = ((self.worker, self._worker_seq), (self.server, self._server_seq))
        return {name: seq for name, seq in told if seq}

    def worker_records(self, window: Window) -> Columns:
        """What the worker's agent writes in the window, in order, with its seqs. Windows have to come one after the other."""
        life, loaded, pace = self.life, self.life.loaded, self.life.pace
        start, end = window.start, min(window.end, life.end, self._until)
        parts: list[Columns] = []
        if start <= life.begin < end:
            parts.append(_columns([life.begin], START))
            for place, pinned in enumerate(pins_of(life.pool, life.pod)):
                of_pin = {"adapter": pinned, "reason": 1, "from_tier": 1, "seconds": RELOAD_SECONDS}
                for step, more in enumerate(({"tier": 1}, {"tier": 0, "slot": place})):
                    parts.append(_columns([life.begin], LOAD, rank=3 * place + 1 + step, **of_pin, **more))
                parts.append(_columns([life.begin], PIN, rank=3 * place + 3, adapter=pinned))
        cold = life.lookup[loaded.place] == 2
        adapter = life.adapter[loaded.place]
        seconds = (loaded.done - loaded.began) / SECOND
        activated = loaded.done - loaded.gpu_part
        dropped = loaded.cpu_victim >= 0
        moves = (
            (activated, cold & dropped, EVICT, 0, {"tier": 1, "adapter": loaded.cpu_victim, "reason": 2}),
            (
                activated,
                cold,
                LOAD,
                1,
                {"tier": 1, "adapter": adapter, "from_tier": 1, "reason": 0, "seconds": seconds - loaded.gpu_part / SECOND},
            ),
            (
                loaded.done,
                loaded.victim >= 0,
                EVICT,
                2,
                {"tier": 0, "adapter": loaded.victim, "slot": loaded.victim_slot, "reason": 2},
            ),
            (
                loaded.done,
                np.ones(len(cold), dtype=np.bool_),
                LOAD,
                3,
                {
                    "tier": 0,
                    "adapter": adapter,
                    "slot": loaded.slot,
                    "from_tier": cold,
                    "reason": 0,
                    "seconds": loaded.gpu_part / SECOND,
                },
            ),
        )
        complete = loaded.done < life.end
        for at, which, kind, step, values in moves:
            inside = slice(*np.searchsorted(at, [start, end]))
            chosen = np.flatnonzero(which[inside] & complete[inside]) + inside.start
            picked = {name: value[chosen] if isinstance(value, np.ndarray) else value for name, value in values.items()}
            parts.append(_columns(at[chosen], kind, rank=_LOADING + step, **picked))
        opened = life.ready[life.opens]
        inside = slice(*np.searchsorted(opened, [start, end]))
        places = life.opens[inside]
        parts.append(
            _columns(
                opened[inside],
                USE,
                adapter=life.adapter[places],
                slot=life.open_slots[inside],
                lookup=life.lookup[places],
            )
        )
        left = np.flatnonzero((life.closes >= start) & (life.closes < end) & (opened < life.end))
        parts.append(_columns(life.closes[left], RELEASE, adapter=life.adapter[life.opens[left]]))
        again = self._read_again(start, end)
        for step, kind, values in (
            (0, EVICT, {"tier": 0, "slot": again[2]}),
            (1, LOAD, {"tier": 1, "from_tier": 1, "seconds": RELOAD_SECONDS * 0.75}),
            (2, LOAD, {"tier": 0, "from_tier": 1, "seconds": RELOAD_SECONDS * 0.25, "slot": again[2]}),
        ):
            parts.append(_columns(again[0], kind, rank=_LOADING + 4 + step, adapter=again[1], reason=3, **values))
        # a record that ends with the day, or with the process, is of the day before, so that none is left over at the end
        inside = slice(*np.searchsorted(pace.steps_at, [start + 1, min(window.end, self._until) + 1]))
        stalled = pace.steps_stalled[inside] / SECOND
        busy, wall = pace.steps_busy[inside] / SECOND, pace.steps_wall[inside] / SECOND
        if again.shape[1]:
            stalled = np.minimum(stalled + RELOAD_SECONDS * _in_spans(again[0], pace.steps_at[inside], wall), busy)
        parts.append(
            _columns(
                pace.steps_at[inside] - 1,
                STEPS,
                count=np.maximum((busy - stalled) / self._scenario.traffic.seconds_per_token, 1).astype(np.int32),
                wall_seconds=wall,
                execute_seconds=busy,
                adapter_seconds=stalled,
            )
        )
        if start <= life.end < min(window.end, self._until):
            parts.append(_columns([life.end], STOP))
        records = _ordered(parts)
        records["seq"] = self._worker_seq + np.arange(1, len(records["at"]) + 1)
        self._worker_seq += len(records["at"])
        return records

    def server_records(self, window: Window) -> tuple[Columns, Columns]:
        """What the API server's agent writes in the window: records of names, and finished requests; numbered together."""
        life, known = self.life, self._known
        start, end = window.start, min(window.end, life.end, self._until)
        parts: list[Columns] = []
        if start <= life.begin < end:
            parts.append(_columns([life.begin], START))
        for kind, times in ((REGISTER, np.maximum(known.born, life.begin)), (UNREGISTER, known.gone)):
            codes = np.flatnonzero((times >= start) & (times < end) & (known.gone > life.begin))
            parts.append(_columns(times[codes], kind, rank=1, adapter=codes))
        last = min(window.end, self._until)
        if start <= life.end < last:
            parts.append(_columns([life.end], STOP))
        records = _ordered(parts)
        came = life.asked
        chosen = np.flatnonzero((life.finished >= start) & (life.finished < last))
        chosen = chosen[np.argsort(life.finished[chosen], kind="stable")]
        cut, number = life.cut[chosen], life.number[chosen]
        scheduled = life.ready[chosen].copy()
        began = np.searchsorted(life.loaded.place, chosen)
        loads = np.flatnonzero(life.lookup[chosen] > 0)
        scheduled[loads] = life.loaded.began[began[loads]]
        scheduled[cut & (scheduled > life.end)] = MISSING
        first = life.first_tokens(chosen)
        first[cut & (first >= life.end)] = MISSING
        asked: Columns = {
            "at": life.finished[chosen],
            "number": came.number[number],
            "adapter": life.adapter[chosen],
            "arrived": came.at[number],
            "scheduled": scheduled,
            "first_token": first,
            "prompt_tokens": came.prompt[number],
            "generated_tokens": np.where(
                cut, MISSING, 1 if life.pool.role == "prefill" else came.generated[number].astype(np.int64)
            ),
            "cut": cut,
        }
        if start <= life.end < last and len(life.refused):
            count = len(life.refused)
            nothing = np.full(count, MISSING, dtype=np.int64)
            missed: Columns = {
                "at": np.full(count, life.end),
                "number": came.number[life.refused],
                "adapter": came.adapter[life.refused].astype(np.int16),
                "arrived": came.at[life.refused],
                "scheduled": nothing,
                "first_token": nothing,
                "prompt_tokens": nothing,
                "generated_tokens": nothing,
                "cut": np.ones(count, dtype=np.bool_),
            }
            asked = {name: np.concatenate([asked[name], missed[name]]) for name in asked}
        before = self._server_seq
        stop = records["kind"] == STOP  # behind the requests that ended with it
        ahead = np.searchsorted(asked["at"], records["at"], side="left") + np.where(stop, len(asked["at"]), 0)
        records["seq"] = before + np.arange(1, len(records["at"]) + 1) + np.minimum(ahead, len(asked["at"]))
        asked["seq"] = (
            before + np.arange(1, len(asked["at"]) + 1) + np.searchsorted(records["at"][~stop], asked["at"], side="right")
        )
        self._server_seq = before + len(records["at"]) + len(asked["at"])
        return records, asked

    def _read_again(self, begin: int, until: int) -> NDArray[np.int64]:
        """When an adapter of the life is read again in place within the span, with the adapter, as rows (at, adapter, slot)."""
        life, found = self.life, [np.empty((3, 0), dtype=np.int64)]
        for event in self._scenario.events:
            if not isinstance(event, Reload) or event.pod != life.pod or self._scenario.pools[event.pool] is not life.pool:
                continue
            start, end = event.during(self._scenario.begin)
            every = round(event.every_seconds * SECOND)
            for place in np.flatnonzero(life.adapter[life.opens] == event.adapter):
                first = max(int(life.opened[place]) + every, start)
                first += max(begin - first + every - 1, 0) // every * every
                last = min(int(life.closes[place]), end, life.end, until)
                at = np.arange(first, last, every, dtype=np.int64)
                slot = np.full(len(at), life.open_slots[place])
                found.append(np.stack([at, np.full(len(at), event.adapter), slot]))
        return np.concatenate(found, axis=1)


def _columns(at: NDArray[np.int64] | Sequence[int], kind: int, *, rank: int | None = None, **values: object) -> Columns:
    """Records of one kind, what is not said missing."""
    times = np.asarray(at, dtype=np.int64)
    given = {"at": times, "kind": kind, "rank": _RANK.get(kind, 0) if rank is None else rank, **values}
    columns: Columns = {}
    for name, dtype in COLUMNS.items():
        missing = np.nan if dtype is np.float64 else MISSING
        columns[name] = np.broadcast_to(np.asarray(given.get(name, missing)), times.shape).astype(dtype)
    return columns


def _ordered(parts: Sequence[Columns]) -> Columns:
    """All records in the order in which they are written."""
    joined = {
        name: np.concatenate([part[name] for part in parts]) if parts else np.empty(0, dtype) for name, dtype in COLUMNS.items()
    }
    order = np.lexsort((joined["rank"], joined["at"]))
    return {name: column[order] for name, column in joined.items()}


def _in_spans(at: NDArray[np.int64], end: NDArray[np.int64], seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many of the sorted times lie in each of the spans that end so and are so long."""
    start = end - np.round(seconds * SECOND).astype(np.int64)
    return np.searchsorted(at, end) - np.searchsorted(at, start)
