"""
What an engine's own counters and gauges stand at, at any moment of its life: the one place from which pages and rows are filled.

Moments are µs UTC, sorted; what happens at a moment has happened.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from lora_watch import names
from lora_watch.model import SECOND
from lora_watch.simulate.engines import Life
from lora_watch.simulate.pace import covered, merged

Times = NDArray[np.int64]
Counts = NDArray[np.int64]

MODEL = "simulated"
"""The served name of the base model."""
ENGINE: Mapping[str, str] = MappingProxyType({"engine": "0", "model_name": MODEL})
"""The labels of everything on an engine's page but the gauge of adapters."""
FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")
_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0)
_LATENCY = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0)
_LOADING = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TTFT, E2E, QUEUE, PREFILL, DECODE = names.HISTOGRAMS
BOUNDS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        TTFT: (*_TTFT, 640.0, 2560.0),
        **dict.fromkeys((E2E, QUEUE, PREFILL, DECODE), (*_LATENCY, 7680.0)),
        names.LOAD_SECONDS: _LOADING,
    }
)
"""Upper bounds of the buckets: those of a vLLM 0.32 page. Those of the loads' histogram, which no release has, are our own."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A histogram at some moments: how many observations (by moment and bucket, cumulative, the last is all), and µs in all."""

    counts: Counts
    micros: Counts


class Meter:
    """
    The meters of one life, or of a piece of one: then what lies within its window is right, counted from the piece's own begin.

    ``speed``: how much faster its clock runs than the one by which histograms sort durations. A load stops all work, so work is
    measured on the pod's own clock, which stands still in loads: ``v = t − stalled(t)``.
    """

    def __init__(self, life: Life, speed: float = 1.0) -> None:
        self.life = life
        self._speed = speed
        self._sums: Times = np.concatenate([[0], np.cumsum(life.loaded.done - life.loaded.began)])

    def stalled(self, at: Times) -> Times:
        """µs of loads before each moment."""
        return covered((self.life.loaded.began, self.life.loaded.done), at)

    def worked(self, at: Times) -> tuple[Times, Times]:
        """µs before each moment that went into steps, loads left out, and the part of them in which some prompt was read."""
        v = at - self.stalled(at)
        return covered(self._steps, v), covered(self._prefills, v)

    @cached_property
    def _clock(self) -> Times:
        """When each request began on the pod's clock; never decreases."""
        places = np.arange(len(self.life.ready))
        return np.asarray(self.life.ready - self._sums[np.searchsorted(self.life.loaded.place, places, side="right")])

    @cached_property
    def _ends(self) -> Times:
        """When each request ended on the pod's clock; one that ends at a load's begin ended before it."""
        ends = self.life.finished - self._sums[np.searchsorted(self.life.loaded.began, self.life.finished)]
        return np.asarray(np.maximum(ends, self._clock))

    @cached_property
    def _first_on_clock(self) -> Times:
        first = self.first - self._sums[np.searchsorted(self.life.loaded.began, self.first)]
        return np.asarray(np.clip(first, self._clock, self._ends))

    @cached_property
    def _steps(self) -> tuple[Times, Times]:
        return merged(self._clock, self._ends)

    @cached_property
    def _prefills(self) -> tuple[Times, Times]:
        return merged(self._clock, self._first_on_clock)

    @cached_property
    def arrived(self) -> Times:
        """When each request came."""
        return np.asarray(self.life.asked.at[self.life.number])

    @cached_property
    def scheduled(self) -> Times:
        """When each was scheduled: one that loaded its adapter when that load began, every other one when it was ready."""
        scheduled = self.life.ready.copy()
        scheduled[self.life.loaded.place] = self.life.loaded.began
        return scheduled

    @cached_property
    def first(self) -> Times:
        """When each had its first token."""
        return self.life.first_tokens(np.arange(len(self.life.ready)))

    @cached_property
    def generated(self) -> Counts:
        """Tokens each request generates when it is let finish; a pod for prefill generates the first one only."""
        if self.life.pool.role == "prefill":
            return np.ones(len(self.life.number), dtype=np.int64)
        return self.life.asked.generated[self.life.number].astype(np.int64)

    @cached_property
    def came(self) -> tuple[Times, NDArray[np.int64]]:
        """When requests came, those included that never started, sorted; and their adapters' codes, −1 for the base model."""
        which = np.concatenate([self.life.number, self.life.refused])
        at = self.life.asked.at[which]
        order = np.argsort(at, kind="stable")
        return at[order], np.maximum(self.life.asked.adapter[which[order]].astype(np.int64), -1)

    @cached_property
    def _started(self) -> Times:
        """When a seat and a slot were free for each, sorted."""
        began = self.life.loaded.began - self._sums[:-1]
        free = self._clock + self._sums[np.searchsorted(began, self._clock)]
        return np.sort(np.maximum(self.arrived, free))

    @cached_property
    def finish_order(self) -> NDArray[np.int64]:
        """The requests' places in the order in which they ended."""
        return np.argsort(self.life.finished, kind="stable")

    @cached_property
    def finishes(self) -> Times:
        """When requests ended, sorted."""
        return np.asarray(self.life.finished[self.finish_order])

    @cached_property
    def _reach(self) -> Times:
        """By request, the latest end of it and all before it."""
        return np.maximum.accumulate(self.life.finished)

    def queues(self, at: Times) -> tuple[Counts, Counts, Counts]:
        """Requests running; waiting for a seat or for loads to end (``capacity``); waiting for a slot (``deferred``)."""
        running = _count(self.scheduled, at) - _count(self.finishes, at)
        blocked = _count(self.came[0], at) - _count(self._started, at)
        loading = _count(self._started, at) - _count(self.scheduled, at)
        full = running + loading >= self.life.pool.seats
        return running, loading + np.where(full, blocked, 0), np.where(full, 0, blocked)

    def prompt_tokens(self, at: Times) -> Counts:
        """Prompt tokens read: those of a request count when it has its first token."""
        return np.asarray(self._prompts[1][_count(self._prompts[0], at)])

    @cached_property
    def _prompts(self) -> tuple[Times, Counts]:
        order = np.argsort(self.first, kind="stable")
        tokens = self.life.asked.prompt[self.life.number[order]].astype(np.int64)
        return self.first[order], np.concatenate([[0], np.cumsum(tokens)])

    @cached_property
    def _generated_sums(self) -> Counts:
        return np.concatenate([[0], np.cumsum(self.generated[self.finish_order])])

    def generation_tokens(self, at: Times) -> Counts:
        """
        Tokens generated: one when the prompt is read, the others evenly from then on until the end, on the pod's clock.

        A request that was cut off with its engine is told as if it had come to its last token just then.
        """
        whole = np.asarray(self._generated_sums[_count(self.finishes, at)])
        if not len(at):
            return whole
        low = np.searchsorted(self._reach, at[0], side="right")
        places = np.arange(low, np.searchsorted(self.life.ready, at[-1], side="right"))
        which, looks = spread(np.searchsorted(at, self.first[places]), np.searchsorted(at, self.life.finished[places]))
        request = places[which]
        since = (at - self.stalled(at))[looks] - self._first_on_clock[request]
        takes = np.maximum(self._ends[request] - self._first_on_clock[request], 1)
        tokens = np.clip(1 + (self.generated[request] - 1) * since // takes, 0, self.generated[request])
        return np.asarray(whole + np.bincount(looks, weights=tokens, minlength=len(at)).astype(np.int64))

    @cached_property
    def _successes(self) -> Times:
        return np.asarray(self.finishes[~self.life.cut[self.finish_order]])

    def successes(self, at: Times) -> Counts:
        """Requests that ended well, each with reason ``stop``."""
        return _count(self._successes, at)

    def observed(self, name: str, at: Times) -> Observed:
        """
        One of vLLM's histograms of requests: seconds to the first token when it comes, all others when a request has ended well.

        Queue: arrived to scheduled; prefill: scheduled to first token, loads included; decode: from there to the end.
        """
        times, spans = self._observations[name]
        return self._histogram(name, times, spans, at)

    @cached_property
    def _observations(self) -> dict[str, tuple[Times, Times]]:
        done = self.finish_order[~self.life.cut[self.finish_order]]
        first = np.argsort(self.first, kind="stable")
        spans = {
            E2E: self.life.finished - self.arrived,
            QUEUE: self.scheduled - self.arrived,
            PREFILL: self.first - self.scheduled,
            DECODE: self.life.finished - self.first,
        }
        told = {TTFT: (self.first[first], (self.first - self.arrived)[first])}
        return told | {name: (self._successes, span[done]) for name, span in spans.items()}

    def load_seconds(self, at: Times) -> dict[str, Observed]:
        """Seconds of loads by transition: ``load`` reads an adapter into the CPU cache, ``activate`` copies it into its slot."""
        loaded = self.life.loaded
        cold = self.life.lookup[loaded.place] == 2
        read = (loaded.done - loaded.began - loaded.gpu_part)[cold]
        return {
            "load": self._histogram(names.LOAD_SECONDS, (loaded.done - loaded.gpu_part)[cold], read, at),
            "activate": self._histogram(names.LOAD_SECONDS, loaded.done, loaded.gpu_part, at),
        }

    def _histogram(self, name: str, times: Times, spans: Times, at: Times) -> Observed:
        size = len(BOUNDS[name]) + 1
        count = int(np.searchsorted(times, at[-1], side="right")) if len(at) else 0
        buckets = np.searchsorted(np.array(BOUNDS[name]), spans[:count] / (SECOND * self._speed))
        flat = np.searchsorted(at, times[:count]) * size + buckets
        counts = np.bincount(flat, minlength=len(at) * size).reshape(len(at), size).cumsum(axis=0).cumsum(axis=1)
        return Observed(counts, np.concatenate([[0], np.cumsum(spans[:count])])[_count(times[:count], at)])

    def lookups(self, at: Times) -> NDArray[np.int64]:
        """Uses so far that found their adapter in a slot, in the CPU cache and on disk: three rows."""
        found = self.life.lookup[self.life.opens]
        return np.stack([_count(self.life.opened[found == kind], at) for kind in range(3)])

    def in_flight(self, at: Times) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Who was in flight when: indices of moments, and the adapter's code; −1 for a moment at which nobody was."""
        life = self.life
        which, looks = spread(np.searchsorted(at, life.opened), np.searchsorted(at, life.closes))
        code = life.adapter[life.opens[which]].astype(np.int64)
        empty = np.flatnonzero(np.bincount(looks, minlength=len(at)) == 0)
        return np.concatenate([looks, empty]), np.concatenate([code, np.full(len(empty), -1)])

    def last_step(self, moment: int, before: int) -> int:
        """When it last took a step: ``moment`` while it does; the begin of a load that runs; else the last end, or ``before``."""
        load = int(np.searchsorted(self.life.loaded.began, moment, side="right")) - 1
        if load >= 0 and self.life.loaded.done[load] > moment:
            return int(self.life.loaded.began[load])
        at = np.array([moment])
        ended = int(_count(self.finishes, at)[0])
        if int(_count(self.scheduled, at)[0]) > ended:
            return moment
        return max(before, int(self.finishes[ended - 1])) if ended else before

    def slots(self, moment: int, before: Mapping[int, int], since: int) -> dict[int, int]:
        """By GPU slot the adapter's code in it, pinned ones included; ``before`` is what was there just before ``since``."""
        loaded = self.life.loaded
        told = slice(*np.searchsorted(loaded.done, [since, moment + 1]))
        held = dict(before)
        for left, slot, place in zip(loaded.victim_slot[told], loaded.slot[told], loaded.place[told], strict=True):
            held.pop(int(left), None)
            held[int(slot)] = int(self.life.adapter[place])
        return held

    def cached(self, moment: int, before: Set[int], since: int) -> set[int]:
        """The adapters' codes in the CPU cache, those in slots included; ``before`` is what was there just before ``since``."""
        loaded = self.life.loaded
        cold = np.flatnonzero(self.life.lookup[loaded.place] == 2)
        cold = cold[slice(*np.searchsorted((loaded.done - loaded.gpu_part)[cold], [since, moment + 1]))]
        held = set(before)
        for left, code in zip(loaded.cpu_victim[cold].tolist(), self.life.adapter[loaded.place[cold]].tolist(), strict=True):
            held.discard(left)
            held.add(code)
        return held


def spread(from_: NDArray[np.int64], to: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    Every index of the ranges ``from_ … to`` (empty where they don't grow): of which range it is, and the index.

    >>> [part.tolist() for part in spread(np.array([0, 5, 2]), np.array([2, 4, 3]))]
    [[0, 0, 2], [0, 1, 2]]
    """
    widths = np.maximum(to - from_, 0)
    which = np.repeat(np.arange(len(widths)), widths)
    return which, np.repeat(from_ - np.cumsum(widths) + widths, widths) + np.arange(int(widths.sum()))


def _count(times: Times, at: Times) -> Counts:
    """How many of the sorted times are not later."""
    return np.searchsorted(times, at, side="right")
