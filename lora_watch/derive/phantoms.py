"""Names and weights that disagree: withdrawn names whose weights are still in the engine, and names that have none."""

import polars as pl

from lora_watch.derive.found import names_of, structures
from lora_watch.derive.groups import POD, POOL, ranked_provenance
from lora_watch.derive.registry import registry
from lora_watch.model import HOUR, MINUTE, SECOND, Window

FLAGGED_SECONDS = MINUTE // SECOND
"""Weights that stay so long behind their name will stay until something else needs the room."""
IDLE = HOUR
"""µs for which a served name may be nowhere on a GPU before it is called idle."""
IN_ENGINE, NOWHERE = "weights still in engine", "name without weights"


def phantoms(names: pl.LazyFrame, stays: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """
    Where the registry of names and residency disagree, one row per pool, adapter and kind.

    Columns, between the head (pods: those it is so on) and provenance: ``kind``, ``slots_held`` (over the pods, at the end of
    the window; 0 by then is past), ``held_slot_seconds`` (after the name was withdrawn, up to the window's end),
    ``longest_seconds`` (on one engine).

    * ``weights still in engine``: the name was withdrawn and a stay of the adapter goes on. Withdrawing a name frees no slot:
      the weights leave when another adapter needs the room. They were not evicted. start: the earliest withdrawal (or the
      window's start). Flagged if one engine held them for a minute or more.
    * ``name without weights``: the name is served on ``pods`` for ``IDLE`` or longer and was in no slot of the pool in the
      window. Any pool with more names than slots has such names: never flagged.

    ``names`` are `register`, `unregister` and `start` records up to the window's end, from as far back as there are any
    (what :func:`~lora_watch.derive.carry.carry` keeps does not hold them); ``stays`` those of the same time.

    Formula: a pod's names are those of its newest API server (:func:`~lora_watch.derive.registry.registry`). Held from
    ``max(unregister, resident_from)`` to ``left_at``.

    Edge cases. Refused calls (``ok`` false) change nothing. A name withdrawn and registered anew is no phantom from then on. A
    registry that is not held at all makes no row: unknown is not disagreement. ``engine`` is not compared: an API server in
    front of several names none.
    """
    kind = pl.col("kind")
    served = registry(names, window.end).cache()
    withdrawn = served.filter(kind == "unregister").select(*POD, "adapter", since="at", ranked="ranked")
    until = pl.min_horizontal(pl.col("left_at").fill_null(window.end), pl.lit(window.end, dtype=pl.Int64))
    held = (
        stays.filter(pl.col("adapter").is_not_null())
        .join(withdrawn, on=[*POD, "adapter"], nulls_equal=True)
        .with_columns(
            since=pl.max_horizontal("since", "resident_from"),
            until=until,
            still=pl.col("left_at").is_null() | (pl.col("left_at") >= window.end),
            ranked=pl.max_horizontal("ranked", ranked_provenance()),
        )
        .filter((pl.col("until") > pl.col("since")) & (pl.col("until") > window.start))
    )
    seconds = (pl.col("until") - pl.col("since")) / SECOND
    in_engine = (
        held.group_by(*POOL, "adapter")
        .agg(
            pods=names_of("pod"),
            start=pl.max_horizontal(pl.col("since").min(), pl.lit(window.start)),
            end=pl.col("until").max(),
            slots_held=pl.col("still").sum().cast(pl.Int64),
            held_slot_seconds=seconds.sum(),
            longest_seconds=seconds.max(),
            ranked=pl.col("ranked").max(),
        )
        .with_columns(kind=pl.lit(IN_ENGINE), flagged=pl.col("longest_seconds") >= FLAGGED_SECONDS)
    )
    there = stays.filter(
        (pl.col("resident_from") < window.end) & (pl.col("left_at").is_null() | (pl.col("left_at") > window.start))
    )
    nowhere = (
        served.filter((kind == "register") & (pl.col("at") <= window.end - IDLE))
        .join(there.select(*POOL, "adapter").unique(), on=[*POOL, "adapter"], how="anti", nulls_equal=True)
        .join(stays.select(POD).unique(), on=POD, how="semi", nulls_equal=True)
        .group_by(*POOL, "adapter")
        .agg(
            pods=names_of("pod"),
            start=pl.max_horizontal(pl.col("at").min(), pl.lit(window.start)),
            end=pl.lit(window.end, dtype=pl.Int64),
            slots_held=pl.lit(0, dtype=pl.Int64),
            held_slot_seconds=pl.lit(0.0),
            longest_seconds=pl.lit(0.0),
            ranked=pl.col("ranked").max(),
        )
        .with_columns(kind=pl.lit(NOWHERE), flagged=pl.lit(value=False))
    )
    both = pl.concat([in_engine, nowhere.select(in_engine.collect_schema().names())])
    return structures(
        both.with_columns(adapters=pl.concat_list("adapter"), provenance=pl.col("ranked").cast(pl.String)),
        ("kind", "slots_held", "held_slot_seconds", "longest_seconds"),
        by=("kind", "start", "adapters"),
    )
