"""When a value becomes an alarm and when it stops being one: two limits, each to hold for some time."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lora_watch.model import MINUTE

EPISODES_PER_WEEK = 1.0
"""Alarms a calibrated limit lets through on the history it was learned from."""
SHARE_ON = 0.02
"""Share of that history it may be on: a limit below everything begins one alarm, which never ends."""


@dataclass(frozen=True, slots=True)
class Limits:
    """
    An alarm begins once the value has been above ``enter`` for ``for_`` µs and ends once below ``leave`` for ``keep`` µs.

    Between the limits nothing changes. ValueError where ``leave`` is above ``enter`` or a time is negative.
    """

    enter: float
    leave: float
    for_: int = 0
    keep: int = 0

    def __post_init__(self) -> None:
        if not self.leave <= self.enter:
            raise ValueError(f"an alarm is left at or below where it is entered: {self.enter}, {self.leave}")
        if self.for_ < 0 or self.keep < 0:
            raise ValueError(f"a limit holds for 0 µs or more, got {self.for_} and {self.keep}")


@dataclass(frozen=True, slots=True)
class State:
    """
    Where an alarm stands: ``on``, ``since`` (µs UTC of its last change, null before the first), ``pending`` (µs UTC since when
    the value has been past the other limit without a break), ``at`` (µs UTC of the newest value).
    """

    on: bool = False
    since: int | None = None
    pending: int | None = None
    at: int | None = None


def step(state: State, limits: Limits, at: int, value: float | None) -> State:
    """
    The state after one more value at ``at`` (µs UTC).

    Unknown (null, NaN) neither begins nor ends an alarm: what was pending starts anew. A value that is not newer than the last
    changes nothing. An alarm is ``since`` the moment its value passed the limit, not since it had done so long enough.

    >>> limits = Limits(enter=0.7, leave=0.55, for_=2, keep=10)
    >>> seen = State()
    >>> for at, value in enumerate([0.5, 0.8, 0.9, 0.8]):
    ...     seen = step(seen, limits, at, value)
    >>> seen.on, seen.since
    (True, 1)
    """
    if state.at is not None and at <= state.at:
        return state
    if value is None or value != value:
        return replace(state, pending=None, at=at)
    past = value < limits.leave if state.on else value > limits.enter
    if not past:
        return replace(state, pending=None, at=at)
    pending = at if state.pending is None else state.pending
    if at - pending >= (limits.keep if state.on else limits.for_):
        return State(on=not state.on, since=pending, pending=None, at=at)
    return replace(state, pending=pending, at=at)


def episodes(values: Iterable[tuple[int, float | None]], limits: Limits) -> tuple[int, int]:
    """How often an alarm with these limits begins over (µs UTC, value) in order of time, and how long it is on (µs)."""
    state, begun, lasted = State(), 0, 0
    for at, value in values:
        after = step(state, limits, at, value)
        begun += after.on and not state.on
        lasted += at - state.at if state.on and state.at is not None else 0
        state = after
    return begun, lasted


def calibrated(
    values: Iterable[tuple[int, float | None]],
    *,
    fallback: float,
    least: float,
    leave_share: float = 0.7,
    for_: int = 0,
    keep: int = 10 * MINUTE,
    days: float = 7.0,
) -> Limits:
    """
    The lowest limit that would have begun at most ``EPISODES_PER_WEEK`` alarms on the user's own history and been on for at most
    ``SHARE_ON`` of it, never below ``least``.

    ``values`` are (µs UTC, value) in order of time; ``leave`` is ``leave_share`` of ``enter``. With less than ``days`` between
    the first and the last known value it is ``fallback``: a few days say nothing of the rare. What was an incident in the
    history raises the limit: leave it out. Found by bisection over the values, so a history of a month takes about a second.
    """
    known = [(at, value) for at, value in values if value is not None and value == value]
    span = (known[-1][0] - known[0][0]) / (1440 * MINUTE) if known else 0.0
    if span < days:
        return Limits(fallback, leave_share * fallback, for_, keep)
    allowed = EPISODES_PER_WEEK * span / 7
    levels = sorted({value for _, value in known})
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        enter = levels[middle]
        begun, lasted = episodes(known, Limits(enter, leave_share * enter, for_, keep))
        if begun <= allowed and lasted <= SHARE_ON * (known[-1][0] - known[0][0]):
            high = middle
        else:
            low = middle + 1
    enter = max(levels[low], least)
    return Limits(enter, leave_share * enter, for_, keep)
