"""
The store: one Delta table per ``schema.Table`` under one folder, positions committed together with the rows.

The rule that makes writing exactly once, for any number of writers and through any crash:

1. open a handle and take the positions from it; 2. fetch; 3. refuse a position that does not increase; 4. commit rows and new
positions *with that handle*. A writer that committed one of the same streams in between makes step 4 fail with
``StoreConflict``; then everything starts again from 1. A crash before 4 leaves nothing, a crash after 4 leaves everything.
"""

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import polars as pl
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    PostCommitHookProperties,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType

from lora_watch.errors import SchemaMismatch, StoreConflict, StoreError, StoreFull
from lora_watch.model import Window
from lora_watch.schema import Batch, Table, bucket_of

ROW_GROUP = 131_072
"""Rows a row group: between 64k and 256k decode fastest and still prune well."""
WRITER = WriterProperties(compression="ZSTD", compression_level=3, max_row_group_size=ROW_GROUP)
_CONFIGURATION = {
    "delta.logRetentionDuration": "interval 1 days",
    "delta.setTransactionRetentionDuration": "interval 400 days",  # longer than any outage: forgotten is repeated
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.checkpointInterval": "100",
    "delta.dataSkippingNumIndexedCols": "12",
}
_EARLIEST_COMMIT = 1_793_000_000_000
"""A commit is never dated before this (ms, autumn 2026): a clock set back to 1970 would have its positions expire at once."""
DAMAGED = "a file of it is gone or damaged: a running `lora-watch serve` strikes it from the table, so that the rest can be read"
UNREADABLE = "its log is damaged: put the folder back from a copy, or move it away and a new one is begun"
_DELTA_TYPES: dict[pl.datatypes.DataTypeClass, PrimitiveType] = {
    pl.Int64: PrimitiveType("long"),
    pl.Int32: PrimitiveType("integer"),
    pl.Float64: PrimitiveType("double"),
    pl.String: PrimitiveType("string"),
    pl.Boolean: PrimitiveType("boolean"),
    pl.Date: PrimitiveType("date"),
}


@dataclass(frozen=True, slots=True)
class Appended:
    """
    What one append did: ``rows`` were new, ``duplicates`` were stored already, ``regressed`` streams offered nothing newer.

    Of the new rows, ``lost`` adds up what `lost` records stand for, ``late`` came after their turn (see ``Batch.late_before``).
    """

    rows: int
    duplicates: int = 0
    regressed: tuple[str, ...] = ()
    lost: int = 0
    late: int = 0


class Positions(Mapping[str, int]):
    """How far each stream has come in one table; looked up in the log once, then remembered. Iterates what was looked up."""

    def __init__(self, handle: DeltaTable, known: dict[str, int | None]) -> None:
        self._handle = handle
        self._known = known

    def __getitem__(self, stream: str) -> int:
        if stream not in self._known:
            self._known[stream] = self._handle.transaction_version(stream)
        position = self._known[stream]
        if position is None:
            raise KeyError(stream)
        return position

    def __iter__(self) -> Iterator[str]:
        return (stream for stream, position in self._known.items() if position is not None)

    def __len__(self) -> int:
        return sum(position is not None for position in self._known.values())


class Ledger:
    """
    One writer's view of one table: a handle, and the positions that go with it.

    Positions are remembered across appends only as long as nobody else commits; any foreign commit empties the memory, so that
    what is remembered is always what the handle's version says.
    """

    def __init__(self, root: Path, table: Table) -> None:
        self.table = table
        self._path = root / table.name
        self._handle = open_or_create(self._path, table)
        self._version = self._handle.version()
        self._known: dict[str, int | None] = {}

    def refresh(self) -> Positions:
        """
        The positions as they are now: step 1 of the rule.

        StoreError where the version that the handle knows is not there any more: somebody deleted or replaced the folder. What
        such a handle wrote would be in no table, so take a new ledger.
        """
        with translated(f"reading the log of table {self.table.name} in {self._path}"):
            self._handle.update_incremental()
        if not _has_version(self._path, self._handle.version()):
            raise StoreError(
                f"table {self.table.name} in {self._path} is not the one that was opened: was the folder deleted or replaced? "
                "The next tick opens what is there, or begins anew with what the logs of the agents still hold"
            )
        self._settle(self._handle.version())
        return Positions(self._handle, self._known)

    def append(self, batch: Batch, *, at: int) -> Appended:
        """
        Commit a batch's rows and positions, or neither: steps 3 and 4. ``at`` is the time of the commit, µs UTC.

        Raises StoreConflict where another writer moved one of the streams since ``refresh``, StoreFull where no space is left.
        Rows of a stream whose offered position does not increase are refused with it (they are stored already).
        """
        positions = Positions(self._handle, self._known)
        moved, regressed = {}, []
        for stream, position in batch.positions.items():
            if position > positions.get(stream, -(2**62)):
                moved[stream] = position
            else:
                regressed.append(stream)
        rows, duplicates = self._new_rows(batch, positions, set(regressed))
        if rows.is_empty() and not moved:
            return Appended(0, duplicates, tuple(regressed))
        dated = max(at // 1000, _EARLIEST_COMMIT)
        properties = CommitProperties(app_transactions=[Transaction(s, p, dated) for s, p in moved.items()])
        hooks = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)
        with translated(f"writing {rows.height} rows to table {self.table.name} in {self._path}"):
            write_deltalake(
                self._handle,
                rows,
                mode="append",
                writer_properties=WRITER,
                commit_properties=properties,
                post_commithook_properties=hooks,
            )
        self._settle(self._handle.version(), own_commit=True)
        self._known.update(moved)
        lost = rows.filter(pl.col("kind") == "lost")["count"].sum() if "kind" in rows.columns else 0
        late = 0 if batch.late_before is None else rows.filter(pl.col("at") < batch.late_before).height
        return Appended(rows.height, duplicates, tuple(regressed), int(lost), late)

    def _settle(self, version: int, *, own_commit: bool = False) -> None:
        if version != self._version + (1 if own_commit else 0):
            self._known.clear()
        self._version = version

    def _new_rows(self, batch: Batch, positions: Positions, regressed: set[str]) -> tuple[pl.DataFrame, int]:
        rows = batch.rows.unique(subset=self.table.key, keep="first", maintain_order=True)
        repeated = batch.rows.height - rows.height
        if "stream" in self.table.key:  # exact by (stream, seq): a seq at or below the stream's position is stored
            stored = {stream: positions.get(stream, -1) for stream in rows["stream"].unique().to_list()}
            limits = pl.DataFrame(
                {"stream": list(stored), "_stored": list(stored.values())}, schema={"stream": pl.String, "_stored": pl.Int64}
            )
            fresh = rows.join(limits, on="stream", how="left", maintain_order="left").filter(pl.col("seq") > pl.col("_stored"))
            fresh = fresh.filter(~pl.col("stream").is_in(sorted(regressed))).drop("_stored")
        elif rows.is_empty():
            fresh = rows
        else:
            window = Window(rows["at"].min(), rows["at"].max() + 1)  # type: ignore[arg-type, operator]  # never null
            stored_keys = scan(self._handle, self.table, window).select(self.table.key)
            with translated(f"looking for stored rows in table {self.table.name} in {self._path}"):
                fresh = rows.join(stored_keys.collect(engine="streaming"), on=self.table.key, how="anti", maintain_order="left")
        return fresh, repeated + rows.height - fresh.height


class Handles:
    """
    Tables that are open for reading, each as of its newest version: reading a log takes as long as a small question to the table.
    Threads may share it.
    """

    def __init__(self) -> None:
        self._held: dict[Path, tuple[DeltaTable, tuple[int, int] | None]] = {}

    def newest(self, path: Path) -> DeltaTable:
        """The table as it is now; what the library raises where it cannot be opened."""
        handle, commit = self._held.get(path, (None, None))
        if handle is None or commit is None or commit != _last_commit(path, handle.version()):
            handle = DeltaTable(path)
            self._held[path] = (handle, _last_commit(path, handle.version()))
        return handle


def _last_commit(path: Path, version: int) -> tuple[int, int] | None:
    """What tells the commit of a version from one that took its place; None where it is not there, or not the last one."""
    log = path / "_delta_log"
    if (log / f"{version + 1:020d}.json").exists():
        return None
    try:
        found = (log / f"{version:020d}.json").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


class Store:
    """
    All tables under one local folder. Threads may share a Store; a ledger belongs to one writer.

    Reading never sees half a commit; a table nobody wrote yet reads as empty.
    """

    def __init__(
        self, root: str | Path, *, buckets: range | None = None, where: pl.Expr | None = None, opened: "Handles | None" = None
    ) -> None:
        self.root = Path(root)
        self._buckets = buckets
        self._where = where
        self._opened = opened or Handles()

    def part(self, buckets: range | None = None, *, where: pl.Expr | None = None) -> "Store":
        """
        The same tables as far as these shards, or rows ``where`` this holds, go: what is read of it is about these and no others.
        Ask for whole pods (shards are), and derivations are right on it.
        """
        where = self._where if where is None else where
        return Store(self.root, buckets=buckets or self._buckets, where=where, opened=self._opened)

    @property
    def whole(self) -> "Store":
        """All of the tables that this is a part of."""
        return Store(self.root, opened=self._opened)

    def ledger(self, table: Table) -> Ledger:
        """A writer's view of a table, which is made if need be. Keep it: it remembers positions between appends."""
        return Ledger(self.root, table)

    def scan(
        self, table: Table, window: Window | None = None, *, pods: pl.DataFrame | None = None, buckets: range | None = None
    ) -> pl.LazyFrame:
        """
        Rows of a table with ``at`` in the window, as a lazy frame for the streaming engine; empty where there is no table.

        ``pods``: only these (a frame with cluster and pod, as ``bucket_of`` places them); ``buckets``: only these shards.
        """
        path = self.root / table.name
        try:
            with translated(f"opening table {table.name} in {path}", advice=UNREADABLE):
                handle = self._opened.newest(path)
        except FileNotFoundError:
            return table.empty().lazy()
        frame = scan(handle, table, window)
        for shards in filter(None, (buckets, self._buckets)):
            frame = frame.filter(pl.col("bucket").is_between(shards.start, shards.stop - 1))
        if self._where is not None:
            frame = frame.filter(self._where)
        if pods is not None:
            wanted = sorted({bucket_of(cluster, pod) for cluster, pod in pods.select("cluster", "pod").iter_rows()})
            named = pl.any_horizontal(
                pl.lit(value=False),
                *(
                    (pl.col("cluster") == cluster) & pl.col("pod").is_in(sorted(names))
                    for cluster, names in _pods_by_cluster(pods).items()
                ),
            )
            frame = frame.filter(pl.col("bucket").is_in(wanted) & named)
        return frame

    def rows(
        self,
        table: Table,
        window: Window | None = None,
        where: pl.Expr | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """
        The rows that ``scan`` finds, of them those ``where``, read now; all columns unless told. StoreError where a file is gone
        or damaged.
        """
        frame = self.scan(table, window)
        frame = frame if where is None else frame.filter(where)
        return self._read(table, frame if columns is None else frame.select(columns))

    def distinct(self, table: Table, window: Window, columns: Sequence[str]) -> pl.DataFrame:
        """What these columns hold in the window, each combination once. StoreError where a file is gone or damaged."""
        return self._read(table, self.scan(table, window).select(columns).unique())

    def newest(self, table: Table, before: int | None = None) -> int | None:
        """
        ``at`` of the newest row (of those ``before``, µs UTC), None where there is none. StoreError where a file is damaged.
        """
        rows = self.scan(table) if before is None else self.scan(table).filter(pl.col("at") < before)
        at: int | None = self._read(table, rows.select(pl.col("at").max())).item()
        return at

    def position(self, table: Table, stream: str) -> int | None:
        """How far a stream of a table has come; None where nobody ever moved it. Of the whole table, whatever part this is."""
        path = self.root / table.name
        try:
            with translated(f"opening table {table.name} in {path}", advice=UNREADABLE):
                position: int | None = self._opened.newest(path).transaction_version(stream)
        except FileNotFoundError:
            return None
        return position

    def days(self, table: Table) -> dict[date, int]:
        """How many rows there are of each day, as the log says: no file is opened. Of the whole table, whatever part this is."""
        path = self.root / table.name
        try:
            with translated(f"opening table {table.name} in {path}", advice=UNREADABLE):
                files = pl.DataFrame(self._opened.newest(path).get_add_actions(flatten=True))
        except FileNotFoundError:
            return {}
        if files.is_empty():
            return {}
        counted = files.group_by("partition.date").agg(pl.col("num_records").sum())
        return dict(counted.iter_rows())

    def count(self, table: Table, window: Window, where: pl.Expr | None = None) -> int:
        """How many rows there are in the window, of them those ``where``. StoreError where a file is gone or damaged."""
        frame = self.scan(table, window)
        return int(self._read(table, (frame if where is None else frame.filter(where)).select(pl.len())).item())

    def _read(self, table: Table, frame: pl.LazyFrame) -> pl.DataFrame:
        with translated(f"reading table {table.name} in {self.root / table.name}", advice=DAMAGED):
            return frame.collect(engine="streaming")


def _pods_by_cluster(pods: pl.DataFrame) -> dict[str, set[str]]:
    by_cluster: dict[str, set[str]] = {}
    for cluster, pod in pods.select("cluster", "pod").iter_rows():
        by_cluster.setdefault(cluster, set()).add(pod)
    return by_cluster


def scan(handle: DeltaTable, table: Table, window: Window | None) -> pl.LazyFrame:
    """
    Rows of one version of a table; dates outside the window are never opened.

    Columns that an older version did not write are null. SchemaMismatch where those of the key are missing, or one has another
    type.
    """
    missing = _missing(handle, table)
    frame = pl.scan_delta(handle)
    if missing:
        frame = frame.with_columns(pl.lit(None, dtype=table.schema[name]).alias(name) for name in missing)
    frame = frame.select(list(table.schema))
    if window is None:
        return frame
    first = pl.from_epoch(pl.lit(window.start), time_unit="us").dt.date()
    last = pl.from_epoch(pl.lit(window.end - 1), time_unit="us").dt.date()
    return frame.filter(
        (pl.col("date") >= first) & (pl.col("date") <= last) & (pl.col("at") >= window.start) & (pl.col("at") < window.end)
    )


def _missing(handle: DeltaTable, table: Table) -> list[str]:
    """Columns that a stored table lacks."""
    stored = {field.name: field.type for field in handle.schema().fields}
    missing = [name for name in table.schema if name not in stored]
    wrong = [name for name in ("at", "date", *table.key) if name in missing]
    wrong += [name for name, dtype in table.schema.items() if name in stored and stored[name] != _DELTA_TYPES[dtype.base_type()]]
    if wrong:
        raise SchemaMismatch(
            f"table {table.name} in {handle.table_uri} is none of ours: {', '.join(map(repr, wrong))} is missing or has another "
            "type; name another folder, or bring its rows in with `lora-watch import table`"
        )
    return missing


def open_or_create(path: Path, table: Table) -> DeltaTable:
    """The table, made if need be, with the columns that an older version lacked."""
    fields = [Field(name, _DELTA_TYPES[dtype.base_type()], nullable=True) for name, dtype in table.schema.items()]
    with translated(f"opening table {table.name} in {path}"):
        path.mkdir(parents=True, exist_ok=True)
        if not DeltaTable.is_deltatable(str(path)):
            try:
                DeltaTable.create(
                    path, Schema(fields), mode="error", partition_by=["date"], name=table.name, configuration=dict(_CONFIGURATION)
                )
            except DeltaError:  # another process was first
                if not DeltaTable.is_deltatable(str(path)):
                    raise
        handle = DeltaTable(path)
    stored = {field.name for field in handle.schema().fields}
    if missing := [field for field in fields if field.name not in stored]:
        with translated(f"adding columns {[f.name for f in missing]} to table {table.name} in {path}"):
            handle.alter.add_columns(missing)
    if unknown := sorted(stored - set(table.schema)):
        raise SchemaMismatch(
            f"table {table.name} in {path} has columns {unknown} of a newer version; upgrade lora_watch or use another folder"
        )
    return handle


def _has_version(path: Path, version: int) -> bool:
    """Is this version in the log of the table: its commit, or a checkpoint of it?"""
    log = path / "_delta_log"
    return any((log / f"{version:020d}.{ending}").exists() for ending in ("json", "checkpoint.parquet"))


class translated:
    """Turns what the Delta library raises into our errors, naming what was being done."""

    def __init__(self, doing: str, *, advice: str = "") -> None:
        self._doing = doing
        self._advice = f"; {advice}" if advice else ""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None or isinstance(error, StoreError):
            return
        text = str(error).partition("\n")[0]  # the rest is a native stack
        if isinstance(error, TableNotFoundError):
            raise FileNotFoundError(self._doing) from error
        if isinstance(error, CommitFailedError):
            raise StoreConflict(f"{self._doing}: another writer committed first ({text})") from error
        if "No space left" in text or "os error 28" in text or "Disk quota exceeded" in text or _is_full(error):
            raise StoreFull(
                f"{self._doing}: no space is left on the device; nothing was stored. Free some space, the next tick tries again"
            ) from error
        # a file that is shorter than its footer says makes the reader panic: then the file is bad, not we
        if isinstance(error, (DeltaError, OSError, pl.exceptions.ComputeError, pl.exceptions.PanicException)):
            raise StoreError(f"{self._doing}: {text}{self._advice}") from error


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
