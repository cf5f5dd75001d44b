"""A store filled with rows, as if sources had brought them."""

from pathlib import Path

import polars as pl

from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, Batch
from lora_watch.store.tables import Store


def stored(
    folder: Path, *, events: pl.DataFrame | None = None, requests: pl.DataFrame | None = None, samples: pl.DataFrame | None = None
) -> Store:
    """The tables whose rows are given; streams and series may be any."""
    store = Store(folder)
    for table, rows in ((ADAPTER_EVENTS, events), (REQUESTS, requests), (SAMPLES, samples)):
        if rows is None:
            continue
        ends = {"prom/test/x": int(rows["at"].max() or 0)} if table is SAMPLES else _ends(rows)
        store.ledger(table).append(Batch(rows, ends), at=1)
    return store


def _ends(rows: pl.DataFrame) -> dict[str, int]:
    return dict(rows.group_by("stream").agg(pl.col("seq").max()).iter_rows())
