"""One look at findings: what is stored of it, alone, beside another service, and through restarts."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some
from typer.testing import CliRunner

from lora_watch.cli import app
from lora_watch.diagnose.finding import Confidence, Evidence, Finding, Severity
from lora_watch.diagnose.life import Change, Phase, State
from lora_watch.diagnose.stored import rows, states
from lora_watch.errors import SourceUnavailable
from lora_watch.explore.queries import newest
from lora_watch.jobs import LOOKS, Diagnosed, Diagnoser
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.schema import FINDINGS, Batch
from lora_watch.store.layout import Layout
from lora_watch.store.tables import Store

START = 1_796_000_000 * SECOND
HOSTILE = "a|b`c`</script>\n[x](javascript:1)\ud800🦙\x1b[2J" + "x" * 10_000
FINDING = Finding(
    "thrash",
    Severity.HARM,
    "c",
    "p",
    "",
    START - HOUR,
    f"{HOSTILE} swaps",
    "too few slots",
    Confidence.HIGH,
    1.0,
    evidence=(Evidence("60 adapters", "active_adapters", float("nan"), "", "observed"),),
    adapters=(HOSTILE,),
)


class Found:
    """A diagnosis that says what it is told to."""

    def __init__(self, *found: Finding) -> None:
        self.found: Sequence[Finding] = found

    def __call__(self, window: Window) -> Sequence[Finding]:
        return self.found


def look(diagnosis: Diagnoser, at: int) -> Diagnosed:
    return diagnosis.look(Window(at - HOUR, at), now=at)


def stored(store: Store) -> list[State]:
    return states(store.rows(FINDINGS))


def test_a_finding_is_stored_when_it_opens_and_not_again_while_it_stays(tmp_path: Path):
    store = Store(tmp_path)
    diagnosis = Diagnoser(store, Found(FINDING))
    for minute in range(20):
        look(diagnosis, START + minute * MINUTE)
    assert [state.change for state in stored(store)] == [Change.OPENED]


def test_a_hostile_finding_comes_back_as_it_was(tmp_path: Path):
    store = Store(tmp_path)
    look(Diagnoser(store, Found(FINDING)), START)
    (back,) = stored(store)
    assert back.finding.adapters == (HOSTILE,)
    assert back.finding.summary == FINDING.summary
    assert back.finding.evidence[0].value is None
    assert back.finding.key == FINDING.key


def test_a_restart_goes_on_with_the_same_life(tmp_path: Path):
    store, found = Store(tmp_path), Found(FINDING)
    look(Diagnoser(store, found), START)
    found.found = ()
    for minute in range(1, 15):
        look(Diagnoser(store, found), START + minute * MINUTE)  # a restart before every look
    assert [state.change for state in stored(store)] == [Change.OPENED]
    last = Diagnoser(store, found)
    for minute in range(15, 30):
        look(last, START + minute * MINUTE)
    assert [state.change for state in stored(store)] == [Change.OPENED, Change.CLOSED]
    assert len({state.id for state in stored(store)}) == 1


def test_two_services_at_once_store_each_change_once(tmp_path: Path):
    store, found = Store(tmp_path), Found(FINDING)
    services = [Diagnoser(store, found), Diagnoser(store, found)]
    for minute in range(30):
        found.found = (FINDING,) if minute < 10 else ()
        for number, service in enumerate(services):
            look(service, START + minute * MINUTE + number * 5 * SECOND)
    assert [state.change for state in stored(store)] == [Change.OPENED, Change.CLOSED]


def test_a_second_service_that_looks_at_the_same_moment_stores_nothing(tmp_path: Path):
    store, found = Store(tmp_path), Found(FINDING)
    first, second = Diagnoser(store, found), Diagnoser(store, found)
    assert len(look(first, START).states) == 1
    assert look(second, START) == Diagnosed(())


class Meanwhile:
    """A diagnosis during which another service looks, so that its own commit comes second."""

    def __init__(self, other: Diagnoser, found: Finding) -> None:
        self._other = other
        self._found = found

    def __call__(self, window: Window) -> Sequence[Finding]:
        look(self._other, window.end - SECOND)
        return (self._found,)


def test_a_service_that_is_overtaken_while_it_diagnoses_goes_on_from_what_the_other_stored(tmp_path: Path):
    store = Store(tmp_path)
    other = Diagnoser(store, Found(FINDING))
    assert look(Diagnoser(store, Meanwhile(other, FINDING)), START).states == ()
    assert [state.at for state in stored(store)] == [START - SECOND]


def test_services_that_race_store_each_opening_and_each_close_once(tmp_path: Path):
    """One that was always second counts the ten minutes to a close from its own first look, so each may begin them anew."""

    def find(window: Window) -> Sequence[Finding]:
        minute = (window.end - START) // MINUTE
        return [replace(FINDING, scope=str(each)) for each in range(3) if minute < 5 + each]

    def looks(number: int) -> None:
        diagnoser = Diagnoser(Store(tmp_path), find)
        for minute in range(40):
            look(diagnoser, START + minute * MINUTE + number * 1000)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(looks, range(3)))
    told = [(state.finding.scope, state.change) for state in stored(Store(tmp_path))]
    assert sorted(told) == sorted((str(each), change) for each in range(3) for change in (Change.OPENED, Change.CLOSED))


def test_a_clock_far_behind_the_last_look_stores_nothing_and_says_so(tmp_path: Path):
    diagnosis = Diagnoser(Store(tmp_path), Found(FINDING))
    look(diagnosis, START)
    done = look(diagnosis, START - HOUR)
    assert done.states == ()
    assert "3600 s ahead" in done.problems[0]


@pytest.mark.parametrize("late", [0, 30 * MINUTE, HOUR])
def test_a_restart_with_a_clock_set_back_knows_what_is_open_and_goes_on_with_it(tmp_path: Path, late: int):
    store, found = Store(tmp_path), Found(FINDING)
    look(Diagnoser(store, found), START)
    again = Diagnoser(store, found)
    look(again, START - late)
    assert [state.change for state in again.open] == [Change.OPENED]
    found.found = ()
    for minute in range(1, 15):
        look(again, START + minute * MINUTE)
    assert again.open == ()
    assert [state.change for state in stored(store)] == [Change.OPENED, Change.CLOSED]


def test_a_service_that_comes_second_at_every_look_knows_what_the_other_found_and_closed(tmp_path: Path):
    store, found = Store(tmp_path), Found(FINDING)
    first, second = Diagnoser(store, found), Diagnoser(store, found)
    seen = []
    for minute in range(13):
        found.found = (FINDING,) if minute < 2 else ()
        for service in (first, second):
            look(service, START + minute * MINUTE)
        seen.append(len(second.open))
    assert seen == [1] * 12 + [0]


def test_three_hours_without_a_service_are_said(tmp_path: Path):
    store, found = Store(tmp_path), Found(FINDING)
    look(Diagnoser(store, found), START)
    (again,) = look(Diagnoser(store, found), START + 3 * HOUR).states
    assert (again.change, again.blind_from, again.opened) == (Change.FOUND_AGAIN, START, START)


def test_an_outage_longer_than_a_day_loses_no_close(tmp_path: Path):
    store, found = Store(tmp_path), Found(FINDING)
    look(Diagnoser(store, found), START)
    found.found = ()
    back = START + 9 * DAY
    diagnosis = Diagnoser(store, found)
    for minute in range(12):
        look(diagnosis, back + minute * MINUTE)
    assert [(state.change, state.seen, state.missed) for state in stored(store)][1:] == [(Change.CLOSED, START, back)]


def test_a_diagnosis_that_fails_stores_nothing_and_the_next_look_tells(tmp_path: Path):
    def fails(window: Window) -> Sequence[Finding]:
        raise SourceUnavailable("no data")

    store = Store(tmp_path)
    with pytest.raises(SourceUnavailable):
        look(Diagnoser(store, fails), START)
    assert LOOKS not in store.ledger(FINDINGS).refresh()
    assert len(look(Diagnoser(store, Found(FINDING)), START + MINUTE).states) == 1


def test_findings_do_not_move_the_end_of_the_data(tmp_path: Path):
    store = Store(tmp_path)
    look(Diagnoser(store, Found(FINDING)), START)
    assert newest(store, None) is None


def test_findings_are_merged_sorted_and_dropped_like_every_table(tmp_path: Path):
    store, found = Store(tmp_path), Found()
    diagnosis = Diagnoser(store, found)
    for minute in range(20):
        found.found = (replace(FINDING, scope=str(minute)),)
        look(diagnosis, START + minute * MINUTE)
    before = stored(store)
    done = Layout(store, retention_days=5).maintain(START + DAY)
    assert (done.problems, any(name.startswith("findings/") for name in done.sorted)) == ([], True)
    assert stored(store) == before
    Layout(store, retention_days=5).maintain(START + 30 * DAY)
    assert stored(store) == []


def test_a_state_whose_details_cannot_be_read_says_so_and_keeps_its_key(tmp_path: Path):
    store = Store(tmp_path)
    look(Diagnoser(store, Found(FINDING)), START)
    for broken in ("", "[]", "{}", "null", '{"kind": 1}', "[" * 100_000):
        row = store.rows(FINDINGS).with_columns(detail=pl.lit(broken))
        (state,) = states(row)
        assert "cannot be read" in state.finding.unknown[0]
        assert (state.finding.key, state.finding.severity) == (FINDING.key, Severity.HARM)


def test_states_that_are_stored_twice_are_stored_once(tmp_path: Path):
    store = Store(tmp_path)
    told = look(Diagnoser(store, Found(FINDING)), START).states
    assert store.ledger(FINDINGS).append(Batch(rows(told)), at=START).duplicates == 1


def test_findings_go_to_a_file_and_into_another_store_and_are_the_same(tmp_path: Path):
    store, other = Store(tmp_path / "here"), tmp_path / "there"
    look(Diagnoser(store, Found(FINDING)), START)
    store.rows(FINDINGS).write_parquet(tmp_path / "findings.parquet")
    for expected in ("stored 1 new rows", "1 were stored already"):
        result = CliRunner().invoke(
            app, ["import", "table", str(tmp_path / "findings.parquet"), "--table", "findings", "--data", str(other)]
        )
        assert expected in result.stdout
    assert stored(Store(other)) == stored(store)


names = some.text(max_size=20)
weights = some.floats(allow_nan=False, allow_infinity=False)


@given(names, names, weights, some.sampled_from(list(Severity)), some.none() | some.integers(0, 2**60))
def test_what_is_stored_of_a_state_comes_back(name: str, text: str, weight: float, severity: Severity, until: int | None):
    finding = replace(
        FINDING, kind=name, pool=name, summary=text, weight=weight, severity=severity, until=until, evidence=(), adapters=(text,)
    )
    told = State(START, "x", Phase.OPEN, Change.OPENED, START, START, None, until, weight, finding)
    assert states(rows([told])) == [told]
