"""What a recommendation comes to, in one line."""

from collections.abc import Sequence
from itertools import pairwise

from lora_watch.recommend.advice import Advice, Effect, Kind, Verdict
from lora_watch.recommend.proof import MODEL_ERROR
from lora_watch.recommend.words import percent

GENTLE = (
    Kind.UNPIN,
    Kind.SLOTS,
    Kind.ROUTING,
    Kind.PINS,
    Kind.PRELOAD,
    Kind.PODS,
    Kind.GROUPS,
    Kind.SPLIT,
    Kind.RETIRE,
    Kind.MERGE,
    Kind.CAP,
)
"""Changes by what they ask for: settings, then machines, then what somebody wants to do with adapters."""
LEAST = 0.001
"""The least share of pods' time that is told by its number."""
STEP = 0.1
"""A variant with more of the same (slots, pods) is named only where it removes so much more of what hurts."""


def chosen(advice: Sequence[Advice]) -> Advice | None:
    """
    The change to begin with, None where nothing is proven. Of what is proven and can be done the one with the highest lower
    bound; of those that come within the replay's own error of it the one that stands first in ``GENTLE``. Of variants with more
    slots or pods the least that comes within ``STEP`` of the next.
    """
    proven = [one for one in advice if one.verdict is Verdict.ADVISED and one.can is not False]
    if not proven:
        return None
    most = max(_sure(one) for one in proven)
    best = min((one for one in proven if most - _sure(one) <= MODEL_ERROR), key=lambda one: (GENTLE.index(one.kind), -_sure(one)))
    if best.kind not in {Kind.SLOTS, Kind.PODS}:
        return best
    less = sorted((one for one in proven if one.kind is best.kind and one.amount is not None), key=lambda one: one.amount or 0)
    for one, more in pairwise(less):
        if _sure(more) - _sure(one) < STEP:
            return one
    return less[-1] if less else best


def sentence(advice: Sequence[Advice], slight: float | None = None) -> str:
    """
    "Pin nothing; add one slot per pod: −58 % swaps (52 … 63 %) for 3,100 KV-cache tokens a pod." And where nothing is proven,
    that nothing needs changing, or that nothing that was tried helps. Where the pool's own pins do harm they are named first:
    to take them out costs nothing.

    ``slight``: loads take so small a share of pods' time, and nobody waits for a slot, so that nothing is urgent (None: it may
    be). A share of the swaps says nothing of whether anybody feels them.
    """
    base = [one.effect.base_swaps for one in advice if one.effect.base_swaps is not None]
    if base and not any(base):
        return "Change nothing: no request of the judged time made anybody leave a slot."
    best = chosen(advice)
    if best is None:
        return "Pin nothing, and change nothing: nothing that was tried is proven to help."
    told = _advised(advice, best)
    if slight is None:
        return told
    share = percent(slight) if slight >= LEAST else f"less than {percent(LEAST)}"
    return f"{told} Nothing is urgent: loads take {share} of pods' time, and requests do not wait for slots."


def _advised(advice: Sequence[Advice], best: Advice) -> str:
    text = f"{_do(best)}: {removed(best.effect)}{f', for {best.cost}' if best.cost else ''}."
    held = chosen([one for one in advice if one.kind is Kind.UNPIN])
    if held is not None and best.kind not in {Kind.UNPIN, Kind.PINS}:
        return f"{_capital(_do(held))}: {removed(held.effect)}, for {held.cost}. Or {text}"
    pins = [one for one in advice if one.kind is Kind.PINS]
    if not pins or best.kind is Kind.PINS:
        return _capital(text)
    proven = [one for one in pins if one.verdict is Verdict.ADVISED]
    if not proven:
        return f"Pin nothing; {text}"
    cannot = ", which this engine can't be told" if proven[0].can is False else ""
    return f"{_capital(text)} To {proven[0].what} instead: {removed(proven[0].effect)}{cannot}."


def removed(effect: Effect) -> str:
    """
    What is gone of what hurts, with its interval; a bound that adds some has a plus, and then the other one its minus.

    >>> removed(Effect(0.58, 0.52, 0.63, 42, 100)), removed(Effect(0.07, -0.02, 0.15, 93, 100))
    ('−58 % swaps (52 … 63 %)', '−7 % swaps (+2 … −15 %)')
    """
    share, (low, high) = effect.removed, effect.sure
    if share is None or low is None or high is None:
        return f"{effect.of}: unknown"
    told = (_whole(low), _whole(high)) if _whole(low) >= 0 else (_signed(low), _signed(high))
    return f"{_signed(share)} % {effect.of} ({told[0]} … {told[1]} %)"


def _whole(share: float) -> int:
    return round(100 * share)


def _signed(share: float) -> str:
    """A share that is gone, as what becomes of the rest."""
    return f"{'−' if share >= 0 or not _whole(share) else '+'}{abs(_whole(share))}"


def _do(advice: Advice) -> str:
    what = advice.what
    return f"add {what.removeprefix('+')}" if advice.kind in {Kind.SLOTS, Kind.PODS} else what


def _sure(advice: Advice) -> float:
    low, _ = advice.effect.sure
    return float("-inf") if low is None else low


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
