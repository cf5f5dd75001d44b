"""A KV cache that is nearly full."""

from collections.abc import Iterator

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Possible, Remedy, Severity
from lora_watch.diagnose.heads import flagged, head, known, said, together
from lora_watch.diagnose.words import named, percent, span
from lora_watch.model import Provenance, Window

_TIERS = {1: (0.85, "soft_seconds"), 2: (0.90, "hard_seconds"), 3: (0.95, "critical_seconds")}


def kv_pressure(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """One finding for each pool with pods at 90 % or more, from :func:`lora_watch.derive.kv_pressure.kv_pressure`."""
    for group in together(flagged(found), []):
        worst = max(group, key=lambda row: (row["tier"], row["max_ratio"]))
        limit, column = _TIERS[worst["tier"]]
        squeezed = max((row["slots_squeezed"] or 0.0 for row in group), default=0.0)
        slots = f"; {squeezed:.2g} adapters fewer are in slots then" if squeezed >= 0.5 else ""
        yield Finding(
            kind="kv-pressure",
            severity=Severity.WARN,
            summary=f"KV pressure: the cache of {named(worst['pods'][0])} is at {percent(limit)} or more for "
            f"{span(worst[column])}{slots}",
            cause="Prompts and generations in flight need nearly all of the KV cache: requests wait or are preempted.",
            confidence=Confidence.HIGH,
            weight=float(worst["max_ratio"]),
            evidence=tuple(
                said([row], "max_ratio", row["max_ratio"], f"{named(row['pods'][0])}: up to {percent(row['max_ratio'])}", "ratio")
                for row in group[:5]
            ),
            remedies=(
                Remedy("pods", "add pods", Possible.SCALE, of="waits"),
                Remedy("configuration", "shorten what is in flight (--max-num-seqs, lengths of prompts and answers)", of="waits"),
                Remedy("configuration", "lower --max-loras or --max-lora-rank: their memory is KV cache then", of="waits"),
            ),
            avoid=("Adding slots now: each takes memory from the KV cache.",),
            unknown=() if known(group) == Provenance.OBSERVED else ("The cache's use is sampled, not seen all the time.",),
            **head(group, window),
        )
