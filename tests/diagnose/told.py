"""Rows of structures and facts of a pool in the columns that they really have; a test names what it is about."""

from collections.abc import Iterable
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from lora_watch.derive.cusum import Evidence as Cusum
from lora_watch.derive.hysteresis import State
from lora_watch.derive.timeline import timeline
from lora_watch.derive.usual_misses import MissLimit
from lora_watch.diagnose.facts import PoolFacts
from lora_watch.diagnose.finding import Finding
from lora_watch.explore.around import STRUCTURES, Around
from lora_watch.explore.queries import overview_by_shards
from lora_watch.model import DAY, HOUR, MINUTE, Window
from lora_watch.recommend.levers import NOTHING, Lever, Levers
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.store.tables import Store

WINDOW = Window(20_000 * DAY, 20_000 * DAY + HOUR)
HOSTILE = (
    "quote'\"`",
    "two\nlines\r\nand\ttabs",
    "</script><script>alert(1)</script>",
    "[bold red]x[/] [link=http://e.x]y[/link]",
    "x" * 10_000,
    "\u202egnirts\u202c \u05e9\u05dc\u05d5\u05dd \u2066x",
    "\x1b[2J\x1b]8;;http://e.x\x07x\x1b]8;;\x07",
    "**b** _i_ [x](http://e.x) ![i](http://e.x) <b> | a |\n# h",
    "",
    "\U0001f999\u0000\u2028\u0085",
)
"""Names of adapters, pods and pools that somebody chose to harm a reader."""


@cache
def columns(name: str) -> pl.Schema:
    """The columns of a structure, as they are derived."""
    with TemporaryDirectory() as folder:
        return STRUCTURES[name](Around(Store(folder), WINDOW, DAY)).collect_schema()


def found(name: str, *rows: dict[str, Any]) -> pl.DataFrame:
    """Rows of a structure; a column that it has not is a KeyError."""
    schema = columns(name)
    filled = {
        "cluster": "c",
        "pool": "p",
        "role": "",
        "pods": ["pod-0"],
        "adapters": ["a"],
        "start": WINDOW.end - 5 * MINUTE,
        "end": WINDOW.end - MINUTE,
        "flagged": True,
        "provenance": "observed",
    }
    for row in rows:
        if unknown := set(row) - set(schema):
            raise KeyError(f"{name} has no {unknown}")
    return pl.DataFrame([{**dict.fromkeys(schema), **filled, **row} for row in rows], schema=schema, orient="row")


def minutes(*parts: tuple[int, dict[str, float]], end: int = WINDOW.end) -> pl.DataFrame:
    """A timeline up to ``end``: for each part so many minutes with these requests, loads, swaps and stall_seconds."""
    schema = timeline(ADAPTER_EVENTS.empty().lazy(), REQUESTS.empty().lazy(), WINDOW).collect_schema()
    values = [part for count, part in parts for _ in range(count)]
    rows = []
    for number, part in enumerate(values):
        row: dict[str, Any] = {"requests": 0, "loads": 0, "cold_loads": 0, "swaps": 0, "stall_seconds": 0.0, "pods": 1, **part}
        asked = row["requests"]
        row |= {"cluster": "c", "pool": "p", "role": "", "provenance": "observed", "stall_share": row["stall_seconds"] / 60}
        row |= {"at": end - (len(values) - number) * MINUTE}
        row |= {f"{name}_per_request": row[name] / asked if asked else None for name in ("loads", "swaps")}
        rows.append({name: row[name] for name in schema})
    return pl.DataFrame(rows, schema=schema, orient="row")


@cache
def _pods() -> pl.Schema:
    with TemporaryDirectory() as folder:
        return overview_by_shards(Store(folder), WINDOW, DAY).pods.schema


def pods(*rows: dict[str, Any]) -> pl.DataFrame:
    """Rows of an overview's pods: of each what is given, and null."""
    filled = {"cluster": "c", "pool": "p", "role": "", "pod": "pod-0", "slots": 4, "loads": 0}
    return pl.DataFrame([{**dict.fromkeys(_pods()), **filled, **row} for row in rows or ({},)], schema=_pods(), orient="row")


def adapters(*names: str, requests: int = 10, first_seen: int = WINDOW.start - DAY, announced: bool = False) -> pl.DataFrame:
    """Rows of a pool's adapters."""
    schema = {"adapter": pl.String, "requests": pl.Int64, "first_seen": pl.Int64, "announced": pl.Boolean}
    return pl.DataFrame([(name, requests, first_seen, announced) for name in names], schema=schema, orient="row")


def lever(name: str, amount: int, effect: float, *, wait: float | None = None, base_wait: float | None = None) -> Lever:
    """A lever with a narrow interval; waits for a slot in seconds, at the 95th percentile."""
    interval = effect - 0.05, effect + 0.05
    return Lever(name, amount, f"{name} {amount}", effect, *interval, 10, 100, "replay", (), wait, base_wait)


def facts(
    *,
    told: pl.DataFrame | None = None,
    lines: pl.DataFrame | None = None,
    known: pl.DataFrame | None = None,
    warning: dict[str, Any] | None = None,
    alarms: Iterable[str] = (),
    levers: Iterable[Lever] = (),
    learning: bool = False,
    pool: str = "p",
    doubled: Cusum | None = None,
    routed: bool = False,
    usual: MissLimit | None = None,
) -> PoolFacts:
    """A healthy pool of one pod with four slots and three adapters, but for what is given."""
    pulled = Levers(tuple(levers), 100, 0.1, None, "observed")
    return PoolFacts(
        WINDOW,
        "c",
        pool,
        "",
        pods=pods() if told is None else told,
        timeline=minutes((60, {"requests": 10})) if lines is None else lines,
        adapters=adapters("a", "b", "c") if known is None else known,
        learning=learning,
        warning=warning,
        alarms={name: State(on=True, since=WINDOW.end - 5 * MINUTE) for name in alarms},
        doubled=doubled,
        routed=routed,
        usual=usual,
        replay=lambda _: pulled if pulled.levers else NOTHING,
    )


def text(one: Finding) -> str:
    """All that a finding says."""
    remedies = [part for remedy in one.remedies for part in (remedy.text, remedy.why)]
    return "\n".join([one.summary, one.cause, *(it.text for it in one.evidence), *remedies, *one.avoid, *one.unknown])
