"""The page Adapters as somebody uses it."""

from pathlib import Path

import pytest
from dashboards.opening import html, opened, settled
from lru_pod import Pod
from stored import stored

from lora_watch.model import DAY, HOUR, SECOND

END = 20_000 * DAY + 12 * HOUR


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ring")
    made = Pod(slots=2, load=0.1).start(END - HOUR)
    for number in range(300):
        made.ask(END - 300 * SECOND + number * SECOND, ("legal", "legal-experiment", "sales")[number % 3], hold=0.2)
    stored(folder, events=made.event_rows(), requests=made.request_rows())
    return folder


def test_every_adapter_has_a_row_the_most_asked_for_first(ring: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(ring, "adapters", monkeypatch)
    frame = test.dataframe[0].value
    assert sorted(frame["adapter"]) == ["legal", "legal-experiment", "sales"]
    assert frame["requests"].tolist() == [100, 100, 100]


def test_a_search_leaves_those_that_have_the_text(ring: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(ring, "adapters", monkeypatch)
    settled(test.text_input(key="lw_adapters_search").set_value("sal").run())
    assert test.dataframe[0].value["adapter"].tolist() == ["sales"]
    assert "1 of 3 adapters" in html(test)


def test_a_link_to_an_adapter_shows_where_it_sat_and_who_evicts_it(ring: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(ring, "adapters", monkeypatch, {"adapter": "legal-experiment"})
    said = html(test)
    for part in ("by its name a variant (experiment) of legal", "Who evicts it: 99 swaps", "Whom it evicts: 99 swaps"):
        assert part in said
    assert test.dataframe[1].value["pod"].tolist() == ["pod-0"]


def test_two_adapters_are_shown_beneath_one_another(ring: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(ring, "adapters", monkeypatch, {"adapter": "{legal,sales}"})
    assert not test.exception
    assert html(test).count("Who evicts it") == 2


def test_an_adapter_that_was_nowhere_is_said(ring: Path, monkeypatch: pytest.MonkeyPatch):
    said = html(opened(ring, "adapters", monkeypatch, {"adapter": "nobody"}))
    assert "It sat in no slot in this time" in said
    assert "It was not asked for in this time" in said


def test_on_the_first_day_who_is_new_is_unknown(ring: Path, monkeypatch: pytest.MonkeyPatch):
    assert "Who is new is unknown" in html(opened(ring, "adapters", monkeypatch))
