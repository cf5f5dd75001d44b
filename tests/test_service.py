import logging
import shutil
import signal
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from builders import rows
from processes import Process

from lora_watch.config import RESERVED, LogSettings, Settings, parse
from lora_watch.diagnose.finding import Confidence, Finding, Severity
from lora_watch.errors import LoraWatchError, NotEnoughHistory, SourceUnavailable
from lora_watch.model import DAY, MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, ADVICE, FINDINGS, Batch
from lora_watch.service import NEW_PROBLEMS_SHOWN, Service, set_up_logging
from lora_watch.sources.configured import sources_of
from lora_watch.store.tables import Store

NOW = 1_796_000_000 * SECOND


class FakeSource:
    """A source that says what it is told to; the only thing here that is not real."""

    table = ADAPTER_EVENTS

    def __init__(self, name: str, *answers: Batch | Exception) -> None:
        self.name = name
        self._answers = list(answers)
        self.untils: list[int] = []

    def read(self, positions: Mapping[str, int], until: int) -> Batch:
        self.untils.append(until)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def batch(seq: int, *problems: str, kind: str = "load") -> Batch:
    row = {
        "at": NOW - MINUTE + seq,
        "seq": seq,
        "kind": kind,
        "tier": "gpu",
        "adapter": "a",
        "ok": True,
        "count": 3,
        "from_tier": "cpu",
    }
    frame = rows(ADAPTER_EVENTS, [row])
    return Batch(frame, {frame["stream"][0]: seq}, problems)


def settings(folder: Path, text: str = "") -> Settings:
    return parse(f"store: {{folder: '{folder}/data'}}\nexporter: {{port: 0}}\n{text}")


def value(service: Service, name: str, labels: dict[str, str]) -> float | None:
    return service.exporter.registry.get_sample_value(name, labels)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="lora_watch")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "lora_watch"]


def test_a_tick_collects_derives_and_publishes(tmp_path: Path):
    service = Service(settings(tmp_path), [FakeSource("s", batch(1))], clock=Clock())
    service.tick()
    assert value(service, "lora_watch_source_rows_total", {"source": "s"}) == 1
    pod = {"cluster": "c", "pool": "p", "role": "", "pod": "pod-0", "adapter": "a", "provenance": "observed"}
    assert value(service, "lora_watch_adapter_loads", pod) == 1


def test_a_source_that_fails_stops_nobody_and_is_counted(tmp_path: Path):
    service = Service(
        settings(tmp_path), [FakeSource("bad", SourceUnavailable("no route")), FakeSource("good", batch(1))], clock=Clock()
    )
    service.tick()
    assert value(service, "lora_watch_source_errors_total", {"source": "bad"}) == 1
    assert value(service, "lora_watch_source_rows_total", {"source": "good"}) == 1
    assert value(service, "lora_watch_job_runs_total", {"job": "collect bad", "outcome": "failed"}) == 1


def test_the_lag_grows_while_a_source_fails(tmp_path: Path):
    clock = Clock()
    service = Service(settings(tmp_path), [FakeSource("s", batch(1), SourceUnavailable("gone"))], clock=clock)
    service.tick()
    clock.now += 100 * SECOND
    service.tick()
    assert value(service, "lora_watch_source_lag_seconds", {"source": "s"}) == pytest.approx(102)


def test_a_lost_record_is_counted_by_how_many_it_stands_for(tmp_path: Path):
    service = Service(settings(tmp_path), [FakeSource("s", batch(1, kind="lost"))], clock=Clock())
    service.tick()
    assert value(service, "lora_watch_source_lost_total", {"source": "s"}) == 3


def test_a_problem_is_said_once_and_its_end_too(tmp_path: Path, lines):
    answers = [batch(1, "pod x is gone"), batch(2, "pod x is gone"), batch(3)]
    service = Service(settings(tmp_path), [FakeSource("s", *answers)], clock=Clock())
    for _ in range(4):
        service.tick()
    assert lines() == ["pod x is gone", "all is well again"]


def test_a_thousand_problems_are_a_few_lines(tmp_path: Path, lines):
    service = Service(settings(tmp_path), [FakeSource("s", batch(1, *(f"pod {i}" for i in range(1000))))], clock=Clock())
    service.tick()
    assert len(lines()) == NEW_PROBLEMS_SHOWN + 1


def test_a_clock_set_back_is_said_and_everything_goes_on_when_it_has_caught_up(tmp_path: Path, lines):
    clock, source = Clock(), FakeSource("s", batch(1))
    service = Service(settings(tmp_path), [source], clock=clock)
    service.tick()
    clock.now -= 3600 * SECOND
    service.tick()
    clock.now += 3700 * SECOND
    service.tick()
    assert "the clock was set back by about 3600 s" in lines()[0]
    assert lines()[-1] == "all is well again"
    assert source.untils[-1] == clock.now - 2 * SECOND


def test_a_port_that_is_taken_is_said_with_what_to_do(tmp_path: Path):
    first = Service(settings(tmp_path), [], clock=Clock())
    address, stop = first.exporter.serve("127.0.0.1", 0)
    port = int(address.split(":")[2].split("/")[0])
    second = Service(parse(f"store: {{folder: '{tmp_path}'}}\nexporter: {{port: {port}}}"), [], clock=Clock())
    try:
        with pytest.raises(LoraWatchError, match=rf"cannot listen on 127.0.0.1:{port}.*exporter.port"):
            second.run()
    finally:
        stop()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_json_logs_are_one_object_a_line(capsys: pytest.CaptureFixture[str]):
    set_up_logging(LogSettings(format="json"))
    logging.getLogger("lora_watch").warning('a "quoted"\nline', extra={"fields": {"source": "s"}})
    line = capsys.readouterr().err
    assert pl.read_ndjson(line.encode()).select("level", "message", "source").rows() == [("warning", 'a "quoted"\nline', "s")]


def test_text_logs_keep_a_hostile_message_on_one_line(capsys: pytest.CaptureFixture[str]):
    set_up_logging(LogSettings())
    logging.getLogger("lora_watch").warning("first\nFAKE LINE", extra={"fields": {"source": "s"}})
    assert capsys.readouterr().err.count("\n") == 1


def test_text_logs_give_a_terminal_nothing_to_obey(capsys: pytest.CaptureFixture[str]):
    set_up_logging(LogSettings())
    logging.getLogger("lora_watch").warning("\x1b[2Jü\x9b31m", extra={"fields": {"source": "s"}})
    assert capsys.readouterr().err.endswith("s: \\x1b[2Jü\\x9b31m\n")


def test_a_retention_of_part_of_a_day_keeps_the_whole_day(tmp_path: Path):
    clock = Clock()
    service = Service(parse(f"store: {{folder: '{tmp_path}/data', retention: 12h}}"), [], clock=clock)
    yesterday = rows(ADAPTER_EVENTS, [{"at": NOW - DAY, "seq": 1, "kind": "use"}, {"at": NOW - 2 * DAY, "seq": 2, "kind": "use"}])
    service.store.ledger(ADAPTER_EVENTS).append(Batch(yesterday, {"s": 2}), at=NOW)
    service.maintain()
    assert service.store.scan(ADAPTER_EVENTS).collect(engine="streaming")["at"].to_list() == [NOW - DAY]


def test_no_prometheus_can_take_the_name_of_a_source_of_our_own(tmp_path: Path):
    everything = parse(f"targets: [{{agent: 'http://x', metrics: 'http://x'}}]\nevent_logs: [{{folder: '{tmp_path}', pod: p}}]")
    assert {source.name for source in sources_of(everything, Clock())} < RESERVED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_answers_and_ends_in_good_order(tmp_path: Path, number: signal.Signals):
    config = tmp_path / "lora-watch.yaml"
    config.write_text("event_logs: [{folder: ., pod: p}]\nexporter: {port: 0}\n")
    with Process("lora_watch.cli", "serve", "--config", str(config), word="metrics", log=tmp_path / "stderr") as process:
        with urllib.request.urlopen(process.address, timeout=10) as answer:
            assert answer.status == 200
        assert process.stop(number) == 0
    assert (tmp_path / "stderr").read_text().splitlines()[-1].endswith("stopped")


def test_a_store_deleted_while_running_is_said_and_begun_anew(tmp_path: Path, lines):
    service = Service(settings(tmp_path), [FakeSource("agents-events", batch(1), batch(2))], clock=Clock())
    service.tick()
    shutil.rmtree(tmp_path / "data")
    service.tick()
    assert any("was the folder deleted or replaced?" in line for line in lines())
    service.tick()
    assert service.store.rows(ADAPTER_EVENTS)["seq"].to_list() == [2]


def test_a_lost_file_of_the_store_costs_one_round_and_is_said(tmp_path: Path, lines):
    service = Service(settings(tmp_path), [FakeSource("agents-events", batch(1), batch(2))], clock=Clock())
    service.tick()
    next((tmp_path / "data").glob("adapter_events/date=*/*.parquet")).unlink()
    service.tick()
    assert [line for line in lines() if "gone or damaged" in line] != []
    assert value(service, "lora_watch_job_runs_total", {"job": "derive", "outcome": "failed"}) == 1
    service.tick()
    assert value(service, "lora_watch_job_runs_total", {"job": "derive", "outcome": "succeeded"}) == 2
    assert value(service, "lora_watch_job_runs_total", {"job": "derive", "outcome": "crashed"}) is None


FINDING = Finding("thrash", Severity.HARM, "c", "p", "", NOW, "60 adapters compete for 32 slots\x1b[2J", "", Confidence.HIGH, 1.0)


def test_what_is_found_is_stored_and_said_once_and_so_is_its_end(tmp_path: Path, lines):
    clock, found = Clock(), [FINDING]
    service = Service(settings(tmp_path), [], clock=clock, find=lambda window: list(found))
    for minute in range(20):
        clock.now = NOW + minute * MINUTE
        if minute == 5:
            found.clear()
        service.tick()
    assert lines() == [f"opened: {FINDING.summary}", f"closed: {FINDING.summary}"]
    assert service.store.rows(FINDINGS).sort("at")["change"].to_list() == ["opened", "closed"]
    assert value(service, "lora_watch_job_runs_total", {"job": "diagnose", "outcome": "succeeded"}) == 20


def test_a_diagnosis_that_fails_is_counted_and_stops_nobody(tmp_path: Path):
    def fails(window: Window) -> list[Finding]:
        raise NotEnoughHistory("a day is needed")

    service = Service(settings(tmp_path), [FakeSource("s", batch(1))], clock=Clock(), find=fails)
    service.tick()
    assert value(service, "lora_watch_job_runs_total", {"job": "diagnose", "outcome": "failed"}) == 1
    assert value(service, "lora_watch_source_rows_total", {"source": "s"}) == 1


def test_a_folder_that_is_deleted_under_a_look_is_made_anew(tmp_path: Path):
    clock = Clock()
    service = Service(settings(tmp_path), [], clock=clock, find=lambda window: [FINDING])
    service.tick()
    shutil.rmtree(tmp_path / "data")
    for minute in (1, 2):
        clock.now = NOW + minute * MINUTE
        service.tick()
    assert service.store.rows(FINDINGS)["change"].to_list() == ["opened"]


def test_advice_is_stored_once_a_day(tmp_path: Path):
    clock, given = Clock(), []

    def advise(now: int) -> pl.DataFrame:
        given.append(now)
        return rows(ADVICE, [{"at": now, "id": "c/p", "sentence": "Pin nothing."}])

    service = Service(settings(tmp_path), [], clock=clock, advise=advise)
    for _ in range(2):
        service.tick()
    assert Store(tmp_path / "data").rows(ADVICE)["sentence"].to_list() == ["Pin nothing."]
    assert len(given) == 1


def test_too_little_for_advice_is_no_failure(tmp_path: Path, lines):
    def advise(_now: int) -> pl.DataFrame:
        raise NotEnoughHistory("nothing is stored yet")

    service = Service(settings(tmp_path), [], clock=Clock(), advise=advise)
    service.tick()
    assert value(service, "lora_watch_job_runs_total", {"job": "advise", "outcome": "succeeded"}) == 1
    assert not any("nothing is stored" in line for line in lines())
