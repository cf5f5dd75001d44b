"""The miss-ratio curve: what LRU would miss at every number of slots, from the requests as they came."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.groups import POOL, group_columns
from lora_watch.derive.locality import ErrorClass, Method, Streams, streams
from lora_watch.model import Window
from lora_watch.replay.stack import stack_distances


def miss_ratio_curve(
    requests: pl.LazyFrame, window: Window, by: Sequence[str] = POOL, *, slots: Sequence[int] | None = None
) -> pl.DataFrame:
    """
    LRU misses of the window's requests at every number of slots of a group, exact, from one pass (Mattson 1970).

    Columns: the group's, ``slots``, ``requests`` (for an adapter, that came in the window), ``misses``, ``miss_ratio``,
    ``first_uses`` (of the misses, those of adapters that nothing held had asked for: they miss at every number of slots),
    ``held_from`` (µs UTC: the group's first request held), ``method``, ``error_class``, ``provenance``. Rows are slots 1 …
    the group's adapters, where only first uses are left, or the ``slots`` that are told (at least 0: ValueError).

    Formula: ``misses(c) = requests − #(0 ≤ distance < c)``, distance being the distinct other adapters asked for since the
    adapter's last request. It equals a replay through empty LRU slots from ``held_from`` on, and never rises with c.

    Warm it up: rows of ``requests`` from before the window only fill the slots. An hour will do where characteristic times are
    minutes; ``first_uses`` says what is left to doubt (with more past some of them might hit).

    By pod, a group is the pod's own stream as the router sent it, and ``slots`` are the pod's: right for the routing there was.
    By pool, all requests meet all slots as one cache: with affinity routing within 0.011 of the cluster's miss ratio,
    with round robin far too low, and no basis for a decision (a replay with the router is). Not here: pins, slots held by
    requests in flight, restarts. Base-model requests don't count, rows said twice count once.
    """
    (curve,) = miss_ratio_curves(requests, [window], by, slots=slots)
    return curve


def miss_ratio_curves(
    requests: pl.LazyFrame, windows: Sequence[Window], by: Sequence[str] = POOL, *, slots: Sequence[int] | None = None
) -> list[pl.DataFrame]:
    """
    The :func:`miss_ratio_curve` of each window, all from one pass over the requests: what a request's distance is only those
    before it tell. ``provenance`` is the worst of all requests up to the last window's end.
    """
    keys = group_columns(by)
    if slots is not None and min(slots, default=0) < 0:
        raise ValueError(f"slots are 0 or more, got {min(slots)}")
    told = streams(requests, keys, max(window.end for window in windows))
    distance = stack_distances(told.trace)
    return [_curve(told, distance, window, keys, slots) for window in windows]


def _curve(
    told: Streams, distance: NDArray[np.int32], window: Window, keys: Sequence[str], slots: Sequence[int] | None
) -> pl.DataFrame:
    """The curve of one window, from the distances of its requests and of those around it."""
    first, last = np.searchsorted(told.trace.at, (window.start, window.end))
    pods, width = told.trace.pods_or_one(), max(told.trace.adapters, 1)
    order = np.argsort(pods[first:last], kind="stable")
    near = distance[first:last][order]
    edges = np.searchsorted(pods[first:last][order], np.arange(told.groups.height + 1))
    columns: dict[str, list[np.ndarray]] = {name: [] for name in ("group", "slots", "requests", "misses", "first_uses")}
    for group in range(told.groups.height):
        mine = near[edges[group] : edges[group + 1]]
        if not len(mine):
            continue
        counted = np.bincount(np.where(mine < 0, width, mine), minlength=width + 1)
        misses = len(mine) - np.concatenate([[0], np.cumsum(counted[:width])])
        if slots is None:
            wanted = np.arange(1, len(np.unique(told.trace.adapter[:last][pods[:last] == group])) + 1)
        else:
            wanted = np.array(sorted(set(slots)), dtype=np.int64)
        columns["group"].append(np.full(len(wanted), group))
        columns["slots"].append(wanted)
        columns["requests"].append(np.full(len(wanted), len(mine)))
        columns["misses"].append(misses[np.minimum(wanted, width)])
        columns["first_uses"].append(np.full(len(wanted), counted[width]))
    whole = pl.DataFrame(
        {name: pl.Series(np.concatenate(parts) if parts else [], dtype=pl.Int64) for name, parts in columns.items()}
    )
    return (
        whole.join(told.groups.with_row_index("group").with_columns(pl.col("group").cast(pl.Int64)), on="group")
        .sort("group", "slots")
        .select(
            *keys,
            "slots",
            "requests",
            "misses",
            miss_ratio=pl.col("misses") / pl.col("requests"),
            first_uses="first_uses",
            held_from="held_from",
            method=pl.lit(str(Method.ARRIVALS)),
            error_class=pl.lit(str(ErrorClass.EXACT)),
            provenance="provenance",
        )
    )
