"""
The draft of a post-mortem: what the stored findings say of an incident, and what only people can add. Pure: values in, text out.

Names of adapters are anybody's text: in Markdown each is one line of plain characters, whatever it holds.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lora_watch.diagnose.finding import Finding, Remedy, Severity, ranked
from lora_watch.diagnose.incidents import CERTAIN, Incident, utc
from lora_watch.model import SECOND

FOR_PEOPLE = "TO FILL IN"
"""Marks what no data can say."""
LONGEST = 600
"""Characters of one text; a name of 10 kB is cut, with a mark."""
NAMES_SHOWN = 10
_SPECIAL = re.compile(r"([\\`*\[\]<>|~&#$!@]|(?<![^\W_])_|_(?![^\W_]))")
"""What may begin markup; an underscore inside a word does not."""
_FIRST = re.compile(r"^(\d+)([.)])(?=\s|$)|^([-+=])")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of texts."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, then paragraphs, then a list, then tables under titles of their own. All texts are raw."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    bullets: tuple[str, ...] = ()
    grids: tuple[tuple[str, Grid], ...] = ()


def draft(incident: Incident) -> tuple[Section, ...]:
    """The sections of the post-mortem; the first one's heading is the title."""
    return (
        Section(
            f"Incident {incident.id}: {incident.title}",
            (
                "A draft from stored findings. Times are UTC.",
                f"What is marked {FOR_PEOPLE} is for a person; what is predicted says so.",
            ),
        ),
        _summary(incident),
        _impact(incident),
        Section("Timeline", grids=(("", _timeline(incident)),)),
        _cause(incident),
        Section("Evidence", grids=_evidence(incident)),
        _remedies(incident),
        _avoid(incident),
        _questions(incident),
    )


def as_markdown(incident: Incident) -> str:
    """The draft as Markdown (CommonMark with tables)."""
    lines: list[str] = []
    for number, section in enumerate(draft(incident)):
        lines += [f"{'#' if number == 0 else '##'} {inline(section.heading)}", ""]
        for paragraph in section.paragraphs:
            lines += [inline(paragraph), ""]
        lines += [f"- {inline(bullet)}" for bullet in section.bullets]
        lines += [""] if section.bullets else []
        for title, grid in section.grids:
            lines += [f"### {inline(title)}", ""] if title else []
            lines += [_line(grid.headings), _line(["---"] * len(grid.headings), raw=True)]
            lines += [_line(row) for row in grid.rows]
            lines += [""]
    return "\n".join(lines).rstrip("\n") + "\n"


def as_text(incident: Incident) -> str:
    """The draft for a terminal: the same sections, the cells of a row separated by two spaces and a bar."""
    lines: list[str] = []
    for section in draft(incident):
        lines += [_plain(section.heading), "-" * min(len(_plain(section.heading)), 80)]
        lines += [_plain(paragraph) for paragraph in section.paragraphs]
        lines += [f"* {_plain(bullet)}" for bullet in section.bullets]
        for title, grid in section.grids:
            lines += [f"[{_plain(title)}]"] if title else []
            lines += ["  | ".join(_plain(cell) for cell in row) for row in (grid.headings, *grid.rows)]
        lines += [""]
    return "\n".join(lines).rstrip("\n") + "\n"


def inline(text: str) -> str:
    r"""
    Any text as one line of Markdown that shows just this text: no link, no image, no code, no HTML, no further table cell.

    >>> inline("a|b `c` <b> [x](y)")
    'a\\|b \\`c\\` \\<b\\> \\[x\\](y)'
    """
    safe = _SPECIAL.sub(r"\\\1", _plain(text))
    safe = re.sub(r"(?i)(www)\.", r"\1\\.", safe.replace("://", "\\://"))
    return _FIRST.sub(lambda match: f"{match[1]}\\{match[2]}" if match[1] else f"\\{match[3]}", safe)


def _plain(text: str) -> str:
    """One line: what cannot be printed is told by its escape, what is too long is cut."""
    cut = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in cut).strip() or "–"


def _line(cells: Sequence[str], *, raw: bool = False) -> str:
    return f"| {' | '.join(cells if raw else map(inline, cells))} |"


def _summary(incident: Incident) -> Section:
    until = {
        "open": "still going on",
        "unknown": "nobody told of it since, so whether it goes on is unknown",
        "closed": "ended",
    }[incident.status]
    end = incident.end
    span = utc(incident.start) + (f" … {utc(end)} ({_length(end - incident.start)})" if end is not None else " …")
    provenances = sorted({life.worst.provenance for life in incident.lives})
    return Section(
        "Summary",
        (incident.title, f"Why, as far as findings tell: {incident.cause}" if incident.cause else "No cause is known."),
        (
            f"Pool {_named(incident.pool)} of cluster {_named(incident.cluster)}",
            f"{span}, {until}",
            f"Severity: {incident.severity}",
            f"Findings: {len(incident.lives)}; known by {', '.join(provenances)}",
        ),
    )


def _impact(incident: Incident) -> Section:
    harms = [life.worst for life in incident.lives if life.worst.severity is Severity.HARM]
    told = [f"{_of_role(one)}{one.summary}" for one in harms] or ["No finding says that users felt it."]
    people = (
        "who was affected, and how they noticed",
        "requests that failed or came late, and what that cost",
        "objectives missed",
    )
    return Section("Impact", bullets=(*told, *(f"{FOR_PEOPLE}: {what}" for what in people)))


def _timeline(incident: Incident) -> Grid:
    rows = [(utc(one.at), one.what, str(one.severity), one.role, one.text) for one in incident.timeline]
    return Grid(("time (UTC)", "what", "severity", "role", "finding"), tuple(rows))


def _cause(incident: Incident) -> Section:
    bullets = [
        f"{_of_role(one)}{one.cause or 'no cause is known'} (confidence: {one.confidence}; of: {one.summary})"
        for one in (life.worst for life in incident.lives)
    ]
    return Section("Cause", bullets=(*dict.fromkeys(bullets), f"{FOR_PEOPLE}: what set it off, and why it was not seen before"))


def _evidence(incident: Incident) -> tuple[tuple[str, Grid], ...]:
    grids = []
    for role in sorted({life.worst.role for life in incident.lives}):
        mine = [life for life in incident.lives if life.worst.role == role]
        rows = [
            (life.worst.kind, one.text, one.name, _number(one.value), one.unit, one.provenance, one.method)
            for life in mine
            for one in life.worst.evidence
        ]
        whom = [
            (life.worst.kind, f"{what}: {_some(names)}", "", "", "", life.worst.provenance, "")
            for life in mine
            for what, names in (("pods", life.worst.pods), ("adapters", life.worst.adapters))
            if names
        ]
        headings = ("finding", "evidence", "number", "value", "unit", "known by", "method")
        grids.append((f"role {role}" if role else "", Grid(headings, tuple(rows + whom))))
    return tuple(grids)


def _remedies(incident: Incident) -> Section:
    helps = [(life.worst.kind, one) for life in incident.lives for one in life.worst.remedies]
    order = ranked([one for _, one in helps])
    rows = [
        (one.text, one.lever, str(one.possible), _effect(one), one.method, one.why, kind)
        for one in dict.fromkeys(order)
        for kind in dict.fromkeys(kind for kind, other in helps if other == one)
    ]
    headings = ("remedy", "lever", "possible", "predicted to remove", "method", "why", "finding")
    eased = [f"{one.what} at {utc(one.at)}: {one.text}" for one in incident.timeline if one.what in ("eased", "lowered", "ended")]
    helped = f"{FOR_PEOPLE}: what was done, and which of these it explains"
    return Section("Remedies", bullets=(*eased, helped), grids=(("", Grid(headings, tuple(rows))),) if rows else ())


def _avoid(incident: Incident) -> Section:
    said = list(dict.fromkeys(text for life in incident.lives for text in life.worst.avoid))
    return Section("What not to do", bullets=tuple(said) or ("No finding warns of anything.",))


def _questions(incident: Incident) -> Section:
    said = [f"{_of_role(life.worst)}{text}" for life in incident.lives for text in life.worst.unknown]
    for life in incident.lives:
        kind, last = life.worst.kind, life.last
        said += [
            f"{kind}: nobody looked from {utc(state.blind_from)} to {utc(state.at)}"
            for state in life.states
            if state.blind_from is not None
        ]
        if life.end is not None and life.end - last.seen > CERTAIN:
            said.append(f"{kind}: when did it end? After {utc(last.seen)} and by {utc(life.end)}")
        if life.untold(incident.now):
            said.append(f"{kind}: does it go on? It was told of last at {utc(last.at)}")
    runbooks = sorted({life.worst.runbook for life in incident.lives})
    said += [f"Runbooks: {', '.join(runbooks)}", f"{FOR_PEOPLE}: what will be done so that it does not happen again, by whom"]
    return Section("Open questions", bullets=tuple(dict.fromkeys(said)))


def _of_role(finding: Finding) -> str:
    return f"{finding.role}: " if finding.role else ""


def _named(name: str) -> str:
    return name or "without a name"


def _some(names: Sequence[str]) -> str:
    shown = [name if len(name) <= 80 else f"{name[:79]}…" for name in names[:NAMES_SHOWN]]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _effect(remedy: Remedy) -> str:
    if remedy.effect is None:
        return "not predicted"
    bounds = f" ({_percent(remedy.low)} … {_percent(remedy.high)})" if remedy.low is not None and remedy.high is not None else ""
    return f"{_percent(remedy.effect)}{bounds} of {remedy.of}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _length(micros: int) -> str:
    minutes = round(micros / SECOND / 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02d} min" if hours else f"{minutes} min"
