"""The harm without swaps: every slot holds an adapter in flight, so whoever wants another one waits."""

from lora_watch import names
from lora_watch.derive.warning import LIMITS
from lora_watch.rules.condition import Clause, Compare, Condition
from lora_watch.rules.rule import Alert, Severity, Tier
from lora_watch.rules.say import number, percent
from lora_watch.rules.thresholds import IN_FLIGHT, LOADING_CAUSES, holding


def alerts() -> tuple[Alert, ...]:
    """One; not where pods spend their time in loads, for then these make requests long."""
    wait, keep = holding(LIMITS["hard_cliff"])
    return (
        Alert(
            "LoraHardCliff",
            Severity.PAGE,
            Tier.HARM,
            Condition(
                (
                    Clause(
                        Compare(names.POOL_IN_FLIGHT_RECORD, ">", IN_FLIGHT),
                        unless=(Compare(names.POOL_LOADING_RECORD, ">", LOADING_CAUSES),),
                    ),
                ),
                wait,
                keep,
            ),
            summary="Requests of pool {{ $labels.pool }} wait for slots: on its fullest pod adapters in flight fill "
            f"{percent(names.POOL_IN_FLIGHT_RECORD)} of the slots, none of which can be evicted; "
            f"{number(names.POOL_SWAP_QUEUE_RECORD, 1)} requests wait.",
            findings=("hard-cliff", "starvation"),
        ),
    )
