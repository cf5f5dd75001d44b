"""What agents and scrapes would have stored of simulated engines: rows of the three tables, a day and a few pods at a time."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import polars as pl

from lora_watch.model import DAY, Provenance, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, Table, bucket_of
from lora_watch.simulate.engines import Life
from lora_watch.simulate.records import (
    COLUMNS,
    EVICT,
    FROM_TIERS,
    KINDS,
    LOAD,
    LOOKUPS,
    PIN,
    REASONS,
    REGISTER,
    START,
    STEPS,
    STOP,
    TIERS,
    UNREGISTER,
    Columns,
    Engine,
)
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.scrapes import Scrapes
from lora_watch.simulate.traffic import Catalogue

PART_REQUESTS = 40_000
"""Requests whose rows are made at once: bounds memory to a few hundred MB beside what was simulated."""
SOURCE = "simulate"
"""The rows' ``source``."""
VLLM = "0.32.0"
_OBSERVED = pl.lit(str(Provenance.OBSERVED)).alias("provenance")


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of some pods on one day, conformed, in the order of a closed day, and how far each stream has come with them."""

    window: Window
    events: pl.DataFrame
    requests: pl.DataFrame
    samples: pl.DataFrame
    event_positions: dict[str, int]
    request_positions: dict[str, int]


class Rows:
    """
    Tells the lives of a simulation bit by bit. ``until`` (µs UTC) is where it ends: what happens later has no row.

    Lives that come piece by piece are handed in with ``go_on``, and each piece's window is told before the next.
    """

    def __init__(self, scenario: Scenario, known: Catalogue, lives: Sequence[Life], until: int, seed: int) -> None:
        self._scenario, self._known, self._until = scenario, known, until
        self._seed = seed
        self._engines: list[Engine] = []
        self._names = pl.Series("adapter", known.names, dtype=pl.String)
        self._scrapes = Scrapes(scenario, known)
        self.go_on(lives)

    def go_on(self, lives: Sequence[Life]) -> None:
        """Have these lives told from here on: engines that are told already go on where they are, those not named have ended."""
        told = {(one.life.pool.name, one.life.pod, one.life.boot): one for one in self._engines}
        self._engines = []
        for life in lives:
            engine = told.get((life.pool.name, life.pod, life.boot))
            if engine is None:
                engine = Engine(self._scenario, self._known, life, self._until, self._seed)
            engine.life = life
            self._engines.append(engine)
        self._engines.sort(key=lambda one: (bucket_of(one.where.cluster, one.where.pod), one.where.pod, one.life.begin))

    def parts(self, within: Window | None = None, most: int = PART_REQUESTS, *, samples: bool = True) -> Iterator[Part]:
        """
        One value for each day and group of pods that together served up to ``most`` requests, at least one pod.

        With ``within`` the values of that window, which lies behind the one told last. Without ``samples`` there are none, then
        or later.
        """
        windows = Window(self._scenario.begin, self._until).split(DAY) if within is None else (within,)
        for window in windows:
            group: list[int] = []
            size = 0
            for place, engine in enumerate(self._engines):
                if engine.life.begin >= window.end or engine.life.end < window.start:
                    continue
                count = int(np.subtract(*np.searchsorted(engine.life.ready, [window.end, window.start])))
                if group and size + count > most and self._engines[group[-1]].where != engine.where:
                    yield self._part(window, group, samples=samples)
                    group, size = [], 0
                group.append(place)
                size += count
            yield self._part(window, group, samples=samples)

    def _part(self, window: Window, group: Sequence[int], *, samples: bool) -> Part:
        events: list[Columns] = []
        requests: list[Columns] = []
        for place in group:
            engine = self._engines[place]
            server, asked = engine.server_records(window)
            for role, records in enumerate((engine.worker_records(window), server)):
                size = len(records["at"])
                events.append({**records, "role": np.full(size, role, np.int8), "engine": np.full(size, place, np.int32)})
            requests.append({**asked, "engine": np.full(len(asked["at"]), place, np.int32)})
        told = [self._engines[place] for place in group]
        return Part(
            window,
            self._events(events),
            self._requests(requests),
            self._samples(window, group) if samples else SAMPLES.empty(),
            {name: seq for engine in told for name, seq in engine.positions.items()},
            {engine.server: engine.positions[engine.server] for engine in told if engine.server in engine.positions},
        )

    def _samples(self, window: Window, group: Sequence[int]) -> pl.DataFrame:
        samples = []
        for where, of_pod in groupby(group, key=lambda place: self._engines[place].where):
            places = list(of_pod)
            lives = [self._engines[place].life for place in places]
            samples += [
                self._located(self._scrapes.of(life, where, window), place) for life, place in zip(lives, places, strict=True)
            ]
            samples.append(self._located(self._scrapes.of_pod(lives, where, window), places[0]))
        return _laid(SAMPLES, pl.concat(samples), "series")

    def _events(self, parts: Sequence[Columns]) -> pl.DataFrame:
        frame = pl.DataFrame(
            {name: np.concatenate([part[name] for part in parts]) for name in (*COLUMNS, "seq", "engine", "role")}
        )
        kind = pl.col("kind")
        known, named = self._known, pl.col("adapter") >= 0
        loading = kind == LOAD
        in_step = ~pl.col("reason").is_in([1]) & kind.is_in([LOAD, EVICT])
        worker_start = (kind == START) & (pl.col("role") == 0)
        slots = pl.Series([engine.life.pool.slots for engine in self._engines], dtype=pl.Int64)
        cpu = pl.Series([engine.life.pool.cpu_capacity or engine.life.pool.slots for engine in self._engines], dtype=pl.Int64)
        places, code = frame["engine"], frame["adapter"].cast(pl.Int32)
        code = code.set(code < 0, None)
        sizes, ranks = pl.Series(known.bytes).gather(code), pl.Series(known.rank).gather(code)
        streams = pl.Series([name for engine in self._engines for name in (engine.worker, engine.server)]).gather(
            places * 2 + frame["role"].cast(pl.Int32)
        )
        details = pl.Series([*self._details(), None], dtype=pl.String)
        detail = np.full(frame.height, len(details) - 1)
        telling = (frame["kind"].is_in([START, STOP])).to_numpy()
        detail[telling] = frame["kind"].to_numpy()[telling].astype(np.int64) // STOP * 2 + frame["role"].to_numpy()[telling]
        return _laid(
            ADAPTER_EVENTS,
            frame.select(
                *self._where(places),
                _OBSERVED,
                "at",
                "seq",
                kind=_word("kind", KINDS),
                stream=streams,
                tier=_word("tier", TIERS),
                from_tier=_word("from_tier", FROM_TIERS),
                adapter=self._names.gather(code),
                adapter_id=pl.when(named).then(pl.col("adapter").cast(pl.Int64) + 1),
                slot=pl.when(pl.col("slot") >= 0).then(pl.col("slot").cast(pl.Int64)),
                lookup=_word("lookup", LOOKUPS),
                seconds=_number("seconds"),
                rank=pl.when(loading).then(ranks),
                bytes=pl.when(loading).then(sizes),
                reason=_word("reason", REASONS),
                in_step=pl.when(kind.is_in([LOAD, EVICT])).then(in_step),
                ok=pl.when(kind.is_in([LOAD, PIN, REGISTER, UNREGISTER])).then(pl.lit(value=True)),
                slots=pl.when(worker_start).then(slots.gather(places)),
                cpu_capacity=pl.when(worker_start).then(cpu.gather(places)),
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
        places = frame["engine"]
        pools = pl.Series([f"{engine.life.pool.name}-" for engine in self._engines])
        missing = [
            pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name)
            for name in ("scheduled", "first_token", "prompt_tokens", "generated_tokens")
        ]
        return _laid(
            REQUESTS,
            frame.select(
                *self._where(places),
                _OBSERVED,
                "at",
                "seq",
                "arrived",
                *missing,
                stream=pl.Series([engine.server for engine in self._engines]).gather(places),
                request_id=pools.gather(places) + pl.col("number").cast(pl.String),
                adapter=self._names.gather(code.set(code < 0, None)),
                queued="arrived",
                finished="at",
                cached_tokens=pl.lit(0),
                preemptions=pl.lit(0),
                finish_reason=pl.when("cut").then(pl.lit("error")).otherwise(pl.lit("stop")),
            ),
            "seq",
        )

    def _located(self, samples: pl.DataFrame, place: int) -> pl.DataFrame:
        """Samples with where they are from; which engine they are of, if any, they say themselves."""
        where = self._where(pl.Series(np.full(samples.height, place, np.int32)))
        return samples.drop("engine").with_columns(*where).with_columns(samples["engine"])

    def _where(self, places: pl.Series) -> list[pl.Expr | pl.Series]:
        wheres = [engine.where for engine in self._engines]
        told = {
            "pool": [where.pool for where in wheres],
            "role": [where.role for where in wheres],
            "pod": [where.pod for where in wheres],
        }
        return [
            pl.lit(self._scenario.cluster).alias("cluster"),
            *(pl.Series(name, values, dtype=pl.String).gather(places) for name, values in told.items()),
            pl.lit("0").alias("engine"),
            pl.lit(SOURCE).alias("source"),
        ]


def _word(column: str, words: Sequence[str]) -> pl.Expr:
    return (
        pl.col(column).cast(pl.Int32).replace_strict(dict(enumerate(words)), default=None, return_dtype=pl.String).alias(column)
    )


def _number(column: str) -> pl.Expr:
    return pl.when(pl.col(column).is_not_nan()).then(column).alias(column)


def _laid(table: Table, frame: pl.DataFrame, last: str) -> pl.DataFrame:
    """Conformed, and in the order in which a closed day lies."""
    return table.conform(frame).sort("bucket", "pod", "at", *(["stream"] if last == "seq" else []), last)
