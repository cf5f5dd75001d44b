"""
What the page *Capacity* shows of the end of a window: what LRU would miss at every number of slots, how many adapters are wanted
within a time, what each lever would have done, and what a plan would have.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from lora_watch.config import CostSettings
from lora_watch.derive.groups import POD, POOL, of_pool
from lora_watch.derive.miss_ratio_curve import miss_ratio_curve
from lora_watch.derive.working_set import working_set
from lora_watch.explore.around import WARM_UP
from lora_watch.explore.queries import FIGURES, Frames, Past
from lora_watch.explore.timeline import reading
from lora_watch.model import HOUR, Window
from lora_watch.recommend.levers import NOTHING, Foretold, Levers, Plan, foretell, levers
from lora_watch.recommend.sizing import monthly_bill
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.store.tables import Store

SPAN = HOUR
"""So much of the end of a window is replayed; the hour before it only fills the slots."""
SPANS = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 600.0, 1200.0, 2400.0)
"""Seconds T of the working-set curve W(T)."""
MOST_SLOTS = 128
"""Slots per pod up to which the curve is drawn."""
_COLUMNS = (*POD, "engine", "adapter", "stream", "seq", "at", "provenance", "arrived", "queued", "scheduled", "finished")
Pool = tuple[str | None, str | None, str | None]
"""Cluster, pool and role."""


@dataclass(frozen=True, slots=True)
class Room:
    """
    The present of every pool. ``pods``: a row a pod with ``slots``; ``curve``: a row a pool and number of slots per pod, with
    ``requests``, ``misses``, ``miss_ratio``, ``first_uses``, method, error_class, provenance; ``wanted``: a row a pool and span,
    with ``adapters``; ``sizes``: the ``bytes`` of the largest adapter by pool.
    """

    window: Window
    pods: pl.DataFrame
    curve: pl.DataFrame
    wanted: pl.DataFrame
    sizes: pl.DataFrame


def span_of(window: Window) -> Window:
    """The part of a window that is replayed."""
    return Window(max(window.start, window.end - SPAN), window.end)


def room(store: Store, window: Window, lookback: int) -> Room:
    """The curves of the end of a window. StoreError where a table can't be read."""
    last = span_of(window)
    read = Frames(store, last, Past(store, lookback, brief=True))
    pods = FIGURES["occupancy"](read, POD).select(*POD, "slots", "provenance").collect().sort(POD)
    requests = _asked(store, last)
    by_pod = miss_ratio_curve(requests, last, POD)
    wanted = working_set(requests, last, POOL, spans=SPANS, held_from=last.start - WARM_UP)
    loads = store.rows(
        ADAPTER_EVENTS, last, (pl.col("kind") == "load") & pl.col("bytes").is_not_null(), columns=(*POOL, "kind", "bytes")
    )
    return Room(last, pods, pooled(by_pod), wanted, loads.group_by(POOL).agg(pl.col("bytes").max()))


def pooled(by_pod: pl.DataFrame) -> pl.DataFrame:
    """
    The curves of a pool's pods added up: misses where every pod had so many slots, the pods' requests as they were routed.

    A pod's curve ends where all its adapters have a slot; with more it misses as much as there.
    """
    ends = by_pod["slots"].to_list()
    most = min(max(ends, default=0), MOST_SLOTS)
    grid = by_pod.select(POD).unique().join(pl.DataFrame({"slots": pl.Series(range(1, most + 1), dtype=pl.Int64)}), how="cross")
    filled = grid.join(by_pod, on=[*POD, "slots"], how="left", nulls_equal=True).sort(*POD, "slots")
    columns = ("requests", "misses", "first_uses", "method", "error_class", "provenance")
    filled = filled.with_columns(pl.col(columns).forward_fill().over(POD, order_by="slots"))
    return (
        filled.group_by(*POOL, "slots")
        .agg(
            pl.col("requests", "misses", "first_uses").sum(), pl.col("method", "error_class").first(), pl.col("provenance").max()
        )
        .with_columns(miss_ratio=pl.col("misses") / pl.col("requests"))
        .sort(*POOL, "slots")
    )


def slots_of(told: Room, pool: Pool) -> dict[str, int]:
    """The slots of a pool's pods by name; pods of whose slots nobody told are left out."""
    mine = told.pods.filter(of_pool(pool) & pl.col("slots").is_not_null() & (pl.col("slots") >= 1))
    return {pod or "": slots for pod, slots in mine.select("pod", "slots").iter_rows()}


def compared(store: Store, window: Window, pool: Pool, slots: Mapping[str, int]) -> Levers:
    """Every lever by itself, of one pool, over the end of a window."""
    last = span_of(window)
    with reading(store):
        return levers(_asked(store, last).filter(of_pool(pool)), last, slots) if slots else NOTHING


def planned(
    store: Store, window: Window, pool: Pool, slots: Mapping[str, int], plan: Plan, present: str | None
) -> Foretold | None:
    """A plan, of one pool, over the end of a window."""
    last = span_of(window)
    with reading(store):
        return foretell(_asked(store, last).filter(of_pool(pool)), last, slots, plan, present) if slots else None


def month_of(pods: int, settings: CostSettings) -> float | None:
    """What the GPUs of so many pods cost in a month of 730 hours; None without a price."""
    price = settings.gpu_hour_price
    return None if price is None else monthly_bill(pods, settings.gpus_per_pod, price)


def _asked(store: Store, last: Window) -> pl.LazyFrame:
    """Requests that finished in the window or an hour before."""
    asked = store.rows(REQUESTS, Window(max(last.start - WARM_UP, 0), last.end), columns=_COLUMNS)
    return asked.lazy().with_columns(pl.col("pod").fill_null(""))
