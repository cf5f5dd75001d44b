"""What somebody marked in a figure, as the browser tells it: a span of time, or a bar."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lora_watch.explore.view import LONGEST, SHORTEST
from lora_watch.model import SECOND, Window

_GRAIN = SECOND // 1000
"""An address holds milliseconds."""


def marked(selection: Mapping[str, Any]) -> Window | None:
    """
    The span of the last box that was drawn over an axis of time, widened to ``SHORTEST``; None where there is none, or what the
    browser says makes no sense.
    """
    try:
        ends = sorted(_micros(text) for text in selection["box"][-1]["x"])
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        return None
    if len(ends) < 2 or ends[-1] - ends[0] > LONGEST or ends[0] < 0:
        return None
    start = ends[0] - ends[0] % _GRAIN
    return Window(start, max(ends[-1], start + SHORTEST))


def clicked(selection: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """
    The one of ``names`` whose bar was clicked: the last selected point of the first trace, whose ``customdata`` are places among
    them; None where there is none, or what the browser says makes no sense.
    """
    try:
        places = [point["customdata"] for point in selection["points"] if point["curve_number"] == 0]
        place = places[-1][0] if isinstance(places[-1], list) else places[-1]
        return names[place] if isinstance(place, int) and 0 <= place < len(names) else None
    except (KeyError, IndexError, TypeError):
        return None


def _micros(text: object) -> int:
    if not isinstance(text, str):
        raise TypeError
    moment = datetime.fromisoformat(text)
    since = (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment) - datetime(1970, 1, 1, tzinfo=UTC)
    return round(since.total_seconds() * SECOND)
