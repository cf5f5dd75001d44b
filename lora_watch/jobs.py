"""One iteration of each job: what the service does on a tick, and what a test or a command does by hand. Times are µs UTC."""

from dataclasses import dataclass

from lora_watch.errors import StoreConflict
from lora_watch.sources.base import Source
from lora_watch.store.tables import Ledger

ATTEMPTS = 10
"""How often a source is read again when another service commits in between; the last failure is passed on."""


@dataclass(frozen=True, slots=True)
class Collected:
    """
    What one read of one source brought.

    ``lost`` counts records the source says were dropped before anyone could read them, ``late`` rows that came after their turn.
    """

    rows: int
    duplicates: int
    lost: int
    late: int
    problems: tuple[str, ...]


def collect(source: Source, ledger: Ledger, *, until: int, now: int) -> Collected:
    """
    Bring a source up to ``until``: read the positions, fetch, commit rows and positions together; again on a conflict.

    Raises SourceError where the whole source failed (nothing was committed, the next tick tries again), StoreError where
    the table did.
    """
    for attempt in range(ATTEMPTS):
        batch = source.read(ledger.refresh(), until)
        try:
            appended = ledger.append(batch, at=now)
        except StoreConflict:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        late = (f"{appended.late} samples came after their time had been read; they are stored now",) if appended.late else ()
        return Collected(appended.rows, appended.duplicates, appended.lost, appended.late, (*batch.problems, *late))
    raise AssertionError("unreachable: the last attempt returns or raises")
