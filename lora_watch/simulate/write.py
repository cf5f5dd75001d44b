"""The fast path: a scenario straight into the tables, and its truth beside them."""

import ctypes
import json
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lora_watch.errors import StoreError
from lora_watch.model import DAY, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, TABLES, Batch
from lora_watch.simulate.engines import pieces
from lora_watch.simulate.rows import PART_REQUESTS, Part, Rows
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.traffic import SPAN_REQUESTS, catalogue, spans
from lora_watch.simulate.truth import Hours, truth
from lora_watch.store.tables import Ledger, Store, translated

TRUTH = "truth.json"
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""glibc's M_MMAP_THRESHOLD and M_ARENA_MAX."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """What was laid: the window and the rows of each table."""

    window: Window
    events: int
    requests: int
    samples: int


def simulate(
    scenario: Scenario,
    days: float,
    seed: int,
    out: Path,
    *,
    at_once: int = SPAN_REQUESTS,
    told: Callable[[float], None] | None = None,
) -> Simulated:
    """
    Lay ``days`` days of a scenario as Delta tables in the folder ``out``, with ``truth.json``; the same seed gives the same rows.

    The folder must hold no table yet: StoreError. ``told`` is called with the share (0 … 1) that is stored. Requests are
    simulated a day at a time, or ``at_once`` where there are more, while the ones before are stored: memory does not grow with
    ``days``, and what is stored does not depend on ``at_once``, only in how many files.
    Maintenance with a retention shorter than the scenario is old drops what was laid.
    """
    if days <= 0 or at_once < 1:
        raise ValueError(f"a simulation takes longer than {days} days, of {at_once} requests at once")
    for table in TABLES:
        if (out / table.name).exists():
            raise StoreError(
                f"{out} holds a table {table.name} already: name another folder, what is simulated joins no other data"
            )
    known = catalogue(scenario, seed)
    window = Window(scenario.begin, scenario.begin + round(days * DAY))
    store = Store(out)
    ledgers = {table.name: store.ledger(table) for table in (ADAPTER_EVENTS, REQUESTS, SAMPLES)}
    rows, hours = Rows(scenario, known, (), window.end, seed), Hours(scenario, window.end)
    sums, share = Counter[str](), None
    with ThreadPoolExecutor(max_workers=1) as writer:  # half of the time goes into writing, which needs no interpreter
        stored = writer.submit(dict[str, int])
        for span, lives in pieces(scenario, known, spans(scenario, known, days, seed, at_once), window.end, seed):
            rows.go_on(lives)
            for part in rows.parts(span, min(PART_REQUESTS, at_once // 4)):
                sums.update(stored.result())
                if told and share is not None:
                    told(share)
                stored, share = writer.submit(_append, ledgers, part), None
            hours.count(lives, span)
            share = (span.end - window.start) / (window.end - window.start)
        sums.update(stored.result())
    if told:
        told(1.0)
    text = json.dumps(truth(scenario, known, hours.told(), window.end, seed), ensure_ascii=False, indent=1)
    with translated(f"writing {out / TRUTH}"):
        (out / TRUTH).write_text(text + "\n", encoding="utf-8")
    return Simulated(window, sums["adapter_events"], sums["requests"], sums["samples"])


def _append(ledgers: Mapping[str, Ledger], part: Part) -> dict[str, int]:
    """Rows that went into each table."""
    batches = {
        ADAPTER_EVENTS.name: Batch(part.events, part.event_positions),
        REQUESTS.name: Batch(part.requests, part.request_positions),
        SAMPLES.name: Batch(part.samples),
    }
    return {name: ledgers[name].append(batch, at=part.window.end).rows for name, batch in batches.items()}


def give_memory_back() -> None:
    """
    Have this process return large arrays to the system when they are freed: a month of eight pods then takes a fifth less.

    glibc maps large blocks by themselves, but raises its idea of large (to 32 MiB) with each one that is freed, and gives each
    thread an arena of its own: here threads share two. For a process that does nothing else; where the C library has no such
    switch, nothing happens.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, 1 << 20)
        library.mallopt(_ARENA_MAX, 2)
