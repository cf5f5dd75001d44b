"""Now: is it thrashing, and is the dashboard lying?"""

from lora_watch.explore.columns import Column
from lora_watch.explore.queries import overview_by_shards
from widgets import scene, tables

page = scene.scene()
told = page.later("overview", overview_by_shards, page.store, page.window, page.lookback, of="the last hour")
if told is not None:
    tables.table(
        "pods",
        told.pods,
        {
            "pod": Column("Pod"),
            "slots": Column("Slots", "count"),
            "swaps_per_second": Column("Swaps/s", "number"),
            "p50_seconds": Column("Residency p50", "seconds"),
        },
    )
