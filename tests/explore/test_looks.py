"""A look of the explorer is the service's, and remembers since when what it finds was stored."""

from dataclasses import replace
from pathlib import Path

import pytest
from lru_pod import Pod
from stored import stored

from lora_watch.config import DiagnoseSettings
from lora_watch.diagnose.life import Change, Phase, State
from lora_watch.diagnose.stored import rows
from lora_watch.explore.looks import Looks
from lora_watch.explore.looks import stored as open_at
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.schema import FINDINGS, Batch
from lora_watch.store.tables import Store

END = 20_000 * DAY + 12 * HOUR


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Pod(slots=4, load=0.36).start(END - HOUR)
    for number in range(600):
        made.ask(END - 600 * SECOND + number * SECOND, f"lora-{number % 6}", hold=0.2)
    return stored(tmp_path, events=made.event_rows(), requests=made.request_rows())


def looks(store: Store, tmp_path: Path) -> Looks:
    return Looks(store, DAY, DiagnoseSettings(expected=tmp_path / "none.yaml"))


def test_what_was_stored_as_open_began_when_it_was_stored_first(store: Store, tmp_path: Path):
    look = looks(store, tmp_path)
    found = look(Window(END - HOUR, END)).diagnosis.findings[0]
    began = replace(found, since=END - 3 * HOUR)
    told = State(
        END - MINUTE, f"{found.key}-1", Phase.WORSENING, Change.WORSENED, END - 3 * HOUR, END - MINUTE, None, None, 1.0, began
    )
    store.ledger(FINDINGS).append(Batch(rows([told]), {}), at=1)
    again = look(Window(END - HOUR, END))
    assert {one.key: one.since for one in again.diagnosis.findings}[found.key] == END - 3 * HOUR
    assert again.phases == {found.key: Phase.WORSENING}


def test_what_was_closed_or_not_seen_for_long_is_not_open(store: Store, tmp_path: Path):
    found = looks(store, tmp_path)(Window(END - HOUR, END)).diagnosis.findings[0]
    old = State(END - HOUR, "old", Phase.OPEN, Change.OPENED, END - HOUR, END - HOUR, None, None, 1.0, found)
    closed = State(END - MINUTE, "closed", Phase.CLOSED, Change.CLOSED, END - HOUR, END - MINUTE, END, None, 1.0, found)
    store.ledger(FINDINGS).append(Batch(rows([old, closed]), {}), at=1)
    assert open_at(store, END) == []


def test_of_a_long_window_the_last_hour_is_looked_at(store: Store, tmp_path: Path):
    assert looks(store, tmp_path)(Window(END - DAY, END)).diagnosis.window == Window(END - HOUR, END)
