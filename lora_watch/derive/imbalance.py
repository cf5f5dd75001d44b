"""Pods of one pool that do unequal work: requests, and loads."""

import polars as pl

from lora_watch.derive.found import structures
from lora_watch.derive.groups import POD, POOL, ranked_provenance, said_once
from lora_watch.derive.stays import counted
from lora_watch.model import SECOND, Window

FEWEST = 20
"""Requests (or loads) a pod on average below which shares say nothing."""
FLAGGED_RATIO = 2.0
"""Greatest pod ÷ mean; alone it is no finding, for affinity makes pods unequal on purpose."""
FLAGGED_SHARE = 0.55
"""One pod does more than all others together. Simulated: 0.47 on a healthy cluster (Zipf 1.5), 0.56 where adapters have homes."""
FLAGGED_SIGMAS = 6.0
FLAGGED_WAIT_SECONDS = 1.0
FLAGGED_WAIT_RATIO = 3.0
"""Or it makes users wait: on the busiest pod for a second, and three times as long as on the others."""
HOT = 1.5
"""A pod with so many times the mean is named."""
NAMED_SHARE = 0.2
"""An adapter with so much of the greatest pod's requests is named."""


def imbalance(
    requests: pl.LazyFrame, window: Window, *, events: pl.LazyFrame | None = None, pods: pl.LazyFrame | None = None
) -> pl.LazyFrame:
    """
    How unequally requests, and loads, fall on the pods of each pool: one row per pool and ``what``.

    Columns, between the head (pods: those with over 1.5 times the mean, the busiest first; adapters: those with a fifth or
    more of the busiest pod's) and provenance: ``what`` (requests, loads), ``total``, ``pool_pods``, ``mean_per_pod``,
    ``max_per_pod``, ``min_per_pod``, ``max_to_mean_ratio`` (1: equal; the number of pods: all on one), ``max_share``
    (of the total), ``gini_ratio`` (0: equal … 1 − 1/pods), ``sigmas``, ``busiest_wait_p95_seconds`` and
    ``others_wait_p95_seconds`` (from queued to scheduled; null: not told, or what is loads).

    Formula: Gini of the sorted counts x of n pods ``Σ (2i − n − 1) x_i ÷ (n Σ x)``; ``sigmas = (max − mean) ÷ √mean``, what
    a Poisson count of a pod with the mean rate would have to be off.

    Flagged (requests only): ``max_to_mean_ratio`` of 2 or more, at 20 requests a pod or more, and 6 sigmas, if besides one pod
    has 55 % of all requests, or its requests wait a second or more (p95) and three times as long as those of the others. Loads
    follow requests where adapters have homes, so their row explains.

    Edge cases. ``pods`` (rows with cluster, pool, role, pod: boots, events) are pods that were up: one without a request
    counts as 0. Without them only pods with a row are known, and a pod that gets nothing is not seen. A request belongs to the
    window in which it was scheduled, or finished if it never was; base model requests count. A pool with one pod has no row.
    """
    moment = pl.coalesce("scheduled", "at")
    columns = (*POD, "adapter", "stream", "seq", "scheduled", "queued", "arrived", "provenance")
    inside = moment.is_between(window.start, window.end, closed="left")
    asked = requests.filter(inside).select(columns).filter(said_once()).cache()
    counts = [asked.select(*POD, "adapter", ranked=ranked_provenance(), what=pl.lit("requests"))]
    if events is not None:
        load = (pl.col("kind") == "load") & (pl.col("tier") == "gpu") & pl.col("ok").ne_missing(False) & counted()
        inside = pl.col("at").is_between(window.start, window.end, closed="left")
        loads = events.filter(load & inside).filter(said_once())
        counts.append(loads.select(*POD, "adapter", ranked=ranked_provenance(), what=pl.lit("loads")))
    by_adapter = pl.concat(counts).group_by("what", *POD, "adapter").agg(n=pl.len().cast(pl.Int64), ranked=pl.col("ranked").max())
    by_adapter = by_adapter.cache()
    seen = by_adapter.select(POD).unique()
    known = seen if pods is None else pl.concat([seen, pods.select(POD)]).unique()
    everyone = by_adapter.select("what", *POOL).unique().join(known, on=POOL, nulls_equal=True)
    by_pod = everyone.join(
        by_adapter.group_by("what", *POD).agg(n=pl.col("n").sum(), ranked=pl.col("ranked").max()),
        on=["what", *POD],
        how="left",
        nulls_equal=True,
    ).with_columns(n=pl.col("n").fill_null(0))
    group = ["what", *POOL]
    place, total, count = pl.int_range(pl.len()) + 1, pl.col("n").sum(), pl.len()
    mean = pl.col("n").mean()
    whole = (
        by_pod.sort(*group, "n", "pod")
        .group_by(group, maintain_order=True)
        .agg(
            pods=pl.col("pod").filter(pl.col("n") > HOT * mean).reverse(),
            busiest=pl.col("pod").last(),
            total=total,
            pool_pods=count.cast(pl.Int64),
            mean_per_pod=mean,
            max_per_pod=pl.col("n").max(),
            min_per_pod=pl.col("n").min(),
            gini_ratio=((2 * place - count.cast(pl.Int64) - 1) * pl.col("n")).sum() / (count * total),
            ranked=pl.col("ranked").max(),
        )
        .filter((pl.col("pool_pods") > 1) & (pl.col("total") > 0))
    )
    share = pl.col("n") / pl.col("max_per_pod")
    who = (
        by_adapter.filter(pl.col("adapter").is_not_null())
        .join(whole.select(*group, "max_per_pod", pod="busiest"), on=[*group, "pod"], nulls_equal=True)
        .filter(share >= NAMED_SHARE)
        .sort("n", "adapter", descending=[True, False])
        .group_by(group, maintain_order=True)
        .agg(adapters="adapter")
    )
    wait = (pl.col("scheduled") - pl.coalesce("queued", "arrived")).clip(lower_bound=0) / SECOND
    waits = (
        asked.select(*POD, what=pl.lit("requests"), wait=wait)
        .join(whole.select(*group, "busiest"), on=group, nulls_equal=True)
        .group_by(group)
        .agg(
            busiest_wait_p95_seconds=pl.col("wait").filter(pl.col("pod") == pl.col("busiest")).quantile(0.95),
            others_wait_p95_seconds=pl.col("wait").filter(pl.col("pod") != pl.col("busiest")).quantile(0.95),
        )
    )
    waited, others = pl.col("busiest_wait_p95_seconds"), pl.col("others_wait_p95_seconds")
    harms = (waited >= FLAGGED_WAIT_SECONDS) & (waited >= FLAGGED_WAIT_RATIO * others)
    return structures(
        whole.join(who, on=group, how="left", nulls_equal=True)
        .join(waits, on=group, how="left", nulls_equal=True)
        .with_columns(
            adapters=pl.col("adapters").fill_null([]),
            start=pl.lit(window.start),
            end=pl.lit(window.end),
            max_to_mean_ratio=pl.col("max_per_pod") / pl.col("mean_per_pod"),
            max_share=pl.col("max_per_pod") / pl.col("total"),
            sigmas=(pl.col("max_per_pod") - pl.col("mean_per_pod")) / pl.col("mean_per_pod").sqrt(),
            provenance=pl.col("ranked").cast(pl.String),
        )
        .with_columns(
            flagged=(pl.col("what") == "requests")
            & (pl.col("mean_per_pod") >= FEWEST)
            & (pl.col("max_to_mean_ratio") >= FLAGGED_RATIO)
            & (pl.col("sigmas") >= FLAGGED_SIGMAS)
            & ((pl.col("max_share") >= FLAGGED_SHARE) | harms.fill_null(value=False))
        ),
        (
            "what",
            "total",
            "pool_pods",
            "mean_per_pod",
            "max_per_pod",
            "min_per_pod",
            "max_to_mean_ratio",
            "max_share",
            "gini_ratio",
            "sigmas",
            "busiest_wait_p95_seconds",
            "others_wait_p95_seconds",
        ),
        by=("what",),
    )
