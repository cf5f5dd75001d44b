"""A recommendation in words: a ranked table for people, JSON and YAML for programs."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from lora_watch.diagnose.incidents import utc
from lora_watch.diagnose.words import count, listed, named, percent, span
from lora_watch.errors import LoraWatchError
from lora_watch.explore.advice import Advised
from lora_watch.explore.plain import plain
from lora_watch.model import Window
from lora_watch.recommend.advice import Advice, Effect, Kind, Recommendation, Setup, Verdict
from lora_watch.recommend.targets import TARGETS
from lora_watch.recommend.targets.output import Output

HEADINGS = ("change", "verdict", "removes", "95 % interval", "P95 saved", "GPU h a month", "costs", "can be done")
WORDS = {Verdict.ADVISED: "ADVISED", Verdict.NOT_WORTH: "not worth it", Verdict.HARMFUL: "HARMFUL", Verdict.UNPROVEN: "unproven"}
WIDTH = 150
NEXT_TO_NOTHING = 0.00005
"""Seconds of P95 that nobody feels."""
LEGEND = (
    "Removes: of the swaps of the judged time, or of the waiting for slots where it says so; the next such time lies in the "
    "interval in 95 of 100 cases. P95 saved: of what requests wait for a slot and their adapter's load. A minus: more of it. "
    "Each change is judged by itself: effects do not add up."
)


def as_json(told: Sequence[Advised], target: str | None = None) -> str:
    """
    One JSON object in ASCII with all there is; unknown, and what is not finite, is null, times are ISO 8601. With a ``target``
    also the files for it.
    """
    return json.dumps(_all(told, target), allow_nan=False)


def as_yaml(told: Sequence[Advised], target: str | None = None) -> str:
    """The same as YAML."""
    return yaml.safe_dump(_all(told, target), sort_keys=False, allow_unicode=True, width=1000)


def _all(told: Sequence[Advised], target: str | None) -> dict[str, Any]:
    return {
        "recommendations": [
            tree(one.recommendation) | ({} if target is None else {"target": {"name": target, **asdict(_output(one, target))}})
            for one in told
        ]
    }


def for_target(told: Sequence[Advised], target: str) -> str:
    """The files that tell an engine or controller what is advised, one after the other, and what it can't be told."""
    parts = []
    for one in told:
        output = _output(one, target)
        parts.append(f"# {named(one.recommendation.setup.pool)}: {_line(one.recommendation.sentence)}\n")
        parts += [f"# {_line(sentence)}\n" for sentence in output.told]
        parts += [f"# --- {file.name}\n{file.content.rstrip()}\n" for file in output.files]
    return "\n".join(parts)


def _output(one: Advised, target: str) -> Output:
    if target not in TARGETS:
        raise LoraWatchError(f"there is no target {target!r}; there are {', '.join(TARGETS)}")
    return TARGETS[target](one.recommendation.setup, one.recommendation.advice, one.paths)


def _line(text: str) -> str:
    """Text that stays on its line."""
    return text if text.isprintable() else text.encode("unicode_escape", "backslashreplace").decode()


def tree(told: Recommendation) -> dict[str, Any]:
    """A recommendation as plain values: what a program reads and what is stored."""
    made: dict[str, Any] = plain(asdict(told))
    made["learning_cut"] = None if told.learning_cut is None else utc(told.learning_cut)
    return made


def show(told: Recommendation, console: Console | None = None) -> None:
    """Print the sentence, the ranked table, and of what is advised why, how and the risk."""
    console = console or Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    console.print(f"\n{escape(named(told.setup.pool))}", style="bold", highlight=False)
    console.print(escape(told.sentence), highlight=False)
    console.print(escape(_known(told)), highlight=False, style="dim")
    grid = Grid(header_style="bold")
    for heading in HEADINGS:
        grid.add_column(
            heading, justify="left" if heading in {"change", "verdict", "costs", "can be done"} else "right", overflow="fold"
        )
    for one in told.advice:
        grid.add_row(*(escape(cell) for cell in row(one)))
    if told.article_rule is not None:
        grid.add_section()
        grid.add_row(*(escape(cell) for cell in row(told.article_rule)))
    console.print(grid)
    console.print(escape(LEGEND), highlight=False, style="dim")
    said: set[Kind] = set()
    for one in told.advice:
        if one.verdict is Verdict.ADVISED and one.kind not in said:
            said.add(one.kind)
            console.print(escape(f"{_what(one)}"), style="bold", highlight=False)
            for line in lines(one):
                console.print(f"  {escape(line)}", highlight=False)
    if told.bounds:
        bounds = "; ".join(f"{name}: {percent(share)}" for name, share in told.bounds.items())
        console.print(escape(f"Bounds without more slots, which know what is to come, of the loads: {bounds}"), highlight=False)
    for gap in told.gaps:
        console.print(f"not in it  {escape(gap)}", highlight=False)


def row(one: Advice) -> tuple[str, ...]:
    """One line of the table."""
    effect = one.effect
    low, high = effect.sure
    return (
        _what(one),
        WORDS[one.verdict],
        "unknown"
        if effect.removed is None
        else f"{percent(effect.removed)} {'' if effect.of == 'swaps' else 'of ' + effect.of}".strip(),
        "–" if low is None or high is None else f"{_bound(low)} … {_bound(high)}",
        _seconds(effect),
        "–" if effect.gpu_hours_saved is None else _hours(effect.gpu_hours_saved),
        one.cost,
        "unknown" if one.can is None else "yes" if one.can else "no",
    )


def lines(one: Advice) -> list[str]:
    """What is to be known of an advice, line by line."""
    told = [f"why     {one.why}", f"how     {one.how}", f"risk    {one.risk}"]
    if one.adapters:
        told.insert(0, f"of      {listed(one.adapters, 10)}")
    proof = [f"proof   {one.method}"]
    if one.judged is not None:
        proof.append(f"judged on {_days(one.judged)}")
    if one.learned is not None:
        proof.append(f"learned from {_days(one.learned)}")
    if one.effect.swaps is not None and one.effect.base_swaps is not None:
        proof.append(f"{one.effect.swaps:,} swaps instead of {one.effect.base_swaps:,}")
    return [*told, "; ".join(proof)]


def _what(one: Advice) -> str:
    return _line(one.what)[:200]


def _known(told: Recommendation) -> str:
    setup = told.setup
    engine = " ".join(filter(None, (setup.engine, setup.version))) or "engine unknown"
    pods = f"{count(setup.pods or 0, 'pod')} with {_slots(setup)}"
    router = f"routed like {told.router}" if told.router else "on the recorded pods"
    return f"{_days(told.window)}; {pods}; {engine}; {router}; {told.provenance or 'unknown'}"


def _slots(setup: Setup) -> str:
    if setup.slots is None:
        return "slots unknown"
    return count(setup.slots, "slot") if setup.most_slots is None else f"{setup.slots} to {setup.most_slots} slots"


def _days(window: Window) -> str:
    return f"{utc(window.start)} … {utc(window.end)} ({span(window.seconds)})"


def _bound(share: float) -> str:
    """Percent; what is far below zero is told as that."""
    return "< -1000 %" if share < -10 else percent(share)


def _hours(saved: float) -> str:
    """
    GPU hours, one digit behind the point below a hundred.

    >>> _hours(1825.04), _hours(3.806), _hours(-0.01)
    ('1,825', '3.8', '0.0')
    """
    return f"{saved:,.0f}" if abs(saved) >= 100 else f"{round(saved, 1) + 0.0:.1f}"


def _seconds(effect: Effect) -> str:
    saved = effect.p95_seconds_saved
    if saved is None:
        return "–"
    if abs(saved) < NEXT_TO_NOTHING:
        return "0"
    return f"-{span(-saved)}" if saved < 0 else span(saved)
