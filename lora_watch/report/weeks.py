"""Weeks as people name them: ISO 8601, Monday to Sunday, UTC."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from lora_watch.errors import LoraWatchError
from lora_watch.model import DAY, SECOND, Window

WEEK = 7 * DAY
LAST = "last"
_NAMED = re.compile(r"(\d{4})-?W(\d{2})", re.ASCII)
_MONDAY = 4 * DAY
"""1970 began on a Thursday: the first Monday was four days later."""


@dataclass(frozen=True, slots=True)
class Week:
    """A week by its ISO name, such as ``2026-W48``, and its window: Monday 00:00 UTC to the next one."""

    name: str
    window: Window

    @property
    def words(self) -> str:
        """
        Its days for people.

        >>> week_named("2026-W10").words
        'Mon 2 Mar – Sun 8 Mar 2026'
        """
        first, last = _day(self.window.start), _day(self.window.end - DAY)
        year = "" if first.year == last.year else f" {first.year}"
        return f"{first:%a} {first.day} {first:%b}{year} – {last:%a} {last.day} {last:%b} {last.year}"

    @property
    def before(self) -> "Week":
        """The week before."""
        return _of_monday(self.window.start - WEEK)


def week_of(at: int) -> Week:
    """
    The week of a moment, µs UTC.

    >>> week_of(1_772_720_640_000_000).name
    '2026-W10'
    """
    return _of_monday((at - _MONDAY) // WEEK * WEEK + _MONDAY)


def week_named(name: str) -> Week:
    """The week of that name. LoraWatchError where it is none, such as ``2026-W54``."""
    match = _NAMED.fullmatch(name.strip())
    if match is None:
        raise LoraWatchError(f"{name[:40]!r} is no week: write it like 2026-W48, or `{LAST}`")
    try:
        monday = date.fromisocalendar(int(match[1]), int(match[2]), 1)
    except ValueError:
        raise LoraWatchError(f"there is no week {name[:40]!r}: a year has 52 or 53") from None
    if not date(1970, 1, 1) <= monday < date(9999, 1, 1):
        raise LoraWatchError(f"nothing can be stored of week {name[:40]!r}: name one from 1970-W02 to 9998-W52")
    return _of_monday((monday - date(1970, 1, 1)).days * DAY)


def chosen(name: str, now: int) -> Week:
    """The week of that name; ``last`` is the last one that has ended at ``now`` (µs UTC). LoraWatchError where it is none."""
    return week_of(now).before if name == LAST else week_named(name)


def _of_monday(start: int) -> Week:
    year, number, _ = _day(start).isocalendar()
    return Week(f"{year}-W{number:02d}", Window(start, start + WEEK))


def _day(at: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at // SECOND)
