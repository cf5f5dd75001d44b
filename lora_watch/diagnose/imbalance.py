"""Pods of a pool that get far more than their share."""

from collections.abc import Iterator

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Possible, Remedy, Severity
from lora_watch.diagnose.heads import flagged, head, said, together
from lora_watch.diagnose.words import count, listed, named, percent, span
from lora_watch.model import Window


def imbalance(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """One finding for each pool whose requests fall on few pods, from :func:`lora_watch.derive.imbalance.imbalance`."""
    for (row,) in together(flagged(found), ["what"]):
        busiest = named(row["pods"][0]) if row["pods"] else "one pod"
        wait, others = row["busiest_wait_p95_seconds"], row["others_wait_p95_seconds"]
        waits = "" if wait is None else f"; its requests wait {span(wait)} (p95), the others' {span(others or 0.0)}"
        yield Finding(
            kind="imbalance",
            severity=Severity.WARN,
            summary=f"Imbalance between pods: {busiest} gets {percent(row['max_share'])} of the {row['what']} of "
            f"{count(row['pool_pods'], 'pod')}, {row['max_to_mean_ratio']:.2g} times the mean",
            cause=f"Affinity sends what is asked for most to few pods: {listed(row['adapters'])}{waits}.",
            confidence=Confidence.HIGH,
            weight=float(row["max_to_mean_ratio"]),
            evidence=(
                said(
                    [row],
                    "max_to_mean_ratio",
                    row["max_to_mean_ratio"],
                    f"{count(row['max_per_pod'], 'request')} there, {row['mean_per_pod']:.4g} in the mean of all pods",
                ),
                said([row], "gini_ratio", row["gini_ratio"], f"Gini {row['gini_ratio']:.2f}", "ratio"),
            ),
            remedies=(
                Remedy(
                    "routing",
                    "let the busiest adapters be served by more pods, or weigh load more against affinity",
                    Possible.ROUTER,
                    of="load",
                ),
            ),
            avoid=("Scaling out: the new pods stay as idle as the others while the routing is what it is.",),
            **head([row], window),
        )
