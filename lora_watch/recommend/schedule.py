"""
Pins by the hour of the week: who is wanted on Monday morning may leave on Monday night.

The week has 42 blocks of four hours. Each slot that pins may take on a pod is a path over them: in each block an adapter or
nobody, chosen so that what the blocks gain, less a load for every change, is most (Viterbi); then the next slot beside it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lora_watch.errors import NotEnoughHistory
from lora_watch.model import DAY, HOUR, Window
from lora_watch.recommend.advice import Advice, Kind, Place, Setup
from lora_watch.recommend.candidates import candidates
from lora_watch.recommend.history import History
from lora_watch.recommend.judge import load_cost
from lora_watch.recommend.means import means
from lora_watch.recommend.trial import JUDGED, Counted, Trial
from lora_watch.replay.cluster import PinChange, replay
from lora_watch.replay.pin_gains import pin_gains_by_block
from lora_watch.replay.trace import Trace

BLOCK = 4 * HOUR
BLOCKS = 42
WEEK = 7 * DAY
MONDAY = 4 * DAY
"""1970 began on a Thursday; blocks are counted from Monday 00:00 UTC."""
LEAST = 7 * DAY
"""Before the judged window: every block is to be learned from once at least."""
LEARNED = 14 * DAY
"""So far back blocks are learned from."""
BEFORE = HOUR
"""Requests from so long before a block fill the slots in which it is learned."""
MOST_SLOTS = 3
"""Slots of a pod that paths are looked for in: each is a pass over what is learned from."""
MOST_STATES = 128
"""Adapters among which a path chooses."""
PREFIXES = (1.0, 0.5, 0.25)
"""Shares of the paths, those that gain most first, that are judged."""


class Path(NamedTuple):
    """One slot of a pod through the week: the adapter in each block (−1: nobody), and the loads' cost that it saves a week."""

    pod: int
    adapters: tuple[int, ...]
    gain: float


class _Learned(NamedTuple):
    """What a schedule was learned from, and its paths."""

    window: Window
    paths: list[Path]


def advise_schedule(trial: Trial, setup: Setup, *, since: int | None = None) -> Iterator[Advice]:
    """
    A schedule of one of the shares ``PREFIXES`` of its paths. Paths are learned before the judged week, not further back than
    ``since`` (µs UTC: a change point) and ``LEARNED``.

    The share is the one that does best in the week before the judged one, with paths learned before both, so that nothing that
    makes the promise was chosen by what it is judged by. Where there is too little for that the judged week decides by itself,
    and ``why`` says that the promise is the best of several. None where there is too little to learn from, or nothing gains.
    Candidates are those of pins.
    """
    learned = _learned(trial, since)
    if learned is None:
        return
    share = _chosen_before(trial, since)
    judged = [_judged(trial, _first(learned.paths, one)) for one in (PREFIXES if share is None else (share,))]
    told, chosen = max(judged, key=lambda one: _lower(trial, one[0]))
    can, how = means(Kind.PRELOAD, setup)
    names, pods = trial.history.names, trial.history.pods
    places = _places(chosen, names, pods)
    how_many = (
        f"how many is what was best in the same week, of {len(PREFIXES)} that were tried: the promise is a little high"
        if share is None
        else "how many is what was best in the week before the judged one"
    )
    yield trial.advice(
        Kind.PRELOAD,
        told,
        what=f"pin {len({place.adapter for place in places})} adapters by the hour of the week, in {len(chosen)} slots",
        why=f"who is asked for differs by hour and day; {how_many}",
        cost="a call at every change",
        risk="a week that is not like the last ones: holidays, launches",
        can=can,
        how=how,
        learned=learned.window,
        amount=len(chosen),
        adapters=sorted({place.adapter for place in places}),
        places=places,
    )


def _learned(trial: Trial, since: int | None) -> _Learned | None:
    """Paths from what lies before the judged window; None where there is too little of it, or none gains."""
    start, trace = trial.judged.start, trial.history.trace
    begin = max(trial.history.window.start, start - LEARNED, since or 0)
    whole_from = int(trace.at[0]) if len(trace) else start
    if start - max(begin, whole_from) < LEAST:
        return None
    past = trial.history.during(Window(begin, start))
    paths = best_paths(past, _routed(past, trial), candidates(past))
    return _Learned(past.window, paths) if paths else None


def _chosen_before(trial: Trial, since: int | None) -> float | None:
    """The share that does best in what lies before the judged window, with paths learned before that; None with too little."""
    if trial.judged.start - max(trial.history.window.start, since or 0) < JUDGED + LEAST:
        return None
    try:
        earlier = trial.before()
    except NotEnoughHistory:
        return None
    learned = _learned(earlier, since)
    if learned is None:
        return None
    return max(PREFIXES, key=lambda share: _lower(earlier, _judged(earlier, _first(learned.paths, share))[0]))


def _first(paths: Sequence[Path], share: float) -> Sequence[Path]:
    """So many of the paths, those that gain most; one at least."""
    return paths[: max(round(len(paths) * share), 1)]


def _lower(trial: Trial, told: Counted) -> float:
    """The lower bound of what is gone."""
    low, _ = trial.effect(told).sure
    return float("-inf") if low is None else low


def _routed(past: History, trial: Trial) -> NDArray[np.int32]:
    """The pod of each request: as recorded, or as the present router sends it."""
    if trial.present.router is None:
        return past.trace.pods_or_one()
    return replay(past.trace, past.fleet(), trial.present.router).pod


def best_paths(past: History, pod: NDArray[np.int32], allowed: NDArray[np.bool_]) -> list[Path]:
    """
    The paths that gain more than a load a week, those that gain most first: at most ``MOST_SLOTS`` a pod, never its last slot.
    """
    trace, cost = past.trace, load_cost(past)
    taken: list[list[list[int]]] = [[[] for _ in past.slots] for _ in range(BLOCKS)]  # adapters by block and pod
    for p, a in past.pinned:
        for held in taken:
            held[p].append(a)
    room = [slots - 1 - len(taken[0][p]) for p, slots in enumerate(past.slots)]
    found: list[Path] = []
    open_pods = {p for p, free in enumerate(room) if free > 0}
    for layer in range(min(MOST_SLOTS, max(room, default=0))):
        if not open_pods:
            break
        gains = _gains(past, trace, pod, cost, taken)
        for p in sorted(open_pods):
            reward = np.where(allowed, gains[:, p], -np.inf)
            for block in range(BLOCKS):
                reward[block, taken[block][p]] = -np.inf
            adapters, gain = path(reward, cost)
            worth = gain > max((float(cost[a]) for a in adapters if a >= 0), default=0.0)  # a pod starts anew now and then
            if not worth or layer + 1 >= room[p]:
                open_pods.discard(p)
            if worth:
                found.append(Path(p, adapters, gain))
                for block, a in enumerate(adapters):
                    if a >= 0:
                        taken[block][p].append(a)
    return sorted(found, key=lambda one: (-one.gain, one.pod))


def _gains(
    past: History, trace: Trace, pod: NDArray[np.int32], cost: NDArray[np.float64], taken: Sequence[Sequence[Sequence[int]]]
) -> NDArray[np.float64]:
    """[block, pod, adapter]: what a pin there would save in one such block, the mean over those that the past holds."""
    first = (past.window.start - MONDAY) // BLOCK
    last = (past.window.end - 1 - MONDAY) // BLOCK
    gains = np.zeros((BLOCKS, trace.pods, trace.adapters))
    for block in range(BLOCKS):
        begins = [MONDAY + at * BLOCK for at in range(first, last + 1) if at % BLOCKS == block]
        parts, edges, counted = [], [0], []
        for begin in begins:
            edge = np.searchsorted(trace.at, [begin - BEFORE, begin, begin + BLOCK])
            parts.append(np.arange(edge[0], edge[2]))
            counted.append(len(edges))
            edges += [edges[-1] + int(edge[1] - edge[0]), edges[-1] + int(edge[2] - edge[0])]
        chosen = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        if not len(chosen):
            continue
        own = Trace(trace.adapter[chosen], adapters=trace.adapters, pod=pod[chosen], pods=trace.pods)
        pins = [(p, a) for p, adapters in enumerate(taken[block]) for a in adapters]
        found = pin_gains_by_block(own, past.slots, pins, cost, edges)
        gains[block] = found[counted].sum(axis=0) / len(begins)
    return gains


def path(reward: NDArray[np.float64], cost: NDArray[np.float64]) -> tuple[tuple[int, ...], float]:
    """
    The adapter of each block that gains most, −1 for nobody, and what it gains: ``Σ reward − Σ cost`` of each that comes in.
    ``reward`` is [block, adapter], ``cost`` what a load of each costs.

    The week is a ring: for each adapter of the first block the best walk that comes back to it, and of these the best. Adapters
    that gain in no block stand in no best walk; of more than ``MOST_STATES`` that do, those count that gain most.

    >>> path(np.array([[5.0, 0.0], [5.0, 0.0], [-9.0, 4.0]]), np.array([1.0, 1.0]))
    ((0, 0, 1), 12.0)
    """
    worth = np.where(reward > 0, reward, 0.0).sum(axis=0)
    states = np.argsort(-worth, kind="stable")[:MOST_STATES]
    states = states[worth[states] > 0]
    blocks, nobody = len(reward), len(states)
    gains = np.concatenate([reward[:, states], np.zeros((blocks, 1))], axis=1)
    come = np.append(cost[states], 0.0)
    best = np.full((nobody + 1, nobody + 1), -np.inf)  # by the adapter of the first block, and the present one
    np.fill_diagonal(best, gains[0])
    stays = np.zeros((blocks, *best.shape), dtype=np.bool_)
    leaders = np.zeros((blocks, nobody + 1), dtype=np.int64)
    for at in range(1, blocks):
        leaders[at] = best.argmax(axis=1)
        switched = best.max(axis=1)[:, None] - come
        stays[at] = best >= switched
        best = np.where(stays[at], best, switched) + gains[at]
    back = best - np.where(np.eye(nobody + 1, dtype=np.bool_), 0.0, come[:, None])
    first, state = (int(one) for one in np.unravel_index(int(back.argmax()), back.shape))
    gain, walk = float(back[first, state]), [state]
    for at in reversed(range(1, blocks)):
        if not stays[at, first, state]:
            state = int(leaders[at, first])
        walk.append(state)
    return tuple(int(states[a]) if a < nobody else -1 for a in reversed(walk)), gain


def _judged(trial: Trial, paths: Sequence[Path]) -> tuple[Counted, Sequence[Path]]:
    changes = pin_changes(paths, trial.part.window)
    return trial.count(changes=changes), paths


def pin_changes(paths: Sequence[Path], window: Window) -> list[PinChange]:
    """The pins of a window that a schedule makes: who goes first, then who comes, at the beginning of each block."""
    first, last = (window.start - MONDAY) // BLOCK, (window.end - 1 - MONDAY) // BLOCK
    told: list[PinChange] = []
    held = [-1] * len(paths)
    for at in range(first, last + 1):
        moment = max(MONDAY + at * BLOCK, window.start)
        coming = [one.adapters[at % BLOCKS] for one in paths]
        moved = [(one.pod, old, new) for one, old, new in zip(paths, held, coming, strict=True) if old != new]
        told += [PinChange(moment, pod, old, False) for pod, old, _ in moved if old >= 0]
        told += [PinChange(moment, pod, new, True) for pod, _, new in moved if new >= 0]
        held = coming
    return told


def _places(paths: Sequence[Path], names: Sequence[str], pods: Sequence[str]) -> list[Place]:
    """A place for each adapter and pod, with the hours of the week in which it is pinned there."""
    hours: dict[tuple[int, int], list[int]] = {}
    each = BLOCK // HOUR
    for one in paths:
        for block, a in enumerate(one.adapters):
            if a >= 0:
                hours.setdefault((one.pod, a), []).extend(range(block * each, (block + 1) * each))
    return [Place(names[a], pods[p], tuple(sorted(when))) for (p, a), when in sorted(hours.items())]
