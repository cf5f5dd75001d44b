"""How each pod is set up, as far as its own records say: slots, CPU places, ranks, pins, and the adapters it serves."""

from collections.abc import Sequence

import polars as pl

from lora_watch.derive.boots import by_worker
from lora_watch.derive.groups import POD, group_columns, said_once, worst_provenance
from lora_watch.derive.registry import KINDS as NAMING
from lora_watch.derive.registry import registry
from lora_watch.model import Window

KINDS = (*NAMING, "load", "pin", "unpin", "evict", "snapshot")
"""Kinds of events that say something about a pod's setting up."""


def setup(events: pl.LazyFrame, requests: pl.LazyFrame, window: Window, by: Sequence[str] = POD) -> pl.LazyFrame:
    """
    One row per pod, of its newest worker.

    Columns: those of ``by``, ``slots`` and ``cpu_capacity`` (null: not said), ``max_rank`` (``max_lora_rank``), ``known``
    (distinct names that its newest API server serves, :func:`~lora_watch.derive.registry.registry`, or that were asked for in the
    window), ``asked`` (requests for an adapter in the window), ``pinned`` (names pinned in a slot), ``largest_rank`` and
    ``largest_bytes`` (of the adapter of the greatest rank that was loaded), ``since`` (µs UTC, the worker's first record),
    ``known_at`` (µs UTC of each of the ``known``, the earliest first: registered, or first asked for in the window),
    ``pinned_at`` (of each of the ``pinned``, likewise), ``provenance``.

    ``known`` is a lower bound where names were registered before the events begin and nobody asked for them. ``cpu_capacity``
    equal to ``slots`` is vLLM's default. A pin ends with its adapter's evict. Null is unknown: an API server that never wrote
    has no names. Source: docs/event-log-v1.md.
    """
    keys = group_columns(by)
    before = events.filter(pl.col("at") < window.end).filter(said_once())
    kind = pl.col("kind")
    worker = before.filter(by_worker())
    newest = worker.sort("at").group_by(keys).agg(stream=pl.col("stream").last())
    own = worker.join(newest, on=[*keys, "stream"], how="semi", nulls_equal=True)
    rank, size = pl.col("rank"), pl.col("bytes")
    told = own.group_by(keys).agg(
        slots=pl.col("slots").drop_nulls().last(),
        cpu_capacity=pl.col("cpu_capacity").drop_nulls().last(),
        max_rank=pl.col("detail").str.json_path_match("$.max_rank").cast(pl.Int64, strict=False).drop_nulls().max(),
        largest_rank=rank.max(),
        largest_bytes=size.filter(rank == rank.max()).max(),
        since=pl.col("at").min(),
        provenance=worst_provenance(),
    )
    pins = _last(own.filter(kind.is_in(["pin", "unpin", "evict"]) & pl.col("ok").ne_missing(False)), keys)
    pinned = pins.filter(kind == "pin").group_by(keys).agg(pinned=pl.col("adapter").n_unique(), pinned_at=pl.col("at").sort())
    served_names = registry(before, window.end).filter(kind == "register")
    inside = pl.col("at").is_between(window.start, window.end, closed="left") & pl.col("adapter").is_not_null()
    by_name = requests.filter(inside).group_by(*keys, "adapter").agg(pl.col("at").min(), asked=pl.len().cast(pl.Int64))
    asked = by_name.collect(engine="streaming").lazy()
    served = (
        pl.concat([rows.select(*keys, "adapter", "at") for rows in (served_names, asked)])
        .filter(pl.col("adapter").is_not_null())
        .group_by(*keys, "adapter")
        .agg(pl.col("at").min())
        .group_by(keys)
        .agg(known=pl.len().cast(pl.UInt32), known_at=pl.col("at").sort())
    )
    counted = asked.group_by(keys).agg(pl.col("asked").sum())
    return (
        told.join(served, on=keys, how="left", nulls_equal=True)
        .join(pinned, on=keys, how="left", nulls_equal=True)
        .join(counted, on=keys, how="left", nulls_equal=True)
        .with_columns(pl.col("pinned").fill_null(0), pl.col("asked").fill_null(0))
        .select(
            *(*keys, "slots", "cpu_capacity", "max_rank", "known", "asked", "pinned", "largest_rank", "largest_bytes"),
            *("since", "known_at", "pinned_at", "provenance"),
        )
    )


def _last(rows: pl.LazyFrame, keys: Sequence[str]) -> pl.LazyFrame:
    """The newest row of each adapter of each pod."""
    return rows.sort("at", "seq").group_by([*keys, "adapter"]).last()
