"""
Which pods a row of a result is about, and how well it is known: the columns every derivation groups by, and the worst
provenance.
"""

from collections.abc import Sequence

import polars as pl

from lora_watch.model import SECOND, Provenance

ENGINE = ("cluster", "pool", "role", "pod", "engine")
"""Who an engine is. ``pool`` and ``role`` are labels of it; data-parallel engines share a pod."""
GROUPS = (*ENGINE, "adapter")
"""Every column a result may be grouped by."""
BY_POD = ("cluster", "pod")
"""What results are grouped by unless told."""
POOL = ("cluster", "pool", "role")
"""Whom pods are compared within, and whose slots may be counted together: prefill and decode pods have different work."""
POD = (*POOL, "pod")
"""Whom a row is about where each pod has its own slots."""
PROVENANCE = pl.Enum([str(provenance) for provenance in Provenance])
"""Provenance as an ordered type: the greatest is the worst."""


def group_columns(by: Sequence[str]) -> list[str]:
    """
    The columns of one result row, in the order of ``GROUPS``; ``role`` joins in wherever several pods may share a row.

    Prefill and decode pods have different work, so a row never mixes roles. ValueError names a column nobody can group by.

    >>> group_columns(("pod", "cluster")), group_columns(("cluster", "pool"))
    (['cluster', 'pod'], ['cluster', 'pool', 'role'])
    """
    if unknown := sorted(set(by) - set(GROUPS)):
        raise ValueError(f"cannot group by {', '.join(map(repr, unknown))}; choose from {', '.join(GROUPS)}")
    wanted = set(by) if "pod" in by else {*by, "role"}
    return [column for column in GROUPS if column in wanted]


def of_pool(key: Sequence[str | None]) -> pl.Expr:
    """Whether a row is of the pool with these values of ``POOL``; null is a name as any other."""
    return pl.all_horizontal(*(pl.col(column).eq_missing(pl.lit(value)) for column, value in zip(POOL, key, strict=True)))


def ranked_provenance(column: str = "provenance") -> pl.Expr:
    """The text column as the ordered type; a word that is not a provenance is as good as the worst."""
    known = pl.col(column).cast(PROVENANCE, strict=False)
    worst = pl.lit(str(Provenance.DESIRED), dtype=PROVENANCE)
    return pl.when(pl.col(column).is_not_null()).then(known.fill_null(worst))


def said_once() -> pl.Expr:
    """True for the first row of each (stream, seq): a log read twice says nothing twice."""
    return pl.struct("stream", "seq").is_first_distinct()


def once(rows: pl.LazyFrame, *, stored: bool) -> pl.LazyFrame:
    """The rows, what is said twice once. ``stored`` ones are unique as they are, and telling that of millions takes seconds."""
    return rows if stored else rows.filter(said_once())


def number(column: str) -> pl.Expr:
    """A number for each text, good for telling rows apart within one process: sorting and comparing numbers costs a third."""
    return pl.col(column).cast(pl.Categorical).to_physical()


def worst_provenance(column: str = "provenance") -> pl.Expr:
    """Of a group: the provenance a result must carry, the worst of its rows; null where it has none."""
    return ranked_provenance(column).max().cast(pl.String).alias("provenance")


def overlap_seconds(start: pl.Expr, end: pl.Expr, window_start: int, window_end: int) -> pl.Expr:
    """Seconds of ``[start, end)`` inside ``[window_start, window_end)``, never below 0; an ``end`` of null is still open."""
    inside = pl.min_horizontal(end.fill_null(window_end), window_end) - pl.max_horizontal(start, window_start)
    return inside.clip(lower_bound=0) / SECOND
