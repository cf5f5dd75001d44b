"""How routers would have scored the pods for an adapter at a moment, as the pods stood then, and where requests really went."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from lora_watch.derive.groups import POD, of_pool
from lora_watch.explore.capacity import Pool
from lora_watch.explore.queries import LONGEST_REQUEST
from lora_watch.explore.timeline import LongStays
from lora_watch.model import MINUTE, Window
from lora_watch.replay.routers import ARTICLE, LLM_D, LLM_D_RESIDENCY, scores
from lora_watch.replay.state import (
    CPU_PLACE,
    GPU_FILLED,
    GPU_PLACE,
    IN_FLIGHT,
    NAMED,
    QUEUED,
    RUNNING,
    SERVING,
    SLOTS,
    WAITING,
    empty_pods,
)
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.store.tables import Store

NEAR = MINUTE
"""Requests that came within so much of the moment, before and after, say where they really went."""
SEATS = 256
"""Requests that an engine runs at once, unless it is told otherwise: nothing that is stored says it."""
SCORERS = (
    ("article", "The article's formula", ARTICLE),
    ("released", "llm-d's released scorer", LLM_D),
    ("residency", "llm-d's residency scorer", replace(LLM_D_RESIDENCY, placement_bonus=0.0)),
)
"""Column, title and router. Where an adapter's home pod is only the router itself knows: its bonus of 0.03 is left out."""


@dataclass(frozen=True, slots=True)
class Scored:
    """
    ``pods``: a row a pod of the pool, with its state at the moment (``resident``: in a slot; ``in_flight``, ``queued`` requests
    of the adapter; ``running``, ``waiting`` of all; ``filled`` slots of ``slots``), a column a scorer (null: its filter drops
    the pod), and ``went``: requests for the adapter that came within ``NEAR``. ``untold`` pods have no known slots and are left
    out.
    """

    at: int
    pods: pl.DataFrame
    untold: int


def routed(store: Store, pool: Pool, slots: dict[str, int], adapter: str, at: int, lookback: int) -> Scored:
    """
    The scores at ``at`` (µs UTC). StoreError where a table can't be read.

    In flight and queued is what requests say that were there at the moment; what is in the CPU cache, the events of that tier.
    """
    read = LongStays(store, Window(at - MINUTE, at + 1), lookback)
    there = (pl.col("resident_from") <= at) & (pl.col("left_at").is_null() | (pl.col("left_at") > at))
    held = read.stays.filter(of_pool(pool) & there & pl.col("adapter").is_not_null()).select("pod", "adapter").unique().collect()
    asked = store.rows(
        REQUESTS,
        Window(at - NEAR, at + LONGEST_REQUEST),
        of_pool(pool) & pl.col("scheduled").is_not_null(),
        columns=(*POD, "adapter", "arrived", "queued", "scheduled", "finished"),
    ).with_columns(came=pl.coalesce("arrived", "queued", "scheduled"))
    running = asked.filter((pl.col("scheduled") <= at) & (pl.col("finished") > at))
    waiting = asked.filter((pl.col("came") <= at) & (pl.col("scheduled") > at))
    went = asked.filter((pl.col("adapter") == adapter) & pl.col("came").is_between(at - NEAR, at + NEAR))
    cached = _cached(store, pool, at, lookback)

    names = sorted({adapter, *(name for rows in (held, running, waiting, cached) for name in rows["adapter"].drop_nulls())})
    pods, code = sorted(slots), {name: number for number, name in enumerate(names)}
    place = {name: number for number, name in enumerate(pods)}
    counts = np.array([slots[name] for name in pods], dtype=np.int64)
    state = empty_pods(
        counts, np.maximum(counts, len(names)), np.full(len(pods), SEATS), np.zeros((len(pods), len(names) + 1), dtype=np.bool_)
    )
    named = running.filter(pl.col("adapter").is_not_null())  # what runs is in a slot, whether an event says so or not
    for rows, columns in ((held, (GPU_PLACE, CPU_PLACE)), (named, (GPU_PLACE, CPU_PLACE)), (cached, (CPU_PLACE,))):
        for pod, name in rows.select("pod", "adapter").iter_rows():
            if (pod or "") in place:
                state.cell[place[pod or ""], code[name], list(columns)] = 0
    for rows, column in ((running, IN_FLIGHT), (waiting, QUEUED)):
        for pod, name in rows.select("pod", "adapter").iter_rows():
            if (pod or "") in place:
                state.cell[place[pod or ""], len(names) if name is None else code[name], column] += 1
    cell = state.cell
    state.pod[:, RUNNING], state.pod[:, WAITING] = cell[:, :, IN_FLIGHT].sum(axis=1), cell[:, :, QUEUED].sum(axis=1)
    state.pod[:, SERVING] = (cell[:, :-1, IN_FLIGHT] > 0).sum(axis=1)
    state.pod[:, NAMED] = ((cell[:, :-1, IN_FLIGHT] > 0) | (cell[:, :-1, QUEUED] > 0)).sum(axis=1)
    filled = (cell[:, :-1, GPU_PLACE] >= 0).sum(axis=1)
    state.pod[:, GPU_FILLED] = np.minimum(filled, counts)  # while a load goes on, who leaves for it may still be told
    mine = code[adapter]
    counted = dict(went.group_by(pl.col("pod").fill_null("")).len().iter_rows())
    frame = pl.DataFrame(
        {
            "pod": pods,
            "resident": cell[:, mine, GPU_PLACE] >= 0,
            "in_flight": cell[:, mine, IN_FLIGHT],
            "queued": cell[:, mine, QUEUED],
            "running": state.pod[:, RUNNING],
            "waiting": state.pod[:, WAITING],
            "filled": state.pod[:, GPU_FILLED],
            "slots": state.pod[:, SLOTS],
            **{column: scores(state, router, mine) for column, _, router in SCORERS},
            "went": [counted.get(name, 0) for name in pods],
        }
    )
    known = set(pods)
    untold = len({pod or "" for pod in asked["pod"].unique()} - known)
    return Scored(at, frame.with_columns(pl.col(column).fill_nan(None) for column, _, _ in SCORERS), untold)


def _cached(store: Store, pool: Pool, at: int, lookback: int) -> pl.DataFrame:
    """Who was in the CPU cache of each pod: the last record of that tier of the adapter in its boot is a load."""
    rows = store.rows(
        ADAPTER_EVENTS,
        Window(max(at - lookback, 0), at + 1),
        of_pool(pool) & (pl.col("tier") == "cpu") & pl.col("kind").is_in(["load", "evict"]) & pl.col("ok").ne_missing(False),
        columns=("pod", "stream", "seq", "adapter", "kind"),
    )
    last = (
        rows.filter(pl.col("adapter").is_not_null()).sort("seq").group_by("pod", "stream", "adapter").agg(pl.col("kind").last())
    )
    return last.filter(pl.col("kind") == "load").select("pod", "adapter").unique()
