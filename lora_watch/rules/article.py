"""
The limits of the article, as written; off by default.

On the article's own healthy month they never stop firing: 40 adapters on 32 slots are 1.25 of them, and 0.04 loads a second are a
mean stay of 100 s on four slots. The limits of stays and of swaps agree only where a pod has 30 slots.
"""

from datetime import timedelta

from lora_watch import names
from lora_watch.derive.kv_pressure import TIERS
from lora_watch.rules.condition import Clause, Compare, Condition
from lora_watch.rules.pods import POD, POOL
from lora_watch.rules.rule import Alert, Profile, Severity, Tier
from lora_watch.rules.say import count, length, number, percent
from lora_watch.rules.thresholds import LASTS, Threshold

WAIT = timedelta(minutes=5)
"""The article names no time; a rate over ten minutes that holds for five is no moment's."""
BY_POD = tuple(POD.split(", "))
BY_POOL = tuple(POOL.split(", "))
_WRITTEN = "as the article has it"


def alerts() -> tuple[Alert, ...]:
    """Two limits of each: the one that warns, and the one that calls."""
    pod, kv = "{{ $labels.pod }}", names.POD_KV_CACHE_RECORD
    active = (
        f"{count(names.POOL_ACTIVE_RECORD)} active adapters on {count(names.POOL_SLOTS_RECORD)} slots of pool "
        "{{ $labels.pool }}: a ratio of " + number(names.POOL_ACTIVE_PER_SLOT_RECORD, 2)
    )
    swaps = f"Pod {pod} swaps adapters {number(names.POD_SWAPS_RECORD, 2, BY_POD)} times a second"
    stay = f"An adapter stays in a slot of pod {pod} for {length(names.POD_RESIDENCY_RECORD, BY_POD)} on average"
    misses = f"{percent(names.POOL_MISSES_RECORD)} of the requests of pool {{{{ $labels.pool }}}} miss"
    cache = f"The KV cache of pod {pod} is {percent(kv, BY_POD)} full"
    warn, page = Severity.WARN, Severity.PAGE
    return (
        _one("LoraArticleActiveAdapters", warn, names.POOL_ACTIVE_PER_SLOT_RECORD, ">", 0.8, active, BY_POOL),
        _one("LoraArticleSwapRate", warn, names.POD_SWAPS_RECORD, ">", 0.5, swaps, BY_POD),
        _one("LoraArticleSwapRateHigh", page, names.POD_SWAPS_RECORD, ">", 1.0, swaps, BY_POD),
        _one("LoraArticleResidency", warn, names.POD_RESIDENCY_RECORD, "<", 300, stay, BY_POD),
        _one("LoraArticleResidencyLow", page, names.POD_RESIDENCY_RECORD, "<", 60, stay, BY_POD),
        _one("LoraArticleHitRatio", warn, names.POOL_MISSES_RECORD, ">", 1 - 0.9, misses, BY_POOL),
        _one("LoraArticleHitRatioLow", page, names.POOL_MISSES_RECORD, ">", 1 - 0.8, misses, BY_POOL),
        _one("LoraArticleKvPressureSoft", Severity.INFO, kv, ">", TIERS[0], cache, BY_POD, ("kv-pressure",)),
        _one("LoraArticleKvPressureHard", warn, kv, ">", TIERS[1], cache, BY_POD, ("kv-pressure",)),
        _one("LoraArticleKvPressureCritical", page, kv, ">", TIERS[2], cache, BY_POD, ("kv-pressure",)),
    )


def _one(
    name: str,
    severity: Severity,
    series: str,
    operator: str,
    limit: float,
    summary: str,
    by: tuple[str, ...],
    findings: tuple[str, ...] = ("thrash",),
) -> Alert:
    condition = Condition((Clause(Compare(series, operator, Threshold(round(limit, 3), _WRITTEN))),), WAIT, LASTS, on=by)
    tier = Tier.HARM if severity is Severity.PAGE else Tier.CAUSE
    return Alert(name, severity, tier, condition, f"{summary}.", findings, profile=Profile.ARTICLE)
