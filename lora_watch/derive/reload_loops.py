"""One adapter read again and again in place: a disk and a copy that nobody needs, at about the rate of the engine's steps."""

import polars as pl

from lora_watch.derive.found import structures
from lora_watch.derive.groups import ENGINE, POD, ranked_provenance
from lora_watch.derive.stays import counted
from lora_watch.model import MINUTE, SECOND, Window

PAUSE = MINUTE
"""µs without a reload after which a loop is over: an adapter that is not asked for is not read."""
SHORTEST = 5
"""Reloads that make a row."""
FLAGGED_RELOADS = 20
FLAGGED_PER_SECOND = 0.5
"""An operator who replaces an adapter's files does it some times a day; twenty times with less than 2 s between is a loop."""


def reload_loops(events: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """
    Runs of loads of one adapter into a GPU slot in place: nothing else had to leave, one row each.

    Columns, between the head (pods and adapters: the one) and provenance: ``engine``, ``reloads``, ``reloads_per_second``
    (1 ÷ median time between two), ``steps_per_second`` (engine steps ÷ the time they cover, during the run; null: no `steps`
    records), ``reloads_per_step`` (reloads ÷ steps of the same time), ``disk_reads`` (came from disk), ``reload_seconds``
    (spent on them, reads included; null: not timed), ``lru_evictions`` of that engine in the same time (near 0: nothing had to
    leave).

    A load is in place if its reason says so, or if the record before it among the GPU loads and evictions of its boot is of
    the same adapter: who left and who came are the same. A run goes on while the next reload comes within ``PAUSE``.

    Flagged: 20 reloads or more, and half a reload a second or more. Raising the number of slots does not help here.

    Edge cases. Loads in the window only; a run cut by its edge is two. Failed loads count too: the read was made.
    ``steps`` are those that ended during the run. A load behind its own lru eviction with nothing between is in place.
    """
    kind, adapter = pl.col("kind"), pl.col("adapter")
    inside = pl.col("at").is_between(window.start, window.end, closed="left")
    same_boot = pl.col("stream") == pl.col("stream").shift(1)
    gpu = (
        events.filter((pl.col("tier") == "gpu") & kind.is_in(["load", "evict"]) & counted() & adapter.is_not_null())
        .select(*ENGINE, "adapter", "stream", "seq", "at", "kind", "reason", "from_tier", "seconds", ranked_provenance())
        .sort("stream", "seq")
        .filter(~(same_boot & (pl.col("seq") == pl.col("seq").shift(1))).fill_null(value=False))
        .with_columns(alone=(same_boot & (adapter == adapter.shift(1))).fill_null(value=False))
        .filter(inside)
        .cache()
    )
    again = gpu.filter((kind == "load") & ((pl.col("reason") == "inplace").fill_null(value=False) | pl.col("alone")))
    who = [*ENGINE, "adapter"]
    same = pl.all_horizontal(*(pl.col(column).eq_missing(pl.col(column).shift(1)) for column in who))
    gap = pl.when(same).then(pl.col("at") - pl.col("at").shift(1))
    runs = (
        again.sort(*who, "at")
        .with_columns(gap=gap)
        .with_columns(run=(pl.col("gap") > PAUSE).fill_null(value=True).cast(pl.Int64).cum_sum())
        .with_columns(gap=pl.when(pl.col("gap") <= PAUSE).then("gap"))
        .group_by("run", maintain_order=True)
        .agg(
            *(pl.col(column).first() for column in who),
            start=pl.col("at").min(),
            end=pl.col("at").max() + 1,
            reloads=pl.len().cast(pl.Int64),
            median_gap=pl.col("gap").median(),
            disk_reads=(pl.col("from_tier") == "disk").sum().cast(pl.Int64),
            copy_seconds=pl.when(pl.col("seconds").is_not_null().any()).then(pl.col("seconds").sum()),
            provenance=pl.col("provenance").max().cast(pl.String),
        )
        .filter(pl.col("reloads") >= SHORTEST)
        .cache()
    )
    steps = events.filter(inside & (kind == "steps")).select(*ENGINE, "at", "count", "wall_seconds")
    reads = events.filter(inside & (kind == "load") & (pl.col("tier") == "cpu")).select(*who, "at", read="seconds")
    evictions = gpu.filter((kind == "evict") & (pl.col("reason") == "lru")).select(*ENGINE, "at")
    of_steps = _during(runs, steps, ENGINE).agg(steps=pl.col("count").sum(), wall_seconds=pl.col("wall_seconds").sum())
    of_reads = _during(runs, reads, who).agg(read_seconds=pl.col("read").sum())
    of_evictions = _during(runs, evictions, ENGINE).agg(lru_evictions=pl.len().cast(pl.Int64))
    per_second = pl.when(pl.col("median_gap") > 0).then(SECOND / pl.col("median_gap"))
    return structures(
        runs.join(of_steps, on="run", how="left")
        .join(of_reads, on="run", how="left")
        .join(of_evictions, on="run", how="left")
        .with_columns(
            pods=pl.concat_list("pod"),
            adapters=pl.concat_list("adapter"),
            reloads_per_second=per_second,
            steps_per_second=pl.when(pl.col("wall_seconds") > 0).then(pl.col("steps") / pl.col("wall_seconds")),
            reloads_per_step=pl.when(pl.col("steps") > 0).then(pl.col("reloads") / pl.col("steps")),
            reload_seconds=pl.col("copy_seconds") + pl.col("read_seconds").fill_null(0.0),
            lru_evictions=pl.col("lru_evictions").fill_null(0),
        )
        .with_columns(
            flagged=(pl.col("reloads") >= FLAGGED_RELOADS)
            & ((pl.col("reloads_per_second") >= FLAGGED_PER_SECOND) | (pl.col("median_gap") == 0))
        ),
        (
            "engine",
            "reloads",
            "reloads_per_second",
            "steps_per_second",
            "reloads_per_step",
            "disk_reads",
            "reload_seconds",
            "lru_evictions",
        ),
        by=("start", *POD[3:], "adapters"),
    )


def _during(runs: pl.LazyFrame, rows: pl.LazyFrame, keys: tuple[str, ...] | list[str]) -> "pl.lazyframe.group_by.LazyGroupBy":
    """The rows of each run's keys that lie in it, grouped by run."""
    spans = runs.select(*keys, "run", "start", "end")
    inside = pl.col("at").is_between("start", "end", closed="left")
    return rows.join(spans, on=list(keys), nulls_equal=True).filter(inside).group_by("run")
