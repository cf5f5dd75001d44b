"""
What the page *Adapters* shows: a row an adapter, and of one adapter where it sat, when it was asked for, and who took whose slot.

Numbers of slots are of the last ``SPAN`` of a window: the stays of a month are no table. Requests are of the whole window.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from lora_watch.derive.families import relatives
from lora_watch.derive.groups import POD, POOL, PROVENANCE, ranked_provenance
from lora_watch.explore.queries import FIGURES, Frames, Past
from lora_watch.explore.timeline import reading
from lora_watch.model import DAY, HOUR, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.store.tables import Store

SPAN = 3 * HOUR
"""So much of the end of a window the numbers of slots are of."""
NEW = DAY
"""An adapter is new where it was asked for first so shortly before the end of the window, and the store began earlier."""
KNOWN_BACK = 30 * DAY
"""So far before a window it is looked for whether an adapter was asked for before."""
WEEK = 7 * DAY
KEYS = (*POOL, "adapter")
"""Whom a row is about: prefill and decode pods never share one."""
_MONDAY = 4 * DAY
"""1970 began on a Thursday; hours of the week are counted from Monday."""
ASKED = {**dict.fromkeys(KEYS, pl.String()), "hour": pl.Int64(), "requests": pl.Int64(), "first": pl.Int64()}


@dataclass(frozen=True, slots=True)
class Sat:
    """
    The slots in ``window``. ``adapters``: a row an adapter, ``KEYS`` with what the columns of the page say. ``pods``: a row an
    adapter and pod: ``share`` of the window in a slot, ``stays``, ``resident`` (1: at its end). ``pairs``: who left (``adapter``)
    for whom (``by``), how often (``count``).
    """

    window: Window
    adapters: pl.DataFrame
    pods: pl.DataFrame
    pairs: pl.DataFrame


def sat(store: Store, window: Window, lookback: int) -> Sat:
    """Who sat in the slots in the end of a window. StoreError where a table can't be read."""
    last = Window(max(window.start, window.end - SPAN), window.end)
    read = Frames(store, last, Past(store, lookback, brief=True))
    figures = {
        "residency": FIGURES["residency"](read, KEYS),
        "swaps": FIGURES["swaps"](read, KEYS),
        "misses": FIGURES["misses"](read, KEYS),
    }
    residency, swaps, misses = (figure.collect() for figure in figures.values())
    misses = misses.rename({"warm": "warm_requests", "cold": "cold_requests", "requests": "served"})
    whole = residency.select(
        *KEYS, "p50_seconds", "p95_seconds", "p50_lower_bound_seconds", "completed", "censored", provenance="provenance"
    )
    for part, columns in (
        (swaps, ("swaps", "loads", "warm", "cold")),
        (misses, ("served", "hot", "warm_requests", "cold_requests", "unknown", "miss_ratio")),
        (_loads(store, last, lookback), ("load_seconds", "bytes", "rank")),
        (_pinned(read, store, last, lookback), ("pinned",)),
    ):
        told = [column for column in ("provenance",) if column in part.columns]
        whole = whole.join(
            part.select(*KEYS, *columns, *(pl.col(column).alias(f"{column}_more") for column in told)),
            on=list(KEYS),
            how="full",
            coalesce=True,
            nulls_equal=True,
        )
        if told:
            known = [pl.col(column).cast(PROVENANCE, strict=False) for column in ("provenance", "provenance_more")]
            whole = whole.with_columns(provenance=pl.max_horizontal(known).cast(pl.String)).drop("provenance_more")
    pods = _pods(read, last)
    held = pods.group_by(KEYS).agg(
        pods=pl.len().cast(pl.Int64),
        resident=pl.col("resident").sum(),
        slots_held=pl.col("share").sum(),
        stays=pl.col("stays").sum(),
    )
    adapters = whole.filter(pl.col("adapter").is_not_null()).join(held, on=list(KEYS), how="left", nulls_equal=True)
    return Sat(last, adapters.sort(KEYS), pods, _pairs(read, last))


def asked(window: Window, store: Store) -> pl.DataFrame:
    """Requests of each adapter by the hour in which they finished, and when the first one did: columns ``ASKED``."""
    at = pl.col("at")
    with reading(store):
        return (
            store.scan(REQUESTS, window)
            .filter(pl.col("adapter").is_not_null())
            .group_by(*KEYS, hour=at // HOUR * HOUR)
            .agg(requests=pl.len().cast(pl.Int64), first=at.min())
            .select(list(ASKED))
            .collect(engine="streaming")
        )


@dataclass(frozen=True, slots=True)
class Before:
    """When each adapter was asked for first before a moment (``firsts``: ``KEYS`` and ``first``), and where the store begins."""

    firsts: pl.DataFrame
    begun: int | None


@dataclass(frozen=True, slots=True)
class Known:
    """
    The page's table: ``rows``, most asked for first; ``new`` of them, asked for first since ``since``. ``learning``: the store
    begins so late that nobody knows who is new.
    """

    rows: pl.DataFrame
    new: pl.DataFrame
    learning: bool


def known(told: Sat, requests: pl.DataFrame, earlier: Before, window: Window) -> Known:
    """
    The rows of the slots beside the requests of the window, with family, first request and share.

    ``share`` is of all requests for adapters of the pool in the window. An adapter is ``new`` where its first request is at most
    ``NEW`` before the window's end, unless the store begins later than that.
    """
    counted = requests.group_by(KEYS).agg(pl.col("requests").sum(), pl.col("first").min())
    firsts = pl.concat([earlier.firsts.select(*KEYS, "first"), counted.select(*KEYS, "first")])
    firsts = firsts.group_by(KEYS).agg(first_seen=pl.col("first").min())
    begun = min((at for at in (earlier.begun, firsts["first_seen"].min()) if isinstance(at, int)), default=window.end)
    learning = window.end - begun <= NEW
    pool = pl.col("requests").sum().over(POOL)
    rows = (
        told.adapters.join(counted.drop("first"), on=list(KEYS), how="full", coalesce=True, nulls_equal=True)
        .join(firsts, on=list(KEYS), how="left", nulls_equal=True)
        .with_columns(share=pl.col("requests") / pool)
        .with_columns(new=(pl.col("first_seen") > window.end - NEW) & pl.lit(not learning))
        .join(_families(told, counted), on="adapter", how="left")
    )
    known = pl.col("hot") + pl.col("warm_requests") + pl.col("cold_requests")  # a slot filled too long ago is not known
    rows = rows.with_columns(
        pl.col("new").fill_null(value=False),
        **{
            f"{name}_ratio": pl.when(known > 0).then(pl.col(column) / known)
            for name, column in (("hot", "hot"), ("warm", "warm_requests"), ("cold", "cold_requests"))
        },
    ).sort("requests", *KEYS, descending=[True, *(False for _ in KEYS)], nulls_last=True)
    return Known(rows, rows.filter("new"), learning)


def hours_of_week(requests: pl.DataFrame, adapter: str, window: Window) -> pl.DataFrame:
    """
    Mean requests an hour of an adapter by ``weekday`` (0: Monday) and ``hour`` of the day, UTC: 168 rows. ``mean`` is null where
    the window has no minute of that hour; an hour of which it has a part counts as that part.
    """
    mine = requests.filter(pl.col("adapter") == adapter).group_by("hour").agg(pl.col("requests").sum()).rename({"hour": "at"})
    first, last = window.start // HOUR, (window.end - 1) // HOUR
    hours = pl.DataFrame({"at": pl.Series(range(first, last + 1), dtype=pl.Int64)}).with_columns(pl.col("at") * HOUR)
    inside = pl.min_horizontal(pl.col("at") + HOUR, pl.lit(window.end)) - pl.max_horizontal("at", pl.lit(window.start))
    spent = (
        hours.join(mine, on="at", how="left")
        .with_columns(spot=(pl.col("at") - _MONDAY) % WEEK // HOUR, inside=inside / HOUR)
        .group_by("spot")
        .agg(pl.col("requests").sum(), pl.col("inside").sum())
    )
    grid = pl.DataFrame({"spot": pl.Series(range(168), dtype=pl.Int64)})
    return grid.join(spent, on="spot", how="left").select(
        weekday=pl.col("spot") // 24,
        hour=pl.col("spot") % 24,
        mean=pl.when(pl.col("inside") > 0).then(pl.col("requests") / pl.col("inside")),
    )


def nothing_asked() -> pl.DataFrame:
    """No requests."""
    return pl.DataFrame(schema=ASKED)


def joined(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The requests of several days."""
    return pl.concat([nothing_asked(), *parts])


def _families(told: Sat, counted: pl.DataFrame) -> pl.DataFrame:
    names = {name for frame in (told.adapters, counted) for name in frame["adapter"].to_list() if name is not None}
    found = relatives(names)
    return pl.DataFrame(
        {
            "adapter": [one.name for one in found],
            "family": [one.parent or one.base for one in found],
            "kind": [one.kind for one in found],
        },
        schema={"adapter": pl.String, "family": pl.String, "kind": pl.String},
    )


def _loads(store: Store, last: Window, lookback: int) -> pl.DataFrame:
    """Of each adapter: the median load into a slot in the window, and the newest bytes and rank that are known."""
    kind, at = pl.col("kind"), pl.col("at")
    rows = store.rows(
        ADAPTER_EVENTS,
        Window(last.end - max(lookback, last.end - last.start), last.end),
        (kind == "load") & pl.col("ok").ne_missing(False) & pl.col("adapter").is_not_null(),
        columns=(*KEYS, "at", "tier", "seconds", "bytes", "rank"),
    )
    recent = (at >= last.start) & (pl.col("tier") == "gpu")
    return rows.group_by(KEYS).agg(
        load_seconds=pl.col("seconds").filter(recent).median(),
        **{name: pl.col(name).sort_by("at").drop_nulls().last() for name in ("bytes", "rank")},
    )


def _pinned(read: Frames, store: Store, last: Window, lookback: int) -> pl.DataFrame:
    """On how many pods an adapter is pinned: its last accepted `pin` or `unpin` in a boot is a pin, and it is still there."""
    kind = pl.col("kind")
    said = store.rows(
        ADAPTER_EVENTS,
        Window(last.end - max(lookback, last.end - last.start), last.end),
        kind.is_in(["pin", "unpin"]) & pl.col("ok").ne_missing(False),
        columns=("stream", "seq", "at", "adapter", "kind"),
    )
    held = said.sort("seq").group_by("stream", "adapter").agg(pl.col("kind").last(), pin_at=pl.col("at").last())
    there = read.stays.filter(pl.col("left_at").is_null() | (pl.col("left_at") >= last.end)).collect()
    still = there.join(held.filter(kind == "pin"), on=["stream", "adapter"])
    return (
        still.filter(pl.col("pin_at") >= pl.col("resident_from"))
        .group_by(KEYS)
        .agg(pinned=pl.col("pod").n_unique().cast(pl.Int64))
    )


def _pods(read: Frames, last: Window) -> pl.DataFrame:
    start, end = pl.max_horizontal("resident_from", pl.lit(last.start)), pl.min_horizontal("left", pl.lit(last.end))
    gone = read.gone.select("stream", lost=pl.lit(value=True)).unique()
    return (
        read.stays.filter(pl.col("adapter").is_not_null())
        .with_columns(left=pl.col("left_at").fill_null(last.end))
        .filter((pl.col("resident_from") < last.end) & (pl.col("left") > last.start))
        .join(gone, on="stream", how="left")
        .group_by(*POD, "adapter")
        .agg(
            share=(end - start).sum() / (last.end - last.start),
            stays=pl.len().cast(pl.Int64),
            resident=((pl.col("left") >= last.end) & pl.col("lost").is_null()).any().cast(pl.Int64),
            provenance=ranked_provenance().max().cast(pl.String),
        )
        .sort(*POD, "adapter")
        .collect()
    )


def _pairs(read: Frames, last: Window) -> pl.DataFrame:
    """Swaps by who left and who came: an eviction with reason lru and the load it made room for."""
    kind, stream = pl.col("kind"), pl.col("stream")
    swapped = (
        (stream == stream.shift(1)) & (kind.shift(1) == "evict") & (pl.col("reason").shift(1) == "lru") & pl.col("made_room")
    )
    return (
        read.moves.with_columns(
            victim=pl.when(swapped & (kind == "load") & pl.col("ok").ne_missing(False)).then(pl.col("adapter").shift(1))
        )
        .filter(pl.col("victim").is_not_null() & pl.col("at").is_between(last.start, last.end, closed="left"))
        .group_by(*POOL, adapter="victim", by="adapter")
        .agg(count=pl.len().cast(pl.Int64))
        .sort("count", "adapter", "by", descending=[True, False, False])
        .collect()
    )
