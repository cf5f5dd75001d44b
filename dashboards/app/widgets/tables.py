"""A table that can be sorted, searched and taken away."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import polars as pl
import streamlit as st

from lora_watch.explore.columns import Column
from lora_watch.explore.export import FORMATS

ROW_HEIGHT = 32
MOST_SHOWN = 15
"""Rows that are seen at once; the rest is scrolled to."""


def table(
    name: str, frame: pl.DataFrame, columns: Mapping[str, Column], *, key: str | None = None, pick: bool = False
) -> list[int]:
    """
    Draw the ``columns`` of a frame, in their order, with a way to take all of it away as CSV, Parquet or Excel.

    ``name`` is the file's. With ``pick`` one row can be chosen: its number (in the frame's order) is returned. Nothing in a
    cell is ever read as markup.
    """
    wanted = [column for column in columns if column in frame.columns]
    settings: dict[str, Any] = {
        "column_config": {column: _config(columns[column]) for column in wanted},
        "hide_index": True,
        "row_height": ROW_HEIGHT,
        "height": ROW_HEIGHT * (min(frame.height, MOST_SHOWN) + 1) + 3,
        "placeholder": "–",
        "key": key or f"lw_table_{name}",
        "on_select": "rerun" if pick else "ignore",
        "selection_mode": "single-row",
    }
    drawn: Any = st.dataframe(frame.select(columns[column].told(column) for column in wanted), **settings)
    take_away(name, lambda: frame)
    return list(drawn.selection.rows) if pick else []


def telling(frame: pl.DataFrame, columns: Mapping[str, Column]) -> dict[str, Column]:
    """The columns in which anything stands at all."""
    return {name: column for name, column in columns.items() if name in frame.columns and not _is_empty(frame[name])}


def _is_empty(values: pl.Series) -> bool:
    return values.null_count() == len(values) or (values.dtype == pl.String and not values.fill_null("").str.len_bytes().sum())


def take_away(name: str, made: Callable[[], pl.DataFrame]) -> None:
    """Buttons for the three formats; the frame is made, and written, when one is pressed."""
    with st.container(horizontal=True, gap="small", key=f"lw_take_{name}"):
        for title, (ending, media, write) in FORMATS.items():
            st.download_button(
                title,
                partial(_written, made, write),
                f"lora_watch_{name}.{ending}",
                media,
                key=f"lw_take_{name}_{ending}",
                type="tertiary",
                on_click="ignore",
                help=f"This table as {title}",
            )


def _written(made: Callable[[], pl.DataFrame], write: Callable[[pl.DataFrame], bytes]) -> bytes:
    return write(made())


def _config(column: Column) -> Any:
    kinds = st.column_config
    if column.format is None:
        return kinds.TextColumn(column.title, help=column.help, width=column.width)
    if column.format == "datetime":
        return kinds.DatetimeColumn(
            column.title, help=column.help, format="YYYY-MM-DD HH:mm:ss", timezone="UTC", width=column.width
        )
    if column.format == "bar":
        return kinds.ProgressColumn(
            column.title, help=column.help, format="percent", min_value=0, max_value=1, width=column.width
        )
    return kinds.NumberColumn(column.title, help=column.help, format=column.format, width=column.width)
