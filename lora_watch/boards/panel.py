"""What a board is made of, as values: panels, their queries and columns, rows of panels."""

import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

GRID = 24
"""Columns of Grafana's grid."""


class Kind(StrEnum):
    """How a panel draws: the panel types of Grafana that boards use."""

    LINES = "timeseries"
    NUMBERS = "stat"
    BARS = "bargauge"
    TABLE = "table"
    STATES = "state-timeline"


class Install(StrEnum):
    """Which installs have the series: ``raw`` is agents and rules alone, ``full`` has the service's exporter as well."""

    RAW = "raw"
    FULL = "full"


BOTH = (Install.RAW, Install.FULL)
FULL_ONLY = (Install.FULL,)


class Step(NamedTuple):
    """From this value on, this colour; the first one of a panel has no value."""

    at: float | None
    colour: str


class Choice(NamedTuple):
    """What is shown in place of a number."""

    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class Query:
    """
    One PromQL expression. ``name`` is a line's legend, or the name of a table's column.

    ``unit``, ``steps`` and ``choices`` are of that column where they are not the panel's; ``installs`` are those that have its
    series, where its panel is for more.
    """

    expr: str
    name: str = ""
    unit: str | None = None
    steps: tuple[Step, ...] = ()
    choices: tuple[tuple[str, Choice], ...] = ()
    installs: tuple[Install, ...] = BOTH


@dataclass(frozen=True, slots=True)
class Column:
    """A label of a table's rows: what it is called, how wide it is (pixels), and where a click on it leads."""

    label: str
    title: str
    width: int | None = None
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """
    One panel. ``definition`` says what is shown, with numerator and denominator; ``provenance`` how it is known.

    ``unit`` is one of Grafana's. ``width`` and ``height`` are cells of the grid. Tables have ``columns`` of labels before those
    of the queries. ``by_pod``: each series is of one pod, so a click on it opens that pod. ``sort``: the name of a
    table's column, and whether the greatest comes first.
    """

    title: str
    kind: Kind
    unit: str
    definition: str
    provenance: str
    queries: tuple[Query, ...]
    width: int = 8
    height: int = 8
    installs: tuple[Install, ...] = BOTH
    decimals: int | None = None
    top: float | None = None
    bottom: float | None = None
    steps: tuple[Step, ...] = ()
    choices: tuple[tuple[str, Choice], ...] = ()
    columns: tuple[Column, ...] = ()
    sort: tuple[str, bool] | None = None
    stacked: bool = False
    by_pod: bool = False

    @property
    def description(self) -> str:
        """What the panel's (i) says: definition, provenance, and which install has the series."""
        words = [self.definition, f"Provenance: {self.provenance}"]
        some = [query.name.split(": ")[-1] for query in self.queries if query.installs == FULL_ONLY]
        if self.installs == FULL_ONLY:
            words.append("Only where the service's exporter is scraped; empty in the raw install.")
        elif some:
            words.append(f"{' and '.join(some)} only where the service's exporter is scraped.")
        return "\n\n".join(words)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading. ``repeat`` names a variable: the row is drawn once for each of its values."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False
    repeat: str | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard: panels of the first screen, then rows. ``variables`` are names that ``scope`` knows."""

    uid: str
    title: str
    description: str
    first: tuple[Panel, ...]
    rows: tuple[Row, ...]
    variables: tuple[str, ...]
    several: tuple[str, ...] = ()
    hours: int = 6


class Place(NamedTuple):
    """A rectangle of the grid."""

    x: int
    y: int
    width: int
    height: int


def placed(panels: tuple[Panel, ...], y: int) -> tuple[list[Place], int]:
    """
    Where panels lie when they are set from left to right from line ``y`` on, and the first free line after them.

    A panel that does not fit on the line begins the next one, below the highest of the line.

    >>> one = Panel("a", Kind.LINES, "s", "what", "how", (Query("up"),), width=16, height=4)
    >>> placed((one, one), 3)
    ([Place(x=0, y=3, width=16, height=4), Place(x=0, y=7, width=16, height=4)], 11)
    """
    places, x, highest = [], 0, 0
    for panel in panels:
        if x + panel.width > GRID:
            x, y, highest = 0, y + highest, 0
        places.append(Place(x, y, panel.width, panel.height))
        x, highest = x + panel.width, max(highest, panel.height)
    return places, y + highest


def stable_id(board: str, title: str) -> int:
    """A number for a panel that stays when others come or go: links to a panel carry it. Below 2³¹, never 0."""
    return zlib.crc32(f"{board}/{title}".encode()) % (2**31 - 1) + 1
