"""Requests as streams of uses, and the words for how a result about locality was come by and how far it can be off."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from lora_watch.derive.groups import group_columns, ranked_provenance, said_once
from lora_watch.replay.trace import LONGEST, Trace


class Method(StrEnum):
    """How a curve was come by, best first."""

    ARRIVALS = "arrivals"  # every request in order
    HISTOGRAM = "reuse histogram"  # reuse times of every request, counted as they come
    CHE = "che"  # rates by adapter only


class ErrorClass(StrEnum):
    """How far a result can be off; benchmarks/README.md (*locality*) has the measurements."""

    EXACT = "exact"
    THREE_POINTS = "within 0.03 on steady traffic, 0.06 while a batch job scans"
    INDEPENDENT = "within 0.01 for independent requests; too high for sessions (up to 0.3), too low for many rare adapters (0.1)"
    FADING = "too high while the histogram is younger than its memory"


@dataclass(frozen=True, slots=True)
class Streams:
    """Requests for adapters in order of arrival: ``trace`` with a pod for each row of ``groups``, ``adapters`` by code."""

    groups: pl.DataFrame
    trace: Trace
    adapters: tuple[str, ...]


def came() -> pl.Expr:
    """When a request came (µs UTC): when it was queued, else the first time that is known of it, at last when it finished."""
    return pl.coalesce("queued", "arrived", "scheduled", "at")


def streams(requests: pl.LazyFrame, by: Sequence[str], end: int) -> Streams:
    """
    The requests for an adapter that came before ``end`` (µs UTC), as one stream for each group; a row said twice is one.

    ``groups`` has the group's columns, ``held_from`` (µs UTC: its earliest request here) and ``provenance`` (the worst).
    Requests of one µs are in the order of their logs. Order matters here and nothing else does: a request counts as a use
    when it comes, since when it starts depends on the slots.
    """
    keys = group_columns(by)
    rows = (
        requests.filter(pl.col("adapter").is_not_null() & (came() < end) & (came() >= -LONGEST))
        .select(*keys, *{"adapter", "stream", "seq", "provenance"} - set(keys), came=came())
        .filter(said_once())
        .sort("came", "seq", "stream")
        .select(*keys, *{"adapter", "provenance"} - set(keys), "came")
        .collect()
    )
    groups = (
        rows.lazy()
        .group_by(keys)
        .agg(held_from=pl.col("came").min(), provenance=ranked_provenance().max().cast(pl.String))
        .sort(keys, nulls_last=False)
        .collect()
        .with_row_index("group")
    )
    named = rows.select(pl.col("adapter").unique().sort()).with_row_index("code")
    coded = rows.join(groups.select("group", *keys), on=keys, nulls_equal=True, maintain_order="left").join(
        named, on="adapter", maintain_order="left"
    )
    trace = Trace(
        coded["code"].cast(pl.Int32).to_numpy(),
        adapters=named.height,
        pod=coded["group"].cast(pl.Int32).to_numpy(),
        pods=max(groups.height, 1),
        at=coded["came"].to_numpy().astype(np.int64),
    )
    return Streams(groups.drop("group"), trace, tuple(named["adapter"]))
