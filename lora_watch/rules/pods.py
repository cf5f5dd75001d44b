"""What is recorded of each pod, and added up over its pool: slots, swaps, loads, misses, time in loads, queues."""

from datetime import timedelta

from lora_watch import names
from lora_watch.rules.pace import Pace
from lora_watch.rules.rule import Recording

SPAN = timedelta(minutes=10)
"""What rates are taken over, as in :data:`lora_watch.derive.warning.SPAN`: shorter is noise, longer hides that traffic moves."""
POD = "cluster, pool, role, pod"
POOL = "cluster, pool, role"
ENGINE = f"{POD}, engine"
_AGENT = f"group by ({POD}) ({names.AGENT_STEPS})"
"""A sample for each pod with an agent: its counters that were never counted are 0, not unknown."""


def by_name(series: str) -> str:
    """
    A series by pod, of pods whose name says who they are: one of two pools that both have a ``vllm-0`` is told by neither.

    What joins it by cluster and pod would otherwise fail as a whole, for every other pod as well.
    """
    return f"({series} unless on (cluster, pod) count by (cluster, pod) ({series}) > 1)"


EACH_POD = by_name(f"{names.POD_SLOTS_RECORD} ^ 0")
"""1 for each pod whose slots are known: what gives a series that names only its pod the pod's pool and role."""
ENGINES = f"count by ({POD}) (max by ({ENGINE}) ({names.MAX_GPU_ADAPTERS}))"
"""Data-parallel engines of a pod; more than one page may show the same engine."""


def recordings(pace: Pace) -> tuple[Recording, ...]:
    """Each pod's series, then its pool's; in the order in which they need each other."""
    return (*_of_pods(pace), *_of_pools())


def _of_pods(pace: Pace) -> tuple[Recording, ...]:
    loads = _loads(pace)
    return (
        Recording(
            names.POD_SLOTS_RECORD,
            "GPU slots for adapters, all engines of a pod together",
            raw=f"sum by ({POD}) (max by ({ENGINE}) ({names.MAX_GPU_ADAPTERS}))\n"
            f"or\nround(sum by ({POD}) (max by ({ENGINE}) "
            f'({names.CACHE_ADAPTERS}{{tier="gpu"}} / ({names.CACHE_USAGE}{{tier="gpu"}} > 0))))',
            full=_told(names.SLOTS),
        ),
        Recording(
            names.POD_LOADS_RECORD,
            "Loads into a GPU slot per second",
            raw=f"{loads}\nor\n{_proposed_loads(pace)}",
            full=_told(names.RECENT_LOADS),
        ),
        Recording(
            names.POD_COLD_LOADS_RECORD,
            "Of these, loads whose adapter had to be read from disk",
            raw=_counted(pace, f'{names.AGENT_LOADS}{{tier="gpu",from_tier="disk"}}')
            + f"\nor\nsum by ({POD}) (max by ({ENGINE}) ({_loaded(pace, 'load')}))",
            full=_told(names.RECENT_COLD_LOADS),
        ),
        Recording(
            names.POD_SWAPS_RECORD,
            "Evictions from a GPU slot to make room, per second; without an agent, loads into a pod whose slots are all taken",
            raw=_counted(pace, f'{names.AGENT_EVICTIONS}{{tier="gpu",reason="lru"}}')
            + f"\nor\n({_proposed_loads(pace)})\n"
            + f"  * on ({POD}) (sum by ({POD}) (max by ({ENGINE}) ({names.GPU_ADAPTERS}))"
            + f" >= bool on ({POD}) {names.POD_SLOTS_RECORD})",
            full=_told(names.RECENT_SWAPS),
        ),
        Recording(
            names.POD_REQUESTS_RECORD,
            "Requests that ended, per second",
            raw=f"sum by ({POD}) ({pace.rate(names.AGENT_REQUESTS, SPAN)})\n"
            f"or\nsum by ({POD}) (max by ({ENGINE}, model_name, finished_reason) ({pace.rate(names.REQUEST_SUCCESS, SPAN)}))\n"
            f"  and on ({POD}) {names.POD_SLOTS_RECORD}",
            full=_told(names.RECENT_REQUESTS),
        ),
        Recording(
            names.POD_MISSES_RECORD,
            "Misses: loads per request. Several requests may wait for one load, so it is a little low",
            both=f"{names.POD_LOADS_RECORD} / on ({POD}) ({names.POD_REQUESTS_RECORD} > 0)",
        ),
        Recording(
            names.POD_LOADING_RECORD,
            "Share of a pod's time that its engines stood still for loads; without an agent, loads that stalled nobody count too",
            raw=f"sum by ({POD}) ({pace.rate(names.AGENT_ADAPTER_SECONDS, SPAN)}) / on ({POD}) {ENGINES}\n"
            f"or\nsum by ({POD}) (max by ({ENGINE}, transition) ({pace.rate(f'{names.LOAD_SECONDS}_sum', SPAN)}))"
            f" / on ({POD}) {ENGINES}",
            full=_told(names.RECENT_STALL_SHARE),
        ),
        Recording(
            names.POD_RESIDENCY_RECORD,
            "Mean stay of an adapter in a slot, by Little's law: slots over load rate; none where nothing is loaded",
            both=f"{names.POD_SLOTS_RECORD} / on ({POD}) ({names.POD_LOADS_RECORD} > 0)",
        ),
        Recording(
            names.POD_SWAP_QUEUE_RECORD,
            "Requests that wait for a slot (the engine's word is deferred, which counts transfers of KV blocks too)",
            raw=f"sum by ({POD}) (max by ({ENGINE}) "
            f'(avg_over_time({names.WAITING_BY_REASON}{{reason="deferred"}}[{pace.span(SPAN)}])))\n'
            f"  and on ({POD}) {names.POD_SLOTS_RECORD}",
            full=_told(names.RECENT_SWAP_QUEUE),
        ),
        Recording(
            names.POD_KV_CACHE_RECORD,
            "Share of the KV cache in use, of the fullest engine",
            raw=f"max by ({POD}) (avg_over_time({names.KV_CACHE_USAGE}[{pace.span(SPAN)}]))\n"
            f"or\nmax by ({POD}) (avg_over_time({names.KV_CACHE_USAGE_OLD}[{pace.span(SPAN)}]))",
            full=_told(names.RECENT_KV_CACHE),
        ),
    )


def _of_pools() -> tuple[Recording, ...]:
    def over(function: str, series: str) -> str:
        return f"{function} by ({POOL}) ({series})"

    return (
        Recording(names.POOL_PODS_RECORD, "Pods whose slots are known", both=over("count", names.POD_SLOTS_RECORD)),
        Recording(names.POOL_SLOTS_RECORD, "Slots of all pods", both=over("sum", names.POD_SLOTS_RECORD)),
        Recording(names.POOL_SWAPS_RECORD, "Swaps per second, mean of the pods", both=over("avg", names.POD_SWAPS_RECORD)),
        Recording(names.POOL_LOADS_RECORD, "Loads per second, mean of the pods", both=over("avg", names.POD_LOADS_RECORD)),
        Recording(names.POOL_REQUESTS_RECORD, "Requests per second of all pods", both=over("sum", names.POD_REQUESTS_RECORD)),
        Recording(
            names.POOL_MISSES_RECORD,
            "Misses: loads per request over all pods",
            both=f"{over('sum', names.POD_LOADS_RECORD)} / on ({POOL}) ({over('sum', names.POD_REQUESTS_RECORD)} > 0)",
        ),
        Recording(names.POOL_LOADING_RECORD, "Share of pod time in loads", both=over("avg", names.POD_LOADING_RECORD)),
        Recording(
            names.POOL_RESIDENCY_RECORD,
            "Mean stay of an adapter in a slot over all pods, by Little's law",
            both=f"{names.POOL_SLOTS_RECORD} / on ({POOL}) ({over('sum', names.POD_LOADS_RECORD)} > 0)",
        ),
        Recording(names.POOL_SWAP_QUEUE_RECORD, "Requests that wait for a slot", both=over("sum", names.POD_SWAP_QUEUE_RECORD)),
        Recording(names.POOL_KV_CACHE_RECORD, "KV cache of the fullest pod", both=over("max", names.POD_KV_CACHE_RECORD)),
    )


def _told(gauge: str) -> str:
    """A gauge of the exporter, by pod; two services that watch the same pods say the same once."""
    return f"max by ({POD}) ({gauge})"


def _counted(pace: Pace, counter: str) -> str:
    """The rate of an agent's counter, 0 where the agent is there and has counted nothing yet."""
    return f"sum by ({POD}) ({pace.rate(counter, SPAN)})\nor\n0 * {_AGENT}"


def _loads(pace: Pace) -> str:
    return _counted(pace, f'{names.AGENT_LOADS}{{tier="gpu",reason!="inplace"}}')


def _proposed_loads(pace: Pace) -> str:
    """Loads by the metrics of either proposal."""
    lookups, hits = (pace.rate(f'{name}{{tier="gpu"}}', SPAN) for name in (names.CACHE_LOOKUPS, names.CACHE_HITS))
    return (
        f"sum by ({POD}) (max by ({ENGINE}) ({_loaded(pace, 'activate')}))\n"
        f"or\nsum by ({POD}) (max by ({ENGINE}) ({lookups})) - sum by ({POD}) (max by ({ENGINE}) ({hits}))"
    )


def _loaded(pace: Pace, transition: str) -> str:
    return pace.rate(f'{names.LOAD_SECONDS}_count{{transition="{transition}"}}', SPAN)
