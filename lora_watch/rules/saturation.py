"""The harm: a pool gets, or at its next peak will get, more work than it can do."""

from datetime import timedelta

from lora_watch import names
from lora_watch.derive.saturation import MOST_SHARE
from lora_watch.derive.warning import LIMITS
from lora_watch.rules.adapters import in_flight
from lora_watch.rules.condition import Clause, Compare, Condition
from lora_watch.rules.pace import Pace
from lora_watch.rules.pods import ENGINE, POD, POOL, SPAN
from lora_watch.rules.rule import Alert, Recording, Severity, Tier
from lora_watch.rules.say import count, number, percent
from lora_watch.rules.thresholds import LOADING_HARM, RHO_PEAK, holding

HORIZON = timedelta(hours=8)
WEEK, DAY = timedelta(days=7), timedelta(days=1)
LEARNED = timedelta(days=7)
"""A queue so long ago still tells what a pod manages."""


def recordings(pace: Pace) -> tuple[Recording, ...]:
    """
    How near each pool is to its end, now and at the peak of the next eight hours: the fullest of what can run out.

    * loads: share of pod time in loads, which grows with the rate;
    * slots: adapters in flight over slots x, of which ``1 − (1 − x)^growth`` are in flight at the peak, if all were alike;
    * capacity: rate per pod ÷ (what a pod managed while requests waited for room in its batch · share of time without loads);
      unknown, and no reason for alarm, where that never happened.

    The peak is the highest rate of the same eight hours a week ago (a day ago in the first week), or the rate now.
    """
    rate = names.POOL_REQUESTS_RECORD
    prefill, decode = names.HISTOGRAMS[-2:]
    queued = (
        f"sum by ({POD}) (max by ({ENGINE}) "
        f'(min_over_time({names.WAITING_BY_REASON}{{reason="capacity"}}[{pace.span(SPAN)}]))) >= 1'
    )
    ahead = f"max_over_time({rate}[{pace.span(HORIZON)}] offset {{}})"
    past = f"({ahead.format(pace.span(WEEK - HORIZON))} or {ahead.format(pace.span(DAY - HORIZON))})"
    return (
        Recording(
            names.POD_SERVICE_RECORD,
            "Mean seconds of a request from its first step to its last token, loads included",
            raw=f"(sum by ({POD}) ({pace.rate(f'{prefill}_sum', SPAN)}) + sum by ({POD}) ({pace.rate(f'{decode}_sum', SPAN)}))"
            f" / (sum by ({POD}) ({pace.rate(f'{decode}_count', SPAN)}) > 0)",
        ),
        Recording(
            names.POD_IN_FLIGHT_RECORD,
            "Distinct adapters with a request in flight over slots; none of them can be evicted",
            raw=f"{in_flight(pace)}\n/ on ({POD}) ({names.POD_SLOTS_RECORD} > 0)",
        ),
        Recording(
            names.POOL_IN_FLIGHT_RECORD,
            "The same, of the fullest pod",
            raw=f"max by ({POOL}) ({names.POD_IN_FLIGHT_RECORD})",
            full=f"max by ({POOL}) ({names.IN_FLIGHT_PER_SLOT})",
        ),
        Recording(
            names.POD_QUEUED_REQUESTS_RECORD,
            "Requests per second, had there been no loads, while some waited for room in the batch for ten minutes on end",
            raw=f"{names.POD_REQUESTS_RECORD} / on ({POD}) "
            f"(1 - clamp_max(({names.POD_LOADING_RECORD} or 0 * {names.POD_REQUESTS_RECORD}), {MOST_SHARE}))\n"
            f"and on ({POD}) ({queued})",
        ),
        Recording(
            names.POOL_CAPACITY_RECORD,
            "Requests per second that a pod has managed: the 95th percentile of those times, none where there were none",
            raw=f"avg by ({POOL}) (quantile_over_time(0.95, {names.POD_QUEUED_REQUESTS_RECORD}[{pace.span(LEARNED)}]))",
        ),
        Recording(
            names.POOL_PEAK_RECORD,
            "The highest rate of the next eight hours, as a week ago or a day ago; never below the rate now",
            raw=f"({past} > {rate})\nor\n{rate}",
            full=f"max by ({POOL}) ({names.PEAK_REQUESTS})",
        ),
        Recording(
            names.POOL_SATURATION_RECORD,
            "How near to its end a pool is now: what an autoscaler should look at, for busy GPUs say nothing",
            raw=_fullest("1"),
            full=f"max by ({POOL}) ({names.RHO_NOW})",
        ),
        Recording(
            names.POOL_RHO_PEAK_RECORD,
            "How near to its end a pool will be at the peak of the next eight hours",
            raw=_fullest(f"on ({POOL}) ({names.POOL_PEAK_RECORD} / on ({POOL}) ({rate} > 0))"),
            full=f"max by ({POOL}) ({names.RHO_PEAK})",
        ),
    )


def _fullest(growth: str) -> str:
    loading, pods = names.POOL_LOADING_RECORD, names.POOL_PODS_RECORD
    free = f"(1 - clamp_max(({loading} * {growth} or 0 * {names.POOL_REQUESTS_RECORD}), {MOST_SHARE}))"
    parts = {
        "loads": f"{loading} * {growth}",
        "slots": f"1 - (1 - clamp_max(avg by ({POOL}) ({names.POD_IN_FLIGHT_RECORD}), 1)) ^ {growth}",
        "capacity": f"{names.POOL_REQUESTS_RECORD} * {growth} / on ({POOL}) {pods}"
        f" / on ({POOL}) ({names.POOL_CAPACITY_RECORD} * on ({POOL}) {free})",
    }
    named = "\n  or\n".join(f'  label_replace({text}, "part", "{part}", "", "")' for part, text in parts.items())
    return f"max by ({POOL}) (\n{named}\n)"


def alerts() -> tuple[Alert, ...]:
    """One: the peak that is coming, or time that goes into loads now."""
    wait, keep = holding(LIMITS["rho_peak"])
    return (
        Alert(
            "LoraSaturation",
            Severity.PAGE,
            Tier.HARM,
            Condition(
                (
                    Clause(Compare(names.POOL_RHO_PEAK_RECORD, ">", RHO_PEAK)),
                    Clause(Compare(names.POOL_LOADING_RECORD, ">", LOADING_HARM)),
                ),
                wait,
                keep,
            ),
            summary="Pool {{ $labels.pool }} "
            f"reaches rho {number(names.POOL_RHO_PEAK_RECORD, 2)} (of 1) at the coming peak of "
            f"{number(names.POOL_PEAK_RECORD, 1)} requests/s: its pods spend "
            f"{percent(names.POOL_LOADING_RECORD)} of their time in adapter loads, "
            f"{percent(names.POOL_MISSES_RECORD)} of requests miss and "
            f"{count(names.POOL_ACTIVE_RECORD)} adapters compete for {count(names.POOL_SLOTS_RECORD)} slots.",
            findings=("thrash", "new-adapters", "saturation", "hard-cliff"),
        ),
    )
