"""The rows of the overview behind its first screen: swapping, demand against slots, harm, and the pods that stand out."""

from lora_watch import names
from lora_watch.boards import colours
from lora_watch.boards.panel import Kind, Panel, Query, Row, Step
from lora_watch.boards.scope import BY_POOL, of
from lora_watch.boards.words import ENGINE, POD, POOL, RECORDED, ROUTED

TOP = 10
"""Pods named in one panel, whatever their number."""
POOLS = 12
"""Pools drawn in one panel of lines; the table has all of them."""


def worst_pools(metric: str, *, lowest: bool = False) -> str:
    """The pools in which a figure is highest (or lowest) at the end of the window, over all of it; as many as fit in a panel."""
    return f"{of(metric)} and {'bottomk' if lowest else 'topk'}({POOLS}, {of(metric)} @ end())"


def worst_pods(metric: str, *, lowest: bool = False) -> str:
    """The pods that stand out."""
    return f"{'bottomk' if lowest else 'topk'}({TOP}, {of(metric)})"


def ttft(quantile: str) -> str:
    """A quantile of the time to the first token, by pool."""
    rate = f"rate({of(f'{names.HISTOGRAMS[0]}_bucket')}[$__rate_interval])"
    return f"histogram_quantile({quantile}, sum by ({BY_POOL}, le) ({rate}))"


BUSY, INFERRING = of(names.POOL_GPU_BUSY_RECORD), of(names.POOL_INFERENCE_RECORD)
PRESSED = f"topk(3, {of(names.POOL_PRESSURE_RECORD)} @ end())"


def _lines(
    title: str,
    unit: str,
    metric: str,
    definition: str,
    provenance: str = RECORDED,
    *,
    lowest: bool = False,
    top: float | None = None,
    steps: tuple[Step, ...] = (),
) -> Panel:
    """A figure of each pool over time, of the pools where it is worst at the end."""
    return Panel(
        title,
        Kind.LINES,
        unit,
        definition,
        provenance,
        (Query(worst_pools(metric, lowest=lowest), POOL),),
        top=top,
        bottom=0,
        steps=steps,
    )


def _pods(title: str, unit: str, metric: str, definition: str, *, lowest: bool = False, decimals: int | None = None) -> Panel:
    """The pods that stand out by a figure, of however many."""
    which = "lowest" if lowest else "highest"
    said = f"{definition} The {TOP} pods where it is {which}; a click opens the pod."
    query = Query(worst_pods(metric, lowest=lowest), POD)
    return Panel(title, Kind.BARS, unit, said, RECORDED, (query,), width=6, height=9, bottom=0, decimals=decimals, by_pod=True)


SWAPPING = Row(
    "Swapping: what the slots go through",
    (
        _lines(
            "Swaps over time",
            "suffix:/s",
            names.POOL_SWAPS_RECORD,
            "Evictions from a GPU slot to make room for another adapter, per second and pod (mean over the pool's pods).",
        ),
        _lines(
            "Loads over time",
            "suffix:/s",
            names.POOL_LOADS_RECORD,
            "Loads into a GPU slot per second and pod (mean over the pool's pods); loads into free slots are among them.",
        ),
        _lines(
            "Mean stay over time",
            "s",
            names.POOL_RESIDENCY_RECORD,
            "Slots over the load rate (Little's law). Short stays are the signature of thrash.",
            lowest=True,
        ),
        _lines(
            "Misses",
            "percentunit",
            names.POOL_MISSES_RECORD,
            "Loads per request with an adapter. Several requests may wait for one load, so it is a little low.",
            top=1,
            steps=colours.MISSES,
        ),
        _lines(
            "Cold loads",
            "percentunit",
            names.POOL_COLD_RECORD,
            "Loads of the last hour that came from disk instead of the CPU cache, over all loads.",
            top=1,
        ),
        _lines(
            "Time spent on loads",
            "percentunit",
            names.POOL_LOADING_RECORD,
            "Share of a pod's time in which its engines stood still for loads, mean of the pool's pods.",
            top=1,
        ),
    ),
)
DEMAND = Row(
    "Demand against slots: what is coming",
    (
        _lines(
            "Active adapters to slots over time",
            "suffix:×",
            names.POOL_ACTIVE_PER_SLOT_RECORD,
            "Distinct adapters asked for within the last hour over all slots of the pool.",
            steps=colours.SLOTS,
        ),
        _lines(
            "Pressure",
            "suffix:×",
            names.POOL_PRESSURE_RECORD,
            "Adapters expected to be asked for within 300 s, W(300 s), over all slots of the pool: above 1 no mean stay is "
            "that long.",
            steps=colours.SLOTS,
        ),
        _lines(
            "Predicted misses",
            "percentunit",
            names.POOL_PREDICTED_RECORD,
            "The miss ratio that the last ten minutes' rates lead to at the present slots (Che's approximation of LRU).",
            f"inferred from {ROUTED}",
            top=1,
            steps=colours.MISSES,
        ),
        _lines(
            "Requests of new adapters",
            "percentunit",
            names.POOL_NEWMASS_RECORD,
            "Requests for adapters first seen within the last hour, over all requests with an adapter. Absent while it learns "
            "which adapters are usual, a day.",
            ROUTED,
            top=1,
            steps=colours.NEW,
        ),
        Panel(
            "Working set",
            Kind.LINES,
            "none",
            "Adapters expected to be asked for within so many seconds, W(T), and the slots, of the three pools under most "
            "pressure. "
            "Where the curve passes the slots is the stay they allow.",
            f"inferred from {ROUTED} With the service's exporter, its own figure.",
            (
                Query(f"{of(names.POOL_WORKING_SET_RECORD)} and on ({BY_POOL}) {PRESSED}", f"{POOL} {{{{seconds}}}} s"),
                Query(f"{of(names.POOL_SLOTS_RECORD)} and on ({BY_POOL}) {PRESSED}", f"{POOL}: slots"),
            ),
            bottom=0,
        ),
        _lines(
            "Requests",
            "reqps",
            names.POOL_REQUESTS_RECORD,
            "Requests that ended, per second, summed over the pool's pods.",
        ),
    ),
)
HARM = Row(
    "Harm: what users feel",
    (
        _lines(
            "Load at the coming peak",
            "percentunit",
            names.POOL_RHO_PEAK_RECORD,
            "How near to its end the pool will be at the peak of the next eight hours (as a week ago, or the rate now): the "
            "fullest of "
            "time in loads, slots in flight and capacity. 100 % is the end.",
            f"inferred: {RECORDED}",
            steps=colours.RHO,
        ),
        _lines(
            "Saturation now",
            "percentunit",
            names.POOL_SATURATION_RECORD,
            "How near to its end the pool is now: the fullest of time in loads, slots in flight and capacity. What an "
            "autoscaler should "
            "look at, in place of the GPU's utilisation.",
            f"inferred: {RECORDED}",
            steps=colours.RHO,
        ),
        _lines(
            "Waiting for a slot",
            "none",
            names.POOL_SWAP_QUEUE_RECORD,
            "Requests that wait for an adapter that is not in a slot, mean over ten minutes, summed over the pool's pods.",
        ),
        Panel(
            "Busy and inferring",
            Kind.LINES,
            "percentunit",
            "Wall time in which GPUs read busy, and the part of wall time they spent on inference. What lies between them is "
            "bought and not used.",
            RECORDED,
            (
                Query(f"{BUSY} and topk({POOLS // 2}, {BUSY} @ end())", f"{POOL}: busy"),
                Query(f"{INFERRING} and topk({POOLS // 2}, {BUSY} @ end())", f"{POOL}: inference"),
            ),
            top=1,
            bottom=0,
        ),
        _lines(
            "KV cache",
            "percentunit",
            names.POOL_KV_CACHE_RECORD,
            "Share of the KV cache in use, of the pool's fullest pod. Every slot more takes from it.",
            top=1,
            steps=colours.KV,
        ),
        Panel(
            "Time to the first token, p95",
            Kind.LINES,
            "s",
            "95 % of the requests of a pool had their first token within so long; from the engine's histogram, so between two "
            "of its "
            "bounds. Prefill and decode are kept apart.",
            ENGINE,
            (Query(ttft("0.95"), POOL),),
            bottom=0,
        ),
    ),
)
PODS = Row(
    "Pods that stand out",
    (
        _pods("Most swaps", "suffix:/s", names.POD_SWAPS_RECORD, "Evictions to make room, per second.", decimals=3),
        _pods(
            "Shortest stays",
            "s",
            names.POD_RESIDENCY_RECORD,
            "Mean stay by Little's law: slots over load rate.",
            lowest=True,
            decimals=0,
        ),
        _pods("Most misses", "percentunit", names.POD_MISSES_RECORD, "Loads per request with an adapter."),
        _pods(
            "Least inference",
            "percentunit",
            names.POD_INFERENCE_RECORD,
            "Time in inference over wall time, the upper end of an interval.",
            lowest=True,
        ),
    ),
)
ROWS = (SWAPPING, DEMAND, HARM, PODS)
