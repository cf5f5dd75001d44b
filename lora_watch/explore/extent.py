"""What there is to look at: where the data end, and which pods and adapters they are about."""

import polars as pl

from lora_watch.derive.groups import POOL
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.schema import MEASURED, REQUESTS, Table
from lora_watch.store.tables import Store

FRESH = 5 * MINUTE
"""Data that end so shortly ago are being collected now."""
STEP = 15 * SECOND
"""The end of data that are being collected moves by so much at a time: who asks in between gets the answer that is there."""
LOOKED_AT = 6 * HOUR
"""Names are looked for in so much of the end of a window: whoever had no request in it is found by its name."""


def data_end(store: Store, now: int) -> int | None:
    """
    Where the stored data end, µs UTC: one past the newest row that is not later than ``now``, None where there is none.

    Where it is fresh it is a multiple of ``STEP``. Only the last day with rows is looked at, however much there is.
    """
    known = [at for table in MEASURED if (at := _newest(store, table, now)) is not None]
    if not known:
        return None
    end = max(known) + 1
    return end - end % STEP if now - end < FRESH else end


def _newest(store: Store, table: Table, now: int) -> int | None:
    today = pl.from_epoch(pl.lit(now), time_unit="us").dt.date()
    before = pl.col("date") <= today
    day = store.scan(table).filter(before).select(pl.col("date").max()).collect(engine="streaming").item()
    if day is None:
        return None
    rows = store.scan(table).filter((pl.col("date") == day) & (pl.col("at") <= now))
    at: int | None = rows.select(pl.col("at").max()).collect(engine="streaming").item()
    return at if at is not None else store.newest(table, now + 1)


def pods_of(store: Store, window: Window) -> pl.DataFrame:
    """Who is in the end of a window: cluster, pool, role, pod, each once, sorted. StoreError where a table can't be read."""
    part = _end_of(window)
    columns = ("cluster", "pool", "role", "pod")
    found = pl.concat([store.distinct(table, part, columns) for table in MEASURED])
    return found.filter(pl.col("pod").is_not_null()).with_columns(pl.col(columns).fill_null("")).unique().sort(columns)


def pools_of(store: Store, window: Window) -> pl.DataFrame:
    """Every cluster, pool and role in a window, each once; null: a row names none. StoreError where a table can't be read."""
    return pl.concat([store.distinct(table, window, POOL) for table in MEASURED]).unique()


def adapters_of(store: Store, window: Window) -> list[str]:
    """The adapters that were asked for in the end of a window, most asked for first. StoreError where the table can't be read."""
    asked = store.scan(REQUESTS, _end_of(window)).filter(pl.col("adapter").is_not_null())
    counted = asked.group_by("adapter").len().sort("len", "adapter", descending=[True, False])
    return counted.collect(engine="streaming")["adapter"].to_list()


def _end_of(window: Window) -> Window:
    return Window(max(window.start, window.end - LOOKED_AT), window.end)


def ago(end: int, now: int) -> str:
    """
    How long ago data ended, in words; empty where they are fresh.

    >>> ago(0, 3 * DAY), ago(0, MINUTE)
    ('3 days ago', '')
    """
    gone = now - end
    if gone < FRESH:
        return ""
    for unit, size in (("day", DAY), ("hour", HOUR), ("minute", MINUTE)):
        if gone >= 2 * size:
            return f"{gone // size:,} {unit}s ago"
    return "minutes ago"
