"""A pool that swaps only because one slot is missing: one more removes nearly all of it."""

from collections.abc import Iterator

from lora_watch.derive.hysteresis import Limits
from lora_watch.derive.locality import Method
from lora_watch.diagnose.facts import RECENT, PoolFacts
from lora_watch.diagnose.finding import Confidence, Evidence, Finding, Remedy, Severity
from lora_watch.diagnose.words import count, percent
from lora_watch.model import MINUTE

SWAPS = Limits(enter=0.03, leave=0.021, for_=3 * MINUTE, keep=10 * MINUTE)
"""Misses, and swaps per request, below which the slot is worth more as KV cache."""
SHORT = 0.90
"""Share of the swaps that one more slot per pod removes at least, where one slot is what is missing."""


def removed_by_one_slot(facts: PoolFacts) -> float | None:
    """
    The share of the swaps that one more slot per pod removes; None below ``SHORT``, or where nobody knows.

    By the replay of a thrash since its onset; without one by the miss-ratio curves of the last ten minutes.
    """
    slot = facts.lever("slots", 1) if facts.onset is not None else None
    share = None if slot is None else slot.effect
    if share is None:
        now, more = facts.warned("predicted_miss_ratio"), facts.warned("predicted_miss_ratio_one_slot_more")
        share = 1 - more / now if now and more is not None else None
    return share if share is not None and share >= SHORT else None


def short_said(facts: PoolFacts, each: int, removed: float) -> str:
    """The sentence of it; ``each``: slots of a pod."""
    most = removed > 0.995
    return (
        f"One slot short: {count(facts.active_adapters, 'adapter')} on {count(each, 'slot')} per pod; one more slot "
        f"removes {'every swap' if most else percent(removed) + ' of the swaps'}"
    )


def one_slot_short(facts: PoolFacts) -> Iterator[Finding]:
    """
    Misses above those of ``SWAPS`` at the slots there are, by the miss-ratio curves of the last ten minutes, of which one more
    slot per pod removes ``SHORT`` or more. Since swaps per request are above ``SWAPS``; where no load is told, since the begin of
    these ten minutes.
    """
    now, more = facts.warned("predicted_miss_ratio"), facts.warned("predicted_miss_ratio_one_slot_more")
    each, removed = facts.slots_per_pod, removed_by_one_slot(facts)
    if now is None or more is None or each is None or removed is None or now < SWAPS.enter:
        return
    spans = [since for since, until in facts.high("swaps_per_request", SWAPS) if until is None]
    known, method = facts.provenance, facts.method
    exact = (facts.warning or {}).get("method") == Method.ARRIVALS
    yield Finding(
        kind="one-slot-short",
        severity=Severity.WARN,
        cluster=facts.cluster,
        pool=facts.pool,
        role=facts.role,
        since=spans[0] if spans else facts.window.end - RECENT,
        summary=short_said(facts, each, removed),
        cause="LRU evicts just the adapter that is wanted next as long as one slot is missing.",
        confidence=Confidence.HIGH if exact else Confidence.MEDIUM,
        weight=now,
        evidence=(
            Evidence(
                f"{percent(now)} of requests miss at {count(each, 'slot')}", "predicted_miss_ratio", now, "ratio", known, method
            ),
            Evidence(
                f"{percent(more)} at {count(each + 1, 'slot')}",
                "predicted_miss_ratio_one_slot_more",
                more,
                "ratio",
                known,
                method,
            ),
        ),
        remedies=(
            Remedy(
                "slots",
                f"+1 slot per pod (--max-loras {each} → {each + 1})",
                effect=removed,
                method="replay"
                if facts.onset is not None and facts.lever("slots", 1) is not None
                else "miss-ratio curve of each pod",
                why="a slot costs GPU memory that the KV cache has now",
            ),
        ),
        avoid=("Adding replicas: they miss the same slot.", "A larger CPU cache: the miss is in the slots."),
        pods=facts.names,
    )
