"""How often each adapter was asked for: from requests, or from the router's counters where there are no requests."""

from collections.abc import Sequence

import polars as pl

from lora_watch import names
from lora_watch.derive.groups import POD, POOL, group_columns, ranked_provenance, said_once
from lora_watch.model import SECOND, Window


def rates(requests: pl.LazyFrame, window: Window, by: Sequence[str] = POOL) -> pl.LazyFrame:
    """
    Requests by adapter that finished in the window, one row per group and adapter.

    Columns: the group's, ``adapter`` (null: the base model), ``requests``, ``requests_per_second`` (÷ length of the window),
    ``provenance``. Counted when they finish, since a row is written then: by arrival the newest would be missing. Where a queue
    grows this is what the pods got done and less than what was asked. Rows said twice count once; windows add up.
    """
    keys = [*group_columns(by), "adapter"]
    inside = pl.col("at").is_between(window.start, window.end, closed="left")
    return (
        requests.filter(inside)
        .select(*{*keys, "stream", "seq", "provenance"})
        .filter(said_once())
        .group_by(keys)
        .agg(requests=pl.len().cast(pl.Int64), provenance=ranked_provenance().max().cast(pl.String))
        .with_columns(requests_per_second=pl.col("requests") / window.seconds)
        .select(*keys, "requests", "requests_per_second", "provenance")
    )


def rates_from_attempts(samples: pl.LazyFrame, window: Window, by: Sequence[str] = POOL) -> pl.LazyFrame:
    """
    The same columns from the router's counters of scheduling attempts by adapter and pod.

    Formula: the increase of each series over its samples in the window ÷ the seconds between its first and last; a value below
    the one before is a restart, after which the counter began at 0. Series of a group add up; ``requests`` is the rate over the
    whole window, rounded. Hand over the samples of ten minutes: shorter is noise, a longer mean hides that traffic moves.

    Edge cases. A series with fewer than two samples, or whose samples are less than a third of the window apart, has no rate and
    no row; values that are no number are left out. Failed attempts name no endpoint and stand on the router's own pod.
    """
    keys = [*group_columns(by), "adapter"]
    inside = pl.col("at").is_between(window.start, window.end, closed="left")
    value = pl.col("value")
    step = value.diff()
    return (
        samples.filter(inside & (pl.col("metric") == names.EPP_ATTEMPTS[0]) & value.is_finite())
        .unique(["series", "at"], keep="any")
        .sort("series", "at")
        .group_by("series", maintain_order=True)
        .agg(
            *(pl.col(key).first() for key in keys),
            increase=pl.when(step < 0).then(value).otherwise(step).sum(),
            seconds=(pl.col("at").last() - pl.col("at").first()) / SECOND,
            provenance=ranked_provenance().max(),
        )
        .filter(pl.col("seconds") >= window.seconds / 3)
        .with_columns(rate=pl.col("increase") / pl.col("seconds"))
        .group_by(keys)
        .agg(requests_per_second=pl.col("rate").sum(), provenance=pl.col("provenance").max().cast(pl.String))
        .with_columns(requests=(pl.col("requests_per_second") * window.seconds).round().cast(pl.Int64))
        .select(*keys, "requests", "requests_per_second", "provenance")
    )


def at_pods_of(rates: pl.LazyFrame, fleet: pl.LazyFrame) -> pl.LazyFrame:
    """
    The rates of the pods of ``fleet``, in the pool and role that the fleet has them in: a router has its own word for a pool,
    and none for roles.

    ``rates`` as :func:`rates_from_attempts` gives them by pod, ``fleet`` one row a pod. Pods are told by cluster and name, and
    those that the fleet does not have have no row, the router's own (attempts that failed) among them. Of two pods of one name
    the first, in order of pool and role, stands for both.
    """
    known = fleet.select(POD).sort(POD).unique(["cluster", "pod"], keep="first", maintain_order=True)
    return rates.drop("pool", "role").join(known, on=["cluster", "pod"], nulls_equal=True).select(rates.collect_schema().names())
