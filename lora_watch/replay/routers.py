"""Where a request goes: the article's score, llm-d's scorers, round robin, random; by pods as they were last scraped."""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lora_watch.replay.compiled import compiled, part, whole
from lora_watch.replay.state import (
    COUNTS,
    CPU_PLACE,
    GPU_FILLED,
    GPU_PLACE,
    IN_FLIGHT,
    NAMED,
    QUEUED,
    READY,
    RUNNING,
    SEATS,
    SERVING,
    SIZE,
    SLOTS,
    WAITING,
    Pods,
)


class Rule(IntEnum):
    """What decides. ``GIVEN`` keeps the pods of the trace."""

    GIVEN = 0
    ROUND_ROBIN = 1
    RANDOM = 2
    ARTICLE = 3  # five levels of affinity
    ACTIVITY = 4  # llm-d's released lora-affinity-scorer
    RESIDENCY = 5  # llm-d's proposed lora-load-state-scorer


@dataclass(frozen=True, slots=True)
class Router:
    """
    A rule and its constants: ``score = affinity_weight · affinity + queue_weight · queue + load_weight · (1 − running ÷ seats)``.

    ``affinity`` of a pod, first match, by ``levels``:

    * ARTICLE: in flight, in a slot, in the CPU cache, a slot is free, none of these (1, 0.8, 0.4, 0.3, 0);
    * ACTIVITY: in flight or queued; the pod's adapters in flight or queued, *counted twice*, are fewer than its slots; neither
      (1, 0.8, 0). vLLM lists the same adapters as running and as waiting, and the released scorer adds both lists: a pod
      looks full at half its slots;
    * RESIDENCY: in a slot, in the CPU cache, a slot is free, a slot is idle, every slot in flight (1, 0.7, 0.6, 0.3, 0); on the
      adapter's home pod (the highest hash of adapter, pod and ``seed``) ``placement_bonus`` more unless it is in a slot. For the
      base model the share of slots that serve no adapter. Idle pinned slots count as idle.

    ``queue`` is ``1 − waiting ÷ max_queue`` (ARTICLE, cut at 0) or llm-d's ``(most − waiting) ÷ (most − least)`` over the pods, 1
    where all are alike. The article's filter drops pods with ``max_queue`` waiting, unless all have. A replay knows no KV
    cache: the article's 0.20 · kv_cache_affinity and llm-d's prefix scorer are 0 on every pod, and running ÷ seats stands for
    GPU and KV use. The best score wins; equal ones are drawn (llm-d's picker shuffles too) from ``seed``.

    ``scrape`` is the time between two looks at the pods in µs, all at once, at multiples of it; 0 sees them as they are. An
    adapter shows only once its load is complete. With ``coalesce`` the router remembers where it sent a request for an
    adapter that showed in no slot anywhere, and sends others after it until the adapter shows there.

    In a pool of bytes a slot is free, or idle, where the bytes that are free, or not in flight, suffice for the adapter (for the
    base model: for the smallest one), and counts of adapters and shares of slots are those of bytes.
    """

    rule: Rule = Rule.ARTICLE
    affinity_weight: float = 0.5
    queue_weight: float = 0.15
    load_weight: float = 0.15
    levels: tuple[float, float, float, float, float] = (1.0, 0.8, 0.4, 0.3, 0.0)
    max_queue: int = 8
    placement_bonus: float = 0.0
    scrape: int = 0
    coalesce: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        if self.max_queue < 1 or self.scrape < 0 or self.seed < 0:
            raise ValueError(f"a router needs max_queue ≥ 1, scrape ≥ 0 and seed ≥ 0: {self}")


ARTICLE = Router()
"""The article's EPP: 0.50 affinity, 0.15 queue, 0.15 GPU; its 0.20 of KV affinity has no data here."""
LLM_D = Router(Rule.ACTIVITY, 4.0, 2.0, 2.0, (1.0, 0.8, 0.0, 0.0, 0.0))
"""llm-d's released scorer at the weight KServe gives it, beside the default queue and KV-use scorers."""
LLM_D_RESIDENCY = Router(Rule.RESIDENCY, 4.0, 2.0, 2.0, (1.0, 0.7, 0.6, 0.3, 0.0), placement_bonus=0.03)
"""The proposal, at the same weights. Its headroom bonus and its companion filter are left out."""
ROUND_ROBIN = Router(Rule.ROUND_ROBIN)
RANDOM = Router(Rule.RANDOM)


_ROUND_ROBIN, _RANDOM, _ARTICLE, _ACTIVITY = map(int, (Rule.ROUND_ROBIN, Rule.RANDOM, Rule.ARTICLE, Rule.ACTIVITY))


class View(NamedTuple):
    """What a router sees of the pods: their own tables, or copies as old as the last scrape."""

    cell: NDArray[np.int64]
    pod: NDArray[np.int64]
    at: NDArray[np.int64]  # [1]


class Desk(NamedTuple):
    """A router at work: its constants, and what it remembers."""

    rule: int
    weights: NDArray[np.float64]  # affinity, queue, load, placement bonus
    levels: NDArray[np.float64]
    max_queue: int
    coalesce: bool
    home: NDArray[np.int32]  # [adapter]
    sent: NDArray[np.int32]  # [adapter]: the pod that is loading it, or −1
    state: NDArray[np.int64]  # [2]: the draw's state, the turn


def view(pods: Pods, *, live: bool) -> View:
    """The pods' own tables, or copies; not looked at yet."""
    at = np.full(1, -1 << 62, dtype=np.int64)
    return View(pods.cell, pods.pod, at) if live else View(pods.cell.copy(), pods.pod.copy(), at)


def desk(router: Router, pods: int, adapters: int) -> Desk:
    """A router that has seen nothing yet."""
    with np.errstate(over="ignore"):
        mixed = np.arange(1, adapters + 1, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
        mixed = mixed ^ (np.arange(1, pods + 1, dtype=np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F))
        mixed = mixed ^ (np.uint64(router.seed - 1 & 0xFFFFFFFFFFFFFFFF) * np.uint64(0xD6E8FEB86659FD93))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed = mixed ^ (mixed >> np.uint64(31))
    weights = (router.affinity_weight, router.queue_weight, router.load_weight, router.placement_bonus)
    return Desk(
        rule=int(router.rule),
        weights=np.array(weights, dtype=np.float64),
        levels=np.array(router.levels, dtype=np.float64),
        max_queue=router.max_queue,
        coalesce=router.coalesce,
        home=mixed.argmax(axis=1).astype(np.int32),
        sent=np.full(adapters, -1, dtype=np.int32),
        state=np.array([router.seed % 2147483646 + 1, 0], dtype=np.int64),
    )


@part
def look(pods: Pods, seen: View, t: int) -> None:
    """Scrape every pod at t."""
    for p in range(len(pods.pod)):
        for column in range(COUNTS):
            seen.pod[p, column] = pods.pod[p, column]
        for a in range(pods.cell.shape[1]):
            for column in range(SIZE):  # the last one, which never changes
                seen.cell[p, a, column] = pods.cell[p, a, column]
    seen.at[0] = t


@part
def draw(state: NDArray[np.int64], choices: int) -> int:
    """One of ``choices``, by the multiplicative generator 48271 mod 2³¹ − 1 (Park and Miller)."""
    state[0] = state[0] * 48271 % 2147483647
    return int(state[0] * choices // 2147483647)


@part
def _affinity(pods: Pods, seen: View, router: Desk, p: int, a: int) -> float:
    """The pod's level of affinity; see ``Router``."""
    levels, room, size = router.levels, pods.pod[p, SLOTS], pods.cell[p, a, SIZE]
    base = pods.cell.shape[1] - 1
    shows = a != base and seen.cell[p, a, READY] <= seen.at[0] and seen.cell[p, a, GPU_PLACE] >= 0
    if router.rule == _ACTIVITY:
        if seen.cell[p, a, QUEUED] > 0 or (shows and seen.cell[p, a, IN_FLIGHT] > 0):
            return float(levels[0])
        return float(levels[1] if 2 * seen.pod[p, NAMED] < room else levels[2])
    if router.rule == _ARTICLE:
        if shows:
            return float(levels[0] if seen.cell[p, a, IN_FLIGHT] > 0 else levels[1])
        if a != base and seen.cell[p, a, CPU_PLACE] >= 0:
            return float(levels[2])
        return float(levels[3] if seen.pod[p, GPU_FILLED] + size <= room else levels[4])
    if a == base:
        return float(1.0 - seen.pod[p, SERVING] / room)
    if shows:
        return float(levels[0])
    bonus = router.weights[3] if router.home[a] == p else 0.0
    if seen.cell[p, a, CPU_PLACE] >= 0:
        return float(levels[1] + bonus)
    if seen.pod[p, GPU_FILLED] + size <= room:
        return float(levels[2] + bonus)
    return float((levels[3] if seen.pod[p, SERVING] + size <= room else levels[4]) + bonus)


@part
def _score(pods: Pods, seen: View, router: Desk, p: int, a: int, least: int, most: int) -> float:
    """One pod's score; ``least`` and ``most`` are what its queue is measured between."""
    queue = max(most - int(seen.pod[p, WAITING]), 0) / (most - least) if most > least else 1.0
    load = 1.0 - seen.pod[p, RUNNING] / pods.pod[p, SEATS]
    return float(router.weights[0] * _affinity(pods, seen, router, p, a) + router.weights[1] * queue + router.weights[2] * load)


@part
def _scored(pods: Pods, seen: View, router: Desk, a: int) -> int:
    """The pod with the best score."""
    least, most = int(seen.pod[0, WAITING]), int(seen.pod[0, WAITING])
    for p in range(1, len(seen.pod)):
        least, most = min(least, int(seen.pod[p, WAITING])), max(most, int(seen.pod[p, WAITING]))
    every = least >= router.max_queue
    if router.rule == _ARTICLE:
        least, most = 0, router.max_queue
    chosen, best, alike = 0, -math.inf, 0
    for p in range(len(seen.pod)):
        waiting = int(seen.pod[p, WAITING])
        if router.rule == _ARTICLE and not every and waiting >= router.max_queue:
            continue
        score = _score(pods, seen, router, p, a, least, most)
        if score > best:
            chosen, best, alike = p, score, 1
        elif score == best:
            alike += 1
            if draw(router.state, alike) == 0:
                chosen = p
    return chosen


@compiled
def _every(pods: Pods, seen: View, router: Desk, a: int, least: int, most: int, told: NDArray[np.float64]) -> None:
    """The scores of all pods, into ``told``."""
    for p in range(len(told)):
        told[p] = _score(pods, seen, router, p, a, least, most)


def scores(pods: Pods, router: Router, adapter: int) -> NDArray[np.float64]:
    """
    The score of each pod, as it stands, for a request for ``adapter`` (a column of the pods; the last is the base model).

    What the article's filter drops is NaN. ValueError for a rule that scores nothing.
    """
    if router.rule not in (Rule.ARTICLE, Rule.ACTIVITY, Rule.RESIDENCY):
        raise ValueError(f"{router.rule.name} gives no scores")
    seen = view(pods, live=True)
    seen.at[0] = 1 << 62
    waiting = pods.pod[:, WAITING]
    ends = (0, router.max_queue) if router.rule == Rule.ARTICLE else (int(waiting.min()), int(waiting.max()))
    told: NDArray[np.float64] = np.zeros(len(waiting))
    _every(pods, seen, desk(router, *pods.cell.shape[:2]), adapter, *ends, told)
    if router.rule == Rule.ARTICLE and (waiting < router.max_queue).any():
        told[waiting >= router.max_queue] = np.nan
    return told


@part
def route(pods: Pods, seen: View, router: Desk, a: int) -> int:
    """The pod for a request; ``a`` is the adapter, or the base model's column."""
    count = len(seen.pod)
    if router.rule == _ROUND_ROBIN:
        router.state[1] += 1
        return int((router.state[1] - 1) % count)
    if router.rule == _RANDOM:
        return draw(router.state, count)
    if not router.coalesce or a == pods.cell.shape[1] - 1:
        return _scored(pods, seen, router, a)
    p = whole(router.sent[a])
    if p >= 0 and not (seen.cell[p, a, GPU_PLACE] >= 0 and seen.cell[p, a, READY] <= seen.at[0]):
        return p
    chosen = _scored(pods, seen, router, a)
    shows = seen.cell[chosen, a, GPU_PLACE] >= 0 and seen.cell[chosen, a, READY] <= seen.at[0]
    router.sent[a] = -1 if shows else chosen
    return chosen
