"""
History out of Prometheus: a fixed span, read forward in steps whose size follows what comes, each committed by itself.

Its streams are ``prom/<server>@<start>/<metric>``: the same command goes on where it stopped, and an import never moves the
positions of the service, which reads the present under the server's own name.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from lora_watch import names
from lora_watch.model import DAY, HOUR, SECOND, Window
from lora_watch.schema import Batch, Table
from lora_watch.sources import vllm
from lora_watch.sources.base import Source, stream
from lora_watch.sources.prometheus import MILLISECOND, Reading

ROWS_A_STEP = 250_000
"""Rows that one commit should hold: few enough for memory, enough for the table's files."""
EMPTY_STEPS = 32
"""Steps that brought nothing and are committed together."""
TOGETHER: tuple[str, ...] = (names.ADAPTER_LOADED, names.GPU_ADAPTERS, names.LORA_REQUESTS_INFO)
"""Read in one step: where residents are named, the stock gauge is not read."""
VLLM_GROUPS: tuple[tuple[str, ...], ...] = (TOGETHER, *((metric,) for metric in vllm.SERIES if metric not in TOGETHER))
READING = Reading(history=0, lag=0, settle=0, samples=ROWS_A_STEP, span=DAY, again=1 << 62)
"""No lag, nothing to settle, no looking back: a span of the past has been written."""


def history_id(server: str, start: int) -> str:
    """
    The name of an import: the server and where it begins, so that the same command finds its positions.

    >>> history_id("prometheus", 1_796_000_000_000_000)
    'prometheus@2026-11-30T00:53:20Z'
    """
    moment = datetime.fromtimestamp(start / SECOND, UTC).isoformat(timespec="auto").replace("+00:00", "Z")
    return f"{server}@{moment}"


class HistoryOf:
    """
    One source over the span of ``window``, some of whose streams (``metrics``) are read in step.

    Each ``read`` goes one step on from the stream that is furthest behind, and never past the span's end. The next step is as
    long as it takes for ROWS_A_STEP rows, as dense as they came, at most four times this one, at most a day. After a failure it
    is a quarter.
    """

    def __init__(self, inner: Source, metrics: Sequence[str], window: Window) -> None:
        self.name = inner.name
        self.table: Table = inner.table
        self._inner = inner
        self._window = Window(window.start, window.end // MILLISECOND * MILLISECOND)  # as fine as Prometheus' times
        self._streams = tuple(stream("prom", inner.name, metric) for metric in metrics)
        self._step = HOUR

    def begins(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Where each stream stands: its position, else the start of the span."""
        return {name: positions.get(name, self._window.start) for name in self._streams}

    def done(self, positions: Mapping[str, int]) -> int:
        """How much of the span has been read, µs: that of the stream furthest behind."""
        return min(self._window.end, *self.begins(positions).values()) - self._window.start

    @property
    def whole(self) -> int:
        """The length of the span, µs."""
        return self._window.end - self._window.start

    def read(self, positions: Mapping[str, int], _until: int) -> Batch:
        """One step; steps in which nothing is stored are taken together, since each commit costs."""
        moved: dict[str, int] = {}
        problems: dict[str, None] = {}
        for _ in range(EMPTY_STEPS):
            begins = {**self.begins(positions), **moved}
            behind = min(begins.values())
            if behind >= self._window.end:
                break
            step = self._step
            self._step = max(SECOND, step // 4)
            batch = self._inner.read(begins, min(self._window.end, behind + step))
            self._step = max(SECOND, min(DAY, 4 * step, step * ROWS_A_STEP // max(batch.rows.height, 1)))
            moved |= batch.positions
            problems |= dict.fromkeys(batch.problems)
            if batch.rows.height or not batch.positions:
                return Batch(batch.rows, moved, tuple(problems))
        return Batch(self.table.empty(), moved, tuple(problems))


class Again:
    """
    The part of a span that an earlier run has read, once more: what came late is new, everything else is stored already.

    Its positions are its own and are never committed: ``upto`` says how far the earlier run had come in each stream.
    """

    def __init__(self, history: HistoryOf, upto: Mapping[str, int]) -> None:
        self.name = history.name
        self.table = history.table
        self._history = history
        self._upto = dict(upto)
        self._here: dict[str, int] = {}
        self._read: Mapping[str, int] = {}

    @property
    def left(self) -> bool:
        """Is there more to look through?"""
        here = self._history.begins(self._here)
        return any(here[name] < end for name, end in self._upto.items())

    def taken(self) -> bool:
        """What the last ``read`` brought is stored: go on behind it. False where it brought nothing on."""
        self._here |= self._read
        moved, self._read = bool(self._read), {}
        return moved

    def read(self, _positions: Mapping[str, int], until: int) -> Batch:
        """One step, the same one until it is ``taken``."""
        batch = self._history.read(self._here, until)
        self._read = batch.positions
        return Batch(batch.rows, {}, batch.problems)
