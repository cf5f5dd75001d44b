"""
The report as Markdown (CommonMark with tables): for tickets, wikis and mail. Names are plain characters in it, whatever they
hold.
"""

from collections.abc import Iterator

from lora_watch.diagnose.postmortem import inline
from lora_watch.report.blocks import Grid, Section
from lora_watch.report.sections import document
from lora_watch.report.weekly import WeeklyReport


def markdown(report: WeeklyReport) -> str:
    """Headings, the five lines, then each section with its tables; charts are left out, their numbers are in the tables."""
    return "\n".join(_lines(report)).rstrip("\n") + "\n"


def _lines(report: WeeklyReport) -> Iterator[str]:
    told = document(report)
    yield from (f"# {inline(told.title)}", "", inline(told.subtitle), "")
    for number, (question, line) in enumerate(told.lines, start=1):
        yield f"{number}. **{inline(question)}.** {inline(line)}"
    yield ""
    for section in told.sections:
        yield from _section(section)
    yield from ("---", "", inline(told.footer))


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {inline(section.heading)}", "")
    if section.lead:
        yield from (inline(section.lead), "")
    if section.bullets:
        yield from (f"- {inline(bullet)}" for bullet in section.bullets)
        yield ""
    for grid in section.grids:
        yield from table(grid)
    for note in section.notes:
        yield from (f"*{inline(note)}*", "")


def table(grid: Grid) -> Iterator[str]:
    """A table below its caption; each row one line, whatever its texts hold."""
    yield from (f"**{inline(grid.caption)}**", "")
    yield _row([column.title for column in grid.columns])
    yield f"| {' | '.join('---:' if column.number else '---' for column in grid.columns)} |"
    yield from (_row([f"{cell.text} ({cell.sub})" if cell.sub else cell.text for cell in row]) for row in grid.rows)
    yield ""


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(inline(cell) if cell else ' ' for cell in cells)} |"
