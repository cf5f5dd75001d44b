"""A pool that swaps only because one slot is missing: one more removes nearly all of it."""

from collections.abc import Iterator

from lora_watch.diagnose.facts import PoolFacts
from lora_watch.diagnose.finding import Confidence, Evidence, Finding, Remedy, Severity
from lora_watch.diagnose.words import count, percent

LEAST_MISSES = 0.03
"""Below, the slot is worth more as KV cache."""
LEFT = 0.10
"""Of the misses at most, that one more slot per pod leaves."""


def one_slot_short(facts: PoolFacts) -> Iterator[Finding]:
    """
    By the miss-ratio curves of the pods: misses above ``LEAST_MISSES`` at the slots there are, of which one more slot per pod
    leaves ``LEFT`` or less. Since the curves are of the last ten minutes, so is ``since``, or the onset of a thrash.
    """
    now, more = facts.warned("predicted_miss_ratio"), facts.warned("predicted_miss_ratio_one_slot_more")
    each = facts.slots_per_pod
    if now is None or more is None or each is None or now < LEAST_MISSES or more > LEFT * now:
        return
    method = str((facts.warning or {}).get("method") or "")
    yield Finding(
        kind="one-slot-short",
        severity=Severity.WARN,
        cluster=facts.cluster,
        pool=facts.pool,
        role=facts.role,
        since=facts.onset or facts.window.end,
        summary=f"One slot short: {count(facts.active_adapters, 'adapter')} on {count(each, 'slot')} per pod; one more slot "
        f"removes {'every swap' if more == 0 else percent(1 - more / now) + ' of the swaps'}",
        cause="LRU evicts just the adapter that is wanted next as long as one slot is missing.",
        confidence=Confidence.HIGH,
        weight=now,
        evidence=(
            Evidence(f"miss ratio at {each} slots: {now:.3f}", "predicted_miss_ratio", now, "ratio", facts.provenance, method),
            Evidence(
                f"at {each + 1} slots: {more:.3f}",
                "predicted_miss_ratio_one_slot_more",
                more,
                "ratio",
                facts.provenance,
                method,
            ),
        ),
        remedies=(
            Remedy(
                "slots",
                f"+1 slot per pod (--max-loras {each} → {each + 1})",
                effect=1 - more / now,
                method="miss-ratio curve of each pod",
                why="a slot costs GPU memory that the KV cache has now",
            ),
        ),
        avoid=("Adding replicas: they miss the same slot.", "A larger CPU cache: the miss is in the slots."),
        pods=facts.names,
    )
