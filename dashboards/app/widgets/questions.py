"""
What the pages ask of the store, each question in one place: a page awaits it, and the server asks it before anybody comes.

Most are about the end of a window, whatever its length: a wider window asks nothing anew.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import polars as pl

from lora_watch.diagnose.life import State
from lora_watch.explore import hours
from lora_watch.explore.adapters import SPAN, Before, Sat, asked, sat
from lora_watch.explore.capacity import Pool, Room, compared, planned, room
from lora_watch.explore.cost import ATTRIBUTED
from lora_watch.explore.extent import LOOKED_AT, adapters_of, pods_of, pools_of
from lora_watch.explore.heard import Heard, heard, lost, reached
from lora_watch.explore.heard import step_of as step_between
from lora_watch.explore.hours import WIDE, before, covered, rest
from lora_watch.explore.latency import Latency, latency
from lora_watch.explore.looks import LONGEST, Look, Looks
from lora_watch.explore.looks import stored as open_at
from lora_watch.explore.now import Now, now
from lora_watch.explore.timeline import BINS, Part, columns_of, part, step_of
from lora_watch.explore.view import days
from lora_watch.model import DAY, HOUR, MINUTE, Window
from lora_watch.recommend.levers import Foretold, Levers, Plan

if TYPE_CHECKING:
    from widgets.scene import Scene

T = TypeVar("T")


class Question(NamedTuple, Generic[T]):
    """
    ``answer(*given)`` about ``window``. ``name`` and ``key`` tell it from others of the same store and pods; ``of`` is what is
    being read, for the line that stands there meanwhile. ``everywhere``: its answer is about all pods, whichever are chosen.
    """

    name: str
    answer: Callable[..., T]
    given: tuple[Any, ...]
    window: Window
    key: Hashable = None
    of: str = ""
    everywhere: bool = False


def pods(page: "Scene") -> Question[Any]:
    """Who can be chosen."""
    part = page.last(LOOKED_AT)
    return Question("pods", pods_of, (page.whole, part), part, of="pods", everywhere=True)


def pools(page: "Scene") -> Question[pl.DataFrame]:
    """Every pool of which anything is stored, but for the last day."""
    part = Window(0, max(page.end - page.end % DAY, 1))
    return Question("pools", pools_of, (page.whole, part), part, of="pools", everywhere=True)


def adapters(page: "Scene") -> Question[list[str]]:
    """Which adapters can be chosen."""
    part = page.last(LOOKED_AT)
    return Question("adapters", adapters_of, (page.whole, part), part, of="adapters", everywhere=True)


def numbers(page: "Scene") -> Question[Now]:
    """The four numbers of each pool."""
    part = page.last(HOUR)
    return Question("numbers", now, (page.store, part, page.lookback), part, of="the numbers of the last hour")


def findings(page: "Scene", looks: Looks) -> Question[Look]:
    """What is wrong, and why: of all pods, since a look is one."""
    part = page.window if page.window.end - page.window.start <= LONGEST else page.last(HOUR)
    end = part.end - part.end % MINUTE if page.view.live else part.end
    part = Window(part.start, max(end, part.start + 1))
    return Question("findings", looks, (part,), part, of="what is wrong, and why", everywhere=True)


def stored(page: "Scene") -> Question[list[State]]:
    """The findings that a service stored, open at the end of the window."""
    return Question("stored", open_at, (page.whole, page.window.end), page.last(MINUTE), of="stored findings", everywhere=True)


def slots(page: "Scene") -> Question[Sat]:
    """Who sat in the slots in the end of the window."""
    part = page.last(SPAN)
    return Question("sat", sat, (page.store, part, page.lookback), part, of="the slots")


def earlier(page: "Scene") -> Question[Before]:
    """Who was there before the window."""
    return Question("before", before, (page.store, page.window.start), page.window, of="who was there before")


def cost(page: "Scene") -> Question[Latency]:
    """What loads cost."""
    part = page.last(ATTRIBUTED)
    given = (page.store, part, page.lookback, page.settings.cost)
    return Question("latency", latency, given, part, of="every request, to replay it without loads")


def curves(page: "Scene") -> Question[Room]:
    """The curves of every pool."""
    part = page.last(HOUR)
    return Question("room", room, (page.store, part, page.lookback), part, of="the curves")


def levers(page: "Scene", pool: Pool, slots: dict[str, int]) -> Question[Levers]:
    """What each lever does."""
    part = page.last(HOUR)
    key = (pool, *sorted(slots.items()))
    return Question("levers", compared, (page.store, part, pool, slots), part, key, "what each lever does")


def plan(page: "Scene", pool: Pool, slots: dict[str, int], wished: Plan, present: str | None) -> Question[Foretold | None]:
    """What a plan does."""
    part = page.last(HOUR)
    key = (pool, *sorted(slots.items()), wished, present)
    return Question("plan", planned, (page.store, part, pool, slots, wished, present), part, key, "the replay")


def who(page: "Scene") -> Question[Heard]:
    """Who was heard."""
    part = page.last(HOUR)
    return Question("heard", heard, (page.store, part, page.lookback), part, of="who was heard in the last hour")


def closed(page: "Scene") -> Question[list[Window]]:
    """Which whole hours of the window are worked out."""
    whole = page.window
    if page.window.end - page.window.start >= WIDE:  # what is told by the hour is told of whole hours
        whole = Window(page.window.start // HOUR * HOUR, page.window.end)
    return Question("closed", covered, (page.whole, whole), whole, of="what is worked out of it", everywhere=True)


def timeline(page: "Scene", pods: int, spans: Sequence[Window]) -> tuple[int, list[Question[Part]]]:
    """The length of a bin, µs, and who sat in which slot, part by part; ``spans`` are what is worked out of it."""
    step, bin = step_of(page.window, columns_of(pods)), step_of(page.window, BINS)
    whole = page.window
    if is_wide(page):
        step, bin, whole = max(step, HOUR), max(bin, HOUR), Window(whole.start // HOUR * HOUR, whole.end)
    asked: list[Question[Part]] = []
    for one, told in pieces(whole, spans if is_wide(page) else ()):
        answer, given = (hours.slots, (page.store, step, bin)) if told else (part, (page.store, page.lookback, step, bin))
        asked.append(Question("timeline", answer, (one, *given), one, (step, bin), "slots"))
    return bin, asked


def requests(page: "Scene", spans: Sequence[Window]) -> list[Question[pl.DataFrame]]:
    """Requests of each adapter by the hour, part by part."""
    found = []
    for one, told in pieces(page.window, spans if not page.view.pod else ()):
        found.append(Question("asked", hours.wanted if told else asked, (one, page.store), one, told, "requests"))
    return found


def looks_at(page: "Scene", spans: Sequence[Window]) -> tuple[int, list[Question[pl.DataFrame]]]:
    """µs of a step, and who could be reached in each, part by part."""
    step = step_between(page.window)
    if is_wide(page):
        step = -(-step // HOUR) * HOUR
    found = []
    for one, told in pieces(page.window, spans if is_wide(page) else ()):
        answer = hours.looked_at if told else reached
        found.append(Question("reached", answer, (one, page.store, step), one, (step, told), "who could be reached"))
    return step, found


def lost_records(page: "Scene", spans: Sequence[Window]) -> list[Question[pl.DataFrame]]:
    """Records that were lost, part by part."""
    return [
        Question("lost", hours.gone if told else lost, (one, page.store), one, told, "records that were lost")
        for one, told in pieces(page.window, spans)
    ]


def is_wide(page: "Scene") -> bool:
    """Whether the window is told by the hour."""
    return page.window.end - page.window.start >= WIDE


def pieces(window: Window, spans: Sequence[Window]) -> list[tuple[Window, bool]]:
    """A window cut into what is worked out (true), and the rest of it, day by day; in order."""
    cut = [(one, True) for one in spans]
    cut += [(day, False) for one in rest(window, spans) for day in days(one)]
    return sorted(cut, key=lambda piece: piece[0].start)
