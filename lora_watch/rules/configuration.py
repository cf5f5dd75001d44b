"""Configurations that cost: no CPU cache behind the slots, fewer slots than adapters in use, slots held by withdrawn names."""

from datetime import timedelta

from lora_watch import names
from lora_watch.rules.condition import Clause, Compare, Condition
from lora_watch.rules.pace import Pace
from lora_watch.rules.pods import POOL
from lora_watch.rules.rule import Alert, Install, Recording, Severity, Tier
from lora_watch.rules.say import count, number, percent
from lora_watch.rules.thresholds import LASTS, LOADS_COLD, LOADS_MANY, MISSES_MATTER, OVER_SLOTS, PHANTOMS

HOUR = timedelta(hours=1)


def recordings(pace: Pace) -> tuple[Recording, ...]:
    """Where loads come from, and slots whose adapter was withdrawn."""
    hour = pace.span(HOUR)
    cold, loads = (
        f"sum by ({POOL}) (avg_over_time({name}[{hour}]))" for name in (names.POD_COLD_LOADS_RECORD, names.POD_LOADS_RECORD)
    )
    return (
        Recording(
            names.POOL_COLD_RECORD,
            "Share of the hour's loads that read the disk; 1 where there is no CPU cache behind the slots",
            both=f"{cold} / on ({POOL}) ({loads} > 0)",
        ),
        Recording(
            names.POOL_PHANTOM_RECORD,
            "Slots held by adapters whose name was withdrawn",
            full=f"max by ({POOL}) ({names.POOL_PHANTOM_SLOTS})",
        ),
    )


def alerts() -> tuple[Alert, ...]:
    """Three, none of which is urgent."""
    return (
        Alert(
            "LoraNoWarmTier",
            Severity.INFO,
            Tier.CONFIGURATION,
            Condition(
                (
                    Clause(
                        Compare(names.POOL_COLD_RECORD, ">", LOADS_COLD),
                        also=(Compare(names.POOL_LOADS_RECORD, ">", LOADS_MANY),),
                    ),
                ),
                HOUR,
                HOUR,
            ),
            summary=f"{percent(names.POOL_COLD_RECORD)} of the loads of pool {{{{ $labels.pool }}}} read the "
            f"disk ({number(names.POOL_LOADS_RECORD, 2)} loads/s per pod): it has no CPU cache behind its slots, or one "
            "that is too small.",
            findings=("no-warm-tier",),
        ),
        Alert(
            "LoraSlotsBelowAdapters",
            Severity.INFO,
            Tier.CONFIGURATION,
            Condition(
                (
                    Clause(
                        Compare(names.POOL_ACTIVE_PER_SLOT_RECORD, ">", OVER_SLOTS),
                        also=(Compare(names.POOL_MISSES_RECORD, ">", MISSES_MATTER),),
                    ),
                ),
                HOUR,
                HOUR,
            ),
            summary=f"{count(names.POOL_ACTIVE_RECORD)} adapters of pool {{{{ $labels.pool }}}} share "
            f"{count(names.POOL_SLOTS_RECORD)} slots, and "
            f"{percent(names.POOL_MISSES_RECORD)} of requests miss.",
            findings=("slots-below-adapters", "one-slot-short"),
        ),
        Alert(
            "LoraPhantomAdapters",
            Severity.INFO,
            Tier.CONFIGURATION,
            Condition((Clause(Compare(names.POOL_PHANTOM_RECORD, ">", PHANTOMS)),), HOUR, LASTS),
            summary=f"{count(names.POOL_PHANTOM_RECORD)} slots of pool {{{{ $labels.pool }}}} hold adapters whose name "
            "was withdrawn; withdrawing a name frees no slot.",
            findings=("phantom",),
            only=Install.FULL,
            why_only="no metric of an engine or an agent tells which names are served",
        ),
    )
