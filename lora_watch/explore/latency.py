"""What the page *Latency* shows: what loads cost in waiting and in GPU time, by replay, with what to hold beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from lora_watch.config import CostSettings
from lora_watch.derive.attribution import around_evictions, attribution
from lora_watch.derive.cost import cost
from lora_watch.derive.groups import POOL
from lora_watch.derive.queue_replay import queue_replay
from lora_watch.diagnose.words import count, percent, span
from lora_watch.explore.around import RESIDENT
from lora_watch.explore.cost import ATTRIBUTED
from lora_watch.explore.markup import Markup
from lora_watch.explore.queries import Frames, Past
from lora_watch.explore.tiles import tile, tiles
from lora_watch.model import MINUTE, Window
from lora_watch.store.tables import Store

WORST = 200
"""Requests that are told one by one: those that waited longest for their first token."""
FEWEST = 20
"""Requests of a minute below which it has no P95."""
WAITS = ("own_load_seconds", "other_load_seconds")


@dataclass(frozen=True, slots=True)
class Latency:
    """
    ``pools``: :func:`~lora_watch.derive.attribution.attribution` by pool, with what
    :func:`~lora_watch.derive.cost.cost` says of it. ``around``: :func:`~lora_watch.derive.attribution.around_evictions` by pool.
    ``course``: a row a pool and minute, ``at`` with requests, p50_seconds, p95_seconds, p95_without_seconds (to the first token;
    null: fewer than ``FEWEST``). ``worst``: requests with the longest waits for their first token.
    """

    window: Window
    pools: pl.DataFrame
    around: pl.DataFrame
    course: pl.DataFrame
    worst: pl.DataFrame


def latency(store: Store, window: Window, lookback: int, settings: CostSettings) -> Latency:
    """
    The cost of loads in the end of a window, ``ATTRIBUTED`` at most: every request is replayed. StoreError where a table can't be
    read.
    """
    part = Window(max(window.start, window.end - ATTRIBUTED), window.end)
    read = Frames(store, part, Past(store, min(lookback, RESIDENT), brief=True))
    replayed = queue_replay(read.requests, read.events)
    told = attribution(replayed, read.events, part, POOL)
    lost = cost(
        read.events,
        part,
        POOL,
        gpus_per_pod=settings.gpus_per_pod,
        gpu_hour_price=settings.gpu_hour_price,
        currency=settings.currency,
    ).collect()
    inside = replayed.filter(pl.col("queued").is_between(part.start, part.end, closed="left"))
    pools = told.join(lost.rename({"provenance": "cost_provenance"}), on=POOL, how="full", coalesce=True, nulls_equal=True).sort(
        POOL
    )
    return Latency(part, pools, around_evictions(replayed, read.events, part, POOL), _course(inside, part), _worst(inside))


def _course(inside: pl.DataFrame, part: Window) -> pl.DataFrame:
    enough = pl.len() >= FEWEST
    known = pl.col("ttft_without_seconds").is_not_null()
    return (
        inside.filter(pl.col("ttft_seconds").is_not_null())
        .group_by(*POOL, at=(pl.col("queued") - part.start) // MINUTE * MINUTE + part.start)
        .agg(
            requests=pl.len().cast(pl.Int64),
            p50_seconds=pl.when(enough).then(pl.col("ttft_seconds").quantile(0.5)),
            p95_seconds=pl.when(enough).then(pl.col("ttft_seconds").quantile(0.95)),
            p95_without_seconds=pl.when(known.sum() >= FEWEST).then(pl.col("ttft_without_seconds").filter(known).quantile(0.95)),
        )
        .sort(*POOL, "at")
    )


def _worst(inside: pl.DataFrame) -> pl.DataFrame:
    rest = pl.col("ttft_seconds") - pl.col("ttft_without_seconds")
    return (
        inside.sort("ttft_seconds", descending=True, nulls_last=True)
        .head(WORST)
        .filter(pl.col("ttft_seconds").is_not_null())
        .select(
            *POOL,
            "pod",
            "adapter",
            "queued",
            "ttft_seconds",
            "own_miss",
            *WAITS,
            "ttft_without_seconds",
            saved_seconds=rest,
            finish_reason="finish_reason",
            provenance="provenance",
        )
    )


def summary(row: Mapping[str, Any]) -> Markup:
    """The four figures of one pool as tiles; ``row`` is one of ``pools``."""
    return tiles([_caused(row), _p95(row), _delay(row), _lost(row)])


def _caused(row: Mapping[str, Any]) -> Markup:
    part, low, high = (row[f"attributable_fraction{end}"] for end in ("", "_low", "_high"))
    return tile(
        "Slow requests that loads made slow",
        "unknown" if part is None else percent(part),
        note=_interval(low, high, percent) if part is not None else _why(row),
        provenance=row["provenance"],
        limit_text=""
        if row["slow_seconds"] is None
        else f"slow: above {span(row['slow_seconds'])}; {count(row['slow'] or 0, 'request')} of {row['requests']:,}",
    )


def _p95(row: Mapping[str, Any]) -> Markup:
    without = row["p95_without_seconds"]
    return tile(
        "P95 to the first token",
        "unknown" if row["p95_seconds"] is None else span(row["p95_seconds"]),
        note="what it would be without loads is unknown" if without is None else f"without loads {span(without)}",
        provenance=row["provenance"],
        limit_text=_error(row["replay_error_seconds"]),
    )


def _delay(row: Mapping[str, Any]) -> Markup:
    delay, own = row["mean_delay_seconds"], row["own_wait_seconds"]
    return tile(
        "Delay by loads, mean of all requests",
        "unknown" if delay is None else _signed(delay),
        note=_interval(row["mean_delay_seconds_low"], row["mean_delay_seconds_high"], _signed) if delay is not None else "",
        provenance=row["provenance"],
        limit_text="" if own is None else f"of it {_signed(own)} for the own adapter, the rest for others' and for the queue",
    )


def _lost(row: Mapping[str, Any]) -> Markup:
    hours, least, ratio = row["gpu_hours_lost"], row["gpu_hours_lost_lower_bound"], row["lost_ratio"]
    known = hours if hours is not None else least
    money = row["money_lost"] if row["money_lost"] is not None else row["money_lost_lower_bound"]
    mark = "" if hours is not None else "> "
    return tile(
        "GPU time that loads took",
        "unknown" if known is None else f"{mark}{known:.3g}",
        unit="" if known is None else "GPU h",
        note="" if ratio is None else f"{percent(ratio)} of all there was",
        provenance=row["cost_provenance"],
        limit_text="a price per GPU hour in the configuration tells it in money"
        if money is None
        else f"{mark}{money:,.2f} {row['currency']}",
    )


def _why(row: Mapping[str, Any]) -> str:
    if not row["requests"]:
        return "no request with a known latency"
    return f"{count(row['unknown_loads'] or 0, 'load')} of unknown length" if row["unknown_loads"] else "nothing was slow"


def _error(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 0.001:
        return "the replay meets the recorded ends"
    return f"the replay misses recorded ends by {span(seconds)} (P95)"


def _interval(low: float | None, high: float | None, told: Any) -> str:
    return "too short for an interval" if low is None or high is None else f"95 % interval {told(low)} … {told(high)}"


def _signed(seconds: float) -> str:
    return f"−{span(-seconds)}" if seconds < 0 else span(seconds)
