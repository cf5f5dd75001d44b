"""Answers to questions about the store: each worked out once, in the background, and kept as long as there is room."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")

KEPT = 256
"""Answers that are kept: those of a month by days, some times over. They are derived results, kilobytes each."""
LINES = 64
"""Lines of questions of which the newest answer is kept for who comes while the next one is worked out."""
WORKERS = 2
"""Questions worked on at once: more would only share the processors and add up their memory."""


class Answers:
    """
    What was asked, and its answer once there is one. Threads may share it.

    A question names everything that its answer depends on, the window too; of ``keep`` questions the one that was not asked for
    longest is forgotten. Who asks for what is being worked on gets the same future. A failure is handed out, and forgotten
    with the next question: whoever asks again after it lets it be tried again.
    """

    def __init__(self, *, keep: int = KEPT, workers: int = WORKERS) -> None:
        self._keep = keep
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="answer")
        self._held: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._told: OrderedDict[Hashable, tuple[Hashable, Any]] = OrderedDict()
        self._lock = Lock()

    def ask(self, question: Hashable, answer: Callable[[], T]) -> Future[T]:
        """The answer, or the promise of it; ``answer`` works it out where nobody has yet."""
        with self._lock:
            held = self._held.pop(question, None)
            if held is not None and held.done() and held.exception() is not None:
                return held
            if held is None:
                held = self._workers.submit(answer)
            self._held[question] = held
            while len(self._held) > self._keep:
                _, oldest = self._held.popitem(last=False)
                oldest.cancel()
            return held

    def keep(self, line: Hashable, moment: Hashable, answer: Any) -> None:
        """This is the newest answer on a line of questions that differ in their moment only, whoever looks."""
        with self._lock:
            self._told.pop(line, None)
            self._told[line] = (moment, answer)
            while len(self._told) > LINES:
                self._told.popitem(last=False)

    def newest(self, line: Hashable) -> tuple[Any, Any] | None:
        """The newest answer on a line, with its moment; None where none is kept."""
        with self._lock:
            return self._told.get(line)

    def __len__(self) -> int:
        return len(self._held)

    def close(self) -> None:
        """Drop what was not begun, and wait for what was."""
        self._workers.shutdown(cancel_futures=True)
