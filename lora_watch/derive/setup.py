"""How each pod is set up, as far as its own records say: slots, CPU places, ranks, pins, and the adapters it serves."""

from collections.abc import Sequence

import polars as pl

from lora_watch.derive.boots import by_worker
from lora_watch.derive.groups import POD, group_columns, said_once, worst_provenance
from lora_watch.model import Window

KINDS = ("start", "load", "register", "unregister", "pin", "unpin", "evict", "snapshot")
"""Kinds of events that say something about a pod's setting up."""


def setup(events: pl.LazyFrame, requests: pl.LazyFrame, window: Window, by: Sequence[str] = POD) -> pl.LazyFrame:
    """
    One row per pod, of its newest worker.

    Columns: those of ``by``, ``slots`` and ``cpu_capacity`` (null: not said), ``max_rank`` (``max_lora_rank``), ``known``
    (distinct names it was told to serve and not told to forget, or asked for in the window), ``asked`` (requests for an adapter
    in the window), ``pinned`` (names pinned in a slot), ``largest_rank`` and ``largest_bytes`` (of the adapter of the greatest
    rank that was loaded), ``provenance``.

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
        provenance=worst_provenance(),
    )
    pins = _last(own.filter(kind.is_in(["pin", "unpin", "evict"]) & pl.col("ok").ne_missing(False)), keys)
    pinned = pins.filter(kind == "pin").group_by(keys).agg(pinned=pl.col("adapter").n_unique())
    names = _last(before.filter(kind.is_in(["register", "unregister"]) & pl.col("ok").ne_missing(False)), keys)
    asked = requests.filter(pl.col("at").is_between(window.start, window.end, closed="left"))
    served = (
        pl.concat([names.filter(kind == "register").select(*keys, "adapter"), asked.select(*keys, "adapter")])
        .filter(pl.col("adapter").is_not_null())
        .group_by(keys)
        .agg(known=pl.col("adapter").n_unique())
    )
    counted = asked.filter(pl.col("adapter").is_not_null()).group_by(keys).agg(asked=pl.len().cast(pl.Int64))
    return (
        told.join(served, on=keys, how="left", nulls_equal=True)
        .join(pinned, on=keys, how="left", nulls_equal=True)
        .join(counted, on=keys, how="left", nulls_equal=True)
        .with_columns(pl.col("pinned").fill_null(0), pl.col("asked").fill_null(0))
        .select(
            *keys, "slots", "cpu_capacity", "max_rank", "known", "asked", "pinned", "largest_rank", "largest_bytes", "provenance"
        )
    )


def _last(rows: pl.LazyFrame, keys: Sequence[str]) -> pl.LazyFrame:
    """The newest row of each adapter of each pod."""
    return rows.sort("at", "seq").group_by([*keys, "adapter"]).last()
