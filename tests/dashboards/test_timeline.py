"""The page Timeline as somebody uses it."""

from pathlib import Path

import pytest
from dashboards.opening import html, opened, settled
from lru_pod import Pod
from stored import stored

from lora_watch.diagnose.finding import Confidence, Finding, Severity
from lora_watch.jobs import Diagnoser
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.store.tables import Store

END = 20_000 * DAY + 12 * HOUR
CAUSE = "an experiment </script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six adapters in turn on four slots for ten minutes, a pod without an agent, and a finding that lasts for five."""
    folder = tmp_path_factory.mktemp("story")
    made, other = Pod(slots=4, load=0.1).start(END - HOUR), Pod(slots=4, name="silent")
    for number in range(600):
        made.ask(END - 600 * SECOND + number * SECOND, f"lora-{number % 6}", hold=0.2)
    other.ask(END - MINUTE, "lora-0")
    store = stored(folder, events=made.event_rows(), requests=made.request_rows().vstack(other.request_rows()))
    found(store)
    return folder


def found(store: Store) -> None:
    start = END - 10 * MINUTE
    finding = Finding("thrash", Severity.HARM, "c", "p", "", start, "Thrash: 6 adapters", CAUSE, Confidence.HIGH, 1.0)
    diagnoser = Diagnoser(store, lambda window: [finding] if window.end <= start + 5 * MINUTE else [])
    for minute in range(10):
        at = start + minute * MINUTE
        diagnoser.look(Window(at - HOUR, at), now=at)


def test_an_incident_is_listed_with_its_cause_and_its_post_mortem(story: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(story, "timeline", monkeypatch)
    assert "Thrash: 6 adapters" in html(test)
    assert "an experiment &lt;/script&gt;" in html(test)
    assert [block for block in test.get("download_button") if "Post-mortem" in block.proto.label]


def test_showing_an_incident_makes_its_time_the_window(story: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(story, "timeline", monkeypatch)
    (button,) = [one for one in test.button if one.label == "Show it"]
    settled(button.click().run())
    start = END - 10 * MINUTE
    assert int(test.query_params["from"]) == (start - 10 * MINUTE) // 1000
    assert start // 1000 < int(test.query_params["to"]) <= (END + 10 * MINUTE) // 1000


def test_a_window_moves_by_its_own_length_and_not_past_the_data(story: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(story, "timeline", monkeypatch, {"last": "15m"})
    buttons = {one.label: one for one in test.button}
    assert buttons["Later →"].disabled
    settled(buttons["← Earlier"].click().run())
    span = int(test.query_params["to"]) - int(test.query_params["from"])
    assert span * 1000 == pytest.approx(15 * MINUTE, abs=2000)
    assert int(test.query_params["to"]) * 1000 < END


def test_a_pod_whose_slots_nobody_tells_is_named(story: Path, monkeypatch: pytest.MonkeyPatch):
    said = html(opened(story, "timeline", monkeypatch))
    assert "Who sat in the slots of 1 of 2 pods is unknown, and not drawn: silent." in said


def test_an_adapter_is_followed_over_pods(story: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(story, "timeline", monkeypatch, {"adapter": "lora-3"})
    tables = [frame.value for frame in test.dataframe]
    (followed,) = [frame for frame in tables if list(frame.columns[:3]) == ["adapter", "pod", "share"]]
    assert followed["adapter"].unique().tolist() == ["lora-3"]


def test_an_adapter_that_was_nowhere_is_said(story: Path, monkeypatch: pytest.MonkeyPatch):
    said = html(opened(story, "timeline", monkeypatch, {"adapter": "nobody"}))
    assert "None of the chosen adapters sat in a slot" in said


def test_chains_are_told_of_short_windows_only(story: Path, monkeypatch: pytest.MonkeyPatch):
    assert "swaps in" in html(opened(story, "timeline", monkeypatch))
    assert "three hours or less" in html(opened(story, "timeline", monkeypatch, {"last": "6h"}))


def test_a_window_in_which_nothing_happened_says_so(story: Path, monkeypatch: pytest.MonkeyPatch):
    long_ago = {"from": str((END - 20 * DAY) // 1000), "to": str((END - 19 * DAY) // 1000)}
    said = html(opened(story, "timeline", monkeypatch, long_ago))
    assert "Nothing happened in this window" in said
    assert "No incident is stored" in said
