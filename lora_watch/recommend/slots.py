"""More slots on every pod: until another one removes nothing more."""

from collections.abc import Iterator

from lora_watch.model import HOUR
from lora_watch.recommend.advice import Advice, Kind, Setup
from lora_watch.recommend.means import means
from lora_watch.recommend.proof import MODEL_ERROR
from lora_watch.recommend.trial import Trial

TRIED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of slots more that are tried, in order."""


def advise_slots(trial: Trial, setup: Setup, *, token_bytes: int | None = None) -> Iterator[Advice]:
    """
    One advice for each number of slots more, up to the one after which less than ``MODEL_ERROR`` of what hurts goes on top.

    The price is memory that the KV cache has now: ``slots × slot bytes ÷ token_bytes`` tokens, where both are known. More slots
    never miss more under LRU on given pods; with a router in the loop they can.
    """
    part, before = trial.part, 0.0
    for more in TRIED:
        if min(part.slots) + more > part.trace.adapters + 1:
            break
        told = trial.count(fleet=part.fleet(more_slots=more))
        effect = trial.effect(told)
        can, how = means(Kind.SLOTS, setup, min(part.slots) + more)
        if min(part.slots) < max(part.slots):
            how += f"; pods differ: that is for one of {min(part.slots)}, others get {more} more than they have"
        yield trial.advice(
            Kind.SLOTS,
            told,
            what=f"+{more} {'slot' if more == 1 else 'slots'} per pod",
            why=f"{_wanted(trial)} adapters were asked for in the last hour, and there are {sum(part.slots)} slots, "
            f"{min(part.slots)} on a pod",
            cost=price(more, setup, token_bytes),
            risk="what it takes from the KV cache, long requests can't have",
            can=can,
            how=how,
            amount=more,
        )
        gained = effect.removed or 0.0
        if gained - before < MODEL_ERROR or (effect.removed is not None and effect.removed >= 1 - MODEL_ERROR / 2):
            break
        before = gained


def price(more: int, setup: Setup, token_bytes: int | None) -> str:
    """
    What so many slots take from a pod's KV cache, in words.

    >>> price(1, Setup("chat", slot_bytes=65_536_000), 327_680)
    '200 KV-cache tokens (66 MB) a pod at least, a rolling restart'
    """
    if setup.slot_bytes is None:
        return "memory of the KV cache (how much is unknown: no load told its bytes), a rolling restart"
    size = f"{more * setup.slot_bytes / 1e6:,.0f} MB"
    if not token_bytes:
        return f"{size} of the KV cache a pod at least, a rolling restart"
    return f"{more * setup.slot_bytes // token_bytes:,} KV-cache tokens ({size}) a pod at least, a rolling restart"


def _wanted(trial: Trial) -> int:
    """Adapters asked for in the last hour of the judged window."""
    trace = trial.part.trace
    last = trace.adapter[(trace.at >= trial.judged.end - HOUR) & (trace.adapter >= 0)]
    return len(set(last.tolist()))
