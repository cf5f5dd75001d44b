"""Versions of one adapter that share its requests: served as one, they would share its slot."""

from collections.abc import Iterator

import numpy as np

from lora_watch.derive.families import relatives
from lora_watch.recommend.advice import Advice, Kind, Setup
from lora_watch.recommend.history import History
from lora_watch.recommend.means import means
from lora_watch.recommend.trial import Trial, with_adapters
from lora_watch.recommend.words import percent

TINY = 0.1
"""Of the larger one's requests: what the smaller one of a pair may have, to be merged into it."""
KINDS = ("version", "date", "revision", "shared")


def advise_merge(trial: Trial, setup: Setup) -> Iterator[Advice]:
    """
    What it would save if requests for the small variants of adapters went to the others of their pairs.

    A pair is a name and the existing one that it is a version of (:func:`~lora_watch.derive.families.relatives`; experiments are
    no versions). Small is below ``TINY`` of the larger one's requests in the judged window. Nobody but their owners can say
    whether one may stand for the other.
    """
    pairs = small_variants(trial.part)
    if not pairs:
        return
    heir = np.arange(trial.part.trace.adapters, dtype=np.int32)
    for small, large in pairs:
        heir[small] = large
    heir = heir[heir]  # a variant of a variant goes where that one goes
    told = trial.count(trace=with_adapters(trial.part.trace, heir))
    can, how = means(Kind.MERGE, setup)
    yield trial.advice(
        Kind.MERGE,
        told,
        what=f"merge {len(pairs)} little-used {'version' if len(pairs) == 1 else 'versions'} with what they are versions of",
        why=f"each has less than {percent(TINY)} of the requests of the one it is a version of",
        cost="one training or a decision of their owners",
        risk="another version answers: quality is to be judged by their owners",
        can=can,
        how=how,
        amount=len(pairs),
        adapters=[trial.history.names[small] for small, _ in pairs],
    )


def small_variants(history: History) -> list[tuple[int, int]]:
    """(small, large) codes of pairs, each small one once."""
    used = history.trace.adapter[history.trace.adapter >= 0]
    asked = np.bincount(used, minlength=history.trace.adapters)
    code = {name: at for at, name in enumerate(history.names)}
    pairs: dict[int, int] = {}
    for one in relatives(history.names):
        if one.kind not in KINDS or one.parent not in code:
            continue
        small, large = sorted((code[one.name], code[one.parent]), key=lambda at: (int(asked[at]), at))
        if 0 < asked[small] <= TINY * asked[large]:
            pairs.setdefault(small, large)
    return sorted((small, large) for small, large in pairs.items() if pairs.get(large) != small)
