"""What is done before anybody comes: everything is imported, and the questions of the usual window are asked once."""

import logging
from concurrent.futures import CancelledError
from threading import Thread

from lora_watch.errors import LoraWatchError
from lora_watch.explore.view import View
from lora_watch.recommend import levers
from widgets import questions, scene

LOG = logging.getLogger("lora_watch")
_ = levers.ROUTERS  # its kernels take longest to load


def begin() -> None:
    """Ask in a thread of its own, one question after the other, so that somebody who comes meanwhile waits for one at most."""
    Thread(target=ask, name="warm", daemon=True).start()


def ask() -> None:
    """The usual questions. What fails now is tried again, and told, when somebody asks."""
    try:
        known = scene.told()
        end = scene.end_of_data()
    except LoraWatchError:
        return
    if end is None:
        return
    page = scene.scene_of(known, View(), end)
    for ahead in (
        questions.pods(page),
        questions.adapters(page),
        questions.numbers(page),
        questions.findings(page, scene.looks()),
        questions.slots(page),
        questions.earlier(page),
        questions.cost(page),
        questions.curves(page),
        questions.who(page),
        questions.closed(page),
    ):
        try:
            page.ask(ahead).result()
        except (LoraWatchError, CancelledError):
            continue
    try:
        there = page.ask(questions.pods(page)).result()
        for part in questions.timeline(page, there.height, ())[1]:
            page.ask(part).result()
    except (LoraWatchError, CancelledError):
        return
