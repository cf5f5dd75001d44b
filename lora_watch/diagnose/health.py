"""How a pool is, in a word, a sentence and numbers with their margins: healthy is said as plainly as harm."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import polars as pl

from lora_watch.derive.first_seen import USUAL
from lora_watch.derive.forecast import HORIZON
from lora_watch.derive.locality import Method
from lora_watch.derive.warning import LIMITS, PRESSURE_SECONDS
from lora_watch.diagnose.diagnosis import Margin, PoolState, State, in_order
from lora_watch.diagnose.facts import MISSES, RECENT, PoolFacts
from lora_watch.diagnose.finding import Finding, Severity
from lora_watch.diagnose.thrash import HARM_SHARE
from lora_watch.diagnose.words import count, percent, span
from lora_watch.model import HOUR, SECOND, Provenance, worst

VAGUE = 0.9
"""An interval of a share that is wider says nothing."""
NOW = f"last {span(RECENT / SECOND)}"
_STATES = {Severity.HARM: State.HARM, Severity.WARN: State.WATCH}


def pool_state(facts: PoolFacts, findings: Iterable[Finding]) -> PoolState:
    """
    The pool's state from the gravest of its open findings: harm, watch (a warning), healthy (none). ``unknown`` where slots
    or loads are not known, or nothing was seen, for silence is not health.
    """
    own = [
        one
        for one in findings
        if (one.cluster, one.pool, one.role) == (facts.cluster, facts.pool, facts.role) and one.until is None
    ]
    gravest = next(iter(in_order(own)), None)
    state = _STATES.get(gravest.severity, State.HEALTHY) if gravest else State.HEALTHY
    if state is State.HEALTHY and (facts.slots_per_pod is None or not facts.sees_loads or facts.timeline.is_empty()):
        state = State.UNKNOWN
    return PoolState(
        facts.cluster,
        facts.pool,
        facts.role,
        facts.pods.height,
        facts.slots,
        facts.active_adapters,
        state,
        _sentence(facts, state, gravest),
        tuple(_margins(facts)),
    )


def _sentence(facts: PoolFacts, state: State, gravest: Finding | None) -> str:
    pods = count(facts.pods.height, "pod")
    where = pods if facts.slots_per_pod is None else f"{pods}, {facts.slots_said}"
    if state is State.UNKNOWN:
        predicted = facts.warned("predicted_miss_ratio")
        basis = "the router's counters" if facts.routed else "its requests"
        would = "" if predicted is None else f"; by {basis} {percent(predicted)} of requests would miss"
        return f"{where}: {_why_unknown(facts)}, so nobody can tell whether it swaps{would}"
    if state is State.HEALTHY or gravest is None:
        stalled = facts.stall_share
        cost = "" if stalled is None else f"; loads took {percent(stalled)} of pod time in the {NOW}"
        blind = facts.pods["loads"].null_count()
        unseen = f"; of {count(blind, 'pod')} no load is told" if blind else ""
        use = f"{count(facts.active_adapters, 'adapter')} in use within {span(facts.window.seconds)}"
        if facts.routed:
            use = f"{count(facts.active_adapters, 'adapter')} in use within the {NOW}, by the router's counters"
        elif not facts.timeline["requests"].sum():
            use = "no request is told"
        return f"{where}, {use}{cost}{unseen}"
    return f"{where}: {gravest.summary}"


def _why_unknown(facts: PoolFacts) -> str:
    if facts.slots_per_pod is None:
        return "nothing says how many slots there are"
    if facts.timeline.is_empty() and not facts.routed:
        seen = max(facts.pods["active_adapters"].drop_nulls().to_list(), default=0)
        if seen:
            told = f"up to {count(seen, 'adapter')} in flight on a pod, but neither loads nor whom a request was for"
            return f"the engines' pages show {told}"
        return "no request and no load was seen in the window"
    return "no load is told there"


def _margins(facts: PoolFacts) -> Iterator[Margin]:
    """What is near and what is far, the most telling first; each with the span it is of."""
    known = facts.provenance
    yield _share("loads_per_request", "requests that need a load", facts.loads_per_request, None, known, NOW)
    yield _share("swaps_per_request", "swaps per request", facts.swaps_per_request, MISSES.enter, known, NOW)
    predicted, limit = facts.warned("predicted_miss_ratio"), facts.miss_limit.enter
    what = "requests predicted to miss"
    rough = str(Provenance.INFERRED) if facts.routed else known
    told = _share("predicted_miss_ratio", what, predicted, limit, rough, NOW, facts.method)
    yield told if facts.usual is None else replace(told, trouble=f"trouble from {facts.miss_limit_said}")
    what, ahead = "capacity needed at the coming peak (rho)", f"next {span(HORIZON / SECOND)}"
    yield _share("rho_peak", what, facts.warned("rho_peak"), LIMITS["rho_peak"].enter, known, ahead)
    what, pressure = f"adapters wanted within {PRESSURE_SECONDS:.0f} s per slot", facts.warned("pressure")
    if pressure is None:
        yield _unknown("pressure", what, None, NOW)
    else:
        by_rates = f"{Method.CHE}: too high for sessions"
        yield Margin("pressure", f"{what}: {pressure:.2f}", pressure, None, "", rough, by_rates, over=NOW)
    yield _share("stall_share", "pod time spent on loads", facts.stall_share, HARM_SHARE, known, NOW)
    if not facts.learning and not facts.routed:
        lately = f"last {span(USUAL.span / SECOND)}"
        yield _share("newmass", "requests for new adapters", facts.warned("newmass"), LIMITS["newmass"].enter, known, lately)
    if (swaps := facts.swaps_per_second) is not None:
        text = f"{swaps:.3g} swaps per second and pod"
        yield Margin("swaps_per_second", text, swaps, None, "per second", known, over=NOW)
    yield from _from_pods(facts)


def _share(name: str, what: str, value: float | None, limit: float | None, known: str, over: str, method: str = "") -> Margin:
    """A share in percent, as its limit."""
    if value is None:
        return _unknown(name, what, limit, over)
    trouble = "" if limit is None else f"trouble from {percent(limit)}"
    return Margin(name, f"{what}: {percent(value)}", value, limit, "", known, method, over=over, trouble=trouble)


def _unknown(name: str, what: str, limit: float | None, over: str) -> Margin:
    return Margin(name, f"{what}: unknown", None, limit, why="nothing that is held tells it", over=over)


def _from_pods(facts: PoolFacts) -> Iterator[Margin]:
    """Residency, inference share and GPU utilisation of the last hour, over pods."""
    over = f"last {span(min(facts.window.seconds, HOUR / SECOND))}"
    for name, what in (("p50_seconds", "median stay"), ("p95_seconds", "95th percentile of stays")):
        values = facts.pods[name].drop_nulls() if name in facts.pods.columns else facts.pods["pod"].head(0)
        if len(values):
            low, high = float(values.min()), float(values.max())  # type: ignore[arg-type]  # floats
            told = span(low) if low == high else f"{span(low)} … {span(high)}"
            known = _known(facts, "residency_provenance")
            yield Margin(name, f"{what}: {told}", low, None, "seconds", known, "Kaplan-Meier", over=over)
    upper, lower, busy = (_mean(facts, name) for name in ("share_high", "share_low", "busy_ratio"))
    if upper is not None and upper - (lower or 0.0) > VAGUE:
        yield _unknown("inference_share_ratio", "GPU time spent on inference", None, over)
    elif upper is not None:
        told = percent(upper) if upper - (lower or 0.0) < 0.005 else f"{percent(lower or 0.0)} … {percent(upper)}"
        reads = "" if busy is None else f"; the GPU reads {percent(busy)} busy"
        grades = ", ".join(sorted(set(facts.pods["grade"].drop_nulls())))
        text = f"GPU time spent on inference: {told}{reads}"
        known = _known(facts, "inference_share_provenance")
        yield Margin("inference_share_ratio", text, upper, None, "ratio", known, f"grade {grades}", over=over)


def _mean(facts: PoolFacts, name: str) -> float | None:
    """Over the pods that know it; None where none does."""
    values = facts.pods.select(pl.col(name).cast(pl.Float64).mean()).item() if name in facts.pods.columns else None
    return None if values is None else float(values)


def _known(facts: PoolFacts, column: str) -> str | None:
    return worst(set(facts.pods[column].drop_nulls())) if column in facts.pods.columns else None
