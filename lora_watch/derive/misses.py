"""Where each request found its adapter: in a slot, in the CPU cache, or on disk."""

from collections.abc import Sequence

import polars as pl

from lora_watch.derive.groups import BY_POD, GROUPS, group_columns, ranked_provenance, said_once
from lora_watch.model import SECOND, Window

GHOST_SECONDS = 30
"""A hit whose adapter is evicted so soon afterwards was luck: the article's figure."""
TOLERANCE = 50_000
"""µs a load may be recorded after the first token it made possible: the two times are written by two processes of one host."""
_LOOKUP = ("cluster", "pod", "engine", "adapter")
_NEVER_LEFT = 2**62


def request_lookups(requests: pl.LazyFrame, stays: pl.LazyFrame) -> pl.LazyFrame:
    """
    One row per request for an adapter: where it was found when the request was scheduled.

    Columns: cluster, pool, role, pod, engine, adapter, stream, seq, ``at``, ``queued``, ``scheduled``, ``first_token``,
    ``finished`` (µs UTC), ``lookup`` (hot, warm, cold; null: unknown), ``loaded_at`` (of the load it waited for),
    ``load_seconds`` (of that load), ``ghost`` (hot, and evicted within ``GHOST_SECONDS`` after ``scheduled``), ``provenance``
    (worst of the request and the stays it met).

    Formula: hot if a stay of the adapter on that cluster, pod and engine has ``resident_from ≤ scheduled < left_at``; else
    warm or cold by ``from_tier`` of its next load in ``[scheduled, first_token + TOLERANCE]`` (``finished`` where there was
    no first token); else unknown: never scheduled, or no such load.

    Edge cases. Requests for the base model have no row. Two stays of one name may overlap (a name registered anew): hot until
    the last of them ends. A load recorded at ``scheduled`` makes it hot. Rows said twice count once. Method: as-of joins on a
    number per adapter and engine, no cross join.
    """
    wanted = requests.filter(pl.col("adapter").is_not_null()).filter(said_once())
    numbers = adapter_numbers(stays)
    known = numbered(stays, numbers)
    loads = known.filter(pl.col("loaded_at").is_not_null()).select(
        "number",
        next_loaded_at="loaded_at",
        next_from_tier="from_tier",
        load_seconds="seconds",
        load_provenance=ranked_provenance(),
    )
    placed = found_at(numbered(wanted, numbers), known, "scheduled")
    deadline = pl.coalesce("first_token", "finished") + TOLERANCE
    joined = placed.sort("scheduled").join_asof(
        loads.sort("next_loaded_at"),
        left_on="scheduled",
        right_on="next_loaded_at",
        by="number",
        strategy="forward",
        check_sortedness=False,
    )
    hot = pl.col("resident")
    waited = ~hot & (pl.col("next_loaded_at") <= deadline)
    soon = pl.col("evicted_at") - pl.col("scheduled") <= GHOST_SECONDS * SECOND
    tier = pl.col("next_from_tier").replace_strict({"cpu": "warm", "disk": "cold"}, default=None, return_dtype=pl.String)
    return joined.select(
        *GROUPS,
        "stream",
        "seq",
        "at",
        "queued",
        "scheduled",
        "first_token",
        "finished",
        lookup=pl.when(hot).then(pl.lit("hot")).when(waited).then(tier),
        loaded_at=pl.when(waited).then("next_loaded_at"),
        load_seconds=pl.when(waited).then("load_seconds"),
        ghost=(hot & soon).fill_null(value=False),
        provenance=pl.max_horizontal(
            ranked_provenance(), pl.when(hot).then("stay_provenance"), pl.when(waited).then("load_provenance")
        ).cast(pl.String),
    )


def misses(
    requests: pl.LazyFrame,
    lookups: pl.LazyFrame,
    window: Window,
    by: Sequence[str] = BY_POD,
    *,
    events: pl.LazyFrame | None = None,
) -> pl.LazyFrame:
    """
    Hits and misses of the requests scheduled in the window, one row per group. ``lookups`` are the :func:`request_lookups` of
    the same requests (of those in the window at least).

    Columns, after the group's: ``requests`` (for an adapter), of them ``hot``, ``warm``, ``cold``, ``unknown``; ``miss_ratio
    = (warm + cold) ÷ (hot + warm + cold)`` (null where nothing is known), ``ghost_hits``; ``base_model_requests`` (left out;
    null when grouped by adapter); then from the engine's own lookups, with ``events``: ``uses`` (an adapter entered the
    running batch), ``use_misses`` (found warm or cold), ``use_unknown``, ``use_miss_ratio``; ``provenance``.

    A request belongs to the window in which it was scheduled; one that never was, to that in which it finished. A use is not
    a request: many requests may share a use, and the slots already held some back, so the two ratios differ; requests are
    exact, uses are what remains without request rows.

    Edge cases. Groups are those with a request or a use in the window. ``uses`` is null where no use row is there: engines
    that do not tell have no zero. Counts add up over adjoining windows, ratios never do. See :func:`request_lookups`.
    """
    keys = group_columns(by)
    moment = pl.coalesce("scheduled", "at")
    in_window = moment.is_between(window.start, window.end, closed="left")
    lookup = pl.col("lookup")
    found = (
        lookups.filter(in_window)
        .group_by(keys)
        .agg(
            requests=pl.len(),
            hot=(lookup == "hot").sum(),
            warm=(lookup == "warm").sum(),
            cold=(lookup == "cold").sum(),
            unknown=lookup.is_null().sum(),
            ghost_hits=pl.col("ghost").sum(),
            request_provenance=ranked_provenance().max(),
        )
    )
    counts = ["requests", "hot", "warm", "cold", "unknown", "ghost_hits"]
    if "adapter" in keys:
        parts = [found.with_columns(base_model_requests=pl.lit(None, dtype=pl.Int64))]
    else:
        parts = [found]
        counts.append("base_model_requests")
        base = requests.filter(in_window & pl.col("adapter").is_null()).filter(said_once())
        parts.append(base.group_by(keys).agg(base_model_requests=pl.len(), base_provenance=ranked_provenance().max()))
    if events is not None:
        at = pl.col("at").is_between(window.start, window.end, closed="left")
        use = (
            events.filter(at & (pl.col("kind") == "use") & pl.col("adapter").is_not_null())
            .select(*keys, "stream", "seq", "lookup", "provenance")  # fewer columns: telling rows apart copies them
            .filter(said_once())
        )
        parts.append(
            use.group_by(keys).agg(
                uses=pl.len().cast(pl.Int64),
                use_misses=lookup.is_in(["warm", "cold"]).sum().cast(pl.Int64),
                use_unknown=lookup.is_null().sum().cast(pl.Int64),
                use_provenance=ranked_provenance().max(),
            )
        )
    joined = pl.concat(parts, how="diagonal").group_by(keys).agg(pl.exclude(keys).max())
    absent = {"uses": pl.Int64, "use_misses": pl.Int64, "use_unknown": pl.Int64} if events is None else {}
    joined = joined.with_columns(pl.lit(None, dtype=dtype).alias(name) for name, dtype in absent.items())
    missed, known = pl.col("warm") + pl.col("cold"), pl.col("hot") + pl.col("warm") + pl.col("cold")
    used = pl.col("uses") - pl.col("use_unknown")
    provenances = [
        name for name in ("request_provenance", "base_provenance", "use_provenance") if name in joined.collect_schema()
    ]
    return joined.with_columns(pl.col(name).fill_null(0).cast(pl.Int64) for name in counts).select(
        *keys,
        "requests",
        "hot",
        "warm",
        "cold",
        "unknown",
        pl.when(known > 0).then(missed / known).alias("miss_ratio"),
        "ghost_hits",
        "base_model_requests",
        "uses",
        "use_misses",
        "use_unknown",
        pl.when(used > 0).then(pl.col("use_misses") / used).alias("use_miss_ratio"),
        pl.max_horizontal(*provenances).cast(pl.String).alias("provenance"),
    )


def adapter_numbers(stays: pl.LazyFrame) -> pl.LazyFrame:
    """
    A number for each adapter on each engine that ever had a stay, for as-of joins; sorted, so that asked twice it is the
    same.
    """
    return stays.select(_LOOKUP).filter(pl.col("adapter").is_not_null()).unique().sort(_LOOKUP).with_row_index("number")


def numbered(rows: pl.LazyFrame, numbers: pl.LazyFrame) -> pl.LazyFrame:
    """The rows with their adapter's ``number``; null where it never had a stay there."""
    return rows.join(numbers, on=_LOOKUP, how="left", nulls_equal=True)


def found_at(rows: pl.LazyFrame, known: pl.LazyFrame, time: str) -> pl.LazyFrame:
    """
    The rows with ``resident`` (was the adapter in a slot at ``time``; null where ``time`` is), ``evicted_at`` (when that
    ended by evict) and ``stay_provenance``.

    ``rows`` and ``known`` (stays) bear numbers. Where stays of one number overlap, the one that ends last speaks: a running
    maximum of their ends.
    """
    end = pl.col("left_at").fill_null(_NEVER_LEFT)
    there = (
        known.filter(pl.col("resident_from").is_not_null() & pl.col("number").is_not_null())
        .sort("number", "resident_from")
        .select(
            "number",
            "resident_from",
            there_until=end.cum_max().over("number"),
            evict_end=pl.when(pl.col("left_by") == "evict").then("left_at"),
            stay_provenance=ranked_provenance(),
        )
        .sort("resident_from")
    )
    return (
        rows.sort(time)
        .join_asof(there, left_on=time, right_on="resident_from", by="number", strategy="backward", check_sortedness=False)
        .with_columns(
            resident=pl.when(pl.col(time).is_not_null()).then((pl.col(time) < pl.col("there_until")).fill_null(value=False)),
        )
        .with_columns(
            evicted_at=pl.when("resident").then(pl.when(pl.col("evict_end") == pl.col("there_until")).then("evict_end"))
        )
    )
