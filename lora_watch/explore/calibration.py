"""What ``lora-watch rules calibrate`` shows: every alert over stored history, with the limits that would have done."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lora_watch.errors import LoraWatchError
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.rules.calibrate import PER, Judged, Limit, Verdict, judged
from lora_watch.rules.catalogue import alerts
from lora_watch.rules.history import replayed
from lora_watch.rules.rule import Install, Profile, Tier
from lora_watch.schema import REQUESTS
from lora_watch.store.tables import Store

LISTED = 5
"""Episodes of an alert that are told one by one."""
_STYLE = {Verdict.ALWAYS: "bold red", Verdict.OFTEN: "yellow", Verdict.NEVER: "yellow", Verdict.UNKNOWN: "dim"}
_WORDS = {
    Verdict.ALWAYS: "ALWAYS fires",
    Verdict.OFTEN: "too often",
    Verdict.NEVER: "NEVER could",
    Verdict.QUIET: "quiet",
    Verdict.FINE: "fine",
    Verdict.UNKNOWN: "not judged",
}


def calibrated(
    store: Store,
    window: Window,
    profile: Profile,
    wanted: Mapping[Tier, float],
    progress: Callable[[float], None] | None = None,
) -> tuple[tuple[Judged, ...], Window]:
    """
    Every alert of a profile over the part of the window that has data, and that part.

    LoraWatchError where there is less than an hour, StoreError where a table can't be read.
    """
    begun = store.scan(REQUESTS, window).select("at").min().collect(engine="streaming")["at"].item()
    newest = store.newest(REQUESTS, window.end)
    if begun is None or newest is None or newest - begun < HOUR:
        raise LoraWatchError(
            f"{store.root} holds less than an hour of requests in the window: nothing to replay rules over; wait, or "
            "bring older data with `lora-watch import`"
        )
    held = Window(begun, newest)
    history = replayed(store, held, progress)
    return tuple(judged(alert, history, wanted) for alert in alerts(Install.FULL, profile)), held


def show(told: Sequence[Judged], window: Window, console: Console | None = None) -> None:
    """For people."""
    console = console or Console(width=None if sys.stdout.isatty() else 160)
    days = (window.end - window.start) / DAY
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (
        ("alert", "left"),
        ("", "left"),
        ("episodes", "right"),
        ("fires", "right"),
        ("seen: median … most", "left"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]  # rich takes these words, as typed by a Literal
    table.add_column("limit")
    table.add_column("would do")
    for one in told:
        first, *others = [_row(limit) for limit in one.limits] or [("", "", "")]
        counted = ("", "") if one.verdict is Verdict.UNKNOWN else (str(len(one.episodes)), f"{one.share:.1%}")
        table.add_row(one.alert.name, _styled(one.verdict), *counted, *first)
        for other in others:
            table.add_row("", "", "", "", *other)
    console.print(f"{_time(window.start)} … {_time(window.end)} ({days:.1f} days)\n", highlight=False)
    console.print(table)
    for one in told:
        for case, episode in one.episodes[:LISTED] if one.verdict in (Verdict.FINE, Verdict.OFTEN) else ():
            where = "/".join(text for text in case if text)
            until = f"to {_time(episode.end)}" if episode.end is not None else "and still"
            console.print(f"  {one.alert.name} of {escape(where)}: from {_time(episode.start)} {until}", highlight=False)
        if len(one.episodes) > LISTED and one.verdict in (Verdict.FINE, Verdict.OFTEN):
            console.print(f"  {one.alert.name}: {len(one.episodes) - LISTED} more (all with --format json)", highlight=False)
    for tier in Tier:
        counted_ones = [one for one in told if one.alert.tier is tier and one.verdict is not Verdict.UNKNOWN]
        if counted_ones:
            total = sum(len(one.episodes) for one in counted_ones)
            console.print(f"{tier}: {total} episode{'' if total == 1 else 's'} of {len(counted_ones)} alerts", highlight=False)
    lacking = [one for one in told if one.verdict is Verdict.UNKNOWN]
    if lacking:
        console.print(
            "\nNot judged, because the tables can't tell it: "
            + ", ".join(f"{one.alert.name} ({', '.join(one.unknown)})" for one in lacking),
            highlight=False,
        )


def as_json(told: Sequence[Judged], window: Window) -> str:
    """For programs."""
    return json.dumps(
        {
            "window": {"start": _time(window.start), "end": _time(window.end), "days": (window.end - window.start) / DAY},
            "per_days": PER / DAY,
            "alerts": [_plain(one) for one in told],
        },
        indent=2,
    )


def _plain(one: Judged) -> dict[str, Any]:
    on = one.alert.condition.on
    return {
        "alert": one.alert.name,
        "severity": one.alert.severity.value,
        "tier": one.alert.tier.value,
        "profile": one.alert.profile.value,
        "verdict": one.verdict.value,
        "episodes": [
            {
                **dict(zip(on, case, strict=True)),
                "start": _time(episode.start),
                "end": None if episode.end is None else _time(episode.end),
            }
            for case, episode in one.episodes
        ],
        "firing_share": one.share,
        "wanted_episodes": one.wanted,
        "limits": [asdict(limit) for limit in one.limits],
        "unknown": list(one.unknown),
    }


def _row(limit: Limit) -> tuple[str, str, str]:
    seen = "" if limit.median is None or limit.extreme is None else f"{limit.median:.3g} … {limit.extreme:.3g}"
    would = "" if limit.proposed is None else f"{limit.operator} {limit.proposed:.3g}"
    return seen, f"{escape(limit.series)} {limit.operator} {limit.value:g}", would


def _styled(verdict: Verdict) -> str:
    style = _STYLE.get(verdict)
    return f"[{style}]{_WORDS[verdict]}[/]" if style else _WORDS[verdict]


def _time(at: int) -> str:
    return datetime.fromtimestamp(at // MINUTE * MINUTE / SECOND, UTC).strftime("%Y-%m-%dT%H:%MZ")
