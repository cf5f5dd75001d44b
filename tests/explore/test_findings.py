"""What ``lora-watch incidents`` answers: lists, one incident, whatever window is asked for."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lora_watch.cli import app
from lora_watch.diagnose.finding import Confidence, Finding, Severity
from lora_watch.errors import LoraWatchError
from lora_watch.explore.findings import moment, one, show, told, window_until
from lora_watch.jobs import Diagnoser
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.store.tables import Store

START = moment("2026-11-30T10:15:00Z")
HOSTILE = "[bold]</script>\x1b[2J|" + "x" * 10_000
FINDING = Finding("thrash", Severity.HARM, "c", "p", "", START, "60 adapters compete", "an experiment", Confidence.HIGH, 1.0)


def stored(folder: Path, *minutes: int, finding: Finding = FINDING, looks: int = 60) -> Store:
    """Looks a minute apart that find the finding between pairs of minutes."""
    store = Store(folder)
    spans = list(zip(minutes[::2], minutes[1::2], strict=True))
    at = START

    def find(window: Window) -> list[Finding]:
        minute = (window.end - START) // MINUTE
        return [finding] if any(begin <= minute < end for begin, end in spans) else []

    diagnoser = Diagnoser(store, find)
    for minute in range(looks):
        at = START + minute * MINUTE
        diagnoser.look(Window(at - HOUR, at), now=at)
    return store


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finding of half an hour; nobody writes here."""
    folder = tmp_path_factory.mktemp("story")
    stored(folder, 0, 30, looks=45)
    return folder


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A finding that came back a quarter of an hour later; nobody writes here."""
    return stored(tmp_path_factory.mktemp("twice"), 0, 5, 20, 40)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


AT = ("--at", "2026-11-30T12:00:00Z")


def test_an_incident_is_listed_with_its_harm_and_why(story: Path):
    code, text, _ = run("incidents", "--data", str(story), *AT)
    assert code == 0
    assert "60 adapters compete" in text
    assert "an experiment" in text
    assert "30 min" in text
    assert run("incidents", "list", "--data", str(story), *AT)[1] == text


def test_a_listed_incident_can_be_shown_in_every_form(story: Path):
    (told_of,) = json.loads(run("incidents", "--data", str(story), *AT, "--format", "json")[1])
    assert (told_of["start"], told_of["end"]) == ("2026-11-30T10:15:00Z", "2026-11-30T10:45:00Z")
    shown = {form: run("incidents", "show", told_of["id"], "--data", str(story), *AT, "--format", form) for form in FORMS}
    assert all(code == 0 for code, _, _ in shown.values())
    assert shown["md"][1].startswith("# Incident ")
    assert json.loads(shown["json"][1]) == told_of


FORMS = ("md", "text", "json")


def test_an_incident_that_is_not_there_says_which_are(story: Path):
    code, _, text = run("incidents", "show", "20260101-0000-abcdef", "--data", str(story), *AT)
    assert code == 2
    assert "20261130-1015-" in text
    assert "--last" in text


def test_where_nothing_happened_that_is_said_and_when_something_did(story: Path):
    text = run("incidents", "--data", str(story), "--last", "1h", "--at", "2026-12-24T00:00:00Z")[1]
    assert "No incident in this window" in text
    assert "2026-11-30T10:55:00Z" in text


def test_where_nothing_was_ever_found_that_is_said(tmp_path: Path):
    assert "no finding was ever told" in run("incidents", "--data", str(tmp_path))[1]
    assert run("incidents", "--data", str(tmp_path), "--format", "json")[1] == "[]\n"


@pytest.mark.parametrize("wrong", [("--last", "soon"), ("--at", "2026-11-30"), ("--at", "noon"), ("--last", "0s")])
def test_a_window_that_cannot_be_read_is_refused(tmp_path: Path, wrong: tuple[str, str]):
    code, _, text = run("incidents", "--data", str(tmp_path), *wrong)
    assert code == 2
    assert "cannot read the window" in text


@pytest.mark.parametrize("until", [1, 5, 29, 45, 59, 24 * 60])
def test_an_incident_is_the_same_from_whatever_window_it_is_looked_at(twice: Store, until: int):
    store = twice
    now = START + 2 * DAY
    (whole,) = told(store, Window(START - DAY, now), now)
    (part,) = told(store, Window(START + (until - 1) * MINUTE, START + until * MINUTE), now) if until < 45 else (whole,)
    assert part == whole
    assert one(store, whole.id, Window(START, START + HOUR), now) == whole


def test_what_ended_before_the_window_is_not_in_it(story: Path):
    assert told(Store(story), Window(START + 40 * MINUTE, START + HOUR), START + HOUR) == ()


def test_a_hostile_finding_is_shown_on_any_terminal(tmp_path: Path):
    hostile = replace(FINDING, summary=HOSTILE, cause=HOSTILE, pool=HOSTILE, adapters=(HOSTILE,))
    store = stored(tmp_path, 0, 30, finding=hostile, looks=2)
    window = Window(START - HOUR, START + HOUR)
    found = told(store, window, START + HOUR)
    written = StringIO()
    show(found, window, None, Console(file=written, width=80))
    assert "[bold]" in written.getvalue().replace("\n", "")
    assert "\x1b[2J" not in written.getvalue()
    for form in FORMS:
        text = run("incidents", "show", found[0].id, "--data", str(tmp_path), *AT, "--format", form)[1]
        assert all(char.isprintable() or char == "\n" for char in text)


def test_a_name_that_nobody_has_is_an_error(tmp_path: Path):
    with pytest.raises(LoraWatchError, match="the newest there: none"):
        one(Store(tmp_path), "x", window_until("7d", None, START), START)


def test_the_window_up_to_now_holds_now():
    assert window_until("1h", None, START).end == START + 1
    assert window_until("7d", "2026-11-30T11:15:00+01:00", 5 * SECOND).end == START


@pytest.mark.parametrize(("last", "at"), [("999999999d", None), ("36600d", "2026-11-30T11:15:00Z")])
def test_a_window_longer_than_anything_is_kept_is_refused(last: str, at: str | None):
    with pytest.raises(LoraWatchError, match="longer than 3660 days"):
        window_until(last, at, START)


def test_what_was_open_at_the_end_of_the_window_is_open_there(tmp_path: Path):
    stored(tmp_path, 0, 10, looks=5)
    assert "goes on" in run("incidents", "--data", str(tmp_path), "--at", "2026-11-30T10:20:00Z")[1]
