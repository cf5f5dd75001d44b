"""
What a report is written of: headings, sentences, tables and charts, all of raw text; how they look is the writers' business.
"""

from dataclasses import dataclass
from enum import StrEnum

from lora_watch.model import Window


class Tone(StrEnum):
    """What a text means, where a colour says it too; never by colour alone."""

    PLAIN = ""
    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    DIM = "dim"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text in a table, with more of it in ``sub``. ``bar``: a share (0 … 1) drawn behind it, where there is one."""

    text: str
    tone: Tone = Tone.PLAIN
    bar: float | None = None
    sub: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading; numbers stand at the right. ``name``: what stands in it is a name that anybody may have chosen."""

    title: str
    number: bool = False
    name: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """A table with its caption."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A course: ``points`` are (µs UTC, value); None is a gap."""

    title: str
    points: tuple[tuple[int, float | None], ...]
    unit: str = ""
    role: str = "line"


@dataclass(frozen=True, slots=True)
class Course:
    """
    Lines under one another over one window; ``bands`` are spans (µs UTC) in which something was wrong, with its severity. Of
    what is outside ``held`` nothing is known.
    """

    title: str
    about: str
    window: Window
    held: Window | None
    lines: tuple[Line, ...]
    bands: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """One estimate: its name, value and interval, in shares; None is unknown."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    tone: Tone = Tone.PLAIN
    note: str = ""


@dataclass(frozen=True, slots=True)
class Estimates:
    """Estimates under one another on one axis of shares; 0 is the present."""

    title: str
    about: str
    marks: tuple[Mark, ...]
    axis: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """One number that is read at a glance."""

    label: str
    value: str
    unit: str = ""
    note: str = ""
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Section:
    """One section: ``lead`` is its answer in a sentence, ``notes`` say how it is known."""

    key: str
    heading: str
    lead: str = ""
    bullets: tuple[str, ...] = ()
    tiles: tuple[Tile, ...] = ()
    charts: tuple[Course | Estimates, ...] = ()
    grids: tuple[Grid, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """The whole: ``title`` and ``subtitle``, the week in ``lines``, ``tiles`` and a course on the first screen, then sections."""

    title: str
    subtitle: str
    lines: tuple[tuple[str, str], ...]
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    footer: str
