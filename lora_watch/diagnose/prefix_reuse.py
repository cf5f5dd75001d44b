"""Prefix-cache reuse that a split into variants has cost."""

from collections.abc import Iterator

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Possible, Remedy, Severity
from lora_watch.diagnose.heads import flagged, head, said, together
from lora_watch.diagnose.words import count, listed, percent
from lora_watch.model import Window


def prefix_reuse(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """One finding for each pool in which families lost reuse, from :func:`lora_watch.derive.prefix_reuse.prefix_reuse`."""
    for group in together(flagged(found), []):
        parents = [row["parent"] for row in group]
        tokens = sum(row["recomputed_tokens"] or 0.0 for row in group)
        worst = max(group, key=lambda row: row["recomputed_tokens"] or 0.0)
        yield Finding(
            kind="prefix-reuse-lost",
            severity=Severity.INFORMATION,
            summary=f"Prefix-cache reuse lost to variants of {listed(parents)}: {percent(worst['cached_share_before'])} → "
            f"{percent(worst['cached_share_after'])} of prompt tokens come from the cache",
            cause="A prefix is cached for each adapter apart, so what a parent has computed its variant computes again.",
            confidence=Confidence.LOW,
            weight=float(tokens),
            evidence=(said(group, "recomputed_tokens", tokens, f"about {count(tokens, 'token')} prefilled again", "tokens"),),
            remedies=(
                Remedy(
                    "experiment",
                    "split by user rather than by request, so that a prefix stays with one variant",
                    Possible.NOW,
                    of="prefill",
                ),
            ),
            avoid=("Taking the lost reuse for swaps: the prompts are computed again, the weights are there.",),
            **head(group, window),
        )
