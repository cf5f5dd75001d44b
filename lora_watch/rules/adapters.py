"""What the router's counters tell of each adapter, and the working set that follows; absent where there is no router."""

from collections.abc import Iterator
from datetime import timedelta

from lora_watch import names
from lora_watch.rules.pace import Pace
from lora_watch.rules.pods import EACH_POD, POD, POOL, SPAN, by_name
from lora_watch.rules.rule import Recording

TEXT = "((?s:.+))"
"""A label's whole text, line breaks included."""
HORIZONS = tuple(5.0 * 2**k for k in range(-3, 11))
"""
Seconds T at which W(T) and M(T) are recorded. In the shortest a busy pool of few slots turns over; a rate over ten minutes is at
least 1 ÷ 600 s, so in the longest everybody was asked for: exp(−8.5).
"""
PRESSURE_SECONDS = 300.0
ACTIVE = timedelta(hours=1)
KNOWN_BY = "model_name"
"""The engine's label for its base model, which the router counts like an adapter."""


def recordings(pace: Pace) -> tuple[Recording, ...]:
    """By adapter and pool, then the pool's."""
    return (
        Recording(
            names.ADAPTER_REQUESTS_RECORD,
            "Requests for an adapter per second, as the router sent them to pods whose slots are known. Of a count under several "
            "names the newest is taken, never the sum",
            raw=by_adapter(pace),
        ),
        *(
            Recording(
                names.POOL_WORKING_SET_RECORD,
                "W(T): distinct adapters asked for within T seconds, were requests independent",
                raw=f"sum by ({POOL}) (1 - exp(-{seconds:g} * {names.ADAPTER_REQUESTS_RECORD}))",
                full=f'max by ({POOL}) ({names.WORKING_SET}{{seconds="{seconds:g}"}})',
                labels=(("seconds", f"{seconds:g}"),),
            )
            for seconds in sorted((*HORIZONS, PRESSURE_SECONDS))
        ),
        *(
            Recording(
                names.POOL_WORKING_SET_LOADS_RECORD,
                "M(T): loads per second if an adapter leaves after T seconds without a request",
                raw=f"sum by ({POOL}) ({names.ADAPTER_REQUESTS_RECORD} * exp(-{seconds:g} * {names.ADAPTER_REQUESTS_RECORD}))",
                labels=(("seconds", f"{seconds:g}"),),
            )
            for seconds in sorted((*HORIZONS, PRESSURE_SECONDS))
        ),
        Recording(
            names.POOL_PRESSURE_RECORD,
            "W(300 s) over slots: above 1 no mean stay is five minutes long",
            raw=f'sum without (seconds) ({names.POOL_WORKING_SET_RECORD}{{seconds="{PRESSURE_SECONDS:g}"}})'
            f" / on ({POOL}) ({names.POOL_SLOTS_RECORD} > 0)",
            full=f"max by ({POOL}) ({names.PRESSURE})",
        ),
        Recording(
            names.POOL_ACTIVE_RECORD,
            "Distinct adapters asked for within the hour",
            raw=f"count by ({POOL}) (max_over_time({names.ADAPTER_REQUESTS_RECORD}[{pace.span(ACTIVE)}]) > 0)",
            full=f"max by ({POOL}) ({names.POOL_ACTIVE_ADAPTERS})",
        ),
        Recording(
            names.POOL_ACTIVE_PER_SLOT_RECORD,
            "Active adapters over slots; above 1 some must swap. Above 1 for weeks in many a healthy pool",
            both=f"{names.POOL_ACTIVE_RECORD} / on ({POOL}) ({names.POOL_SLOTS_RECORD} > 0)",
        ),
    )


def by_adapter(pace: Pace) -> str:
    """
    Requests per second by cluster, pool, role and adapter: the router's attempts, with the pool and role of the pod they went to.

    Of each router the newest name counts. The base model, which the router counts like an adapter, is left out by the name that
    the engines give it. Labels are rewritten only after adding up: before, there is a series for each adapter and pod.
    """
    whose = f"{POOL}, instance, target_model_name"
    parts = "\n  or\n".join(
        f"  sum by ({whose}) ({_placed(pace, *one, 'cluster, instance', 'pool, role', EACH_POD)})" for one in _spellings()
    )
    named = f'label_replace((\n{parts}\n), "adapter", "$1", "target_model_name", "{TEXT}")'
    return f"sum by ({POOL}, adapter) ({named})\nunless on ({POOL}, adapter) {_base('adapter')}"


def in_flight(pace: Pace) -> str:
    """Distinct adapters that have a request in flight, by pod: Σ (1 − exp(−rate · length of a request))."""
    base = _base("target_model_name")
    parts = []
    for one in _spellings():
        each = _placed(pace, *one, "cluster", "pool, role, pod", by_name(names.POD_SERVICE_RECORD))
        parts.append(f"sum by ({POD}) (1 - exp(-({each} unless on ({POOL}, target_model_name) {base})))")
    return "(\n" + "\nor\n".join(parts) + "\n)"


def _spellings() -> Iterator[tuple[str, str]]:
    """Every name of the attempts with every label that names the pod, newest first."""
    for name in names.EPP_ATTEMPTS:
        yield from ((name, label) for label in ("endpoint_name", "pod_name"))


def _placed(pace: Pace, name: str, label: str, whose: str, more: str, times: str) -> str:
    """Attempts per second by ``whose``, pod and adapter, times a series by pod from which they get ``more`` labels."""
    chosen = f'{name}{{{label}!=""}}'
    counted = f"sum by ({whose}, {label}, target_model_name) ({pace.rate(chosen, SPAN)})"
    return f'{counted} * on (cluster, {label}) group_left ({more}) label_replace({times}, "{label}", "$1", "pod", "{TEXT}")'


def _base(label: str) -> str:
    """Base models of the pools, under a label of choice."""
    known = f"group by ({POOL}, {KNOWN_BY}) ({names.REQUESTS_RUNNING} or {names.MAX_GPU_ADAPTERS})"
    return f'label_replace({known}, "{label}", "$1", "{KNOWN_BY}", "{TEXT}")'
