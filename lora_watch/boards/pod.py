"""What one pod does with its slots: who sits there, how long, what each load cost, who waited. One row for each chosen pod."""

from lora_watch import names
from lora_watch.boards import colours, scope, uids
from lora_watch.boards.panel import FULL_ONLY, Board, Column, Kind, Panel, Query, Row
from lora_watch.boards.scope import BY_POD, MEDIAN, P95, POD, of
from lora_watch.boards.words import AGENT, ENGINE, EXPORTED, RECORDED

RESIDENTS = 40
"""Adapters drawn in one timeline: as many as are longest in the slots of the window."""
RATE = "$__rate_interval"


def _pod(metric: str, further: str = "") -> str:
    return of(metric, POD, further)


def rate(metric: str, by: str, further: str = "") -> str:
    """A raw counter per second, summed over the pod's engines."""
    return f"sum by ({BY_POD}, {by}) (rate({_pod(metric, further)}[{RATE}]))"


def quantile(share: str, histogram: str, by: str) -> str:
    """A quantile of a raw histogram."""
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', f'{by}, le')})"


LOADED = _pod(names.ADAPTER_LOADED, 'level="gpu"')
FIRST = (
    Panel(
        "Chosen pods",
        Kind.TABLE,
        "short",
        "One row a pod, of the last ten minutes: slots, swaps, mean stay (slots over load rate), loads per request, share of "
        "time in "
        "loads, GPU busy and on inference, KV cache.",
        RECORDED,
        (
            Query(_pod(names.POD_SLOTS_RECORD), "Slots", "none"),
            Query(_pod(names.POD_SWAPS_RECORD), "Swaps", "suffix:/s"),
            Query(_pod(names.POD_RESIDENCY_RECORD), "Mean stay", "s", colours.STAY),
            Query(_pod(names.POD_MISSES_RECORD), "Misses", "percentunit", colours.MISSES),
            Query(_pod(names.POD_LOADING_RECORD), "Loading", "percentunit"),
            Query(_pod(names.POD_GPU_BUSY_RECORD), "GPU busy", "percentunit"),
            Query(_pod(names.POD_INFERENCE_RECORD), "Inference", "percentunit"),
            Query(_pod(names.POD_KV_CACHE_RECORD), "KV cache", "percentunit", colours.KV),
            Query(_pod(names.POD_REQUESTS_RECORD), "Requests", "reqps"),
        ),
        width=24,
        height=6,
        columns=(
            Column("cluster", "Cluster"),
            Column("pool", "Pool"),
            Column("role", "Role", 90),
            Column("pod", "Pod", None, scope.explorer_link((), pod=scope.exactly(scope.row_value("Pod")))),
        ),
        sort=("Swaps", True),
    ),
)
EACH = Row(
    "Pod $pod",
    (
        Panel(
            "Who is in the slots",
            Kind.STATES,
            "none",
            f"The adapters whose weights are in a GPU slot, those {RESIDENTS} that were there longest within the window. A gap "
            "is an "
            "eviction, or a scrape that failed.",
            AGENT,
            (Query(f"{LOADED} and topk({RESIDENTS}, count_over_time({LOADED}[$__range] @ end()))", "{{adapter_name}}"),),
            width=12,
            height=10,
            choices=colours.RESIDENT,
        ),
        Panel(
            "Slots",
            Kind.LINES,
            "none",
            "Slots (max_loras), and how many hold an adapter. All are full in any warm pod: that says nothing about trouble.",
            AGENT,
            (
                Query(f"sum by ({BY_POD}) ({_pod(names.MAX_GPU_ADAPTERS)})", "slots"),
                Query(f"sum by ({BY_POD}) ({_pod(names.GPU_ADAPTERS)})", "resident"),
                Query(f"sum by ({BY_POD}) ({_pod(names.CPU_ADAPTERS)})", "in the CPU cache"),
            ),
            width=6,
            height=10,
            bottom=0,
        ),
        Panel(
            "Stays",
            Kind.LINES,
            "s",
            "How long an adapter stays in a slot: p50 and p95 by Kaplan-Meier over the last hour, counting stays that still "
            "last.",
            EXPORTED,
            (
                Query(_pod(names.RESIDENCY_SECONDS, MEDIAN), "p50", installs=FULL_ONLY),
                Query(_pod(names.RESIDENCY_SECONDS, P95), "p95", installs=FULL_ONLY),
                Query(_pod(names.POD_RESIDENCY_RECORD), "mean by Little, 10 min"),
            ),
            width=6,
            height=10,
            bottom=0,
        ),
        Panel(
            "Loads",
            Kind.LINES,
            "suffix:/s",
            "Loads into a GPU slot per second, by where the adapter was: in the CPU cache (warm), or on disk (cold).",
            AGENT,
            (Query(rate(names.AGENT_LOADS, "from_tier", 'tier="gpu"'), "from {{from_tier}}"),),
            width=6,
            bottom=0,
            stacked=True,
        ),
        Panel(
            "Evictions",
            Kind.LINES,
            "suffix:/s",
            "Weights that left a GPU slot per second, by reason; lru makes room for another adapter: that is a swap.",
            AGENT,
            (Query(rate(names.AGENT_EVICTIONS, "reason", 'tier="gpu"'), "{{reason}}"),),
            width=6,
            bottom=0,
            stacked=True,
        ),
        Panel(
            "Where adapters were found",
            Kind.LINES,
            "suffix:/s",
            "Adapters that entered the running batch per second: hot were in a slot, warm in the CPU cache, cold on disk.",
            AGENT,
            (Query(rate(names.AGENT_USES, "lookup"), "{{lookup}}"),),
            width=6,
            bottom=0,
            stacked=True,
        ),
        Panel(
            "Time of a load, p95",
            Kind.LINES,
            "s",
            "95 % of the loads took no longer, by tier they went to and came from; between two bounds of the histogram.",
            AGENT,
            (Query(quantile("0.95", names.AGENT_LOAD_SECONDS, "tier, from_tier"), "{{from_tier}} to {{tier}}"),),
            width=6,
            bottom=0,
        ),
        Panel(
            "Stalls",
            Kind.LINES,
            "percentunit",
            "Time on adapters inside engine steps over wall time, by the clock that measured it: host is not GPU time.",
            AGENT,
            (Query(rate(names.AGENT_ADAPTER_SECONDS, "clock"), "on adapters ({{clock}})"),),
            width=6,
            top=1,
            bottom=0,
        ),
        Panel(
            "GPU busy, and on inference, over time",
            Kind.LINES,
            "percentunit",
            "Wall time the GPU reads busy, whatever with, and the part of wall time spent on inference.",
            RECORDED,
            (
                Query(_pod(names.POD_GPU_BUSY_RECORD), "busy"),
                Query(_pod(names.POD_INFERENCE_RECORD), "inference"),
            ),
            width=6,
            top=1,
            bottom=0,
        ),
        Panel(
            "Queue",
            Kind.LINES,
            "none",
            "Requests that run, and those that wait, by reason: deferred is the best stock sign of a missing slot (transfers "
            "of the "
            "KV cache count as well).",
            ENGINE,
            (
                Query(f"sum by ({BY_POD}) ({_pod(names.REQUESTS_RUNNING)})", "running"),
                Query(f"sum by ({BY_POD}, reason) ({_pod(names.WAITING_BY_REASON)})", "waiting: {{reason}}"),
            ),
            width=6,
            bottom=0,
        ),
        Panel(
            "KV cache in use",
            Kind.LINES,
            "percentunit",
            "Share of the KV cache in use, mean over ten minutes. Every slot more takes from it.",
            RECORDED,
            (Query(_pod(names.POD_KV_CACHE_RECORD), "in use"),),
            width=6,
            top=1,
            bottom=0,
            steps=colours.KV,
        ),
    ),
    repeat="pod",
)
BOARD = Board(
    uids.POD,
    "lora_watch / Pod",
    "What each of the chosen pods does with its slots: stays, loads, stalls, queue, KV cache.",
    FIRST,
    (EACH,),
    ("cluster", "pool", "role", "pod"),
    several=("cluster", "pool", "role"),
    hours=3,
)
