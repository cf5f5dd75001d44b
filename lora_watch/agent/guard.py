"""What keeps our mistakes out of the engine: every hook's own part runs under a guard that counts and never raises."""

import logging
from types import TracebackType

_LOG = logging.getLogger("lora_watch.agent")


class Guard:
    """
    A context that swallows an exception of ours, counts it, and says it once per kind at WARNING.

    What is not an ``Exception`` (a shutdown, an interrupt) passes: it is not ours.

    >>> guard = Guard()
    >>> with guard:
    ...     raise KeyError("slot")
    >>> guard.failures
    1
    """

    __slots__ = ("_said", "failures")

    def __init__(self) -> None:
        self.failures = 0
        self._said: set[tuple[str, int]] = set()

    def __enter__(self) -> "Guard":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        self.failed(error)
        return True

    def failed(self, error: Exception) -> None:
        """Count ``error``; log it if this kind at this line is new (at most 64 are told apart)."""
        self.failures += 1
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        key = (type(error).__name__, where.tb_lineno if where is not None else 0)
        if key in self._said or len(self._said) >= 64:
            return
        self._said.add(key)
        _LOG.warning("lora_watch could not record something; the engine goes on (said once): %s", error, exc_info=error)
