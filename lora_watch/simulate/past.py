"""
The days before a live simulation, laid into the same tables beside the service: the newest first, each from its begin on.

A process of its own at the lowest priority, so that what is shown never waits for it. It says on standard output, a JSON object a
line, how far it is, and ends with the process that started it.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from lora_watch.errors import LoraWatchError
from lora_watch.model import DAY
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, Batch
from lora_watch.simulate.engines import pieces
from lora_watch.simulate.feed import Told
from lora_watch.simulate.plan import Plan, plan
from lora_watch.simulate.rows import Rows
from lora_watch.simulate.scenario import load
from lora_watch.simulate.traffic import catalogue, spans
from lora_watch.simulate.write import give_memory_back
from lora_watch.store.tables import Store

REQUESTS_AT_ONCE = 30_000
"""Whose rows are made and stored together: about 50 MB."""
LAID = (ADAPTER_EVENTS, REQUESTS, SAMPLES)
KEPT_FREE = 1 << 30
"""Bytes of the disk that are left alone."""


@dataclass(frozen=True, slots=True)
class Laid:
    """``days`` of ``of`` are laid, in ``size`` bytes; ``full``: no further one, since the disk has no room for it."""

    days: int
    of: int
    size: int
    full: bool = False


def lay(
    live: Plan,
    days: int,
    store: Store,
    *,
    free: Callable[[], int],
    goes_on: Callable[[], bool] = lambda: True,
    most: int = REQUESTS_AT_ONCE,
) -> Iterator[Laid]:
    """
    Lay the ``days`` before a plan, and say after each how far it is; nothing more once ``goes_on`` says no.

    A day is stored piece by piece in the order of its time, all pods alike, so one that was cut short ends early; the position
    ``laid/<begin>`` (its end) of the samples is committed with the last piece and says that it is whole. No day is begun for
    which ``free`` (bytes) has no room: twice the largest so far, and ``KEPT_FREE``.
    """
    ledgers = {table.name: store.ledger(table) for table in LAID}
    begun, size, largest = _stored(store.root), 0, 0
    for number in range(1, days + 1):
        if free() < 2 * largest + KEPT_FREE:
            yield Laid(number - 1, days, size, full=True)
            return
        for told in _day(live.day_before(number), live.seed, most):
            if not goes_on():
                return
            for table, batch in told.batches():
                whole = table.name == "samples" and told.window.end == live.scenario.begin - (number - 1) * DAY
                mark = {f"laid/{told.window.end - DAY}": told.window.end} if whole else {}
                ledgers[table.name].append(Batch(batch.rows, {**batch.positions, **mark}), at=told.window.end)
        before, size = size, _stored(store.root) - begun
        largest = max(largest, size - before)
        yield Laid(number, days, size)


def _stored(root: Path) -> int:
    """Bytes of all tables."""
    files = (os.path.join(folder, name) for table in LAID for folder, _, names in os.walk(root / table.name) for name in names)
    return sum(os.stat(file).st_size for file in files if os.path.exists(file))


def _day(day: Plan, adapters: int, most: int) -> Iterator[Told]:
    """The windows of a day; its adapters are those of the seed ``adapters``, a window has up to ``most`` requests."""
    scenario = day.scenario
    known = catalogue(scenario, adapters)
    rows = Rows(scenario, known, (), day.until, day.seed)
    length = (day.until - scenario.begin) / DAY
    for window, lives in pieces(scenario, known, spans(scenario, known, length, day.seed, most), day.until, day.seed):
        rows.go_on(lives)
        yield Told(window, list(rows.parts(window)), lives)


def main() -> int:
    """Lay what the JSON object in the first argument says: scenario, now, seed, days, data (a folder), parent (a process id)."""
    asked = json.loads(sys.argv[1])
    os.nice(19)
    give_memory_back()
    folder = Path(asked["data"])
    live = plan(load(asked["scenario"]), asked["now"], asked["seed"])
    try:
        for laid in lay(
            live,
            asked["days"],
            Store(folder),
            free=lambda: shutil.disk_usage(folder).free,
            goes_on=lambda: os.getppid() == asked["parent"],
        ):
            sys.stdout.write(json.dumps(asdict(laid)) + "\n")
            sys.stdout.flush()
    except LoraWatchError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
