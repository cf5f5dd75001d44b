"""Everything that could be changed, each replayed and judged, in one ranked list: the composition."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from lora_watch.model import DAY, HOUR, Window
from lora_watch.recommend.advice import Advice, Kind, Recommendation, Setup, Verdict
from lora_watch.recommend.bounds import bounds
from lora_watch.recommend.cap import advise_cap
from lora_watch.recommend.change_points import changes
from lora_watch.recommend.groups import advise_groups
from lora_watch.recommend.history import History
from lora_watch.recommend.means import means
from lora_watch.recommend.merge import advise_merge
from lora_watch.recommend.pins import PinAdvice, advise_pins
from lora_watch.recommend.pods import advise_pods
from lora_watch.recommend.present import present
from lora_watch.recommend.retire import advise_retire
from lora_watch.recommend.routing import advise_routing
from lora_watch.recommend.schedule import advise_schedule
from lora_watch.recommend.sentence import chosen, sentence
from lora_watch.recommend.slots import advise_slots
from lora_watch.recommend.split import advise_split
from lora_watch.recommend.trial import JUDGED, Trial, trial
from lora_watch.recommend.unpin import advise_unpin

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
    "schedule": lambda judged, setup, _: advise_schedule(judged, setup, since=max(judged.history.changes, default=None)),
    "ghosts": lambda judged, setup, _: advise_unpin(judged, setup),
    "experiments": lambda judged, setup, _: advise_cap(judged, setup),
    "versions": lambda judged, setup, _: advise_merge(judged, setup),
    "unused names": lambda judged, setup, _: advise_retire(judged, setup),
    "groups": lambda judged, setup, _: advise_groups(judged, setup),
    "tenants": lambda judged, setup, _: advise_split(judged, setup),
}
"""Every lever but pins, in the order in which they are tried."""


def recommend(
    history: History, setup: Setup, *, prices: Prices = UNPRICED, told: Told = lambda _what, _share: None
) -> Recommendation:
    """
    What is worth doing for a pool, and what is not, each by a replay of its own last week with the router in the loop.

    Sorted: the change to begin with, then what is proven, by the lower bound of what it removes; then what is not worth it,
    unproven, harmful.
    NotEnoughHistory where nothing can be judged.
    """
    told("when the mix changed", 0.0)
    history = _known(history)
    history = replace(history, changes=history.changes or changes(history))
    told("the present", 0.02)
    router = present(history)
    judged = trial(history, router, gpus_per_pod=prices.gpus_per_pod)
    with ThreadPoolExecutor(1) as beside:
        pinning = beside.submit(_pins, history, judged)
        advice: list[Advice] = []
        for place, (name, lever) in enumerate(LEVERS.items()):
            told(name, 0.1 + 0.5 * place / len(LEVERS))
            advice += lever(judged, setup, prices)
        told("pins", 0.6)
        pins, best = pinning.result()
    ranked = in_order([*advice, _with_means(pins.advice, setup)])
    return Recommendation(
        setup,
        history.window,
        sentence(ranked, _slight(judged)),
        ranked,
        None if pins.article is None else _with_means(pins.article, setup),
        bounds=best,
        router=router.name,
        learning_cut=pins.learning_cut,
        provenance=history.provenance,
        gaps=(*history.gaps, *_short(judged)),
    )


def _pins(history: History, judged: Trial) -> tuple[PinAdvice, dict[str, float]]:
    """The advice on pins, and what nothing could do better than; half of all the work, so that a second processor does it."""
    pins = advise_pins(history, judged.present, gpus_per_pod=judged.gpus_per_pod)
    return pins, bounds(history, judged.judged, judged.present, pins.base) if pins.base is not None else {}


def _known(history: History) -> History:
    """The history from its first request on: before it nothing is known, which is not that nobody asked."""
    if not len(history.trace) or history.trace.at[0] >= history.window.end:
        return history
    return replace(history, window=Window(max(int(history.trace.at[0]), history.window.start), history.window.end))


def _with_means(advice: Advice, setup: Setup) -> Advice:
    """Advice on pins with whether and how this engine can be told."""
    if not advice.places:
        return advice
    can, how = means(advice.kind, setup)
    return replace(advice, can=can, how=how)


SLIGHT = 0.01
"""Loads that take less of pods' time than this: of the requests on a pod next to none meets one."""


def _slight(judged: Trial) -> float | None:
    """The share of pods' time that loads take, where it is slight and nobody waits for a slot."""
    share = judged.load_share
    return None if share is None or share >= SLIGHT or judged.waiting else share


def _short(judged: Trial) -> Iterator[str]:
    """What a shorter window than wished for leaves out."""
    length = judged.judged.end - judged.judged.start
    if any(judged.judged.start == at for at in judged.history.changes):
        yield "the mix of adapters changed in the last week: what is judged begins there, and is learned from there on"
    elif length < JUDGED:
        long = f"{length / DAY:.2g} days" if length >= 2 * DAY else f"{length / HOUR:.2g} h"
        yield f"changes are judged by {long}, since no more is held: a week has hours that these do not"


ORDER = (Verdict.ADVISED, Verdict.NOT_WORTH, Verdict.UNPROVEN, Verdict.HARMFUL)


def in_order(advice: Sequence[Advice]) -> tuple[Advice, ...]:
    """
    The change to begin with (:func:`lora_watch.recommend.sentence.chosen`), then what is proven, by the lower bound of what it
    removes; of more of the same (slots, pods) the one to begin with stands before the others.
    """
    begin = chosen(advice)
    ranked = sorted(advice, key=lambda one: (one is not begin, _rank(one)))
    told: list[Advice] = []
    for one in ranked:
        if one in told:
            continue
        same = [other for other in ranked if other.verdict is Verdict.ADVISED and other.kind is one.kind]
        first = chosen(same) if one.verdict is Verdict.ADVISED and one.kind in {Kind.SLOTS, Kind.PODS} else None
        told += [first, *(other for other in same if other is not first)] if first is not None else [one]
    return tuple(told)


def _rank(advice: Advice) -> tuple[int, float, str]:
    low, _ = advice.effect.sure
    return ORDER.index(advice.verdict), -(low if low is not None else float("-inf")), advice.what
