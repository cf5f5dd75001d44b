"""One iteration of each job: what the service does on a tick, and what a test or a command does by hand. Times are µs UTC."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from lora_watch.diagnose.finding import Finding
from lora_watch.diagnose.life import Lived, Phase, Rules, State, advance, remember
from lora_watch.diagnose.stored import rows, states
from lora_watch.errors import StoreConflict
from lora_watch.model import DAY, SECOND, Window
from lora_watch.schema import ADVICE, FINDINGS, HOURS, Batch
from lora_watch.sources.base import Source
from lora_watch.store.days import replace_day
from lora_watch.store.tables import Ledger, Store

ATTEMPTS = 10
"""How often a source is read again when another service commits in between; the last failure is passed on."""
LOOKS = "findings"
"""The stream of looks: its position is when somebody looked last, µs UTC. Every look moves it, so two at once conflict."""
GIVEN = "advice"
"""The stream of advice: its position is when somebody gave some last, µs UTC."""
Find = Callable[[Window], Sequence[Finding]]
"""What diagnoses a window."""


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


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """What one look told: the states that changed, and what went wrong beside it."""

    states: tuple[State, ...]
    problems: tuple[str, ...] = ()


class Diagnoser:
    """
    The lives of findings as one service knows them: each look reads what others told since its own last one.

    A life that is not closed and was told within ``lookback`` (µs) goes on after a restart.
    """

    def __init__(self, store: Store, find: Find, rules: Rules | None = None, *, lookback: int = 30 * DAY) -> None:
        self._store = store
        self._find = find
        self._rules = rules or Rules()
        self._lookback = lookback
        self._ledger = store.ledger(FINDINGS)
        self._lives: tuple[Lived, ...] = ()
        self._read_to: int | None = None

    def look(self, window: Window, *, now: int) -> Diagnosed:
        """
        Diagnose the window and store the states that changed at its end; ``now`` dates the commit (both µs UTC).

        A look that is not later than the last one, whoever's it was, tells nothing; where that one lies well ahead it is a
        problem. Raises LoraWatchError where the diagnosis failed, StoreError where nothing could be stored: the next look tells
        what this one did not.
        """
        at, found = window.end, self._find(window)
        for attempt in range(ATTEMPTS):
            looked = self._ledger.refresh().get(LOOKS)
            if looked is not None and at <= looked:
                if self._read_to is None or self._read_to <= looked:  # what is open is known all the same
                    self._lives, self._read_to = self._known(looked + 1), looked + 1
                return Diagnosed((), self._ahead(looked - at))
            lives = self._known(at)
            done = advance(lives, found, at, self._rules, looked=looked)
            try:
                self._ledger.append(Batch(rows(done.states), {LOOKS: at}), at=now)
            except StoreConflict:
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            self._lives, self._read_to = done.lives, at + 1
            return Diagnosed(done.states)
        raise AssertionError("unreachable: the last attempt returns or raises")

    @property
    def open(self) -> tuple[State, ...]:
        """What was last told of each finding that goes on, as of the last look."""
        return tuple(life.told for life in self._lives if not life.closed)

    def _ahead(self, by: int) -> tuple[str, ...]:
        if by <= self._rules.blind_after:  # another service was a little earlier
            return ()
        return (
            f"the last look at findings is dated {by // SECOND} s ahead of the clock: no change of them is stored until then",
        )

    def _known(self, at: int) -> tuple[Lived, ...]:
        """The lives with what was told since they were read."""
        if self._read_to is not None:
            new = self._store.rows(FINDINGS, Window(self._read_to, at)) if self._read_to < at else FINDINGS.empty()
            return remember(states(new), self._lives)
        told = Window(at - self._lookback, at)
        last = self._store.rows(FINDINGS, told, columns=("id", "at", "state")).sort("at").group_by("id").last()
        goes_on = (pl.col("state") != Phase.CLOSED) | (pl.col("at") > at - self._rules.remember)
        wanted = last.filter(goes_on.fill_null(value=True))
        if wanted.is_empty():
            return ()
        mine = pl.col("id").is_in(wanted["id"].to_list()) & pl.col("at").is_in(wanted["at"].unique().to_list())
        return remember(states(self._store.rows(FINDINGS, told, mine)))


def close_hours(
    store: Store,
    stale: Callable[[int], Sequence[Window]],
    of_day: Callable[[Window], pl.DataFrame],
    *,
    until: int,
    goes_on: Callable[[], bool] = lambda: True,
) -> int:
    """
    Store what the hours up to ``until`` (µs UTC) say, the newest day first, as long as it ``goes_on``; returns the days done.

    ``stale`` tells which days are to be worked out, ``of_day`` works one out. A day is replaced as a whole, so it may be done
    again, by anybody. Raises StoreError where a table can't be read or written.
    """
    done = 0
    for window in reversed(stale(until)):
        if done and not goes_on():
            break
        replace_day(store, HOURS, window.start, of_day(window))
        done += 1
    return done


def advise(store: Store, give: Callable[[], pl.DataFrame], *, now: int, every: int) -> int:
    """
    Store new advice where the last, whoever's it was, is ``every`` (µs) old; returns the pools it is about, 0 where it is not
    due.

    ``give`` works it out: rows of ADVICE. Raises what it raises, and StoreError where nothing could be stored: the next look
    tries again.
    """
    ledger = store.ledger(ADVICE)
    last = ledger.refresh().get(GIVEN)
    if last is not None and now < last + every:
        return 0
    found = give()
    try:
        return ledger.append(Batch(found, {GIVEN: now}), at=now).rows
    except StoreConflict:  # another service gave it meanwhile
        return 0
