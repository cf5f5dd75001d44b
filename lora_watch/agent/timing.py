"""How long engine steps take and how much of it goes to adapters: by the host's clock, or by CUDA events where a GPU works."""

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

WINDOW_SECONDS = 1.0
UNRESOLVED = 1024
"""Steps whose events may be pending at once; past it the oldest is counted by host time."""


class Event(Protocol):
    """What we use of ``torch.cuda.Event``."""

    def record(self) -> None:
        """Mark this point of the current stream."""

    def query(self) -> bool:
        """Has the stream passed the mark? Never waits."""

    def elapsed_time(self, end: Any, /) -> float:
        """Milliseconds from this mark to ``end``."""


@dataclass(slots=True)
class _Step:
    host_execute: float = 0.0
    host_adapter: float = 0.0
    spans: list[tuple[Any, Any, bool]] = field(default_factory=list)  # start, end, is it adapter work


class StepTimes:
    """
    Sums of the steps since the last ``steps`` record.

    ``wall_seconds`` runs from the end of the last record to the end of the newest step, or from the first step after a second or
    more without one: idle time belongs to no record. With CUDA, steps are summed as their events resolve, a few steps late, and
    nothing ever waits for the stream; events that have not passed by the end of the process are counted by host time.
    """

    def __init__(self, monotonic: Callable[[], float] = time.perf_counter) -> None:
        self.now = monotonic
        self.make_event: Callable[[], Event] | None = None
        self.count = 0
        self.execute_seconds = 0.0
        self.adapter_seconds = 0.0
        self.window_start = 0.0
        self.last_end = float("-inf")
        self._step: _Step | None = None
        self._pending: deque[_Step] = deque()
        self._span_start: Event | None = None
        self._adapter_start: Event | None = None

    def start(self) -> None:
        """A step begins. Without CUDA there is nothing to do, and the caller may leave it out."""
        if self.make_event is not None:
            self._step = _Step()
            self._span_start = self.make_event()
            self._span_start.record()

    def end(self, seconds: float, now: float, *, counts: bool = True) -> None:
        """The step ran ``seconds`` on the host; ``counts`` is False for its second half and for a step without tokens."""
        self.last_end = now
        step = self._step
        if step is None:
            self.execute_seconds += seconds
            self.count += counts
            return
        step.host_execute += seconds
        if self._span_start is not None and self.make_event is not None:
            mark = self.make_event()
            mark.record()
            step.spans.append((self._span_start, mark, False))
            self._span_start = None
        self._step = None
        if counts or step.spans:
            self._pending.append(step)
            self.count += counts
        self.resolve(force=max(len(self._pending) - UNRESOLVED, 0))

    def adapter(self, seconds: float) -> None:
        """``seconds`` of host time inside the step went to adapters."""
        if self._step is None:
            self.adapter_seconds += seconds
        else:
            self._step.host_adapter += seconds

    def adapter_begins(self) -> None:
        """
        Work on adapters is about to be launched on the stream (only where a load is due: an unchanged batch launches nothing).
        """
        if self._step is not None and self.make_event is not None:
            self._adapter_start = self.make_event()
            self._adapter_start.record()

    def adapter_ends(self) -> None:
        """The work on adapters has been launched."""
        if self._step is not None and self.make_event is not None and self._adapter_start is not None:
            mark = self.make_event()
            mark.record()
            self._step.spans.append((self._adapter_start, mark, True))
            self._adapter_start = None

    def resolve(self, force: int = 0) -> None:
        """Add up the steps whose events have passed; the ``force`` oldest are added by host time where they have not."""
        while self._pending:
            step = self._pending[0]
            if all(end.query() for _, end, _ in step.spans):
                for start, end, is_adapter in step.spans:
                    seconds = start.elapsed_time(end) / 1000
                    if is_adapter:
                        self.adapter_seconds += seconds
                    else:
                        self.execute_seconds += seconds
            elif force > 0:
                self.execute_seconds += step.host_execute
                self.adapter_seconds += step.host_adapter
            else:
                return
            force -= 1
            self._pending.popleft()

    def take(self, *, final: bool = False) -> Mapping[str, Any]:
        """The body of a ``steps`` record, and a new window; ``final`` adds what CUDA has not answered for by host time."""
        if self.make_event is not None:
            self.resolve(force=len(self._pending) if final else 0)
        body = {
            "count": self.count,
            "wall_seconds": round(max(self.last_end - self.window_start, 0.0), 6),
            "execute_seconds": round(self.execute_seconds, 6),
            "adapter_seconds": round(self.adapter_seconds, 6),
            "clock": "host" if self.make_event is None else "cuda",
        }
        self.count, self.execute_seconds, self.adapter_seconds = 0, 0.0, 0.0
        self.window_start = self.last_end
        return body


def cuda_events() -> Callable[[], Event] | None:
    """A maker of timing events where CUDA is initialised in this process, else None. Imports nothing."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    cuda = torch.cuda

    def make() -> Event:
        event: Event = cuda.Event(enable_timing=True)
        return event

    return make
