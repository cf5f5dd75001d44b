"""Loads that take far longer than usual, however many there are."""

from collections.abc import Iterator

import polars as pl

from lora_watch.derive.slow_loads import FEWEST_USUAL
from lora_watch.diagnose.finding import Confidence, Finding, Remedy, Severity
from lora_watch.diagnose.heads import flagged, head, said, together
from lora_watch.diagnose.words import count, span
from lora_watch.model import Window

_PHASES = {
    "disk": (
        "slow loads from disk",
        "Reading adapters into CPU memory is slow: look at the disk, the network file system or the download behind it.",
        Remedy("disk", "keep adapters on a local disk, or repair the storage", of="load time"),
    ),
    "copy": (
        "slow copies to the GPU",
        "Copying adapters from CPU memory into their slots is slow: pageable instead of pinned memory, or a busy PCIe link.",
        Remedy(
            "engine", "see that CPU-cached adapters lie in pinned memory, and that nothing else fills the link", of="load time"
        ),
    ),
}


def slow_load(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """One finding for each pool and phase with slow loads, from :func:`lora_watch.derive.slow_loads.slow_loads`."""
    for group in together(flagged(found), ["phase"]):
        worst = max(group, key=lambda row: row["slow_seconds"])
        name, cause, remedy = _PHASES[worst["phase"]]
        usual = worst["usual_p95_seconds"] if worst["usual_loads"] >= FEWEST_USUAL else None
        against = f" against {span(usual)} as usual" if usual is not None else f", {span(worst['allowed_seconds'])} is allowed"
        yield Finding(
            kind="slow-load",
            severity=Severity.WARN,
            summary=f"Slow load: {name}, {span(worst['p95_seconds'])} (95th percentile){against}",
            cause=f"{cause} Each load takes long, however many there are.",
            confidence=Confidence.HIGH if usual is not None else Confidence.MEDIUM,
            weight=float(worst["slow_seconds"]),
            evidence=(
                said(
                    group,
                    "slow_loads",
                    worst["slow_loads"],
                    f"{worst['slow_loads']} of {count(worst['loads'], 'load')} are slow; median {span(worst['p50_seconds'])}",
                ),
                said(
                    group, "slow_seconds", worst["slow_seconds"], f"{span(worst['slow_seconds'])} spent on slow ones", "seconds"
                ),
            ),
            remedies=(
                remedy,
                *(
                    [Remedy("cpu-cache", "raise --max-cpu-loras, so that fewer loads read the disk", of="reads from disk")]
                    if worst["phase"] == "disk"
                    else []
                ),
            ),
            avoid=("More slots for it: the loads are slow, not too many.",),
            scope=worst["phase"],
            **head(group, window),
        )
