"""The fast path: a scenario straight into the tables, and its truth beside them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lora_watch.errors import StoreError
from lora_watch.model import DAY, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, Batch
from lora_watch.simulate.engines import lives
from lora_watch.simulate.rows import Rows
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.traffic import catalogue, everything
from lora_watch.simulate.truth import truth
from lora_watch.store.tables import Store, translated

TRUTH = "truth.json"


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
    told: Callable[[Window], None] | None = None,
) -> Simulated:
    """
    Lay ``days`` days of a scenario as Delta tables in the folder ``out``, with ``truth.json``; the same seed gives the same rows.

    The folder must hold no table yet: StoreError. ``told`` is called with the day of each piece that is stored. All requests
    are simulated first (about 100 bytes each), then rows are made and stored by day, a few pods at a time. Maintenance with a
    retention shorter than the scenario is old drops what was laid.
    """
    if days <= 0:
        raise ValueError(f"a simulation takes longer than {days} days")
    for table in (ADAPTER_EVENTS, REQUESTS, SAMPLES):
        if (out / table.name).exists():
            raise StoreError(
                f"{out} holds a table {table.name} already: name another folder, what is simulated joins no other data"
            )
    known = catalogue(scenario, seed)
    until = scenario.begin + round(days * DAY)
    served = list(lives(scenario, known, everything(scenario, known, days, seed), days, seed))
    store = Store(out)
    ledgers = {table.name: store.ledger(table) for table in (ADAPTER_EVENTS, REQUESTS, SAMPLES)}
    sums = dict.fromkeys(ledgers, 0)
    for part in Rows(scenario, known, served, until, seed).parts():
        for table, batch in (
            (ADAPTER_EVENTS, Batch(part.events, part.event_positions)),
            (REQUESTS, Batch(part.requests, part.request_positions)),
            (SAMPLES, Batch(part.samples)),
        ):
            sums[table.name] += ledgers[table.name].append(batch, at=part.window.end).rows
        if told:
            told(part.window)
    text = json.dumps(truth(scenario, known, served, until, seed), ensure_ascii=False, indent=1)
    with translated(f"writing {out / TRUTH}"):
        (out / TRUTH).write_text(text + "\n", encoding="utf-8")
    return Simulated(Window(scenario.begin, until), sums["adapter_events"], sums["requests"], sums["samples"])
