"""Batch jobs that ask for one adapter after another: each a few times, all of them within minutes, and again the next night."""

from itertools import pairwise

import numpy as np
import polars as pl

from lora_watch.derive.found import names_of, structures
from lora_watch.derive.groups import POOL, said_once, worst_provenance
from lora_watch.model import MINUTE, SECOND, Window

SPAN = 10 * MINUTE
"""µs within which a job is looked for; a longer one is found in several spans side by side, which are made one."""
RUN_CHANCE = 0.001
"""Expected runs like this one in a span by an adapter's own rate, below which it stands out."""
FEWEST_ADAPTERS = 10
FLAGGED_SHARE = 0.4
"""Of the pool's adapters; the often asked for can't stand out, for their own rate makes such runs."""
FLAGGED_RATIO = 4.0
"""Times the usual number of runs in a span: users' sessions make runs too, all day."""
MOST_SHARE = 0.5
"""Of the requests in the window, that a scan may be: what is nearly all there is interrupts nothing."""
SAME_PERIOD = 0.05
"""Relative spread of the times between scans that is still a period."""


def scans(requests: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """
    Stretches in which many rarely used adapters of a pool were each asked for in one short run, one row each.

    Columns, between the head (pods: those that served the runs; adapters: in the order of their runs) and provenance:
    ``scanned_adapters``, ``pool_adapters`` (asked for in the window), ``requests`` (of the runs), ``requests_per_adapter``,
    ``usual_runs`` (median number of runs in other spans of that length), ``every_seconds`` (time from one scan to the next if
    there are two or more in the window at a regular distance, the same hour each day for instance; else null).

    Formula. For an adapter with N requests in the window of length T (rate λ = N ÷ T), k requests in a row within g seconds
    come up by chance ``λ S (λ g)^(k−1) ÷ (k−1)!`` times in a span of S = 10 minutes; two to eight in a row are tried, and the
    least likely is the run at that place. A run is one that would come up less than ``RUN_CHANCE`` times. Runs of distinct
    adapters are counted in each span, one beginning every five minutes. A scan has runs of ``FEWEST_ADAPTERS`` or more, of
    40 % of the adapters or more, and 4 times as many as the median span. Spans that overlap or touch are one scan; all rows
    are flagged. A scan comes amid other requests: half of all in the window or more is what the pool does, and no scan.

    Edge cases. A window shorter than two spans can't tell a scan from what is usual: no rows. A job that asks for each adapter
    once leaves no runs and is found only through the swaps it makes. Adapters that are asked for once in the window have no
    run. Requests count when they came in (queued, else arrived); rows without either are left out.
    """
    came = pl.coalesce("queued", "arrived")
    asked = (
        requests.filter(came.is_between(window.start, window.end, closed="left") & pl.col("adapter").is_not_null())
        .select(*POOL, "pod", "adapter", "stream", "seq", "provenance", came=came)
        .filter(said_once())
        .sort(*POOL, "adapter", "came")
        .with_row_index("row")
        .cache()
    )
    who = [*POOL, "adapter"]
    count = pl.len().over(who).cast(pl.Float64)
    tried = asked.with_columns(n=count)
    chances = []
    log_factorial = 0.0
    for more in range(1, 8):
        log_factorial += float(np.log(more))
        gap = (pl.col("came").shift(-more).over(who) - pl.col("came")) / SECOND
        mean = (pl.col("n") * gap.clip(lower_bound=0.001) / window.seconds).log()
        chances.append(
            ((pl.col("n") * min(SPAN / SECOND / window.seconds, 1.0)).log() + more * mean - log_factorial).alias(f"chance_{more}")
        )
    names = [f"chance_{more}" for more in range(1, 8)]
    least = pl.min_horizontal(names)
    length = pl.coalesce(*(pl.when(pl.col(name) == least).then(place) for place, name in enumerate(names, start=2)))
    half = (pl.col("came") - window.start) // (SPAN // 2)
    runs = (
        tried.with_columns(chances)
        .with_columns(least=least, length=length)
        .filter(pl.col("least") < np.log(RUN_CHANCE))
        .with_columns(span=pl.concat_list(half, half - 1))
        .explode("span", empty_as_null=False, keep_nulls=False)
        .filter(pl.col("span") >= 0)
        .sort("least", "row")
        .group_by(*who, "span", maintain_order=True)
        .agg(pl.col("came", "length", "pod", "least", "row").first())
        .cache()
    )
    spans = (window.end - window.start) // (SPAN // 2)
    everywhere = pl.LazyFrame({"span": np.arange(max(spans, 1))})
    pools = asked.group_by(POOL).agg(
        pool_adapters=pl.col("adapter").n_unique().cast(pl.Int64), pool_requests=pl.len(), provenance=worst_provenance()
    )
    counts = runs.group_by(*POOL, "span").agg(runs=pl.len().cast(pl.Int64))
    usual = (
        pools.select(POOL)
        .join(everywhere, how="cross")
        .join(counts, on=[*POOL, "span"], how="left", nulls_equal=True)
        .group_by(POOL)
        .agg(usual_runs=pl.col("runs").fill_null(0).median())
    )
    found = (
        counts.join(pools, on=POOL, nulls_equal=True)
        .join(usual, on=POOL, nulls_equal=True)
        .filter(
            (spans >= 4)
            & (pl.col("runs") >= FEWEST_ADAPTERS)
            & (pl.col("runs") >= FLAGGED_SHARE * pl.col("pool_adapters"))
            & (pl.col("runs") >= FLAGGED_RATIO * pl.col("usual_runs"))
        )
        .sort(*POOL, "span")
        .with_columns(scan=(pl.col("span") > pl.col("span").shift(1) + 2).fill_null(value=True).cast(pl.Int64).cum_sum())
        .with_columns(scan=pl.struct(*POOL, "scan").rank("dense"))
    )
    of_scan = (
        runs.join(found, on=[*POOL, "span"], nulls_equal=True)
        .sort("least", "row")
        .unique(["scan", "adapter"], keep="first", maintain_order=True)
        .sort("came", "row")
        .group_by("scan", maintain_order=True)
        .agg(
            *(pl.col(column).first() for column in (*POOL, "pool_adapters", "pool_requests", "usual_runs", "provenance")),
            pods=names_of("pod"),
            adapters=pl.col("adapter").unique(maintain_order=True),
            start=pl.col("came").min(),
            end=pl.col("came").max() + 1,
            requests=pl.col("length").sum().cast(pl.Int64),
            runs=pl.len(),
        )
    )
    amid = of_scan.filter(pl.col("requests") <= MOST_SHARE * pl.col("pool_requests"))
    return structures(
        amid.with_columns(
            flagged=pl.lit(value=True),
            scanned_adapters=pl.col("adapters").list.len().cast(pl.Int64),
            requests_per_adapter=pl.col("requests") / pl.col("runs"),
            every_seconds=pl.col("start").map_batches(_period, return_dtype=pl.Float64, returns_scalar=True).over(POOL),
        ),
        ("scanned_adapters", "pool_adapters", "requests", "requests_per_adapter", "usual_runs", "every_seconds"),
    )


def _period(starts: pl.Series) -> float | None:
    """
    Seconds between starts that come at regular distance, None where they don't or there are fewer than two.

    >>> _period(pl.Series([0, 3_600_000_000, 7_210_000_000])), _period(pl.Series([0, 10, 50]))
    (3605.0, None)

    >>> _period(pl.Series([5])) is None
    True
    """
    between = [(later - earlier) / SECOND for earlier, later in pairwise(sorted(starts.to_list()))]
    if not between:
        return None
    mean = float(np.mean(between))
    return mean if mean > 0 and float(np.ptp(between)) <= SAME_PERIOD * mean else None
