"""The contract of a source, and the names of its streams."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol
from urllib.parse import quote, unquote

from lora_watch.schema import Batch, Table


class Source(Protocol):
    """
    One system read from outside, into exactly one table.

    ``read`` brings every row the streams gained since ``positions`` and before ``until`` (µs UTC, exclusive), as far as the
    positions it returns. It raises only SourceError, and only where nothing at all could be read; trouble with one pod, series
    or line is a problem in the batch. Reading twice from the same positions is harmless: rows carry a key.
    """

    name: str
    table: Table

    def read(self, positions: Mapping[str, int], until: int) -> Batch:
        """The rows after ``positions`` and before ``until``, complete up to the positions of the batch."""


AGENTS_EVENTS = "agents-events"
"""Name of the source that asks the sidecars for events: what bears it is known as far as the looks at the sidecar say."""
MAX_PROBLEMS = 20
"""Problems of one page or log told one by one; the rest are counted."""


class Turns:
    """
    Whom to ask this time: everybody who answered last time, and of those who did not, ``most`` at a time, in turn.

    A pod that is gone costs a time-out. Hundreds of them, asked each time, would hold up the pods that live for minutes.

    >>> turns = Turns(most=1)
    >>> turns.settle({"a": True, "b": False, "c": False}, {"a", "b", "c"})
    >>> turns.pick(["a", "b", "c", "new"]), turns.waiting(["a", "b", "c", "new"])
    (['a', 'new', 'b'], ('1 more pods that did not answer wait for their turn',))
    >>> turns.settle({"a": True, "b": False}, {"a", "b", "c"})
    >>> turns.pick(["a", "b", "c", "new"])
    ['a', 'new', 'c']
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._failed: dict[str, None] = {}  # the one whose turn is next comes first

    def pick(self, names: Sequence[str]) -> list[str]:
        """Those of ``names`` to ask now."""
        there = set(names)
        failed = [name for name in self._failed if name in there]
        return [*(name for name in names if name not in self._failed), *failed[: self._most]]

    def waiting(self, names: Sequence[str]) -> tuple[str, ...]:
        """The problem that some of ``names`` are not asked now, if so."""
        more = sum(name in self._failed for name in names) - self._most
        return (f"{more} more pods that did not answer wait for their turn",) if more > 0 else ()

    def settle(self, answered: Mapping[str, bool], known: Collection[str]) -> None:
        """Take note of who answered, and forget whoever is not ``known`` any more."""
        self._failed = {name: None for name in self._failed if name in known}
        for name, well in answered.items():
            self._failed.pop(name, None)
            if not well:
                self._failed[name] = None


def capped(problems: Sequence[str]) -> tuple[str, ...]:
    """
    The first MAX_PROBLEMS problems, and how many more there are.

    >>> capped(["x"] * 22)[-2:]
    ('x', '2 more problems')
    """
    more = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], *([f"{more} more problems"] if more > 0 else []))


def stream(kind: str, *parts: str) -> str:
    """
    The name of a stream: ``kind/part/part``, parts percent-encoded so that any text survives the way back.

    >>> stream("agent", "eu/west", "pod 0", "b1")
    'agent/eu%2Fwest/pod%200/b1'
    """
    return "/".join([kind, *(quote(part, safe="", errors="surrogatepass") for part in parts)])


def parse_stream(name: str) -> tuple[str, ...]:
    """
    Kind and parts of a stream's name: the inverse of ``stream``.

    >>> parse_stream("agent/eu%2Fwest/pod%200/b1")
    ('agent', 'eu/west', 'pod 0', 'b1')
    """
    return tuple(unquote(part, errors="surrogatepass") for part in name.split("/"))


def printable(text: str, limit: int = 80) -> str:
    """
    Foreign text as it may stand in a message: quoted, control characters escaped, cut at ``limit`` characters.

    >>> printable("a" * 100, 3), printable("x\\n")
    ("'aaa…'", "'x\\\\n'")
    """
    if not text[:limit].isprintable():
        return ascii(text[:limit]) + "…" * (len(text) > limit)
    return repr(text if len(text) <= limit else text[:limit] + "…")
