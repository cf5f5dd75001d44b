"""The fast path: a scenario straight into the tables, and its truth beside them."""

import ctypes
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from lora_watch.errors import StoreError
from lora_watch.model import DAY, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, TABLES, Batch
from lora_watch.simulate.engines import Life, lives
from lora_watch.simulate.rows import Rows
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.traffic import catalogue, everything
from lora_watch.simulate.truth import pods_truth, truth
from lora_watch.store.tables import Store, translated

TRUTH = "truth.json"
_MMAP_THRESHOLD = -3
"""glibc's M_MMAP_THRESHOLD."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """What was laid: the window and the rows of each table."""

    window: Window
    events: int
    requests: int
    samples: int


BATCH_REQUESTS = 1_000_000
"""Requests whose engines are held at once, over all days; a pod is never split."""


def simulate(
    scenario: Scenario,
    days: float,
    seed: int,
    out: Path,
    *,
    told: Callable[[float], None] | None = None,
) -> Simulated:
    """
    Lay ``days`` days of a scenario as Delta tables in the folder ``out``, with ``truth.json``; the same seed gives the same rows.

    The folder must hold no table yet: StoreError. ``told`` is called with the share (0 … 1) that is stored. All requests are
    simulated first (about 100 bytes each), then rows are made and stored for some pods and a day at a time. Maintenance with a
    retention shorter than the scenario is old drops what was laid.
    """
    if days <= 0:
        raise ValueError(f"a simulation takes longer than {days} days")
    for table in TABLES:
        if (out / table.name).exists():
            raise StoreError(
                f"{out} holds a table {table.name} already: name another folder, what is simulated joins no other data"
            )
    known = catalogue(scenario, seed)
    window = Window(scenario.begin, scenario.begin + round(days * DAY))
    store = Store(out)
    ledgers = {table.name: store.ledger(table) for table in TABLES}
    sums = dict.fromkeys(ledgers, 0)
    pods: dict[str, Any] = {}
    for batch in batches(lives(scenario, known, everything(scenario, known, days, seed), days, seed)):
        for part in Rows(scenario, known, batch, window.end, seed).parts():
            for table, rows in (
                (ADAPTER_EVENTS, Batch(part.events, part.event_positions)),
                (REQUESTS, Batch(part.requests, part.request_positions)),
                (SAMPLES, Batch(part.samples)),
            ):
                sums[table.name] += ledgers[table.name].append(rows, at=part.window.end).rows
            if told:
                every = sum(pool.pods for pool in scenario.pools)
                now = len({(life.pool.name, life.pod) for life in batch}) * (part.window.end - window.start)
                told((len(pods) + now / (window.end - window.start)) / every)
        pods |= pods_truth(scenario, batch, window.end)
    text = json.dumps(truth(scenario, known, pods, window.end, seed), ensure_ascii=False, indent=1)
    with translated(f"writing {out / TRUTH}"):
        (out / TRUTH).write_text(text + "\n", encoding="utf-8")
    return Simulated(window, sums["adapter_events"], sums["requests"], sums["samples"])


def give_memory_back() -> None:
    """
    Have this process return large arrays to the system when they are freed: a month of eight pods then takes a fifth less.

    glibc maps large blocks by themselves, but raises its idea of large (to 32 MiB) with each one that is freed. For a process
    that does nothing else; where the C library has no such switch, nothing happens.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 20)


def batches(served: Iterable[Life], size: int = BATCH_REQUESTS) -> Iterator[list[Life]]:
    """The lives, which come one pod after the other, of whole pods that together served ``size`` requests or more at a time."""
    batch: list[Life] = []
    for _, of_pod in groupby(served, key=lambda life: (life.pool.name, life.pod)):
        batch += of_pod
        if sum(len(life.number) for life in batch) >= size:
            yield batch
            batch = []
    if batch:
        yield batch
