"""
The report as the service makes it: of the last week that is due, written once and sent to each recipient once.

What was sent is kept in a file beside the reports, so that a restart sends nothing twice and makes up what was missed. It is
gathered in a process of its own: a week of requests and its replays take a gigabyte, which goes back once they are done.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from lora_watch.config import ReportSettings, Settings
from lora_watch.errors import LoraWatchError, NotEnoughHistory, SourceRejected, SourceUnavailable
from lora_watch.explore.processes import undisturbed
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
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=undisturbed) as worker:
            return worker.submit(_gathered, store.root, settings, week, now).result()
    except BrokenProcessPool:
        raise LoraWatchError(
            f"the report on {week.name} was not made: its process was killed; did it run out of memory?"
        ) from None


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
        self._unsaved: dict[str, dict[str, int]] = {}  # sent, and not to be remembered in the file: the disk was full

    def run(self, now: int) -> None:
        """
        Make, write and send what is due at ``now`` (µs UTC) and not done yet; nothing where another service is about it.
        LoraWatchError where the store failed, a file can't be written, or somebody did not get it: then all others did.
        """
        settings = self._settings.report
        week = due(settings, now)
        files = {form: settings.folder / f"lora-watch-{week.name}.{form}" for form in settings.formats}
        wrong = []
        if self._pending(week, self._sent()) or not all(file.exists() for file in files.values()):
            try:
                report = self._report(week, now)
            except NotEnoughHistory:
                return
            with _alone(settings.folder) as alone:
                if not alone:
                    return
                for form, file in files.items():
                    if not file.exists():
                        write(file, FORMS[form](report))
                sent = self._sent()  # anew: another service may have sent it meanwhile
                wrong = self._deliver(self._pending(week, sent), report, sent, now)
                self._made = report if self._pending(week, sent) else None
        if self._unsaved:
            wrong += self._remember(self._sent())
        asked = {one.key for one in deliveries(self._settings)}
        wrong += [told for (name, key), told in self._refused.items() if name == week.name and key in asked]
        if wrong:
            raise LoraWatchError(f"the report on {week.name} did not reach everybody: {'; '.join(wrong)}")

    def _pending(self, week: Week, sent: Mapping[str, Mapping[str, int]]) -> list[Delivery]:
        """Who did not get it yet, and did not refuse it."""
        got = sent.get(week.name, {})
        return [one for one in deliveries(self._settings) if one.key not in got and (week.name, one.key) not in self._refused]

    def _report(self, week: Week, now: int) -> WeeklyReport:
        if self._made is None or self._made.head.week != week:
            self._made = self._make(self._store, self._settings, week, now)
        return self._made

    def _deliver(self, pending: list[Delivery], report: WeeklyReport, sent: dict[str, dict[str, int]], now: int) -> list[str]:
        """Send to each; in words what failed and is tried again."""
        failed = []
        week = report.head.week.name
        for one in pending:
            try:
                deliver(one, report)
            except SourceUnavailable as error:
                failed.append(str(error))
            except SourceRejected as error:
                self._refused[week, one.key] = f"{error} (not tried again before a restart)"
            else:
                for told in (sent, self._unsaved):
                    told.setdefault(week, {})[one.key] = now
                self._remember(sent)
        return failed

    def _remember(self, sent: dict[str, dict[str, int]]) -> list[str]:
        """Store what was sent; in words why that failed."""
        kept = {week: sent[week] for week in sorted(sent)[-REMEMBERED:]}
        try:
            write(self._file, json.dumps(kept, indent=1) + "\n")
        except LoraWatchError as error:
            return [f"{error}: until that works, only this process knows who got it"]
        self._unsaved.clear()
        return []

    @property
    def _file(self) -> Path:
        return self._settings.report.folder / SENT

    def _sent(self) -> dict[str, dict[str, int]]:
        """Who got which week's report, and when. LoraWatchError where the file is not ours: guessing would send twice."""
        told = self._saved()
        for week, got in self._unsaved.items():
            told.setdefault(week, {}).update(got)
        return told

    def _saved(self) -> dict[str, dict[str, int]]:
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


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """
    Whether no other service is sending the reports of this folder; none is until the end. A process that is killed lets go.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise LoraWatchError(f"cannot write into {folder}: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:  # a file system without locks
            pass
        yield True
    finally:
        os.close(held)
