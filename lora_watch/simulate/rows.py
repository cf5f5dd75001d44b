"""What agents and scrapes would have stored of simulated engines: rows of the three tables, a day and a few pods at a time."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch import names
from lora_watch.model import DAY, SECOND, PodId, Provenance, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, Table, bucket_of
from lora_watch.simulate.engines import Life, pins_of
from lora_watch.simulate.scenario import Reload, Scenario
from lora_watch.simulate.traffic import Catalogue
from lora_watch.sources.base import stream
from lora_watch.sources.series import labels_json, series_id

PART_REQUESTS = 120_000
"""Requests whose rows are made at once: bounds memory to a few hundred MB beside what was simulated."""
SOURCE = "simulate"
"""The rows' ``source``."""
VLLM = "0.32.0"
RELOAD_SECONDS = 0.004
"""A reload in place, on top of what the requests were simulated to take."""

_KINDS = ("start", "load", "evict", "use", "release", "pin", "steps", "stop", "register", "unregister")
START, LOAD, EVICT, USE, RELEASE, PIN, STEPS, STOP, REGISTER, UNREGISTER = range(10)
_TIERS = ("gpu", "cpu")
_FROM = ("cpu", "disk")
_REASONS = ("demand", "preload", "lru", "inplace")
_LOOKUPS = ("hot", "warm", "cold")
_RANK = {START: 0, PIN: 1, RELEASE: 1 << 20, USE: (1 << 20) + 9, STEPS: 1 << 21, STOP: 1 << 22}
"""Order of records of one µs; loads and evictions have places of their own between RELEASE and USE."""
_LOADING = (1 << 20) + 1
_COLUMNS: Mapping[str, type[np.generic]] = {
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
_MISSING = -1

Columns = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of some pods on one day, conformed, in the order of a closed day, and how far each stream has come with them."""

    window: Window
    events: pl.DataFrame
    requests: pl.DataFrame
    samples: pl.DataFrame
    event_positions: dict[str, int]
    request_positions: dict[str, int]


@dataclass(slots=True)
class _Feed:
    """A life, and how much of it has been told: the two logs of its engine, each with its stream and last seq."""

    life: Life
    where: PodId
    worker: str
    server: str
    finished_order: NDArray[np.int32]
    closed_order: NDArray[np.int32]
    reloads: NDArray[np.int64]
    told: dict[str, int] = field(default_factory=dict)


class Rows:
    """Tells the lives of a simulation bit by bit. ``until`` (µs UTC) is where it ends: what happens later has no row."""

    def __init__(self, scenario: Scenario, known: Catalogue, lives: Sequence[Life], until: int, seed: int) -> None:
        self._scenario, self._known, self._until = scenario, known, until
        self._feeds = [self._feed(life, seed) for life in lives]
        self._feeds.sort(key=lambda feed: (bucket_of(feed.where.cluster, feed.where.pod), feed.where.pod, feed.life.begin))
        self._names = pl.Series("adapter", known.names, dtype=pl.String)
        self._series: dict[tuple[int, str, str, int], str] = {}

    def parts(self) -> Iterator[Part]:
        """One value for each day and group of pods that together finished about ``PART_REQUESTS``, at least one pod."""
        for window in Window(self._scenario.begin, self._until).split(DAY):
            group: list[int] = []
            size = 0
            for number, feed in enumerate(self._feeds):
                if feed.life.begin >= window.end or feed.life.end < window.start:
                    continue
                count = int(np.subtract(*np.searchsorted(feed.life.ready, [window.end, window.start])))
                if group and size + count > PART_REQUESTS and self._feeds[group[-1]].where != feed.where:
                    yield self._part(window, group)
                    group, size = [], 0
                group.append(number)
                size += count
            yield self._part(window, group)

    def _part(self, window: Window, group: Sequence[int]) -> Part:
        events, requests, samples = [], [], []
        for number in group:
            feed = self._feeds[number]
            worker = self._worker(feed, window)
            worker["seq"] = _numbered(feed, feed.worker, worker)
            server, asked = self._server(feed, window)
            for role, part in enumerate((worker, server)):
                part["role"] = np.full(len(part["at"]), role, dtype=np.int8)
                part["feed"] = np.full(len(part["at"]), number, dtype=np.int32)
                events.append(part)
            asked["feed"] = np.full(len(asked["at"]), number, dtype=np.int32)
            requests.append(asked)
            samples.append(self._samples(number, feed, window))
        feeds = [self._feeds[number] for number in group]
        return Part(
            window,
            self._events(events),
            self._requests(requests),
            _laid(SAMPLES, pl.concat(samples), "series"),
            {name: seq for feed in feeds for name, seq in feed.told.items()},
            {feed.server: feed.told[feed.server] for feed in feeds if feed.server in feed.told},
        )

    def _feed(self, life: Life, seed: int) -> _Feed:
        pool = life.pool
        where = PodId(self._scenario.cluster, f"{pool.name}-{life.pod}", pool.name, pool.role)
        draws = np.random.default_rng([seed, 4, *pool.name.encode(), life.pod, life.boot]).bytes(32)
        boots = [str(UUID(bytes=draws[part : part + 16], version=4)) for part in (0, 16)]
        streams = [stream("agent", where.cluster, where.pod, boot) for boot in boots]
        return _Feed(
            life,
            where,
            streams[0],
            streams[1],
            np.argsort(life.finished, kind="stable").astype(np.int32),
            np.argsort(life.closes, kind="stable").astype(np.int32),
            self._reloads(life),
        )

    def _reloads(self, life: Life) -> NDArray[np.int64]:
        """When an adapter of the life is read again in place, with the adapter, as rows (at, adapter, slot)."""
        found = [np.empty((3, 0), dtype=np.int64)]
        for event in self._scenario.events:
            if not isinstance(event, Reload) or event.pod != life.pod or self._scenario.pools[event.pool] is not life.pool:
                continue
            start, end = event.during(self._scenario.begin)
            every = round(event.every_seconds * SECOND)
            for place in np.flatnonzero(life.adapter[life.opens] == event.adapter):
                first, last = max(int(life.ready[life.opens[place]]) + every, start), min(int(life.closes[place]), end, life.end)
                at = np.arange(first, last, every, dtype=np.int64)
                slot = np.full(len(at), life.open_slots[place])
                found.append(np.stack([at, np.full(len(at), event.adapter), slot]))
        return np.concatenate(found, axis=1)

    def _worker(self, feed: _Feed, window: Window) -> Columns:
        """What the worker's agent writes in the window, in order."""
        life, loaded, pace = feed.life, feed.life.loaded, feed.life.pace
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
        closed = life.closes[feed.closed_order]
        left = feed.closed_order[slice(*np.searchsorted(closed, [start, end]))]
        left = left[opened[left] < life.end]
        parts.append(_columns(life.closes[left], RELEASE, adapter=life.adapter[life.opens[left]]))
        again = feed.reloads[:, (feed.reloads[0] >= start) & (feed.reloads[0] < end)]
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
        return _ordered(parts)

    def _server(self, feed: _Feed, window: Window) -> tuple[Columns, Columns]:
        """What the API server's agent writes in the window: records of names, and finished requests; numbered together."""
        life, known = feed.life, self._known
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
        ends, came = life.finished[feed.finished_order], life.asked
        chosen = feed.finished_order[slice(*np.searchsorted(ends, [start, last]))]
        cut, number = life.cut[chosen], life.number[chosen]
        scheduled = life.ready[chosen].copy()
        began = np.searchsorted(life.loaded.place, chosen)
        loads = np.flatnonzero(life.lookup[chosen] > 0)
        scheduled[loads] = life.loaded.began[began[loads]]
        scheduled[cut & (scheduled > life.end)] = _MISSING
        first = life.first_tokens(chosen)
        first[cut & (first >= life.end)] = _MISSING
        asked: Columns = {
            "at": life.finished[chosen],
            "number": number,
            "adapter": life.adapter[chosen],
            "arrived": came.at[number],
            "scheduled": scheduled,
            "first_token": first,
            "prompt_tokens": came.prompt[number],
            "generated_tokens": np.where(
                cut, _MISSING, 1 if life.pool.role == "prefill" else came.generated[number].astype(np.int64)
            ),
            "cut": cut,
        }
        if start <= life.end < last and len(life.refused):
            count = len(life.refused)
            nothing = np.full(count, _MISSING, dtype=np.int64)
            missed: Columns = {
                "at": np.full(count, life.end),
                "number": life.refused,
                "adapter": came.adapter[life.refused].astype(np.int16),
                "arrived": came.at[life.refused],
                "scheduled": nothing,
                "first_token": nothing,
                "prompt_tokens": nothing,
                "generated_tokens": nothing,
                "cut": np.ones(count, dtype=np.bool_),
            }
            asked = {name: np.concatenate([asked[name], missed[name]]) for name in asked}
        before = feed.told.get(feed.server, 0)
        stop = records["kind"] == STOP  # behind the requests that ended with it
        ahead = np.searchsorted(asked["at"], records["at"], side="left") + np.where(stop, len(asked["at"]), 0)
        records["seq"] = before + np.arange(1, len(records["at"]) + 1) + np.minimum(ahead, len(asked["at"]))
        asked["seq"] = (
            before + np.arange(1, len(asked["at"]) + 1) + np.searchsorted(records["at"][~stop], asked["at"], side="right")
        )
        if len(records["at"]) or len(asked["at"]):
            feed.told[feed.server] = before + len(records["at"]) + len(asked["at"])
        return records, asked

    def _events(self, parts: Sequence[Columns]) -> pl.DataFrame:
        frame = pl.DataFrame(
            {name: np.concatenate([part[name] for part in parts]) for name in (*_COLUMNS, "seq", "feed", "role")}
        )
        kind = pl.col("kind")
        known, named = self._known, pl.col("adapter") >= 0
        loading = kind == LOAD
        in_step = ~pl.col("reason").is_in([1]) & kind.is_in([LOAD, EVICT])
        worker_start = (kind == START) & (pl.col("role") == 0)
        slots = pl.Series([feed.life.pool.slots for feed in self._feeds], dtype=pl.Int64)
        cpu = pl.Series([feed.life.pool.cpu_capacity or feed.life.pool.slots for feed in self._feeds], dtype=pl.Int64)
        feeds, code = frame["feed"], frame["adapter"].cast(pl.Int32)
        code = code.set(code < 0, None)
        sizes, ranks = pl.Series(known.bytes).gather(code), pl.Series(known.rank).gather(code)
        streams = pl.Series([name for feed in self._feeds for name in (feed.worker, feed.server)]).gather(
            feeds * 2 + frame["role"].cast(pl.Int32)
        )
        details = pl.Series([*self._details(), None], dtype=pl.String)
        detail = np.full(frame.height, len(details) - 1)
        telling = (frame["kind"].is_in([START, STOP])).to_numpy()
        detail[telling] = frame["kind"].to_numpy()[telling].astype(np.int64) // STOP * 2 + frame["role"].to_numpy()[telling]
        return _laid(
            ADAPTER_EVENTS,
            frame.select(
                *self._where(feeds),
                "at",
                "seq",
                kind=_word("kind", _KINDS),
                stream=streams,
                tier=_word("tier", _TIERS),
                from_tier=_word("from_tier", _FROM),
                adapter=self._names.gather(code),
                adapter_id=pl.when(named).then(pl.col("adapter").cast(pl.Int64) + 1),
                slot=pl.when(pl.col("slot") >= 0).then(pl.col("slot").cast(pl.Int64)),
                lookup=_word("lookup", _LOOKUPS),
                seconds=_number("seconds"),
                rank=pl.when(loading).then(ranks),
                bytes=pl.when(loading).then(sizes),
                reason=_word("reason", _REASONS),
                in_step=pl.when(kind.is_in([LOAD, EVICT])).then(in_step),
                ok=pl.when(kind.is_in([LOAD, PIN, REGISTER, UNREGISTER])).then(pl.lit(value=True)),
                slots=pl.when(worker_start).then(slots.gather(feeds)),
                cpu_capacity=pl.when(worker_start).then(cpu.gather(feeds)),
                count=pl.when(kind == STEPS).then(pl.col("count").cast(pl.Int64)),
                wall_seconds=_number("wall_seconds"),
                execute_seconds=_number("execute_seconds"),
                adapter_seconds=_number("adapter_seconds"),
                clock=pl.when((kind == STEPS) | worker_start).then(pl.lit("cuda")),
                detail=details.gather(detail),
            ),
            "seq",
        )

    def _details(self) -> list[str]:
        """JSON of what `start` and `stop` say of a worker and of an API server."""
        worker = {"max_rank": int(self._known.rank.max()), "model": "simulated", "role": "worker", "vllm": VLLM}
        told = (worker, {"role": "api", "vllm": VLLM}, {"role": "worker"}, {"role": "api"})
        return [json.dumps(one, sort_keys=True, separators=(",", ":")) for one in told]

    def _requests(self, parts: Sequence[Columns]) -> pl.DataFrame:
        frame = pl.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
        code = frame["adapter"].cast(pl.Int32)
        feeds = frame["feed"]
        pools = pl.Series([f"{feed.life.pool.name}-" for feed in self._feeds])
        missing = [
            pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name)
            for name in ("scheduled", "first_token", "prompt_tokens", "generated_tokens")
        ]
        return _laid(
            REQUESTS,
            frame.select(
                *self._where(feeds),
                "at",
                "seq",
                "arrived",
                *missing,
                stream=pl.Series([feed.server for feed in self._feeds]).gather(feeds),
                request_id=pools.gather(feeds) + pl.col("number").cast(pl.String),
                adapter=self._names.gather(code.set(code < 0, None)),
                queued="arrived",
                finished="at",
                cached_tokens=pl.lit(0),
                preemptions=pl.lit(0),
                finish_reason=pl.when("cut").then(pl.lit("error")).otherwise(pl.lit("stop")),
            ),
            "seq",
        )

    def _samples(self, number: int, feed: _Feed, window: Window) -> pl.DataFrame:
        """What a scrape finds: requests running and waiting, slots, and the adapters in flight, by their newest gauge."""
        life, pace = feed.life, feed.life.pace
        inside = slice(*np.searchsorted(pace.sampled_at, [window.start, min(window.end, self._until)]))
        at = pace.sampled_at[inside]
        running, capacity, deferred = pace.running[inside], pace.capacity[inside], pace.deferred[inside]
        engine = {"engine": "0", "model_name": "simulated"}
        said = [
            (at, names.REQUESTS_RUNNING, engine, running),
            (at, names.REQUESTS_WAITING, engine, capacity + deferred),
            (at, names.WAITING_BY_REASON, {**engine, "reason": "capacity"}, capacity),
            (at, names.WAITING_BY_REASON, {**engine, "reason": "deferred"}, deferred),
            (at, names.SAMPLE_MAX_LORA, {"engine": "0"}, np.full(len(at), life.pool.slots)),
        ]
        frames = [
            self._sampled(number, feed, times, metric, labels, values, np.full(len(times), -1))
            for times, metric, labels, values in said
        ]
        from_, to = np.searchsorted(at, life.ready[life.opens]), np.searchsorted(at, life.closes)
        seen = np.flatnonzero(to > from_)
        widths = (to - from_)[seen]
        looks = np.repeat(from_[seen], widths) + np.arange(int(widths.sum())) - np.repeat(np.cumsum(widths) - widths, widths)
        code = np.repeat(life.adapter[life.opens[seen]].astype(np.int64), widths)
        empty = np.flatnonzero(np.bincount(looks, minlength=len(at)) == 0)
        looks, code = np.concatenate([looks, empty]), np.concatenate([code, np.full(len(empty), -1)])
        value = (code >= 0).astype(np.float64)
        frames.append(self._sampled(number, feed, at[looks], names.SAMPLE_IN_FLIGHT, {"engine": "0"}, value, code))
        return pl.concat(frames)

    def _sampled(
        self,
        number: int,
        feed: _Feed,
        at: NDArray[np.int64],
        metric: str,
        labels: Mapping[str, str],
        value: NDArray[np.generic],
        code: NDArray[np.int64],
    ) -> pl.DataFrame:
        text = labels_json(labels)
        codes, place = np.unique(code, return_inverse=True)
        series = [self._series_of(number, feed.where, metric, text, int(one)) for one in codes]
        adapters = [self._known.names[one] if one >= 0 else None for one in codes]
        provenance = Provenance.ACTIVITY if metric == names.SAMPLE_IN_FLIGHT else Provenance.OBSERVED
        return pl.DataFrame(
            {
                "at": at,
                "value": value.astype(np.float64),
                "series": pl.Series(series, dtype=pl.String).gather(place),
                "adapter": pl.Series(adapters, dtype=pl.String).gather(place),
            }
        ).with_columns(
            *self._where(pl.Series(np.full(len(at), number, dtype=np.int32)), provenance),
            metric=pl.lit(metric),
            labels=pl.lit(text),
        )

    def _series_of(self, number: int, where: PodId, metric: str, labels: str, code: int) -> str:
        key = (number, metric, labels, code)
        if key not in self._series:
            adapter = self._known.names[code] if code >= 0 else None
            self._series[key] = series_id(where.cluster, where.pod, metric, labels, adapter)
        return self._series[key]

    def _where(self, feeds: pl.Series, provenance: Provenance = Provenance.OBSERVED) -> list[pl.Expr | pl.Series]:
        places = [feed.where for feed in self._feeds]
        told = {
            "pool": [place.pool for place in places],
            "role": [place.role for place in places],
            "pod": [place.pod for place in places],
        }
        return [
            pl.lit(self._scenario.cluster).alias("cluster"),
            *(pl.Series(name, values, dtype=pl.String).gather(feeds) for name, values in told.items()),
            pl.lit("0").alias("engine"),
            pl.lit(str(provenance)).alias("provenance"),
            pl.lit(SOURCE).alias("source"),
        ]


def _columns(at: NDArray[np.int64] | Sequence[int], kind: int, *, rank: int | None = None, **values: object) -> Columns:
    """Records of one kind, what is not said missing."""
    times = np.asarray(at, dtype=np.int64)
    given = {"at": times, "kind": kind, "rank": _RANK.get(kind, 0) if rank is None else rank, **values}
    columns: Columns = {}
    for name, dtype in _COLUMNS.items():
        missing = np.nan if dtype is np.float64 else _MISSING
        columns[name] = np.broadcast_to(np.asarray(given.get(name, missing)), times.shape).astype(dtype)
    return columns


def _ordered(parts: Sequence[Columns]) -> Columns:
    """All records in the order in which they are written."""
    joined = {
        name: np.concatenate([part[name] for part in parts]) if parts else np.empty(0, dtype) for name, dtype in _COLUMNS.items()
    }
    order = np.lexsort((joined["rank"], joined["at"]))
    return {name: column[order] for name, column in joined.items()}


def _numbered(feed: _Feed, log: str, records: Columns) -> NDArray[np.int64]:
    """Seqs that go on where the log's last record left off."""
    before, count = feed.told.get(log, 0), len(records["at"])
    if count:
        feed.told[log] = before + count
    return before + np.arange(1, count + 1)


def _in_spans(at: NDArray[np.int64], end: NDArray[np.int64], seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many of the sorted times lie in each of the spans that end so and are so long."""
    start = end - np.round(seconds * SECOND).astype(np.int64)
    return np.searchsorted(at, end) - np.searchsorted(at, start)


def _word(column: str, words: Sequence[str]) -> pl.Expr:
    return (
        pl.col(column).cast(pl.Int32).replace_strict(dict(enumerate(words)), default=None, return_dtype=pl.String).alias(column)
    )


def _number(column: str) -> pl.Expr:
    return pl.when(pl.col(column).is_not_nan()).then(column).alias(column)


def _laid(table: Table, frame: pl.DataFrame, last: str) -> pl.DataFrame:
    """Conformed, and in the order in which a closed day lies."""
    return table.conform(frame).sort("bucket", "pod", "at", *(["stream"] if last == "seq" else []), last)
