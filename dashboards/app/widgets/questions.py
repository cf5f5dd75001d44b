"""
What the pages ask of the store, each question in one place: a page awaits it, and the server asks it before anybody comes.

Most are about the end of a window, whatever its length: a wider window asks nothing anew.
"""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from lora_watch.explore.adapters import SPAN, Before, Sat, before, sat
from lora_watch.explore.capacity import Room, room
from lora_watch.explore.cost import ATTRIBUTED
from lora_watch.explore.extent import LOOKED_AT, adapters_of, pods_of
from lora_watch.explore.heard import Heard, heard
from lora_watch.explore.latency import Latency, latency
from lora_watch.explore.looks import LONGEST, Look, Looks
from lora_watch.explore.now import Now, now
from lora_watch.explore.timeline import BINS, COLUMNS, Part, part, step_of
from lora_watch.explore.view import days
from lora_watch.model import HOUR, MINUTE, Window

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


def who(page: "Scene") -> Question[Heard]:
    """Who was heard."""
    part = page.last(HOUR)
    return Question("heard", heard, (page.store, part, page.lookback), part, of="who was heard in the last hour")


def timeline(page: "Scene") -> tuple[int, int, list[Question[Part]]]:
    """The length of a cell and of a bin, µs, and who sat in which slot, part by part."""
    step, bin = step_of(page.window, COLUMNS), step_of(page.window, BINS)
    given = (page.store, page.lookback, step, bin)
    asked = [Question("timeline", part, (day, *given), day, (step, bin), "slots") for day in days(page.window)]
    return step, bin, asked
