"""When each worker process of an engine was up, and with how many slots."""

import polars as pl

from lora_watch.derive.groups import ENGINE, said_once, worst_provenance
from lora_watch.derive.snapshots import of_worker

_WORKER_KINDS = ("load", "evict", "use", "release", "pin", "unpin", "steps")


def by_worker() -> pl.Expr:
    """
    True for records that only a worker writes: where its ``start`` is not held, these tell a worker from an API server. Both
    write `start` and `snapshot`: a worker's start says its slots, its snapshot what is in them.
    """
    kind = pl.col("kind")
    return kind.is_in(_WORKER_KINDS) | ((kind == "start") & pl.col("slots").is_not_null()) | of_worker()


def boots(events: pl.LazyFrame) -> pl.LazyFrame:
    """
    One row per boot of a worker: its engine, when it started and ended, its slots, and what its log lost.

    Columns: cluster, pool, role, pod, engine, stream, ``started_at`` (µs UTC of its first `start`; null: not held),
    ``first_at`` and ``last_at`` (first and last record held), ``ended_at`` (null: alive as far as is known), ``ended_by``
    (stop, lost, restart), ``slots``, ``cpu_capacity`` (null: never said), ``tells_uses`` (its
    log says who is in the batch; one made from an engine's own lines does not), ``lost`` (records its `lost` rows count),
    ``provenance``.

    A boot ends at the earliest of its own `stop`, its own `lost` with reason ``killed``, and the next `start` of another boot
    of the same cluster, pod and engine; a `lost` that a reader made up may be later than that start. API servers have no
    slots and no row. Boots of one engine are ordered by ``started_at``, else by ``first_at``: streams share no sequence
    numbers, so here time has to do. Rows said twice count once. Source: docs/event-log-v1.md, *Kinds written by a worker*.
    """
    kind = pl.col("kind")
    start = kind == "start"
    own_end = (kind == "stop") | ((kind == "lost") & (pl.col("reason") == "killed"))
    lost = events.filter(kind == "lost").filter(said_once()).group_by("stream").agg(lost=pl.col("count").sum())
    streams = (
        events.group_by("stream")
        .agg(
            *(pl.col(column).first() for column in ENGINE),
            worker=by_worker().any(),
            started_at=pl.col("at").filter(start).min(),
            tells_uses=(start & pl.col("clock").is_not_null()).any() | (kind == "use").any(),
            first_at=pl.col("at").min(),
            last_at=pl.col("at").max(),
            own_ended_at=pl.col("at").filter(own_end).min(),
            stopped_at=pl.col("at").filter(kind == "stop").min(),
            slots=pl.col("slots").max(),
            cpu_capacity=pl.col("cpu_capacity").max(),
            provenance=worst_provenance(),
        )
        .filter("worker")
    )
    next_start = pl.col("started_at").shift(-1).fill_null(strategy="backward").over("cluster", "pod", "engine")
    own, following = pl.col("own_ended_at"), pl.col("next_started_at")
    ended_by = (
        pl.when(own.is_null() & following.is_null())
        .then(None)
        .when(own.is_null() | (following < own))
        .then(pl.lit("restart"))
        .when(own == pl.col("stopped_at"))
        .then(pl.lit("stop"))
        .otherwise(pl.lit("lost"))
    )
    return (
        streams.sort("cluster", "pod", "engine", pl.coalesce("started_at", "first_at"), "stream")
        .with_columns(next_started_at=next_start)
        .join(lost, on="stream", how="left", maintain_order="left")
        .select(
            *ENGINE,
            "stream",
            "started_at",
            "first_at",
            "last_at",
            ended_at=pl.min_horizontal(own, following),
            ended_by=ended_by,
            slots="slots",
            cpu_capacity="cpu_capacity",
            tells_uses="tells_uses",
            lost=pl.col("lost").fill_null(0),
            provenance="provenance",
        )
    )
