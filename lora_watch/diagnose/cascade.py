"""Chains of swaps: each load evicts the adapter that is asked for next. Explains a thrash; is none by itself."""

from collections.abc import Iterator

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Remedy, Severity
from lora_watch.diagnose.heads import head, said, together
from lora_watch.diagnose.words import count, listed, named, span
from lora_watch.model import Window

LONG = 6
"""Swaps of a chain that is worth telling."""
LEAST_CHAINS = 3


def cascade(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """
    One finding for each pool that has chains of ``LONG`` swaps or more, from :func:`lora_watch.derive.cascades.cascades`.

    Information, always: such chains are in healthy clusters too. Hand over chains of pools that thrash.
    """
    for group in together(found.filter(pl.col("swaps") >= LONG), []):
        if len(group) < LEAST_CHAINS:
            continue
        longest = max(group, key=lambda row: row["swaps"])
        ring = list(dict.fromkeys(longest["adapters"]))
        mean = sum(row["mean_reload_seconds"] or 0.0 for row in group) / len(group)
        yield Finding(
            kind="cascade",
            severity=Severity.INFORMATION,
            summary=f"Cascade: each load evicts an adapter that is loaded again {span(mean)} later; up to "
            f"{count(longest['swaps'], 'swap')} in a row on {named(longest['pods'][0])} ({listed(ring)})",
            cause="Working set above the slots of each pod: what was evicted is asked for again before long, in turn.",
            confidence=Confidence.MEDIUM,
            weight=float(longest["swaps"]),
            evidence=(
                said(group, "chains", len(group), f"{count(len(group), 'chain')} of {LONG} swaps or more"),
                said(group, "mean_reload_seconds", mean, f"{span(mean)} from eviction to reload", "seconds"),
            ),
            remedies=(Remedy("slots", "slots for the whole ring, or pipelines that stay on pods of their own"),),
            avoid=("Taking chains for a fault by themselves: healthy pools have short ones too.",),
            **{**head(group, window), "adapters": tuple(ring)},
        )
