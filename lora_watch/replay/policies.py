"""Which adapter leaves a full tier: the article's and the engines' rules, and the one that knows the future."""

import math
from dataclasses import dataclass
from enum import IntEnum

from lora_watch.model import MINUTE, SECOND
from lora_watch.replay.compiled import part
from lora_watch.replay.state import FADED_AT, IN_FLIGHT, NEXT_USE, PINNED, RECENT, SIZE, STAMP, USED_AT, Pods, Rules


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
LFU, TIME_WEIGHTED, MIN = int(Eviction.LFU), int(Eviction.TIME_WEIGHTED), int(Eviction.MIN)


@part
def count_use(pods: Pods, p: int, a: int, at: int, window: int) -> None:
    """One more use for both frequency rules: ``faded`` is worth its value at ``faded_at``."""
    if pods.faded[p, a] > 0:
        pods.faded[p, a] *= math.exp((pods.cell[p, a, FADED_AT] - at) / window)
    pods.faded[p, a] += 1.0
    pods.cell[p, a, FADED_AT] = at
    pods.cell[p, a, RECENT] += 1


@part
def _retention(pods: Pods, rules: Rules, p: int, a: int, at: int) -> float:
    """How much an adapter is worth keeping; all alike under LRU, where the order of use decides."""
    if rules.eviction == LFU:
        worth = pods.faded[p, a]
        return math.log(worth) - (at - pods.cell[p, a, FADED_AT]) / rules.window if worth > 0 else -math.inf
    if rules.eviction == TIME_WEIGHTED:
        age = max(at - pods.cell[p, a, USED_AT], 1)
        return float(rules.frequency_weight * pods.cell[p, a, RECENT] + rules.recency_weight * SECOND / age)
    if rules.eviction == MIN:
        return -float(pods.cell[p, a, NEXT_USE])
    return 0.0


@part
def victim(pods: Pods, tier: int, rules: Rules, p: int, at: int) -> int:
    """The adapter that leaves the pod's tier next: neither pinned nor in flight; −1 where there is none."""
    chosen, least, oldest = -1, 0.0, 0
    for place in range(min(pods.pod[p, 2 + tier], pods.tier.shape[2])):
        a = int(pods.tier[tier, p, place])
        if a < 0 or pods.cell[p, a, PINNED] > 0 or pods.cell[p, a, IN_FLIGHT] > 0:
            continue
        worth = _retention(pods, rules, p, a, at)
        if chosen < 0 or worth < least or (worth == least and pods.cell[p, a, STAMP] < oldest):
            chosen, least, oldest = a, worth, int(pods.cell[p, a, STAMP])
    return chosen


@part
def spare(pods: Pods, tier: int, p: int) -> int:
    """What of the pod's tier is free, or held by adapters that may leave: neither pinned nor in flight."""
    free = int(pods.pod[p, 2 + tier])
    for place in range(min(pods.pod[p, 2 + tier], pods.tier.shape[2])):
        a = int(pods.tier[tier, p, place])
        if a >= 0 and (pods.cell[p, a, PINNED] > 0 or pods.cell[p, a, IN_FLIGHT] > 0):
            free -= pods.cell[p, a, SIZE]
    return free
