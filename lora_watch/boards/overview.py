"""Is it thrashing, where, and is the dashboard lying? The state of every pool in the first screen."""

from lora_watch import names
from lora_watch.boards import scope, uids
from lora_watch.boards.annotations import FIRING
from lora_watch.boards.panel import FULL_ONLY, Board, Column, Kind, Panel, Query, Row, Step
from lora_watch.boards.scope import BY_POOL, MEDIAN, P95, of
from lora_watch.boards.words import ENGINE, EXPORTED, HEALTHY, POD, POOL, RECORDED, ROUTED, falling, rising
from lora_watch.derive.warning import LIMITS

TOP = 10
"""Pods named in one panel, whatever their number."""
POOLS = 12
"""Pools drawn in one panel of lines; the table has all of them."""


def firing(severity: str) -> str:
    """1 for each pool in which an alert of this severity fires."""
    fires = of(names.ALERTS, further=f'{FIRING},severity="{severity}"')
    return f"max by ({BY_POOL}) ({fires})"


def highest(metric: str, count: int = POOLS, further: str = "") -> str:
    """The pools in which a figure is highest at the end of the window, over all of it; as many as fit in a panel."""
    chosen = of(metric, further=further)
    return f"{chosen} and topk({count}, {chosen} @ end())"


def worst_pods(metric: str, *, lowest: bool = False) -> str:
    """The pods that stand out."""
    return f"{'bottomk' if lowest else 'topk'}({TOP}, {of(metric)})"


def ttft(quantile: str) -> str:
    """A quantile of the time to the first token, by pool."""
    rate = f"rate({of(f'{names.HISTOGRAMS[0]}_bucket')}[$__rate_interval])"
    return f"histogram_quantile({quantile}, sum by ({BY_POOL}, le) ({rate}))"


def stay(quantile: str) -> str:
    """A quantile of the stays, by pool: of the pod where it is shortest, for quantiles have no mean."""
    return f"min by ({BY_POOL}) ({of(names.RESIDENCY_SECONDS, further=quantile)})"


STATE = f"2 * {firing('page')} or {firing('warn')} or 0 * {of(names.POOL_SLOTS_RECORD)}"
BUSY, INFERRING = of(names.POOL_GPU_BUSY_RECORD), of(names.POOL_INFERENCE_RECORD)
SHORTEST = f"bottomk(1, {of(names.POOL_RESIDENCY_RECORD)})"
PRESSED = f"topk(3, {of(names.POOL_PRESSURE_RECORD)} @ end())"
WORST_GAP = f"topk(1, {BUSY} - {INFERRING})"
RHO = LIMITS["rho_peak"]
MISSES = LIMITS["predicted_miss_ratio"]
SLOTS_OVER = rising(1.0)

FIRST = (
    Panel(
        "State of the pools",
        Kind.NUMBERS,
        "short",
        "harm: an alert that pages fires (users feel it); warning: a cause fires (they will); healthy: neither. The worst six.",
        "alerts of the rules, so as good as the recorded series they read; unknown where no rule is evaluated.",
        (Query(f"topk(6, {STATE})", POOL),),
        width=5,
        height=5,
        choices=HEALTHY,
        steps=rising(1, 2),
    ),
    Panel(
        "GPU busy, and on inference",
        Kind.NUMBERS,
        "percentunit",
        "In the pool where they are furthest apart: the share of wall time its GPUs read busy, whatever with, and the share they "
        "spent on inference (execution less the time on adapters, over wall time; of an interval the upper end). Means of the "
        "pods.",
        RECORDED,
        (
            Query(f"{BUSY} and {WORST_GAP}", f"{POOL}: GPU busy"),
            Query(f"{INFERRING} and {WORST_GAP}", f"{POOL}: inference"),
        ),
        width=7,
        height=5,
        decimals=0,
    ),
    Panel(
        "Swaps per second and pod",
        Kind.NUMBERS,
        "suffix:/s",
        "Evictions from a GPU slot to make room for another adapter, per second and pod: the mean over the pods of a pool. The "
        "worst three pools.",
        RECORDED,
        (Query(f"topk(3, {of(names.POOL_SWAPS_RECORD)})", POOL),),
        width=4,
        height=5,
        decimals=3,
    ),
    Panel(
        "How long adapters stay in a slot",
        Kind.NUMBERS,
        "s",
        "In the pool where stays are shortest: the mean (slots over the load rate, Little's law), and p50 and p95 "
        "(Kaplan-Meier over the "
        "last hour, counting stays that still last) of the pod where they are shortest.",
        RECORDED,
        (
            Query(SHORTEST, f"{POOL}: mean"),
            Query(f"{stay(MEDIAN)} and on ({BY_POOL}) {SHORTEST}", f"{POOL}: p50", installs=FULL_ONLY),
            Query(f"{stay(P95)} and on ({BY_POOL}) {SHORTEST}", f"{POOL}: p95", installs=FULL_ONLY),
        ),
        width=4,
        height=5,
        decimals=0,
    ),
    Panel(
        "Active adapters to slots",
        Kind.NUMBERS,
        "suffix:×",
        "Distinct adapters asked for within the last hour over all slots of the pool, the greatest three pools. Above 1 some "
        "must "
        "swap; it takes short stays as well to be thrash.",
        RECORDED,
        (Query(f"topk(3, {of(names.POOL_ACTIVE_PER_SLOT_RECORD)})", POOL),),
        width=4,
        height=5,
        decimals=2,
        steps=SLOTS_OVER,
    ),
    Panel(
        "Pools",
        Kind.TABLE,
        "short",
        "One row a pool and role. Swaps are per pod. p50 and p95 are quantiles of stays (Kaplan-Meier over the last hour) of "
        "the pod "
        "where they are shortest, never an average of pods. Misses are loads per request. Peak load is how near to its end the "
        "pool "
        "will be at the coming peak: time in loads, slots in flight or capacity, whichever is fullest.",
        f"{RECORDED} p50 and p95: {EXPORTED}",
        (
            Query(STATE, "State", choices=HEALTHY),
            Query(of(names.POOL_PODS_RECORD), "Pods", "none"),
            Query(of(names.POOL_SLOTS_RECORD), "Slots", "none"),
            Query(of(names.POOL_ACTIVE_PER_SLOT_RECORD), "Active / slots", "suffix:×", SLOTS_OVER),
            Query(of(names.POOL_SWAPS_RECORD), "Swaps / pod", "suffix:/s"),
            Query(of(names.POOL_RESIDENCY_RECORD), "Mean stay", "s", falling(30, 300)),
            Query(stay(MEDIAN), "p50 stay", "s", installs=FULL_ONLY),
            Query(stay(P95), "p95 stay", "s", installs=FULL_ONLY),
            Query(of(names.POOL_MISSES_RECORD), "Misses", "percentunit", rising(MISSES.enter)),
            Query(BUSY, "GPU busy", "percentunit"),
            Query(INFERRING, "Inference", "percentunit"),
            Query(of(names.POOL_RHO_PEAK_RECORD), "Peak load", "percentunit", rising(RHO.leave, RHO.enter)),
        ),
        width=24,
        height=7,
        columns=(
            Column("cluster", "Cluster"),
            Column("pool", "Pool"),
            Column("role", "Role", 90),
        ),
        sort=("State", True),
    ),
    Panel(
        "Open findings",
        Kind.TABLE,
        "short",
        "What is wrong now, its cause, and the remedy with the best predicted effect; the whole finding is one click away.",
        "each finding says how its evidence is known; the service looks once a minute.",
        (
            Query(
                f"{of(names.FINDING_INFO)} * on (finding) group_left (severity) "
                f"max by (finding, severity) ({of(names.OPEN_FINDING)})",
                "Open",
                "none",
            ),
        ),
        width=24,
        height=8,
        installs=FULL_ONLY,
        columns=(
            Column("severity", "Severity", 80),
            Column("kind", "Kind", 140, scope.RUNBOOK),
            Column("cluster", "Cluster", 100),
            Column("pool", "Pool", 100),
            Column("role", "Role", 80),
            Column("summary", "What"),
            Column("cause", "Cause"),
            Column("remedy", "Best remedy"),
            Column("evidence", "Evidence"),
            Column("provenance", "Known by", 90),
            Column("explorer", "Explorer", 90, "${__value.raw}"),
        ),
        sort=("Severity", False),
    ),
)


def _lines(
    title: str,
    unit: str,
    metric: str,
    definition: str,
    provenance: str = RECORDED,
    *,
    further: str = "",
    legend: str = POOL,
    top: float | None = None,
    steps: tuple[Step, ...] = (),
) -> Panel:
    """A figure of each pool over time, of the pools where it is highest at the end."""
    return Panel(
        title,
        Kind.LINES,
        unit,
        definition,
        provenance,
        (Query(highest(metric, further=further), legend),),
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
        ),
        _lines(
            "Misses",
            "percentunit",
            names.POOL_MISSES_RECORD,
            "Loads per request with an adapter. Several requests may wait for one load, so it is a little low.",
            top=1,
            steps=rising(MISSES.enter),
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
            steps=SLOTS_OVER,
        ),
        _lines(
            "Pressure",
            "suffix:×",
            names.POOL_PRESSURE_RECORD,
            "Adapters expected to be asked for within 300 s, W(300 s), over all slots of the pool: above 1 no mean stay is "
            "that long.",
            steps=SLOTS_OVER,
        ),
        _lines(
            "Predicted misses",
            "percentunit",
            names.POOL_PREDICTED_RECORD,
            "The miss ratio that the last ten minutes' rates lead to at the present slots (Che's approximation of LRU).",
            f"inferred from {ROUTED}",
            top=1,
            steps=rising(MISSES.enter),
        ),
        _lines(
            "Requests of new adapters",
            "percentunit",
            names.POOL_NEWMASS_RECORD,
            "Requests for adapters first seen within the last hour, over all requests with an adapter. Absent while it learns "
            "which adapters are usual, a day.",
            ROUTED,
            top=1,
            steps=rising(LIMITS["newmass"].enter),
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
            steps=rising(RHO.leave, RHO.enter),
        ),
        _lines(
            "Saturation now",
            "percentunit",
            names.POOL_SATURATION_RECORD,
            "How near to its end the pool is now: the fullest of time in loads, slots in flight and capacity. What an "
            "autoscaler should "
            "look at, in place of the GPU's utilisation.",
            f"inferred: {RECORDED}",
            steps=rising(RHO.leave, RHO.enter),
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
            steps=rising(0.85, 0.95),
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
BOARD = Board(
    uids.OVERVIEW,
    "lora_watch / Overview",
    "The state of every pool that serves LoRA adapters: is it thrashing, since when, why, and what helps.",
    FIRST,
    (SWAPPING, DEMAND, HARM, PODS),
    ("cluster", "pool", "role"),
    several=("cluster", "pool", "role"),
)
