"""Batch jobs that ask for one adapter after another: each a few times, all of them within minutes, and again the next night."""

from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.found import names_of, structures
from lora_watch.derive.groups import POOL, once, ranked_provenance
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
LONGEST_RUN = 8
"""Requests in a row that are tried at most."""
_AT_ONCE = 1 << 18
"""Rows whose chances are worked out at once: few enough that all of it stays in the processor's cache."""
_WHO = (*POOL, "adapter")


def scans(requests: pl.LazyFrame, window: Window, *, stored: bool = False) -> pl.LazyFrame:
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
    run. Requests count when they came in (queued, else arrived); rows without either are left out. Rows said twice count once;
    ``stored`` rows are unique as they are.
    """
    came = pl.coalesce("queued", "arrived")
    inside = requests.filter(came.is_between(window.start, window.end, closed="left") & pl.col("adapter").is_not_null())
    asked = once(inside, stored=stored).select(*_WHO, "pod", ranked_provenance(), came=came)
    everyone = asked.group_by(*_WHO).agg(requests=pl.len(), ranked=pl.col("provenance").max()).collect(engine="streaming")
    pools = (
        everyone.lazy()
        .group_by(POOL)
        .agg(
            pool_adapters=pl.len().cast(pl.Int64),
            pool_requests=pl.col("requests").sum(),
            provenance=pl.col("ranked").max().cast(pl.String),
        )
        .filter(pl.col("pool_adapters") >= FEWEST_ADAPTERS)
        .collect()
        .lazy()
    )
    enough = not pools.collect().is_empty()
    runs = _runs(asked if enough else asked.clear(), everyone, window).lazy()
    spans = (window.end - window.start) // (SPAN // 2)
    everywhere = pl.LazyFrame({"span": np.arange(max(spans, 1))})
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


def _runs(asked: pl.LazyFrame, everyone: pl.DataFrame, window: Window) -> pl.DataFrame:
    """
    Of each adapter and span the least likely run, if it is one: who, ``span``, ``came``, ``length``, ``pod``, ``least`` (log of
    the chance) and ``row`` (its place among all requests, by adapter).
    """
    who = pl.lit(0, dtype=pl.Int64)
    for name in _WHO:
        numbered = pl.Enum(everyone[name].drop_nulls().unique().sort())  # in the order of the names; null comes last
        place = pl.col(name).cast(numbered).to_physical().cast(pl.Int64).fill_null(len(numbered.categories))
        who = who * (len(numbered.categories) + 1) + place
    pod = pl.col("pod").cast(pl.Categorical)
    rows = asked.select("came", pod, who=who).collect(engine="streaming").sort("who", "came")
    row, least, length = _unlikely(rows["who"].to_numpy(), rows["came"].to_numpy(), window)
    half = (pl.col("came") - window.start) // (SPAN // 2)
    return (
        rows[row]
        .with_columns(pl.col("pod").cast(pl.String), row=pl.Series(row), least=pl.Series(least), length=pl.Series(length))
        .join(everyone.select(*_WHO, who=who), on="who")
        .with_columns(span=pl.concat_list(half, half - 1))
        .explode("span", empty_as_null=False, keep_nulls=False)
        .filter(pl.col("span") >= 0)
        .sort("least", "row")
        .group_by(*_WHO, "span", maintain_order=True)
        .agg(pl.col("came", "length", "pod", "least", "row").first())
    )


def _unlikely(
    who: NDArray[np.int64], came: NDArray[np.int64], window: Window
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """
    Rows at which a run begins, the log of its chance and its length; ``who`` and, of each, ``came`` (µs) are in order.

    >>> row, _, length = _unlikely(np.zeros(4, np.int64), np.array([0, 5000, 5001, 5002]) * MINUTE, Window(0, 10_000 * MINUTE))
    >>> row.tolist(), length.tolist()
    ([1, 2], [3, 2])
    """
    ends = np.append(np.flatnonzero(np.diff(who)) + 1, len(who)) if len(who) else np.zeros(0, dtype=np.int64)
    counts = np.diff(ends, prepend=0)
    found: list[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]] = []
    for first in range(0, len(who), _AT_ONCE):
        last = min(first + _AT_ONCE, len(who))
        n = counts[np.searchsorted(ends, np.arange(first, last), side="right")].astype(np.float64)
        spans = np.log(n * min(SPAN / SECOND / window.seconds, 1.0))
        least, length = np.full(last - first, np.inf), np.zeros(last - first, dtype=np.int64)
        log_factorial = 0.0
        for more in range(1, LONGEST_RUN):
            log_factorial += float(np.log(more))
            there = min(last, len(who) - more) - first  # behind the last rows there is nobody
            if there <= 0:
                break
            here, then = slice(first, first + there), slice(first + more, first + more + there)
            gap = (came[then] - came[here]) / SECOND
            mean = np.log(n[:there] * np.maximum(gap, 0.001) / window.seconds)
            chance = np.where(who[then] == who[here], spans[:there] + more * mean - log_factorial, np.inf)
            less = np.flatnonzero(chance < least[:there])
            least[less], length[less] = chance[less], more + 1
        rare = np.flatnonzero(least < np.log(RUN_CHANCE))
        found.append((rare + first, least[rare], length[rare]))
    if not found:
        return np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=np.int64)
    row, least, length = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return row, least, length


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
