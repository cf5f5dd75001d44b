"""How near a pool is to more work than it can do, at a given rate: slots, seats, time for loads, and what it has managed."""

from enum import StrEnum

import polars as pl

from lora_watch.derive.groups import POD, POOL, ranked_provenance, said_once
from lora_watch.model import SECOND, Window

MOST_SHARE = 0.95
"""Share of time in loads above which the rest is not divided by any more: the pool is past its end."""


class Bottleneck(StrEnum):
    """What runs out first."""

    SLOTS = "slots"  # adapters in flight at once against slots: the hard cliff
    SEATS = "seats"  # requests in flight at once against seats in the batch
    LOADS = "loads"  # time that loads take, one after the other
    CAPACITY = "capacity"  # requests a second against what was managed with a queue


def load_seconds(events: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """
    Time that loads took in the window, one row per pool that made any record in it.

    Columns: the pool's, ``loads`` (into GPU slots, successful, inside engine steps), ``load_seconds`` (of these and of the reads
    from disk before them, which are events of their own), ``timed`` (loads whose length is known), ``stall_seconds`` (the mean
    a load: load seconds ÷ timed loads; null without any), ``provenance``. Warm-up and API calls' loads stall no request and
    don't count. Rows said twice count once.
    """
    inside = pl.col("at").is_between(window.start, window.end, closed="left")
    load = (pl.col("kind") == "load") & pl.col("ok").ne_missing(False) & pl.col("in_step").ne_missing(False)
    load &= pl.col("reason").ne_missing("warmup")
    into_slot = load & (pl.col("tier") == "gpu")
    seconds = pl.col("seconds")
    timed = into_slot & seconds.is_not_null()
    return (
        events.filter(inside)
        .select(*POOL, "stream", "seq", "kind", "tier", "ok", "in_step", "reason", "seconds", "provenance")
        .filter(said_once())
        .group_by(*POOL)
        .agg(
            loads=into_slot.sum().cast(pl.Int64),
            load_seconds=seconds.filter(load).sum(),
            timed=timed.sum().cast(pl.Int64),
            provenance=ranked_provenance().max().cast(pl.String),
        )
        .with_columns(stall_seconds=pl.when(pl.col("timed") > 0).then(pl.col("load_seconds") / pl.col("timed")))
    )


def in_flight(requests: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """
    The mean number of requests in flight of each adapter on each pod, from requests that finished in the window.

    Columns: those of a pod, ``adapter`` (null: the base model), ``in_flight`` (Little: ``Σ (finished − scheduled) ÷ window``;
    null where no request has both times), ``requests``, ``seconds`` (mean length), ``provenance``. Where a start is not known the
    time in the queue is taken for part of it. What never finishes is not in it: of a starved adapter there is too little.
    """
    inside = pl.col("at").is_between(window.start, window.end, closed="left")
    length = (pl.col("finished") - pl.coalesce("scheduled", "queued", "arrived")).clip(lower_bound=0) / SECOND
    return (
        requests.filter(inside)
        .select(*POD, "adapter", "stream", "seq", "provenance", length=length)
        .filter(said_once())
        .group_by(*POD, "adapter")
        .agg(
            in_flight=pl.when(pl.col("length").is_not_null().any()).then(pl.col("length").mean() * pl.len() / window.seconds),
            requests=pl.len().cast(pl.Int64),
            seconds=pl.col("length").mean(),
            provenance=ranked_provenance().max().cast(pl.String),
        )
    )


def saturation(flight: pl.LazyFrame, fleet: pl.LazyFrame, demand: pl.LazyFrame) -> pl.DataFrame:
    """
    rho of each pool of ``demand`` at the rate it says: the fullest of four resources, 1 where one runs out.

    ``flight`` as :func:`in_flight` gives it; ``fleet``: one row a pod, its columns, ``slots`` and, where known, ``seats``
    (max_num_seqs); ``demand``: the pool's columns, ``growth`` (the rate asked about ÷ the rate of ``flight``), ``rate`` (asked
    about, requests a second over the pool), ``miss_ratio``, ``stall_seconds``, ``load_share`` (of time, now), ``capacity_rps`` (a
    pod, without loads); each null where unknown.

    Columns: the pool's, ``rho``, ``bottleneck``, ``rho_slots``, ``rho_seats``, ``rho_loads``, ``rho_capacity``,
    ``adapters_in_flight`` (pods added up), ``slots``, ``pods``, ``fullest_pod`` and ``fullest_pod_rho_slots``. Formulas, with f
    requests of an adapter in flight on a pod on average:

    * ``rho_loads = load_share · growth``, the share of its time a pod spends loading (LRU's miss ratio does not depend on the
      rate); where loads are not measured, ``miss_ratio · rate ÷ pods · stall_seconds``, which is too much for a backlog,
      whose waiting requests share loads;
    * a request takes longer where loads take more of the time: ``f' = f · growth · (1 − load_share) ÷ (1 − rho_loads)``;
    * ``rho_slots = Σ (1 − exp(−f')) ÷ slots``: adapters that have a request in flight, which none can evict, by pod and adapter
      as routed now. W(generation time) ÷ slots, the hard cliff: beyond 1 requests wait without end, whatever loads cost;
    * ``rho_seats = Σ f' ÷ seats``;
    * ``rho_capacity = rate ÷ pods ÷ (capacity_rps · (1 − rho_loads))``.

    The highest rate seen without a queue is no capacity: on a pool that never had a queue it makes every daily peak look like
    the end (see benchmarks/README.md, *saturation*). Give ``capacity_rps`` only where a queue told it:
    :func:`lora_watch.derive.capacity.capacity`.
    Edge cases. What a null needs is null; ``rho`` is the greatest of what is known, null where nothing is. Loads of which
    nothing is known count as none in ``f'``. Pods without slots known, or that served nothing, add no slots to doubt:
    ``slots`` is null where any pod's are.
    """
    pods = fleet.select(*POD, "slots", *(["seats"] if "seats" in fleet.collect_schema() else []))
    if "seats" not in pods.collect_schema():
        pods = pods.with_columns(seats=pl.lit(None, dtype=pl.Int64))
    size = pods.group_by(*POOL).agg(
        pods=pl.len().cast(pl.Int64),
        slots=pl.when(pl.col("slots").is_not_null().all()).then(pl.col("slots").sum()),
        seats=pl.when(pl.col("seats").is_not_null().all()).then(pl.col("seats").sum()),
    )
    told = demand.join(size, on=POOL, how="left", nulls_equal=True).with_columns(
        rho_loads=pl.coalesce(
            pl.col("load_share") * pl.col("growth"),
            pl.col("miss_ratio") * pl.col("rate") / pl.col("pods") * pl.col("stall_seconds"),
        )
    )
    free_now = 1 - pl.coalesce("load_share", pl.col("rho_loads") / pl.col("growth"), 0.0).clip(0.0, MOST_SHARE)
    free_then = 1 - pl.col("rho_loads").fill_null(0.0).clip(0.0, MOST_SHARE)
    each = (
        flight.join(
            told.select(*POOL, stretch=pl.col("growth") * free_now / free_then, free=free_then), on=POOL, nulls_equal=True
        )
        .with_columns(then=pl.col("in_flight") * pl.col("stretch"))
        .with_columns(distinct=pl.when(pl.col("adapter").is_not_null()).then(1 - (-pl.col("then")).exp()))
    )
    by_pod = (
        each.group_by(*POD)
        .agg(
            distinct=pl.when(pl.col("in_flight").is_not_null().any()).then(pl.col("distinct").sum()),
            then=pl.when(pl.col("in_flight").is_not_null().any()).then(pl.col("then").sum()),
        )
        .join(pods, on=POD, how="left", nulls_equal=True)
        .with_columns(full=pl.when(pl.col("slots") > 0).then(pl.col("distinct") / pl.col("slots")))
    )
    whole = by_pod.group_by(*POOL).agg(
        adapters_in_flight=pl.when(pl.col("distinct").is_not_null().any()).then(pl.col("distinct").sum()),
        requests_in_flight=pl.when(pl.col("then").is_not_null().any()).then(pl.col("then").sum()),
        fullest_pod=pl.col("pod").sort_by("full", "pod", nulls_last=False).last(),
        fullest_pod_rho_slots=pl.col("full").max(),
    )
    named = {word: f"rho_{word}" for word in Bottleneck}
    return (
        told.join(whole, on=POOL, how="left", nulls_equal=True)
        .with_columns(
            rho_slots=pl.when(pl.col("slots") > 0).then(pl.col("adapters_in_flight") / pl.col("slots")),
            rho_seats=pl.when(pl.col("seats") > 0).then(pl.col("requests_in_flight") / pl.col("seats")),
            rho_capacity=pl.when(pl.col("capacity_rps") > 0).then(
                pl.col("rate") / pl.col("pods") / (pl.col("capacity_rps") * free_then)
            ),
        )
        .with_columns(rho=pl.max_horizontal(*named.values()))
        .select(
            *POOL,
            "rho",
            pl.coalesce(pl.when(pl.col(column) == pl.col("rho")).then(pl.lit(str(word))) for word, column in named.items()).alias(
                "bottleneck"
            ),
            *named.values(),
            "adapters_in_flight",
            "slots",
            "pods",
            "fullest_pod",
            "fullest_pod_rho_slots",
        )
        .sort(*POOL)
        .collect()
    )
