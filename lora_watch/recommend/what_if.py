"""
What a plan would have made of the pool's own last days: its requests replayed as they came, and once more with everything in the
plan changed at once, both in the same way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.residency import kaplan_meier
from lora_watch.derive.saturation import MOST_SHARE, Bottleneck
from lora_watch.errors import NotEnoughHistory
from lora_watch.model import MINUTE, SECOND, Window
from lora_watch.recommend.advice import Effect, Place
from lora_watch.recommend.history import SEATS, History
from lora_watch.recommend.judge import RESAMPLES, WARM
from lora_watch.recommend.levers import in_steps
from lora_watch.recommend.present import ROUTERS, Present
from lora_watch.recommend.sizing import zipf_shares
from lora_watch.recommend.trial import (
    FEWEST,
    Counted,
    Told,
    Trial,
    block_of,
    counted,
    judged_window,
)
from lora_watch.replay.cluster import NEVER, Outcome, replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.routers import Router
from lora_watch.replay.trace import Trace

BIN = 10 * MINUTE
"""What rho is taken over, as the early warning takes it."""
BUSIEST = 12
"""Bins with the most requests in flight, and as many with the most time in loads, that the peak is looked for in."""
ROUTING: Mapping[str, str] = {
    "affinity": "the article's affinity router",
    "llm-d": "llm-d's lora-affinity-scorer",
    "residency": "llm-d's residency scorer",
    "round-robin": "round robin",
    "random": "random",
}
"""Routers by the names that people type, to those of ``ROUTERS``."""
SEED = 1
DRAWS = 5
DRAWN_UP_TO = 150_000
"""Requests up to which so many replays are made: of more, chance says less."""
MOST_ADDED = 20_000_000
"""Requests that are made up, at most: they take a gigabyte and more."""


class Number(NamedTuple):
    """A new number of slots or pods: ``value`` itself, or that many ``more`` (fewer where it is below 0) than there are."""

    value: int
    more: bool = False

    def of(self, present: int) -> int:
        """What becomes of ``present``."""
        return present + self.value if self.more else self.value


@dataclass(frozen=True, slots=True)
class Added:
    """
    Adapters that are not there yet.

    With ``split_of`` (names, or how many of the most asked for) they are variants of these, in turn: each request for one of them
    goes by a coin with chance ``share`` to one of its variants. Without, they bring ``rate`` requests a second of their own, all
    together, spread over them by Zipf's law and over time as the pool's other requests are. ``load_seconds`` is what one of their
    loads takes; None: what the others' take.
    """

    count: int
    split_of: tuple[str, ...] | int | None = None
    share: float = 0.5
    rate: float | None = None
    zipf: float = 1.0
    load_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A plan: ``slots`` of every pod, ``pods``, further ``pins``, a ``router`` (a key of ``ROUTING``), what is ``added``."""

    slots: Number | None = None
    pods: Number | None = None
    pins: tuple[str, ...] = ()
    router: str | None = None
    added: Added | None = None


@dataclass(frozen=True, slots=True)
class Peak:
    """
    The ten minutes in which the pool is nearest to its end, from ``at`` (µs UTC): ``rho`` as in
    :func:`lora_watch.derive.saturation.saturation`, the greatest of its parts; None where it takes what nobody measured.
    """

    at: int
    rho: float
    bottleneck: Bottleneck
    loads: float | None
    slots: float
    seats: float
    fullest_pod: float


@dataclass(frozen=True, slots=True)
class State:
    """
    What a replay comes to in the judged window.

    ``miss_ratio``: of the ``requests`` for an adapter found it in no slot, with a 95 % interval over blocks of time.
    ``swaps_per_second`` of the whole pool. ``load_share`` of pods' time in loads, on average and in the worst ten minutes (None:
    nobody measured loads). ``wait_p95_seconds`` for a slot and the own load, ``slot_wait_p95_seconds`` for the slot alone.
    Residency of the window's stays, open ones censored (None: the curve does not come down so far).
    """

    requests: int
    adapters: int
    pods: int
    slots: int
    miss_ratio: float
    miss_low: float
    miss_high: float
    loads: int
    swaps: int
    swaps_per_second: float
    load_share: float | None
    load_share_worst: float | None
    wait_p95_seconds: float | None
    slot_wait_p95_seconds: float
    residency_p50_seconds: float | None
    residency_p95_seconds: float | None
    peak: Peak | None


@dataclass(frozen=True, slots=True)
class Foreseen:
    """
    ``now`` and ``then`` side by side, and the ``effect`` with its interval. ``pins`` are the plan's that found room, each with
    its pod; ``moved`` is the share of requests that added adapters carry. ``method`` says what was replayed.
    """

    plan: WhatIf
    now: State
    then: State
    effect: Effect
    judged: Window
    method: str
    router: str | None
    pins: tuple[Place, ...]
    moved: float
    provenance: str | None
    gaps: tuple[str, ...]


def foresee(
    history: History, present: Present, plan: WhatIf, *, cpu_capacity: int | None = None, gpus_per_pod: int = 1
) -> Foreseen:
    """
    The replay of a plan over the end of a history (:func:`lora_watch.recommend.trial.judged_window`), beside one of the present.

    With the router in the loop that stands for the present one, or that the plan names; where there is neither, on the recorded
    pods. A load takes the mean of those measured (:func:`timed`), and requests hold their slot as long as they were recorded to:
    what loads do to the length of other requests is in ``Peak`` only. ``cpu_capacity`` as for :func:`timed`.

    Chance has a hand in it: which of equal pods a router takes, where an added adapter has its home, which requests it gets. Up
    to ``DRAWN_UP_TO`` requests ``DRAWS`` replays are made, of which the one with the middle miss ratio stands for them;
    intervals of miss ratios hold them all.

    ValueError says why a plan can't be replayed; NotEnoughHistory below ``FEWEST`` requests.
    """
    judged = judged_window(history)
    part = history.during(Window(max(judged.start - WARM, history.window.start), judged.end))
    requests = int((part.trace.adapter[part.trace.at >= judged.start] >= 0).sum())
    if requests < FEWEST:
        raise NotEnoughHistory(
            f"{requests} requests for adapters are held of the judged window: below {FEWEST} any change is chance"
        )
    name = ROUTING[plan.router] if plan.router is not None else present.name
    routers = (present.router, None if name is None else ROUTERS[name])
    draws = DRAWS if len(part.trace) <= DRAWN_UP_TO and (plan.added is not None or any(routers)) else 1
    plans = [_changed(part, plan, judged, draw, routed=routers[1] is not None) for draw in range(draws)]
    steps = _in_steps(part, plans[0].history)
    before, after = (
        [_drawn(one, cpu_capacity, router, judged, steps=steps, draw=draw) for draw, one in enumerate(side)]
        for side, router in zip(([_Changed(part, (), 0.0)] * draws, plans), routers, strict=True)
    )
    base, then = _middle(before), _middle(after)
    trial, other = (_trial(one.of.history, judged, present, requests, gpus_per_pod) for one in (base, then))
    counts = [_counted(one, at) for one, at in ((base, trial), (then, other))]
    trial = replace(trial, base=counts[0])
    shares = _load_bins(part, base.told, judged)
    how = "on the recorded pods" if name is None else f"with {name}"
    against = "" if name == present.name else f", against {present.how.removeprefix('with ')}"
    return Foreseen(
        plan,
        _state(base, counts[0], trial, shares, [one.miss_ratio for one in before]),
        _state(then, counts[1], other, shares, [one.miss_ratio for one in after]),
        trial.effect(counts[1]),
        judged,
        f"{'replay in engine steps' if steps else 'replay'} {how}{against}",
        name,
        tuple(Place(then.of.history.names[adapter], then.of.history.pods[pod]) for pod, adapter in then.of.pins),
        then.of.moved,
        history.provenance,
        history.gaps,
    )


@dataclass(frozen=True, slots=True)
class _Changed:
    """A history with the plan in it, the pins that found room, and the share of requests that added adapters carry."""

    history: History
    pins: tuple[tuple[int, int], ...]
    moved: float


@dataclass(frozen=True, slots=True)
class _Drawn:
    """One replay, and its miss ratio in the judged window."""

    of: _Changed
    told: Outcome
    miss_ratio: float


def _changed(part: History, plan: WhatIf, judged: Window, draw: int, *, routed: bool) -> _Changed:
    added, moved = _with_added(part, plan.added, judged, draw)
    resized = _resized(added, plan, routed=routed)
    pins = _pins(resized, part, plan.pins)
    return _Changed(replace(resized, pinned=(*resized.pinned, *pins)), pins, moved)


def _drawn(one: _Changed, cpu_capacity: int | None, router: Router | None, judged: Window, *, steps: bool, draw: int) -> _Drawn:
    part, trace = one.history, one.history.trace
    hashes: list[int] | None = None
    if steps:
        hashes = np.random.default_rng(SEED + draw).integers(-(1 << 62), 1 << 62, trace.adapters).tolist()
    if router is not None:
        trace = Trace(trace.adapter, adapters=trace.adapters, pods=trace.pods, at=trace.at, hold=trace.hold)
        router = replace(router, seed=router.seed + draw)
    told = replay(trace, replace(timed(part, cpu_capacity), name_hashes=hashes), router)
    inside = (trace.at >= judged.start) & (trace.adapter >= 0)
    return _Drawn(one, told, float((told.lookup[inside] > 0).mean()) if inside.any() else 0.0)


def _middle(drawn: Sequence[_Drawn]) -> _Drawn:
    return sorted(drawn, key=lambda one: one.miss_ratio)[len(drawn) // 2]


def _counted(one: _Drawn, trial: Trial) -> Counted:
    told = one.told
    return counted(trial, Told(told.lookup, told.victim, told.start, told.reloads), one.of.history.trace)


def _with_added(part: History, added: Added | None, judged: Window, draw: int) -> tuple[History, float]:
    """The history with the added adapters' requests, and what share of the judged requests they carry."""
    if added is None:
        return part, 0.0
    if added.count < 1:
        raise ValueError("adapters that are added are one or more")
    random = np.random.default_rng(SEED + draw)
    split = added.split_of is not None
    trace = _split(part, added, judged, random) if split else _joined(part.trace, added, part.window, random)
    known = part.load_seconds[np.isfinite(part.load_seconds)]
    mean = float(known.mean()) if len(known) else float("nan")
    own = mean if added.load_seconds is None else added.load_seconds
    seconds = part.load_seconds if len(known) or added.load_seconds is None else np.full(len(part.names), added.load_seconds)
    new = added.count
    changed = replace(
        part,
        trace=trace,
        names=(*part.names, *(f"added {number + 1}" for number in range(new))),
        load_seconds=np.append(seconds, np.full(new, own)),
        bytes=np.append(part.bytes, np.full(new, -1)),
        first_seen=np.append(part.first_seen, np.full(new, judged.start)),
        experiment=np.append(part.experiment, np.ones(new, dtype=np.bool_)),
    )
    inside = trace.adapter[trace.at >= judged.start]
    asked = int((inside >= 0).sum())
    return changed, float((inside >= len(part.names)).sum()) / asked if asked else 0.0


def _split(part: History, added: Added, judged: Window, random: np.random.Generator) -> Trace:
    """Requests of which some go to variants. ValueError where a name is not asked for, or the share is none."""
    if not 0 <= added.share <= 1:
        raise ValueError(f"a share is between 0 and 1, not {added.share:g}")
    trace = part.trace
    if isinstance(added.split_of, int):
        if added.split_of < 1:
            raise ValueError("the most asked for are one or more")
        inside = trace.adapter[(trace.at >= judged.start) & (trace.adapter >= 0)]
        asked = np.bincount(inside, minlength=trace.adapters)
        parents = [one for one in np.argsort(-asked, kind="stable").tolist() if asked[one] > 0][: added.split_of]
    else:
        parents = [_code(part, name) for name in added.split_of or ()]
    codes = random.permutation(added.count)  # a router may go by them
    variants = np.zeros(trace.adapters + 1, dtype=np.int64)  # the last entry is the base model's
    place = np.zeros(trace.adapters + 1, dtype=np.int64)
    for at, parent in enumerate(parents):
        variants[parent] = len(range(at, added.count, len(parents)))
        place[parent] = at
    moved = (variants[trace.adapter] > 0) & (random.random(len(trace)) < added.share)
    which = (random.random(len(trace)) * variants[trace.adapter]).astype(np.int64)
    heir = trace.adapters + codes[np.where(moved, place[trace.adapter] + which * len(parents), 0)]
    return Trace(
        np.where(moved, heir, trace.adapter),
        adapters=trace.adapters + added.count,
        pod=trace.pods_or_one(),
        pods=trace.pods,
        at=trace.at,
        hold=trace.hold,
    )


def _joined(trace: Trace, added: Added, window: Window, random: np.random.Generator) -> Trace:
    """Requests with those of the added adapters among them: at times, with lengths and on pods like those of the others."""
    if added.rate is None or not added.rate > 0:
        raise ValueError("adapters with traffic of their own need a rate above 0, or what they are split of")
    asked = np.flatnonzero(trace.adapter >= 0)
    seconds = (window.end - max(window.start, int(trace.at[0]))) / SECOND
    if added.rate * seconds > MOST_ADDED:
        raise ValueError(
            f"{added.rate:.3g} requests a second are more than {MOST_ADDED:,} in the {seconds / 86_400:.2g} days of the "
            "replay: choose a lower rate, or a shorter --last"
        )
    count = int(random.poisson(added.rate * seconds))
    like = asked[random.integers(0, len(asked), count)]
    following = np.append(trace.at[1:], window.end)[like]
    at = trace.at[like] + (random.random(count) * np.maximum(following - trace.at[like], 1)).astype(np.int64)
    codes = trace.adapters + random.choice(added.count, count, p=zipf_shares(added.count, added.zipf))
    times = np.concatenate([trace.at, at])
    order = np.argsort(times, kind="stable")
    return Trace(
        np.concatenate([trace.adapter, codes.astype(np.int32)])[order],
        adapters=trace.adapters + added.count,
        pod=np.concatenate([trace.pods_or_one(), trace.pods_or_one()[like]])[order],
        pods=trace.pods,
        at=times[order],
        hold=np.concatenate([trace.hold, trace.hold[like]])[order],
    )


def _resized(part: History, plan: WhatIf, *, routed: bool) -> History:
    """The history on the plan's pods. ValueError where there can't be so many, or so few."""
    pods = part.trace.pods if plan.pods is None else plan.pods.of(part.trace.pods)
    if pods < 1:
        raise ValueError(f"a pool has one pod or more, not {pods}")
    if pods != part.trace.pods and not routed:
        raise ValueError("where requests go with other pods nobody knows: no router stands for the present one; name --routing")
    kept = [*part.slots[:pods], *[min(part.slots)] * (pods - len(part.slots))]
    slots = tuple(kept if plan.slots is None else (plan.slots.of(one) for one in kept))
    pinned = tuple(pin for pin in part.pinned if pin[0] < pods)
    for pod, count in enumerate(slots):
        if count < 1 + sum(pin[0] == pod for pin in pinned):
            raise ValueError(f"a pod needs a slot that nothing is pinned to: {count} slots are too few")
    trace = part.trace
    if pods != trace.pods:
        trace = Trace(trace.adapter, adapters=trace.adapters, pods=pods, at=trace.at, hold=trace.hold)
    names = (*part.pods[:pods], *(f"new pod {number + 1}" for number in range(pods - len(part.pods))))
    return replace(part, trace=trace, pods=names, slots=slots, pinned=pinned)


def _pins(part: History, recorded: History, names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Each on the pod that was asked for it most and has room; those that find none are left out."""
    room = [count - 1 - sum(pin[0] == pod for pin in part.pinned) for pod, count in enumerate(part.slots)]
    trace, pins = recorded.trace, []
    for name in dict.fromkeys(names):
        code = _code(recorded, name)
        asked = np.bincount(trace.pods_or_one()[trace.adapter == code], minlength=len(room))[: len(room)]
        for pod in np.argsort(-asked, kind="stable").tolist():
            if room[pod] > 0 and (pod, code) not in part.pinned:
                room[pod] -= 1
                pins.append((pod, code))
                break
    return tuple(pins)


def _code(part: History, name: str) -> int:
    try:
        return part.names.index(name)
    except ValueError:
        raise ValueError(f"no request of the window asks for {name[:60]!r}") from None


def _in_steps(part: History, changed: History) -> bool:
    """Whether both replays are little enough to work in engine steps."""
    return all(in_steps(len(one.trace), one.trace.adapters, max(one.slots)) for one in (part, changed))


def timed(part: History, cpu_capacity: int | None = None) -> Fleet:
    """
    The pods with loads that take as long as they do on average: requests for the same adapter wait for one load together.
    ``cpu_capacity`` is the host cache of a pod (None: no more than its slots), which routers that look at residency look at too.
    """
    known = part.load_seconds[np.isfinite(part.load_seconds)]
    load = round(float(known.mean()) * SECOND) if len(known) else 0
    cpu = [max(one, cpu_capacity or 0) for one in part.slots]
    return Fleet(part.slots, cpu, seats=SEATS, pins=part.pinned, warm_load=load, cold_load=load)


def _trial(part: History, judged: Window, present: Present, requests: int, gpus: int) -> Trial:
    whole, real = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)
    return Trial(part, part, judged, present, Counted(whole, whole, real, real, 0.0, 0.0), block_of(judged), requests, gpus)


def _state(drawn: _Drawn, count: Counted, trial: Trial, before: NDArray[np.float64] | None, ratios: Sequence[float]) -> State:
    part, told, judged = drawn.of.history, drawn.told, trial.judged
    trace = part.trace
    first = int(np.searchsorted(trace.at, judged.start))
    asked = trace.adapter[first:] >= 0
    missed = told.lookup[first:] > 0
    block = (trace.at[first:] - judged.start) // trial.block
    low, high = _interval(np.bincount(block[asked]), np.bincount(block[missed], minlength=int(block[asked].max()) + 1))
    seconds = (judged.end - judged.start) / SECOND
    bins = _load_bins(part, told, judged)
    p50, p95 = _residency(told, judged)
    taken = float(count.load_seconds.sum())
    return State(
        int(asked.sum()),
        len(np.unique(trace.adapter[first:][asked])),
        trace.pods,
        sum(part.slots),
        float(missed.sum()) / int(asked.sum()),
        min(low, *ratios),
        max(high, *ratios),
        int(count.loads.sum()),
        int(count.swaps.sum()),
        float(count.swaps.sum()) / seconds,
        taken / (trace.pods * seconds) if np.isfinite(taken) else None,
        None if bins is None else float(bins.max()),
        count.p95_seconds if np.isfinite(count.p95_seconds) else None,
        count.slot_p95_seconds,
        p50,
        p95,
        _peak(part, told, judged, bins, before),
    )


def _interval(requests: NDArray[np.int64], misses: NDArray[np.int64]) -> tuple[float, float]:
    """95 % of the miss ratio, blocks of time drawn anew."""
    drawn = np.random.default_rng(SEED).integers(0, len(requests), (RESAMPLES, len(requests)))
    sums = requests[drawn].sum(axis=1)
    ratios = misses[drawn].sum(axis=1)[sums > 0] / sums[sums > 0]
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def _bins(judged: Window) -> tuple[int, int]:
    """How many whole bins the window has, and how long one is."""
    length = judged.end - judged.start
    return (length // BIN, BIN) if length >= BIN else (1, length)


def _load_bins(part: History, told: Outcome, judged: Window) -> NDArray[np.float64] | None:
    """The share of pods' time in loads, by bin; None where nobody measured a load."""
    cost = part.seconds_of_loads()
    if not np.isfinite(cost).any():
        return None
    count, length = _bins(judged)
    trace, seconds = part.trace, np.zeros(count)
    for at, adapter in (
        (trace.at[told.lookup > 0], trace.adapter[told.lookup > 0]),
        (told.reloads.at, told.reloads.adapter),
    ):
        where = (at - judged.start) // length
        inside = (where >= 0) & (where < count)
        seconds += np.bincount(where[inside], weights=cost[adapter[inside]], minlength=count)
    return np.asarray(seconds / (trace.pods * length / SECOND), dtype=np.float64)


def _peak(
    part: History, told: Outcome, judged: Window, shares: NDArray[np.float64] | None, before: NDArray[np.float64] | None
) -> Peak | None:
    """The bin of the greatest rho among the busiest; None without a request in a whole bin."""
    count, length = _bins(judged)
    trace = part.trace
    edges = np.searchsorted(trace.at, judged.start + length * np.arange(count + 1))
    flight = np.add.reduceat(np.append(trace.hold, 0), edges[:-1]) * (edges[1:] > edges[:-1])
    tried = set(np.argsort(-flight)[:BUSIEST].tolist())
    if shares is not None:
        tried |= set(np.argsort(-shares)[:BUSIEST].tolist())
    peaks = []
    for place in sorted(tried):
        rows = slice(int(edges[place]), int(edges[place + 1]))
        if edges[place] == edges[place + 1]:
            continue
        then = None if shares is None else float(shares[place])
        stretch = 1.0
        if then is not None and before is not None:
            stretch = (1 - min(float(before[place]), MOST_SHARE)) / (1 - min(then, MOST_SHARE))
        codes = np.where(trace.adapter[rows] >= 0, trace.adapter[rows], trace.adapters)
        key = told.pod[rows].astype(np.int64) * (trace.adapters + 1) + codes
        each = np.bincount(key, weights=trace.hold[rows], minlength=trace.pods * (trace.adapters + 1)) / length * stretch
        by_pod = each.reshape(trace.pods, trace.adapters + 1)
        distinct = -np.expm1(-by_pod[:, :-1]).sum(axis=1)
        slots = np.array(part.slots)
        parts = {
            Bottleneck.SLOTS: float(distinct.sum() / slots.sum()),
            Bottleneck.SEATS: float(by_pod.sum() / (trace.pods * SEATS)),
        }
        if then is not None:
            parts[Bottleneck.LOADS] = then
        worst = max(parts, key=lambda one: parts[one])
        peaks.append(
            Peak(
                judged.start + place * length,
                parts[worst],
                worst,
                then,
                parts[Bottleneck.SLOTS],
                parts[Bottleneck.SEATS],
                float((distinct / slots).max()),
            )
        )
    return max(peaks, key=lambda one: one.rho) if peaks else None


def _residency(told: Outcome, judged: Window) -> tuple[float | None, float | None]:
    """Median and 95th percentile of the stays that begin in the window, by Kaplan–Meier with open ones censored at its end."""
    inside = (told.lookup > 0) & (told.start >= judged.start) & (told.start < judged.end)
    again = told.reloads
    kept = (again.at >= judged.start) & (again.at < judged.end) & (again.lookup >= 0)
    begun = np.concatenate([told.start[inside], again.at[kept]])
    left = np.concatenate([told.left[inside], again.left[kept]])
    if not len(begun):
        return None, None
    over = (left != NEVER) & (left < judged.end)
    age = (np.where(over, left, judged.end) - begun) // (SECOND // 10) / 10  # to a tenth of a second: fewer distinct ages
    curve = kaplan_meier(pl.LazyFrame({"entry": np.full(len(age), -1.0), "exit": age, "event": over})).collect()
    found = [curve.filter(pl.col("survival") <= level + 1e-9)["age"].min() for level in (0.5, 0.05)]
    p50, p95 = (float(one) if isinstance(one, float) else None for one in found)
    return p50, p95
