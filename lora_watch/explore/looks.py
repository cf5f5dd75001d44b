"""Looks for findings, as the service has them: one at a time, with a memory that goes on from one to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from threading import Lock

from lora_watch.config import DiagnoseSettings
from lora_watch.diagnose.diagnosis import Diagnosis, in_order
from lora_watch.diagnose.finding import Finding
from lora_watch.diagnose.life import Phase, State
from lora_watch.diagnose.stored import states
from lora_watch.explore.situation import Given, Memory, diagnosis, readable
from lora_watch.model import DAY, HOUR, MINUTE, Window
from lora_watch.schema import FINDINGS
from lora_watch.store.tables import Store

LONGEST = 6 * HOUR
"""A look is about the whole of a window that is no longer than this; of a longer one, as the service's, about the last hour."""
KEPT_OPEN = 15 * MINUTE
"""A stored finding that was last seen so long before the end of a window is not open there any more."""
TOLD_BACK = 7 * DAY
"""So far back the beginning of what is open is looked for among stored findings."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was found; ``phases`` tells of stored findings, by their key, how they go; ``problems``: what could not be read."""

    diagnosis: Diagnosis
    phases: Mapping[str, Phase]
    problems: tuple[str, ...]


class Looks:
    """Looks at one store. Threads may share it: one looks at a time."""

    def __init__(self, store: Store, lookback: int, settings: DiagnoseSettings) -> None:
        self._store = store
        self._settings = settings
        self._memory = Memory(store, lookback)
        self._given = Given(expected=(), routers=(), files=())
        self._lock = Lock()

    def __call__(self, window: Window) -> Look:
        """The diagnosis of the end of a window, findings since when they were stored first. StoreError where one is damaged."""
        with self._lock:
            self._given, problems = readable(self._settings, self._given)
            part = window if window.end - window.start <= LONGEST else Window(window.end - HOUR, window.end)
            told = diagnosis(self._memory, part, **self._given)
            open_now = stored(self._store, window.end)
        known = {state.finding.key: state for state in open_now}
        found = in_order([_since_stored(one, known.get(one.key)) for one in told.findings])
        phases = {key: state.phase for key, state in known.items()}
        return Look(replace(told, findings=found), phases, tuple(sorted(problems)))


def stored(store: Store, end: int) -> list[State]:
    """The stored findings that are open at ``end`` (µs UTC), each as it was told last."""
    rows = store.rows(FINDINGS, Window(end - TOLD_BACK, end + 1))
    newest: dict[str, State] = {}
    for state in states(rows):
        newest[state.id] = state
    return [state for state in newest.values() if state.phase is not Phase.CLOSED and state.at >= end - KEPT_OPEN]


def _since_stored(found: Finding, state: State | None) -> Finding:
    return found if state is None or found.until is not None else replace(found, since=min(found.since, state.finding.since))
