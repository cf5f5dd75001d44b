"""Which adapter leaves a full tier: the article's and the engines' rules, and the one that knows the future."""

import math
from dataclasses import dataclass
from enum import IntEnum

from lora_watch.model import MINUTE, SECOND
from lora_watch.replay.compiled import part
from lora_watch.replay.state import Pods, Rules, Tier


class Eviction(IntEnum):
    """Who leaves. Ties, and LRU altogether, go by the least recent use."""

    LRU = 0  # vLLM, SGLang's default
    LFU = 1  # fewest uses, each fading with its age
    TIME_WEIGHTED = 2  # the article's retention score
    MIN = 3  # Belady: the one used again last


@dataclass(frozen=True, slots=True)
class Policy:
    """
    An eviction rule and its constants.

    LFU keeps by ``Σ exp(−age ÷ window)`` over the pod's uses of an adapter, resident or not. TIME_WEIGHTED keeps by
    ``frequency_weight × uses in the last window + recency_weight ÷ seconds since the last use`` (the article gives no
    weights; an age below 1 µs counts as 1 µs). ``window`` is in µs.
    """

    eviction: Eviction = Eviction.LRU
    window: int = 10 * MINUTE
    frequency_weight: float = 1.0
    recency_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"the window of an eviction rule is at least 1 µs, got {self.window}")


LRU = Policy()


@part
def count_use(pods: Pods, p: int, a: int, at: int, window: int) -> None:
    """One more use for both frequency rules: ``faded`` is worth its value at ``faded_at``."""
    gone = at - pods.faded_at[p, a]
    pods.faded[p, a] = pods.faded[p, a] * math.exp(-gone / window) + 1.0
    pods.faded_at[p, a] = at
    pods.recent[p, a] += 1


@part
def _retention(pods: Pods, rules: Rules, p: int, a: int, at: int) -> float:
    """How much an adapter is worth keeping; all alike under LRU, where the order of use decides."""
    if rules.eviction == 1:
        worth = pods.faded[p, a]
        return math.log(worth) + (pods.faded_at[p, a] - at) / rules.window if worth > 0 else -math.inf
    if rules.eviction == 2:
        age = max(at - pods.used_at[p, a], 1)
        return rules.frequency_weight * pods.recent[p, a] + rules.recency_weight * SECOND / age
    if rules.eviction == 3:
        return -float(pods.next_use[p, a])
    return 0.0


@part
def victim(pods: Pods, tier: Tier, rules: Rules, p: int, at: int) -> int:
    """The adapter that leaves the pod's tier next: neither pinned nor in flight; −1 where there is none."""
    chosen, least, oldest = -1, 0.0, 0
    for place in range(tier.room[p]):
        a = int(tier.adapter[p, place])
        if a < 0 or pods.pinned[p, a] or pods.in_flight[p, a] > 0:
            continue
        worth = _retention(pods, rules, p, a, at)
        if chosen < 0 or worth < least or (worth == least and pods.stamp[p, a] < oldest):
            chosen, least, oldest = a, worth, int(pods.stamp[p, a])
    return chosen
