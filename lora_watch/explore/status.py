"""What ``lora-watch status`` shows: one overview, as a table for people or JSON for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

from lora_watch.config import parse_duration
from lora_watch.diagnose.incidents import utc
from lora_watch.errors import LoraWatchError
from lora_watch.explore.queries import Overview, newest, overview_by_shards
from lora_watch.model import DAY, SECOND, Window
from lora_watch.store.tables import Store

LONGEST_WINDOW = 3_660 * DAY
"""Ten years: what a longer window holds was never kept."""
YEAR_10000 = 253_402_300_800 * SECOND
"""µs UTC; no calendar goes on from here."""
UPPER = frozenset({"B", "D"})
"""Grades of the inference share whose figure is the most it can have been."""
NAME_WIDTH = 48
"""Characters of a name shown to people; programs get it whole."""
POD_HEADINGS = (
    "pod",
    "slots",
    "active/\nslots",
    "swaps/s",
    "loads\nwarm+cold",
    "residency\np50",
    "p95",
    "requests",
    "miss",
    "inference\nshare",
    "Little\nresidual",
    "records\nlost",
    "known",
)
ADAPTER_HEADINGS = ("adapter", "now", "requests", "miss", "loads", "swapped\nout", "residency\np50", "p95", "stays", "known")
TEXTS = frozenset({"now", "known"})
"""Headings of columns that hold words, not numbers, and are wrapped where there is no room."""
WRAPPED = 16
"""Characters that a wrapped column is given at least, if it needs them."""


def window_of(last: str, at: str | None) -> tuple[int, int | None]:
    """Length in µs, and the end in µs UTC or None for "where the data end". LoraWatchError where either is not readable."""
    try:
        length = round(parse_duration(last).total_seconds() * SECOND)
        if length <= 0:
            raise ValueError(f"{last!r} is no length of time")
        if length > LONGEST_WINDOW:
            raise ValueError(f"{last!r} is longer than {LONGEST_WINDOW // DAY} days")
        if at is None:
            return length, None
    except ValueError as error:
        raise LoraWatchError(f"cannot read the window: {error}") from error
    try:
        moment = datetime.fromisoformat(at.strip())
    except ValueError:
        raise LoraWatchError(f"cannot read the window: {at[:40]!r} is no moment: write it like 2026-11-30T10:15Z") from None
    if moment.tzinfo is None:
        raise LoraWatchError(f"{at!r} has no time zone: add Z or an offset such as +01:00")
    end = round(moment.timestamp() * SECOND)
    if end < length:
        raise LoraWatchError(f"a window of {last} that ends at {at!r} begins before 1970: nothing can be stored of it")
    return length, end


def bounded(start: int, end: int) -> Window:
    """
    The window, µs UTC. LoraWatchError where it is empty, longer than ``LONGEST_WINDOW`` or reaches behind the year 9999.

    >>> bounded(0, DAY).seconds
    86400.0
    """
    if start >= end:
        raise LoraWatchError(f"a window begins before it ends, not from {utc(start)} to {utc(end)}")
    if end > YEAR_10000:
        raise LoraWatchError(f"a window that ends at {utc(end)} ends behind the year 9999: nothing can be stored of it")
    if end - start > LONGEST_WINDOW:
        raise LoraWatchError(f"from {utc(start)} to {utc(end)} is longer than {LONGEST_WINDOW // DAY} days")
    return Window(start, end)


def read(store: Store, span: tuple[int, int | None], *, lookback: int, now: int | None = None) -> Overview:
    """
    The overview of a window that ends where told, else where the stored data end, but not later than ``now`` (µs UTC), if
    given, where there are older ones. LoraWatchError where nothing is stored, and for a window that ends after ``now`` and after
    all data: an engine that loaded an adapter would still seem to hold it then.
    """
    length, end = span
    if end is None:
        end = newest(store, now)
        if end is None:
            raise LoraWatchError(
                f"nothing is stored yet in {store.root}: is `lora-watch serve` running, and does `lora-watch doctor` reach a pod?"
            )
    elif now is not None and end > now and end > (newest(store, None) or now):
        raise LoraWatchError(f"the window ends at {utc(end)}, which is yet to come: nothing can be known of it")
    return overview_by_shards(store, Window(end - length, end), lookback)


def as_json(shown: Overview) -> str:
    """
    One JSON object, in ASCII so that any terminal and pipe takes it: the window, pods and adapters, unknown as null; a number
    that is not finite is null, too.
    """
    return json.dumps(
        {
            "window": {"start": utc(shown.window.start), "end": utc(shown.window.end), "seconds": shown.window.seconds},
            "pods": records(shown.pods),
            "adapters": records(shown.adapters),
        },
        allow_nan=False,
    )


def show(shown: Overview, *, adapters: int, console: Console | None = None) -> None:
    """Print tables: one row a pod, and for each pod its busiest adapters. A narrow terminal gets more tables, no shorter ones."""
    console = console or Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
    console.print(f"{utc(shown.window.start)} … {utc(shown.window.end)} ({_span(shown.window.seconds)})", highlight=False)
    if shown.pods.is_empty():
        console.print("No pod was seen in this window.")
        return
    several = shown.pods["cluster"].n_unique() > 1
    labels = {(row["cluster"], row["pod"]): _label(row, cluster=several) for row in shown.pods.iter_rows(named=True)}
    _print(console, "pods", POD_HEADINGS, [_pod(row, labels) for row in shown.pods.iter_rows(named=True)])
    if adapters:
        for key, rows in shown.adapters.group_by(["cluster", "pod"], maintain_order=True):
            ordered = rows.sort(["requests", "loads", "adapter"], descending=[True, True, False], nulls_last=True)
            title = labels.get((str(key[0]), str(key[1])), _name(f"{key[0]}/{key[1]}"))
            _print(console, title, ADAPTER_HEADINGS, [_adapter(row) for row in ordered.head(adapters).iter_rows(named=True)])
            if rows.height > adapters:
                console.print(f"and {rows.height - adapters} more adapters; --adapters {rows.height} lists them", highlight=False)


def _print(console: Console, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a title; columns that do not fit beside the others follow in a table below, with the names again."""
    columns = list(zip(headings, *rows, strict=True))
    narrowest = [WRAPPED if heading in TEXTS else console.width for heading in headings]
    widths = [max(Text.from_markup(cell).cell_len for text in column for cell in text.split("\n")) for column in columns]
    widths = [min(pair) for pair in zip(widths, narrowest, strict=True)]
    name = min(widths[0], max(console.width // 3, 12))
    room = console.width - name - 4
    parts: list[list[int]] = []
    left = 0
    for column, width in enumerate(widths[1:], start=1):
        if not parts or width + 3 > left:
            parts.append([])
            left = room
        parts[-1].append(column)
        left -= width + 3
    console.print(f"\n{title}", style="bold", highlight=False)
    for part in parts:
        grid = Grid(header_style="bold")
        grid.add_column(headings[0], width=name, overflow="fold")
        for column in part:
            is_text = headings[column] in TEXTS
            grid.add_column(headings[column], justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
        for row in rows:
            grid.add_row(row[0], *(row[column] for column in part))
        console.print(grid)


def _label(row: dict[str, Any], *, cluster: bool) -> str:
    return _name("/".join(filter(None, (row["cluster"] if cluster else None, row["pool"], row["role"], row["pod"]))))


def _pod(row: dict[str, Any], labels: Mapping[tuple[str, str], str]) -> list[str]:
    return [
        labels[row["cluster"], row["pod"]],
        _count(row["slots"]),
        _ratio_of(row["active_adapters"], row["slots"]),
        _number(row["swaps_per_second"], 3),
        _loads(row["warm"], row["cold"]),
        quantile(row, "p50"),
        quantile(row, "p95"),
        _count(row["requests"]),
        _percent(row["miss_ratio"]),
        _share(row),
        _percent(row["little_residual_ratio"]),
        _count(row["lost"]),
        _known(row),
    ]


def _adapter(row: dict[str, Any]) -> list[str]:
    return [
        _name(row["adapter"]),
        "in a slot" if row["resident"] else "–" if row["resident"] is None else "out",
        _count(row["requests"]),
        _percent(row["miss_ratio"]),
        _count(row["loads"]),
        _count(row["swaps"]),
        quantile(row, "p50"),
        quantile(row, "p95"),
        _stays(row),
        _known(row),
    ]


def records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows for JSON, by column name: what is no finite number is null, for JSON has neither NaN nor infinity."""
    clean = frame.with_columns(
        pl.when(pl.col(name).is_finite()).then(pl.col(name)) for name, dtype in frame.schema.items() if dtype.is_float()
    )
    return clean.to_dicts()


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:.3g} ms"


def _name(text: str) -> str:
    shown = text if text.isprintable() else text.encode("unicode_escape").decode()
    return escape(shown if len(shown) <= NAME_WIDTH else shown[: NAME_WIDTH - 1] + "…")


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _ratio_of(part: int | None, whole: int | None) -> str:
    return f"{_count(part)}/{_count(whole)}"


def quantile(row: dict[str, Any], name: str) -> str:
    """``p50`` or ``p95`` of a row as text: its value, ``> x`` where it is not reached, or a dash."""
    known, least = row[f"{name}_seconds"], row[f"{name}_lower_bound_seconds"]
    return _span(known) if known is not None else f"> {_span(least)}" if least is not None else "–"


def _loads(warm: int | None, cold: int | None) -> str:
    return "–" if warm is None and cold is None else f"{_count(warm)}+{_count(cold)}"


def _stays(row: dict[str, Any]) -> str:
    if row["completed"] is None:
        return "–"
    cut = (row["censored"] or 0) + (row["left_truncated"] or 0)
    return f"{row['completed']}" + (f" (+{cut} cut)" if cut else "")


def _share(row: dict[str, Any]) -> str:
    low, high, grade = row["share_low"], row["share_high"], row["grade"]
    if high is None:
        return "–"
    value = (
        _percent(high)
        if low == high and grade not in UPPER
        else f"≤ {_percent(high)}"
        if low is None or low == 0 or grade in UPPER
        else f"{_percent(low)} … {_percent(high)}"
    )
    busy = row["busy_ratio"]
    return f"{value} ({grade})" + ("" if busy is None else f", GPU reads {_percent(busy)}")


def _known(row: dict[str, Any]) -> str:
    """How the row is known: the usual provenance of its parts, and by name the parts that are known otherwise."""
    parts = {name.removesuffix("_provenance"): text for name, text in row.items() if name.endswith("_provenance") and text}
    if not parts:
        return "–"
    usual = max(sorted(set(parts.values())), key=list(parts.values()).count)
    others = [f"{name.replace('_', ' ')}: {text}" for name, text in parts.items() if text != usual]
    return "; ".join([usual, *others])
