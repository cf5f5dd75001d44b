"""Which names each pod's API server was told to serve, or to forget."""

import polars as pl

from lora_watch.derive.groups import POD, ranked_provenance

KINDS = ("register", "unregister", "start")
"""Kinds of events that say it."""


def registry(events: pl.LazyFrame, end: int) -> pl.LazyFrame:
    """
    The last accepted record of each name in the log of each pod's newest API server, as of ``end`` (µs UTC): one row per pod and
    name.

    Columns: those of a pod, ``adapter``, ``kind`` (register: it is served; unregister: it was withdrawn), ``at`` (µs UTC, of
    that record), ``ranked`` (worst provenance, ordered type).

    A server that was replaced took its names with it, also where the new one has none yet: its ``start`` is a record. Refused
    calls (``ok`` false) change nothing. A worker's `start` is no server's. Of servers side by side the last to write counts.
    """
    kind = pl.col("kind")
    named = kind.is_in(["register", "unregister"])
    server = named | ((kind == "start") & (pl.col("detail").str.json_path_match("$.role") == "api").fill_null(value=False))
    said = events.filter(server & (pl.col("at") < end)).select(
        *POD, "stream", "seq", "at", "kind", "adapter", "ok", ranked=ranked_provenance()
    )
    newest = (
        said.group_by(*POD, "stream")
        .agg(last=pl.col("at").max())
        .sort("last", "stream")
        .group_by(POD)
        .agg(pl.col("stream").last())
    )
    return (
        said.filter(named & pl.col("ok").ne_missing(False) & pl.col("adapter").is_not_null())
        .join(newest, on=[*POD, "stream"], how="semi", nulls_equal=True)
        .sort("seq")
        .group_by(*POD, "adapter")
        .agg(pl.col("kind", "at").last(), pl.col("ranked").max())
    )
