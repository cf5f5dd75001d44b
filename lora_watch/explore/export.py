"""A table as a file to take away: CSV, Parquet, Excel."""

import io
from collections.abc import Callable, Mapping
from types import MappingProxyType

import polars as pl
import xlsxwriter

MOST_ROWS = 1_000_000
"""Rows of a sheet; Excel holds 1,048,576."""
MOST_CHARACTERS = 32_000
"""Of a cell; Excel holds 32,767."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_csv(frame: pl.DataFrame) -> bytes:
    """
    UTF-8 with a header. A text that a spreadsheet would take for a formula has an apostrophe before it: open it where you like,
    read it back with Parquet.
    """
    flat = _flat(frame)
    texts = [name for name, dtype in flat.schema.items() if dtype == pl.String]
    harmless = flat.with_columns(
        pl.when(pl.any_horizontal(pl.col(name).str.starts_with(sign) for sign in _FORMULA))
        .then(pl.concat_str(pl.lit("'"), pl.col(name)))
        .otherwise(pl.col(name))
        .alias(name)
        for name in texts
    )
    return harmless.write_csv().encode()


def as_parquet(frame: pl.DataFrame) -> bytes:
    """Exactly what the frame holds, types and all."""
    written = io.BytesIO()
    frame.write_parquet(written)
    return written.getvalue()


def as_excel(frame: pl.DataFrame) -> bytes:
    """One sheet; text stays text, whatever it looks like. Rows past ``MOST_ROWS`` and letters past ``MOST_CHARACTERS`` go."""
    written = io.BytesIO()
    cut = _flat(frame).head(MOST_ROWS).with_columns(pl.col(pl.String).str.slice(0, MOST_CHARACTERS))
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with xlsxwriter.Workbook(written, {**options, "nan_inf_to_errors": True}) as book:
        cut.write_excel(book, worksheet="lora_watch", table_style="Table Style Light 1", autofit=frame.height <= 10_000)
    return written.getvalue()


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Lists as text: neither CSV nor a sheet has any."""
    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, (pl.List, pl.Struct))]
    return frame.with_columns(
        pl.col(name).map_elements(lambda value: ", ".join(map(str, value)), return_dtype=pl.String) for name in lists
    )


FORMATS: Mapping[str, tuple[str, str, Callable[[pl.DataFrame], bytes]]] = MappingProxyType(
    {
        "CSV": ("csv", "text/csv", as_csv),
        "Parquet": ("parquet", "application/vnd.apache.parquet", as_parquet),
        "Excel": ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", as_excel),
    }
)
"""Name of a format → ending, media type, and who writes it."""
