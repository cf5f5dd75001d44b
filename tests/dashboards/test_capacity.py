"""The page Capacity as somebody uses it."""

from pathlib import Path

import pytest
from dashboards.opening import html, opened, settled
from lru_pod import Pod
from stored import stored

from lora_watch.model import DAY, HOUR, SECOND

END = 20_000 * DAY + 12 * HOUR


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three adapters in turn on two slots: with a third nothing misses."""
    folder = tmp_path_factory.mktemp("ring")
    made = Pod(slots=2, load=0.001).start(END - HOUR)
    for number in range(600):
        made.ask(END - 600 * SECOND + number * SECOND, "abc"[number % 3], hold=0.2)
    stored(folder, events=made.event_rows(), requests=made.request_rows())
    return folder


def test_the_present_is_told_before_anything_is_changed(ring: Path, monkeypatch: pytest.MonkeyPatch):
    said = html(opened(ring, "capacity", monkeypatch))
    assert "1 pod with 2 slots" in said
    assert "As it is now." in said
    assert "Exact curve (error class: exact)" in said


def test_a_slot_more_is_replayed_and_put_beside_the_present(ring: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(ring, "capacity", monkeypatch)
    settled(test.slider(key="lw_plan_slots").set_value(1).run())
    said = html(test)
    assert "+1 slot per pod." in said
    assert "now 100 %" in said
    assert "+66" in said


def test_every_lever_has_a_row(ring: Path, monkeypatch: pytest.MonkeyPatch):
    frames = [frame.value for frame in opened(ring, "capacity", monkeypatch).dataframe]
    (levers,) = [frame for frame in frames if "what" in frame.columns]
    assert levers["what"].tolist()[:3] == ["+1 slot per pod", "+2 slots per pod", "+4 slots per pod"]


def test_one_pod_has_no_routing_to_choose(ring: Path, monkeypatch: pytest.MonkeyPatch):
    assert opened(ring, "capacity", monkeypatch).selectbox(key="lw_plan_router").disabled


def test_where_a_request_would_have_gone_is_told_by_pod(ring: Path, monkeypatch: pytest.MonkeyPatch):
    frames = [frame.value for frame in opened(ring, "capacity", monkeypatch).dataframe]
    (routed,) = [frame for frame in frames if "went" in frame.columns]
    assert routed["pod"].tolist() == ["pod-0"]


def test_pods_of_unknown_slots_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = Pod(slots=2).start(END - HOUR)
    made.ask(END - SECOND, "a")
    stored(tmp_path, requests=made.request_rows())
    said = html(opened(tmp_path, "capacity", monkeypatch))
    assert "1 pod of unknown slots is left out" in said
    assert "nothing can be replayed" in said
