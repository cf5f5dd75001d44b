"""A page's own choices: what stands in the address is put into the widgets, and the address says what they say."""

from pathlib import Path

import pytest
from dashboards.opening import opened, settled
from lru_pod import Pod
from stored import stored
from streamlit.testing.v1 import AppTest

from lora_watch.model import DAY, HOUR, SECOND

END = 20_000 * DAY + 12 * HOUR


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pods with two slots, three adapters in turn."""
    folder = tmp_path_factory.mktemp("two")
    pods = [Pod(slots=2, load=0.1, name=f"pod-{number}").start(END - HOUR) for number in range(2)]
    for number in range(200):
        pods[number % 2].ask(END - 200 * SECOND + number * SECOND, "abc"[number % 3], hold=0.2)
    events, requests = pods[0].event_rows(), pods[0].request_rows()
    stored(folder, events=events.vstack(pods[1].event_rows()), requests=requests.vstack(pods[1].request_rows()))
    return folder


def own(test: AppTest) -> dict[str, str]:
    told = test.query_params.items()
    return {key: value if isinstance(value, str) else value[-1] for key, value in told if key.startswith("with.")}


def slider(test: AppTest, label: str):
    (found,) = [one for one in test.slider if one.label == label]
    return found


def test_what_the_address_says_stands_in_the_widgets_and_stays_in_it(two: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(two, "capacity", monkeypatch, {"with.slots": "2", "with.variants": "3", "with.adapter": "b"})
    assert (slider(test, "More slots per pod").value, slider(test, "More adapters (A/B test)").value) == (2, 3)
    assert own(test) == {"with.slots": "2", "with.variants": "3", "with.adapter": "b"}


def test_what_is_chosen_is_put_into_the_address_and_taken_out_again(two: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(two, "capacity", monkeypatch)
    settled(slider(test, "More slots per pod").set_value(3).run())
    assert own(test) == {"with.slots": "3"}
    settled(slider(test, "More slots per pod").set_value(0).run())
    assert own(test) == {}


@pytest.mark.parametrize("value", ["9999", "²", "1" * 40])
def test_what_no_widget_can_hold_is_as_if_it_were_not_there(value: str, two: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(two, "capacity", monkeypatch, {"with.slots": value, "with.router": value})
    assert slider(test, "More slots per pod").value == 0
    assert own(test) == {}
