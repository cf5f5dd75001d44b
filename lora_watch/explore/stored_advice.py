"""
Advice as the service gives it once a day, and as pages read it: what takes a minute to work out is worked out once.

It is worked out in a process of its own: a month of requests and its replays take a gigabyte, which goes back once they are done.
"""

import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import polars as pl

from lora_watch.config import Settings
from lora_watch.derive.groups import POOL
from lora_watch.errors import LoraWatchError
from lora_watch.explore.advice import Advised, advised, window_until
from lora_watch.explore.advice_words import tree
from lora_watch.explore.columns import Column
from lora_watch.explore.processes import undisturbed
from lora_watch.model import DAY, Window
from lora_watch.schema import ADVICE, COMPUTED
from lora_watch.store.tables import Store

HISTORY = "30d"
"""What advice is learned from."""
FRESH = 3 * DAY
"""Older advice is not shown: what it was learned from is not what there is."""
SOURCE = "recommend"
COMMAND = "lora-watch recommend"
"""What works advice out where none is stored."""
Pool = tuple[str | None, str | None, str | None]
"""Cluster, pool and role."""
TABLE = {
    "what": Column("Change"),
    "verdict": Column("Verdict", help="advised: the lower bound is above what the replay may be off by"),
    "removes": Column("Removes", "percent", "of the swaps of the judged week, or of the waiting for slots where requests wait"),
    "low": Column("at least", "percent", "95 % interval, from days drawn anew"),
    "high": Column("at most", "percent"),
    "p95_seconds_saved": Column("P95 saved", "seconds", "of what requests waited for slots and loads"),
    "gpu_hours_saved": Column("GPU hours a month", "number"),
    "cost": Column("Costs"),
    "can": Column("Can be done"),
    "how": Column("How"),
    "adapters": Column("Adapters"),
}


@dataclass(frozen=True, slots=True)
class Given:
    """Advice on a pool as it was stored: when (µs UTC), its sentence, and all of it as plain values."""

    pool: Pool
    at: int
    sentence: str
    detail: dict[str, Any]


def rows(found: Sequence[Advised], at: int) -> pl.DataFrame:
    """Recommendations as rows of ADVICE. All of it is ASCII JSON in ``detail``: whatever a name holds, it is text there."""
    schema = {name: dtype for name, dtype in ADVICE.schema.items() if name not in COMPUTED}
    told = [
        {
            "at": at,
            **dict(zip(("cluster", "pool", "role"), one.pool, strict=True)),
            "id": json.dumps(one.pool),
            "start": one.recommendation.window.start,
            "end": one.recommendation.window.end,
            "sentence": one.recommendation.sentence,
            "detail": json.dumps(tree(one.recommendation), allow_nan=False),
            "provenance": one.recommendation.provenance,
            "source": SOURCE,
        }
        for one in found
    ]
    return ADVICE.conform(pl.DataFrame(told, schema=schema, orient="row"))


def worked_out(store: Store, settings: Settings, now: int) -> pl.DataFrame:
    """Advice on every pool as of ``now`` (µs UTC). NotEnoughHistory where nothing is stored, or nothing can be replayed."""
    return rows(list(advised(store, window_until(store, HISTORY, None, now), settings)), now)


def apart(store: Store, settings: Settings, now: int) -> pl.DataFrame:
    """
    The same, in a process that is begun for it and ends with it. LoraWatchError where it was killed.
    """
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:500,muzzy_decay_ms:0")  # what polars frees there goes back at once
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=undisturbed) as worker:
            return worker.submit(_in_a_process, store.root, settings, now).result()
    except BrokenProcessPool:
        raise LoraWatchError("no advice was given: its process was killed; did it run out of memory?") from None


def _in_a_process(root: Path, settings: Settings, now: int) -> pl.DataFrame:
    return worked_out(Store(root), settings, now)


def latest(store: Store, before: int) -> tuple[Given, ...]:
    """
    The newest advice on each pool that was stored in the ``FRESH`` up to ``before`` (µs UTC), by pool. What can't be read (of
    another version) is left out. StoreError where the table can't be read.
    """
    told = store.rows(ADVICE, Window(max(before - FRESH, 0), max(before, 1))).sort("at").group_by(POOL).last().sort(POOL)
    found = []
    for row in told.iter_rows(named=True):
        try:
            detail = json.loads(row["detail"])
        except (TypeError, ValueError, RecursionError):
            continue
        if isinstance(detail, dict) and isinstance(detail.get("advice"), list):
            found.append(Given((row["cluster"], row["pool"], row["role"]), row["at"], row["sentence"] or "", detail))
    return tuple(found)


def of_pool(given: Sequence[Given], pool: Pool) -> Given | None:
    """The advice on a pool; None where there is none."""
    return next((one for one in given if one.pool == pool), None)


def table(given: Given, kinds: Sequence[str] | None = None) -> pl.DataFrame:
    """The ranked table, a row a change, of these ``kinds`` or of all; the article's rule at the end where pins are among them."""
    told = [one for one in given.detail["advice"] if kinds is None or one.get("kind") in kinds]
    article = given.detail.get("article_rule")
    if article is not None and (kinds is None or "pins" in kinds):
        told.append(article)
    return pl.DataFrame([_row(one) for one in told], schema=_SCHEMA, orient="row")


_SCHEMA: dict[str, pl.DataType] = {
    name: pl.Float64() if column.kind in {"percent", "seconds", "number"} else pl.String() for name, column in TABLE.items()
}


def _row(one: dict[str, Any]) -> dict[str, Any]:
    effect = one.get("effect") or {}
    waits = effect.get("waits_removed") is not None
    share = ("waits_removed", "waits_low", "waits_high") if waits else ("swaps_removed", "low", "high")
    can = one.get("can")
    return {
        **{name: one.get(name) for name in ("what", "verdict", "cost", "how")},
        **dict(zip(("removes", "low", "high"), map(effect.get, share), strict=True)),
        **{name: effect.get(name) for name in ("p95_seconds_saved", "gpu_hours_saved")},
        "can": "unknown" if can is None else "yes" if can else "no",
        "adapters": ", ".join(one.get("adapters") or ()),
    }
