"""How far the clocks of pods are apart, so that what two of them did can be put in one order."""

import polars as pl

from lora_watch import names
from lora_watch.model import SECOND

_POD = ("cluster", "pod")
UNMEASURED_SECONDS = 0.05
"""How far off a clock nobody measured may be: a host with NTP is within some ten milliseconds."""
MEASURED_SECONDS = 0.005
"""How far off a measured one may still be: half of what an answer of a sidecar takes inside a cluster, and its drift."""


def clock_offsets(samples: pl.LazyFrame) -> pl.LazyFrame:
    """
    One row per pod whose clock was measured: cluster, pod, ``offset`` (µs, its clock − ours) and ``looks``.

    Formula: the median of ``lora_watch:clock_offset_seconds`` over the samples given, so one slow answer moves nothing. A
    clock that was set in the middle is off before or after; hand over samples of the time in question. Values that are no
    finite number are left out.
    """
    measured = samples.filter((pl.col("metric") == names.SAMPLE_CLOCK_OFFSET) & pl.col("value").is_finite())
    return measured.group_by(_POD).agg(
        offset=(pl.col("value").median() * SECOND).round().cast(pl.Int64), looks=pl.len().cast(pl.Int64)
    )


def on_one_clock(rows: pl.LazyFrame, offsets: pl.LazyFrame | None, *times: str) -> pl.LazyFrame:
    """
    The rows with their ``times`` (µs) on our clock, ``time − offset`` of the row's pod, and ``clock_error`` (µs).

    ``clock_error`` is by how much a time may still be off: ``MEASURED_SECONDS`` where the pod's offset is known, else
    ``UNMEASURED_SECONDS`` and the times are as they were.
    """
    known = offsets if offsets is not None else pl.LazyFrame(schema={"cluster": pl.String, "pod": pl.String, "offset": pl.Int64})
    offset = pl.col("offset").fill_null(0)
    error = pl.when(pl.col("offset").is_null()).then(UNMEASURED_SECONDS).otherwise(MEASURED_SECONDS)
    return (
        rows.join(known.select(*_POD, "offset"), on=_POD, how="left", nulls_equal=True)
        .with_columns(*(pl.col(time) - offset for time in times), clock_error=(error * SECOND).round().cast(pl.Int64))
        .drop("offset")
    )
