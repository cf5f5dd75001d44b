"""More pods: each brings its slots, and a router spreads requests over them."""

from collections.abc import Iterator

from lora_watch.recommend.advice import Advice, Kind, Setup, Verdict
from lora_watch.recommend.means import means
from lora_watch.recommend.sizing import monthly_bill
from lora_watch.recommend.trial import Trial
from lora_watch.replay.trace import Trace

TRIED = (1, 2)


def advise_pods(trial: Trial, setup: Setup, *, gpu_hour_price: float | None = None, currency: str = "") -> Iterator[Advice]:
    """
    One advice for each number of pods more; the second only where the first is advised.

    None where no router stands for the present one: no recorded request went to a pod that was not there.
    """
    if trial.present.router is None:
        return
    trace = trial.part.trace
    for more in TRIED:
        wider = Trace(trace.adapter, adapters=trace.adapters, pods=trace.pods + more, at=trace.at, hold=trace.hold)
        told = trial.count(fleet=trial.part.fleet(more_pods=more), trace=wider)
        gpus = more * trial.gpus_per_pod
        can, how = means(Kind.PODS, setup, trace.pods + more)
        money = (
            ""
            if gpu_hour_price is None
            else f", {monthly_bill(more, trial.gpus_per_pod, gpu_hour_price):,.0f} {currency} a month"
        )
        advice = trial.advice(
            Kind.PODS,
            told,
            what="one more pod" if more == 1 else f"{more} more pods",
            why=f"{sum(trial.part.slots)} slots become {sum(trial.part.slots) + more * min(trial.part.slots)}",
            cost=f"{gpus} {'GPU' if gpus == 1 else 'GPUs'}{money}",
            risk="a router that spreads adapters over more pods can load them more often",
            can=can,
            how=how,
            amount=more,
        )
        yield advice
        if advice.verdict is not Verdict.ADVISED:
            return
