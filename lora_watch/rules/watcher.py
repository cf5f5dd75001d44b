"""Who watches: pods that tell nothing, a service that is silent or late, records that were lost."""

from datetime import timedelta

from lora_watch import names
from lora_watch.rules.condition import Clause, Compare, Condition
from lora_watch.rules.pace import Pace
from lora_watch.rules.pods import POD, POOL, SPAN
from lora_watch.rules.rule import Alert, Install, Recording, Severity, Tier
from lora_watch.rules.say import count, length
from lora_watch.rules.thresholds import BLIND_PODS, LAG_SECONDS, LASTS, LOOKS, LOST, SILENT

TOLD = timedelta(days=1)
"""A pod that told its slots within so long is one that ought to."""
DIAGNOSE = "diagnose"
"""The service's job that looks for findings."""


def looks(pace: Pace) -> tuple[Recording, ...]:
    """Whether the service looks: recorded before all else, which goes by it."""
    ended, renamed = (f'{names.JOB_RUNS}{{outcome="succeeded",{label}="{DIAGNOSE}"}}' for label in ("job", "exported_job"))
    span = pace.span(SPAN)
    return (
        Recording(
            names.WATCH_LOOKS_RECORD,
            "Looks for findings that ended well in ten minutes, 0 where the service runs and never looked; none without exporter",
            full=f"sum(increase({ended}[{span}]) and {ended} or increase({renamed}[{span}]) and {renamed})\n"
            f"or\n0 * group({names.JOB_RUNS})",
            of_watcher=True,
        ),
    )


def recordings(pace: Pace) -> tuple[Recording, ...]:
    """What is not seen."""
    span = pace.span(SPAN)
    slots, lost = names.POD_SLOTS_RECORD, names.AGENT_LOST
    engines = f"group by ({POD}) ({names.REQUESTS_RUNNING})"
    usual = f"last_over_time({slots}[{pace.span(TOLD)}])"
    first = f"({lost} unless {lost} offset {span} and on ({POD}) {names.AGENT_STEPS} offset {span})"
    return (
        Recording(
            names.POOL_BLIND_PODS_RECORD,
            "Pods whose engine is scraped and whose slots nobody tells, of pools that have adapters",
            raw=f"count by ({POOL}) ({engines} and on ({POOL}) group by ({POOL}) ({usual}) unless on (cluster, pod) {slots})\n"
            f"or\n0 * group by ({POOL}) ({slots})",
        ),
        Recording(
            names.POOL_LOST_RECORD,
            "Records of agents that could not be kept, in ten minutes",
            raw=f"sum by ({POOL}) (increase({lost}[{span}]) > 0 or {first})\nor\n0 * group by ({POOL}) ({names.AGENT_STEPS})",
            full=f"sum by ({POOL}) (max by ({POD}) ({names.RECENT_LOST}))",
        ),
        Recording(
            names.WATCH_SILENT_RECORD,
            "1 while nothing is told: no pod's slots in the raw install, no exporter of the service in the full one",
            raw=f"absent({slots})",
            full=f"absent({names.JOB_RUNS})",
            of_watcher=True,
        ),
        Recording(
            names.WATCH_LAG_RECORD,
            "How far the service's most backward source is behind",
            full=f"max({names.SOURCE_LAG})",
            of_watcher=True,
        ),
    )


def alerts() -> tuple[Alert, ...]:
    """Four."""
    whole: tuple[str, ...] = ()
    return (
        Alert(
            "LoraWatchBlind",
            Severity.WARN,
            Tier.WATCHER,
            Condition((Clause(Compare(names.WATCH_SILENT_RECORD, ">", SILENT)),), timedelta(minutes=2), timedelta(0), on=whole),
            summary="lora_watch is blind: nothing that it exports reaches this Prometheus, so no alert about adapters is to be "
            "trusted to fire.",
        ),
        Alert(
            "LoraPodsUnwatched",
            Severity.WARN,
            Tier.WATCHER,
            Condition((Clause(Compare(names.POOL_BLIND_PODS_RECORD, ">", BLIND_PODS)),), LASTS, LASTS),
            summary=f"{count(names.POOL_BLIND_PODS_RECORD)} pods of pool {{{{ $labels.pool }}}} serve requests and "
            "tell nothing of their adapters: no agent of theirs is scraped.",
        ),
        Alert(
            "LoraWatchLate",
            Severity.WARN,
            Tier.WATCHER,
            Condition(
                (
                    Clause(Compare(names.WATCH_LAG_RECORD, ">", LAG_SECONDS)),
                    Clause(Compare(names.WATCH_LOOKS_RECORD, "<", LOOKS)),
                ),
                timedelta(minutes=5),
                LASTS,
                on=whole,
            ),
            summary="lora_watch is late: its most backward source is "
            f"{length(names.WATCH_LAG_RECORD, ())} behind, and it looked for findings "
            f"{count(names.WATCH_LOOKS_RECORD, ())} times in ten minutes.",
            only=Install.FULL,
            why_only="without the service there is nothing that could be late but a scrape, which `up` tells",
        ),
        Alert(
            "LoraWatchLosingEvents",
            Severity.WARN,
            Tier.WATCHER,
            Condition((Clause(Compare(names.POOL_LOST_RECORD, ">", LOST)),), timedelta(minutes=1), LASTS),
            summary=f"Agents of pool {{{{ $labels.pool }}}} lost {count(names.POOL_LOST_RECORD)} records within ten "
            "minutes; swaps, misses and stays are too low by what was in them.",
        ),
    )
