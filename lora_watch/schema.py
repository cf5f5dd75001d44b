"""The tables, declared once. Rows are conformed on the way in and nothing re-checks them later."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import polars as pl

from lora_watch.errors import SchemaMismatch

BUCKETS = 64
"""Shards of a table: a stable hash of cluster and pod. A shard holds whole pods, so any derivation is right on it."""
COMPUTED = ("date", "bucket")
"""Columns that no source hands over: they follow from the others."""


@dataclass(frozen=True, slots=True)
class Table:
    """One Delta table: its name, columns with types, and the columns that name a row."""

    name: str
    schema: Mapping[str, pl.DataType] = field(hash=False)
    key: tuple[str, ...]

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """
        The frame with exactly this table's columns, in order and type; ``date`` and ``bucket`` are computed.

        A missing nullable column becomes null; a missing key or ``at`` column, a column nobody declared or a value that does not
        fit its type raises SchemaMismatch naming the column.
        """
        if unknown := sorted(set(frame.columns) - set(self.schema)):
            raise SchemaMismatch(
                f"table {self.name} has no column {', '.join(map(repr, unknown))}; it has {', '.join(self.schema)}"
            )
        required = {"at", *self.key} - set(COMPUTED)
        if missing := sorted(required - set(frame.columns)):
            raise SchemaMismatch(f"table {self.name} needs column {', '.join(map(repr, missing))}, which the rows lack")
        columns = []
        for name, dtype in self.schema.items():
            if name in COMPUTED:
                continue
            column = pl.col(name).cast(dtype, strict=True) if name in frame.columns else pl.lit(None, dtype=dtype).alias(name)
            columns.append(column)
        try:
            frame = frame.select(columns)
        except pl.exceptions.PolarsError as error:
            raise SchemaMismatch(f"table {self.name}: a value does not fit its column: {error}") from error
        for name in required:
            if frame[name].null_count():
                raise SchemaMismatch(f"table {self.name}: column {name!r} is never null, {frame[name].null_count()} rows are")
        pods = frame.select("cluster", "pod").unique()
        buckets = pods.with_columns(
            pl.Series("bucket", [bucket_of(cluster or "", pod or "") for cluster, pod in pods.iter_rows()], dtype=pl.Int32)
        )
        frame = frame.join(buckets, on=["cluster", "pod"], how="left", nulls_equal=True, maintain_order="left")
        return frame.with_columns(date=pl.from_epoch("at", time_unit="us").dt.date()).select(list(self.schema))

    def empty(self) -> pl.DataFrame:
        """No rows, all columns."""
        return pl.DataFrame(schema=dict(self.schema))


def bucket_of(cluster: str, pod: str) -> int:
    """
    Shard of a pod, 0 … BUCKETS − 1: a position-weighted sum of the name's bytes, so it never depends on a library's hash version.

    Formula: ``(Σ byte_i · (2i + 1)) mod BUCKETS`` over ``cluster + "/" + pod`` as UTF-8.

    >>> bucket_of("default", "vllm-0"), bucket_of("default", "vllm-1")
    (20, 47)
    """
    return sum(byte * (2 * i + 1) for i, byte in enumerate(f"{cluster}/{pod}".encode())) % BUCKETS


_WHERE: dict[str, pl.DataType] = {
    "at": pl.Int64(),  # µs UTC
    "date": pl.Date(),  # partition
    "bucket": pl.Int32(),  # shard
    "cluster": pl.String(),
    "pool": pl.String(),
    "role": pl.String(),
    "pod": pl.String(),
    "engine": pl.String(),  # data-parallel engines share a pod
}
_HOW: dict[str, pl.DataType] = {"provenance": pl.String(), "source": pl.String()}

ADAPTER_EVENTS = Table(
    "adapter_events",
    MappingProxyType(
        {
            **_WHERE,
            "stream": pl.String(),  # agent/<cluster>/<pod>/<boot>
            "seq": pl.Int64(),
            "kind": pl.String(),  # see docs/event-log-v1.md
            "tier": pl.String(),  # gpu | cpu
            "from_tier": pl.String(),  # cpu | disk for a load into gpu; disk for a load into cpu
            "adapter": pl.String(),
            "adapter_id": pl.Int64(),
            "slot": pl.Int64(),
            "lookup": pl.String(),  # hot | warm | cold: where a `use` found the adapter
            "seconds": pl.Float64(),  # of a load
            "rank": pl.Int64(),
            "bytes": pl.Int64(),
            "reason": pl.String(),
            "in_step": pl.Boolean(),
            "ok": pl.Boolean(),
            "slots": pl.Int64(),  # of `start`: max_loras
            "cpu_capacity": pl.Int64(),  # of `start`: max_cpu_loras
            "count": pl.Int64(),  # of `lost`: records dropped; of `steps`: engine steps
            "wall_seconds": pl.Float64(),  # of `steps`: time the record covers
            "execute_seconds": pl.Float64(),  # of `steps`
            "adapter_seconds": pl.Float64(),  # of `steps`: inside steps, on adapters
            "clock": pl.String(),  # of `steps`: cuda | host
            "detail": pl.String(),  # JSON: what has no column of its own
            **_HOW,
        }
    ),
    key=("stream", "seq"),
)

REQUESTS = Table(
    "requests",
    MappingProxyType(
        {
            **_WHERE,  # at = finished
            "stream": pl.String(),
            "seq": pl.Int64(),
            "request_id": pl.String(),
            "adapter": pl.String(),  # null: the base model
            "arrived": pl.Int64(),  # µs UTC, like every time below; null where the engine did not say
            "queued": pl.Int64(),
            "scheduled": pl.Int64(),
            "first_token": pl.Int64(),
            "finished": pl.Int64(),
            "prompt_tokens": pl.Int64(),
            "generated_tokens": pl.Int64(),
            "cached_tokens": pl.Int64(),
            "preemptions": pl.Int64(),
            "finish_reason": pl.String(),
            **_HOW,
        }
    ),
    key=("stream", "seq"),
)

SAMPLES = Table(
    "samples",
    MappingProxyType(
        {
            **_WHERE,
            "series": pl.String(),  # stable hash of cluster, pod, metric and labels
            "metric": pl.String(),
            "adapter": pl.String(),
            "labels": pl.String(),  # JSON object, keys sorted
            "value": pl.Float64(),
            **_HOW,
        }
    ),
    key=("series", "at"),
)

FINDINGS = Table(
    "findings",
    MappingProxyType(
        {
            **_WHERE,  # at = the look that told this state; pod and engine are null: whom it is about stands in detail
            "id": pl.String(),  # the finding's key and when it opened
            "finding": pl.String(),  # its kind
            "scope": pl.String(),
            "state": pl.String(),  # open | worsening | easing | closed
            "change": pl.String(),  # why this row was written
            "severity": pl.String(),
            "confidence": pl.String(),
            "weight": pl.Float64(),  # how bad it is; null: no finite number
            "told_weight": pl.Float64(),  # the weight that worse and better are measured from
            "since": pl.Int64(),  # µs UTC, like every time below: since when the evidence shows it
            "until": pl.Int64(),  # what the evidence says of its end; null: it goes on
            "opened": pl.Int64(),  # the look that found it first
            "seen": pl.Int64(),  # the last look that found it
            "missed": pl.Int64(),  # the first look that did not any more; null while it is found
            "blind_from": pl.Int64(),  # the look before this one, where it was so long ago that what was between is unknown
            "summary": pl.String(),
            "detail": pl.String(),  # JSON: the whole finding
            **_HOW,
        }
    ),
    key=("id", "at"),
)

HOURS = Table(
    "hours",
    MappingProxyType(
        {
            **_WHERE,  # at = begin of the hour; pod and engine are null where it is about a pool
            "figure": pl.String(),  # slots | held | course | latency | asked | reached | lost | start | read | past
            "slot": pl.Int64(),
            "adapter": pl.String(),
            "what": pl.String(),  # of `reached`: what was looked at; of `lost`: why; of `read`: the table
            "step": pl.Int64(),  # of `latency`: of the histogram; of `read`: the version of what was worked out
            "count": pl.Int64(),
            "present": pl.Int64(),  # of `held`: stays that went on when the hour began
            "micros": pl.Int64(),
            "loads": pl.Int64(),
            "swaps": pl.Int64(),
            "first": pl.Int64(),  # µs UTC
            "last": pl.Int64(),
            "value": pl.Float64(),
            **_HOW,
        }
    ),
    key=("figure", "at"),
)
"""What closed hours say, worked out of the other tables: it can be deleted, and is worked out again."""

ADVICE = Table(
    "advice",
    MappingProxyType(
        {
            **_WHERE,  # at = when it was given; pod and engine are null, it is about a pool
            "id": pl.String(),  # the pool's cluster, name and role, as JSON
            "start": pl.Int64(),  # µs UTC, of the history it was learned from
            "end": pl.Int64(),
            "sentence": pl.String(),
            "detail": pl.String(),  # JSON: the whole recommendation
            **_HOW,
        }
    ),
    key=("id", "at"),
)
"""What was recommended, and when."""

MEASURED = (ADAPTER_EVENTS, REQUESTS, SAMPLES)
"""What was read from outside: where these end, the data end."""
TABLES = (*MEASURED, FINDINGS)
MAINTAINED = (*TABLES, HOURS, ADVICE)
"""What is merged, sorted, and dropped when it is old."""


@dataclass(frozen=True, slots=True)
class Batch:
    """
    What one read brings: rows of one table and how far each stream has come.

    ``positions`` are the new positions of the streams that advanced: every row up to them is in ``rows`` or was before them.
    ``problems`` are things that went wrong beside it (one bad pod, one bad series): said, counted, never fatal.
    ``late_before`` (µs UTC): rows before it had their turn already; those that are new all the same came late and are counted.
    """

    rows: pl.DataFrame
    positions: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    late_before: int | None = None
