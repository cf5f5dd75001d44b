"""The working-set curve: how many adapters a pool, or a pod, is asked for within a span of time."""

from collections.abc import Sequence

import polars as pl

from lora_watch.derive.groups import POOL, group_columns, worst_provenance
from lora_watch.derive.locality import ErrorClass, Method, came, streams
from lora_watch.model import SECOND, Window
from lora_watch.replay.locality import working_set as mean_distinct
from lora_watch.replay.trace import Trace

SPANS = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 320.0, 640.0)
"""Seconds: doubling, and the 300 s within which "pressure" compares the working set with the slots."""


def working_set(
    requests: pl.LazyFrame,
    window: Window,
    by: Sequence[str] = POOL,
    *,
    spans: Sequence[float] = SPANS,
    held_from: int | None = None,
) -> pl.DataFrame:
    """
    W(T) of each group: distinct adapters asked for in the last T seconds, averaged over the time of the window.

    Columns: the group's, ``span_seconds`` (T), ``adapters`` (W(T)), ``averaged_seconds`` (the part of the window the mean is
    of), ``method`` (arrivals), ``error_class`` (exact), ``provenance``. Formula (Denning) and its consequences:
    :func:`lora_watch.replay.locality.working_set`; W is 0 at 0 and rises; it bends down (concave) but
    for what the window's ends cut off.

    A moment of the window counts where the whole of its last T is held: ``held_from`` (µs UTC, the window's start unless told)
    is from when on ``requests`` are complete, so hand over requests from before the window to have W over all of it.
    Edge cases. Spans as long as what is held: null. Groups without a request in the window or the longest span before have no
    row. ValueError for a span below 1 µs, or for none. Base-model requests don't count, rows said twice count once.
    """
    keys = group_columns(by)
    known_from = window.start if held_from is None else held_from
    lengths = [round(span * SECOND) for span in spans]
    if min(lengths, default=0) < 1:
        raise ValueError(f"spans are one or more of at least 1 µs, got {list(spans)} s")
    earliest = max(known_from, window.start - max(lengths))
    told = streams(requests.filter(came() >= earliest), keys, window.end)
    parts = []
    for span, length in zip(spans, lengths, strict=True):
        begin = max(known_from, window.start - length)
        kept = told.trace.at >= begin
        trace = Trace(
            told.trace.adapter[kept],
            adapters=told.trace.adapters,
            pod=told.trace.pods_or_one()[kept],
            pods=told.trace.pods,
            at=told.trace.at[kept],
        )
        mean = mean_distinct(trace, Window(begin, window.end), [length])[: told.groups.height, 0]
        parts.append(
            told.groups.drop("held_from").with_columns(
                span_seconds=pl.lit(float(span)),
                adapters=pl.Series(mean, dtype=pl.Float64).fill_nan(None),
                averaged_seconds=pl.lit(max(window.end - begin - length, 0) / SECOND),
                method=pl.lit(str(Method.ARRIVALS)),
                error_class=pl.lit(str(ErrorClass.EXACT)),
            )
        )
    columns = [*keys, "span_seconds", "adapters", "averaged_seconds", "method", "error_class", "provenance"]
    return pl.concat(parts).select(columns).sort([*keys, "span_seconds"])


def working_set_from_rates(rates: pl.LazyFrame, *, spans: Sequence[float] = SPANS) -> pl.DataFrame:
    """
    W(T) of each pool from rates by adapter alone, as if requests were independent: ``W_T = Σ (1 − exp(−T · rate))``.

    ``rates`` as :func:`lora_watch.derive.rates.rates` gives them. Columns as :func:`working_set` but for ``averaged_seconds``;
    ``method`` is che. Sessions come in bunches and fill a span with fewer adapters than this says.
    """
    keys = [column for column in rates.collect_schema() if column in POOL or column == "pod"]
    rate = pl.col("requests_per_second")
    asked = rates.filter(pl.col("adapter").is_not_null())
    parts = [
        asked.group_by(keys).agg(
            span_seconds=pl.lit(float(span)),
            adapters=(1 - (-span * rate).exp()).sum(),
            method=pl.lit(str(Method.CHE)),
            error_class=pl.lit(str(ErrorClass.INDEPENDENT)),
            provenance=worst_provenance(),
        )
        for span in spans
    ]
    return pl.concat(parts).sort([*keys, "span_seconds"]).collect()
