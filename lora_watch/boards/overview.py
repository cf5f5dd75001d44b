"""Is it thrashing, where, and is the dashboard lying? The state of every pool in the first screen."""

from lora_watch import names
from lora_watch.boards import colours, scope, uids
from lora_watch.boards.annotations import FIRING
from lora_watch.boards.overview_rows import BUSY, INFERRING, ROWS
from lora_watch.boards.panel import FULL_ONLY, Board, Column, Kind, Panel, Query
from lora_watch.boards.scope import BY_POOL, MEDIAN, P95, of
from lora_watch.boards.words import EXPORTED, POOL, RECORDED
from lora_watch.diagnose.finding import Severity


def firing(severity: str) -> str:
    """1 for each pool in which an alert of this severity fires."""
    fires = of(names.ALERTS, further=f'{FIRING},severity="{severity}"')
    return f"max by ({BY_POOL}) ({fires})"


def stay(quantile: str) -> str:
    """A quantile of the stays, by pool: of the pod where it is shortest, for quantiles have no mean."""
    return f"min by ({BY_POOL}) ({of(names.RESIDENCY_SECONDS, further=quantile)})"


STATE = f"2 * {firing('page')} or {firing('warn')} or 0 * {of(names.POOL_SLOTS_RECORD)}"
SHORTEST = f"bottomk(1, {of(names.POOL_RESIDENCY_RECORD)})"
WORST_GAP = f"on ({BY_POOL}) topk(1, {of(names.POOL_NOT_INFERRING_RECORD)})"
SEVERE = 'severity="{}"'
RANKED = " or ".join(
    f"{severity.rank} * max by (finding) ({of(names.OPEN_FINDING, further=SEVERE.format(severity))})"
    for severity in tuple(Severity)[::-1]
)
"""The severity of each open finding as a number, for a text is sorted by its letters."""
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
        choices=colours.HEALTHY,
        steps=colours.STATE,
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
        steps=colours.SLOTS,
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
            Query(STATE, "State", choices=colours.HEALTHY),
            Query(of(names.POOL_PODS_RECORD), "Pods", "none"),
            Query(of(names.POOL_SLOTS_RECORD), "Slots", "none"),
            Query(of(names.POOL_ACTIVE_PER_SLOT_RECORD), "Active / slots", "suffix:×", colours.SLOTS),
            Query(of(names.POOL_SWAPS_RECORD), "Swaps / pod", "suffix:/s"),
            Query(of(names.POOL_RESIDENCY_RECORD), "Mean stay", "s", colours.STAY),
            Query(stay(MEDIAN), "p50 stay", "s", installs=FULL_ONLY),
            Query(stay(P95), "p95 stay", "s", installs=FULL_ONLY),
            Query(of(names.POOL_MISSES_RECORD), "Misses", "percentunit", colours.MISSES),
            Query(BUSY, "GPU busy", "percentunit"),
            Query(INFERRING, "Inference", "percentunit"),
            Query(of(names.POOL_RHO_PEAK_RECORD), "Peak load", "percentunit", colours.RHO),
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
        (Query(f"{of(names.FINDING_INFO)} * on (finding) group_left () ({RANKED})", "Severity", "none", (), colours.SEVERITIES),),
        width=24,
        height=8,
        installs=FULL_ONLY,
        columns=(
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
        sort=("Severity", True),
    ),
)


BOARD = Board(
    uids.OVERVIEW,
    "lora_watch / Overview",
    "The state of every pool that serves LoRA adapters: is it thrashing, since when, why, and what helps.",
    FIRST,
    ROWS,
    ("cluster", "pool", "role"),
    several=("cluster", "pool", "role"),
)
