"""The mechanism: the working set no longer fits the slots, whatever the traffic of the moment."""

from lora_watch import names
from lora_watch.derive.warning import LIMITS
from lora_watch.rules.condition import Clause, Compare, Condition
from lora_watch.rules.pods import POOL
from lora_watch.rules.rule import Alert, Recording, Severity, Tier
from lora_watch.rules.say import count, percent, top
from lora_watch.rules.thresholds import PREDICTED, holding


def recordings() -> tuple[Recording, ...]:
    """
    The miss ratio that rates by adapter predict for LRU at the slots there are (Che), were the pool one cache.

    T such that W(T) = slots lies between two of the recorded horizons; there loads M are drawn as a straight line over W. A pool
    whose adapters all have a slot misses nothing.
    """
    return (Recording(names.POOL_PREDICTED_RECORD, "Predicted miss ratio", raw=_interpolated(), full=_told()),)


def _told() -> str:
    return f"max by ({POOL}) ({names.PREDICTED_MISS_RATIO})"


def _interpolated() -> str:
    slots, wide, loads = names.POOL_SLOTS_RECORD, names.POOL_WORKING_SET_RECORD, names.POOL_WORKING_SET_LOADS_RECORD
    whole = f"sum by ({POOL}) ({names.ADAPTER_REQUESTS_RECORD})"
    fits = f"({wide} <= on ({POOL}) group_left () {slots})"
    bursts = f"({wide} > on ({POOL}) group_left () {slots})"
    less = f"(max by ({POOL}) ({fits}) or 0 * {slots})"
    more = f"min by ({POOL}) ({bursts})"
    loads_less = f"(min by ({POOL}) ({loads} and {fits}) or {whole})"
    loads_more = f"max by ({POOL}) ({loads} and {bursts})"
    return f"""(
  {loads_less}
  - ({loads_less} - {loads_more})
    * ({slots} - {less}) / ({more} - {less})
) / ({whole} > 0)
or
0 * ({whole} > 0 and on ({POOL}) {slots})"""


def alerts() -> tuple[Alert, ...]:
    """One."""
    wait, keep = holding(LIMITS["predicted_miss_ratio"])
    return (
        Alert(
            "LoraPredictedMisses",
            Severity.WARN,
            Tier.CAUSE,
            Condition((Clause(Compare(names.POOL_PREDICTED_RECORD, ">", PREDICTED)),), wait, keep),
            summary=f"{percent(names.POOL_PREDICTED_RECORD)} of the requests of pool {{{{ $labels.pool }}}} "
            f"are predicted to miss at its {count(names.POOL_SLOTS_RECORD)} slots "
            f"({percent(names.POOL_MISSES_RECORD)} do now): "
            f"{count(names.POOL_ACTIVE_RECORD)} adapters are in use (busiest: {top()}).",
            findings=("thrash", "new-adapters", "working-set-shift", "one-slot-short"),
        ),
    )
