"""Arithmetic on lines: a value for each minute, NaN where it is unknown."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Line = NDArray[np.float64]
"""A value for each minute, NaN where it is unknown."""


def joined(lines: Mapping[Any, Line], how: str) -> Line:
    """Over several lines; unknown where all are."""
    table = np.array(list(lines.values()))
    known = ~np.isnan(table)
    count = known.sum(axis=0)
    if how == "count":
        told = count.astype(np.float64)
    elif how == "max":
        told = np.fmax.reduce(table)
    else:
        told = np.where(known, table, 0).sum(axis=0) / (np.maximum(count, 1) if how == "mean" else 1)
    return np.where(count > 0, told, np.nan)


def ratio(above: Line, below: Line) -> Line:
    """NaN where there is nothing below."""
    there = below > 0
    return np.where(there, above / np.where(there, below, 1), np.nan)


def rolling(line: Line, span: int, how: str) -> Line:
    """Over the ``span`` values up to each; unknown ones are left out."""
    told = getattr(pl.Series(line).fill_nan(None), f"rolling_{how}")(span, min_samples=1)
    return np.asarray(told.cast(pl.Float64).fill_null(np.nan).to_numpy(), np.float64)


def quantile(line: Line, span: int, share: float) -> Line:
    told = pl.Series(line).fill_nan(None).rolling_quantile(share, "linear", span, min_samples=1)
    return np.asarray(told.fill_null(np.nan).to_numpy(), np.float64)


def earlier(line: Line, by: int) -> Line:
    """The value so many minutes before."""
    return np.concatenate([np.full(min(by, len(line)), np.nan), line[: max(len(line) - by, 0)]])
