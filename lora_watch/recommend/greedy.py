"""The order in which pins are worth their slots: the one that saves most first, then the one that saves most beside it, …"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import DAY
from lora_watch.recommend.history import History
from lora_watch.recommend.judge import load_cost
from lora_watch.replay.pin_gains import pin_gains_by_block
from lora_watch.replay.trace import Trace

LEARNED = 10 * DAY
"""How far back gains are learned from: what is older hardly counts, since it fades."""
HALF_LIFE = 3 * DAY
"""A day's gains count half as much as those of so much later: popularity drifts."""


def _gains(
    history: History, trace: Trace, slots: tuple[int, ...], half_life: int | None
) -> Callable[[list[tuple[int, int]]], NDArray[np.float64]]:
    """Faded gains [pod, adapter] beside the pins so far, less the pin's own load, once a week."""
    end = history.window.end
    first = max(end - LEARNED, history.window.start)
    starts = np.arange(end, first, -DAY)[::-1] - DAY
    weight = np.ones(len(starts)) if half_life is None else 0.5 ** ((end - starts - DAY) / half_life)
    edges = np.searchsorted(trace.at, [*starts, end]).tolist()
    cost = load_cost(history)
    own = cost * weight.sum() * DAY / (7 * DAY)

    def gains(pins: list[tuple[int, int]]) -> NDArray[np.float64]:
        return np.asarray(np.tensordot(weight, pin_gains_by_block(trace, slots, pins, cost, edges), axes=1) - own)

    return gains


def pooled_order(history: History, allowed: NDArray[np.bool_], half_life: int | None = HALF_LIFE) -> list[int]:
    """
    Adapters by greedy gains on one pool of all slots: what pods behind a router that knows residency come to, within a point.

    Each next one is the candidate with the largest gain beside those before it, up to ``slots − 1`` per pod: also where that gain
    is negative, since two pins can be worth together what neither is alone. How many of them are pinned is decided elsewhere, by
    replay. Not optimal (gains are not submodular), but near: benchmarks/README.md.
    """
    pool = Trace(history.trace.adapter, adapters=history.trace.adapters, at=history.trace.at)
    gains = _gains(history, pool, (sum(history.slots),), half_life)
    order: list[int] = []
    while len(order) < sum(slots - 1 for slots in history.slots):
        left = allowed.copy()
        left[order] = False
        worth = np.where(left, gains([(0, a) for a in order])[0], -np.inf)
        best = int(worth.argmax()) if len(worth) else -1
        if best < 0 or worth[best] == -np.inf:
            break
        order.append(best)
    return order


def recorded_order(history: History, allowed: NDArray[np.bool_], half_life: int | None = HALF_LIFE) -> list[tuple[int, int]]:
    """
    (pod, adapter) by greedy gains on the recorded pods: exact where a pin changes nobody's pod.

    As :func:`pooled_order` for each pod by itself. Pods do not know of each other, so that every pass finds the next pin of each;
    they are put in order by what they gain. An adapter can be there on several pods: every replica is worth its slot by itself.
    """
    gains = _gains(history, history.trace, history.slots, half_life)
    chains: list[list[tuple[float, int]]] = [[] for _ in history.slots]
    pins: list[tuple[int, int]] = []
    for _ in range(max(history.slots) - 1):
        worth = np.where(allowed, gains(pins), -np.inf)
        for p, a in pins:
            worth[p, a] = -np.inf
        found = [(p, int(row.argmax())) for p, row in enumerate(worth) if row.size and row.max() > -np.inf]
        if not found:
            break
        for p, a in found:
            chains[p].append((float(worth[p, a]), a))
        pins.extend(found)
    order: list[tuple[int, int]] = []
    taken = [0] * len(chains)
    while True:
        heads = [(chain[taken[p]][0], -p) for p, chain in enumerate(chains) if taken[p] < len(chain)]
        if not heads:
            return order
        p = -max(heads)[1]
        order.append((p, chains[p][taken[p]][1]))
        taken[p] += 1
