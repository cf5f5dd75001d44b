"""A job that asks for all adapters in turn: it flushes the slots and goes away."""

from collections.abc import Iterator
from datetime import UTC, datetime

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Possible, Remedy, Severity
from lora_watch.diagnose.heads import flagged, head, said, together
from lora_watch.diagnose.words import count, span
from lora_watch.model import MINUTE, SECOND, Window

QUARTER = 15 * MINUTE
"""A job is told by the quarter of an hour in which it began."""


def batch_scan(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """One finding for each pool that was scanned, from :func:`lora_watch.derive.scans.scans`."""
    for group in together(flagged(found), []):
        last = group[-1]
        begin = datetime.fromtimestamp(last["start"] // QUARTER * QUARTER / SECOND, UTC).strftime("%H:%M")
        every = next((row["every_seconds"] for row in group if row["every_seconds"]), None)
        often = f", every {span(round(every / 300) * 300)}" if every else ""
        yield Finding(
            kind="batch-scan",
            severity=Severity.INFORMATION,
            summary=f"A batch job at {begin} swaps: it asks for {last['scanned_adapters']} of "
            f"{count(last['pool_adapters'], 'adapter')} in turn within {span((last['end'] - last['start']) / SECOND)}{often}",
            cause="One after the other, each for a short run: a job, not users. It flushes the slots, and "
            "what was there is loaded again behind it.",
            confidence=Confidence.HIGH if every else Confidence.MEDIUM,
            weight=float(last["scanned_adapters"]),
            evidence=(
                said(
                    group, "scanned_adapters", last["scanned_adapters"], f"{count(last['scanned_adapters'], 'adapter')} in turn"
                ),
                said(
                    group,
                    "requests_per_adapter",
                    last["requests_per_adapter"],
                    f"{last['requests_per_adapter']:.3g} requests each",
                ),
                said(group, "scans", len(group), f"{count(len(group), 'scan')} in the window"),
            ),
            remedies=(
                Remedy(
                    "spread",
                    "let the job finish one adapter before the next, on a pod of its own, or at a quiet hour",
                    Possible.NOW,
                ),
            ),
            avoid=("Sizing the slots for the job.",),
            **{**head(group, window), "adapters": ()},
        )
