"""Pods that stand still together, more often than by chance."""

from collections.abc import Iterator

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Possible, Remedy, Severity
from lora_watch.diagnose.heads import flagged, head, said, together
from lora_watch.diagnose.words import PRELOAD, count, percent
from lora_watch.model import Window


def convoy(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """One finding for each pool with convoys in the window, from :func:`lora_watch.derive.convoys.convoys`."""
    for group in together(flagged(found), []):
        worst = max(group, key=lambda row: row["ratio"] or float("inf"))
        beside = "the time expected of independent pods"
        ratio = f"{worst['ratio']:.1f} times {beside}" if worst["ratio"] is not None else "which independent pods never would"
        yield Finding(
            kind="convoy",
            severity=Severity.WARN,
            summary=f"Convoy: up to {count(worst['most_pods_at_once'], 'pod')} of {worst['pool_pods']} load at the same time, "
            f"{ratio}",
            cause="Requests for many adapters arrive together, and each waits behind the loads of the others, on many pods.",
            confidence=Confidence.MEDIUM,
            weight=float(worst["swap_share"]),
            evidence=(
                said(
                    group,
                    "many_loading_seconds",
                    worst["many_loading_seconds"],
                    f"{worst['many_loading_seconds']:.3g} s with {worst['many_pods']} pods or more loading; "
                    f"{worst['expected_seconds']:.2g} s expected",
                    "seconds",
                ),
                said(group, "swap_share", worst["swap_share"], f"loads took {percent(worst['swap_share'])} of pod time", "ratio"),
                said(group, "convoys", len(group), f"{count(len(group), 'convoy')} in the window"),
            ),
            remedies=(
                Remedy(
                    "spread",
                    "spread what asks for many adapters at once over minutes, a job's start for instance",
                    Possible.NOW,
                    of="waits",
                ),
                Remedy("preload", "preload these adapters before they are asked for", Possible.NOW, of="waits", why=PRELOAD),
            ),
            avoid=("Scaling out on GPU utilisation: the pods are waiting for loads, not for compute.",),
            **head(group, window),
        )
