"""The report as the service makes it: when it is due, once to each, made up after an outage, whatever one recipient does."""

import fcntl
import json
import os
from pathlib import Path

import pytest
from builders import requests
from hypothesis import given
from hypothesis import strategies as st
from report.conftest import Posted, Start
from report.examples import report
from stored import stored

from lora_watch import names
from lora_watch.config import ReportSettings, Settings, parse
from lora_watch.errors import LoraWatchError, NotEnoughHistory
from lora_watch.model import DAY, HOUR, MINUTE, SECOND
from lora_watch.report.scheduled import DAYS, Scheduled, apart, due
from lora_watch.report.weekly import WeeklyReport
from lora_watch.report.weeks import WEEK, Week, week_named
from lora_watch.service import Service
from lora_watch.store.tables import Store

END = week_named("2026-W10").window.end
DUE = END + 6 * HOUR


def settings(folder: Path, **parts: object) -> Settings:
    """Reports into a folder, with these parts."""
    told = {"enabled": True, "folder": str(folder / "reports"), **parts}
    return parse(json.dumps({"report": told, "store": {"folder": str(folder / "data")}, "exporter": {"port": 0}}))


class Making:
    """Makes the example's report for any week, and counts how often."""

    def __init__(self, error: LoraWatchError | None = None) -> None:
        self.made: list[str] = []
        self.error = error

    def __call__(self, _store: Store, _settings: Settings, week: Week, _now: int) -> WeeklyReport:
        self.made.append(week.name)
        if self.error is not None:
            raise self.error
        return report()


def scheduled(folder: Path, making: Making, **parts: object) -> Scheduled:
    """As the service has it."""
    told = settings(folder, **parts)
    return Scheduled(Store(told.store.folder), told, make=making)


def hook(posted: Posted, name: str = "ops") -> dict[str, str]:
    """A webhook of the configuration."""
    return {"name": name, "url": posted.url}


@given(st.sampled_from(DAYS), st.integers(0, 23), st.integers(0, 52 * WEEK))
def test_a_week_is_due_from_its_day_and_hour_on_until_the_next_one_is(weekday: str, hour: int, later: int):
    told = ReportSettings(weekday=weekday, hour=hour)  # type: ignore[arg-type]  # one of the days
    after = DAYS.index(weekday) * DAY + hour * HOUR
    week = due(told, END + later)
    assert week.window.end + after <= END + later < week.window.end + after + WEEK


def test_nothing_is_made_before_the_hour_and_one_report_after_it(tmp_path: Path):
    making = Making()
    job = scheduled(tmp_path, making, formats=["html", "json"])
    job.run(DUE)
    job.run(DUE + HOUR)
    job.run(DUE + 3 * DAY)
    assert making.made == ["2026-W10"]
    assert sorted(one.name for one in (tmp_path / "reports").iterdir()) == [
        "lora-watch-2026-W10.html",
        "lora-watch-2026-W10.json",
    ]


def test_a_run_that_was_missed_is_made_up_and_none_is_repeated_after_a_restart(tmp_path: Path, webhook: Posted):
    making = Making()
    scheduled(tmp_path, making, webhooks=[hook(webhook)]).run(DUE + 4 * DAY)
    scheduled(tmp_path, making, webhooks=[hook(webhook)]).run(DUE + 5 * DAY)
    assert making.made == ["2026-W10"]
    assert len(webhook.bodies) == 1


def test_a_week_of_which_nothing_is_held_is_no_failure_and_is_looked_at_again(tmp_path: Path):
    making = Making(NotEnoughHistory("nothing"))
    job = scheduled(tmp_path, making)
    job.run(DUE)
    job.run(DUE + MINUTE)
    assert making.made == ["2026-W10", "2026-W10"]
    assert not (tmp_path / "reports").exists()


def test_one_recipient_who_refuses_stops_nobody_and_is_asked_once(tmp_path: Path, webhook: Posted, mail_server: Start):
    box = mail_server(refused={"gone@example.com": 550})
    server = {"host": "127.0.0.1", "port": box.port, "tls": "none", "sender": "w@example.com"}
    making = Making()
    job = scheduled(
        tmp_path,
        making,
        webhooks=[{"name": "nowhere", "url_env": "NOT_SET_AT_ALL"}, hook(webhook)],
        mail=[{**server, "to": ["gone@example.com", "there@example.com"]}],
    )
    for _ in range(2):
        with pytest.raises(LoraWatchError, match=r"NOT_SET_AT_ALL.*gone@example.com.*550"):
            job.run(DUE)
    assert [to for to, _ in box.mails] == ["there@example.com"]
    assert len(webhook.bodies) == 1
    assert making.made == ["2026-W10"]


def test_who_cannot_be_reached_is_tried_again_until_it_arrives(tmp_path: Path, webhook: Posted):
    making = Making()
    webhook.status = 503
    job = scheduled(tmp_path, making, webhooks=[hook(webhook)])
    for tick in range(3):
        with pytest.raises(LoraWatchError, match="503"):
            job.run(DUE + tick * MINUTE)
    webhook.status = 200
    job.run(DUE + HOUR)
    job.run(DUE + 2 * HOUR)
    assert len(webhook.bodies) == 4
    assert making.made == ["2026-W10"]


def test_what_was_sent_and_cannot_be_remembered_is_sent_once_and_remembered_later(tmp_path: Path, webhook: Posted):
    job = scheduled(tmp_path, Making(), webhooks=[hook(webhook), hook(webhook, "second")])
    job.run(DUE - WEEK)
    file = tmp_path / "reports" / "sent.json"
    file.unlink()
    file.symlink_to("/proc/none/sent.json")
    for tick in range(2):
        with pytest.raises(LoraWatchError, match="cannot write /proc/none"):
            job.run(DUE + tick * MINUTE)
        file.unlink()
        file.symlink_to("/proc/none/sent.json" if tick == 0 else tmp_path / "there.json")
    job.run(DUE + HOUR)
    assert len(webhook.bodies) == 4
    assert sorted(json.loads(file.read_text())["2026-W10"]) == ["webhook ops", "webhook second"]


def test_two_services_with_one_folder_send_it_once(tmp_path: Path, webhook: Posted):
    other = scheduled(tmp_path, Making(), webhooks=[hook(webhook)])

    def meanwhile(store: Store, told: Settings, week: Week, now: int) -> WeeklyReport:
        other.run(now)
        return Making()(store, told, week, now)

    told = settings(tmp_path, webhooks=[hook(webhook)])
    Scheduled(Store(told.store.folder), told, make=meanwhile).run(DUE)
    assert len(webhook.bodies) == 1


def test_while_another_service_sends_it_nothing_is_sent(tmp_path: Path, webhook: Posted):
    folder = tmp_path / "reports"
    folder.mkdir()
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    job = scheduled(tmp_path, Making(), webhooks=[hook(webhook)])
    job.run(DUE)
    assert webhook.bodies == []
    os.close(held)
    job.run(DUE + MINUTE)
    assert len(webhook.bodies) == 1


def test_a_file_of_what_was_sent_that_is_not_ours_sends_nothing(tmp_path: Path, webhook: Posted):
    (tmp_path / "reports").mkdir()
    job = scheduled(tmp_path, Making(), webhooks=[hook(webhook)])
    for text in ("{", "[]", '{"2026-W10": 1}'):
        (tmp_path / "reports" / "sent.json").write_text(text)
        with pytest.raises(LoraWatchError, match=r"sent\.json"):
            job.run(DUE)
    assert webhook.bodies == []


def test_a_folder_that_cannot_be_written_is_said_and_nothing_is_sent(tmp_path: Path, webhook: Posted):
    (tmp_path / "reports").write_text("a file is in the way")
    with pytest.raises(LoraWatchError, match="reports"):
        scheduled(tmp_path, Making(), webhooks=[hook(webhook)]).run(DUE)
    assert webhook.bodies == []


def test_the_service_runs_it_as_a_job_and_exports_its_last_success(tmp_path: Path):
    told = settings(tmp_path)
    making = Making()
    service = Service(told, [], clock=lambda: DUE, report=Scheduled(Store(told.store.folder), told, make=making).run)
    service.tick()
    assert making.made == ["2026-W10"]
    last = service.exporter.registry.get_sample_value(names.JOB_LAST_SUCCESS, {"job": "report"})
    assert last == DUE / SECOND


def test_a_report_is_gathered_in_a_process_of_its_own_and_what_is_missing_comes_back(tmp_path: Path):
    week = week_named("1970-W02")
    at = week.window.start // SECOND + 60
    store = stored(tmp_path / "data", requests=requests(f"a:{at}/{at}/{at + 1}/{at + 9}"))
    made = apart(store, Settings(), week, week.window.end)
    assert [one.requests for one in made.pools] == [1]
    with pytest.raises(NotEnoughHistory, match="1970-W01"):
        apart(store, Settings(), week.before, week.window.end)
