"""
Charts as small inline SVG: no script, nothing to fetch, sharp in print. Colours are classes of the page's own style sheet, so
that the light and the dark one have their own.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from lora_watch.explore.markup import Markup, shown, tag
from lora_watch.model import DAY, HOUR, SECOND, Window
from lora_watch.report.blocks import Course, Estimates, Line, Mark, Tone
from lora_watch.report.words import change

WIDTH = 1000
LEFT, RIGHT = 52, 12
PANEL, GAP = 74, 30
LABEL = 58
"""Characters of a name beside an estimate; the whole of it is in the table below."""
NAMES = 420
ROW = 26
FAR = 1.0
"""Estimates are drawn between −100 % and +100 %; what lies beyond is told by its number."""
NICE = (1, 2, 2.5, 5, 10)


def course(chart: Course) -> Markup:
    """Panels under one another on one axis of time, days apart by thin lines; grey where nothing is held."""
    height = len(chart.lines) * (PANEL + GAP) + 24
    drawn = [
        tag("title", chart.title),
        tag("desc", chart.about),
        *_bands(chart, height),
        *_days(chart.window, height),
    ]
    for number, line in enumerate(chart.lines):
        drawn += _panel(line, chart.window, GAP - 8 + number * (PANEL + GAP))
    return _svg(drawn, height, chart.about)


def estimates(chart: Estimates) -> Markup:
    """A dot with its interval for each estimate, the present in the middle as a line."""
    low, high = _reach(chart.marks)
    left, right = NAMES + 16, WIDTH - 84

    def x(share: float) -> float:
        return left + (right - left) * (min(max(share, low), high) - low) / (high - low)

    height = ROW * len(chart.marks) + 34
    base = height - 22
    drawn = [tag("title", chart.title), tag("desc", chart.about)]
    for share in _ticks(low, high):
        drawn.append(_line(x(share), 4, x(share), base, "zero" if share == 0 else "grid"))
        drawn.append(_text(x(share), height - 6, "present" if share == 0 else change(share), "tick", "middle"))
    for number, mark in enumerate(chart.marks):
        drawn += _mark(mark, 4 + ROW * number + ROW / 2, x, low, high)
    return _svg(drawn, height, chart.about)


def _mark(mark: Mark, y: float, x: Callable[[float], float], low: float, high: float) -> Iterator[Markup]:
    tone = f"t-{mark.tone}" if mark.tone is not Tone.PLAIN else "t-plain"
    yield _text(NAMES, y + 4, _cut(mark.name), "label", "end")
    if mark.low is not None and mark.high is not None:
        yield _line(x(mark.low), y, x(mark.high), y, f"span {tone}")
    if mark.value is None:
        yield _text(WIDTH - 4, y + 4, "unknown", "value", "end")
        return
    inside = low <= mark.value <= high
    yield tag("circle", cx=f"{x(mark.value):.1f}", cy=f"{y:.1f}", r="5", class_=f"dot {tone}" if inside else f"dot out {tone}")
    yield _text(WIDTH - 4, y + 4, change(mark.value), "value", "end")


def _reach(marks: Sequence[Mark]) -> tuple[float, float]:
    """From where to where the axis goes: all of the estimates as far as ``FAR``, the present inside, in steps of a tenth."""
    known = [value for mark in marks for value in (mark.value, mark.low, mark.high) if value is not None and math.isfinite(value)]
    low, high = min([0.0, *known]), max([0.1, *known])
    return max(math.floor(low * 10) / 10, -FAR), min(math.ceil(high * 10) / 10, FAR)


def _ticks(low: float, high: float) -> list[float]:
    step = next(one for one in (0.05, 0.1, 0.2, 0.25, 0.5, 1.0) if (high - low) / one <= 7)
    return [round(place * step, 3) for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _panel(line: Line, window: Window, top: float) -> Iterator[Markup]:
    """
    One line with its title above, 0 and the top of its axis at the left; broken where a value is unknown or an hour is
    missing.
    """
    values = [value for _, value in line.points if value is not None]
    most = _nice(max(values, default=0.0))
    bottom = top + PANEL
    yield _text(LEFT + 4, top - 6, line.title, "panel")
    yield _line(LEFT, bottom, WIDTH - RIGHT, bottom, "axis")
    yield _text(LEFT - 6, bottom + 4, "0", "tick", "end")
    yield _text(LEFT - 6, top + 8, f"{most:.4g}{line.unit}", "tick", "end")
    yield _line(LEFT, top, WIDTH - RIGHT, top, "grid")
    for run in _runs(line.points):
        places = [(_x(at + HOUR // 2, window), bottom - PANEL * value / most) for at, value in run]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        if len(places) == 1:
            yield tag("circle", cx=f"{places[0][0]:.1f}", cy=f"{places[0][1]:.1f}", r="2", class_=f"point {line.role}")
            continue
        if line.role == "area":
            yield tag("polygon", points=f"{places[0][0]:.1f},{bottom} {path} {places[-1][0]:.1f},{bottom}", class_="under")
        yield tag("polyline", points=path, class_=f"line {line.role}")
    if not values:
        yield _text((LEFT + WIDTH) / 2, top + PANEL / 2, "unknown", "tick", "middle")


def _runs(points: Sequence[tuple[int, float | None]]) -> Iterator[list[tuple[int, float]]]:
    """Stretches without a gap."""
    run: list[tuple[int, float]] = []
    for at, value in points:
        if run and (value is None or at - run[-1][0] > HOUR):
            yield run
            run = []
        if value is not None:
            run.append((at, value))
    if run:
        yield run


def _bands(chart: Course, height: int) -> Iterator[Markup]:
    whole = chart.window
    held = chart.held
    outside = [(whole.start, whole.end)] if held is None else [(whole.start, held.start), (held.end, whole.end)]
    for start, end in outside:
        wide = _x(end, whole) - _x(start, whole)
        if wide > 2:
            yield _rect(_x(start, whole), 4, wide, height - 28, "absent")
            if wide > 110:
                yield _text((_x(start, whole) + _x(end, whole)) / 2, height / 2, "nothing is held", "tick", "middle")
    for start, end, severity in chart.bands:
        yield _rect(_x(start, whole), 4, max(_x(end, whole) - _x(start, whole), 2), height - 28, f"band {severity}")


def _days(window: Window, height: int) -> Iterator[Markup]:
    for at in range(window.start, window.end + 1, DAY):
        yield _line(_x(at, window), 4, _x(at, window), height - 24, "grid")
        if at < window.end:
            day = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at // SECOND)
            yield _text(_x(at + DAY // 2, window), height - 8, f"{day:%a} {day.day} {day:%b}", "tick", "middle")


def _x(at: int, window: Window) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (at - window.start) / (window.end - window.start)


def _nice(most: float) -> float:
    """The least round number that is no smaller."""
    if not most > 0 or not math.isfinite(most):
        return 1.0
    size = 10.0 ** math.floor(math.log10(most))
    return next(size * step for step in NICE if size * step >= most * 0.999)


def _cut(text: str) -> str:
    clean = shown(text)
    return clean if len(clean) <= LABEL else f"{clean[: LABEL - 1]}…"


def _text(x: float, y: float, text: str, kind: str, anchor: str | None = None) -> Markup:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", class_=kind, text_anchor=anchor)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return tag("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=kind)


def _rect(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    return tag("rect", x=f"{x:.1f}", y=f"{y:.1f}", width=f"{width:.1f}", height=f"{height:.1f}", class_=kind)


def _svg(drawn: Sequence[Markup], height: int, about: str) -> Markup:
    return tag("svg", drawn, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=about[:600], class_="chart")
