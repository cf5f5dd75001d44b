"""Adapters that hold slots and that nobody asks for: pinned ones above all, which nothing will ever evict."""

import polars as pl

from lora_watch.derive.found import structures
from lora_watch.derive.groups import ENGINE, POD, ranked_provenance
from lora_watch.model import HOUR, SECOND, Window

IDLE = HOUR
"""µs without a use after which a resident is a ghost."""
_WHO = ("stream", "adapter")


def ghosts(
    events: pl.LazyFrame,
    stays: pl.LazyFrame,
    window: Window,
    *,
    requests: pl.LazyFrame | None = None,
    since: int | None = None,
    idle: int = IDLE,
) -> pl.LazyFrame:
    """
    Residents at the window's end that were in no batch for ``idle`` µs or more, one row per engine and ``pinned``.

    Columns, between the head (pods: the one; adapters: the ghosts; start: since when the first of them has had no use) and
    provenance: ``engine``, ``pinned``, ``slots_held``, ``slots`` (of the engine; null: not told), ``least_idle_seconds`` and
    ``most_idle_seconds``, both lower bounds.

    Formula: idle = window end − max(last use, ``resident_from``, ``since``). A use lasts from `use` to `release`, or from a
    request's scheduling to its end; one that goes on is no idleness. ``since`` is the time from which uses are held in full
    (the window's start unless told), so nothing can be said in a window shorter than ``idle``. Pinned: the last accepted `pin` or
    `unpin` of the adapter in its boot is a pin, and the stay it was for has gone on since.

    Flagged: pinned ones. An idle resident without a pin leaves when its slot is needed; it costs nothing.

    Edge cases. Engines that tell no uses (a log made from the engine's own lines, and no request rows of the pod either) have
    no row: unknown is not idle; one that could have told and had none is idle. An API server in front of several engines names
    none: its requests are uses on all of them. Hand over pin records from as far back as there are any
    (:func:`~lora_watch.derive.carry.carry` drops them). Stays that are not known to be there at the end are left out.
    """
    told_from = window.start if since is None else since
    kind, before_end = pl.col("kind"), pl.col("at") < window.end
    held = events.filter(before_end)
    there = (
        stays.filter(
            pl.col("adapter").is_not_null()
            & (pl.col("resident_from") < window.end)
            & (pl.col("left_at").is_null() | (pl.col("left_at") >= window.end))
        )
        .sort("resident_from")
        .group_by(*ENGINE, *_WHO)
        .agg(pl.col("resident_from").last(), ranked=ranked_provenance().max())
    )
    pinning = held.filter(kind.is_in(["pin", "unpin"]) & pl.col("ok").ne_missing(False)).sort("seq")
    pins = pinning.group_by(_WHO).agg(pin_kind=kind.last(), pin_at=pl.col("at").last())
    batches = held.filter(kind.is_in(["use", "release"])).sort("seq")
    uses = batches.group_by(_WHO).agg(in_use=kind.last() == "use", used_at=pl.col("at").last())
    tells = (
        held.group_by("stream")
        .agg(
            tells=((kind == "start") & pl.col("clock").is_in(["host", "cuda"])).any() | kind.is_in(["use", "release"]).any(),
            slots=pl.col("slots").drop_nulls().last(),
        )
        .select("stream", "slots", tells=pl.col("tells").fill_null(value=False))
    )
    whole = (
        there.join(pins, on=_WHO, how="left", nulls_equal=True)
        .join(uses, on=_WHO, how="left", nulls_equal=True)
        .join(tells, on="stream", how="left", nulls_equal=True)
    )
    if requests is not None:
        came, ended = pl.coalesce("scheduled", "queued", "arrived"), pl.col("finished")
        asked = requests.filter((came < window.end).fill_null(value=True))
        by_name = asked.group_by(*POD, "adapter").agg(
            asked_at=pl.min_horizontal(ended, pl.lit(window.end)).max(), asking=(ended >= window.end).any()
        )
        heard = asked.select(POD).unique().with_columns(heard=pl.lit(value=True))
        whole = whole.join(by_name, on=[*POD, "adapter"], how="left", nulls_equal=True).join(
            heard, on=POD, how="left", nulls_equal=True
        )
    else:
        whole = whole.with_columns(asked_at=pl.lit(None, dtype=pl.Int64), asking=pl.lit(value=False), heard=pl.lit(value=False))
    ended_by_load = pl.col("pin_at") < pl.col("resident_from")  # the pinned stay ended, another one began
    silent_since = pl.max_horizontal("used_at", "asked_at", "resident_from", pl.lit(told_from))
    return structures(
        whole.with_columns(
            pinned=((pl.col("pin_kind") == "pin") & ~ended_by_load).fill_null(value=False), silent_since=silent_since
        )
        .filter(
            (pl.col("tells").fill_null(value=False) | pl.col("heard").fill_null(value=False))
            & ~pl.col("in_use").fill_null(value=False)
            & ~pl.col("asking").fill_null(value=False)
            & (window.end - pl.col("silent_since") >= idle)
        )
        .group_by(*ENGINE, "pinned")
        .agg(
            adapters=pl.col("adapter").unique().sort(),
            start=pl.col("silent_since").min(),
            slots_held=pl.len().cast(pl.Int64),
            slots=pl.col("slots").max(),
            least_idle_seconds=(window.end - pl.col("silent_since").max()) / SECOND,
            most_idle_seconds=(window.end - pl.col("silent_since").min()) / SECOND,
            provenance=pl.col("ranked").max().cast(pl.String),
        )
        .with_columns(pods=pl.concat_list("pod"), end=pl.lit(window.end), flagged=pl.col("pinned")),
        ("engine", "pinned", "slots_held", "slots", "least_idle_seconds", "most_idle_seconds"),
        by=("pods", "engine", "pinned"),
    )
