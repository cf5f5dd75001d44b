"""What is worked out of other tables, a day at a time: a day is replaced as a whole, so doing it twice is doing it once."""

from datetime import date

import polars as pl
from deltalake import CommitProperties, write_deltalake

from lora_watch.model import DAY
from lora_watch.schema import Table
from lora_watch.store.layout import order
from lora_watch.store.tables import WRITER, Store, open_or_create, translated


def date_of(day: int) -> date:
    """The date of the day that begins at so many µs UTC."""
    return date.fromordinal(date(1970, 1, 1).toordinal() + day // DAY)


def replace_day(store: Store, table: Table, day: int, rows: pl.DataFrame) -> None:
    """
    The rows of a table of the day that begins at ``day`` (µs UTC) are these from now on, and no others. The table is made if need
    be.

    Raises StoreConflict where somebody else replaced the same day meanwhile, StoreError where nothing could be written.
    """
    when = date_of(day)
    path = store.root / table.name
    with translated(f"replacing {when} of table {table.name} in {path}"):
        write_deltalake(
            open_or_create(path, table),
            rows.sort(order(table), maintain_order=True),
            mode="overwrite",
            predicate=f"date = '{when}'",
            writer_properties=WRITER,
            commit_properties=CommitProperties(custom_metadata={"lora_watch": "sorted"}),
        )
