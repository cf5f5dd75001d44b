"""More adapters in use than slots: loads eat serving time."""

from collections.abc import Iterator
from datetime import UTC, datetime

from lora_watch.derive.locality import Method
from lora_watch.diagnose.facts import PoolFacts
from lora_watch.diagnose.finding import Confidence, Evidence, Finding, Possible, Remedy, Severity, ranked
from lora_watch.diagnose.one_slot_short import removed_by_one_slot, short_said
from lora_watch.diagnose.words import count, listed, pattern, percent
from lora_watch.model import MINUTE, SECOND, Provenance
from lora_watch.recommend.levers import TOP_PINS

HARM_SHARE = 0.35
"""
Of pod time that stands still for loads, above which users feel it: everything then takes half as long again, and waits besides.
At a tenth the P95 of requests is a request that met a load, which some pools live with every day; it doubles at 0.45
(benchmarks/README.md, *detection*).
"""
NEAR_ONSET = 20 * MINUTE
"""Adapters first seen so long before a rise of the misses, or later, are taken for its cause."""
NEW_SHARE = 0.05
"""Of the requests, that new adapters must carry to be one."""
SMALL = 0.10
"""A lever that removes less than this share is no answer by itself."""
NOTHING = 0.005
"""A lever that removes less, or adds swaps, is no remedy; that it is none is said."""
ENOUGH = 0.99
"""What removes this share needs no more of the same."""


def thrash(facts: PoolFacts) -> Iterator[Finding]:
    """
    Swaps per request above ``MISSES``, with hysteresis, over the timeline; nothing where that is over. Where only requests are
    seen, or only the router's counters of them, the misses that these predict are taken in the place of swaps: a warning, and
    inferred.

    A warning, and harm where pods stand still for loads ``HARM_SHARE`` of the time or more. Where nothing says how long loads
    take it is a warning, and says so.
    """
    each, since = facts.slots_per_pod, facts.onset
    if each is None:
        return
    if not facts.sees_loads:
        yield from _by_requests(facts, each)
    if since is None:
        return
    now, stalled = facts.loads_per_request, facts.stall_share
    if now is None:
        return
    before = facts.before(since, "loads", "requests")
    new, share = facts.newcomers(since - NEAR_ONSET)
    grown = share >= NEW_SHARE
    known = facts.provenance
    summary, cause, confidence = _cause(facts, new if grown else (), share, before, now)
    yield Finding(
        kind="thrash",
        severity=_severity(stalled),
        cluster=facts.cluster,
        pool=facts.pool,
        role=facts.role,
        since=since,
        summary=summary,
        cause=cause,
        confidence=confidence,
        weight=stalled if stalled else now,
        evidence=tuple(_evidence(facts, before, now, stalled, known)),
        remedies=_remedies(facts, new if grown else ()),
        avoid=tuple(_avoid(facts)),
        pods=facts.names,
        adapters=new if grown else (),
        unknown=() if stalled is not None else ("How long loads take: the log has no durations, so their cost is unknown.",),
    )


def _by_requests(facts: PoolFacts, each: int) -> Iterator[Finding]:
    since, predicted = facts.alarm("predicted_miss_ratio"), facts.warned("predicted_miss_ratio")
    if since is None or predicted is None:
        return
    rates_alone = (facts.warning or {}).get("method") == Method.CHE
    basis = "the router's counters" if facts.routed else "rates of the requests" if rates_alone else "replay of the requests"
    text = f"by {basis} on {facts.slots_said}, {percent(predicted)} of requests miss; trouble from {facts.miss_limit_said}"
    unknown = ["Whether it swaps as often as that, and what a load costs: no load is told there, only requests."]
    if rates_alone:
        unknown.append("Whether requests come in sessions: these miss less than their rates tell, by up to 30 % of the requests.")
    yield Finding(
        kind="thrash",
        severity=Severity.WARN,
        cluster=facts.cluster,
        pool=facts.pool,
        role=facts.role,
        since=since,
        summary=f"Thrash, by {basis}: {facts.active_adapters} adapters are in use on {facts.slots_said} "
        f"({each} per pod); {percent(predicted)} of requests would miss",
        cause=f"Working set above the slots of each pod: within a stay more are wanted than {count(each, 'slot')} can hold.",
        confidence=Confidence.LOW if rates_alone else Confidence.MEDIUM,
        weight=predicted,
        evidence=(Evidence(text, "predicted_miss_ratio", predicted, "ratio", str(Provenance.INFERRED), facts.method),),
        remedies=_remedies(facts, ()) or tuple(_slot_by_rates(facts)),
        avoid=tuple(_avoid(facts)),
        pods=facts.names,
        unknown=tuple(unknown),
    )


def _slot_by_rates(facts: PoolFacts) -> Iterator[Remedy]:
    """What one more slot removes by the curve of the prediction, where no request can be replayed."""
    now, more = facts.warned("predicted_miss_ratio"), facts.warned("predicted_miss_ratio_one_slot_more")
    if now and more is not None and 1 - more / now >= NOTHING:
        yield Remedy(
            "slots",
            _text("slots", 1, "", facts),
            effect=1 - more / now,
            of="misses",
            method=str((facts.warning or {}).get("method") or ""),
            why=_why("slots"),
        )


def _severity(stalled: float | None) -> Severity:
    return Severity.HARM if stalled is not None and stalled >= HARM_SHARE else Severity.WARN


def _cause(facts: PoolFacts, new: tuple[str, ...], share: float, before: float | None, now: float) -> tuple[str, str, Confidence]:
    slots, each, active = facts.slots, facts.slots_per_pod or 0, facts.active_adapters
    rise = f"misses {percent(before)} → {percent(now)}" if before is not None else f"{percent(now)} of requests miss"
    slot = facts.lever("slots", 1)
    pins = max((less for top in TOP_PINS if (less := facts.removed("pins", top)) is not None), default=None)
    better = ""
    if slot is not None and pins is not None and slot.removed > pins:
        worse = "; pins make it longer" if slot.waiting else "; pins add some"
        against = f" against {percent(pins)}" if pins >= 0 else worse
        better = f" One more slot per pod helps more than pins: {percent(slot.removed)} of the {slot.of}{against}."
    if new:
        name = pattern(new)
        who = f"{count(len(new), 'new adapter')}{f' (`{name}`)' if name else f' ({listed(new)})'}"
        return (
            f"Thrash: {who} carry {percent(share)} of requests; {active} adapters now compete for {facts.slots_said}; {rise}",
            f"{who} came with the rise: what is in use no longer fits the slots, each load evicts one wanted soon.{better}",
            Confidence.HIGH,
        )
    if (removed := removed_by_one_slot(facts)) is not None:
        return (
            f"{short_said(facts, each, removed)}; {rise}",
            f"{active} adapters share {count(each, 'slot')} per pod, one too few: LRU evicts just the one that is wanted next.",
            Confidence.HIGH,
        )
    routing = facts.lever("routing", 0)
    if routing is not None and routing.effect >= 0.5 and slots is not None and active <= slots:
        return (
            f"Thrash by routing: {active} adapters would fit {slots} slots, but each pod of {each} is asked for all; {rise}",
            "Requests go to pods that don't hold their adapter, so each pod has to swap what another one holds.",
            Confidence.HIGH,
        )
    return (
        f"Thrash: {active} adapters are in use on {facts.slots_said} ({each} per pod); {rise}",
        f"Working set above the slots of each pod: within a stay more are wanted than {count(each, 'slot')} can hold.{better}",
        Confidence.HIGH if active > each else Confidence.LOW,
    )


def _evidence(facts: PoolFacts, before: float | None, now: float, stalled: float | None, known: str) -> Iterator[Evidence]:
    was = f" (before: {percent(before)})" if before is not None else ""
    yield Evidence(f"{percent(now)} of requests needed a load in the last 10 min{was}", "loads_per_request", now, "ratio", known)
    yield Evidence(
        f"{facts.active_adapters} adapters were asked for in the window; the pool has {facts.slots_said}",
        "active_per_slot_ratio",
        facts.active_adapters / facts.slots if facts.slots else None,
        "ratio",
        known,
    )
    if (swaps := facts.swaps_per_second) is not None:
        yield Evidence(f"{swaps:.3g} swaps per second and pod in the last 10 min", "swaps_per_second", swaps, "per second", known)
    if stalled is not None:
        yield Evidence(
            f"pods stood still for loads {percent(stalled)} of the last 10 min; harm from {percent(HARM_SHARE)}",
            "stall_share",
            stalled,
            "ratio",
            known,
        )
    if (doubled := facts.doubled_since) is not None:
        clock = datetime.fromtimestamp(doubled / SECOND, UTC).strftime("%H:%M")
        text = f"misses are about double the usual of the hour since {clock} UTC"
        yield Evidence(text, "cusum", facts.doubled.total if facts.doubled else None, "", known, "CUSUM")
    if (value := facts.warned("predicted_miss_ratio")) is not None:
        text = f"{percent(value)} of requests are predicted to miss at these slots; trouble from {facts.miss_limit_said}"
        yield Evidence(text, "predicted_miss_ratio", value, "ratio", known, facts.method)


def _remedies(facts: PoolFacts, new: tuple[str, ...]) -> tuple[Remedy, ...]:
    remedies = [
        Remedy(
            one.lever,
            _text(one.lever, one.amount, one.what, facts),
            _possible(one.lever),
            one.removed,
            None if one.waiting else one.low,
            None if one.waiting else one.high,
            of=one.of,
            method=one.method,
            why=_why(one.lever),
        )
        for one in facts.levers.levers
        if one.removed >= NOTHING and (one.lever != "slots" or (facts.removed("slots", one.amount // 2) or 0.0) < ENOUGH)
    ]
    if new:
        name = pattern(new)
        what = f"pause or cap the new adapters ({name or listed(new)}), or announce them with `lora-watch expect`"
        remedies.append(Remedy("experiment", what, Possible.NOW, why="they came with the rise"))
    return ranked(remedies)


def _text(lever: str, amount: int, what: str, facts: PoolFacts) -> str:
    each = facts.slots_per_pod
    if lever == "slots" and each is not None:
        return f"+{count(amount, 'slot')} per pod (--max-loras {each} → {each + amount})"
    return what


def _possible(lever: str) -> Possible:
    taken = {"pins": Possible.NOT_HERE, "pods": Possible.SCALE, "routing": Possible.ROUTER}
    return taken.get(lever, Possible.RESTART)


def _why(lever: str) -> str:
    if lever == "pins":
        return (
            "vLLM takes no pin over HTTP, and pods of a Deployment share one spec: no pod can be told apart; and vLLM 0.32 "
            "dies of a batch that wants more adapters than there are slots without an idle pin"
        )
    if lever == "slots":
        return "a slot costs GPU memory that the KV cache has now"
    return ""


def _avoid(facts: PoolFacts) -> Iterator[str]:
    pods = facts.lever("pods", 1)
    if pods is not None and pods.removed < SMALL:
        less = f"removes {percent(pods.removed)}" if pods.removed >= 0 else f"adds {percent(-pods.removed)}"
        yield f"Adding replicas alone: one more pod {less} of the {pods.of}."
    elif pods is None:
        yield "Adding replicas alone: behind a router that spreads adapters each new pod swaps like the others."
    pins = [one.removed for one in facts.levers.levers if one.lever == "pins"]
    if pins and max(pins) < (facts.removed("slots", 1) or 0):
        yield "Pinning instead of a slot: it takes slots from all other adapters."
    for one in facts.levers.levers:
        if one.removed < NOTHING and one.lever != "pods":
            less = "removes nothing of" if one.removed > -NOTHING else f"adds {percent(-one.removed)} to"
            yield f"{_text(one.lever, one.amount, one.what, facts).capitalize()}: it {less} the {one.of}."
    yield "Reading GPU utilisation as load: a GPU that swaps reads busy."
