"""What the router's counters tell of each adapter, and the working set that follows; absent where there is no router."""

from datetime import timedelta

from lora_watch import names
from lora_watch.rules.pace import Pace
from lora_watch.rules.pods import EACH_POD, POD, POOL, SPAN
from lora_watch.rules.rule import Recording

TEXT = "((?s:.+))"
"""A label's whole text, line breaks included."""
ENDPOINT = "((?s:.+?))(?:-rank-[0-9]+)?"
"""The pod of an endpoint: engine N of a pod is called <pod>-rank-<N>."""
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
            raw=f"sum by ({POOL}, adapter) (\n{placed(pace)}\n)",
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


def placed(pace: Pace) -> str:
    """
    Requests per second by cluster, pool, role, pod and adapter: the router's attempts, with the pool and role of the pod.

    The base model, which the router counts like an adapter, is left out by the name that the engines give it.
    """
    base = f"group by ({POOL}, {KNOWN_BY}) ({names.REQUESTS_RUNNING} or {names.MAX_GPU_ADAPTERS})"
    return f"""  (
{sent(pace)}
  )
  * on (cluster, pod) group_left (pool, role) {EACH_POD}
  unless on ({POOL}, adapter) label_replace({base}, "adapter", "$1", "{KNOWN_BY}", "{TEXT}")"""


def sent(pace: Pace) -> str:
    """Attempts per second by router, pod and adapter; the newest name that a router has, whatever it calls an endpoint."""
    whose = "cluster, instance"

    def one(name: str) -> str:
        counted = f"sum by ({whose}, endpoint_name, pod_name, target_model_name) ({pace.rate(name, SPAN)})"
        for label in ("endpoint_name", "pod_name"):
            counted = f'label_replace({counted}, "pod", "$1", "{label}", "{ENDPOINT}")'
        counted = f'label_replace({counted}, "adapter", "$1", "target_model_name", "{TEXT}")'
        return f"    sum by ({whose}, pod, adapter) ({counted})"

    return "\n    or\n".join(one(name) for name in names.EPP_ATTEMPTS)


def in_flight(pace: Pace) -> str:
    """Distinct adapters that have a request in flight, by pod: Σ (1 − exp(−rate · length of a request))."""
    return f"""sum by ({POD}) (
  1 - exp(-(
{placed(pace)}
  ) * on ({POD}) group_left () {names.POD_SERVICE_RECORD})
)"""
