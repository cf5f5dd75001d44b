"""
The judged week: the pool's own requests replayed as they came, and once more with something changed, both in the same way.

With the router in the loop, since a router sends requests elsewhere once there is a slot, a pod or a pin more. The day before
the week only fills the slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lora_watch.errors import NotEnoughHistory
from lora_watch.model import DAY, HOUR, SECOND, Window
from lora_watch.recommend.advice import MONTH_HOURS, Advice, Effect, Kind, Place, Verdict
from lora_watch.recommend.history import History
from lora_watch.recommend.judge import RESAMPLES, WARM
from lora_watch.recommend.levers import WAITING_SECONDS, step_hashes
from lora_watch.recommend.present import Present
from lora_watch.recommend.proof import NORMAL, UNFORESEEN, ruled
from lora_watch.replay.cluster import PinChange, Reloads, replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.routers import Router
from lora_watch.replay.trace import Trace

JUDGED = 7 * DAY
"""The end of the history that changes are judged by: every hour of the week once."""
FEWEST = 200
"""With fewer requests in the judged window nothing is told of it."""
LIKE_A_DAY = 4 * DAY
"""From such a length on, days are drawn; of a shorter window hours, and below ``LIKE_AN_HOUR`` twelfths of it."""
LIKE_AN_HOUR = 12 * HOUR
UNFORESEEN_MORE = 0.04
"""
Standard deviation of the same for a change that makes loads more, as a share of those that it adds: of six times as many a week
brings more that was not foreseen than of as many.

Calibrated on the promises of one seed of the lever study (benchmarks/README.md), before the other seeds were looked at: the least
hundredth with which of each lever 90 % of the promises held. Without it 78 % did of those on a router that multiplies loads.
"""


class Counted(NamedTuple):
    """
    What a replay of the judged window comes to, by block (a day, where there are some): loads, swaps, seconds that loads took
    (NaN where nobody measured any), seconds that requests waited for slots; and the 95th percentile of what a request waited for
    a slot and its own adapter's load.
    """

    loads: NDArray[np.int64]
    swaps: NDArray[np.int64]
    load_seconds: NDArray[np.float64]
    waited_seconds: NDArray[np.float64]
    p95_seconds: float
    slot_p95_seconds: float


class Told(NamedTuple):
    """Of a replay what is counted, as in :class:`~lora_watch.replay.cluster.Outcome`."""

    lookup: NDArray[np.int8]
    victim: NDArray[np.int32]
    start: NDArray[np.int64]
    reloads: Reloads


@dataclass(frozen=True, slots=True)
class Trial:
    """
    The window that is judged and what the present does in it. ``part`` is the history with the time that only fills the slots;
    ``present`` the router that stands for the pool's own (its ``router`` None: pods are as recorded). ``requests`` are those for
    an adapter in the judged window.
    """

    history: History
    part: History
    judged: Window
    present: Present
    base: Counted
    block: int
    requests: int
    gpus_per_pod: int = 1

    @property
    def method(self) -> str:
        """What was replayed, in words."""
        steps = "replay in engine steps" if hashes(self.part) is not None else "replay"
        return f"{steps} {self.present.how}"

    @property
    def waiting(self) -> bool:
        """Whether requests wait for slots at present: then that is what hurts, more than the number of loads."""
        return self.base.slot_p95_seconds >= WAITING_SECONDS

    @property
    def load_share(self) -> float | None:
        """Pods' time that loads take at present, ``Σ load seconds ÷ (pods × seconds)``; None where nobody measured any."""
        share = float(self.base.load_seconds.sum()) / (self.part.trace.pods * self.judged.seconds)
        return share if np.isfinite(share) else None

    def count(
        self,
        *,
        fleet: Fleet | None = None,
        trace: Trace | None = None,
        router: Router | None = None,
        placed: NDArray[np.int32] | None = None,
        changes: Sequence[PinChange] = (),
    ) -> Counted:
        """
        A replay of the judged window with something else: a fleet, requests, a router; ``placed`` and ``changes`` as in
        :func:`lora_watch.replay.cluster.replay`. What is not told is as it is at present.
        """
        trace = self.part.trace if trace is None else trace
        fleet = self.part.fleet() if fleet is None else fleet
        told = replay(trace, self.stepped(fleet), router or self.present.router, placed=placed, changes=changes)
        return counted(self, Told(told.lookup, told.victim, told.start, told.reloads), trace)

    def since(self, at: int) -> "Trial":
        """The same judged from ``at`` (µs UTC) on only: what began then has done nothing before."""
        return _begun(
            self.history, self.part, Window(max(at, self.judged.start), self.judged.end), self.present, self.gpus_per_pod
        )

    def before(self) -> "Trial":
        """
        What lies before the judged window, judged alike: a week, where there are so many. NotEnoughHistory where there is too
        little.
        """
        begin = self.history.window.start
        if begin >= self.judged.start:
            raise NotEnoughHistory("nothing is held from before the judged window")
        return trial(self.history.during(Window(begin, self.judged.start)), self.present, gpus_per_pod=self.gpus_per_pod)

    def stepped(self, fleet: Fleet) -> Fleet:
        """The fleet, at work in engine steps where there is little enough to replay."""
        return replace(fleet, name_hashes=hashes(self.part))

    def effect(self, told: Counted) -> Effect:
        """A replay beside the present. GPU hours of a month are told from a day on: fewer hours are not like the others."""
        swaps, low, high = foretold(self.base.swaps, told.swaps)
        waits: tuple[float | None, float | None, float | None] = (None, None, None)
        if self.waiting:
            waits = foretold(self.base.waited_seconds, told.waited_seconds)
        saved = float(self.base.load_seconds.sum() - told.load_seconds.sum())
        length = self.judged.end - self.judged.start
        months = MONTH_HOURS * HOUR / length if length >= DAY else float("nan")
        return Effect(
            swaps,
            low,
            high,
            int(told.swaps.sum()),
            int(self.base.swaps.sum()),
            self.base.p95_seconds - told.p95_seconds if np.isfinite(self.base.p95_seconds - told.p95_seconds) else None,
            saved * self.gpus_per_pod / 3600 * months if np.isfinite(saved * months) else None,
            *waits,
        )

    def advice(
        self,
        kind: Kind,
        told: Counted,
        *,
        what: str,
        why: str,
        cost: str,
        risk: str,
        can: bool | None,
        how: str,
        method: str | None = None,
        learned: Window | None = None,
        amount: int | None = None,
        adapters: Sequence[str] = (),
        places: Sequence[Place] = (),
    ) -> Advice:
        """A change with what its replay came to, and the verdict on it."""
        effect = self.effect(told)
        return Advice(
            kind,
            verdict(effect),
            what,
            why,
            effect,
            self.judged,
            learned,
            method or self.method,
            cost,
            risk,
            can,
            how,
            amount,
            tuple(adapters),
            tuple(places),
            self.history.provenance,
        )


def verdict(effect: Effect) -> Verdict:
    """What an effect proves (:func:`lora_watch.recommend.proof.ruled`); unproven where it is unknown."""
    low, high = effect.sure
    if low is None or high is None or effect.removed is None:
        return Verdict.UNPROVEN
    return ruled(effect.removed, low, high)


def judged_window(history: History) -> Window:
    """
    The last ``JUDGED`` of the history, or, of a shorter one, seven eighths of the time from its first request on; not further
    back than the last change of the mix, if that is a day ago.

    NotEnoughHistory where it has no request.
    """
    if not len(history.trace):
        raise NotEnoughHistory("there is no request for an adapter on a pod of known slots: nothing can be replayed")
    since = max(history.window.start, int(history.trace.at[0]))
    end = history.window.end
    changed = [at for at in history.changes if since < at <= end - DAY]
    start = max(end - JUDGED, since + (end - since) // 8, *changed)
    return Window(min(start, end - 1), end)


def trial(history: History, present: Present, *, gpus_per_pod: int = 1) -> Trial:
    """
    Replay the present over the judged window. NotEnoughHistory below ``FEWEST`` requests for an adapter in it.
    """
    judged = judged_window(history)
    part = history.during(Window(max(judged.start - WARM, history.window.start), judged.end))
    requests = int((part.trace.adapter[np.searchsorted(part.trace.at, judged.start) :] >= 0).sum())
    if requests < FEWEST:
        days = (judged.end - judged.start) / DAY
        raise NotEnoughHistory(
            f"of {days:.2g} days {requests} requests for adapters are held: below {FEWEST} any change is chance"
        )
    return _begun(history, part, judged, present, gpus_per_pod)


def _begun(history: History, part: History, judged: Window, present: Present, gpus_per_pod: int) -> Trial:
    """A trial with the replay of the present."""
    inside = part.trace.adapter[np.searchsorted(part.trace.at, judged.start) :]
    none, nothing = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)
    empty = Counted(none, none, nothing, nothing, 0.0, 0.0)
    blank = Trial(history, part, judged, present, empty, block_of(judged), int((inside >= 0).sum()), gpus_per_pod)
    return replace(blank, base=blank.count())


def block_of(judged: Window) -> int:
    """The length of what is drawn anew of a judged window: days; hours of a shorter one, or twelfths of it below half a day."""
    length = judged.end - judged.start
    return DAY if length >= LIKE_A_DAY else HOUR if length >= LIKE_AN_HOUR else max(length // 12, 1)


def hashes(part: History) -> list[int] | None:
    """
    Drawn, one for each adapter, so that pods work in engine steps; None where there is too much to replay so.
    """
    return step_hashes(len(part.trace), part.trace.adapters, max(part.slots))


def with_adapters(trace: Trace, heir: NDArray[np.int32]) -> Trace:
    """The same requests, those for each adapter being for its ``heir``, by code."""
    codes = np.append(heir, np.int32(-1))[trace.adapter]  # the last entry is the base model's
    return Trace(codes, adapters=trace.adapters, pod=trace.pods_or_one(), pods=trace.pods, at=trace.at, hold=trace.hold)


def counted(trial: Trial, told: Told, trace: Trace) -> Counted:
    """What a replay of a trial's part, or of other requests in its place, comes to in the judged window."""
    start, blocks = trial.judged.start, -(-(trial.judged.end - trial.judged.start) // trial.block)
    first = int(np.searchsorted(trace.at, start))
    inside = slice(first, None)
    block = (trace.at[inside] - start) // trial.block
    lookup, adapter = told.lookup[inside], trace.adapter[inside]
    missed = lookup > 0
    again = told.reloads.at >= start
    again_block = np.minimum((told.reloads.at[again] - start) // trial.block, blocks - 1)
    loads = np.bincount(block[missed], minlength=blocks) + np.bincount(again_block, minlength=blocks)
    swaps = np.bincount(block[told.victim[inside] >= 0], minlength=blocks)
    swaps += np.bincount(again_block[told.reloads.victim[again] >= 0], minlength=blocks)
    cost = trial.history.seconds_of_loads(trace.adapters)
    taken = np.zeros(blocks)  # of nothing, bincount counts in whole numbers whatever its weights are
    taken += np.bincount(block[missed], weights=cost[adapter[missed]], minlength=blocks)
    taken += np.bincount(again_block, weights=cost[told.reloads.adapter[again]], minlength=blocks)
    started = lookup >= 0
    slot_wait = np.where(started, told.start[inside] - trace.at[inside], 0) / SECOND
    waited = slot_wait[started]
    missing = missed[started]
    with_load = waited.copy()
    with_load[missing] += cost[adapter[missed]]
    p95 = float(np.quantile(with_load, 0.95)) if len(with_load) else float("nan")
    slot_p95 = float(np.quantile(waited, 0.95)) if len(waited) else 0.0
    return Counted(
        loads,
        swaps,
        taken.astype(np.float64),
        np.bincount(block, weights=slot_wait, minlength=blocks).astype(np.float64),
        p95,
        slot_p95,
    )


def foretold(
    base: NDArray[np.int64] | NDArray[np.float64], other: NDArray[np.int64] | NDArray[np.float64]
) -> tuple[float | None, float | None, float | None]:
    """
    The share of the base that is gone, and the 95 % interval in which that of a next such time lies; None where there is nothing
    to lose.

    ``share ± NORMAL · √(2 · spread · n ÷ (n − 1) + beyond²)``: n blocks are drawn anew, with and without the change paired, and
    their spread counts twice, once for this estimate and once for the time to come. What weeks differ by beyond their days is
    ``beyond = UNFORESEEN + UNFORESEEN_MORE · max(other ÷ base − 1, 0)``. No more than all can be gone. Another mix of adapters in
    the next time is not foreseen.
    """
    if not base.sum() > 0:
        return None, None, None
    share = 1 - float(other.sum()) / float(base.sum())
    drawn = np.random.default_rng(1).integers(0, len(base), (RESAMPLES, len(base)))
    bases, others = base[drawn].sum(axis=1), other[drawn].sum(axis=1)
    spread = float(np.var(1 - others[bases > 0] / bases[bases > 0])) * len(base) / max(len(base) - 1, 1)
    beyond = UNFORESEEN + UNFORESEEN_MORE * max(-share, 0.0)
    wide = NORMAL * float(np.sqrt(2 * spread + beyond**2))
    return share, share - wide, min(share + wide, 1.0)
