"""What advice is learned from and judged by: one pool's requests in order, with what its loads cost and its pods hold."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import DAY, Window
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import Trace


@dataclass(frozen=True, slots=True)
class History:
    """
    A pool's requests over ``window``, ready to be replayed.

    ``trace`` holds them in order of arrival, with the pod that served each; ``names`` by adapter code, ``pods`` by pod code,
    ``slots`` one number for each pod. By adapter code: ``load_seconds`` (mean of its measured loads from where it mostly came,
    or of those of its rank; NaN where nobody measured any), ``bytes`` (−1: unknown), ``first_seen`` (µs UTC, may lie before the
    window), ``experiment`` (announced or named as one). ``pinned`` are (pod, adapter) codes that the engines hold pinned now.
    ``changes`` are times (µs UTC) at which the mix of adapters changed for good: what lies before is another regime.
    ``registered`` are the names that API servers serve, with or without requests (None: nobody told).
    ``provenance`` is the worst of the rows'. ``gaps`` says in words what is missing.

    Memory: 24 bytes a request.
    """

    window: Window
    trace: Trace
    names: tuple[str, ...]
    pods: tuple[str, ...]
    slots: tuple[int, ...]
    load_seconds: NDArray[np.float64]
    bytes: NDArray[np.int64]
    first_seen: NDArray[np.int64]
    experiment: NDArray[np.bool_]
    pinned: tuple[tuple[int, int], ...] = ()
    changes: tuple[int, ...] = ()
    provenance: str | None = None
    gaps: tuple[str, ...] = field(default=())
    registered: tuple[str, ...] | None = None

    def during(self, window: Window) -> "History":
        """The requests that came in ``window``; codes, pods and what is known of adapters stay."""
        first, end = np.searchsorted(self.trace.at, [window.start, window.end])
        cut = slice(int(first), int(end))
        trace = Trace(
            self.trace.adapter[cut],
            adapters=self.trace.adapters,
            pod=self.trace.pods_or_one()[cut],
            pods=self.trace.pods,
            at=self.trace.at[cut],
            hold=self.trace.hold[cut],
        )
        return replace(self, window=window, trace=trace)

    def fleet(self, *, more_slots: int = 0, more_pods: int = 0, pins: tuple[tuple[int, int], ...] | None = None) -> Fleet:
        """The pool's pods with so many slots more each and so many pods more; ``pins`` instead of its own."""
        slots = [one + more_slots for one in self.slots] + [min(self.slots) + more_slots] * more_pods
        return Fleet(slots, seats=SEATS, pins=self.pinned if pins is None else pins)

    def seconds_of_loads(self, adapters: int | None = None) -> NDArray[np.float64]:
        """
        What a load takes by adapter code, of so many ``adapters`` (all by default; those above are new). Of those that nobody
        measured, and of new ones, the mean of the others; NaN where nobody measured any.
        """
        known = np.isfinite(self.load_seconds)
        mean = float(self.load_seconds[known].mean()) if known.any() else float("nan")
        seconds = np.full(max(adapters or 0, len(self.load_seconds)), mean)
        seconds[: len(self.load_seconds)][known] = self.load_seconds[known]
        return seconds

    @property
    def day(self) -> NDArray[np.int64]:
        """The day of each request, counted from the window's start: the blocks that a bootstrap draws."""
        return np.asarray((self.trace.at - self.window.start) // DAY, dtype=np.int64)

    @property
    def days(self) -> int:
        """Days that the window touches."""
        return -(-(self.window.end - self.window.start) // DAY)


SEATS = 256
"""vLLM's ``max_num_seqs`` by default: requests that run at once on a pod."""
