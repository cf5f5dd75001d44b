"""How a pool is, in a word, a sentence and numbers with their margins: healthy is said as plainly as harm."""

from collections.abc import Iterable, Iterator

import polars as pl

from lora_watch.derive.warning import LIMITS, PRESSURE_SECONDS
from lora_watch.diagnose.diagnosis import Margin, PoolState, State
from lora_watch.diagnose.facts import MISSES, PoolFacts
from lora_watch.diagnose.finding import Finding, Severity
from lora_watch.diagnose.thrash import HARM_SHARE
from lora_watch.diagnose.words import count, percent, span
from lora_watch.model import worst

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
    gravest = max(own, key=lambda one: one.severity.rank, default=None)
    state = _STATES.get(gravest.severity, State.HEALTHY) if gravest else State.HEALTHY
    if state is State.HEALTHY and (facts.slots is None or not facts.sees_loads or facts.timeline.is_empty()):
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
    where = f"{count(facts.pods.height, 'pod')}, {count(facts.slots, 'slot')}" if facts.slots else count(facts.pods.height, "pod")
    if state is State.UNKNOWN:
        return f"{where}: {_why_unknown(facts)}, so nobody can tell whether it swaps"
    if state is State.HEALTHY or gravest is None:
        stalled = facts.stall_share
        cost = "" if stalled is None else f"; loads cost {percent(stalled)} of pod time"
        blind = facts.pods["loads"].null_count()
        unseen = f"; of {count(blind, 'pod')} no load is told" if blind else ""
        use = f"{count(facts.active_adapters, 'adapter')} in use" if facts.timeline["requests"].sum() else "no request is told"
        return f"{where}, {use}{cost}{unseen}"
    return f"{where}: {gravest.summary}"


def _why_unknown(facts: PoolFacts) -> str:
    if facts.slots is None:
        return "nothing says how many slots there are"
    return "no request and no load was seen in the window" if facts.timeline.is_empty() else "no load is told there"


def _margins(facts: PoolFacts) -> Iterator[Margin]:
    """What is near and what is far, the most telling first."""
    known = facts.provenance
    method = str((facts.warning or {}).get("method") or "")
    now = facts.loads_per_request
    yield _margin("loads_per_request", "requests that need a load", now, None, known, share=True)
    yield _margin("swaps_per_request", "swaps per request", facts.swaps_per_request, MISSES.enter, known)
    predicted = facts.warned("predicted_miss_ratio")
    yield _margin("predicted_miss_ratio", "predicted miss ratio", predicted, LIMITS["predicted_miss_ratio"].enter, known, method)
    yield _margin("rho_peak", "rho at the coming peak", facts.warned("rho_peak"), LIMITS["rho_peak"].enter, known)
    what = f"adapters wanted within {PRESSURE_SECONDS:.0f} s per slot"
    yield _margin("pressure", what, facts.warned("pressure"), None, known)
    yield _margin("stall_share", "pod time spent on loads", facts.stall_share, HARM_SHARE, known, share=True)
    if not facts.learning:
        yield _margin("newmass", "requests for new adapters", facts.warned("newmass"), LIMITS["newmass"].enter, known, share=True)
    if (swaps := facts.swaps_per_second) is not None:
        yield Margin("swaps_per_second", f"{swaps:.3g} swaps per second and pod", swaps, None, "per second", known)
    yield from _from_pods(facts)


def _margin(
    name: str, what: str, value: float | None, limit: float | None, known: str, method: str = "", *, share: bool = False
) -> Margin:
    if value is None:
        return Margin(name, f"{what}: unknown", None, limit, why="nothing that is held tells it")
    return Margin(name, f"{what}: {percent(value) if share else f'{value:.2f}'}", value, limit, "", known, method)


def _from_pods(facts: PoolFacts) -> Iterator[Margin]:
    """Residency, inference share and GPU utilisation of the last hour, over pods."""
    for name, what in (("p50_seconds", "median stay"), ("p95_seconds", "95th percentile of stays")):
        values = facts.pods[name].drop_nulls() if name in facts.pods.columns else facts.pods["pod"].head(0)
        if len(values):
            low, high = float(values.min()), float(values.max())  # type: ignore[arg-type]  # floats
            told = span(low) if low == high else f"{span(low)} … {span(high)}"
            yield Margin(name, f"{what}: {told}", low, None, "seconds", _known(facts, "residency_provenance"), "Kaplan-Meier")
    upper, lower, busy = (_mean(facts, name) for name in ("share_high", "share_low", "busy_ratio"))
    if upper is not None:
        told = percent(upper) if upper - (lower or 0.0) < 0.005 else f"{percent(lower or 0.0)} … {percent(upper)}"
        reads = "" if busy is None else f"; the GPU reads {percent(busy)} busy"
        grades = ", ".join(sorted(set(facts.pods["grade"].drop_nulls())))
        text = f"GPU time spent on inference: {told}{reads}"
        known = _known(facts, "inference_share_provenance")
        yield Margin("inference_share_ratio", text, upper, None, "ratio", known, f"grade {grades}")


def _mean(facts: PoolFacts, name: str) -> float | None:
    """Over the pods that know it; None where none does."""
    values = facts.pods.select(pl.col(name).cast(pl.Float64).mean()).item() if name in facts.pods.columns else None
    return None if values is None else float(values)


def _known(facts: PoolFacts, column: str) -> str | None:
    return worst(set(facts.pods[column].drop_nulls())) if column in facts.pods.columns else None
