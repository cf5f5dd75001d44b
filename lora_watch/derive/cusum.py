"""A second opinion on the miss ratio: evidence, added up, that it has doubled against what is usual at this hour."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from lora_watch.derive.groups import POOL
from lora_watch.model import DAY, HOUR

THRESHOLD = 25.0
"""
Evidence (log of a likelihood ratio) at which an alarm begins. Theory asks 10.6 for an alarm in a month of independent requests;
on a simulated month with drift, batch jobs and restarts 25.9 was needed for one a week.
"""
FLOOR = 0.001
"""The least usual miss ratio: a doubling of nearly nothing is nothing."""
LEARNED_REQUESTS = 200
"""Fewer requests than this at an hour of the week don't tell what is usual then."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """``total`` evidence at ``at`` (µs UTC of the newest minute counted), and since when it has been above 0."""

    total: float = 0.0
    at: int | None = None
    rising_since: int | None = None


def add(evidence: Evidence, at: int, misses: int, requests: int, usual: float, *, most: float = 2 * THRESHOLD) -> Evidence:
    """
    The evidence after one more minute: CUSUM (Page 1954) of the likelihood of ``p1 = 2 p0`` against ``p0 = usual``.

    Formula: ``max(0, S + misses · ln(p1 ÷ p0) + (requests − misses) · ln((1 − p1) ÷ (1 − p0)))``, at most ``most``, so that it
    comes down as fast as it went up; p0 is at least ``FLOOR``, and p1 no more than half way from p0 to 1. Requests count as
    independent: sessions make evidence rise in larger steps. A minute that is not newer than the last changes nothing.
    ValueError where there are more misses than requests.

    >>> round(add(Evidence(), 0, misses=5, requests=10, usual=0.1).total, 2)
    2.88
    """
    if not 0 <= misses <= requests:
        raise ValueError(f"misses are some of the requests, got {misses} of {requests}")
    if evidence.at is not None and at <= evidence.at:
        return evidence
    before = min(max(usual, FLOOR), 1 - 1e-6)
    after = min(2 * before, (1 + before) / 2)
    told = misses * math.log(after / before) + (requests - misses) * math.log((1 - after) / (1 - before))
    total = min(max(evidence.total + told, 0.0), most)
    since = (at if evidence.rising_since is None else evidence.rising_since) if total > 0 else None
    return Evidence(total, at, since)


def usual_miss_ratio(history: pl.DataFrame, at: int) -> pl.DataFrame:
    """
    The miss ratio that is usual at the hour of ``at`` (µs UTC), one row per pool of the history.

    ``history``: the pool's columns, ``hour`` (µs UTC of its start), ``requests`` and ``misses``. Only hours before the day (UTC)
    of ``at`` count, so what is usual changes at midnight and an incident does not become its own yardstick within the day.
    Columns: the pool's, ``usual``, ``basis`` (hour of week, hour of day, every hour), ``requests`` (that it rests on).

    Formula: the median over days of the hours' miss ratios, of the same hour of the week if it was seen on two days or more,
    else of the same hour of the day likewise, else of every hour; each with ``LEARNED_REQUESTS`` or more requests in all. Pools
    for which not even that is there have no row: they are not judged yet.
    """
    today = at // DAY * DAY
    past = history.filter((pl.col("hour") + HOUR <= today) & (pl.col("requests") > 0))
    hour, week = pl.col("hour") // HOUR, 7 * 24
    parts = []
    for order, (basis, like, least) in enumerate(
        (
            ("hour of week", hour % week == at // HOUR % week, 2),
            ("hour of day", hour % 24 == at // HOUR % 24, 2),
            ("every hour", pl.lit(value=True), 1),
        )
    ):
        found = (
            past.filter(like)
            .group_by(*POOL)
            .agg(
                usual=(pl.col("misses") / pl.col("requests")).median(),
                requests=pl.col("requests").sum().cast(pl.Int64),
                seen=pl.len(),
            )
            .filter((pl.col("seen") >= least) & (pl.col("requests") >= LEARNED_REQUESTS))
        )
        parts.append(found.select(*POOL, "usual", "requests", basis=pl.lit(basis), order=pl.lit(order)))
    best = pl.concat(parts).sort("order").unique(list(POOL), keep="first", maintain_order=True)
    return best.select(*POOL, "usual", "basis", "requests").sort(*POOL)


Pool = tuple[str | None, ...]


def cusum(held: Mapping[Pool, Evidence], minutes: pl.DataFrame, history: pl.DataFrame) -> dict[Pool, Evidence]:
    """
    The evidence of each pool (cluster, pool, role) after these minutes, to be carried to the next round.

    ``minutes``: the pool's columns, ``at`` (µs UTC), ``requests`` and ``misses`` of each minute; ``history`` as for
    :func:`usual_miss_ratio`, which is asked once for each hour of the minutes. Minutes of a pool that has no usual miss ratio
    yet are passed over; ``held`` is not changed.
    """
    evidence = dict(held)
    for (hour,), rows in minutes.with_columns(which=pl.col("at") // HOUR).sort("at").group_by("which", maintain_order=True):
        usual = {tuple(row[:3]): row[3] for row in _rows(usual_miss_ratio(history, int(str(hour)) * HOUR), "usual")}
        for row in _rows(rows, "at", "misses", "requests"):
            pool = tuple(row[:3])
            if pool in usual:
                evidence[pool] = add(evidence.get(pool, Evidence()), row[3], row[4], row[5], usual[pool])
    return evidence


def _rows(frame: pl.DataFrame, *columns: str) -> Sequence[tuple]:  # type: ignore[type-arg]  # a row's types are its columns'
    return frame.select(*POOL, *columns).rows()
