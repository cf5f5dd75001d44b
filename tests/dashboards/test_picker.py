"""The bar above every page: what is chosen there is in the address."""

from pathlib import Path

import pytest
from dashboards.opening import html, opened, settled
from diagnose.told import HOSTILE
from lru_pod import Pod
from stored import stored
from streamlit.testing.v1 import AppTest

from lora_watch.model import DAY, HOUR, SECOND

END = 20_000 * DAY + 12 * HOUR  # 2024-10-04 12:00 UTC


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, made = tmp_path_factory.mktemp("picker"), Pod(slots=4, load=0.1).start(END - HOUR)
    for number in range(100):
        made.ask(END - 100 * SECOND + number * SECOND, ("a", HOSTILE[2])[number % 2], hold=0.2)
    stored(folder, events=made.event_rows(), requests=made.request_rows())
    return folder


@pytest.fixture
def page(small: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    return opened(small, "sources", monkeypatch)


def test_a_length_that_is_chosen_is_in_the_address(page: AppTest):
    page.segmented_control(key="lw_preset").set_value("6h").run()
    assert settled(page).query_params == {"last": "6h"}


def test_pods_and_adapters_are_offered_and_what_is_chosen_stays(page: AppTest):
    assert page.multiselect(key="lw_pod").options == ["pod-0"]
    page.multiselect(key="lw_adapter").set_value([HOSTILE[2]]).run()
    assert settled(page).query_params["adapter"] == HOSTILE[2]
    assert page.multiselect(key="lw_adapter").value == [HOSTILE[2]]


def test_live_follows_the_end_of_the_data_and_is_in_the_address(page: AppTest):
    page.toggle(key="lw_live").set_value(True).run()
    assert settled(page).query_params == {"last": "1h", "live": "1"}


def test_a_window_from_and_to_is_read_as_utc(page: AppTest):
    page.text_input[0].set_value("2024-10-04 10:00")
    page.text_input[1].set_value("2024-10-04 11:30")
    page.button[0].click().run()
    assert settled(page).query_params == {"from": "1728036000000", "to": "1728041400000"}
    assert page.toggle(key="lw_live").disabled


def test_a_window_that_makes_no_sense_is_said_and_changes_nothing(page: AppTest):
    page.text_input[0].set_value("yesterday")
    page.button[0].click().run()
    assert "This is no window" in html(page)
    assert page.query_params == {"last": "1h"}


def test_an_old_store_says_when_its_data_end(page: AppTest):
    assert "the data end" in html(page)
