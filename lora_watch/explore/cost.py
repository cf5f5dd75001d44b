"""What ``lora-watch cost`` shows: GPU time, money and latency that loads have cost."""

import json
import sys
from dataclasses import dataclass
from typing import Any

import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from lora_watch.config import CostSettings
from lora_watch.derive.attribution import attribution
from lora_watch.derive.cost import cost
from lora_watch.derive.groups import POOL
from lora_watch.derive.queue_replay import queue_replay
from lora_watch.diagnose.incidents import utc
from lora_watch.diagnose.words import named, percent, span
from lora_watch.errors import LoraWatchError
from lora_watch.explore.queries import Frames, Past, newest
from lora_watch.explore.status import records, window_of
from lora_watch.model import HOUR, Window
from lora_watch.store.tables import Store

ATTRIBUTED = HOUR
"""Latency is attributed over the end of the window, so much of it: the replay of every request of a week takes minutes."""


@dataclass(frozen=True, slots=True)
class Cost:
    """``pools`` and ``adapters`` as :func:`lora_watch.derive.cost.cost` tells them, and ``latency`` (attribution) by pool."""

    window: Window
    attributed: Window
    pools: pl.DataFrame
    adapters: pl.DataFrame
    latency: pl.DataFrame


def read(store: Store, last: str, at: str | None, lookback: int, settings: CostSettings, *, now: int) -> Cost:
    """The cost of a window that ends where told, else where the data end. LoraWatchError where nothing is stored."""
    length, told = window_of(last, at)
    end = told if told is not None else newest(store, now)
    if end is None:
        raise LoraWatchError(f"nothing is stored yet in {store.root}: is `lora-watch serve` running?")
    window = Window(end - length, end)
    whole = Frames(store, window, Past(store, lookback))
    priced = {"gpus_per_pod": settings.gpus_per_pod, "gpu_hour_price": settings.gpu_hour_price, "currency": settings.currency}
    pools = cost(whole.events, window, POOL, **priced).collect().sort(POOL)  # type: ignore[arg-type]  # one dict for three types
    adapters = cost(whole.events, window, (*POOL, "adapter"), **priced).collect()  # type: ignore[arg-type]
    part = Window(max(window.start, end - ATTRIBUTED), end)
    recent = Frames(store, part, Past(store, lookback))
    replayed = queue_replay(recent.requests, recent.events)
    latency = attribution(replayed, recent.events, part, POOL)
    return Cost(window, part, pools, adapters.sort("stall_seconds_lower_bound", "adapter", descending=[True, False]), latency)


def as_json(told: Cost) -> str:
    """One JSON object in ASCII; unknown, and what is not finite, is null."""
    return json.dumps(
        {
            "window": {"start": utc(told.window.start), "end": utc(told.window.end), "seconds": told.window.seconds},
            "attributed": {"start": utc(told.attributed.start), "end": utc(told.attributed.end)},
            "pools": records(told.pools),
            "adapters": records(told.adapters),
            "latency": records(told.latency),
        },
        allow_nan=False,
    )


def show(told: Cost, *, adapters: int, console: Console | None = None) -> None:
    """Print what loads cost, by pool, by the adapters that were loaded, and in latency."""
    console = console or Console(file=sys.stdout, width=None if sys.stdout.isatty() else 130, highlight=False)
    console.print(f"{utc(told.window.start)} … {utc(told.window.end)} ({span(told.window.seconds)})", highlight=False)
    _grid(console, "GPU time that loads took", "pool", told.pools, _pool)
    if adapters:
        _grid(
            console,
            "by the adapter that was loaded",
            "adapter",
            told.adapters.head(adapters),
            lambda row: named(str(row["adapter"])),
        )
    for row in told.latency.iter_rows(named=True):
        console.print(f"\n{escape(_pool(row))}: latency, last {span(told.attributed.seconds)}", style="bold", highlight=False)
        for line in _latency(row):
            console.print(f"  {line}", highlight=False, markup=False)


def _grid(console: Console, title: str, first: str, rows: pl.DataFrame, name: Any) -> None:
    console.print(f"\n{title}", style="bold")
    grid = Grid(header_style="bold")
    for heading in (first, "reads+copies", "GPU hours lost", "of GPU time", "money", "known"):
        grid.add_column(heading, justify="left" if heading in {first, "known"} else "right")
    for row in rows.iter_rows(named=True):
        grid.add_row(
            escape(name(row)),
            f"{row['loads']:,}",
            _bounded(row["gpu_hours_lost"], row["gpu_hours_lost_lower_bound"], "{:.3g}"),
            "–" if row["lost_ratio"] is None else percent(row["lost_ratio"]),
            _money(row),
            row["provenance"] or "–",
        )
    console.print(grid)


def _latency(row: dict[str, Any]) -> list[str]:
    lines = [
        f"{row['requests']:,} requests; slow: above {_seconds(row['slow_seconds'])} to the first token; {row['slow'] or 0:,} were"
    ]
    if row["attributable_fraction"] is not None:
        low, high = row["attributable_fraction_low"], row["attributable_fraction_high"]
        interval = "" if low is None else f" (95 % interval {percent(low)} … {percent(high)})"
        lines.append(f"{percent(row['attributable_fraction'])} of the slow ones would not have been slow without loads{interval}")
        lines.append(f"P95 {_seconds(row['p95_seconds'])}; without loads {_seconds(row['p95_without_seconds'])}")
        lines.append(
            f"mean delay {_seconds(row['mean_delay_seconds'])}, of it {_seconds(row['own_wait_seconds'])} for the own load"
        )
    else:
        lines.append("what loads did to it is unknown: too many loads have no known length")
    raw = row["p95_with_eviction_raw_seconds"]
    if raw is not None:
        placebo, fair = row["p95_with_eviction_placebo_seconds"], row["p95_with_eviction_stratified_seconds"]
        lines.append(
            f"P95 with an eviction in the second before, minus without: {_seconds(raw)}; placebo (an eviction after) "
            f"{_seconds(placebo)}; stratified {_seconds(fair)}. {row['p95_with_eviction_warning'] or ''}".rstrip()
        )
    return lines


def _pool(row: dict[str, Any]) -> str:
    return "/".join(named(part) for part in (row["cluster"], row["pool"], row["role"]) if part) or "pool"


def _bounded(value: float | None, least: float | None, form: str) -> str:
    return form.format(value) if value is not None else "–" if least is None else f"> {form.format(least)}"


def _money(row: dict[str, Any]) -> str:
    text = _bounded(row["money_lost"], row["money_lost_lower_bound"], "{:,.2f}")
    return text if text == "–" else f"{text} {row['currency']}"


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"-{span(-value)}" if value < 0 else span(value)
