"""The harm: the pool will, or does, get more work than it can do."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from lora_watch.derive.forecast import Basis
from lora_watch.derive.saturation import Bottleneck
from lora_watch.derive.warning import LIMITS
from lora_watch.diagnose.facts import PoolFacts
from lora_watch.diagnose.finding import Confidence, Evidence, Finding, Possible, Remedy, Severity, ranked
from lora_watch.diagnose.words import count, named, percent
from lora_watch.model import SECOND

LOADS_SHARE = 0.10
"""Of pod time in loads, from which it is loads that make requests long, so that more adapters are in flight than slots."""
WORDS = {
    Bottleneck.SLOTS: "slots: adapters with a request in flight cannot leave theirs, so others wait",
    Bottleneck.SEATS: "seats in the batch (max_num_seqs)",
    Bottleneck.LOADS: "time: pods do little else than load adapters",
    Bottleneck.CAPACITY: "what the pods have ever managed",
}

_CONFIDENCES: Mapping[str | None, Confidence] = {str(Basis.WEEK): Confidence.HIGH, str(Basis.DAY): Confidence.MEDIUM}
"""By what the forecast of the peak rests on; the current rate alone says little of it."""


def saturation(facts: PoolFacts) -> Iterator[Finding]:
    """
    ``rho_peak`` is an alarm: at the peak of the next hours one of four resources runs out. Harm, since a queue without end
    follows. Not where that is the hard cliff, which has a finding of its own.
    """
    since, rho = facts.alarm("rho_peak"), facts.warned("rho_peak")
    told = facts.warning or {}
    if since is None or rho is None or (told.get("bottleneck") == Bottleneck.SLOTS and any(hard_cliff(facts))):
        return
    word = Bottleneck(told["bottleneck"]) if told.get("bottleneck") else None
    when = f" at the peak ({_clock(told['peak_at'])})" if told.get("peak_at") else " at the coming peak"
    now = facts.warned("rho_now")
    peak = facts.warned("peak_rps")
    known = facts.provenance
    limit = percent(LIMITS["rho_peak"].enter)
    needs = f"needs {percent(rho)} of what the pool can do (rho)"
    evidence = [Evidence(f"the load{when} {needs}; trouble from {limit}", "rho_peak", rho, "ratio", known)]
    if now is not None:
        evidence.append(Evidence(f"{percent(now)} of it is in use now", "rho_now", now, "ratio", known))
    if peak is not None:
        method = str(told.get("peak_method") or "")
        evidence.append(Evidence(f"{peak:.3g} requests per second expected then", "peak_rps", peak, "per second", known, method))
    if (share := facts.stall_share) is not None:
        evidence.append(Evidence(f"{percent(share)} of pod time goes into loads now", "stall_share", share, "ratio", known))
    yield Finding(
        kind="saturation",
        severity=Severity.HARM,
        cluster=facts.cluster,
        pool=facts.pool,
        role=facts.role,
        since=since,
        summary=f"The pool is saturated: the load needs {percent(now)} of what the pool can do now, {percent(rho)}{when} (rho)"
        if now is not None and now >= 1
        else f"The pool saturates{when}: the load then {needs}",
        cause=f"First to run out: {WORDS[word] if word else 'unknown'}.",
        confidence=_CONFIDENCES.get(told.get("peak_method"), Confidence.LOW),
        weight=rho,
        evidence=tuple(evidence),
        remedies=_remedies(facts, word),
        avoid=("Waiting for the P95: it bends when the queue is already there.",),
        pods=facts.names,
    )


def hard_cliff(facts: PoolFacts) -> Iterator[Finding]:
    """
    More adapters have a request in flight than a pod has slots: none of them can be evicted, so requests for others wait, without
    end if it stays so, though there are hardly any swaps. Where pods spend much of their time in loads, these make requests
    long, and that is what to say.
    """
    since, full, stalled = facts.alarm("hard_cliff"), facts.warned("hard_cliff"), facts.stall_share
    if since is None or full is None or (stalled is not None and stalled >= LOADS_SHARE):
        return
    pod = (facts.warning or {}).get("fullest_pod")
    where = "one pod" if pod is None else named(str(pod))
    row = facts.pods.filter(facts.pods["pod"] == pod)
    slots = row["slots"].item() if row.height == 1 else facts.slots_per_pod
    waiting = row["swap_queue_mean"].item() if row.height == 1 and "swap_queue_mean" in row.columns else None
    known = facts.provenance
    evidence = [
        Evidence(
            f"adapters with a request in flight take {percent(full)} of the slots of {where}; trouble from "
            f"{percent(LIMITS['hard_cliff'].enter)}",
            "hard_cliff",
            full,
            "ratio",
            known,
        ),
    ]
    if waiting is not None:
        evidence.append(Evidence(f"{waiting:.3g} requests wait for a slot there", "swap_queue_mean", waiting, "", known))
    yield Finding(
        kind="hard-cliff",
        severity=Severity.HARM,
        cluster=facts.cluster,
        pool=facts.pool,
        role=facts.role,
        since=since,
        summary=f"Requests wait for slots: on {where} about {full * (slots or 0):.1f} adapters have a request in flight at any "
        f"time, for {count(slots or 0, 'slot')}",
        cause="Distinct adapters within a generation exceed the slots: an adapter in use cannot be evicted, so requests for "
        "others wait until a generation ends.",
        confidence=Confidence.HIGH,
        weight=full,
        evidence=tuple(evidence),
        remedies=_remedies(facts, Bottleneck.SLOTS),
        avoid=("Faster loads, or a larger CPU cache: what is missing is a slot, not a load.",),
        pods=facts.names if pod is None else (str(pod),),
    )


def _remedies(facts: PoolFacts, word: Bottleneck | None) -> tuple[Remedy, ...]:
    each = facts.slots_per_pod
    more = f" (--max-loras {each} → {each + 1})" if each else ""
    remedies = [Remedy("pods", "add pods: each brings slots, seats and time", Possible.SCALE, of="load")]
    if word in (Bottleneck.SLOTS, Bottleneck.LOADS):
        slots = facts.lever("slots", 1)
        slot = Remedy("slots", f"one more slot per pod{more}")
        if slots is not None and (slots.waiting or word is Bottleneck.LOADS):
            low, high = (None, None) if slots.waiting else (slots.low, slots.high)
            slot = replace(slot, effect=slots.removed, low=low, high=high, of=slots.of, method=slots.method)
        remedies.insert(0, slot)
        remedies.append(Remedy("routing", "route by adapter, so that a pod is asked for fewer of them", Possible.ROUTER))
    if word is Bottleneck.SEATS:
        remedies.insert(0, Remedy("configuration", "raise --max-num-seqs, if the KV cache has room for it", of="waits"))
    if facts.alarm("newmass") is not None:
        remedies.append(Remedy("experiment", "pause the new adapters", Possible.NOW))
    return ranked(remedies)


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / SECOND, UTC).strftime("%H:%M UTC")
