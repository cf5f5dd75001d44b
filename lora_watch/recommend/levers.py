"""
What a lever would have changed: the user's own requests replayed once as they came and once with the lever pulled.

With the router in the loop, since a router sends requests elsewhere once there is a slot or a pin more. Which router it is
nobody says: of those that replay knows, the one whose loads come nearest to those of the recorded pods stands for it. Where
none comes near, or there is one pod, slots and pins are replayed on the recorded pods, and pods and routing not at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.groups import said_once, worst_provenance
from lora_watch.derive.locality import came
from lora_watch.model import MINUTE, SECOND, Window
from lora_watch.recommend.present import ROUTERS as ROUTERS
from lora_watch.recommend.present import Seen, apart, nearest, seen
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.routers import LLM_D_RESIDENCY, Router
from lora_watch.replay.trace import LONGEST, Trace

MORE_SLOTS = (1, 2, 4)
TOP_PINS = (5, 10)
"""Numbers of adapters that the pins lever tries, the most asked for first."""
BLOCK = 10 * MINUTE
"""Blocks of the bootstrap: shorter ones take neighbours for independent and give intervals that are too narrow."""
RESAMPLES = 400
LEAST_LOADS = 20
"""With fewer loads than this in the window an effect is chance: none is given."""
LARGEST = 150_000
"""Requests replayed at most, the newest: bounds the time of all levers to seconds."""
IN_STEPS = 150_000_000
"""Requests × (adapters × slots of the largest pod + 1,000) up to which engines are replayed step by step: 0.4 s a replay."""
WAITING_SECONDS = 0.5
"""A wait for a slot, at the 95th percentile, from which on the wait says more than the number of loads."""


@dataclass(frozen=True, slots=True)
class Lever:
    """
    One lever and what it would have done.

    ``lever``: slots, pins, pods or routing; ``amount``: slots or pods added, adapters pinned. ``effect`` is the share of the
    window's loads that it would have removed (negative: it adds loads), ``low`` … ``high`` its 95 % interval. ``adapters`` are
    those pinned. ``method`` says what was replayed. ``wait_seconds`` is the 95th percentile of what requests would have waited
    for a slot, beside that of the present: where requests wait, those for one adapter enter together and share its load, so a
    lever that ends the waiting can add loads, and one that makes them wait longer remove some. Loads alone say nothing there.
    """

    lever: str
    amount: int
    what: str
    effect: float
    low: float
    high: float
    loads: int
    base_loads: int
    method: str
    adapters: tuple[str, ...] = ()
    wait_seconds: float | None = None
    base_wait_seconds: float | None = None

    @property
    def waiting(self) -> bool:
        """Whether requests wait for slots at present, so that the wait tells more than the number of loads."""
        return (self.base_wait_seconds or 0.0) >= WAITING_SECONDS

    @property
    def of(self) -> str:
        """What hurts, and is to become less."""
        return "wait for a slot (p95)" if self.waiting else "swaps"

    @property
    def removed(self) -> float:
        """The share of it that the lever removes; negative: it makes it worse."""
        if not self.waiting or not self.base_wait_seconds:
            return self.effect
        return 1 - (self.wait_seconds or 0.0) / self.base_wait_seconds


@dataclass(frozen=True, slots=True)
class Levers:
    """All levers of a pool, and how near the replay of the present comes: ``replayed_miss_ratio`` of the window's requests."""

    levers: tuple[Lever, ...]
    requests: int
    replayed_miss_ratio: float | None
    router: str | None
    provenance: str | None


NOTHING = Levers((), 0, None, None, None)


def levers(requests: pl.LazyFrame, window: Window, slots: Mapping[str, int]) -> Levers:
    """
    The levers of one pool. ``requests`` are its own, also some from before the window, which only fill the slots (without them
    the window's first quarter does). ``slots`` by pod; requests of a pod whose slots are unknown are left out.

    Holds (scheduled … finished) keep slots, as in the engine; loads take no time. Up to ``IN_STEPS`` the replay works in engine
    steps, as vLLM does, which can evict an adapter of the running batch and load it again in the same step: one load in ten where
    requests wait for slots, fewer with each slot more. The order within a step depends on hashes that nobody knows and is drawn.
    Above, an adapter in flight never leaves. The present and all levers are replayed alike.

    ``router`` is the one in the loop, None where there is none. The interval is a bootstrap over 10-minute blocks of the paired
    loads (over twelfths where the window is shorter than two hours). No levers below ``LEAST_LOADS`` loads.
    """
    past = _past(requests, window, slots)
    if past is None:
        return NOTHING
    recorded = _counted(past, past.fleet())
    miss_ratio = float(recorded.loads.sum()) / past.counted if past.counted else None
    if recorded.loads.sum() < LEAST_LOADS:
        return Levers((), past.counted, miss_ratio, None, past.provenance)
    present, base = _present(past, recorded)
    tried = (*_tried(past, present), *(_routed(past, present) if present else ()))
    return Levers(tuple(_compared(base, *one) for one in tried), past.counted, miss_ratio, present, past.provenance)


def in_steps(requests: int, adapters: int, slots: int) -> bool:
    """Whether so many requests are few enough to replay engines step by step; ``slots`` of the largest pod."""
    return requests * (adapters * slots + 1_000) <= IN_STEPS


def step_hashes(requests: int, adapters: int, slots: int, *, seed: int = 1) -> list[int] | None:
    """Drawn, one for each adapter, for the order within a step, which nobody knows; None where :func:`in_steps` is false."""
    if not in_steps(requests, adapters, slots):
        return None
    drawn: list[int] = np.random.default_rng(seed).integers(-(1 << 62), 1 << 62, adapters).tolist()
    return drawn


@dataclass(frozen=True, slots=True)
class _Past:
    """What is replayed: the trace with its recorded pods, which requests count, and the block of each."""

    trace: Trace
    names: tuple[str, ...]
    pods: tuple[str, ...]
    slots: tuple[int, ...]
    inside: NDArray[np.bool_]
    block: NDArray[np.int64]
    start: int
    length: int
    provenance: str | None

    @property
    def counted(self) -> int:
        return int((self.inside & (self.trace.adapter >= 0)).sum())

    def fleet(self, more: int = 0, pins: Sequence[tuple[int, int]] = (), pods: int = 0) -> Fleet:
        slots = [one + more for one in self.slots] + [min(self.slots) + more] * pods
        return Fleet(slots, seats=max(256, len(self.trace)), pins=pins, name_hashes=self.hashes)

    @property
    def hashes(self) -> list[int] | None:
        return step_hashes(len(self.trace), self.trace.adapters, max(self.slots))

    @property
    def how(self) -> str:
        return "replay" if self.hashes is None else "replay in engine steps"


class Counted(NamedTuple):
    """
    What a replay comes to: loads by block, swaps, the 95th percentile of the wait for a slot (None: no request), and where it
    placed the requests.
    """

    loads: NDArray[np.int64]
    swaps: int
    wait_seconds: float | None
    seen: Seen


@dataclass(frozen=True, slots=True)
class Plan:
    """
    Levers pulled together: ``slots`` more per pod, ``pods`` more (each with the fewest slots that a pod has), the ``pins`` most
    asked for, each on one pod, requests sent by ``router`` (a name of ``ROUTERS``; None: as they are now), and ``variants``: so
    many of the most asked for each hand every second request, by a coin, to a new adapter, as an A/B test does.
    """

    slots: int = 0
    pods: int = 0
    pins: int = 0
    router: str | None = None
    variants: int = 0


@dataclass(frozen=True, slots=True)
class Foretold:
    """
    What a plan would have made of the counted ``requests``, in ``seconds``, beside a replay of the present.

    ``pinned`` of the plan's pins found room. ``wait_seconds``, ``effect``, ``low`` and ``high`` as in :class:`Lever`, the last
    three None below ``LEAST_LOADS``.
    """

    requests: int
    seconds: float
    pods: int
    base_pods: int
    loads: int
    base_loads: int
    swaps: int
    base_swaps: int
    wait_seconds: float | None
    base_wait_seconds: float | None
    pinned: int
    effect: float | None
    low: float | None
    high: float | None
    method: str
    provenance: str | None


def foretell(
    requests: pl.LazyFrame, window: Window, slots: Mapping[str, int], plan: Plan, present: str | None
) -> Foretold | None:
    """
    The replay of a plan; None where no request is held. ``present`` is the router that stands for the present one
    (``Levers.router``), None: pods as recorded. Requests and slots as for :func:`levers`.

    With the router in the loop where there is one, or the plan names one. ValueError where a plan adds pods and there is none: no
    recorded request went to a pod that was not there.
    """
    past = _past(requests, window, slots)
    if past is None:
        return None
    chosen = plan.router or present
    if plan.pods and chosen is None:
        raise ValueError("requests as they were recorded go to no pod more: name a router")
    trace = _with_variants(past.trace, plan.variants)
    changed = replace(past, trace=trace, names=past.names + ("",) * (trace.adapters - past.trace.adapters))
    pins = _homes(past, plan.pins)
    before = _counted(past, past.fleet(), ROUTERS[present] if present else None)
    fleet = changed.fleet(plan.slots, pins, plan.pods)
    after = _counted(changed, fleet, ROUTERS[chosen] if chosen else None, plan.pods)
    enough = before.loads.sum() >= LEAST_LOADS
    how = f"{changed.how} with {chosen}" if chosen else f"{changed.how} on the recorded pods"
    share, low, high = effect_of(before.loads, after.loads) if enough else (None, None, None)
    return Foretold(
        past.counted,
        (window.end - past.start) / SECOND,
        len(past.pods) + plan.pods,
        len(past.pods),
        int(after.loads.sum()),
        int(before.loads.sum()),
        after.swaps,
        before.swaps,
        after.wait_seconds,
        before.wait_seconds,
        len(pins),
        share,
        low,
        high,
        how,
        past.provenance,
    )


def effect_of(base: NDArray[np.int64], other: NDArray[np.int64]) -> tuple[float, float, float]:
    """The share of the loads, told by block, that are not there any more, and its 95 % interval over blocks drawn anew."""
    effect = 1 - float(other.sum()) / float(base.sum())
    drawn = np.random.default_rng(1).integers(0, len(base), (RESAMPLES, len(base)))
    bases, others = base[drawn].sum(axis=1), other[drawn].sum(axis=1)
    effects = 1 - others[bases > 0] / bases[bases > 0]
    low, high = np.quantile(effects, [0.025, 0.975])
    return effect, min(float(low), effect), max(float(high), effect)


def _with_variants(trace: Trace, variants: int) -> Trace:
    """The trace in which every second request of the most asked for, by a coin, is for a variant."""
    asked = np.bincount(trace.adapter[trace.adapter >= 0], minlength=trace.adapters)
    top = np.argsort(-asked, kind="stable")[: min(variants, int((asked > 0).sum()))]
    if not len(top):
        return trace
    heir = np.full(trace.adapters + 1, -1, dtype=np.int32)  # the last entry is the base model's
    heir[top] = np.arange(trace.adapters, trace.adapters + len(top), dtype=np.int32)
    moved = (heir[trace.adapter] >= 0) & (np.random.default_rng(1).random(len(trace)) < 0.5)
    adapter = np.where(moved, heir[trace.adapter], trace.adapter)
    return Trace(
        adapter, adapters=trace.adapters + len(top), pod=trace.pods_or_one(), pods=trace.pods, at=trace.at, hold=trace.hold
    )


def _past(requests: pl.LazyFrame, window: Window, slots: Mapping[str, int]) -> _Past | None:
    pods = tuple(sorted(pod for pod, count in slots.items() if count >= 1))
    known = pl.DataFrame({"pod": pl.Series(pods, dtype=pl.String), "pod_code": np.arange(len(pods), dtype=np.int32)})
    rows = (
        requests.filter((came() < window.end) & (came() >= -LONGEST))
        .select("pod", "adapter", "stream", "seq", "provenance", "finished", "scheduled", came=came())
        .filter(said_once())
        .join(known.lazy(), on="pod")
        .sort("came", "stream", "seq")
        .tail(LARGEST)
        .collect()
    )
    if rows.is_empty():
        return None
    names = rows.select(pl.col("adapter").drop_nulls().unique().sort())["adapter"]
    code = rows.join(
        pl.DataFrame({"adapter": names, "code": np.arange(len(names), dtype=np.int32)}),
        on="adapter",
        how="left",
        maintain_order="left",
    )["code"].fill_null(-1)
    hold = rows.select((pl.col("finished") - pl.col("scheduled")).fill_null(0).clip(0, LONGEST)).to_series()
    at = rows["came"].to_numpy().astype(np.int64)
    start = window.start if at[0] < window.start else int(at[0] + (window.end - at[0]) // 4)
    length = min(BLOCK, max((window.end - start) // 12, 1))
    trace = Trace(
        code.to_numpy(),
        adapters=max(len(names), 1),
        pod=rows["pod_code"].to_numpy(),
        pods=len(pods),
        at=at,
        hold=hold.to_numpy(),
    )
    inside = at >= start
    block = np.maximum(at - start, 0) // length
    provenance = rows.select(worst_provenance()).item()
    enough = len(names) + 1  # with more slots nothing changes, but what the replay takes
    places = tuple(min(slots[pod], enough) for pod in pods)
    return _Past(trace, tuple(names), pods, places, inside, block, start, length, provenance)


def _counted(past: _Past, fleet: Fleet, router: Router | None = None, pods: int = 0) -> Counted:
    """What the fleet does, loads and swaps within a step included."""
    trace = past.trace
    if router is not None:
        trace = Trace(trace.adapter, adapters=trace.adapters, pods=trace.pods + pods, at=trace.at, hold=trace.hold)
    told = replay(trace, fleet, router)
    blocks = int(past.block[-1]) + 1
    again = told.reloads.at[told.reloads.at >= past.start]
    loads = np.bincount(past.block[past.inside & (told.lookup > 0)], minlength=blocks)
    swaps = int((told.victim[past.inside] >= 0).sum() + (told.reloads.victim[told.reloads.at >= past.start] >= 0).sum())
    started = past.inside & (told.lookup >= 0)
    wait = float(np.quantile(told.start[started] - told.at[started], 0.95)) / SECOND if started.any() else None
    return Counted(
        loads + np.bincount(np.minimum((again - past.start) // past.length, blocks - 1), minlength=blocks),
        swaps,
        wait,
        seen(trace.adapter[past.inside], told.pod[past.inside], told.lookup[past.inside], trace.pods),
    )


Tried = tuple[str, int, str, str, Counted, tuple[str, ...]]


def _tried(past: _Past, present: str | None) -> Iterator[Tried]:
    """Slots and pins."""
    router = ROUTERS[present] if present else None
    how = f"{past.how} with {present}" if present else f"{past.how} on the recorded pods"
    for more in MORE_SLOTS:
        what = f"+{more} {_plural(more, 'slot')} per pod"
        yield "slots", more, what, how, _counted(past, past.fleet(more), router), ()
    for top in TOP_PINS:
        pins = _homes(past, top)
        if len(pins) == top:
            names = tuple(past.names[adapter] for _, adapter in pins)
            what = f"pinning the {top} most asked for, each on one pod"
            yield "pins", top, what, how, _counted(past, past.fleet(pins=pins), router), names


def _homes(past: _Past, top: int) -> list[tuple[int, int]]:
    """The most requested adapters, each on the pod with most of its requests that has room: (pod, adapter)."""
    asked = past.trace.adapter >= 0
    counts = np.zeros((past.trace.adapters, past.trace.pods), dtype=np.int64)
    np.add.at(counts, (past.trace.adapter[asked], past.trace.pods_or_one()[asked]), 1)
    room = np.array(past.slots) - 1
    pins: list[tuple[int, int]] = []
    for adapter in np.argsort(-counts.sum(axis=1), kind="stable")[:top].tolist():
        for pod in np.argsort(-counts[adapter], kind="stable").tolist():
            if room[pod] > 0:
                room[pod] -= 1
                pins.append((pod, adapter))
                break
    return pins


def _present(past: _Past, recorded: Counted) -> tuple[str | None, Counted]:
    """The router that loads and places requests most as was recorded, and what it does; None, and that, where none is near."""
    if len(past.pods) == 1:
        return None, recorded
    every = {name: _counted(past, past.fleet(), router) for name, router in ROUTERS.items()}
    name = nearest(
        {one: [int(told.loads.sum())] for one, told in every.items()},
        [int(recorded.loads.sum())],
        [recorded.seen.requests],
        {one: [apart(told.seen, recorded.seen)] for one, told in every.items()},
    )
    return (None, recorded) if name is None else (name, every[name])


def _routed(past: _Past, present: str) -> Iterator[Tried]:
    router = ROUTERS[present]
    one = _counted(past, past.fleet(pods=1), router, pods=1)
    yield "pods", 1, "one more pod", f"{past.how} with {present}", one, ()
    if present != "llm-d's residency scorer":
        other = _counted(past, past.fleet(), replace(LLM_D_RESIDENCY))
        what = "routing by residency (llm-d's proposed scorer)"
        yield "routing", 0, what, f"{past.how}, {present} against llm-d's residency scorer", other, ()


def _compared(
    base: Counted,
    lever: str,
    amount: int,
    what: str,
    method: str,
    told: Counted,
    adapters: tuple[str, ...],
) -> Lever:
    effect, low, high = effect_of(base.loads, told.loads)
    return Lever(
        lever,
        amount,
        what,
        effect,
        low,
        high,
        int(told.loads.sum()),
        int(base.loads.sum()),
        method,
        adapters,
        told.wait_seconds,
        base.wait_seconds,
    )


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"
