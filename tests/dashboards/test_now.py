"""The page Now: what the service stored stands there until the page has looked itself."""

from pathlib import Path
from threading import Event

import pytest
from dashboards.opening import DASHBOARDS, html, opened
from lru_pod import Pod
from stored import stored
from streamlit.testing.v1 import AppTest

from lora_watch.diagnose.finding import Confidence, Finding, Severity
from lora_watch.explore.opened import CONFIG, DATA
from lora_watch.explore.view import View
from lora_watch.jobs import Diagnoser
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from widgets import questions, scene

END = 20_000 * DAY + 12 * HOUR
LONGEST_RUNS = 200


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Six adapters in turn on four slots, and a finding that the service stored up to the end."""
    made = Pod(slots=4, load=0.1).start(END - HOUR)
    for number in range(300):
        made.ask(END - 300 * SECOND + number * SECOND, f"lora-{number % 6}", hold=0.2)
    store = stored(tmp_path, events=made.event_rows(), requests=made.request_rows())
    finding = Finding("thrash", Severity.HARM, "c", "p", "", END - 8 * MINUTE, "Stored: 6 adapters", "", Confidence.HIGH, 1.0)
    diagnoser = Diagnoser(store, lambda window: [finding])
    for minute in range(8):
        at = END - (7 - minute) * MINUTE
        diagnoser.look(Window(at - HOUR, at), now=at)
    return tmp_path


def test_stored_findings_stand_there_until_the_page_has_looked_itself(told: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(CONFIG, raising=False)
    monkeypatch.setenv(DATA, str(told))
    end = scene.end_of_data()
    assert end is not None
    page = scene.scene_of(scene.told(), View(), end)
    look, gate = questions.findings(page, scene.looks()), Event()
    page.ask(look._replace(answer=lambda _: gate.wait(60)))
    test = AppTest.from_file(DASHBOARDS / "app" / "main.py", default_timeout=60).run()
    for _ in range(LONGEST_RUNS):
        if "As they were stored" in html(test):
            break
        test.run()
    gate.set()
    assert "Stored: 6 adapters" in html(test)


def test_once_it_has_looked_its_own_findings_stand_there(told: Path, monkeypatch: pytest.MonkeyPatch):
    assert "As they were stored" not in html(opened(told, "now", monkeypatch))
