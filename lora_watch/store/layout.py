"""
How the tables lie on disk: today's small files merged, closed days sorted, old days dropped.

A closed day is rewritten in the order ``(bucket, pod, at, seq)`` with row groups that prune well; readers and the plans of
``derive`` gain from that order but never need it. Every step is one Delta commit of its own that conflicts with a concurrent
append to the same day instead of losing it: then the day is left for the next round.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import polars as pl
from deltalake import CommitProperties, DeltaTable, write_deltalake

from lora_watch.errors import StoreConflict, StoreError
from lora_watch.model import DAY
from lora_watch.schema import MAINTAINED, Table
from lora_watch.store.tables import WRITER, Store, translated

MERGE_ATTEMPTS = 5
FILES_BEFORE_MERGE = 16
"""Today is merged once it has this many files: a merge rewrites what it merges."""
GRACE_HOURS = 24
"""How long a file no version needs stays for readers that opened an older version."""


@dataclass(slots=True)
class Maintained:
    """What one round of maintenance did, and what it left for the next."""

    merged: list[str] = field(default_factory=list)
    sorted: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Layout:
    """Keeps the tables of a store in shape. Remembers which days it has found sorted, by their files."""

    def __init__(self, store: Store, *, retention_days: int) -> None:
        self._store = store
        self._retention_days = retention_days
        self._sorted: dict[tuple[str, date], frozenset[str]] = {}

    def maintain(self, now: int) -> Maintained:
        """One round over all tables at ``now`` (µs UTC). Trouble with one day or table is a problem, the rest goes on."""
        done = Maintained(problems=self.repair())
        today = date.fromordinal(date(1970, 1, 1).toordinal() + now // DAY)
        for table in MAINTAINED:
            for step in self._steps(table, today, done):
                try:
                    step()
                except StoreConflict:
                    done.problems.append(
                        f"table {table.name}: new rows came while it was being rewritten; left for the next round"
                    )
                except StoreError as error:
                    done.problems.append(str(error))
        return done

    def repair(self) -> list[str]:
        """
        Strike files from the tables that are gone or not as long as they were written, so that the rest can be read again.

        One such file makes every reading fail. Its rows are lost: what was struck is said, table by table. A file of another
        length stays on the disk, renamed to ``….damaged``.
        """
        problems = []
        for table in MAINTAINED:
            path = self._store.root / table.name
            try:
                with translated(f"looking for the files of table {table.name} in {path}"):
                    handle = DeltaTable(path)
                    bad = _bad_files(handle, path)
                    for name in bad:
                        if (path / name).exists():
                            (path / name).rename(path / f"{name}.damaged")
                    if bad:
                        handle.repair()
            except FileNotFoundError:  # no table
                continue
            except StoreError as error:
                problems.append(str(error))
                continue
            if bad:
                problems.append(
                    f"table {table.name} in {path}: {len(bad)} files with {sum(bad.values())} rows are gone or damaged; "
                    "the rows are lost, the rest is read without them"
                )
        return problems

    def _steps(self, table: Table, today: date, done: Maintained) -> list[Callable[[], None]]:
        path = self._store.root / table.name
        oldest = date.fromordinal(max(today.toordinal() - self._retention_days, 1))
        try:
            with translated(f"opening table {table.name} in {path}"):
                days = _files_by_day(DeltaTable(path))
        except FileNotFoundError:
            return []
        except StoreError as error:
            done.problems.append(str(error))
            return []
        steps: list[Callable[[], None]] = []
        for day, files in sorted(days.items()):
            if day < oldest:
                steps.append(partial(self._drop, table, day, done))
            elif day < today and self._sorted.get((table.name, day)) != files:
                steps.append(partial(self._sort, table, day, files, done))
            elif day >= today and len(files) >= FILES_BEFORE_MERGE:
                steps.append(partial(self._merge, table, day, done))
        return [*steps, partial(self._vacuum, table)]

    def _drop(self, table: Table, day: date, done: Maintained) -> None:
        with translated(f"dropping {day} from table {table.name}"):
            DeltaTable(self._store.root / table.name).delete(f"date = '{day}'")
        done.dropped.append(f"{table.name}/{day}")

    def _merge(self, table: Table, day: date, done: Maintained) -> None:
        """
        Today's files become one. By overwriting the day, not by the library's own compaction: two of those at once both succeed
        and leave every row twice, where an overwrite conflicts with whatever else touched the day. New rows come often today, so
        it is tried a few times.
        """
        for attempt in range(MERGE_ATTEMPTS):
            try:
                self._rewrite(table, day)
            except StoreConflict:
                if attempt == MERGE_ATTEMPTS - 1:
                    raise
            else:
                done.merged.append(f"{table.name}/{day}")
                return

    def _sort(self, table: Table, day: date, files: frozenset[str], done: Maintained) -> None:
        with translated(f"looking at {day} of table {table.name}"):
            rows = pl.scan_delta(DeltaTable(self._store.root / table.name)).filter(pl.col("date") == day)
            already = len(files) == 1 and _is_sorted(rows, order(table))
        if not already:
            files = self._rewrite(table, day)
            done.sorted.append(f"{table.name}/{day}")
        self._sorted[(table.name, day)] = files

    def _rewrite(self, table: Table, day: date) -> frozenset[str]:
        """Read a day, sort it and overwrite it; its files then. StoreConflict where anything else was committed to the day."""
        with translated(f"rewriting {day} of table {table.name}"):
            handle = DeltaTable(self._store.root / table.name)
            rows = pl.scan_delta(handle).filter(pl.col("date") == day).select(list(table.schema)).collect(engine="streaming")
            write_deltalake(
                handle,
                rows.sort(order(table), maintain_order=True),
                mode="overwrite",
                predicate=f"date = '{day}'",
                writer_properties=WRITER,
                commit_properties=CommitProperties(custom_metadata={"lora_watch": "sorted"}),
            )
            return _files_by_day(handle).get(day, frozenset())

    def _vacuum(self, table: Table) -> None:
        with translated(f"deleting files no version needs in table {table.name}"):
            handle = DeltaTable(self._store.root / table.name)
            handle.vacuum(retention_hours=GRACE_HOURS, dry_run=False, enforce_retention_duration=False)


def _files_by_day(handle: DeltaTable) -> dict[date, frozenset[str]]:
    actions = pl.DataFrame(handle.get_add_actions(flatten=True))
    if actions.is_empty():
        return {}
    days: dict[date, set[str]] = {}
    for path, day in actions.select("path", "partition.date").iter_rows():
        days.setdefault(day, set()).add(path)
    return {day: frozenset(paths) for day, paths in days.items()}


def _bad_files(handle: DeltaTable, path: Path) -> dict[str, int]:
    """Rows by file (its name within the table), of files that are not there or not of the length that the log says."""
    bad = {}
    actions = pl.DataFrame(handle.get_add_actions(flatten=True))
    for name, size, rows in actions.select("path", "size_bytes", "num_records").iter_rows():
        file = path / unquote(name)
        if not file.is_file() or file.stat().st_size != size:
            bad[unquote(name)] = rows or 0
    return bad


def order(table: Table) -> list[str]:
    """How the rows of a closed day lie."""
    return ["bucket", "pod", "at", *(name for name in ("stream", "seq", "series", "id") if name in table.schema)]


def _is_sorted(rows: pl.LazyFrame, order: list[str]) -> bool:
    keys = rows.select(order).collect(engine="streaming")
    return keys.equals(keys.sort(order, maintain_order=True))
