"""Che's approximation: characteristic time, loads and miss ratio of LRU from rates by adapter alone."""

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.groups import POD, ranked_provenance
from lora_watch.derive.locality import ErrorClass, Method


def distinct(rates: NDArray[np.float64], seconds: float) -> float:
    """
    ``W_T = Σ (1 − exp(−T · rate))``: adapters asked for at least once in T seconds, if requests are independent.

    >>> round(distinct(np.array([1.0, 1.0]), 0.7), 3)
    1.007
    """
    return float(-np.expm1(-seconds * rates).sum())


def loads(rates: NDArray[np.float64], seconds: float) -> float:
    """``M_T = Σ rate · exp(−T · rate)``: loads a second if an adapter leaves after T seconds without a request. ``M = dW/dT``."""
    return float((rates * np.exp(-seconds * rates)).sum())


def characteristic_seconds(rates: NDArray[np.float64], slots: float) -> float:
    """
    The T at which ``W_T = slots``: how long an adapter stays in LRU after its last request. Infinite where every adapter has a
    slot; rates of 0 don't count.

    W is concave, so Newton's steps from 0 come near from below and never pass; fewer than 25 were needed whatever the rates.

    >>> round(characteristic_seconds(np.array([1.0, 1.0]), 1), 6) == round(math.log(2), 6)
    True
    """
    asked = rates[rates > 0]
    if len(asked) <= slots:
        return math.inf
    seconds, step = 0.0, math.inf
    while step > 1e-9 * seconds:
        slope = loads(asked, seconds)
        if slope <= 0:  # an adapter so rare that it never comes
            return math.inf
        step = (slots - distinct(asked, seconds)) / slope
        seconds += step
    return seconds


def che(rates: pl.LazyFrame, slots: int | Sequence[int] | pl.LazyFrame) -> pl.DataFrame:
    """
    LRU at given slots from rates by adapter, one row per group and number of slots.

    ``rates`` as :func:`lora_watch.derive.rates.rates` or ``rates_from_attempts`` give them, over ten minutes; ``slots`` are one
    or more numbers for every group, or a frame with some of the group's columns and ``slots``. Columns: the group's, ``slots``,
    ``adapters`` (with a rate), ``requests_per_second``, ``characteristic_seconds`` (T: W_T = slots; null: every adapter has a
    slot), ``loads_per_second`` (M_T), ``miss_ratio`` (M_T ÷ rate), ``residency_seconds`` (slots ÷ loads, Little; null without
    loads), ``method`` (che), ``error_class``, ``provenance``.

    Right to 0.01 where requests are independent. Sessions come in bunches, which LRU likes and rates don't show: too high by
    0.17 to 0.3, and by 0.09 with batch jobs that scan. Adapters that are asked for less than a few times in the ten minutes
    look as if they were asked for evenly: with a thousand of them it is too low by 0.11. Rates of a day in place of ten minutes
    are off by 0.08 where time zones take turns. Figures: benchmarks/README.md, *locality*.
    Requests for the base model take no slot. Groups without a rate above 0 have no row.
    ValueError where the frame of slots shares no column with the groups.
    """
    keys = [column for column in rates.collect_schema() if column in POD]
    asked = rates.filter(pl.col("adapter").is_not_null() & (pl.col("requests_per_second") > 0))
    groups = asked.group_by(keys).agg(pl.col("requests_per_second").sort(), provenance=ranked_provenance().max().cast(pl.String))
    if isinstance(slots, pl.LazyFrame):
        told = [column for column in slots.collect_schema() if column in keys]
        if not told:
            raise ValueError(f"slots are of some of the rates' groups: no column of {keys} stands beside them")
        wanted = groups.join(slots.select(*told, pl.col("slots").cast(pl.Int64)), on=told, nulls_equal=True)
    else:
        numbers = pl.LazyFrame({"slots": pl.Series([slots] if isinstance(slots, int) else slots, dtype=pl.Int64)})
        wanted = groups.join(numbers, how="cross")
    frame = wanted.filter(pl.col("slots").is_not_null()).sort([*keys, "slots"]).collect()
    answers = []
    for rate, places in frame.select("requests_per_second", "slots").iter_rows():
        each = np.array(rate, dtype=np.float64)
        seconds = characteristic_seconds(each, places)
        per_second = 0.0 if math.isinf(seconds) else loads(each, seconds)
        answers.append((len(each), float(each.sum()), None if math.isinf(seconds) else seconds, per_second))
    columns = ("adapters", "total", "characteristic_seconds", "loads_per_second")
    types = (pl.Int64, pl.Float64, pl.Float64, pl.Float64)
    found = pl.DataFrame(answers, schema=dict(zip(columns, types, strict=True)), orient="row")
    return pl.concat([frame, found], how="horizontal").select(
        *keys,
        "slots",
        "adapters",
        requests_per_second="total",
        characteristic_seconds="characteristic_seconds",
        loads_per_second="loads_per_second",
        miss_ratio=pl.col("loads_per_second") / pl.col("total"),
        residency_seconds=pl.when(pl.col("loads_per_second") > 0).then(pl.col("slots") / pl.col("loads_per_second")),
        method=pl.lit(str(Method.CHE)),
        error_class=pl.lit(str(ErrorClass.INDEPENDENT)),
        provenance="provenance",
    )
