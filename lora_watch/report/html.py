"""
The report as one HTML file: nothing to fetch, no script, light and dark, made for print too.

Every text becomes markup only through :mod:`lora_watch.explore.markup`, which escapes it; and the page forbids itself scripts and
requests, should anything ever slip through.
"""

from importlib.resources import files

from lora_watch.explore.markup import Markup, name, shown, tag, together
from lora_watch.report.blocks import Cell, Column, Course, Document, Estimates, Grid, Section, Tile, Tone
from lora_watch.report.sections import document
from lora_watch.report.svg import course, estimates
from lora_watch.report.weekly import WeeklyReport

LONGEST = 900
"""Characters of one text; a name of 10 kB is cut, with a mark."""
SHORT = 24
"""Characters of a text that is not broken into lines."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
ACTS = 3
"""Of the five lines, the one that says what to do."""


def html(report: WeeklyReport, *, charts: bool = True) -> str:
    """The whole page. Without ``charts`` it is for readers of mail, most of which draw no SVG."""
    told = document(report)
    head = together(
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", _cut(f"{told.title} – {told.subtitle}")),
        tag("style", Markup(files("lora_watch.report").joinpath("style.css").read_text(encoding="utf-8"))),
    )
    page = tag("html", tag("head", head), tag("body", tag("main", _body(told, charts=charts))), lang="en")
    return f"<!doctype html>\n{page}\n"


def _body(told: Document, *, charts: bool) -> Markup:
    links = [tag("a", section.heading, href=f"#{_anchor(number, section)}") for number, section in enumerate(told.sections)]
    return together(
        tag("header", tag("h1", told.title), tag("p", _cut(told.subtitle))),
        tag("dl", (_line(number, *line) for number, line in enumerate(told.lines)), class_="lines"),
        tag("div", (_tile(one) for one in told.tiles), class_="tiles"),
        tag("nav", links, aria_label="Sections"),
        (_section(number, section, charts=charts) for number, section in enumerate(told.sections)),
        tag("footer", told.footer),
    )


def _line(number: int, question: str, text: str) -> Markup:
    kind = {0: "first", ACTS: "act"}.get(number)
    return tag("div", tag("dt", question), tag("dd", _cut(text)), class_=kind)


def _tile(one: Tile) -> Markup:
    return tag(
        "div",
        tag("div", one.label, class_="label"),
        tag("div", one.value, f" {one.unit}" if one.unit else "", class_=f"value {one.tone}".rstrip()),
        tag("div", _cut(one.note), class_="note"),
        class_="tile",
    )


def _section(number: int, one: Section, *, charts: bool) -> Markup:
    anchor = _anchor(number, one)
    return tag(
        "section",
        tag("h2", _cut(one.heading), id=f"{anchor}-title"),
        tag("p", _cut(one.lead)) if one.lead else "",
        tag("ul", (tag("li", _cut(bullet)) for bullet in one.bullets)) if one.bullets else "",
        (_chart(chart) for chart in one.charts) if charts else "",
        (_grid(grid) for grid in one.grids),
        (tag("p", _cut(note), class_="note") for note in one.notes),
        id=anchor,
        aria_labelledby=f"{anchor}-title",
    )


def _chart(chart: Course | Estimates) -> Markup:
    if isinstance(chart, Course):
        return tag("figure", tag("figcaption", _cut(chart.about)), course(chart))
    return tag(
        "figure", tag("figcaption", _cut(f"{chart.title} ({chart.axis})" if chart.axis else chart.title)), estimates(chart)
    )


def _grid(grid: Grid) -> Markup:
    heads = [tag("th", column.title, scope="col", class_="n" if column.number else None) for column in grid.columns]
    rows = (
        tag("tr", (_cell(place, column, cell) for place, (column, cell) in enumerate(zip(grid.columns, row, strict=True))))
        for row in grid.rows
    )
    table = tag("table", tag("caption", _cut(grid.caption)), tag("thead", tag("tr", heads)), tag("tbody", rows))
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=grid.caption[:200])


def _cell(place: int, column: Column, cell: Cell) -> Markup:
    short = ["short"] if len(cell.text) <= SHORT else []
    kinds = ["n"] if column.number else ["name"] if column.name else short
    inside: Markup | str = _named(cell.text) if column.name else _cut(cell.text)
    if cell.bar is not None:
        kinds.append("bar")
        inside = together(
            tag("i", style=f"width:{60 * min(max(cell.bar, 0.0), 1.0):.1f}%", aria_hidden="true"), tag("span", inside)
        )
    if cell.sub:
        sub = _named(cell.sub) if column.name else _cut(cell.sub)
        inside = together(tag("div", inside), tag("div", sub, class_="sub"))
    if cell.tone is not Tone.PLAIN:
        kinds.append(str(cell.tone))
    return tag("td" if place else "th", inside, scope=None if place else "row", class_=" ".join(kinds) or None)


def _named(text: str) -> Markup:
    """A text that anybody may have written, in its own direction of writing."""
    return tag("bdi", name(text) if len(text) > LONGEST else text)


def _cut(text: str) -> str:
    clean = shown(text)
    return clean if len(clean) <= LONGEST else f"{clean[: LONGEST - 1]}…"


def _anchor(number: int, one: Section) -> str:
    return f"{one.key}-{number}"
