"""What is done before anybody comes: everything is imported, and the questions of the usual window are asked once."""

import gc
from concurrent.futures import CancelledError
from threading import Thread
from typing import TypeVar

from lora_watch.derive.groups import POOL
from lora_watch.errors import LoraWatchError
from lora_watch.explore.capacity import slots_of
from lora_watch.explore.extent import FRESH
from lora_watch.explore.view import PRESETS, USUAL, View
from lora_watch.recommend.levers import Plan
from widgets import questions, scene

T = TypeVar("T")


def begin() -> None:
    """Ask in a thread of its own, one question after the other, so that somebody who comes meanwhile waits for one at most."""
    Thread(target=ask, name="warm", daemon=True).start()


def ask() -> None:
    """The usual questions; where the data end does not move, those of the other lengths of windows behind them."""
    settle()
    try:
        known = scene.told()
        end = scene.end_of_data()
    except LoraWatchError:
        return
    if end is None:
        return
    lengths = [USUAL] if scene.now() - end < FRESH else [USUAL, *(one for one in PRESETS if one != USUAL)]
    first = scene.scene_of(known, View(USUAL), end)
    _answer(first, questions.pools(first))
    for last in lengths:
        _ask(scene.scene_of(known, View(last), end))
        settle()


def settle() -> None:
    """
    What is there now stays: nobody looks through it for garbage any more. Streamlit has all garbage looked for after each run,
    those that only look whether an answer has come too: half a million objects of modules, for 0.2 s in which nobody else runs.
    """
    gc.collect()
    gc.freeze()


def _ask(page: scene.Scene) -> None:
    told = _answer(page, questions.pods(page))
    spans = _answer(page, questions.closed(page))
    _answer(page, questions.adapters(page))
    _answer(page, questions.numbers(page))
    _answer(page, questions.stored(page))
    _answer(page, questions.findings(page, scene.looks()))
    if told is not None and spans is not None:
        for slots in questions.timeline(page, told.height, spans)[1]:
            _answer(page, slots)
        for asked in (*questions.requests(page, spans), *questions.looks_at(page, spans)[1]):
            _answer(page, asked)
        for lost in questions.lost_records(page, spans):
            _answer(page, lost)
    _answer(page, questions.slots(page))
    _answer(page, questions.earlier(page))
    _answer(page, questions.cost(page))
    _answer(page, questions.who(page))
    room = _answer(page, questions.curves(page))
    if room is None:
        return
    for pool in room.pods.select(POOL).unique(maintain_order=True).iter_rows():
        held = slots_of(room, pool)
        levers = _answer(page, questions.levers(page, pool, held))
        if levers is not None and held:
            _answer(page, questions.plan(page, pool, held, Plan(), levers.router))


def _answer(page: scene.Scene, question: questions.Question[T]) -> T | None:
    """What fails now is tried again, and told, when somebody asks."""
    try:
        return page.ask(question).result()
    except (LoraWatchError, CancelledError):
        return None
