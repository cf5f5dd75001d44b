"""The miss-ratio curve: what LRU would miss at every number of slots, from the requests as they came."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from lora_watch.derive.groups import POOL, group_columns
from lora_watch.derive.locality import ErrorClass, Method, streams
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
    keys = group_columns(by)
    if slots is not None and min(slots, default=0) < 0:
        raise ValueError(f"slots are 0 or more, got {min(slots)}")
    told = streams(requests, keys, window.end)
    distance = stack_distances(told.trace)
    inside = told.trace.at >= window.start
    pod, near = told.trace.pods_or_one()[inside], distance[inside]
    width = max(told.trace.adapters, 1)
    columns: dict[str, list[np.ndarray]] = {name: [] for name in ("group", "slots", "requests", "misses", "first_uses")}
    for group in range(told.groups.height):
        mine = near[pod == group]
        if not len(mine):
            continue
        counted = np.bincount(np.where(mine < 0, width, mine), minlength=width + 1)
        misses = len(mine) - np.concatenate([[0], np.cumsum(counted[:width])])
        most = len(np.unique(told.trace.adapter[told.trace.pods_or_one() == group]))
        wanted = np.arange(1, most + 1) if slots is None else np.array(sorted(set(slots)), dtype=np.int64)
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
