"""A pool in one line, and what changed from one line to the next in one sentence; both of overviews, so of what is stored."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import polars as pl

from lora_watch.explore.queries import Overview
from lora_watch.model import Window

LEAST_NEW = 2
"""So many adapters at least, that nobody asked for before, are a change."""
NEW_SHARE = 0.02
"""… if they carry so much of the requests."""
GONE_SHARE = 0.02
"""Adapters that carried so much and of which no request ends any more are one, too: a request is told of when it has ended."""
BY = 1.2
"""So is a rate of requests that is so many times what it was, or as small a part of it."""
SWAPS_BY, SWAPS_AT_LEAST = 2.0, 0.02
"""… swaps per second and pod of so many times what they were, and more by so much."""
MISSES_BY = 0.05
"""… or a miss ratio that is higher by so much."""
QUEUE_BY, QUEUE_AT_LEAST = 3.0, 1.0
"""… or so many times as many requests that wait for an adapter, in the mean over the window, and more by so many."""
CHANCE = 3.0
"""… all this only where chance alone does not explain it: by more than so many standard deviations of a difference of rates."""


@dataclass(frozen=True, slots=True)
class Line:
    """
    One pool in one window; None where it is not known.

    ``adapters`` has the requests of each adapter that was asked for. ``slots`` adds up the pods', ``swaps`` is per second and
    pod, ``misses`` a ratio of the requests, ``queue`` the requests of the pool that waited for an adapter. ``p50`` is the lowest
    and the highest median residency of its pods (s), ``open`` if the highest is a lower bound. ``inference`` and ``busy`` are
    shares of the GPU time of its pods, each pod counting alike; ``inference`` is an upper bound where any pod's is.
    """

    pool: str
    window: Window
    pods: int
    adapters: Counter[str]
    slots: float | None
    swaps: float | None
    misses: float | None
    queue: float | None
    p50: tuple[float, float] | None
    open: bool
    inference: float | None
    busy: float | None

    @property
    def requests(self) -> int:
        """Requests with an adapter."""
        return self.adapters.total()


def lines(shown: Overview) -> list[Line]:
    """A line for each pool of an overview that has pods which are known, by name."""
    found = []
    for (pool,), pods in shown.pods.sort("pool").group_by(["pool"], maintain_order=True):
        asked = shown.adapters.filter((pl.col("pool") == pool) & (pl.col("requests") > 0))
        counts: Counter[str] = Counter()
        for adapter, requests in asked.select("adapter", "requests").iter_rows():
            counts[adapter] += requests
        missed, hit = (int(pods.select(columns).fill_null(0).sum().sum_horizontal().item()) for columns in _LOOKUPS)
        medians, bounds = (pods[f"p50{name}_seconds"].drop_nulls().to_list() for name in ("", "_lower_bound"))
        found.append(
            Line(
                str(pool),
                shown.window,
                pods.height,
                counts,
                _sum(pods["slots"]),
                _each(pods["swaps_per_second"]),
                missed / (missed + hit) if missed + hit else None,
                _sum(pods["swap_queue_mean"]),
                (min(medians + bounds), max(medians + bounds)) if medians + bounds else None,
                bool(bounds) and max(bounds) >= max(medians, default=0.0),
                _each(pods["share_high"]),
                _each(pods["busy_ratio"]),
            )
        )
    return found


_LOOKUPS = (("warm_requests", "cold_requests"), ("hot",))


def change(before: Sequence[Line], now: Line, known: frozenset[str]) -> str | None:
    """
    What is different in ``now`` from the lines of the same pool before, with its figures; None where nothing much is.

    ``known``: the adapters that were asked for before. Of several changes the one that explains most is told: new adapters, then
    adapters no request of which ends any more, then more or less traffic, then swaps, misses or waiting by themselves. Where
    requests are few, their number, misses and swaps differ from line to line by chance: that is no change (``CHANCE``).
    """
    if not before or not now.requests:
        return None
    figures = _figures(before[-1], now)
    new = Counter({name: count for name, count in now.adapters.items() if name not in known})
    if len(new) >= LEAST_NEW and new.total() >= NEW_SHARE * now.requests:
        family = _family(list(new), known)
        named = f" (`{family}`)" if family else ""
        what = f"{len(new)} new adapters{named} carry {_percent(new.total() / now.requests)} of requests"
        want = f"{len(now.adapters)} adapters now want {_or_dash(now.slots)} slots, where {len(before[-1].adapters)} did before"
        return f"{what}; {want}: {figures}."
    usual = sum((line.adapters for line in before), Counter[str]())
    gone = Counter({name: count for name, count in usual.items() if name not in now.adapters})
    if gone.total() >= GONE_SHARE * usual.total() and not _by_chance(gone.total(), usual.total(), 0, now.requests):
        names = ", ".join(name for name, _ in gone.most_common(4)) + (" …" if len(gone) > 4 else "")
        carried = _percent(gone.total() / usual.total())
        return f"no request for {names} ends any more ({carried} of requests before): they wait, or nobody asks: {figures}."
    rates = [line.requests / line.window.seconds for line in before]
    rate, was = now.requests / now.window.seconds, sum(rates) / len(rates)
    seconds = sum(line.window.seconds for line in before)
    if not 1 / BY < rate / was < BY and not _by_chance(usual.total(), seconds, now.requests, now.window.seconds):
        return f"{rate:.1f} requests per second come, where {was:.1f} did before: {figures}."
    if _rose([_swaps(line) for line in before], _swaps(now), SWAPS_BY, SWAPS_AT_LEAST):
        return f"the same traffic makes more swaps: {figures}."
    if _rose([_misses(line) for line in before], _misses(now), 1.0, MISSES_BY):
        return f"the same traffic misses more: {figures}."
    if _times([line.queue for line in before], now.queue, QUEUE_BY, QUEUE_AT_LEAST):
        return f"requests wait for adapters, {now.queue:.1f} on average: {figures}."
    return None


def text(line: Line) -> str:
    """A line of the table of ``HEADING``."""
    active = f"{len(line.adapters)}/{_or_dash(line.slots)}"
    rate = f"{line.requests / line.window.seconds:.1f}"
    return (
        f"{active:>12}   {rate:>10}   {_rate(line.swaps):>11}   {_percent(line.misses):>6}   {_median(line):>17}   "
        f"{_percent(line.inference):>15}   {_percent(line.busy):>9}"
    )


HEADING = (
    f"{'active/slots':>12}   {'requests/s':>10}   {'swaps/s·pod':>11}   {'misses':>6}   {'residency p50':>17}   "
    f"{'inference share':>15}   {'GPU reads':>9}"
)


def _figures(before: Line, now: Line) -> str:
    return (
        f"swaps per second and pod {_rate(before.swaps)} → {_rate(now.swaps)}, misses {_percent(before.misses)} → "
        f"{_percent(now.misses)}, an adapter stays {_median(before)} → {_median(now)} (medians of the pods)"
    )


def _family(names: Sequence[str], others: frozenset[str]) -> str:
    """The shortest end (else beginning) at a dash that all names have and none of the others, as a pattern; "" where none."""
    parts = names[0].split("-")
    for count in range(1, len(parts)):
        end = "-" + "-".join(parts[-count:])
        if all(name.endswith(end) for name in names) and not any(name.endswith(end) for name in others):
            return f"*{end}"
    for count in range(1, len(parts)):
        begin = "-".join(parts[:count]) + "-"
        if all(name.startswith(begin) for name in names) and not any(name.startswith(begin) for name in others):
            return f"{begin}*"
    return ""


def _swaps(line: Line) -> tuple[float, float] | None:
    """Swaps, and the seconds of pods they happened in."""
    return None if line.swaps is None else (line.swaps * line.window.seconds * line.pods, line.window.seconds * line.pods)


def _misses(line: Line) -> tuple[float, float] | None:
    """Misses, and the requests they are of."""
    return None if line.misses is None else (line.misses * line.requests, line.requests)


def _rose(before: Sequence[tuple[float, float] | None], now: tuple[float, float] | None, by: float, least: float) -> bool:
    """Whether a count over what it is of is ``by`` times the mean before, and ``least`` above it, and not by chance."""
    known = [each for each in before if each is not None]
    if now is None or not _times([count / of for count, of in known], now[0] / now[1], by, least):
        return False
    return not _by_chance(sum(count for count, _ in known), sum(of for _, of in known), *now)


def _times(before: Sequence[float | None], now: float | None, by: float, least: float) -> bool:
    known = [value for value in before if value is not None]
    if now is None or not known:
        return False
    was = sum(known) / len(known)
    return now >= by * was and now >= was + least


def _by_chance(before: float, of_before: float, now: float, of_now: float) -> bool:
    """
    Whether two Poisson counts, each over what it is of (requests, seconds), may well be of one rate.

    The difference of the rates is held against ``CHANCE`` standard deviations of it under one common rate,
    sqrt((b + n) / (B + N) × (1 / B + 1 / N)). Counts of a part of the requests vary less than Poisson's, so this is cautious.
    """
    rate = (before + now) / (of_before + of_now)
    return abs(now / of_now - before / of_before) <= CHANCE * sqrt(rate * (1 / of_before + 1 / of_now))


def _sum(values: pl.Series) -> float | None:
    known = values.drop_nulls()
    return float(known.sum()) if len(known) else None


def _each(values: pl.Series) -> float | None:
    """The sum over pods, by pod; None unless every pod has a value."""
    return None if values.is_empty() or values.null_count() else float(values.sum()) / len(values)


def _median(line: Line) -> str:
    if line.p50 is None:
        return "–"
    low, high = (_length(seconds) for seconds in line.p50)
    return ("> " if line.open else "") + low if low == high else f"{low} … {'> ' if line.open else ''}{high}"


def _length(seconds: float) -> str:
    unit, size = ("s", 1) if seconds < 120 else ("min", 60) if seconds < 7200 else ("h", 3600)
    return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit}"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"
