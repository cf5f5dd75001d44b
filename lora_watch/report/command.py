"""What ``lora-watch report`` does: one week, gathered, written, and sent if asked."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lora_watch.config import Settings
from lora_watch.errors import LoraWatchError
from lora_watch.explore.progress import bar
from lora_watch.report.files import write
from lora_watch.report.gather import gather
from lora_watch.report.send import deliver, deliveries
from lora_watch.report.weeks import chosen
from lora_watch.report.written import FORMS
from lora_watch.store.tables import Store


@dataclass(frozen=True, slots=True)
class Asked:
    """``form`` is a key of ``FORMS``, None: by the ending of ``out``; without ``out`` it goes to standard output."""

    week: str
    pool: str | None
    form: str | None
    out: Path | None
    send: bool


def run(store: Store, settings: Settings, asked: Asked, *, now: Callable[[], int]) -> int:
    """
    Write the report, and send it; the exit code is 1 where somebody was not reached. LoraWatchError where nothing is held of the
    week, the form is unknown, or the file can't be written.
    """
    form = form_of(asked)
    week = chosen(asked.week, now())
    sendings = tuple(deliveries(settings)) if asked.send else ()
    if asked.send and not sendings:
        raise LoraWatchError("`--send` needs somebody to send to: name `report.webhooks` or `report.mail` in the configuration")
    with bar(f"report on {week.name}") as told:
        report = gather(store, settings, week, now=now(), pool=asked.pool, told=told)
    text = FORMS[form](report)
    if asked.out is not None:
        write(asked.out, text)
    elif not asked.send:
        sys.stdout.write(text)
    failed = 0
    for one in sendings:
        try:
            deliver(one, report)
        except LoraWatchError as error:
            failed += 1
            sys.stderr.write(f"lora-watch: not sent to {one.whom}: {error}\n")
        else:
            sys.stderr.write(f"sent to {one.whom}\n")
    return 1 if failed else 0


def form_of(asked: Asked) -> str:
    """The form that is meant: as told, else as the file's name ends, else Markdown."""
    if asked.form is not None:
        return asked.form
    if asked.out is None:
        return "md"
    ending = asked.out.suffix.lower().lstrip(".")
    ending = {"htm": "html", "markdown": "md"}.get(ending, ending)
    if ending not in FORMS:
        raise LoraWatchError(f"{asked.out} ends in none of {', '.join(f'.{one}' for one in FORMS)}: say which with --format")
    return ending
