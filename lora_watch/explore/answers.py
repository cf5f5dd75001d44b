"""Answers to questions about the store: each worked out once, in the background, and kept as long as there is room."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from threading import RLock
from typing import Any, TypeVar

import polars as pl

T = TypeVar("T")

KEPT = 512
"""Answers that are kept: those of a month by days, some times over."""
ROOM = 96 << 20
"""Bytes that all of them may hold: most are derived results of kilobytes, the cells of a month of a large pool are megabytes."""
LINES = 32
"""Lines of questions of which the newest answer is kept for who comes while the next one is worked out."""
WORKERS = 2
"""Questions worked on at once: more would only share the processors and add up their memory."""


class Answers:
    """
    What was asked, and its answer once there is one. Threads may share it.

    A question names everything that its answer depends on, the window too; of more than ``keep`` questions, or of answers that
    hold more than ``room`` bytes together, those that were not asked for longest are forgotten: all but the newest. Who asks for
    what is being worked on gets the same future. A failure is handed out, and forgotten with the next question: whoever asks
    again after it lets it be tried again.
    """

    def __init__(self, *, keep: int = KEPT, room: int = ROOM, workers: int = WORKERS) -> None:
        self._keep = keep
        self._room = room
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="answer")
        self._held: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._weights: dict[Hashable, int] = {}
        self._told: OrderedDict[Hashable, tuple[Hashable, Any, int]] = OrderedDict()
        self._lock = RLock()  # what is cancelled is counted by who cancels it

    def ask(self, question: Hashable, answer: Callable[[], T]) -> Future[T]:
        """The answer, or the promise of it; ``answer`` works it out where nobody has yet."""
        with self._lock:
            held = self._held.pop(question, None)
            if held is not None and held.done() and held.exception() is not None:
                self._weights.pop(question, None)
                return held
            fresh = held is None
            if held is None:
                held = self._workers.submit(answer)
            self._held[question] = held
            if fresh:
                held.add_done_callback(lambda done: self._weigh(question, done))
            self._forget()
            return held

    def keep(self, line: Hashable, moment: Hashable, answer: Any) -> None:
        """This is the newest answer on a line of questions that differ in their moment only, whoever looks."""
        with self._lock:
            before = self._told.pop(line, None)
            weight = before[2] if before is not None and before[1] is answer else weight_of(answer)
            self._told[line] = (moment, answer, weight)
            while len(self._told) > LINES or sum(kept[2] for kept in self._told.values()) > self._room // 4:
                self._told.popitem(last=False)

    def newest(self, line: Hashable) -> tuple[Any, Any] | None:
        """The newest answer on a line, with its moment; None where none is kept."""
        with self._lock:
            kept = self._told.get(line)
        return None if kept is None else kept[:2]

    def _weigh(self, question: Hashable, done: Future[Any]) -> None:
        weight = 0 if done.cancelled() or done.exception() is not None else weight_of(done.result())
        with self._lock:
            if self._held.get(question) is done:
                self._weights[question] = weight
                self._forget()

    def _forget(self) -> None:
        """Forget the oldest, until there is room."""
        while len(self._held) > 1 and (len(self._held) > self._keep or self.bytes > self._room):
            question, oldest = self._held.popitem(last=False)
            self._weights.pop(question, None)
            oldest.cancel()

    @property
    def bytes(self) -> int:
        """Bytes that the kept answers hold, about."""
        return sum(self._weights.values())

    def __len__(self) -> int:
        return len(self._held)

    def close(self) -> None:
        """Drop what was not begun, and wait for what was."""
        self._workers.shutdown(cancel_futures=True)


def weight_of(answer: object) -> int:
    """
    Bytes that an answer holds, about: of frames their columns, of what holds others these.

    >>> weight_of(pl.DataFrame({"at": [1, 2, 3]}))
    24
    """
    if isinstance(answer, pl.DataFrame | pl.Series):
        return int(answer.estimated_size())
    held: list[Any] = []
    if isinstance(answer, Mapping):
        held = [*answer.keys(), *answer.values()]
    elif isinstance(answer, list | tuple | set | frozenset):
        held = list(answer)
    elif is_dataclass(answer):
        held = [getattr(answer, one.name) for one in fields(answer)]
    return sys.getsizeof(answer) + sum(weight_of(one) for one in held)
