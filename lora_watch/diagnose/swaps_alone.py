"""Swaps without end where nobody tells the requests: the engine's own log lines, or a sidecar whose API server has no plug-in."""

from collections.abc import Iterator

import polars as pl

from lora_watch.derive.hysteresis import Limits
from lora_watch.derive.timeline import high_spans
from lora_watch.diagnose.facts import PoolFacts
from lora_watch.diagnose.finding import Confidence, Evidence, Finding, Remedy, Severity
from lora_watch.diagnose.thrash import HARM_SHARE
from lora_watch.diagnose.words import count, percent
from lora_watch.model import MINUTE, SECOND

SWAPS = Limits(enter=0.1, leave=0.07, for_=3 * MINUTE, keep=10 * MINUTE)
"""Swaps a second and pod. A healthy pool of four slots a pod had 0.034, the same pool thrashing 0.129."""


def swaps_alone(facts: PoolFacts) -> Iterator[Finding]:
    """
    A thrash told by swaps a second and pod above ``SWAPS``, only where the window holds no request to count misses by.

    A warning, and harm where pods stand still for loads ``HARM_SHARE`` of the time or more. Nothing where slots are unknown, or
    where a request is held: then misses tell better.
    """
    each, rate = facts.slots_per_pod, facts.swaps_per_second
    if each is None or rate is None or facts.timeline["requests"].sum():
        return
    lines = facts.timeline.with_columns(rate=pl.col("swaps") / facts.pods.height / (MINUTE / SECOND))
    spans = high_spans(lines, "rate", SWAPS, facts.window.end)
    if not spans or spans[-1][1] is not None:
        return
    stalled, known = facts.stall_share, facts.provenance
    evidence = [Evidence(f"{rate:.3g} swaps per second and pod", "swaps_per_second", rate, "per second", known)]
    if stalled is not None:
        text = f"pods stood still for loads {percent(stalled)} of the last 10 min; harm from {percent(HARM_SHARE)}"
        evidence.append(Evidence(text, "stall_share", stalled, "ratio", known))
    yield Finding(
        kind="thrash",
        severity=Severity.HARM if stalled is not None and stalled >= HARM_SHARE else Severity.WARN,
        cluster=facts.cluster,
        pool=facts.pool,
        role=facts.role,
        since=spans[-1][0],
        summary=f"Thrash: {rate:.2g} swaps per second and pod on {facts.slots_said} ({each} per pod); no request is told",
        cause=f"Working set above the slots of each pod: more adapters are wanted in turn than {count(each, 'slot')} can hold.",
        confidence=Confidence.MEDIUM,
        weight=rate,
        evidence=tuple(evidence),
        remedies=(Remedy("slots", f"more slots per pod (--max-loras above {each}); requests are needed to say how many"),),
        avoid=("Reading GPU utilisation as load: a GPU that swaps reads busy.",),
        pods=facts.names,
        unknown=("How many requests miss, and what more slots would change: no request is told.",),
    )
