"""Where an adapter sits, who asks for it, what it costs to keep loading it."""

from lora_watch import names
from lora_watch.boards import colours, scope, uids
from lora_watch.boards.panel import FULL_ONLY, Board, Column, Kind, Panel, Query, Row
from lora_watch.boards.scope import ADAPTER, BY_POD, BY_POOL, MEDIAN, P95, of
from lora_watch.boards.words import AGENT, EXPORTED, POOL, ROUTED

TOP = 20
"""Adapters, or pods, named in one panel."""
LOADED = of(names.ADAPTER_LOADED, further='level="gpu",adapter_name=~"$adapter"')
OF_POOL = f"{POOL}: {{{{adapter}}}}"


def _one(metric: str, further: str = "") -> str:
    return of(metric, ADAPTER, further)


FIRST = (
    Panel(
        "Pods where it is resident",
        Kind.LINES,
        "none",
        "Pods of a pool that have the adapter in a GPU slot. On one side of prefill and decode only is a finding of its own.",
        AGENT,
        (Query(f"count by ({BY_POOL}, adapter_name) ({LOADED})", f"{POOL}: {{{{adapter_name}}}}"),),
        bottom=0,
    ),
    Panel(
        "Requests for it",
        Kind.LINES,
        "reqps",
        "Requests for the adapter per second, over ten minutes, by pool.",
        ROUTED,
        (Query(_one(names.ADAPTER_REQUESTS_RECORD), OF_POOL),),
        bottom=0,
    ),
    Panel(
        "Its share of the requests",
        Kind.LINES,
        "percentunit",
        "Requests for the adapter over all requests of the pool that name an adapter, over ten minutes.",
        ROUTED,
        (
            Query(
                f"{_one(names.ADAPTER_REQUESTS_RECORD)} / on ({BY_POOL}) group_left () "
                f"sum by ({BY_POOL}) ({of(names.ADAPTER_REQUESTS_RECORD)})",
                OF_POOL,
            ),
        ),
        top=1,
        bottom=0,
    ),
    Panel(
        "When and where it was resident",
        Kind.STATES,
        "none",
        f"The pods that had the adapter in a GPU slot, the {TOP} that had it longest within the window. Many short bars are "
        "reloads.",
        AGENT,
        (Query(f"{LOADED} and topk({TOP}, count_over_time({LOADED}[$__range] @ end()))", "{{pod}}: {{adapter_name}}"),),
        width=24,
        height=10,
        choices=colours.RESIDENT,
        by_pod=True,
    ),
    Panel(
        "Pods and stays",
        Kind.TABLE,
        "short",
        "One row a pod and adapter, of the last hour: requests, loads, and quantiles of how long it stayed in a slot "
        "(Kaplan-Meier, "
        f"counting stays that still last). The {TOP * 5} with the most loads.",
        EXPORTED,
        tuple(
            Query(f"{chosen} and on ({BY_POD}, adapter) topk({TOP * 5}, {_one(names.ADAPTER_LOADS)})", title, unit)
            for title, unit, chosen in (
                ("Resident", "none", _one(names.ADAPTER_RESIDENT)),
                ("Requests", "none", _one(names.ADAPTER_REQUESTS)),
                ("Loads", "none", _one(names.ADAPTER_LOADS)),
                ("p50 stay", "s", _one(names.ADAPTER_STAY_SECONDS, MEDIAN)),
                ("p95 stay", "s", _one(names.ADAPTER_STAY_SECONDS, P95)),
            )
        ),
        width=24,
        height=9,
        installs=FULL_ONLY,
        columns=(
            Column("cluster", "Cluster"),
            Column("pool", "Pool"),
            Column("role", "Role", 90),
            Column(
                "pod",
                "Pod",
                None,
                scope.board_link(uids.POD, {"pod": scope.row_value("Pod")}),
            ),
            Column("adapter", "Adapter", 280),
            Column("provenance", "Provenance", 100),
        ),
        sort=("Loads", True),
    ),
)
RANKING = Row(
    "All adapters of the chosen pools",
    (
        Panel(
            "Most asked for",
            Kind.BARS,
            "reqps",
            f"Requests per second over ten minutes; the {TOP} adapters with the most.",
            ROUTED,
            (Query(f"topk({TOP}, {of(names.ADAPTER_REQUESTS_RECORD)})", OF_POOL),),
            width=8,
            height=12,
            bottom=0,
        ),
        Panel(
            "Most loaded",
            Kind.BARS,
            "none",
            f"Loads into a GPU slot within the last hour, summed over the pods of a pool; the {TOP} adapters with the most.",
            EXPORTED,
            (Query(f"topk({TOP}, sum by ({BY_POOL}, adapter) ({of(names.ADAPTER_LOADS)}))", OF_POOL),),
            width=8,
            height=12,
            installs=FULL_ONLY,
            bottom=0,
        ),
        Panel(
            "Shortest stays, by adapter",
            Kind.BARS,
            "s",
            f"Median stay in a slot within the last hour in the pod where it is shortest; the {TOP} adapters with the shortest.",
            EXPORTED,
            (
                Query(
                    f"bottomk({TOP}, min by ({BY_POOL}, adapter) ({of(names.ADAPTER_STAY_SECONDS, further=MEDIAN)}))",
                    OF_POOL,
                ),
            ),
            width=8,
            height=12,
            installs=FULL_ONLY,
            bottom=0,
        ),
    ),
)
BOARD = Board(
    uids.ADAPTER,
    "lora_watch / Adapter",
    "Where the chosen adapters are resident, who asks for them, how often they are loaded and how long they stay.",
    FIRST,
    (RANKING,),
    ("cluster", "pool", "role", "adapter"),
    several=("cluster", "pool", "role"),
)
