"""
What closed hours say: worked out once, stored in the table ``hours``, and read by wide windows instead of the rows themselves.

An hour's rows are told apart by ``figure``:

| figure | a row is | columns |
| --- | --- | --- |
| slots | a slot and hour | who was there longest: ``adapter``, for ``micros``, of ``count`` adapters |
| held | a pod, adapter and hour | ``micros`` in slots, ``count`` stays that began, ``present`` ones, ``first``, ``last`` |
| start | a boot that began | ``first``: when |
| course | a pod and hour | ``count`` requests, ``loads``, ``swaps`` |
| latency | a pool, hour and ``step`` of a histogram | ``count`` requests with a first token after ``GROWTH ** step`` seconds |
| asked | a pool, adapter and hour | ``count`` requests, the ``first`` at |
| reached | a pod, ``what`` was looked at, and hour | ``count`` looks, ``value``: the share that reached it |
| lost | a pod, hour and ``what`` was the reason | ``count`` records, ``first``, ``last`` |
| read | a table (``what``) and day | ``count`` rows of the day up to ``last``, by version ``step`` of this module |
| past | a day before it (``first``) | ``count`` events of that day, which tell who sat in slots when this one began |

The last two say what the others were made of. Where one of these days has more rows by now, somebody has brought some later: then
the day is not covered until it has been worked out anew, and its rows are read as if there were no hours.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

import polars as pl

from lora_watch.derive.groups import ENGINE, POD, POOL, ranked_provenance, worst_provenance
from lora_watch.derive.shards import bucket_ranges, shards_for
from lora_watch.derive.timeline import timeline
from lora_watch.explore.adapters import ASKED, KEYS, KNOWN_BACK, Before, asked
from lora_watch.explore.heard import lost, reached
from lora_watch.explore.timeline import (
    COURSE,
    FURTHER,
    LANE,
    LEAST_FOR_P95,
    LongStays,
    Part,
    held_of,
    reading,
    restarts_of,
    sitting,
    waits,
)
from lora_watch.model import DAY, HOUR, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, HOURS, MEASURED, REQUESTS
from lora_watch.store.days import date_of
from lora_watch.store.tables import DAMAGED, Store, translated

VERSION = 2
"""Of what is worked out here: what an older one made is made anew."""
WIDE = 2 * DAY
"""Windows as long as this are told by the hour."""
GROWTH = 1.05
"""A step of the histogram of latencies to the next: quantiles read off it are at most 2.5 % off."""
SHORTEST_SECONDS = 1e-4


def of_day(store: Store, window: Window, lookback: int) -> pl.DataFrame:
    """
    The rows of the table ``hours`` of a day, or of its hours up to now: a window of whole hours that begins at midnight UTC.
    StoreError where a table can't be read.
    """
    counted = _read(store, window), _past(store, window)  # first: what comes meanwhile makes the day stale
    shards = shards_for(store.count(ADAPTER_EVENTS, window) // 4)
    some = [store] if shards == 1 else [store.part(range(*edges)) for edges in bucket_ranges(shards)]
    found = [frame for one in some for frame in _of_pods(one, window, lookback)]
    reach = (
        reached(window, store, HOUR)
        .with_columns(figure=pl.lit("reached"))
        .rename({"endpoint": "what", "up": "value", "looks": "count"})
    )
    gone = (
        [
            lost(hour, store)
            .with_columns(figure=pl.lit("lost"), at=pl.lit(hour.start))
            .rename({"reason": "what", "records": "count"})
            for hour in window.split(HOUR)
        ]
        if store.count(ADAPTER_EVENTS, window, pl.col("kind") == "lost")
        else []
    )
    wanted = asked(window, store).rename({"hour": "at", "requests": "count"}).with_columns(figure=pl.lit("asked"))
    parts = [*found, _latencies(store, window), wanted, reach, *gone, *counted]
    return HOURS.conform(pl.concat(parts, how="diagonal").with_columns(source=pl.lit("lora_watch")))


def _of_pods(store: Store, window: Window, lookback: int) -> Iterator[pl.DataFrame]:
    read = LongStays(store, window, lookback)
    sat = sitting(read, store, window, lookback)
    start, end = pl.col("start"), pl.col("end")
    by_hour = (
        sat.lazy()
        .with_columns(at=pl.int_ranges(start // HOUR, (end - 1) // HOUR + 1))
        .explode("at", empty_as_null=False, keep_nulls=False)
        .with_columns(pl.col("at") * HOUR)
        .with_columns(
            came=start,
            first=pl.max_horizontal(start, "at"),
            last=pl.min_horizontal(end, pl.col("at") + HOUR),
            known=ranked_provenance(),
        )
        .with_columns(
            micros=pl.col("last") - pl.col("first"), began=(pl.col("came") >= pl.col("at")) & (pl.col("came") > window.start)
        )
    )
    held = by_hour.group_by(*POD, "adapter", "at").agg(
        pl.col("micros").sum(),
        count=pl.col("began").sum().cast(pl.Int64),
        present=(~pl.col("began")).sum().cast(pl.Int64),
        first=pl.col("first").min(),
        last=pl.col("last").max(),
        provenance=pl.col("known").max().cast(pl.String),
    )
    slots = (
        by_hour.group_by(*LANE, "at", "adapter")
        .agg(pl.col("micros").sum())
        .sort("micros", "adapter", descending=[True, False])
        .group_by(*LANE, "at")
        .agg(pl.col("adapter").first(), pl.col("micros").first(), count=pl.len().cast(pl.Int64))
    )
    yield held.with_columns(figure=pl.lit("held")).collect()
    yield slots.with_columns(figure=pl.lit("slots")).collect()
    began = restarts_of(read.boots, window)
    yield began.with_columns(figure=pl.lit("start"), first="at", at=pl.col("at") // HOUR * HOUR)
    with reading(store):
        requests = store.scan(REQUESTS, window)
        went = timeline(read.events, requests, window, HOUR, POD, moves=read.moves, stored=True).collect(engine="streaming")
    yield went.select(*POD, "at", "loads", "swaps", "provenance", count="requests", figure=pl.lit("course"))


def _latencies(store: Store, window: Window) -> pl.DataFrame:
    """Histograms of the time from arrival to the first token: a row a pool, hour and step."""
    seconds = ((pl.col("first_token") - pl.coalesce("arrived", "queued")) / SECOND).clip(lower_bound=SHORTEST_SECONDS)
    with reading(store):
        return (
            store.scan(REQUESTS, window)
            .select(
                *POOL,
                at=pl.col("at") // HOUR * HOUR,
                step=(seconds.log() / math.log(GROWTH)).floor().cast(pl.Int64, strict=False),
            )
            .filter(pl.col("step").is_not_null())
            .group_by(*POOL, "at", "step")
            .agg(count=pl.len().cast(pl.Int64))
            .with_columns(figure=pl.lit("latency"))
            .collect(engine="streaming")
        )


def _read(store: Store, window: Window) -> pl.DataFrame:
    whole = window.end - window.start == DAY
    rows = [
        (table.name, store.days(table).get(date_of(window.start), 0) if whole else store.count(table, window))
        for table in MEASURED
    ]
    return pl.DataFrame(rows, schema={"what": pl.String, "count": pl.Int64}, orient="row").with_columns(
        figure=pl.lit("read"), at=pl.lit(window.start), last=pl.lit(window.end), step=pl.lit(VERSION, dtype=pl.Int64)
    )


def _past(store: Store, window: Window) -> pl.DataFrame:
    """The events of each day before in which a stay may have begun."""
    rows = [(day, count) for day, count in _before(store.days(ADAPTER_EVENTS), window.start).items()]
    return pl.DataFrame(rows, schema={"first": pl.Int64, "count": pl.Int64}, orient="row").with_columns(
        figure=pl.lit("past"), at=pl.lit(window.start)
    )


def _before(known: Mapping[date, int], day: int) -> dict[int, int]:
    """How many rows each day has, by its begin in µs UTC, of those before a day in which a stay may have begun."""
    epoch = date_of(0)
    begins = {(one - epoch).days * DAY: count for one, count in known.items()}
    return {begin: count for begin, count in begins.items() if day - FURTHER <= begin < day}


def days_of(store: Store) -> dict[int, int]:
    """How far each day that is stored is worked out (its begin and that end, µs UTC), and holds all there is."""
    if not store.days(HOURS):
        return {}
    whole = store.whole
    made_of = whole.rows(
        HOURS, None, pl.col("figure").is_in(["read", "past"]), columns=("at", "figure", "what", "count", "first", "last", "step")
    )
    told, earlier = made_of.filter(figure="read"), made_of.filter(figure="past")
    past = {(day, first): count for day, first, count in earlier.select("at", "first", "count").iter_rows()}
    known = {table.name: store.days(table) for table in MEASURED}
    found: dict[int, int] = {}
    for (day,), rows in told.group_by("at"):
        assert isinstance(day, int)
        until = rows["last"].max()
        assert isinstance(until, int)
        counted = dict(rows.select("what", "count").iter_rows())
        came = any(there > past.get((day, begin), 0) for begin, there in _before(known[ADAPTER_EVENTS.name], day).items())
        if not came and set(rows["step"].to_list()) == {VERSION} and _still(whole, Window(day, until), counted, known):
            found[day] = until
    return found


def _still(store: Store, window: Window, counted: Mapping[str, int], known: Mapping[str, Mapping[date, int]]) -> bool:
    """Whether a day, up to where it was read, has the rows that it had."""
    for table in MEASURED:
        there = known[table.name].get(date_of(window.start), 0)
        if there < counted.get(table.name, -1):
            return False
        if there > counted.get(table.name, -1) and (
            window.end - window.start == DAY or store.count(table, window) != counted.get(table.name)
        ):
            return False
    return True


def stale(store: Store, until: int) -> list[Window]:
    """What is to be worked out, oldest first, where the hours up to ``until`` (µs UTC) are closed: a window a day."""
    last = until // HOUR * HOUR
    done = days_of(store)
    dates = sorted({one for table in MEASURED for one in store.days(table)})
    epoch = date_of(0)
    days = [(one - epoch).days * DAY for one in dates]
    windows = [Window(day, min(day + DAY, last)) for day in days if day < last]
    return [one for one in windows if done.get(one.start, 0) < one.end]


def covered(store: Store, window: Window) -> list[Window]:
    """The whole hours of a window that are worked out, as windows that follow one another with a gap between."""
    done = days_of(store)
    first, last = -(-window.start // HOUR) * HOUR, window.end // HOUR * HOUR
    spans: list[Window] = []
    for day, until in sorted(done.items()):
        start, end = max(day, first), min(until, last)
        if start >= end:
            continue
        if spans and spans[-1].end == start:
            spans[-1] = Window(spans[-1].start, end)
        else:
            spans.append(Window(start, end))
    return spans


def rest(window: Window, spans: Sequence[Window]) -> list[Window]:
    """What of a window none of these spans, which are in it and in order, covers."""
    edges = [window.start, *(edge for one in spans for edge in (one.start, one.end)), window.end]
    return [Window(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]


def slots(window: Window, store: Store, step: int, bin: int) -> Part:
    """Who sat where in whole hours that are worked out, in cells of ``step`` and bins of ``bin`` µs, multiples of an hour."""
    first, figure = pl.col("at") == window.start, pl.col("figure")
    stays = pl.col("count") + pl.when(first).then("present").otherwise(0)
    rows = store.scan(HOURS, window)
    asked = {
        "held": rows.filter(figure == "held")
        .group_by(*POD, "adapter")
        .agg(
            pl.col("micros").sum(),
            stays=stays.sum(),
            first=pl.col("first").min(),
            last=pl.col("last").max(),
            known=ranked_provenance().max().cast(pl.String),
        ),
        "slots": rows.filter(figure == "slots").select(*LANE, "at", "adapter", "micros", "count"),
        "start": rows.filter(figure == "start").select(*ENGINE, at="first"),
        "course": rows.filter(figure == "course").select(*POD, "at", "count", "loads", "swaps", "provenance"),
        "latency": rows.filter(figure == "latency").group_by(*POOL, pl.col("at") // bin * bin, "step").agg(pl.col("count").sum()),
    }
    with translated(f"reading table {HOURS.name} in {store.root / HOURS.name}", advice=DAMAGED):
        parts = dict(zip(asked, pl.collect_all(list(asked.values()), engine="streaming"), strict=True))
    held = parts["held"]
    pods = pl.concat([parts["course"].select(POD), held.select(POD)]).select(pl.col(POD).fill_null("")).unique()
    known = held.select(pl.col(POD).fill_null("")).unique().with_columns(told=pl.lit(value=True))
    return Part(
        window,
        step,
        int(held["stays"].sum()),
        None,
        _cells(parts["slots"], step),
        held_of([held.drop("known")]),
        parts["start"].sort(*ENGINE, "at"),
        _course(parts["course"], _latency(store, parts["latency"], window, bin), window, bin),
        pods.join(known, on=POD, how="left").with_columns(pl.col("told").fill_null(value=False)).sort(POD),
        held.select(worst_provenance("known")).item(),
    )


def _cells(told: pl.DataFrame, step: int) -> pl.DataFrame:
    """Of several hours in one cell, who was longest in any of them together."""
    cell = (pl.col("at") // step).alias("cell")
    if step == HOUR:
        return told.select(*LANE, cell, "adapter", filled=pl.col("micros") / step, adapters="count").sort(*LANE, "cell")
    summed = told.group_by(*LANE, cell, "adapter").agg(pl.col("micros").sum(), pl.col("count").max())
    return (
        summed.sort("micros", "adapter", descending=[True, False])
        .group_by(*LANE, "cell")
        .agg(
            pl.col("adapter").first(),
            filled=pl.col("micros").first() / step,
            adapters=pl.max_horizontal(pl.len(), pl.col("count").max()).cast(pl.Int64),
        )
        .sort(*LANE, "cell")
    )


def _course(went: pl.DataFrame, waited: pl.DataFrame, window: Window, bin: int) -> pl.DataFrame:
    begin = pl.max_horizontal(pl.col("at"), pl.lit(window.start))
    length = (pl.min_horizontal(pl.lit(window.end), pl.col("at") + bin) - begin) / SECOND
    return (
        went.group_by(*POOL, at=pl.col("at") // bin * bin)
        .agg(
            pl.col("loads", "swaps").sum(),
            requests=pl.col("count").sum(),
            pods=pl.struct("cluster", "pod").n_unique().cast(pl.Int64),
            provenance=worst_provenance(),
        )
        .join(waited, on=[*POOL, "at"], how="left", nulls_equal=True)
        .with_columns(
            latency_of=pl.col("latency_of").fill_null(0),
            requests_per_second=pl.col("requests") / length,
            loads_per_second=pl.col("loads") / length / pl.col("pods"),
            swaps_per_second=pl.col("swaps") / length / pl.col("pods"),
        )
        .select(list(COURSE))
        .sort(*POOL, "at")
    )


def _latency(store: Store, told: pl.DataFrame, window: Window, bin: int) -> pl.DataFrame:
    """
    Median and P95 by pool and bin, off the histograms: of a step, its middle. Those are of pools: of some pods the requests are
    read.
    """
    if told.is_empty():
        aligned = Window(window.start // bin * bin, window.end)
        with reading(store):
            return waits(store.scan(REQUESTS, window), aligned, bin).collect(engine="streaming")
    counted = told.sort("step")
    by = [*POOL, "at"]
    upto = counted.with_columns(upto=pl.col("count").cum_sum().over(by), of=pl.col("count").sum().over(by))

    def quantile(share: float) -> pl.Expr:
        step = pl.col("step").filter(pl.col("upto") >= share * pl.col("of")).min()
        return GROWTH ** (step + 0.5)

    enough = pl.col("of").first() >= LEAST_FOR_P95
    return upto.group_by(by).agg(
        latency_of=pl.col("of").first(), p50_seconds=quantile(0.5), p95_seconds=pl.when(enough).then(quantile(0.95))
    )


def wanted(window: Window, store: Store) -> pl.DataFrame:
    """Requests of each adapter of whole hours that are worked out, of all pods: as :func:`~lora_watch.explore.adapters.asked`."""
    told = store.rows(HOURS, window, pl.col("figure") == "asked", columns=(*KEYS, "at", "count", "first"))
    return told.rename({"at": "hour", "count": "requests"}).select(list(ASKED))


def before(store: Store, moment: int) -> Before:
    """What was asked for in the ``KNOWN_BACK`` before a moment: of closed hours as they are worked out, else of the requests."""
    window = Window(max(moment - KNOWN_BACK, 0), max(moment, 1))
    spans = covered(store, window)
    rows = [wanted(one, store).lazy() for one in spans]
    rows += [asked(one, store).lazy() for one in rest(window, spans)]
    firsts = pl.concat(rows).group_by(KEYS).agg(pl.col("first").min()).collect()
    begun = firsts["first"].min()
    assert begun is None or isinstance(begun, int)
    return Before(firsts, begun)


def looked_at(window: Window, store: Store, step: int) -> pl.DataFrame:
    """Who could be reached, as :func:`~lora_watch.explore.heard.reached`, of whole hours; ``step`` is a multiple of an hour."""
    told = store.rows(HOURS, window, pl.col("figure") == "reached", columns=(*POD, "at", "what", "count", "value"))
    looks = pl.col("count").sum()
    return (
        told.group_by(*POD, pl.col("at") // step * step, endpoint="what")
        .agg(up=(pl.col("value") * pl.col("count")).sum() / looks, looks=looks)
        .select(*POD, "endpoint", "at", "up", "looks")
        .sort(*POD, "endpoint", "at")
    )


def gone(window: Window, store: Store) -> pl.DataFrame:
    """Records that were lost, as :func:`~lora_watch.explore.heard.lost`, of whole hours that are worked out."""
    told = store.rows(HOURS, window, pl.col("figure") == "lost", columns=(*POD, "what", "count", "first", "last"))
    return told.group_by(*POD, reason="what").agg(
        records=pl.col("count").sum(), first=pl.col("first").min(), last=pl.col("last").max()
    )
