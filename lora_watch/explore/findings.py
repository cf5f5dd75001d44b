"""What ``lora-watch incidents`` shows: the stored findings of a window as incidents, for people and for programs."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import polars as pl
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from lora_watch.config import parse_duration
from lora_watch.diagnose.incidents import APART, UNTOLD, Incident, as_json, incidents, named, utc
from lora_watch.diagnose.life import Change
from lora_watch.diagnose.postmortem import as_markdown, as_text
from lora_watch.diagnose.stored import states
from lora_watch.errors import LoraWatchError
from lora_watch.explore.status import bounded
from lora_watch.model import DAY, MINUTE, SECOND, Window
from lora_watch.schema import FINDINGS
from lora_watch.store.tables import Store

LONGEST_BACK = 200 * DAY
"""How far before a window an incident that reaches into it is looked for."""
NAME_WIDTH = 48
TITLE_WIDTH = 300
"""Characters of a name and of a sentence shown to people; programs get them whole."""
SEVERITY_STYLE = {"harm": "bold red", "warn": "yellow", "information": ""}


def told(store: Store, window: Window, now: int) -> tuple[Incident, ...]:
    """
    The incidents that reach into a window, whole, the newest first; ``now`` (µs UTC) tells what is open from what is unknown.

    What began before the window is read from its beginning on, and what went on behind it up to its end: an incident has one name
    and one story whatever the window.
    """
    begin = window.start - APART - UNTOLD
    earliest = window.start - LONGEST_BACK
    until = max(window.end, now + DAY)  # a clock that is ahead loses nothing
    while True:
        found = incidents(states(_news(store.rows(FINDINGS, Window(begin, until)))), now)
        found = tuple(one for one in found if one.start < window.end and (one.end is None or one.end >= window.start))
        wanted = min((one.start - APART - UNTOLD for one in found), default=begin)
        if wanted >= begin or begin <= earliest:
            return found
        begin = max(wanted, earliest)


def _news(told: pl.DataFrame) -> pl.DataFrame:
    """The states without the reminders in between: nothing of a story is in them, and reading a state takes its time."""
    at = pl.col("at")
    ends = (at == at.min().over("id")) | (at == at.max().over("id"))
    return told.filter(pl.col("change").ne_missing(pl.lit(str(Change.STILL))) | ends)


def window_until(last: str, at: str | None, now: int) -> Window:
    """
    The window of a command: ``last`` such as ``7d``, up to ``at`` (ISO 8601 with a zone), else up to ``now``.

    LoraWatchError where either is not readable, or the window is too long.
    """
    try:
        length = round(parse_duration(last).total_seconds() * SECOND)
        end = now + 1 if at is None else moment(at)
        if length <= 0:
            raise ValueError(f"{last!r} is no length of time")
    except (ValueError, OverflowError) as error:
        raise LoraWatchError(f"cannot read the window: {error}") from error
    return bounded(end - length, end)


def moment(text: str) -> int:
    """ISO 8601 with a zone as µs UTC; ValueError otherwise."""
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no moment: write it like 2026-11-30T10:15Z") from None
    if read.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone: add Z or an offset such as +01:00")
    since = read - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds


def one(store: Store, name: str, window: Window, now: int) -> Incident:
    """
    The incident of that name (or with a finding of that name or id) in the window. LoraWatchError, with what to do, where there
    is none.
    """
    found = told(store, window, now)
    incident = named(found, name)
    if incident is None:
        known = ", ".join(each.id for each in found[:5]) or "none"
        raise LoraWatchError(
            f"no incident {name!r} from {utc(window.start)} to {utc(window.end)} (the newest there: {known}); "
            "`lora-watch incidents --last 30d` lists them, and `show` takes --last, too"
        )
    return incident


def list_as_json(found: Sequence[Incident]) -> str:
    """One JSON array, ASCII."""
    return json.dumps([as_json(each) for each in found], default=str)


def show(found: Sequence[Incident], window: Window, newest: int | None, console: Console | None = None) -> None:
    """Print a few lines an incident; where there is none, say so and when the ``newest`` state of a finding was told."""
    console = console or Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
    console.print(f"{utc(window.start)} … {utc(window.end)}", highlight=False)
    if not found:
        last = (
            "no finding was ever told: `lora-watch serve` stores them as it finds them, `lora-watch check` looks once without it"
            if newest is None
            else f"the newest word of a finding is of {utc(newest)}: see --at, --last"
        )
        console.print(f"No incident in this window; {last}.", highlight=False, markup=False)
        return
    for each in found:
        severity = str(each.severity)
        head = Text.assemble(
            "\n",
            (each.id, "bold"),
            "  ",
            (severity, SEVERITY_STYLE.get(severity, "")),
            f"  {utc(each.start)}  {_lasted(each)}  {_printable(f'{each.cluster}/{each.pool}', NAME_WIDTH)}",
        )
        console.print(head)
        console.print(Padding(Text(_printable(each.title)), (0, 0, 0, 4), expand=False))
        if each.cause:
            console.print(Padding(Text(f"why: {_printable(each.cause)}"), (0, 0, 0, 4), expand=False))
    console.print()
    console.print("`lora-watch incidents show ID --format md` drafts the post-mortem.", highlight=False, markup=False)


def rendered(incident: Incident, form: str) -> str:
    """One incident as ``md``, ``text`` or ``json``."""
    if form == "json":
        return json.dumps(as_json(incident), default=str) + "\n"
    return as_markdown(incident) if form == "md" else as_text(incident)


def _lasted(incident: Incident) -> str:
    if incident.end is None:
        return "goes on" if incident.status == "open" else "unknown"
    return f"{max(incident.end - incident.start, 0) / MINUTE:.0f} min"


def _printable(text: str, width: int = TITLE_WIDTH) -> str:
    cut = text if len(text) <= width else f"{text[: width - 1]}…"
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in cut)
