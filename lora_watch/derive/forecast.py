"""How many requests a pool will get in the next hours, from the same hours before."""

from enum import StrEnum

import polars as pl

from lora_watch.derive.groups import POOL, ranked_provenance, said_once
from lora_watch.model import DAY, HOUR, Window

HISTORY_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(POOL, pl.String()),
    "hour": pl.Int64(),
    "requests": pl.Int64(),
    "provenance": pl.String(),
}
"""The history that is carried: one row per pool and whole hour (µs UTC of its start)."""
HORIZON = 8 * HOUR
WEEKS = 4
"""Weeks looked back for the same hour of the week; days looked back for the same hour of the day are seven."""
LEVEL_HOURS = 3
"""Whole hours whose requests are compared with the same hours of the past, to tell today's level."""
LEVEL_REQUESTS = 50
"""Fewer requests than this, expected or counted, say nothing of today's level."""


class Basis(StrEnum):
    """What a forecast rests on, best first."""

    WEEK = "the same hour of the week"
    DAY = "the same hour of the day, less than a week is held"
    NOW = "the current rate, less than a day is held"


def hourly(requests: pl.LazyFrame, window: Window, *, stored: bool = False) -> pl.DataFrame:
    """
    Requests (the base model's included) by pool and whole hour that lies inside the window; the columns of ``HISTORY_SCHEMA``.

    Rows said twice count once; ``stored`` rows are unique as they are, and a month of them is counted in seconds. Counted when
    they finish. An hour without a request has no row, for it may be an outage of what tells. Answers about windows
    that share no hour are one history when put together.
    """
    first, last = -(-window.start // HOUR) * HOUR, window.end // HOUR * HOUR
    inside = requests.filter(pl.col("at").is_between(first, last, closed="left"))
    once = inside if stored else inside.select(*POOL, "stream", "seq", "at", "provenance").filter(said_once())
    return (
        once.group_by(*POOL, hour=pl.col("at") // HOUR * HOUR)
        .agg(requests=pl.len().cast(pl.Int64), provenance=ranked_provenance().max().cast(pl.String))
        .sort(*POOL, "hour")
        .collect(engine="streaming" if stored else "auto")
    )


def forecast(history: pl.DataFrame, now: pl.DataFrame, end: int, *, horizon: int = HORIZON) -> pl.DataFrame:
    """
    The busiest hour from ``end`` (µs UTC) until ``horizon`` µs later, one row per pool of ``now``.

    ``history`` as :func:`hourly` gives it (hours that are not over by ``end`` don't count); ``now`` has the pool's columns and
    ``requests_per_second``. Columns: the pool's, ``peak_rps`` (the mean rate over that hour, never below the current rate),
    ``peak_at`` (µs UTC, the start of the hour; ``end`` where the current rate is the highest), ``level`` (today against the
    past, 1 where it can't be told), ``hours`` (past hours that the peak rests on), ``method``, ``provenance``.

    Formula: each hour ahead is the median of the same hour of the last ``WEEKS`` weeks; with none of them, of the same hour of
    the last seven days, workday or not; with none of them, the current rate. It is multiplied by today's level: the requests of
    the last ``LEVEL_HOURS`` whole hours ÷ what the same rule says of them.

    Edge cases. ``method`` is that of the peak's hour, or the worst of the hours ahead where the current rate is the highest.
    What comes once (a launch, a holiday) is not in it. A peak shorter than an hour is higher than this. Missing hours are
    unknown and no zeros.
    """
    past = history.filter(pl.col("hour") + HOUR <= end)
    next_hours = pl.int_range(end // HOUR, (end + horizon - 1) // HOUR + 1, eager=True) * HOUR
    last_hours = pl.int_range(end // HOUR - LEVEL_HOURS, end // HOUR, eager=True) * HOUR
    pools = now.select(*POOL, "requests_per_second", "provenance")
    expected = _expected(past, pools, pl.concat([last_hours, next_hours]).rename("hour"), end)
    counted = past.filter(pl.col("hour").is_in(last_hours.implode())).select(*POOL, "hour", actual="requests")
    compared = (
        expected.join(counted, on=[*POOL, "hour"], nulls_equal=True)
        .filter(pl.col("median").is_not_null())
        .group_by(*POOL)
        .agg(pl.col("actual").sum(), usual=pl.col("median").sum())
    )
    told = (pl.col("usual") >= LEVEL_REQUESTS) & (pl.col("actual") >= LEVEL_REQUESTS)
    level = compared.with_columns(level=pl.when(told).then(pl.col("actual") / pl.col("usual")).otherwise(1.0))
    ahead = (
        expected.filter(pl.col("hour").is_in(next_hours.implode()))
        .join(level.select(*POOL, "level"), on=POOL, how="left", nulls_equal=True)
        .with_columns(pl.col("level").fill_null(1.0))
        .with_columns(rate=pl.col("median") * pl.col("level") / 3600)
    )
    basis = pl.Enum([str(word) for word in Basis])
    best = (
        ahead.sort("rate", "hour", descending=[True, False], nulls_last=True)
        .group_by(*POOL, maintain_order=True)
        .agg(
            pl.col("rate", "hour", "level", "hours", "history_provenance").first(),
            best=pl.col("basis").first(),
            worst=pl.col("basis").cast(basis).max().cast(pl.String),
        )
    )
    current = pl.col("requests_per_second")
    higher = (pl.col("rate") > current).fill_null(value=False)
    return (
        pools.join(best, on=POOL, how="left", nulls_equal=True)
        .select(
            *POOL,
            peak_rps=pl.when(higher).then("rate").otherwise(current),
            peak_at=pl.when(higher).then(pl.max_horizontal("hour", pl.lit(end))).otherwise(end),
            level=pl.col("level").fill_null(1.0),
            hours=pl.when(higher).then("hours").otherwise(0).cast(pl.Int64),
            method=pl.when(higher).then("best").otherwise(pl.coalesce("worst", pl.lit(str(Basis.NOW)))),
            provenance=pl.max_horizontal(ranked_provenance(), pl.when(higher).then(ranked_provenance("history_provenance"))).cast(
                pl.String
            ),
        )
        .sort(*POOL)
    )


def _expected(past: pl.DataFrame, pools: pl.DataFrame, hours: pl.Series, end: int) -> pl.DataFrame:
    """For each pool and hour the ``median`` of its like (null: there is none), how many ``hours`` that is, and the ``basis``."""
    wanted = pools.select(*POOL).join(pl.DataFrame({"hour": hours}), how="cross")

    def like(step: int, count: int, basis: Basis, order: int) -> pl.DataFrame:
        back = pl.DataFrame({"back": pl.int_range(1, count + 1, eager=True) * step})
        return (
            wanted.join(back, how="cross")
            .with_columns(before=pl.col("hour") - pl.col("back"))
            .filter(pl.col("before") + HOUR <= end)
            .join(past.rename({"hour": "before"}), on=[*POOL, "before"], nulls_equal=True)
            .group_by(*POOL, "hour")
            .agg(
                median=pl.col("requests").median(),
                hours=pl.len().cast(pl.Int64),
                history_provenance=ranked_provenance().max().cast(pl.String),
                basis=pl.lit(str(basis)),
                order=pl.lit(order),
            )
        )

    found = pl.concat([like(7 * DAY, WEEKS, Basis.WEEK, 0), like(DAY, 7, Basis.DAY, 1)])
    best = found.sort("order").unique([*POOL, "hour"], keep="first", maintain_order=True).drop("order")
    return wanted.join(best, on=[*POOL, "hour"], how="left", nulls_equal=True).with_columns(
        pl.col("basis").fill_null(str(Basis.NOW)), pl.col("hours").fill_null(0)
    )
