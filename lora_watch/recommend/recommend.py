"""Everything that could be changed, each replayed and judged, in one ranked list: the composition."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from lora_watch.recommend.advice import Advice, Recommendation, Setup, Verdict
from lora_watch.recommend.history import History
from lora_watch.recommend.pods import advise_pods
from lora_watch.recommend.present import present
from lora_watch.recommend.routing import advise_routing
from lora_watch.recommend.sentence import sentence
from lora_watch.recommend.slots import advise_slots
from lora_watch.recommend.trial import Trial, trial

Told = Callable[[str, float], None]
"""Is told what is worked on, and the share of the whole that is done."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What advice costs: GPUs of a pod, one of them for an hour, KV-cache bytes of a token. None: unknown."""

    gpus_per_pod: int = 1
    gpu_hour: float | None = None
    currency: str = ""
    token_bytes: int | None = None


UNPRICED = Prices()
Lever = Callable[[Trial, Setup, Prices], Iterator[Advice]]
LEVERS: Mapping[str, Lever] = {
    "slots": lambda judged, setup, prices: advise_slots(judged, setup, token_bytes=prices.token_bytes),
    "pods": lambda judged, setup, prices: advise_pods(judged, setup, gpu_hour_price=prices.gpu_hour, currency=prices.currency),
    "routing": lambda judged, setup, _: advise_routing(judged, setup),
}
"""Every lever but pins, in the order in which they are tried."""


def recommend(
    history: History, setup: Setup, *, prices: Prices = UNPRICED, told: Told = lambda _what, _share: None
) -> Recommendation:
    """
    What is worth doing for a pool, and what is not, each by a replay of its own last week with the router in the loop.

    Sorted: what is proven first, by the lower bound of what it removes; then what is not worth it, unproven, harmful.
    NotEnoughHistory where nothing can be judged.
    """
    told("the present", 0.0)
    router = present(history)
    judged = trial(history, router, gpus_per_pod=prices.gpus_per_pod)
    advice: list[Advice] = []
    for place, (name, lever) in enumerate(LEVERS.items()):
        told(name, (place + 1) / (len(LEVERS) + 2))
        advice += lever(judged, setup, prices)
    ranked = tuple(sorted(advice, key=_rank))
    return Recommendation(
        setup,
        history.window,
        sentence(ranked),
        ranked,
        None,
        router=router.name,
        provenance=history.provenance,
        gaps=history.gaps,
    )


ORDER = (Verdict.ADVISED, Verdict.NOT_WORTH, Verdict.UNPROVEN, Verdict.HARMFUL)


def _rank(advice: Advice) -> tuple[int, float, str]:
    low, _ = advice.effect.sure
    return ORDER.index(advice.verdict), -(low if low is not None else float("-inf")), advice.what
