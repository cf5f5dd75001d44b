"""A working set that changes with the hour: what is hot by day is cold at night."""

from collections.abc import Iterator
from datetime import UTC, datetime

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Possible, Remedy, Severity
from lora_watch.diagnose.heads import flagged, head, said, together
from lora_watch.diagnose.words import PRELOAD, count, percent
from lora_watch.model import SECOND, Window


def shifting(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """One finding for each pool whose hours differ, from :func:`lora_watch.derive.shifts.shifts`."""
    for (row,) in together(flagged(found), []):
        hours = " and ".join(f"{datetime.fromtimestamp(row[name] / SECOND, UTC):%H:%M}" for name in ("least_from", "least_to"))
        yield Finding(
            kind="working-set-shift",
            severity=Severity.INFORMATION,
            summary=f"The working set changes with the hour: the mixes of requests from {hours} UTC on have "
            f"{percent(row['least_overlap_ratio'])} in common",
            cause=f"Each part of the day asks for adapters of its own: about {row['block_adapters']:.0f} of "
            f"{count(row['pool_adapters'], 'adapter')} make up nine tenths of four hours.",
            confidence=Confidence.HIGH,
            weight=1 - float(row["least_overlap_ratio"]),
            evidence=(
                said(
                    [row],
                    "least_overlap_ratio",
                    row["least_overlap_ratio"],
                    f"{row['blocks']} blocks of four hours compared",
                    "ratio",
                ),
                said(
                    [row],
                    "neighbour_overlap_ratio",
                    row["neighbour_overlap_ratio"],
                    f"blocks side by side have {percent(row['neighbour_overlap_ratio'])} in common",
                    "ratio",
                ),
            ),
            remedies=(
                Remedy(
                    "preload",
                    "preload by the hour of the week, if the loads at a change of shift hurt",
                    Possible.NOW,
                    of="loads",
                    why=PRELOAD,
                ),
            ),
            avoid=("Pinning by counts of a month: what leads there sleeps half of the day.",),
            **{**head([row], window), "until": None},
        )
