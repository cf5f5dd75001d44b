"""Reading queries: the only place, besides jobs, that chains store and derive. Every answer is about one window."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType

import polars as pl

from lora_watch import names
from lora_watch.derive.boots import boots
from lora_watch.derive.carry import carry
from lora_watch.derive.groups import POD, PROVENANCE
from lora_watch.derive.horizon import REACH, unseen
from lora_watch.derive.inference_share import GPU_METRICS, inference_share
from lora_watch.derive.little import little
from lora_watch.derive.misses import misses, request_lookups
from lora_watch.derive.moves import moves
from lora_watch.derive.occupancy import occupancy
from lora_watch.derive.residency import residency
from lora_watch.derive.shards import bucket_ranges, shards_for
from lora_watch.derive.stays import stays
from lora_watch.derive.swap_queue import swap_queue
from lora_watch.derive.swaps import swaps
from lora_watch.model import HOUR, MINUTE, Window
from lora_watch.schema import ADAPTER_EVENTS, MEASURED, REQUESTS, SAMPLES
from lora_watch.sources.base import AGENTS_EVENTS
from lora_watch.store.tables import Store

ADAPTER = (*POD, "adapter")
LONGEST_REQUEST = HOUR
"""A request scheduled in a window is looked for until this long after it: its row is written when it finishes."""
LONGEST_STEPS = MINUTE
"""A record of steps that began in a window is looked for until this long after it: it is written when they end."""
RATES = (
    ("swaps", "swaps_per_second"),
    ("loads", "loads_per_second"),
    ("warm", "warm_loads_per_second"),
    ("cold", "cold_loads_per_second"),
)
REREAD = HOUR
"""After so long the past is read anew: events that came late are in it then."""
PASSING = ("use", "release", "steps")
"""Kinds that are nine tenths of the events, and of which only the last ones matter later."""
CARRY_STEP = HOUR
"""How much of the past is read at once: bounds memory, whatever the lookback."""
CARRY_ROWS = 400_000
"""Loads, evictions and marks that are carried on at once where the rest of the past is left out: an hour may hold very few."""
_SAMPLES = (
    names.REQUESTS_RUNNING,
    names.GENERATION_TOKENS,
    names.WAITING_BY_REASON,
    names.SAMPLE_IN_FLIGHT,
    names.SAMPLE_MAX_LORA,
    *GPU_METRICS,
)


@dataclass(frozen=True, slots=True)
class Overview:
    """
    What is known of one window: ``pods``, one row a pod, and ``adapters``, one row a pod and adapter; both sorted by name.

    Columns of both: those of ``POD`` (and ``adapter``), p50_seconds, p95_seconds with their ``_lower_bound_seconds``, completed,
    censored, left_truncated, swaps, loads, warm, cold, requests, hot, warm_requests, cold_requests, unknown, miss_ratio,
    ghost_hits, provenance (the worst of all that went in). Pods have more: slots, resident_adapters, occupancy_ratio,
    active_adapters, active_per_slot_ratio, swaps_per_second, warm_loads_per_second, cold_loads_per_second, slot_time_p50_seconds,
    swap_queue_mean, swap_queue_max, share_low, share_high, grade, adapter_share, busy_ratio, busy_minus_inference,
    little_residual_ratio, lost. Adapters: ``resident`` (1 or 0 at the end of the window, null: unknown). Unknown is null.
    """

    window: Window
    pods: pl.DataFrame
    adapters: pl.DataFrame


def newest(store: Store, now: int | None) -> int | None:
    """
    One µs past the newest row of any table that was read from outside, None where nothing is stored: where a window about "now"
    ends for what is held. What was found in the data does not move their end.

    Rows later than ``now`` (µs UTC) count only where there are no others: one pod whose clock is ahead must not move the window
    past all that is known of the rest.
    """
    for before in (now, None):
        known = [at for table in MEASURED if (at := store.newest(table, before)) is not None]
        if known:
            return max(known) + 1
    return None


class Past:
    """
    What the events before a window leave behind, carried on from one window to the next so that each event is read once.

    It is read anew from ``lookback`` (µs) before the window where the window moves back or jumps, and every ``REREAD``, so that
    events that came late get their place. A load further back than ``lookback`` is not known: its stay is left-truncated.
    ``brief``, for who looks once: uses and steps are read of the last hour only, so one that goes on for longer is not known.
    """

    def __init__(self, store: Store, lookback: int, *, step: int = CARRY_STEP, brief: bool = False) -> None:
        self._store = store
        self._brief = brief
        self._step = step
        self._lookback = lookback
        self._held = ADAPTER_EVENTS.empty()
        self._moment: int | None = None
        self._read_anew = 0

    def until(self, moment: int) -> pl.DataFrame:
        """The events before ``moment`` that still matter at it."""
        if self._moment is None or not self._moment <= moment < min(self._moment + self._lookback, self._read_anew + REREAD):
            self._held, self._moment, self._read_anew = ADAPTER_EVENTS.empty(), moment - self._lookback, moment
        if self._moment < moment:
            for part, where in self._parts(Window(self._moment, moment)):
                new = self._store.rows(ADAPTER_EVENTS, part, where)
                self._held = carry(pl.concat([self._held, new]).lazy(), part.end).collect()
        self._moment = moment
        return self._held

    def _parts(self, window: Window) -> Iterator[tuple[Window, pl.Expr | None]]:
        """What is read at once, one after the other, and which rows of it: what it comes to is the same however it is cut."""
        recent = max(window.end - CARRY_STEP, window.start) if self._brief else window.start
        if window.start < recent:
            lasting = ~pl.col("kind").is_in(PASSING)
            old = Window(window.start, recent)
            rows = self._store.rows(ADAPTER_EVENTS, old, lasting, columns=("at",))
            cuts = rows["at"].sort().gather_every(CARRY_ROWS, CARRY_ROWS).unique(maintain_order=True)
            edges = [old.start, *(at for at in cuts if at > old.start), old.end]
            for start, end in pairwise(edges):
                yield Window(start, end), lasting
        for part in Window(recent, window.end).split(self._step):
            yield part, None


def overview_by_shards(
    store: Store, window: Window, lookback: int, shards: int | None = None, *, brief: bool = False
) -> Overview:
    """
    The overview of a window of any size, computed some whole pods at a time: memory is that of one shard and of the result.

    Unless told, ``shards`` is :func:`shards_for` the events and requests of the window.
    """
    if shards is None:
        shards = shards_for(sum(store.count(table, window) for table in (ADAPTER_EVENTS, REQUESTS)))
    if shards == 1:
        return overview(store, window, Past(store, lookback, brief=brief))
    parts = []
    for low, high in bucket_ranges(shards):
        part = store.part(range(low, high))
        parts.append(overview(part, window, Past(part, lookback, step=shards * CARRY_STEP, brief=brief)))
    pods, adapters = pl.concat([part.pods for part in parts]), pl.concat([part.adapters for part in parts])
    return Overview(window, pods.sort(POD), adapters.sort(ADAPTER))


class Frames:
    """
    What is read for a window, and what every figure is derived from; each is read or derived when it is asked for first.

    The derived frames are about whole pods of the store's part, so figures of any group within it are right.
    """

    def __init__(self, store: Store, window: Window, past: Past) -> None:
        self.window = window
        self._store = store
        self._past = past

    @cached_property
    def events(self) -> pl.LazyFrame:
        """What is carried over from before the window, its events, and the ends of pods that were seen no more."""
        return pl.concat([self._told, self.gone])

    @cached_property
    def requests(self) -> pl.LazyFrame:
        """Requests that finished in the window or within ``LONGEST_REQUEST`` after it."""
        return self._store.rows(REQUESTS, Window(self.window.start, self.window.end + LONGEST_REQUEST)).lazy()

    @cached_property
    def samples(self) -> pl.LazyFrame:
        """The samples that figures are derived from."""
        return self._store.rows(SAMPLES, self.window, pl.col("metric").is_in(_SAMPLES)).lazy()

    @cached_property
    def gone(self) -> pl.LazyFrame:
        """The ends of pods that nobody saw any more: rows of events."""
        end = self.window.end
        looks = self._store.rows(SAMPLES, Window(end - REACH, end), pl.col("metric") == names.SAMPLE_SCRAPE_UP).lazy()
        return unseen(self._told, self.requests, looks, self.window, polled=AGENTS_EVENTS).collect().lazy()

    @cached_property
    def steps(self) -> pl.LazyFrame:
        """The events, and the records of steps that began in the window and ended after it."""
        end = self.window.end
        begun = self._store.rows(ADAPTER_EVENTS, Window(end, end + LONGEST_STEPS), pl.col("kind") == "steps").lazy()
        return pl.concat([self.events, begun])

    @cached_property
    def boots(self) -> pl.LazyFrame:
        """When each worker was up."""
        return boots(self.events).collect().lazy()

    @cached_property
    def stays(self) -> pl.LazyFrame:
        """When each adapter was in a slot."""
        return stays(self.events).collect().lazy()

    @cached_property
    def lookups(self) -> pl.LazyFrame:
        """Where each request found its adapter."""
        return request_lookups(self.requests, self.stays).collect().lazy()

    @cached_property
    def moves(self) -> pl.LazyFrame:
        """Loads and evictions beside their neighbours."""
        return moves(self.events).collect().lazy()

    @cached_property
    def _told(self) -> pl.LazyFrame:
        begin = self.window.start - MINUTE  # a load's eviction may lie just before the window
        held = self._past.until(begin)
        return pl.concat([held, self._store.rows(ADAPTER_EVENTS, Window(begin, self.window.end))]).lazy()


FIGURES: Mapping[str, Callable[[Frames, tuple[str, ...]], pl.LazyFrame]] = MappingProxyType(
    {
        "residency": lambda read, by: residency(read.stays, read.window, by),
        "swaps": lambda read, by: swaps(read.events, read.window, by, boots=read.boots, moves=read.moves),
        "misses": lambda read, by: misses(read.requests, read.lookups, read.window, by, events=read.events),
        "occupancy": lambda read, by: occupancy(
            read.stays, read.boots, read.window, by, events=read.events, requests=read.requests, samples=read.samples
        ),
        "swap_queue": lambda read, by: swap_queue(read.requests, read.stays, read.window, by, samples=read.samples),
        "inference_share": lambda read, by: inference_share(read.steps, read.window, by, boots=read.boots, samples=read.samples),
        "little": lambda read, by: little(read.events, read.window, by, boots=read.boots, stays=read.stays, moves=read.moves),
    }
)
"""The figures of a window, by name: each from what was read, grouped by some columns of ``derive.groups.GROUPS``."""


def overview(store: Store, window: Window, past: Past) -> Overview:
    """Everything the exporter publishes and ``status`` shows, of one window."""
    read = Frames(store, window, past)

    def by(keys: tuple[str, ...]) -> dict[str, pl.LazyFrame]:
        return {
            "residency": FIGURES["residency"](read, keys).drop("loads"),
            "swaps": FIGURES["swaps"](read, keys),
            "misses": FIGURES["misses"](read, keys).rename({"warm": "warm_requests", "cold": "cold_requests"}),
        }

    pods = _joined(
        {
            **by(POD),
            "occupancy": FIGURES["occupancy"](read, POD),
            "swap_queue": FIGURES["swap_queue"](read, POD).rename(
                {"mean_depth": "swap_queue_mean", "max_depth": "swap_queue_max"}
            ),
            "inference_share": FIGURES["inference_share"](read, POD),
            "little": FIGURES["little"](read, POD).select(*POD, "provenance", little_residual_ratio="residual_ratio"),
            "log": _lost(_telling(read.events, window), window),
        },
        POD,
    ).with_columns(_per_second(count).alias(name) for count, name in RATES)
    adapters = _joined({**by(ADAPTER), "residents": _resident(read.stays, read.gone, window)}, ADAPTER)
    return Overview(window, pods.sort(POD), adapters.sort(ADAPTER))


def _per_second(count: str) -> pl.Expr:
    """
    A count over the time in which it could happen: ``count × engines ÷ observed seconds``, of the engines that were up.

    An engine that started five minutes ago has five minutes of swaps, not an hour's; null where no engine was up.
    """
    return pl.when(pl.col("observed_seconds") > 0).then(pl.col(count) * pl.col("engines_observed") / pl.col("observed_seconds"))


def _joined(parts: Mapping[str, pl.LazyFrame], keys: tuple[str, ...]) -> pl.DataFrame:
    """
    All parts side by side, a row wherever any has one; a column said twice is the first's.

    Each part's provenance becomes ``<part>_provenance``; ``provenance`` is the worst of them.
    """
    whole: pl.DataFrame | None = None
    for name, part in zip(parts, pl.collect_all(list(parts.values())), strict=True):
        frame = part.rename({"provenance": f"{name}_provenance"})
        if whole is None:
            whole = frame
            continue
        frame = frame.select(*keys, *(column for column in frame.columns if column not in whole.columns))
        whole = whole.join(frame, on=keys, how="full", coalesce=True, nulls_equal=True)
    assert whole is not None
    known = [pl.col(f"{name}_provenance").cast(PROVENANCE) for name in parts]
    return whole.with_columns(provenance=pl.max_horizontal(known).cast(pl.String))


def _telling(events: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """Of the events in the window those that :func:`_lost` depends on: a row of each boot, losses, and what is not observed."""
    inside = events.filter(pl.col("at").is_between(window.start, window.end, closed="left"))
    telling = (pl.col("kind") == "lost") | pl.col("stream").is_first_distinct() | (pl.col("provenance") != "observed")
    return inside.filter(telling.fill_null(value=True))


def _lost(events: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """Records that were lost in the window, by pod; only pods that sent any record at all are known to have lost none."""
    inside = events.filter(pl.col("at").is_between(window.start, window.end, closed="left")).unique(["stream", "seq"], keep="any")
    return inside.group_by(POD).agg(
        lost=pl.col("count").filter(pl.col("kind") == "lost").sum(),
        provenance=pl.col("provenance").cast(PROVENANCE).max().cast(pl.String),
    )


def _resident(sat: pl.LazyFrame, gone: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """Whether each adapter that had a stay was in a slot at the end of the window; null in the pods of ``gone``."""
    sat = sat.join(gone, on="stream", how="anti")
    there = (pl.col("resident_from") < window.end) & (pl.col("left_at").is_null() | (pl.col("left_at") >= window.end))
    return (
        sat.filter(pl.col("adapter").is_not_null())
        .group_by(ADAPTER)
        .agg(resident=there.any().cast(pl.Int64), provenance=pl.col("provenance").cast(PROVENANCE).max().cast(pl.String))
    )
