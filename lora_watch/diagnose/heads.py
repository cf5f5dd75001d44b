"""From rows of found structures to findings: rows about the same thing become one, with the span they take together."""

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from lora_watch.diagnose.finding import Evidence
from lora_watch.model import MINUTE, Provenance, Window, worst

QUIET = 10 * MINUTE
"""A structure whose last row ended so long before the window's end is over."""

Row = dict[str, Any]


def flagged(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that passed their structure's own test, in order of time."""
    return rows.filter("flagged").sort("start")


def together(rows: pl.DataFrame, by: Sequence[str]) -> Iterator[list[Row]]:
    """Rows that are alike in their pool and in ``by``, as lists in order of time."""
    for _, group in rows.group_by(["cluster", "pool", "role", *by], maintain_order=True):
        yield group.sort("start").to_dicts()


def head(rows: Sequence[Row], window: Window) -> dict[str, Any]:
    """What every finding made of these rows begins with: who, since when, and until when where it is over."""
    end = max(row["end"] for row in rows)
    return {
        "cluster": rows[0]["cluster"] or "",
        "pool": rows[0]["pool"] or "",
        "role": rows[0]["role"] or "",
        "since": min(row["start"] for row in rows),
        "until": end if end < window.end - QUIET else None,
        "pods": names(rows, "pods"),
        "adapters": names(rows, "adapters"),
    }


def names(rows: Sequence[Row], column: str) -> tuple[str, ...]:
    """The names that the rows list, each once, in order of their first appearance."""
    return tuple(dict.fromkeys(name for row in rows for name in row[column] if name is not None))


def known(rows: Sequence[Row]) -> str:
    """The worst provenance of the rows."""
    return worst({row["provenance"] for row in rows if row["provenance"]}) or str(Provenance.INFERRED)


def said(rows: Sequence[Row], name: str, value: float | None, text: str, unit: str = "") -> Evidence:
    """A piece of evidence from rows."""
    return Evidence(text, name, None if value is None else float(value), unit, known(rows))
