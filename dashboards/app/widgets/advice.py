"""What was advised last, beside what a page shows: it is read, never worked out here."""

from collections.abc import Sequence

from lora_watch.explore import stored_advice
from lora_watch.explore.markup import badge, tag
from lora_watch.explore.panels import pool_title
from lora_watch.explore.stored_advice import COMMAND, Given, Pool
from lora_watch.explore.view import moment
from lora_watch.model import MINUTE, Window
from widgets import notes, tables
from widgets.questions import Question
from widgets.scene import Scene


def show(page: Scene, title: str, kinds: Sequence[str] | None = None, pool: Pool | None = None) -> None:
    """
    The advice that was stored last up to the window's end, of these ``kinds`` and of ``pool``, if told; where there is none, what
    works it out.
    """
    notes.heading(title)
    end = page.window.end - page.window.end % MINUTE + MINUTE
    part = Window(end - MINUTE, end)
    asked = Question("advice", stored_advice.latest, (page.whole, end), part, of="stored advice", everywhere=True)
    given = page.told(asked)
    if given is None:
        return
    mine = [one for one in given if pool is None or one.pool == pool]
    if not mine:
        notes.nothing(
            "No advice is stored of this time. ",
            tag("code", COMMAND),
            " works it out, and a running service does so once a day.",
        )
    for one in mine:
        _one(one, kinds, alone=len(mine) == 1)


def _one(given: Given, kinds: Sequence[str] | None, *, alone: bool) -> None:
    whose = "" if alone else f"{pool_title(*given.pool)}: "
    router = given.detail.get("router")
    how = f"Router in the loop: {router}." if router else "Pods as they were recorded."
    told = f" {whose}{given.sentence} Given {moment(given.at)} UTC, judged by replays of the last week. {how}"
    notes.plain(badge(given.detail.get("provenance")), told)
    tables.table(f"advice_{'_'.join(kinds or ('all',))}_{given.pool}", stored_advice.table(given, kinds), stored_advice.TABLE)
