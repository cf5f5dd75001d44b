"""Requests that wait for a slot: queued while their adapter is not on the GPU."""

from collections.abc import Sequence

import polars as pl

from lora_watch import names
from lora_watch.derive.groups import (
    BY_POD,
    ENGINE,
    GROUPS,
    PROVENANCE,
    group_columns,
    overlap_seconds,
    ranked_provenance,
    said_once,
)
from lora_watch.derive.misses import adapter_numbers, found_at, numbered
from lora_watch.derive.step_function import held_samples, swept
from lora_watch.model import Provenance, Window


def swap_queue(
    requests: pl.LazyFrame,
    stays: pl.LazyFrame,
    window: Window,
    by: Sequence[str] = BY_POD,
    *,
    samples: pl.LazyFrame | None = None,
) -> pl.LazyFrame:
    """
    How many requests waited for a slot at once, one row per group.

    Columns, after the group's: ``mean_depth`` (sum over engines of ``∫ depth dt ÷ observed seconds``), ``max_depth`` and
    ``nonzero_seconds`` (time with depth > 0) of the whole group, ``requests`` (that waited so), ``unknown`` (requests whose
    wait or whose engine's slots are unknown: left out), ``observed_seconds`` (summed over engines), ``provenance``.

    A request is in the swap queue over ``[queued, scheduled)`` if its adapter was in no slot at ``queued``. It may wait for
    more than a slot (a full batch), so this is an upper bound of what swaps cost; requests that are still waiting have no row
    yet, so at the live edge it is a lower one.

    Engines without any request row in the window fall back on ``samples``: vLLM's waiting requests with reason ``deferred``
    (which counts waits for a KV transfer too), as a step function over the time samples cover, provenance ``activity``;
    ``requests`` is then null. Not when grouped by adapter.

    Edge cases. Groups are those with a request in the window or such samples; a request that waited not at all makes 0, no
    request no row. A wait cut by the window counts with its part. nonzero and observed seconds, and mean times observed, add
    up over adjoining windows.
    """
    keys = group_columns(by)
    named = requests.filter(pl.col("adapter").is_not_null()).filter(said_once())
    queued, scheduled = pl.col("queued"), pl.col("scheduled")
    in_window = pl.col("at").is_between(window.start, window.end, closed="left")
    in_queue = ((queued < window.end) & (scheduled >= window.start)).fill_null(value=False)
    here = named.select(*GROUPS, "at", "queued", "scheduled", "provenance").filter(in_queue | in_window)
    numbers = adapter_numbers(stays)
    watched = stays.select("cluster", "pod", "engine").unique().with_columns(watched=pl.lit(value=True))
    placed = found_at(numbered(here, numbers), numbered(stays, numbers), "queued").join(
        watched, on=["cluster", "pod", "engine"], how="left", nulls_equal=True
    )
    known = pl.col("watched").fill_null(value=False) & queued.is_not_null() & scheduled.is_not_null()
    waiting = known & ~pl.col("resident").fill_null(value=True) & (queued < scheduled)
    classed = placed.with_columns(known=known, waiting=waiting.fill_null(value=False), ranked=ranked_provenance()).cache()
    spans = (
        classed.filter("waiting")
        .select(
            *GROUPS,
            start=pl.max_horizontal("queued", pl.lit(window.start)),
            end=pl.min_horizontal("scheduled", pl.lit(window.end)),
        )
        .filter(pl.col("start") < pl.col("end"))
        .with_columns(height=pl.lit(1.0))
    )
    engines = classed.group_by(list(dict.fromkeys([*ENGINE, *keys]))).agg(
        requests=(pl.col("waiting") & (queued < window.end) & (scheduled > window.start)).sum().cast(pl.Int64),
        unknown=(~pl.col("known")).sum().cast(pl.Int64),
        observed=pl.lit(window.seconds),
        ranked=pl.max_horizontal(pl.col("ranked").max(), pl.col("stay_provenance").max()),
    )
    if samples is not None and "adapter" not in keys:
        deferred = pl.col("labels").str.json_path_match("$.reason") == "deferred"
        held = held_samples(samples.filter((pl.col("metric") == names.WAITING_BY_REASON) & deferred), window).join(
            engines.select(ENGINE), on=ENGINE, how="anti", nulls_equal=True
        )
        spans = pl.concat([spans, held.select(*ENGINE, "start", "end", height="value")], how="diagonal")
        sampled = held.group_by(ENGINE).agg(
            observed=overlap_seconds(pl.col("start"), pl.col("end"), window.start, window.end).sum(),
            ranked=pl.max_horizontal(ranked_provenance().max(), pl.lit(str(Provenance.ACTIVITY), dtype=PROVENANCE)),
        )
        engines = pl.concat([engines, sampled], how="diagonal")
    lasted = overlap_seconds(pl.col("start"), pl.col("end"), window.start, window.end)
    owner = list(dict.fromkeys([*ENGINE, *keys]))
    areas = spans.group_by(owner).agg(area=(pl.col("height") * lasted).sum())
    depth = (
        swept(spans, keys)
        .group_by(keys)
        .agg(max_depth=pl.col("height").max(), nonzero_seconds=pl.col("seconds").filter(pl.col("height") > 0).sum())
    )
    return (
        engines.join(areas, on=owner, how="left", nulls_equal=True)
        .with_columns(mean=pl.col("area").fill_null(0.0) / pl.col("observed"))
        .group_by(keys)
        .agg(
            mean_depth=pl.col("mean").sum(),
            requests=pl.when(pl.col("requests").is_not_null().any()).then(pl.col("requests").sum()),
            unknown=pl.when(pl.col("unknown").is_not_null().any()).then(pl.col("unknown").sum()),
            observed_seconds=pl.col("observed").sum(),
            provenance=pl.col("ranked").max().cast(pl.String),
        )
        .join(depth, on=keys, how="left", nulls_equal=True)
        .select(
            *keys,
            "mean_depth",
            pl.col("max_depth").fill_null(0.0),
            pl.col("nonzero_seconds").fill_null(0.0),
            "requests",
            "unknown",
            "observed_seconds",
            "provenance",
        )
    )
