"""What a pod can do: the rate it managed while requests waited for room in its batch."""

import polars as pl

from lora_watch import names
from lora_watch.derive.groups import POD, POOL, ranked_provenance, said_once
from lora_watch.derive.saturation import MOST_SHARE
from lora_watch.model import MINUTE, Window


def capacity(requests: pl.LazyFrame, samples: pl.LazyFrame, loads: pl.LazyFrame, window: Window) -> pl.DataFrame:
    """
    Requests a second that a pod has managed while others waited for room in its batch: its capacity, if that was ever seen.

    ``loads`` are events. Columns: the pool's, ``capacity_rps`` (a pod, had it no loads: requests finished in its busiest such
    minute, by 95th percentile, ÷ 60 s ÷ the share of the minute without loads), ``minutes``, ``provenance``. A minute of a pod
    counts if each of its samples, two or more, has at least one request waiting for capacity. Pools where that never happened
    have no row: nobody knows what they can do, only that it is more than they were asked.
    """
    inside = pl.col("at").is_between(window.start, window.end, closed="left")
    minute = (pl.col("at") // MINUTE).alias("minute")
    for_room = (pl.col("metric") == names.WAITING_BY_REASON) & pl.col("labels").str.json_path_match("$.reason").eq("capacity")
    full = (
        samples.filter(inside & for_room)
        .group_by(*POD, minute)
        .agg(least=pl.col("value").min(), looks=pl.len(), sample_provenance=ranked_provenance().max())
        .filter((pl.col("least") >= 1) & (pl.col("looks") >= 2))
    )
    done = (
        requests.filter(inside)
        .select(*POD, "stream", "seq", "at", "provenance")
        .filter(said_once())
        .group_by(*POD, minute)
        .agg(count=pl.len(), ranked=ranked_provenance().max())
    )
    loading = (pl.col("kind") == "load") & pl.col("in_step").ne_missing(False) & pl.col("reason").ne_missing("warmup")
    spent = (
        loads.filter(inside & loading)
        .select(*POD, "stream", "seq", "at", "seconds")
        .filter(said_once())
        .group_by(*POD, minute)
        .agg(spent=pl.col("seconds").sum())
    )
    free = 1 - (pl.col("spent").fill_null(0.0) / 60).clip(0.0, MOST_SHARE)
    return (
        full.join(done, on=[*POD, "minute"], nulls_equal=True)
        .join(spent, on=[*POD, "minute"], how="left", nulls_equal=True)
        .group_by(*POOL)
        .agg(
            capacity_rps=(pl.col("count") / 60 / free).quantile(0.95, "linear"),
            minutes=pl.len().cast(pl.Int64),
            provenance=pl.max_horizontal("ranked", "sample_provenance").max().cast(pl.String),
        )
        .sort(*POOL)
        .collect()
    )
