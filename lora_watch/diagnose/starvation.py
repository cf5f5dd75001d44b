"""Adapters whose requests wait while those of others are served: a mean over all hides them."""

from collections.abc import Iterator

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Remedy, Severity
from lora_watch.diagnose.heads import flagged, head, names, said, together
from lora_watch.diagnose.words import count, listed, named, span
from lora_watch.model import Window


def starvation(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """
    One finding for each pool with starving adapters, from :func:`lora_watch.derive.starvation.starvation`, worst first.

    Only amid requests that are served: where none of a pool finished, what tells of them is late or gone, and nobody starves.
    """
    served = found.filter(pl.col("requests") > 0).select("cluster", "pool", "role").unique()
    amid = found.join(served, on=["cluster", "pool", "role"], how="semi", nulls_equal=True)
    for group in together(flagged(amid), []):
        group.sort(key=lambda row: -(row["wait_p95_seconds"] or 0.0))
        who = names(group, "adapters")
        waits = [row["wait_p95_seconds"] for row in group if row["wait_p95_seconds"] is not None]
        typical = next((row["typical_p95_seconds"] for row in group if row["typical_p95_seconds"] is not None), None)
        told = f"wait {span(max(waits))} (p95)" if waits else "are not scheduled at all"
        beside = "" if typical is None else f", where others wait {span(typical)}"
        yield Finding(
            kind="starvation",
            severity=Severity.WARN,
            summary=f"Starvation of {listed(who)}: their requests {told}{beside}",
            cause="Their adapters are in no slot, and those that are there have requests in flight, so none can leave.",
            confidence=Confidence.MEDIUM,
            weight=max(waits, default=float(len(who))),
            evidence=tuple(
                said(
                    [row],
                    "wait_p95_seconds",
                    row["wait_p95_seconds"],
                    f"{named(row['adapters'][0])}: {count(row['requests'], 'request')}, {row['gave_up']} never scheduled",
                    "seconds",
                )
                for row in group[:5]
            ),
            remedies=(
                Remedy("slots", "one more slot per pod", of="waits"),
                Remedy(
                    "engine",
                    "let the engine drain for waiting adapters (SGLang: --lora-drain-wait-threshold)",
                    of="waits",
                    why="vLLM has no such switch",
                ),
            ),
            avoid=("Judging by the mean over all adapters: it looks healthy.",),
            **head(group, window),
        )
