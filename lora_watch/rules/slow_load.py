"""Loads that take far longer than they used to, however many there are."""

from datetime import timedelta

from lora_watch import names
from lora_watch.derive.slow_loads import FEWEST
from lora_watch.rules.condition import Clause, Compare, Condition
from lora_watch.rules.pace import Pace
from lora_watch.rules.pods import POOL, SPAN
from lora_watch.rules.rule import Alert, Recording, Severity, Tier
from lora_watch.rules.say import length, number
from lora_watch.rules.thresholds import LASTS, SLOW_SECONDS, SLOWDOWN

PHASES = {"disk": ("cpu", "load"), "copy": ("gpu", "activate")}
"""By phase the agent's tier and the proposal's transition: disk is the read into CPU memory, copy that into the slot."""
USUAL = timedelta(days=1)


def recordings(pace: Pace) -> tuple[Recording, ...]:
    """Mean seconds of a load by phase, and how that stands to the median of the day."""
    span = pace.span(SPAN)

    def mean(histogram: str, label: str, value: str) -> str:
        chosen = f'{{{label}="{value}"}}'
        total, count = (f"sum by ({POOL}) (increase({histogram}_{part}{chosen}[{span}]))" for part in ("sum", "count"))
        return f"{total} / ({count} >= {FEWEST})"

    seconds = names.POOL_LOAD_SECONDS_RECORD
    return (
        *(
            Recording(
                seconds,
                f"Mean seconds of a load's phase; none with fewer than {FEWEST} of them",
                raw=f"{mean(names.AGENT_LOAD_SECONDS, 'tier', tier)}\nor\n{mean(names.LOAD_SECONDS, 'transition', transition)}",
                full=f'max by ({POOL}) ({names.POOL_LOAD_SECONDS}{{phase="{phase}"}})',
                labels=(("phase", phase),),
            )
            for phase, (tier, transition) in PHASES.items()
        ),
        Recording(
            names.POOL_SLOWDOWN_RECORD,
            "Mean seconds of a load over their median of the last day",
            both=f"{seconds} / (quantile_over_time(0.5, {seconds}[{pace.span(USUAL)}]) > 0)",
        ),
    )


def alerts() -> tuple[Alert, ...]:
    """One, by phase: which one is slow decides where to look."""
    labels = (*POOL.split(", "), "phase")
    return (
        Alert(
            "LoraSlowLoad",
            Severity.WARN,
            Tier.CAUSE,
            Condition(
                (
                    Clause(
                        Compare(names.POOL_SLOWDOWN_RECORD, ">", SLOWDOWN),
                        also=(Compare(names.POOL_LOAD_SECONDS_RECORD, ">", SLOW_SECONDS),),
                    ),
                ),
                timedelta(minutes=5),
                LASTS,
                on=labels,
            ),
            summary="Adapter loads of pool {{ $labels.pool }} are slow: the phase {{ $labels.phase }} takes "
            f"{length(names.POOL_LOAD_SECONDS_RECORD, labels)} on average, "
            f"{number(names.POOL_SLOWDOWN_RECORD, 1, labels)} times as long as usual.",
            findings=("slow-load",),
        ),
    )
