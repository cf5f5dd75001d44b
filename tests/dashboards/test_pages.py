"""Every page opens: on nothing, on little, with names that somebody chose to harm."""

from pathlib import Path

import pytest
from dashboards.opening import PAGES, html, opened
from diagnose.told import HOSTILE
from lru_pod import Pod
from stored import stored

from lora_watch.model import DAY, HOUR, SECOND

END = 20_000 * DAY + 12 * HOUR


def pod(names: tuple[str, ...]) -> Pod:
    """An adapter a second in turn on four slots for ten minutes."""
    made = Pod(slots=4, load=0.1).start(END - HOUR)
    for number in range(600):
        made.ask(END - 600 * SECOND + number * SECOND, names[number % len(names)], hold=0.2)
    return made


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, made = tmp_path_factory.mktemp("small"), pod(tuple("abcdef"))
    stored(folder, events=made.event_rows(), requests=made.request_rows())
    return folder


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, made = tmp_path_factory.mktemp("hostile"), pod(HOSTILE)
    stored(folder, events=made.event_rows(), requests=made.request_rows())
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_an_empty_store_says_so(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(tmp_path, page, monkeypatch)
    assert not test.exception
    assert "Nothing is stored yet" in html(test)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_a_small_store_opens(page: str, small: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(small, page, monkeypatch)
    assert not test.exception
    assert "lw-trouble" not in html(test)


@pytest.mark.parametrize("page", PAGES)
def test_hostile_names_neither_break_a_page_nor_become_part_of_it(page: str, hostile: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(hostile, page, monkeypatch)
    assert not test.exception
    for raw in ("<script", "\x1b", "\u202e"):
        assert raw not in html(test)
    for raw in ("<script", "http://e.x", "\x1b", "\u202e"):
        assert not [text.value for text in test.markdown if raw in text.value]


@pytest.mark.parametrize("page", PAGES)
def test_a_link_shows_what_it_names_and_keeps_it(page: str, small: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(small, page, monkeypatch, {"last": "15m", "pod": "pod-0"})
    assert test.query_params == {"last": "15m", "pod": "pod-0"}


def test_an_address_that_makes_no_sense_is_said_and_the_last_hour_shown(small: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(small, "now", monkeypatch, {"last": "soon"})
    assert test.query_params == {"last": "1h"}
    assert "`last` in the address cannot be read" in html(test)
