"""Many pods loading the same adapter at the same time."""

from collections.abc import Iterator

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Possible, Remedy, Severity
from lora_watch.diagnose.heads import flagged, head, said, together
from lora_watch.diagnose.words import PRELOAD, count, named, span
from lora_watch.model import Window


def stampede(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """One finding for each adapter that stampeded in the window, from :func:`lora_watch.derive.stampedes.stampedes`."""
    rows = flagged(found).with_columns(adapter=pl.col("adapters").list.first())
    for group in together(rows, ["adapter"]):
        adapter = group[0]["adapter"]
        largest = max(group, key=lambda row: row["pods_loading"])
        paid = sum(row["load_seconds"] or 0.0 for row in group)
        times = "" if len(group) == 1 else f", {len(group)} times in the window"
        yield Finding(
            kind="stampede",
            severity=Severity.WARN,
            summary=f"Stampede: {count(largest['pods_loading'], 'pod')} loaded {named(adapter)} at the same time{times}",
            cause="Requests for an adapter that hardly any pod held came together and were spread over pods before the first "
            "load was done: the router sees a load only when it is complete.",
            confidence=Confidence.HIGH,
            weight=float(largest["pods_loading"]),
            evidence=(
                said(
                    group,
                    "pods_loading",
                    largest["pods_loading"],
                    f"{count(largest['pods_loading'], 'pod')}, {count(largest['loads'], 'load')} within "
                    f"{span(largest['span_seconds'])}",
                ),
                said(group, "load_seconds", paid, f"{span(paid)} of pod time for them all", "seconds"),
                said(
                    group, "expected_by_chance", largest["expected_by_chance"], f"by chance: {largest['expected_by_chance']:.2g}"
                ),
            ),
            remedies=(
                Remedy(
                    "preload",
                    "preload the adapter where it is meant to be served, before the traffic comes",
                    Possible.NOW,
                    of="loads",
                    why=PRELOAD,
                ),
                Remedy(
                    "routing",
                    "route with coalescing or a placement bonus, so that requests wait for the one load",
                    Possible.ROUTER,
                    of="loads",
                ),
            ),
            avoid=("More slots: the adapter was not evicted, it was not there.",),
            scope=str(adapter),
            **head(group, window),
        )
