"""Chains of swaps of a window: who evicted whom, so that it had to be loaded again at another's cost."""

import polars as pl

from lora_watch.explore.around import LONG, STRUCTURES, Around
from lora_watch.model import Window
from lora_watch.store.tables import Store

LONGEST = LONG
"""Of longer windows there are chains without number."""
MOST = 200
"""Chains that are told: those with most swaps."""


def chains(store: Store, window: Window, lookback: int) -> pl.DataFrame:
    """
    The longest chains of a window, most swaps first: as :func:`lora_watch.derive.cascades.cascades` tells them, with ``pod``,
    ``adapters`` (in the order in which they were loaded) and ``start``, ``end`` in µs UTC. StoreError where a table is damaged.
    """
    found = STRUCTURES["cascades"](Around(store, window, lookback))
    ordered = found.sort("swaps", "start", descending=[True, False]).head(MOST)
    pod = pl.col("pods").list.first().alias("pod")
    seconds = ((pl.col("end") - pl.col("start")) / 1_000_000).alias("seconds")
    names = ("cluster", "pool", "role")
    return ordered.select(
        *names,
        pod,
        "engine",
        "start",
        "end",
        seconds,
        "swaps",
        "distinct_adapters",
        "mean_reload_seconds",
        "adapters",
        "provenance",
    ).collect()
