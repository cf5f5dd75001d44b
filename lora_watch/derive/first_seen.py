"""When each adapter was first asked for, and how much of the traffic goes to those that are new."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from lora_watch.derive.expected import Expected, announced
from lora_watch.derive.groups import POOL, ranked_provenance, said_once
from lora_watch.model import DAY, HOUR, MINUTE

SCHEMA: dict[str, pl.DataType] = {**dict.fromkeys((*POOL, "adapter"), pl.String()), "first_seen": pl.Int64()}
"""The frame that is carried from round to round: one row per pool and adapter (null: the base model)."""
SHOWN = 50
"""New adapters named in a row, those with most requests first; all are counted."""


@dataclass(frozen=True, slots=True)
class Newness:
    """
    What counts as new (µs): an adapter first seen less than ``age`` ago, among the requests of the last ``span``; a pool that was
    first seen less than ``learning`` ago is still being learned, since on the first day everything is new.
    """

    span: int = 2 * MINUTE
    age: int = HOUR
    learning: int = DAY


USUAL = Newness()
"""Two minutes, an hour, a day."""


def no_first_seen() -> pl.DataFrame:
    """Nothing seen yet."""
    return pl.DataFrame(schema=SCHEMA)


def first_seen(held: pl.DataFrame, requests: pl.LazyFrame) -> pl.DataFrame:
    """
    ``held``, brought up to date with ``requests``: the earliest time a request for each adapter of a pool finished (µs UTC).

    Carry the answer from round to round and hand over new requests only; hand over old ones again and nothing changes, so parts
    of a history merge in any order: ``first_seen(one, other.lazy())`` merges two answers too. An adapter that nobody has asked
    for in a year is not new when it returns, as long as its row is kept.
    """
    names = requests.collect_schema().names()
    seen = pl.col("first_seen") if "first_seen" in names else pl.col("at")
    new = requests.select(*POOL, "adapter", first_seen=seen)
    return (
        pl.concat([held.lazy(), new]).group_by(*POOL, "adapter").agg(pl.col("first_seen").min()).sort(*POOL, "adapter").collect()
    )


def newmass(
    requests: pl.LazyFrame,
    seen: pl.DataFrame,
    end: int,
    *,
    expected: Sequence[Expected] = (),
    newness: Newness = USUAL,
) -> pl.DataFrame:
    """
    The share of requests that goes to new adapters, one row per pool with a request in the last two minutes.

    Columns: the pool's, ``requests`` (of the last ``newness.span`` before ``end``, µs UTC, the base model's included),
    ``newmass`` (share on adapters first seen less than ``newness.age`` before ``end`` and not announced), ``new_adapters``
    (their names, most requests first, at most ``SHOWN``), ``new_count``, ``new_since`` (µs UTC: the first of them),
    ``expected_newmass`` and ``expected_adapters`` (the same of those that ``expected`` announces at ``end``), ``learning`` (the
    pool was first seen less than ``newness.learning`` ago: don't warn), ``learning_until`` (µs UTC), ``provenance``.

    ``seen`` is :func:`first_seen` of everything up to ``end``; an adapter it does not know is new. Requests count when they
    finish, since a row is written then. Rows said twice count once.
    """
    inside = pl.col("at").is_between(end - newness.span, end, closed="left")
    known = seen.filter(pl.col("first_seen") < end)
    began = known.group_by(*POOL).agg(began=pl.col("first_seen").min())
    counted = (
        requests.filter(inside)
        .select(*POOL, "adapter", "stream", "seq", "at", "provenance")
        .filter(said_once())
        .group_by(*POOL, "adapter")
        .agg(count=pl.len().cast(pl.Int64), earliest=pl.col("at").min(), ranked=ranked_provenance().max())
        .collect()
        .join(known, on=[*POOL, "adapter"], how="left", nulls_equal=True)
        .with_columns(pl.min_horizontal("first_seen", "earliest"))
    )
    names = [name for name in counted["adapter"].unique() if name is not None and announced(expected, name, end)]
    fresh = pl.col("adapter").is_not_null() & (pl.col("first_seen") > end - newness.age)
    planned = fresh & pl.col("adapter").is_in(names)
    surprising = fresh & ~pl.col("adapter").is_in(names)

    def named(which: pl.Expr) -> pl.Expr:
        order = [-pl.col("count").filter(which), pl.col("adapter").filter(which)]
        return pl.col("adapter").filter(which).sort_by(order).head(SHOWN)

    def share(which: pl.Expr) -> pl.Expr:
        return pl.col("count").filter(which).sum() / pl.col("count").sum()

    return (
        counted.group_by(*POOL)
        .agg(
            requests=pl.col("count").sum(),
            newmass=share(surprising),
            new_adapters=named(surprising),
            new_count=surprising.sum().cast(pl.Int64),
            new_since=pl.col("first_seen").filter(surprising).min(),
            expected_newmass=share(planned),
            expected_adapters=named(planned),
            provenance=pl.col("ranked").max().cast(pl.String),
        )
        .join(began, on=POOL, how="left", nulls_equal=True)
        .with_columns(learning_until=pl.col("began").fill_null(end) + newness.learning)
        .select(
            *POOL,
            "requests",
            "newmass",
            "new_adapters",
            "new_count",
            "new_since",
            "expected_newmass",
            "expected_adapters",
            learning=pl.col("learning_until") > end,
            learning_until="learning_until",
            provenance="provenance",
        )
        .sort(*POOL)
    )
