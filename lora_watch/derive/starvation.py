"""Adapters whose requests wait for a slot far longer than those of the others, by name."""

import polars as pl

from lora_watch import names
from lora_watch.derive.found import names_of, structures
from lora_watch.derive.groups import ENGINE, POOL, PROVENANCE, once, ranked_provenance
from lora_watch.derive.step_function import held_samples
from lora_watch.model import SECOND, Window

FEWEST = 20
"""Requests of an adapter: the 95th percentile of fewer is their maximum."""
FLAGGED_SECONDS = 1.0
FLAGGED_RATIO = 3.0
"""Half of three slots' adapters waited 3 to 5 times as long as the others where this was reported; a second is felt."""
FLAGGED_DEFERRED = 1.0
"""Requests that wait for a slot in the mean of the window: somebody does, all the time."""


def starvation(
    requests: pl.LazyFrame, window: Window, *, samples: pl.LazyFrame | None = None, stored: bool = False
) -> pl.LazyFrame:
    """
    How long the requests of each adapter waited to be scheduled, beside the rest of its pool: one row per pool and adapter.

    Columns, between the head (pods: those that served it; adapters: the one) and provenance: ``requests``, ``gave_up`` (of
    them never scheduled), ``wait_p50_seconds``, ``wait_p95_seconds``, ``typical_p95_seconds``, ``ratio`` of the two (null:
    nobody else waits), ``compared_adapters``, ``expected_requests`` (by the rate before the window; null: none held),
    ``deferred_mean`` (requests that engines say wait for a slot; null: no samples).

    Formula: wait = scheduled − queued (arrived, where the engine did not say); of a request that was never scheduled at least
    finished − queued. ``typical_p95_seconds`` is the lower quartile of the p95 of all adapters of the pool with ``FEWEST``
    requests or more: those that are served well, even if half the pool starves. Means hide it: the pool's mean wait may be
    fine.

    Flagged: 20 requests or more, p95 of a second or more and 3 times the typical one, at least four adapters to compare. Or,
    with ``samples`` (of waiting requests by reason), silent: no request of it was scheduled or finished, 20 would have been
    expected by ``requests`` before the window, and in the mean one request or more of the pool is deferred all the time. Who
    waits without end has no row of a finished request; that somebody does the engines say, and who is missing says the past.

    Edge cases. A request is of the window in which it was scheduled, or finished if never: requests that wait still have no
    row, so at the live edge waits look shorter than they are. An adapter that was retired at a time when others starve looks
    silent too. A wait may have other causes than slots (a full batch);
    :mod:`~lora_watch.derive.swap_queue` tells them apart. The load itself comes after scheduling and is no part of it.
    Base model requests are left out, unknown times too. Rows said twice count once; ``stored`` requests are unique as they are.
    """
    moment = pl.coalesce("scheduled", "at")
    came = pl.coalesce("queued", "arrived")
    wait = ((pl.coalesce("scheduled", "finished") - came) / SECOND).clip(lower_bound=0)
    columns = (*POOL, "pod", "adapter", "at", "scheduled", "queued", "arrived", "finished", "provenance")
    here = pl.col("adapter").is_not_null() & (moment < window.end)
    named = once(requests.filter(here), stored=stored).select(columns).cache()
    asked = named.filter(moment >= window.start).with_columns(wait=wait).filter(pl.col("wait").is_not_null())
    each = asked.group_by(*POOL, "adapter").agg(
        pods=names_of("pod"),
        start=came.min(),
        end=moment.max() + 1,
        requests=pl.len().cast(pl.Int64),
        gave_up=pl.col("scheduled").is_null().sum().cast(pl.Int64),
        wait_p50_seconds=pl.col("wait").quantile(0.5),
        wait_p95_seconds=pl.col("wait").quantile(0.95),
        ranked=ranked_provenance().max(),
    )
    first = moment.min().over(POOL)
    before = (
        named.filter(moment < window.start)
        .with_columns(first=first)
        .group_by(*POOL, "adapter")
        .agg(
            past_pods=names_of("pod"),
            expected_requests=pl.len() / ((window.start - pl.col("first").first()) / SECOND) * window.seconds,
            past_ranked=ranked_provenance().max(),
        )
    )
    whole = each.join(before, on=[*POOL, "adapter"], how="full", coalesce=True, nulls_equal=True).with_columns(
        requests=pl.col("requests").fill_null(0),
        gave_up=pl.col("gave_up").fill_null(0),
        pods=pl.coalesce("pods", "past_pods"),
        ranked=pl.coalesce("ranked", "past_ranked"),
    )
    compared = pl.when(pl.col("requests") >= FEWEST).then("wait_p95_seconds")
    p95, other = pl.col("wait_p95_seconds"), pl.col("typical_p95_seconds")
    waits = (pl.col("requests") >= FEWEST) & (pl.col("compared_adapters") >= 4)
    waits &= (p95 >= FLAGGED_SECONDS) & (p95 >= FLAGGED_RATIO * other)
    silent = (pl.col("requests") == 0) & (pl.col("expected_requests") >= FEWEST)
    silent &= pl.col("deferred_mean") >= FLAGGED_DEFERRED
    return structures(
        whole.join(_deferred(samples, window), on=POOL, how="left", nulls_equal=True)
        .with_columns(
            typical_p95_seconds=compared.quantile(0.25).over(POOL),
            compared_adapters=compared.count().over(POOL).cast(pl.Int64),
        )
        .with_columns(
            adapters=pl.concat_list("adapter"),
            start=pl.max_horizontal("start", pl.lit(window.start)).fill_null(window.start),
            end=pl.col("end").fill_null(window.end),
            ratio=pl.when(other > 0).then(p95 / other),
            flagged=waits.fill_null(value=False) | silent.fill_null(value=False),
            provenance=pl.when(pl.col("requests") == 0)
            .then(pl.max_horizontal("ranked", "deferred_ranked"))
            .otherwise("ranked")
            .cast(pl.String),
        ),
        (
            "requests",
            "gave_up",
            "wait_p50_seconds",
            "wait_p95_seconds",
            "typical_p95_seconds",
            "ratio",
            "compared_adapters",
            "expected_requests",
            "deferred_mean",
        ),
        by=("adapters",),
    )


def _deferred(samples: pl.LazyFrame | None, window: Window) -> pl.LazyFrame:
    """Of each pool the mean number of requests deferred over the time that samples cover, added up over its engines."""
    if samples is None:
        nothing = {**dict.fromkeys(POOL, pl.String()), "deferred_mean": pl.Float64(), "deferred_ranked": PROVENANCE}
        return pl.LazyFrame(schema=nothing)
    deferred = pl.col("labels").str.json_path_match("$.reason") == "deferred"
    held = held_samples(samples.filter((pl.col("metric") == names.WAITING_BY_REASON) & deferred), window)
    lasted = (pl.col("end") - pl.col("start")).cast(pl.Float64)
    by_engine = held.group_by(ENGINE).agg(mean=(pl.col("value") * lasted).sum() / lasted.sum(), ranked=ranked_provenance().max())
    return by_engine.group_by(POOL).agg(deferred_mean=pl.col("mean").sum(), deferred_ranked=pl.col("ranked").max())
