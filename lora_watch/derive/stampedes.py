"""One adapter, loaded by several pods at once: a thundering herd that each pod pays for."""

import polars as pl

from lora_watch.derive.clocks import on_one_clock
from lora_watch.derive.found import names_of, structures
from lora_watch.derive.groups import POOL, worst_provenance
from lora_watch.derive.load_spans import load_spans
from lora_watch.model import SECOND, Window

FLAGGED_PODS = 3
"""Pods that make a stampede; two loads may meet by chance, and in a pool of two pods two are all."""
FLAGGED_CHANCE = 0.01
"""Coincidences like this one that independent loads would make in the window; above it there is nothing to explain."""


def stampedes(events: pl.LazyFrame, window: Window, *, offsets: pl.LazyFrame | None = None) -> pl.LazyFrame:
    """
    Groups of loads of one adapter that overlap on two or more pods of a pool, one row each.

    Columns, between the head (pods: those that loaded it) and provenance: ``loads``, ``cold_loads``, ``pods_loading`` (distinct),
    ``most_loads_at_once``, ``span_seconds`` (first beginning to last end), ``load_seconds`` (sum over the loads: what the pods
    paid), ``pool_pods`` (pods of the pool that loaded anything in the window), ``expected_by_chance`` and
    ``tolerance_seconds``.

    Formula: on one clock (:func:`~lora_watch.derive.clocks.clock_offsets`), loads i and j of an adapter overlap if
    ``began_i ≤ at_j + tolerance`` and the other way round; a group is what overlaps one behind another. The tolerance is what
    the two clocks may be off together, 2 × 0.05 s where neither was measured: two loads a tenth of a second apart then count
    as overlapping; ``tolerance_seconds`` is the greatest in the group. ``expected_by_chance = A N μ^(k−1) ÷ (k−1)!`` with N loads
    of the adapter in the window, ``μ = N · (span + tolerance) ÷ window``, k pods and A adapters that the pool loaded: how many
    such groups independent loads of so many adapters would make.

    Flagged: three pods or more (in a pool of two: both), and expected by chance less than 0.01.

    Edge cases. A load belongs to the window in which it ended; a group cut by the window's edge is two. Reloads in place are
    another structure, and preloads were asked for by an API call (a rollout has all pods load the same list): both are left out.
    Loads whose length is unknown are moments. Engines of one pod are one pod.
    """
    spans = load_spans(events).filter(
        pl.col("at").is_between(window.start, window.end, closed="left")
        & ~pl.col("reason").is_in(["inplace", "preload"]).fill_null(value=False)
    )
    on_clock = on_one_clock(spans, offsets, "began", "at").cache()
    who = [*POOL, "adapter"]
    pods = on_clock.group_by(POOL).agg(
        pool_pods=pl.col("pod").n_unique().cast(pl.Int64), pool_adapters=pl.col("adapter").n_unique().cast(pl.Float64)
    )
    earliest, latest = pl.col("began") - pl.col("clock_error"), pl.col("at") + pl.col("clock_error")
    opens = (pl.col("earliest") > pl.col("latest").cum_max().shift(1).over(who)).fill_null(value=True)
    numbered = (
        on_clock.with_columns(earliest=earliest, latest=latest)
        .sort(*who, "earliest", "latest")
        .with_columns(group=opens.cast(pl.Int64).cum_sum(), all_loads=pl.len().over(who).cast(pl.Int64))
        .cache()
    )
    groups = (
        numbered.group_by(*who, "group")
        .agg(
            pods=names_of("pod"),
            start=pl.max_horizontal(pl.col("began").min(), pl.lit(window.start)),
            span_seconds=(pl.col("at").max() - pl.col("began").min()) / SECOND,
            end=pl.col("at").max() + 1,
            loads=pl.len().cast(pl.Int64),
            cold_loads=pl.col("cold").sum().cast(pl.Int64),
            load_seconds=(pl.col("at") - pl.col("began")).sum() / SECOND,
            tolerance_seconds=2 * pl.col("clock_error").max() / SECOND,
            all_loads=pl.col("all_loads").first(),
            provenance=worst_provenance(),
        )
        .with_columns(pods_loading=pl.col("pods").list.len().cast(pl.Int64))
        .filter(pl.col("pods_loading") >= 2)
    )
    others = (pl.col("pods_loading") - 1).cast(pl.Float64)
    met = pl.col("span_seconds") + pl.col("tolerance_seconds")
    mean = pl.col("all_loads") * met / window.seconds
    log_factorial = pl.int_ranges(1, pl.col("pods_loading")).list.eval(pl.element().cast(pl.Float64).log()).list.sum()
    expected = ((pl.col("pool_adapters") * pl.col("all_loads")).log() + others * mean.log() - log_factorial).exp()
    enough = (pl.col("pods_loading") >= FLAGGED_PODS) | (pl.col("pods_loading") == pl.col("pool_pods"))
    return structures(
        groups.join(_most_at_once(numbered), on="group", how="left")
        .join(pods, on=POOL, how="left", nulls_equal=True)
        .with_columns(
            adapters=pl.concat_list("adapter"),
            expected_by_chance=expected,
        )
        .with_columns(flagged=enough & (pl.col("expected_by_chance") < FLAGGED_CHANCE)),
        (
            "loads",
            "cold_loads",
            "pods_loading",
            "most_loads_at_once",
            "span_seconds",
            "load_seconds",
            "pool_pods",
            "expected_by_chance",
            "tolerance_seconds",
        ),
        by=("start", "adapters"),
    )


def _most_at_once(loads: pl.LazyFrame) -> pl.LazyFrame:
    """Of each group the greatest number of loads under way at one moment, to the tolerance."""
    edges = pl.concat(
        [
            loads.select("group", moment="earliest", step=pl.lit(1, dtype=pl.Int64)),
            loads.select("group", moment="latest", step=pl.lit(-1, dtype=pl.Int64)),
        ]
    )
    return (
        edges.sort("group", "moment", "step", descending=[False, False, True])
        .with_columns(under_way=pl.col("step").cum_sum().over("group"))
        .group_by("group")
        .agg(most_loads_at_once=pl.col("under_way").max())
    )
