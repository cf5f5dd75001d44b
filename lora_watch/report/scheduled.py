"""
The report as the service makes it: of the last week that is due, written once and sent to each recipient once.

What was sent is kept in a file beside the reports, so that a restart sends nothing twice and makes up what was missed. It is
gathered in a process of its own: a week of requests and its replays take a gigabyte, which goes back once they are done.
"""

import json
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from lora_watch.config import ReportSettings, Settings
from lora_watch.errors import LoraWatchError, NotEnoughHistory, SourceRejected, SourceUnavailable
from lora_watch.model import DAY, HOUR
from lora_watch.report.files import write
from lora_watch.report.gather import gather
from lora_watch.report.send import Delivery, deliver, deliveries
from lora_watch.report.weekly import WeeklyReport
from lora_watch.report.weeks import WEEK, Week, week_of
from lora_watch.report.written import FORMS
from lora_watch.store.tables import Store

SENT = "sent.json"
REMEMBERED = 12
"""Weeks of which it is remembered who got their report."""
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def due(settings: ReportSettings, now: int) -> Week:
    """The last week whose report is due at ``now`` (µs UTC): so long after its end as the settings say."""
    after = DAYS.index(settings.weekday) * DAY + settings.hour * HOUR
    return week_of(now - after - WEEK)


def apart(store: Store, settings: Settings, week: Week, now: int) -> WeeklyReport:
    """
    The report, gathered in a process that is begun for it and ends with it. What ``gather`` raises; LoraWatchError where the
    process was killed.
    """
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_undisturbed) as worker:
            return worker.submit(_gathered, store.root, settings, week, now).result()
    except BrokenProcessPool:
        raise LoraWatchError(
            f"the report on {week.name} was not made: its process was killed; did it run out of memory?"
        ) from None


def _undisturbed() -> None:
    """Ctrl-C is for the service, which lets what runs end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _gathered(root: Path, settings: Settings, week: Week, now: int) -> WeeklyReport:
    return gather(Store(root), settings, week, now=now)


class Scheduled:
    """
    Looks whether a report is due. One thread at a time.

    A week of which nothing is held has no report, and that is no failure: older rows may be imported yet. Who can't be reached is
    tried again at the next look, who refuses it only after a restart, for a person must look; the others get it all the same.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        make: Callable[[Store, Settings, Week, int], WeeklyReport] = apart,
    ) -> None:
        self._store = store
        self._settings = settings
        self._make = make
        self._refused: dict[tuple[str, str], str] = {}
        self._made: WeeklyReport | None = None

    def run(self, now: int) -> None:
        """
        Make, write and send what is due at ``now`` (µs UTC) and not done yet. LoraWatchError where the store failed, a file
        can't be written, or somebody did not get it: then all others did.
        """
        settings = self._settings.report
        week = due(settings, now)
        sent = self._sent()
        got = sent.get(week.name, {})
        wanted = [one for one in deliveries(self._settings) if one.key not in got]
        refused = [self._refused[week.name, one.key] for one in wanted if (week.name, one.key) in self._refused]
        pending = [one for one in wanted if (week.name, one.key) not in self._refused]
        files = {form: settings.folder / f"lora-watch-{week.name}.{form}" for form in settings.formats}
        missing = {form: file for form, file in files.items() if not file.exists()}
        if pending or missing:
            try:
                report = self._report(week, now)
            except NotEnoughHistory:
                return
            for form, file in missing.items():
                write(file, FORMS[form](report))
            refused += self._deliver(pending, report, sent, now)
            done = sent.get(week.name, {})
            waiting = [one for one in pending if one.key not in done and (week.name, one.key) not in self._refused]
            self._made = report if waiting else None
        if refused:
            raise LoraWatchError(f"the report on {week.name} did not reach everybody: {'; '.join(refused)}")

    def _report(self, week: Week, now: int) -> WeeklyReport:
        if self._made is None or self._made.head.week != week:
            self._made = self._make(self._store, self._settings, week, now)
        return self._made

    def _deliver(self, pending: list[Delivery], report: WeeklyReport, sent: dict[str, dict[str, int]], now: int) -> list[str]:
        """Send to each; what failed, in words."""
        failed = []
        week = report.head.week.name
        for one in pending:
            try:
                deliver(one, report)
            except SourceUnavailable as error:
                failed.append(str(error))
            except SourceRejected as error:
                self._refused[week, one.key] = f"{error} (not tried again before a restart)"
                failed.append(self._refused[week, one.key])
            else:
                sent.setdefault(week, {})[one.key] = now
                self._remember(sent)
        return failed

    def _remember(self, sent: dict[str, dict[str, int]]) -> None:
        kept = {week: sent[week] for week in sorted(sent)[-REMEMBERED:]}
        write(self._file, json.dumps(kept, indent=1) + "\n")

    @property
    def _file(self) -> Path:
        return self._settings.report.folder / SENT

    def _sent(self) -> dict[str, dict[str, int]]:
        """Who got which week's report, and when. LoraWatchError where the file is not ours: guessing would send twice."""
        try:
            told = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise LoraWatchError(
                f"{self._file} cannot be read ({type(error).__name__}): repair it, or remove it to send again"
            ) from None
        if not isinstance(told, dict) or not all(isinstance(one, dict) for one in told.values()):
            raise LoraWatchError(f"{self._file} is none of ours: repair it, or remove it to send again")
        return told
