"""
The engine processes of pods as far as they are told: whole, or piece by piece, in windows that follow each other.

A process that is told in pieces has, at each moment that is kept, the meters it would have if it were told whole: what a piece
needs of those before it is carried along.
"""

import threading
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from lora_watch import names
from lora_watch.model import Window
from lora_watch.simulate.engines import Life, pins_of
from lora_watch.simulate.meters import Counts, Meter, Times
from lora_watch.simulate.scrapes import attempts

CAME, ENDED, LOST = "came", "ended", "lost"
"""Requests by adapter's code plus 1: that have come, that have ended, and of these the ones that were lost with their engine."""
Count = Callable[[Meter, int], Counts]
"""Some counts at a moment, since the begin of what a meter is of."""
FOREVER = 1 << 61
"""µs: the end of the window of a life that is told whole."""


def _histogram(name: str, meter: Meter, moment: int) -> Counts:
    observed = meter.observed(name, np.array([moment]))
    return np.append(observed.counts[0], observed.micros[0])


def _load_seconds(meter: Meter, moment: int) -> Counts:
    observed = meter.load_seconds(np.array([moment])).values()
    return np.stack([np.append(one.counts[0], one.micros[0]) for one in observed])


_COUNTS: Mapping[str, Count] = MappingProxyType(
    {
        names.PROMPT_TOKENS: lambda meter, moment: meter.prompt_tokens(np.array([moment])),
        names.GENERATION_TOKENS: lambda meter, moment: meter.generation_tokens(np.array([moment])),
        names.REQUEST_SUCCESS: lambda meter, moment: meter.successes(np.array([moment])),
        names.CACHE_LOOKUPS: lambda meter, moment: meter.lookups(np.array([moment]))[:, 0],
        names.LOAD_SECONDS: _load_seconds,
        **{name: partial(_histogram, name) for name in names.HISTOGRAMS},
    }
)
"""What is counted, by the metric: histograms are the counts of their buckets and, last, µs in all; those of loads two rows."""


@dataclass(frozen=True, slots=True)
class Piece:
    """
    A window of a process: its meter, and what is carried into it.

    ``offsets`` are added to its counts (where there are none: 0). Just before the window the slots ``held`` these adapters' codes
    and the CPU cache those that were ``cached``, and the last step was at ``stepped`` (µs UTC).
    """

    window: Window
    meter: Meter
    offsets: Mapping[str, Counts]
    held: Mapping[int, int]
    cached: Set[int]
    stepped: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What a process stands at, at one moment (µs UTC) in one of its pieces."""

    piece: Piece
    moment: int
    counted: Mapping[str, Count]

    @property
    def life(self) -> Life:
        """What is told of the life in this piece."""
        return self.piece.meter.life

    def count(self, name: str) -> Counts:
        """Some counts since the process began."""
        return np.asarray(self.counted[name](self.piece.meter, self.moment) + self.piece.offsets.get(name, 0))

    def queues(self) -> tuple[int, int, int]:
        """Requests running; waiting for a seat or for loads to end; waiting for a slot."""
        running, capacity, deferred = (int(queue[0]) for queue in self.piece.meter.queues(np.array([self.moment])))
        return running, capacity, deferred

    def slots(self) -> dict[int, int]:
        """By GPU slot the adapter's code that is in it."""
        return self.piece.meter.slots(self.moment, self.piece.held, self.piece.window.start)

    def cached(self) -> set[int]:
        """The adapters' codes in the CPU cache."""
        return self.piece.meter.cached(self.moment, self.piece.cached, self.piece.window.start)

    def last_step(self) -> int:
        """When the engine last took a step."""
        return self.piece.meter.last_step(self.moment, self.piece.stepped)


class Combinations:
    """Which adapters were in flight together from the first step on, numbered in the order in which each was first, and when."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self.codes: list[tuple[int, ...]] = []
        """By number, the adapters' codes."""
        self._since: Times = np.empty(0, dtype=np.int64)
        self._which: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._settled: Times = np.empty(0, dtype=np.int64)

    def go_on(self, life: Life, window: Window) -> None:
        """Add what changed in the next window."""
        if not len(self._since) and (not len(life.ready) or life.ready[0] >= window.end):
            return
        codes = life.adapter[life.opens]
        there = set(codes[(life.opened < window.start) & (life.closes >= window.start)].tolist())
        at, who = np.concatenate([life.opened, life.closes]), np.concatenate([codes, codes])
        inside = (at >= window.start) & (at < window.end)
        states: dict[int, tuple[int, ...]] = {} if len(self._since) else {int(life.ready[0]): ()}
        for moment, code in sorted(zip(at[inside].tolist(), who[inside].tolist(), strict=True)):
            there ^= {code}
            states[moment] = tuple(sorted(there))
        for state in states.values():
            if state not in self._numbers:
                self._numbers[state] = len(self.codes)
                self.codes.append(state)
        which = [self._numbers[state] for state in states.values()]
        self._since = np.concatenate([self._since, np.array(list(states), dtype=np.int64)])
        self._which = np.concatenate([self._which, np.array(which, dtype=np.int64)])

    def forget(self, before: int) -> None:
        """Nobody asks any more for moments before this one (µs UTC)."""
        settled = max(int(np.searchsorted(self._since, before)) - 1, 0)
        self._settled = self._last(settled)
        self._since, self._which = self._since[settled:], self._which[settled:]

    def last(self, standing: Standing) -> Times:
        """By number, when each was there last (µs UTC; of the one that is there now the last step), −1: not so far."""
        count = int(np.searchsorted(self._since, standing.moment, side="right"))
        if not count:
            return np.empty(0, dtype=np.int64)
        last = self._last(count - 1)
        last[self._which[count - 1]] = max(standing.last_step(), int(self._since[count - 1]))
        return last

    def _last(self, count: int) -> Times:
        last = np.full(len(self.codes), -1, dtype=np.int64)
        last[: len(self._settled)] = self._settled
        last[self._which[:count]] = self._since[1 : count + 1] - 1  # of one that came again the last time counts
        return last


class Process:
    """
    One engine process. ``window`` is what the meter tells of it, ``adapters`` how many there are in all.

    Of one that goes on the moments of ``keep`` µs before its last window are kept, and the last window always.
    """

    def __init__(self, meter: Meter, window: Window, adapters: int, keep: int = 0) -> None:
        life = meter.life
        pins = pins_of(life.pool, life.pod)
        self.begin, self.boot = life.begin, life.boot
        self._keep = keep
        by_adapter: dict[str, Count] = {name: partial(_by_adapter, name, adapters) for name in (CAME, ENDED, LOST)}
        self._counted: Mapping[str, Count] = {**_COUNTS, **by_adapter}
        self.pieces: tuple[Piece, ...] = (Piece(window, meter, {}, dict(enumerate(pins)), frozenset(pins), life.begin),)
        self._combinations = Combinations()
        self._combined = 0
        """Of ``pieces`` so many are told to the combinations."""
        self._lock = threading.Lock()

    def at(self, moment: int) -> Standing:
        """What it stands at; before what is kept that of its begin, behind what is told that of its end."""
        pieces = self.pieces
        piece = next((one for one in reversed(pieces) if one.window.start <= moment), pieces[0])
        return Standing(piece, min(max(moment, piece.window.start), piece.window.end - 1), self._counted)

    def combinations(self, standing: Standing) -> tuple[Sequence[tuple[int, ...]], Times]:
        """Which adapters were in flight together so far, and when last; see ``Combinations``."""
        with self._lock:
            self._combine()
            return self._combinations.codes, self._combinations.last(standing)

    def go_on(self, meter: Meter, window: Window) -> None:
        """Add the next window."""
        last, start = self.pieces[-1], window.start
        end = Standing(last, last.window.end - 1, self._counted)
        offsets = {name: end.count(name) - count(meter, start - 1) for name, count in self._counted.items()}
        piece = Piece(window, meter, offsets, end.slots(), end.cached(), end.last_step())
        kept = tuple(one for one in self.pieces if one.window.end > start - self._keep)
        with self._lock:
            self._combine()
            self._combinations.forget(kept[0].window.start if kept else start)
            self.pieces, self._combined = (*kept, piece), len(kept)

    def _combine(self) -> None:
        for piece in self.pieces[self._combined :]:
            self._combinations.go_on(piece.meter.life, piece.window)
        self._combined = len(self.pieces)


class Pod:
    """The engine processes of one pod, in the order of their begins, as far as they are told. ``keep``: see ``Process``."""

    def __init__(self, pool: str, name: str, adapters: int, keep: int = 0) -> None:
        self.pool, self.name = pool, name
        self.processes: list[Process] = []
        self._adapters, self._keep = adapters, keep

    def at(self, moment: int) -> Process | None:
        """The process that runs at a moment, before the first one that; None where none is told so far."""
        running = (one for one in reversed(self.processes) if one.begin <= moment)
        return next(running, self.processes[0] if self.processes else None)

    def whole(self, meter: Meter) -> None:
        """Add the next process, of which all is told."""
        self.processes.append(Process(meter, Window(meter.life.begin, FOREVER), self._adapters))

    def go_on(self, life: Life, window: Window) -> None:
        """Add the next window of the process that runs, or of the one behind it."""
        meter = Meter(life)
        if self.processes and self.processes[-1].boot == life.boot:
            self.processes[-1].go_on(meter, window)
        else:
            window = Window(max(window.start, life.begin), window.end)
            self.processes.append(Process(meter, window, self._adapters, self._keep))


def _by_adapter(name: str, adapters: int, meter: Meter, moment: int) -> Counts:
    """What ``CAME``, ``ENDED`` or ``LOST`` says."""
    if name == CAME:
        return np.asarray(attempts([meter.came], np.array([moment]), adapters)[0])
    life = meter.life
    over = meter.finish_order[: np.searchsorted(meter.finishes, moment, side="right")]
    which = over if name == ENDED else over[life.cut[over]]
    codes = life.adapter[which]
    if life.end <= moment:
        codes = np.concatenate([codes, life.asked.adapter[life.refused]])
    return np.asarray(np.bincount(np.maximum(codes.astype(np.int64), -1) + 1, minlength=adapters + 1))
