"""
Rows of our own tables from files: Parquet, CSV and JSON lines, checked cell by cell.

What can't be stored is left out, counted by reason and told with the number of the first such row. What a file need not say is
filled in: `series` of samples; stream and seq of rows that have neither (a hash of the file's content, and the row's number);
`cluster`, `source` and, where the caller vouches for it, `provenance`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from lora_watch.errors import SchemaMismatch, SourceRejected, SourceUnavailable
from lora_watch.model import Provenance
from lora_watch.schema import ADAPTER_EVENTS, COMPUTED, FINDINGS, REQUESTS, SAMPLES, Batch, Table
from lora_watch.sources.base import capped, printable, stream
from lora_watch.sources.event_log import EARLIEST, LATEST
from lora_watch.sources.series import labels_json, series_id

SUFFIXES = {".parquet": "Parquet", ".csv": "CSV", ".jsonl": "JSON lines", ".ndjson": "JSON lines"}
"""What is read, by the end of its name."""
ROWS_A_STEP = 250_000
_ROW = "row of the file"
_MAX_LINE = 4 << 20
_NEEDED = {
    ADAPTER_EVENTS.name: ("pod", "kind"),
    SAMPLES.name: ("pod", "metric", "value"),
    FINDINGS.name: ("finding", "state"),  # they are about a pool
}
"""What the rows of a table must say besides the time and the key."""


@dataclass(frozen=True, slots=True)
class Filling:
    """What rows get that do not say it; ``provenance`` None: rows without one are refused."""

    cluster: str = "default"
    provenance: Provenance | None = None
    source: str = "import"


@dataclass(slots=True)
class _Troubles:
    """Rows left out: reason → how many, and the first."""

    reasons: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, reason: str, count: int, first: int) -> None:
        had, begin = self.reasons.get(reason, (0, first))
        self.reasons[reason] = (had + count, min(begin, first))

    def told(self) -> tuple[str, ...]:
        return capped(
            [
                f"{count} row{'s' if count > 1 else ''} left out (the first is row {first}): {reason}"
                for reason, (count, first) in self.reasons.items()
            ]
        )


class TableFile:
    """
    One file as a source of ``table``: each ``read`` brings the next ROWS_A_STEP rows; ``left`` says whether there are more.

    Rows that bear stream and seq are read in their order and bring the positions of their streams: what is at or below a stored
    position is stored already. The file is read into memory. Raises SourceRejected or SchemaMismatch for a file that is none of
    its kind or lacks a column, SourceUnavailable for one that can't be opened.
    """

    def __init__(self, path: Path, table: Table, filling: Filling, *, rows_a_step: int = ROWS_A_STEP) -> None:
        self.name = filling.source
        self.table = table
        self.problems: tuple[str, ...] = ()
        self._size = rows_a_step
        self._next = 0
        troubles = _Troubles()
        try:
            self._rows = checked(_loaded(path, troubles), table, filling, _content(path), troubles)
        except OSError as error:
            raise SourceUnavailable(f"cannot read {path}: {error.strerror or error}") from error
        except SchemaMismatch as error:
            raise SchemaMismatch(f"{path}: {error}") from error
        except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
            raise SourceRejected(f"{path} is not {SUFFIXES[path.suffix]}: {printable(str(error), 200)}") from error
        self.problems = tuple(f"{path}: {problem}" for problem in troubles.told())

    @property
    def height(self) -> int:
        """Rows that can be stored."""
        return self._rows.height

    @property
    def left(self) -> bool:
        """Are there more rows?"""
        return self._next < self.height

    def taken(self) -> None:
        """What the last ``read`` brought is stored: go on behind it."""
        self._next += self._size

    def read(self, positions: Mapping[str, int], _until: int) -> Batch:
        """The next rows, the same ones until they are ``taken``."""
        rows = self._rows.slice(self._next, self._size)
        if "stream" not in self.table.key:
            return Batch(rows)
        ends = rows.group_by("stream").agg(pl.col("seq").max())
        moved = {name: seq for name, seq in ends.iter_rows() if seq > positions.get(name, -1)}
        return Batch(rows, moved)


def _content(path: Path) -> str:
    """The name of a file's content."""
    digest = blake2b(digest_size=12)
    with path.open("rb") as data:
        while chunk := data.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _loaded(path: Path, troubles: _Troubles) -> pl.DataFrame:
    """The file's rows as it has them, numbered from 1 (of a CSV: behind its heading)."""
    if path.suffix not in SUFFIXES:
        raise SourceRejected(f"{path}: what is read ends in {', '.join(SUFFIXES)}")
    if path.suffix == ".parquet":
        return pl.read_parquet(path, glob=False).with_row_index(_ROW, offset=1)
    if path.suffix == ".csv":
        if not path.stat().st_size:
            raise SourceRejected(f"{path} is empty: a CSV has a heading")
        return pl.read_csv(path, infer_schema=False, glob=False).with_row_index(_ROW, offset=1)
    return _json_lines(path, troubles)


def _json_lines(path: Path, troubles: _Troubles) -> pl.DataFrame:
    columns: dict[str, list[str | None]] = {}
    numbers: list[int] = []
    decoder = msgspec.json.Decoder()
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            record = decoder.decode(line) if len(line) <= _MAX_LINE else None
        except (msgspec.DecodeError, RecursionError):
            record = None
        if not isinstance(record, dict):
            troubles.add("not a JSON object", 1, number)
            continue
        for name in record.keys() - columns.keys():
            columns[name] = [None] * len(numbers)
        for name, cells in columns.items():
            cells.append(_cell(record.get(name)))
        numbers.append(number)
    index = pl.Series(_ROW, numbers, dtype=pl.UInt32)
    return pl.DataFrame([index, *(pl.Series(name, cells, dtype=pl.String) for name, cells in columns.items())])


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as lines:
        number = 1
        while line := lines.readline(_MAX_LINE + 1):
            yield number, line
            while line and not line.endswith(b"\n"):
                line = lines.readline(_MAX_LINE + 1)
            number += 1


def _cell(value: Any) -> str | None:
    """A value of JSON as text: an object or a list becomes JSON again (`labels`, `detail`)."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return labels_json(value)
    return str(value) if isinstance(value, (int, float)) else msgspec.json.encode(value).decode()


def checked(rows: pl.DataFrame, table: Table, filling: Filling, content: str, troubles: _Troubles) -> pl.DataFrame:
    """The rows that ``table`` can hold, conformed, in the order of their key. SchemaMismatch: a column is missing or unknown."""
    rows = rows.drop(*(name for name in COMPUTED if name in rows.columns))
    declared = {name: dtype for name, dtype in table.schema.items() if name not in COMPUTED}
    if unknown := sorted(set(rows.columns) - {_ROW} - set(declared)):
        raise SchemaMismatch(
            f"table {table.name} has no column {', '.join(map(printable, unknown))}; it has {', '.join(declared)}"
        )
    rows = _with_keys(rows, table, content)
    needed = {"at", *table.key, *_NEEDED.get(table.name, ("pod",))}
    if missing := sorted(needed - set(rows.columns) - {"series"}):
        raise SchemaMismatch(f"table {table.name} needs column {', '.join(map(repr, missing))}, which the file lacks")
    for name, dtype in declared.items():
        rows = rows.with_columns(pl.lit(None, dtype=dtype).alias(name)) if name not in rows.columns else rows
    rows = _typed(rows, declared, troubles)
    rows = rows.with_columns(
        pl.col("cluster").fill_null(filling.cluster),
        pl.col("source").fill_null(filling.source),
        pl.col("provenance").fill_null(pl.lit(None if filling.provenance is None else str(filling.provenance), dtype=pl.String)),
    )
    known = [str(one) for one in Provenance]
    checks = {
        "at is not between 2000 and 2100 (µs UTC)": pl.col("at").is_between(EARLIEST, LATEST, closed="left"),
        "it says no provenance; --provenance vouches for such rows": pl.col("provenance").is_not_null(),
        f"its provenance is none of {', '.join(known)}": pl.col("provenance").is_in(known) | pl.col("provenance").is_null(),
        **{f"{name} is empty": pl.col(name).is_not_null() for name in sorted(needed - {"series", "at"})},
    }
    if table is SAMPLES:
        checks["value is not finite"] = pl.col("value").is_finite() | pl.col("value").is_null()
    for reason, holds in checks.items():
        rows = _kept(rows, holds, reason, troubles)
    if table is SAMPLES:
        rows = _named(rows)
    order = [name for name in (*table.key, _ROW) if name in rows.columns]
    return table.conform(rows.sort(order).drop(_ROW))


def _with_keys(rows: pl.DataFrame, table: Table, content: str) -> pl.DataFrame:
    """Stream and seq for rows of events that have neither, and the time of a request from its end."""
    if "stream" in table.key:
        has = {"stream", "seq"} & set(rows.columns)
        if len(has) == 1:
            raise SchemaMismatch(
                f"table {table.name}: the file has {has.pop()!r} alone; a row is named by stream and seq, or by neither"
            )
        if not has:
            rows = rows.with_columns(stream=pl.lit(stream("file", content)), seq=pl.col(_ROW).cast(pl.Int64))
    if table is REQUESTS and "at" not in rows.columns and "finished" in rows.columns:
        rows = rows.with_columns(at=pl.col("finished"))
    return rows


def _typed(rows: pl.DataFrame, declared: Mapping[str, pl.DataType], troubles: _Troubles) -> pl.DataFrame:
    """Each column in its type; a row with a cell that does not fit is left out."""
    for name, dtype in declared.items():
        found = rows.schema[name]
        if found == dtype:
            continue
        if dtype == pl.Boolean and found == pl.String:
            cell = (
                pl.col(name)
                .str.to_lowercase()
                .replace_strict({"true": True, "false": False, "1": True, "0": False}, default=None)
            )
        elif dtype.is_integer() and found.is_float():
            whole = pl.col(name).cast(pl.Int64, strict=False)
            cell = pl.when(whole.cast(pl.Float64) == pl.col(name)).then(whole)
        elif found.is_nested() or (found.is_temporal() and dtype != pl.String):
            raise SchemaMismatch(f"column {name!r} is {found}, not {dtype}; times are µs since 1970, UTC")
        else:
            cell = pl.col(name).cast(dtype, strict=False)
        rows = rows.with_columns(cell.cast(dtype).alias("typed"))
        fits = pl.col("typed").is_not_null() | pl.col(name).is_null()
        rows = _kept(rows, fits, f"{name} is no {_PLAIN.get(dtype.base_type(), dtype)}", troubles)
        rows = rows.with_columns(pl.col("typed").alias(name)).drop("typed")
    return rows


_PLAIN = {pl.Int64: "whole number", pl.Float64: "number", pl.Boolean: "true or false", pl.String: "text"}


def _kept(rows: pl.DataFrame, holds: pl.Expr, reason: str, troubles: _Troubles) -> pl.DataFrame:
    holds = holds.fill_null(value=False)
    out = rows.filter(~holds)
    if out.height:
        troubles.add(reason, out.height, int(out[_ROW].min()))  # type: ignore[arg-type]  # a number: there are rows
        rows = rows.filter(holds)
    return rows


def _named(rows: pl.DataFrame) -> pl.DataFrame:
    """`series` where it is missing, by the rule of the sources; `labels` without any is the empty object."""
    rows = rows.with_columns(pl.col("labels").fill_null("{}"))
    identity = ("cluster", "pod", "metric", "labels", "adapter")
    nameless = rows.filter(pl.col("series").is_null()).select(identity).unique()
    names = nameless.with_columns(named=pl.Series([series_id(*row) for row in nameless.iter_rows()], dtype=pl.String))
    joined = rows.join(names, on=identity, how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(pl.col("series").fill_null(pl.col("named"))).drop("named")
