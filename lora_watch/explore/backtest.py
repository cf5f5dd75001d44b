"""What last weeks' advice on pins would have done: read, replayed, and told in words."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from lora_watch.config import Settings
from lora_watch.diagnose.incidents import utc
from lora_watch.diagnose.words import count, named, percent
from lora_watch.errors import NotEnoughHistory
from lora_watch.explore.expect import announced_in
from lora_watch.explore.history import held
from lora_watch.explore.plain import plain
from lora_watch.model import DAY, SECOND, Window
from lora_watch.recommend.advice import Effect, Verdict
from lora_watch.recommend.backtest import ONE_SLOT, TOP_5, TOP_5_WEEK, TOP_10, Backtest, Week, backtest
from lora_watch.recommend.bounds import HINDSIGHT, PER_POD, POOLED
from lora_watch.recommend.pins import ARTICLE_DAYS
from lora_watch.store.tables import Store

READING = 0.2
"""The share of the work that reading is."""
HEADINGS = ("week from", "requests", "misses", "pins", "promised", "realised", "kept")
RULES: Mapping[str, str] = {TOP_5: "top 5, 30 d", TOP_10: "top 10, 30 d", TOP_5_WEEK: "top 5, 7 d", ONE_SLOT: "+1 slot"}
BOUNDS: Mapping[str, str] = {HINDSIGHT: "best pins in hindsight", PER_POD: "Belady, pods as recorded", POOLED: "Belady, pooled"}
WIDTH = 170
Told = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Tested:
    """The backtest of one pool, by its name."""

    pool: str
    found: Backtest


def window_of(weeks: int, end: int) -> Window:
    """What is read for so many held-out weeks: they, and the days before them that the article's rule counts."""
    return Window(max(end - (7 * weeks + ARTICLE_DAYS) * DAY, 0), end)


def backtested(
    store: Store, weeks: int, end: int, settings: Settings, *, pool: str | None = None, told: Told = lambda _what, _share: None
) -> Iterator[Tested]:
    """
    The last ``weeks`` weeks before ``end`` of each pool with requests, the busiest first; of them those called ``pool``, if told.

    NotEnoughHistory where nothing can be replayed, or no week has two days before it; StoreError where a table can't be read.
    """
    lookback = round(settings.derive.lookback.total_seconds() * SECOND)
    expected = announced_in(settings.diagnose.expected)
    read = held(
        store,
        window_of(weeks, end),
        lookback=lookback,
        pool=pool,
        expected=expected,
        told=lambda share: told("reading", share * READING),
    )
    for one in read:
        name = one.setup.pool or "the pool"
        since = one.history.window.start
        if len(one.history.trace):
            since = max(since, int(one.history.trace.at[0]) // DAY * DAY)
        history = one.history.during(Window(since, end))
        del one  # a month of the next pool needs its room
        found = backtest(
            history,
            weeks,
            progress=lambda done, every: told(f"{name}: week {done} of {every}", 1 - (1 - READING) * (every - done) / every),  # noqa: B023 - called at once
        )
        if not found.weeks:
            days = (history.window.end - history.window.start) / DAY
            raise NotEnoughHistory(f"{name}: {days:.1f} days are held; a held-out week needs two days before it, nine in all")
        yield Tested(name, found)


def as_json(told: list[Tested]) -> str:
    """One JSON object in ASCII with all there is; unknown, and what is not finite, is null, times are ISO 8601."""
    return json.dumps({"backtests": [plain({"pool": one.pool, **asdict(one.found)}) for one in told]}, allow_nan=False)


def show(told: Tested, console: Console | None = None) -> None:
    """Print what it comes to in a sentence, a line for each week, and what nothing could have done better."""
    console = console or Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    console.print(f"\n{escape(named(told.pool))}", style="bold", highlight=False)
    console.print(escape(sentence(told.found)), highlight=False)
    grid = Grid(header_style="bold")
    for heading in (*HEADINGS, *RULES.values(), *BOUNDS.values()):
        grid.add_column(heading, justify="left" if heading in {"week from", "promised", "kept"} else "right", overflow="fold")
    for week in told.found.weeks:
        grid.add_row(*(escape(cell) for cell in row(week)))
    console.print(grid)
    routers = sorted({week.router or "" for week in told.found.weeks})
    how = ", ".join(f"with {router}" if router else "on the recorded pods" for router in routers)
    console.print(
        escape(
            f"Shares of the swaps removed (bounds: of the loads), by replay {how}; each advice saw only what came before its "
            f"week. Provenance: {told.found.provenance or 'unknown'}."
        ),
        style="dim",
        highlight=False,
    )


def sentence(found: Backtest) -> str:
    """
    What the weeks come to: how often pins were advised, whether they kept what they promised, and beside the article's rule.
    """
    pinned = [week for week in found.weeks if week.advice.verdict is Verdict.ADVISED]
    whole = count(len(found.weeks), "held-out week")
    if not pinned:
        ours = f"In {whole} no pins would have been advised"
    else:
        swaps = sum(week.realised.swaps or 0 for week in pinned)
        before = sum(week.realised.base_swaps or 0 for week in pinned)
        kept = sum(week.kept is True for week in pinned)
        removed = f"they would have removed {percent(1 - swaps / before)} of the swaps there" if before else "nothing was swapped"
        ours = f"Pins would have been advised in {len(pinned)} of {whole}: {removed}, and kept their promise in {kept}"
    rule = [week.rules[TOP_5] for week in found.weeks]
    base = sum(one.base_swaps or 0 for one in rule)
    if not base:
        return f"{ours}."
    return f"{ours}. The top 5 of 30 days, pinned every week: {percent(1 - sum(one.swaps or 0 for one in rule) / base)}."


def row(week: Week) -> tuple[str, ...]:
    """One line of the table."""
    promised = week.advice.effect
    none = week.advice.verdict is Verdict.UNPROVEN
    return (
        utc(week.window.start)[:10],
        f"{week.requests:,}",
        "–" if week.miss_ratio is None else percent(week.miss_ratio),
        "too early" if none else str(week.advice.amount),
        "–" if week.kept is None else f"{_share(promised)} ({percent(promised.low or 0.0)} … {percent(promised.high or 0.0)})",
        _share(week.realised),
        {None: "–", True: "yes", False: "NO"}[week.kept],
        *(_share(week.rules[name]) for name in RULES),
        *("–" if name not in week.bounds else percent(week.bounds[name]) for name in BOUNDS),
    )


def _share(effect: Effect) -> str:
    return "–" if effect.swaps_removed is None else percent(effect.swaps_removed)
