"""Adapters that nobody had asked for before: the cause, seen in the first minute, before anything hurts."""

from collections.abc import Iterator

from lora_watch.derive.first_seen import USUAL
from lora_watch.derive.warning import LIMITS
from lora_watch.diagnose.facts import RECENT, PoolFacts
from lora_watch.diagnose.finding import Confidence, Evidence, Finding, Possible, Remedy, Severity, ranked
from lora_watch.diagnose.words import count, listed, pattern, percent
from lora_watch.model import HOUR, MINUTE

LEAST_SHARE = LIMITS["newmass"].enter
"""Of the requests: fewer are somebody trying something."""
WORSE = 1.5
"""New adapters that raise the misses by this factor, above ``LEAST_MISSES``, are a warning; else there is room for them."""
LEAST_MISSES = 0.10
CROWD, LEAST_CROWD = 0.25, 6
"""
New adapters ÷ slots, and their number, from which they are a warning at once where more adapters are in use than slots: misses
are measured over ten minutes, so they tell of an experiment minutes late, and of one that grows slowly half an hour late
(benchmarks/README.md, *detection*). Tenants come by ones and twos.
"""


def new_adapters(facts: PoolFacts) -> Iterator[Finding]:
    """
    Adapters first seen in the last hour that carry more than 1 % of the requests of the last ten minutes, or of the last two
    (the early warning's ``newmass``); announced ones apart.

    A warning where the misses rise, or are predicted to be too many, or where there is a ``CROWD`` of them and more
    adapters in use than slots; information where there is room for them, or where they were announced. Nothing while the pool
    is being learned (on the first day everything is new).
    """
    if facts.learning:
        return
    fresh = facts.adapters.filter(facts.adapters["first_seen"] >= facts.window.end - HOUR)
    for announced in (False, True):
        rows = fresh.filter(fresh["announced"] == announced).sort(["requests", "adapter"], descending=[True, False])
        whole = int(facts.adapters["requests"].sum())
        share, span = int(rows["requests"].sum()) / whole if whole else 0.0, RECENT
        newest = facts.warned("newmass") or 0.0
        if newest > share and not announced:
            share, span = newest, USUAL.span
        if share <= LEAST_SHARE or rows.is_empty():
            continue
        yield _finding(facts, tuple(rows["adapter"]), int(rows["first_seen"].min()), share, span, announced=announced)  # type: ignore[arg-type]


def _finding(facts: PoolFacts, names: tuple[str, ...], since: int, share: float, span: int, *, announced: bool) -> Finding:
    slots, active = facts.slots, facts.active_adapters
    name = pattern(names)
    who = f"{count(len(names), 'new adapter')} ({f'`{name}`' if name else listed(names)})"
    before, now = facts.before(since, "loads", "requests"), facts.loads_per_request
    predicted = facts.warned("predicted_miss_ratio")
    crowded = slots is not None and len(names) >= max(CROWD * slots, LEAST_CROWD) and active > slots
    hurts = crowded or _hurts(before, now, predicted, facts.miss_limit.enter)
    severity = Severity.WARN if hurts and not announced else Severity.INFORMATION
    room = "" if facts.slots_per_pod is None else f"; {active} adapters are now in use on {facts.slots_said}"
    misses = f"; misses {percent(before)} → {percent(now)}" if before is not None and now is not None else ""
    effect = "the working set grows beyond the slots" if hurts else "there is room for them"
    return Finding(
        kind="new-adapters",
        severity=severity,
        cluster=facts.cluster,
        pool=facts.pool,
        role=facts.role,
        since=since,
        summary=f"{who}{' as announced' if announced else ''} carry {percent(share)} of requests{room}{misses}",
        cause=f"Adapters that nobody had asked for before are asked for since then; {effect}.",
        confidence=Confidence.HIGH,
        weight=share,
        evidence=tuple(_evidence(facts, share, span, len(names), predicted)),
        remedies=_remedies(name or listed(names)) if severity is Severity.WARN else (),
        avoid=("Scaling out on GPU utilisation: what grows is the number of adapters, not the traffic.",) if hurts else (),
        pods=facts.names,
        adapters=names,
        scope="announced" if announced else "",
    )


def _hurts(before: float | None, now: float | None, predicted: float | None, limit: float) -> bool:
    risen = now is not None and now >= LEAST_MISSES and (before is None or now >= WORSE * before)
    coming = predicted is not None and predicted > limit
    return risen or (coming and (now is None or now >= LEAST_MISSES))


def _evidence(facts: PoolFacts, share: float, span: int, new: int, predicted: float | None) -> Iterator[Evidence]:
    known = facts.provenance
    text = f"{percent(share)} of the requests of the last {span // MINUTE} min went to adapters first seen in the last hour"
    yield Evidence(text, "newmass", share, "ratio", known)
    yield Evidence(f"{count(new, 'adapter')} first seen in the last hour", "new_adapters", float(new), "", known)
    if predicted is not None:
        text = f"{percent(predicted)} of requests are predicted to miss; trouble from {facts.miss_limit_said}"
        yield Evidence(text, "predicted_miss_ratio", predicted, "ratio", known, facts.method)


def _remedies(who: str) -> tuple[Remedy, ...]:
    return ranked(
        [
            Remedy("experiment", f"ask who started {who}; pause it, or send it less traffic", Possible.NOW),
            Remedy("configuration", "announce it with `lora-watch expect`, if it is meant to be", Possible.NOW, of="warnings"),
        ]
    )
