"""How a diagnosis is shown: cards for people, Markdown for a ticket, JSON for programs."""

import json
import math
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table as Grid
from rich.text import Text

from lora_watch.diagnose.diagnosis import Diagnosis, Gap, PoolState, State
from lora_watch.diagnose.finding import Finding, Possible, Remedy, Severity, as_dict
from lora_watch.diagnose.incidents import utc
from lora_watch.diagnose.words import listed, named, percent, span

STYLES = {Severity.HARM: "bold red", Severity.WARN: "yellow", Severity.INFORMATION: "cyan"}
STATE_STYLES = {State.HEALTHY: "green", State.WATCH: "yellow", State.HARM: "bold red", State.UNKNOWN: "magenta"}
WIDTH = 130
LONG_METHOD = 30
"""Characters of a method that fit beside a number."""
_SPECIAL = frozenset("\\`*_{}[]<>()#+-.!|~&")


def show(told: Diagnosis, console: Console | None = None) -> None:
    """Print the state of each pool, a card for each finding, and what can't be known."""
    console = console or Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    console.print(f"{utc(told.window.start)} … {utc(told.window.end)} ({span(told.window.seconds)})", highlight=False)
    for pool in told.pools:
        console.print(_pool(pool))
    for finding in told.findings:
        console.print(_card(finding, told.window.end))
    if not told.findings:
        console.print(_nothing(told), highlight=False)
    if told.gaps:
        console.print("\nWhat can't be told, and what would tell it", style="bold")
        for gap in told.gaps:
            console.print(Text(f"  {_plain(_what(gap))}: {_plain(gap.why)} → {_plain(gap.how)}"), highlight=False)


def as_json(told: Diagnosis) -> str:
    """One JSON object in ASCII: window, worst severity, pools with margins, findings, gaps; unknown, or not finite, is null."""
    return json.dumps(
        _finite(
            {
                "window": {"start": utc(told.window.start), "end": utc(told.window.end), "seconds": told.window.seconds},
                "worst": told.worst,
                "pools": [_as_dict(pool) for pool in told.pools],
                "findings": [
                    {**as_dict(one), "since": utc(one.since), "until": _utc_or_none(one.until)} for one in told.findings
                ],
                "gaps": [_as_dict(gap) for gap in told.gaps],
            }
        ),
        allow_nan=False,
    )


def as_markdown(told: Diagnosis) -> str:
    """The same as Markdown; names can neither format nor link anything."""
    return "\n".join(_markdown(told)) + "\n"


def effect(remedy: Remedy) -> str:
    """The predicted effect of a remedy in words, empty where nothing predicts it."""
    if remedy.effect is None:
        return ""
    verb = "removes" if remedy.effect >= 0 else "adds"
    interval = ""
    if remedy.low is not None and remedy.high is not None and remedy.high - remedy.low > 0.005:
        ends = sorted((abs(remedy.low), abs(remedy.high))) if remedy.low * remedy.high > 0 else (remedy.low, remedy.high)
        interval = f" (95 % interval {100 * ends[0]:.0f} … {100 * ends[1]:.0f})"
    return f"{verb} {percent(abs(remedy.effect))} of the {remedy.of}{interval}"


def markdown_text(text: str) -> str:
    """Any text as inert Markdown: on one line, with every character that means something escaped."""
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in _plain(text))


def _pool(pool: PoolState) -> Group:
    head = Text.assemble(
        (f"\n{_name(pool)}: ", "bold"), (pool.state.upper(), STATE_STYLES[pool.state]), f"  {_plain(pool.sentence)}"
    )
    grid = Grid(show_header=False, box=None, padding=(0, 2, 0, 2))
    below: list[str] = []
    for margin in pool.margins:
        method = margin.method
        if len(method) > LONG_METHOD:  # how far it can be off is told once, below
            below.append(method)
            method = method.partition(": ")[0]
        if margin.value is not None:
            cells = (margin.text, margin.over, margin.trouble, margin.provenance or "", method)
            grid.add_row(*(escape(_plain(cell)) for cell in cells))
    for why in dict.fromkeys(margin.why for margin in pool.margins if margin.value is None):
        unknown = [margin.text.removesuffix(": unknown") for margin in pool.margins if (margin.value, margin.why) == (None, why)]
        below.append(f"unknown, since {why}: {', '.join(unknown)}")
    lines = (Text(f"  {_plain(line)}") for line in dict.fromkeys(below))
    return Group(head, *([grid] if grid.row_count else []), *lines)


def _nothing(told: Diagnosis) -> str:
    """What no finding means, by what could be looked at."""
    if not told.pools:
        return "Nothing tells of any pod in this window, so nothing can be said."
    if any(pool.state is State.UNKNOWN for pool in told.pools):
        return "Nothing was found, where not all can be seen: what is missing stands below."
    return "Nothing was found."


def _card(finding: Finding, end: int) -> Panel:
    lines: list[Text] = [Text(_plain(finding.summary), style="bold")]
    lines.append(Text.assemble(("why     ", "dim"), _plain(finding.cause), (f"  [{finding.confidence} confidence]", "dim")))
    for evidence in finding.evidence:
        known = ", ".join(filter(None, (evidence.provenance, evidence.method)))
        lines.append(Text.assemble(("seen    ", "dim"), _plain(evidence.text), (f"  [{_plain(known)}]" if known else "", "dim")))
    for remedy in finding.remedies:
        parts = (
            effect(remedy),
            remedy.possible.takes if remedy.possible is not Possible.NOW else "",
            remedy.why,
            remedy.method,
        )
        told = "; ".join(_plain(part) for part in parts if part)
        lines.append(Text.assemble(("do      ", "dim"), _plain(remedy.text), f": {told}" if told else ""))
    lines += [Text.assemble(("avoid   ", "dim"), _plain(one)) for one in finding.avoid]
    lines += [Text.assemble(("unknown ", "dim"), _plain(one)) for one in finding.unknown]
    title = f"{finding.severity.upper()} · {finding.kind} · {_since(finding, end)}"
    return Panel(
        Group(*lines),
        title=Text(title, style=STYLES[finding.severity]),
        title_align="left",
        border_style=STYLES[finding.severity],
    )


def _since(finding: Finding, end: int) -> str:
    """Its span; of what is so at the end of the window, and nobody knows since when: as of then."""
    if finding.until is not None:
        return f"{utc(finding.since)} … {utc(finding.until)}"
    return f"{'as of' if finding.since >= end else 'since'} {utc(finding.since)}"


def _markdown(told: Diagnosis) -> Iterator[str]:
    yield f"# Check {utc(told.window.start)} … {utc(told.window.end)}"
    for pool in told.pools:
        yield f"\n## {markdown_text(_name(pool))}: {pool.state}\n\n{markdown_text(pool.sentence)}\n"
        for margin in pool.margins:
            limit = margin.why if margin.value is None else margin.trouble
            parts = (margin.text, margin.over, limit, margin.provenance or "", margin.method)
            yield "- " + " · ".join(markdown_text(part) for part in parts if part)
    for finding in told.findings:
        yield f"\n## {finding.severity.upper()}: {markdown_text(finding.summary)}\n"
        yield f"{_since(finding, told.window.end)} · {finding.kind} · confidence {finding.confidence} · {finding.provenance}\n"
        yield f"**Cause.** {markdown_text(finding.cause)}\n"
        for evidence in finding.evidence:
            known = ", ".join(filter(None, (evidence.provenance, evidence.method)))
            yield f"- {markdown_text(evidence.text)}" + (f" ({markdown_text(known)})" if known else "")
        if finding.remedies:
            yield "\n**What to do**\n"
        for number, remedy in enumerate(finding.remedies, 1):
            takes = (effect(remedy), remedy.possible.takes, remedy.why, remedy.method)
            yield f"{number}. {markdown_text(remedy.text)}: {markdown_text('; '.join(filter(None, takes)))}"
        if finding.avoid:
            yield "\n**What not to do**\n"
        for one in finding.avoid:
            yield f"- {markdown_text(one)}"
    if told.gaps:
        yield "\n## What can't be told\n"
    for gap in told.gaps:
        yield f"- {markdown_text(_what(gap))}: {markdown_text(gap.why)} → {markdown_text(gap.how)}"


def _as_dict(value: Any) -> dict[str, Any]:
    told = {name: getattr(value, name) for name in value.__dataclass_fields__}
    if "margins" in told:
        told["margins"] = [_as_dict(one) for one in told["margins"]]
    return told


def _utc_or_none(at: int | None) -> str | None:
    return None if at is None else utc(at)


def _finite(value: Any) -> Any:
    """The same without infinities and what is no number, wherever they stand: JSON has none."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _name(pool: PoolState) -> str:
    return "/".join(named(part) for part in (pool.cluster, pool.pool, pool.role) if part) or "pool"


def _what(gap: Gap) -> str:
    return f"{gap.what} ({listed(gap.pods, 3)})" if gap.pods else gap.what


def _plain(text: str) -> str:
    """The text on one line, with nothing for a terminal to obey."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in text)
