"""How a column of a table is told: its title, its unit and the form of its numbers."""

from dataclasses import dataclass
from typing import Literal

import polars as pl

Kind = Literal["text", "count", "number", "percent", "seconds", "at", "bar", "bytes"]
_FORMATS: dict[str, str | None] = {
    "text": None,
    "count": "localized",
    "number": "%.3g",
    "percent": "percent",
    "seconds": "%.3g s",
    "at": "datetime",
    "bar": "bar",
    "bytes": "bytes",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A title, the kind of value, and what is to be known about it. ``at`` is µs UTC, a ``percent`` or ``bar`` is a ratio."""

    title: str
    kind: Kind = "text"
    help: str | None = None
    width: Literal["small", "medium", "large"] | None = None

    @property
    def format(self) -> str | None:
        """What the table's widget is told; None: text."""
        return _FORMATS[self.kind]

    def told(self, name: str) -> pl.Expr:
        """The column as it is shown; unknown stays null."""
        if self.kind == "at":
            return pl.from_epoch(pl.col(name), time_unit="us").dt.replace_time_zone("UTC")
        if self.kind == "percent":  # a tenth of a percent is as much as anybody reads
            return pl.col(name).round(3)
        return pl.col(name)
