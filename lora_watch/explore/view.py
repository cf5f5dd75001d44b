"""What the explorer is asked to show: a window, and of whom. It stands in the address, so that a link shows the same."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import polars as pl

from lora_watch.config import parse_duration
from lora_watch.links import NAMES
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window

PRESETS = {"15m": 15 * MINUTE, "1h": HOUR, "6h": 6 * HOUR, "24h": DAY, "7d": 7 * DAY, "30d": 30 * DAY}
"""Lengths of windows that are one click away."""
USUAL = "1h"
LONGEST = 366 * DAY
SHORTEST = SECOND
MOST_NAMES = 100
"""Names of one kind that an address may choose: more are no choice."""
OWN, MOST_OWN = "with.", 20
"""How keys begin that are a page's own, and how many there may be."""
_MILLISECOND = 1000
_EVERY = ".*"


@dataclass(frozen=True, slots=True)
class View:
    """
    The window, as ``last`` (up to where the data end) or as a ``span``, and the names that are chosen (none: all).

    ``live``: follow the end of the data; a span does not move. ``own``: what a page itself lets one choose, by its words.
    """

    last: str = USUAL
    span: Window | None = None
    live: bool = False
    cluster: tuple[str, ...] = ()
    pool: tuple[str, ...] = ()
    role: tuple[str, ...] = ()
    pod: tuple[str, ...] = ()
    adapter: tuple[str, ...] = ()
    own: tuple[tuple[str, str], ...] = ()

    def window(self, end: int) -> Window:
        """The window that is meant where the data end at ``end`` (µs UTC)."""
        return self.span if self.span is not None else Window(end - length_of(self.last), end)

    def query(self) -> dict[str, list[str]]:
        """The same as a query string's keys and values; :func:`read` is its inverse."""
        told: dict[str, list[str]] = {}
        if self.span is not None:
            told = {"from": [str(self.span.start // _MILLISECOND)], "to": [str(-(-self.span.end // _MILLISECOND))]}
        else:
            told = {"last": [self.last]}
            if self.live:
                told["live"] = ["1"]
        told |= {name: [_verbatim(one) for one in getattr(self, name)] for name in NAMES if getattr(self, name)}
        return told | {f"{OWN}{key}": [value] for key, value in self.own}

    @property
    def digest(self) -> str:
        """A short name of the view but for what is a page's own, the same for the same one: for widgets that belong to it."""
        return hashlib.sha256(str(replace(self, own=()).query()).encode("utf-8", "backslashreplace")).hexdigest()[:12]

    def of(self, kind: str, names: Sequence[str]) -> "View":
        """The same window, of these names of a kind (a field's name) instead of those that were chosen."""
        chosen: dict[str, Any] = {kind: tuple(names)}
        return replace(self, **chosen)

    def beside(self, pools: pl.DataFrame) -> "View":
        """
        The same without the clusters, pools and roles that leave nobody out, where ``pools`` are all there are (``POOL``, null
        where a row names none): what is asked of all pods is not asked anew of the only pool.
        """
        idle: dict[str, Any] = {
            name: () for name in pools.columns if pools[name].is_in(list(getattr(self, name))).fill_null(value=False).all()
        }
        return replace(self, **idle)

    def pods_where(self) -> pl.Expr | None:
        """Which rows are about the chosen pods, whole pods always; None: all. Adapters do not restrict it: they share slots."""
        chosen = [pl.col(name).is_in(list(getattr(self, name))) for name in NAMES if name != "adapter" and getattr(self, name)]
        return pl.all_horizontal(chosen) if chosen else None


def read(query: Mapping[str, Sequence[str]]) -> tuple[View, tuple[str, ...]]:
    """
    The view that a query string means, and what of it could not be read, in sentences: that part is as if it were absent.

    Keys are those of :mod:`lora_watch.links`; others are nobody's business. A key may stand there several times.
    """
    problems: list[str] = []
    names = {}
    for key in NAMES:
        found = tuple(dict.fromkeys(name for value in query.get(key, ()) for name in _names(value)))
        if len(found) > MOST_NAMES:
            problems.append(f"the address names {len(found)} values of {key}; the first {MOST_NAMES} are shown")
        names[key] = found[:MOST_NAMES]
    last, span = USUAL, None
    if told := _one(query, "last"):
        try:
            length_of(told)
            last = told
        except ValueError as error:
            problems.append(f"`last` in the address cannot be read: {error}")
    if any(_one(query, key) for key in ("from", "to")):
        try:
            span = _span(_one(query, "from"), _one(query, "to"))
        except ValueError as error:
            problems.append(f"the window in the address cannot be read: {error}")
    live = span is None and _one(query, "live") in {"1", "true"}
    own = tuple((key.removeprefix(OWN), _one(query, key)) for key in sorted(query) if key.startswith(OWN))[:MOST_OWN]
    return View(last, span, live, own=own, **names), tuple(problems)


def length_of(last: str) -> int:
    """
    The length in µs of a window such as ``1h``. ValueError where it is none, or longer than ``LONGEST``.

    >>> length_of("15m") == 15 * MINUTE
    True
    """
    length = PRESETS.get(last) or round(parse_duration(last).total_seconds() * SECOND)
    if not SHORTEST <= length <= LONGEST:
        raise ValueError(f"a window is between a second and {LONGEST // DAY} days long, not {last[:40]!r}")
    return length


def moment(at: int) -> str:
    """
    µs UTC as a minute for people; what no calendar holds as it is.

    >>> moment(1_796_000_000_000_000)
    '2026-11-30 00:53'
    """
    try:
        return datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):
        return f"{at} µs"


def days(window: Window) -> list[Window]:
    """
    The window cut at midnight UTC: whole days, and what is left at both ends.

    >>> [part.start // DAY for part in days(Window(DAY - HOUR, 3 * DAY + HOUR))]
    [0, 1, 2, 3]
    """
    cuts = range((window.start // DAY + 1) * DAY, window.end, DAY)
    return [Window(start, end) for start, end in zip([window.start, *cuts], [*cuts, window.end], strict=True)]


def _span(start: str, end: str) -> Window:
    if not (start.isascii() and start.isdigit() and end.isascii() and end.isdigit()) or max(len(start), len(end)) > 15:
        raise ValueError("`from` and `to` are milliseconds since 1970, both of them")
    first, last = int(start) * _MILLISECOND, int(end) * _MILLISECOND
    if not SHORTEST <= last - first <= LONGEST:
        raise ValueError(f"it ends between a second and {LONGEST // DAY} days after it begins")
    return Window(first, last)


def _one(query: Mapping[str, Sequence[str]], key: str) -> str:
    """The last value of a key, empty where there is none."""
    values = query.get(key, ())
    return values[-1] if values else ""


def _names(value: str) -> Iterator[str]:
    if value.startswith("="):
        yield value[1:]
    elif value.startswith("{") and value.endswith("}"):
        for part in value[1:-1].split(","):
            yield from (part,) if part not in ("", _EVERY) else ()
    elif value not in ("", _EVERY):
        yield value


def _verbatim(name: str) -> str:
    """A name as a value that is read as this name."""
    return f"={name}" if name in ("", _EVERY) or name[0] in "={" else name
