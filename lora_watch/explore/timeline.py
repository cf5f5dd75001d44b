"""
What the page *Timeline* shows of a part of its window: who sat in which slot, and what went on meanwhile.

Every answer is about one part of a window and some whole pods, so days can be asked for one by one and put together.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from lora_watch.derive.groups import ENGINE, POD, POOL, ranked_provenance, worst_provenance
from lora_watch.derive.shards import bucket_ranges, shards_for
from lora_watch.derive.stays import stays
from lora_watch.derive.timeline import timeline
from lora_watch.explore.around import Around
from lora_watch.explore.extent import pods_of
from lora_watch.explore.queries import PASSING, Past
from lora_watch.model import DAY, SECOND, Window, worst
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.store.tables import DAMAGED, Store, translated

LANE = (*ENGINE, "slot")
"""One slot of one engine."""
MOST_STAYS = 800
"""Stays that are drawn one by one; more are drawn as cells."""
COLUMNS = 720
"""Cells side by side, at most."""
MANY_PODS = 24
"""With more pods than these cells are twice as long: a browser draws each of them."""
BINS = 240
"""Points of a line, at most."""
FURTHER = 30 * DAY
"""So far back the loads of quiet pods are looked for: what nobody evicts may sit there for weeks."""
LEAST_FOR_P95 = 20
"""With fewer requests in a bin than these, the slowest one would be its 95th percentile."""
STEPS = tuple(
    seconds * SECOND for seconds in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
)
"""Lengths of a cell or a bin, µs: each divides the day."""
STAY = {
    **dict.fromkeys((*ENGINE,), pl.String()),
    "slot": pl.Int64(),
    "adapter": pl.String(),
    **dict.fromkeys(("start", "end", "loaded_at"), pl.Int64()),
    "seconds": pl.Float64(),
    **dict.fromkeys(("from_tier", "left_by", "provenance"), pl.String()),
}
"""Columns of a stay: its part inside the window, and how it began and ended (``left_by`` null: it goes on)."""

COURSE = {
    **dict.fromkeys(POOL, pl.String()),
    "at": pl.Int64(),
    **dict.fromkeys(("requests_per_second", "loads_per_second", "swaps_per_second"), pl.Float64()),
    **dict.fromkeys(("requests", "loads", "swaps", "pods"), pl.Int64()),
    **dict.fromkeys(("p50_seconds", "p95_seconds"), pl.Float64()),
    "latency_of": pl.Int64(),
    "provenance": pl.String(),
}
"""Columns of a course. Loads and swaps a second are those of a pod, p50 and p95 of the time to the first token."""


@dataclass(frozen=True, slots=True)
class Part:
    """
    Some of the window.

    ``count`` stays are in it, all of them in ``stays`` (columns ``STAY``) unless there are more than ``MOST_STAYS`` (None).
    ``cells``: a row a slot and cell that held anyone: the columns ``LANE``, ``cell`` (its begin ÷ ``step``), ``adapter`` that was
    there longest, ``filled`` (its share of the cell), ``adapters`` (how many came to sit there). ``held``: a row a pod and
    adapter that sat there: ``micros`` in slots, ``stays``, ``first`` and ``last`` (µs UTC, within the window). ``restarts``: a
    row a boot that began inside: its engine and ``at``. ``course``: a row a pool and bin in which anything happened, the columns
    ``COURSE`` (``at``: its begin; ``latency_of``: so many requests told their latency). ``pods``: who is there at all, ``told``:
    whether it is known who sat in its slots. ``provenance`` is the worst of the stays.
    """

    window: Window
    step: int
    count: int
    stays: pl.DataFrame | None
    cells: pl.DataFrame
    held: pl.DataFrame
    restarts: pl.DataFrame
    course: pl.DataFrame
    pods: pl.DataFrame
    provenance: str | None


def step_of(window: Window, most: int) -> int:
    """The shortest of ``STEPS`` by which a window has at most so many cells; the longest where none has."""
    return next((step for step in STEPS if (window.end - window.start) // step <= most), STEPS[-1])


def columns_of(pods: int) -> int:
    """Cells side by side, at most, of so many pods."""
    return COLUMNS if pods <= MANY_PODS else COLUMNS // 2


def part(window: Window, store: Store, lookback: int, step: int, bin: int) -> Part:
    """
    The slots, in cells of ``step`` µs, and the course, in bins of ``bin`` µs, of a window. StoreError where a table is damaged.

    Cells are multiples of ``step`` since 1970, so those of neighbouring parts fit together.
    """
    shards = shards_for(
        store.count(ADAPTER_EVENTS, window) // 4
    )  # three quarters and more are uses and steps, which are not held
    some = [store] if shards == 1 else [store.part(range(*edges)) for edges in bucket_ranges(shards)]
    found = [_slots(window, one, lookback, step, bin) for one in some]
    whole = together([one for one, _ in found])
    return replace(whole, course=_course([counts for _, counts in found], store, window, bin))


def together(parts: Sequence[Part]) -> Part:
    """Parts of one window, or of windows that follow one another, as one; at least one."""
    count = sum(one.count for one in parts)
    known = [one.stays for one in parts if one.stays is not None]
    whole = len(known) == len(parts) and count <= MOST_STAYS
    return Part(
        Window(min(one.window.start for one in parts), max(one.window.end for one in parts)),
        parts[0].step,
        count,
        pl.concat(known) if whole else None,
        pl.concat([one.cells for one in parts]),
        held_of([one.held for one in parts]),
        pl.concat([one.restarts for one in parts]),
        pl.concat([one.course for one in parts]),
        pl.concat([one.pods for one in parts]).group_by(POD).agg(pl.col("told").any()).sort(POD),
        worst({one.provenance for one in parts if one.provenance is not None}),
    )


class LongStays(Around):
    """Stays are looked for as far back as ``lookback`` (µs): a slot whose load was long ago is not drawn as an empty one."""

    def __init__(self, store: Store, window: Window, lookback: int) -> None:
        super().__init__(store, window, lookback)
        self._past = Past(store, lookback, brief=True)


def _slots(window: Window, store: Store, lookback: int, step: int, bin: int) -> tuple[Part, pl.DataFrame]:
    """Who sat where, and the counts of each bin, of some whole pods."""
    read = LongStays(store, window, lookback)
    pods = pods_of(store, window)
    sat = sitting(read, store, window, lookback, pods)
    told = sat.select(pl.col(POD).fill_null("")).unique().with_columns(told=pl.lit(value=True))
    start, end = pl.col("start"), pl.col("end")
    slots = Part(
        window,
        step,
        sat.height,
        sat if sat.height <= MOST_STAYS else None,
        cells(sat, step),
        held_of([sat.select(*POD, "adapter", micros=end - start, stays=pl.lit(1, dtype=pl.Int64), first=start, last=end)]),
        restarts_of(read.boots, window),
        pl.DataFrame(schema=COURSE),
        pods.join(told, on=POD, how="left").with_columns(pl.col("told").fill_null(value=False)),
        sat.select(worst_provenance()).item(),
    )
    with reading(store):
        requests = store.scan(REQUESTS, window)
        counts = timeline(read.events, requests, window, bin, POOL, moves=read.moves, stored=True).collect(engine="streaming")
    return slots, counts.select(*POOL, "at", "pods", "requests", "loads", "swaps", "provenance")


def sitting(read: LongStays, store: Store, window: Window, lookback: int, pods: pl.DataFrame | None = None) -> pl.DataFrame:
    """The stays of a window, as far as they are inside: the columns ``STAY``."""
    there = pods_of(store, window) if pods is None else pods
    return _further(store, window, _inside(read.stays, window), there, lookback)


def _further(store: Store, window: Window, sat: pl.DataFrame, pods: pl.DataFrame, lookback: int) -> pl.DataFrame:
    """
    The stays, those of quiet pods looked for further back: of pods that are known to have fewer residents when the window begins
    than another of their pool, or none, the loads of ``FURTHER`` are read.
    """
    there = sat.filter(pl.col("start") == window.start).group_by(pl.col(POD).fill_null("")).agg(residents=pl.len())
    known = pods.join(there, on=POD, how="left").with_columns(pl.col("residents").fill_null(0))
    quiet = known.filter((pl.col("residents") < pl.col("residents").max().over(POOL)) | (pl.col("residents") == 0))
    if quiet.is_empty() or lookback >= FURTHER:
        return sat
    which = pl.struct(pl.col(POD).fill_null(""))
    chosen = which.is_in(quiet.select(POD).to_dicts())
    events = store.rows(
        ADAPTER_EVENTS, Window(max(window.start - FURTHER, 0), window.end), chosen & ~pl.col("kind").is_in(PASSING)
    )
    return pl.concat([sat.filter(~chosen), _inside(stays(events.lazy()), window)]).sort(*ENGINE, "start", "slot", "adapter")


def _inside(told: pl.LazyFrame, window: Window) -> pl.DataFrame:
    """The stays that reach into the window, as far as they are inside; each in a slot, found for it where none is told."""
    name = pl.coalesce("adapter", pl.format("id {}", pl.col("adapter_id")))
    inside = told.select(
        *ENGINE,
        "slot",
        adapter=name,
        start=pl.max_horizontal("resident_from", pl.lit(window.start)),
        end=pl.min_horizontal(pl.col("left_at").fill_null(window.end), pl.lit(window.end)),
        loaded_at="loaded_at",
        seconds="seconds",
        from_tier="from_tier",
        left_by=pl.when(pl.col("left_at") < window.end).then("left_by"),
        provenance="provenance",
    )
    known = inside.filter(pl.col("start") < pl.col("end")).collect().sort(*ENGINE, "start", "slot", "adapter")
    return _slotted(known).cast(STAY)  # type: ignore[arg-type]  # names to types


def _slotted(sat: pl.DataFrame) -> pl.DataFrame:
    """Stays whose slot nobody told, each in the first place of its engine that is free, behind the known slots."""
    if not sat["slot"].null_count():
        return sat
    first = {row[:-1]: row[-1] for row in sat.group_by(ENGINE).agg((pl.col("slot").max() + 1).fill_null(0)).iter_rows()}
    unknown = sat.filter(pl.col("slot").is_null())
    places = pl.Series(list(_places(unknown, first)), dtype=pl.Int64)
    return pl.concat([sat.filter(pl.col("slot").is_not_null()), unknown.with_columns(slot=places)])


def _places(sat: pl.DataFrame, first: Mapping[tuple[str | None, ...], int]) -> Iterator[int]:
    """A place for each stay, in the order in which they begin: the lowest that is free then."""
    free: dict[tuple[str | None, ...], list[int]] = {}
    held: dict[tuple[str | None, ...], list[tuple[int, int]]] = {}
    made: dict[tuple[str | None, ...], int] = {}
    for *engine, start, end in sat.select(*ENGINE, "start", "end").iter_rows():
        key = tuple(engine)
        places, ends = free.setdefault(key, []), held.setdefault(key, [])
        while ends and ends[0][0] <= start:
            heapq.heappush(places, heapq.heappop(ends)[1])
        if not places:
            made[key] = made.get(key, first[key] - 1) + 1
            heapq.heappush(places, made[key])
        place = heapq.heappop(places)
        heapq.heappush(ends, (end, place))
        yield place


def cells(sat: pl.DataFrame, step: int) -> pl.DataFrame:
    """Stays as cells of ``step`` µs: of each slot and cell who was there longest, for which share of it, and of how many."""
    begin, end, cell = pl.col("start"), pl.col("end"), pl.col("cell")
    overlap = pl.min_horizontal(end, (cell + 1) * step) - pl.max_horizontal(begin, cell * step)
    return (
        sat.lazy()
        .select(*LANE, "adapter", "start", "end", cell=pl.int_ranges(begin // step, (end - 1) // step + 1))
        .explode("cell", empty_as_null=False, keep_nulls=False)
        .group_by(*LANE, "cell", "adapter")
        .agg(inside=overlap.sum())
        .sort("inside", "adapter", descending=[True, False])
        .group_by(*LANE, "cell")
        .agg(pl.col("adapter").first(), filled=pl.col("inside").first() / step, adapters=pl.len().cast(pl.Int64))
        .sort(*LANE, "cell")
        .collect()
    )


def held_of(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """``held`` of several parts as that of the whole."""
    return (
        pl.concat(parts)
        .group_by(*POD, "adapter")
        .agg(pl.col("micros").sum(), pl.col("stays").sum(), pl.col("first").min(), pl.col("last").max())
        .sort(*POD, "adapter")
    )


def restarts_of(boots: pl.LazyFrame, window: Window) -> pl.DataFrame:
    """A row a boot that began in the window: its engine and ``at``."""
    began = pl.col("started_at").is_between(window.start, window.end, closed="left")
    return boots.filter(began).select(*ENGINE, at="started_at").sort(*ENGINE, "at").collect()


def _course(counts: Sequence[pl.DataFrame], store: Store, window: Window, bin: int) -> pl.DataFrame:
    """Loads, swaps, requests and latency of each pool, bin by bin."""
    length = pl.min_horizontal(pl.lit(bin), window.end - pl.col("at")) / SECOND
    went = (
        pl.concat(counts)
        .group_by(*POOL, "at")
        .agg(pl.col("pods", "requests", "loads", "swaps").sum(), provenance=ranked_provenance().max().cast(pl.String))
    )
    with reading(store):
        waited = waits(store.scan(REQUESTS, window), window, bin).collect(engine="streaming")
    return (
        went.join(waited, on=[*POOL, "at"], how="left", nulls_equal=True)
        .with_columns(
            latency_of=pl.col("latency_of").fill_null(0),
            requests_per_second=pl.col("requests") / length,
            loads_per_second=pl.col("loads") / length / pl.col("pods"),
            swaps_per_second=pl.col("swaps") / length / pl.col("pods"),
        )
        .select(list(COURSE))
        .sort(*POOL, "at")
    )


def waits(requests: pl.LazyFrame, window: Window, bin: int) -> pl.LazyFrame:
    """The time from arrival to the first token by pool and the bin in which the request finished."""
    seconds = ((pl.col("first_token") - pl.coalesce("arrived", "queued")) / SECOND).alias("seconds")
    at = ((pl.col("at") - window.start) // bin * bin + window.start).alias("at")
    told = requests.select(*POOL, at, seconds).filter(pl.col("seconds").is_not_null())
    slowest = pl.when(pl.len() >= LEAST_FOR_P95).then(pl.col("seconds").quantile(0.95, "linear"))
    return told.group_by(*POOL, "at").agg(
        latency_of=pl.len().cast(pl.Int64), p50_seconds=pl.col("seconds").median(), p95_seconds=slowest
    )


def reading(store: Store) -> translated:
    """Where frames of requests are collected: StoreError where a file is gone or damaged."""
    return translated(f"reading table {REQUESTS.name} in {store.root / REQUESTS.name}", advice=DAMAGED)
