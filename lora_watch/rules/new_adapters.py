"""The cause: adapters that nobody had asked for before carry a part of the traffic."""

from datetime import timedelta

from lora_watch import names
from lora_watch.derive.warning import LIMITS
from lora_watch.rules.condition import Clause, Compare, Condition
from lora_watch.rules.pace import Pace
from lora_watch.rules.pods import POOL
from lora_watch.rules.rule import Alert, Recording, Severity, Tier
from lora_watch.rules.say import count, percent, top
from lora_watch.rules.thresholds import NEWMASS, OVER_SLOTS, holding

NEW = timedelta(hours=1)
LEARNING = timedelta(days=1)
OUTAGE = timedelta(days=1)
"""Prometheus may have been down for so long without every adapter being new afterwards."""
FORGOTTEN = timedelta(days=14)
"""An adapter that nobody asked for in so long is forgotten, and new when it returns."""


def recordings(pace: Pace) -> tuple[Recording, ...]:
    """Who was seen when, and the share of requests for adapters that are new."""
    rate, seen = names.ADAPTER_REQUESTS_RECORD, names.ADAPTER_SEEN_RECORD
    lookback = pace.span(OUTAGE)
    fresh = f"{rate} unless last_over_time({seen}[{lookback}] offset {pace.span(NEW)})"
    whole = f"sum by ({POOL}) ({rate})"
    return (
        Recording(
            seen,
            "When an adapter was last asked for: remembers it through restarts of the router",
            raw=f"timestamp({rate} > 0)\nor\n(last_over_time({seen}[{lookback}]) > time() - "
            f"{FORGOTTEN.total_seconds() / pace.time_scale:.0f})",
        ),
        Recording(
            names.POOL_NEWMASS_RECORD,
            "Share of requests on adapters first seen within the hour; none in the first day of data, when everything is new",
            raw=f"(sum by ({POOL}) ({fresh}) or 0 * {whole}) / ({whole} > 0)\n"
            f"and on ({POOL}) group by ({POOL}) (last_over_time({seen}[{pace.span(NEW)}] offset {pace.span(LEARNING)}))",
            full=f"max by ({POOL}) ({names.NEWMASS})",
        ),
    )


def alerts() -> tuple[Alert, ...]:
    """One: new adapters carry traffic and there is no slot for each of them."""
    wait, keep = holding(LIMITS["newmass"])
    return (
        Alert(
            "LoraNewAdapters",
            Severity.WARN,
            Tier.CAUSE,
            Condition(
                (
                    Clause(
                        Compare(names.POOL_NEWMASS_RECORD, ">", NEWMASS),
                        also=(Compare(names.POOL_ACTIVE_PER_SLOT_RECORD, ">", OVER_SLOTS),),
                    ),
                ),
                wait,
                keep,
            ),
            summary="Adapters first seen within the hour carry "
            f"{percent(names.POOL_NEWMASS_RECORD)} of the requests of pool {{{{ $labels.pool }}}}; "
            f"{count(names.POOL_ACTIVE_RECORD)} adapters are in use on "
            f"{count(names.POOL_SLOTS_RECORD)} slots (busiest: {top()}).",
            findings=("new-adapters",),
        ),
    )
