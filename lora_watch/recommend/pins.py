"""
Which adapters to pin, and on which pods: as many as a replay of weeks that had not been looked at proves, which may be none.

The chain: training cut at change points → candidates → greedy order by exact gains → places → how many of them, by the router in
the loop on the last weeks, each with an order learned from what lay before it → the same number of an order learned from all.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lora_watch.model import DAY, Window
from lora_watch.recommend.advice import Advice, Effect, Kind, Place, Verdict
from lora_watch.recommend.candidates import candidates
from lora_watch.recommend.greedy import HALF_LIFE, pooled_order, recorded_order
from lora_watch.recommend.history import History
from lora_watch.recommend.judge import Judged, judged
from lora_watch.recommend.placement import placed, replicas, spread, work
from lora_watch.recommend.present import Present, present
from lora_watch.recommend.proof import MODEL_ERROR, Measure, Proof, effect, proof
from lora_watch.recommend.release import releases
from lora_watch.recommend.words import percent
from lora_watch.replay.routers import Rule

WEEK = 7 * DAY
LEARN_AT_LEAST = DAY
"""Before a judged week there must be so much to learn from."""
JUDGED_WEEKS = 2
"""Weeks on which the number of pins is chosen, where there are so many."""
LENGTHS = 8
"""Numbers of pins that are tried, spread evenly up to all that the order has."""
REPLICAS = 4
"""Second pods that are tried at most, for adapters that keep one busy; each must raise the lower bound."""
ARTICLE_TOP = 5
ARTICLE_DAYS = 30

Pins = tuple[tuple[int, int], ...]
Order = Callable[[int], Pins]


@dataclass(frozen=True, slots=True)
class PinAdvice:
    """
    The advice on pins and, judged alike on the same weeks, the article's rule (the top 5 of the last 30 days, each on one pod).

    ``learning_cut`` (µs UTC) is the change point before which nothing was learned. ``base`` is the replay of the newest judged
    week as it is, None where there was too little history.
    """

    advice: Advice
    article: Advice | None
    learning_cut: int | None
    base: Judged | None


def moves_with_pins(now: Present) -> bool:
    """Whether the router looks at what is resident, so that a pin draws requests to its pod."""
    return now.router is not None and now.router.rule in (Rule.ARTICLE, Rule.RESIDENCY)


def order_of(history: History, now: Present, allowed: NDArray[np.bool_], half_life: int | None = HALF_LIFE) -> Order:
    """The pins learned from a history, by how many of them are wanted."""
    if not moves_with_pins(now):
        pins = recorded_order(history, allowed, half_life)
        return lambda count: tuple(pins[:count])
    adapters, load = pooled_order(history, allowed, half_life), work(history)
    return lambda count: placed(adapters[:count], load, history.slots)


def rule_pins(history: History, top: int, last: int) -> Pins:
    """The rule of thumb: the ``top`` most asked for in the ``last`` µs of a history, each on one pod."""
    newest = history.trace.adapter[np.searchsorted(history.trace.at, history.window.end - last) :]
    asked = np.bincount(newest[newest >= 0], minlength=history.trace.adapters)
    chosen = [int(a) for a in np.argsort(-asked, kind="stable")[:top] if asked[a] > 0]
    return placed(chosen, work(history), history.slots)


def advise_pins(
    history: History, now: Present | None = None, *, opt_in: Collection[str] = (), gpus_per_pod: int = 1
) -> PinAdvice:
    """
    Pins for the time after the history's end. ``now`` is the router in the loop (found if it is not given).

    Learned since the last of ``history.changes``. The number of pins is that with the largest lower bound (5 %, over days drawn
    anew) of the load cost it removes in the last week, or two; the verdict is that of :func:`proof`. The effect is what is
    promised: the share removed in those weeks, by orders that had not seen them, with the interval in which that of the next
    week lies. It is the best of the numbers tried, so that it promises a little too much: how much is for
    :func:`lora_watch.recommend.backtest.backtest` to say, by weeks that nobody chose by. Fewer than eight days since the last
    change prove nothing: UNPROVEN, and no pins.
    """
    router = present(history) if now is None else now
    end = history.window.end
    cut = max((one for one in history.changes if history.window.start < one < end), default=None)
    since = history.window.start if cut is None else cut
    weeks = [
        Window(end - n * WEEK, end - (n - 1) * WEEK)
        for n in range(JUDGED_WEEKS, 0, -1)
        if end - n * WEEK - LEARN_AT_LEAST >= since
    ]
    if not weeks:
        return PinAdvice(_unproven(history, since, router), None, cut, None)
    bases = [judged(history, week, router.router) for week in weeks]
    before = [history.during(Window(since, week.start)) for week in weeks]
    orders = [order_of(past, router, candidates(past, opt_in)) for past in before]
    best = _choice(history, router, weeks, bases, orders)
    learned = Window(since, end)
    known = [history.during(Window(history.window.start, week.start)) for week in weeks]
    counted = [rule_pins(past, ARTICLE_TOP, ARTICLE_DAYS * DAY) for past in known]
    rule = [judged(history, week, router.router, pins=pins) for week, pins in zip(weeks, counted, strict=True)]
    article = _article(history, router, weeks, bases, rule, gpus_per_pod)
    if best is None or best.proven.verdict is not Verdict.ADVISED:
        why = _why_not(best)
        return PinAdvice(_nothing(history, router, weeks, learned, bases, why), article, cut, bases[-1])
    newest = history.during(learned)
    pins = spread(order_of(newest, router, candidates(newest, opt_in))(best.count), best.more, history.slots)
    if not pins:
        why = "no adapter is a candidate any more: none was asked for in the last three days"
        return PinAdvice(_nothing(history, router, weeks, learned, bases, why), article, cut, bases[-1])
    advice = _advised(history, router, weeks, learned, bases, best, pins, gpus_per_pod)
    return PinAdvice(advice, article, cut, bases[-1])


@dataclass(frozen=True, slots=True)
class _Choice:
    """How many pins of each week's order, ``more`` of which adapters, what that proves, and the replays that do."""

    proven: Proof
    count: int
    more: tuple[int, ...]
    tried: list[Judged]


def _choice(
    history: History, router: Present, weeks: Sequence[Window], bases: Sequence[Judged], orders: Sequence[Order]
) -> _Choice | None:
    """
    The number of pins with the largest lower bound over the weeks, then one pod more for each adapter that keeps one busy, where
    that raises it. Of many numbers the better half on the newest week are tried on the others too, which saves a quarter of the
    time. None where there is nothing to prove.
    """
    replays: dict[tuple[int, int, tuple[int, ...]], Judged] = {}

    def tried(count: int, more: tuple[int, ...] = (), last: int = len(weeks)) -> _Choice | None:
        for n in range(len(weeks) - last, len(weeks)):
            if (n, count, more) not in replays:
                pins = spread(orders[n](count), more, history.slots)
                replays[n, count, more] = held(history, weeks[n], router, pins)
        after = [replays[n, count, more] for n in range(len(weeks) - last, len(weeks))]
        proven = proof(list(zip(bases[-last:], after, strict=True)))
        return None if proven is None else _Choice(proven, count, more, after)

    every = history.trace.adapters * len(history.slots)
    counts = lengths(max(len(order(every)) for order in orders))
    first = [one for one in (tried(count, last=1) for count in counts) if one is not None]
    first.sort(key=lambda one: (-one.proven.lower, one.count))
    best: _Choice | None = None
    for one in first[: -(-len(first) // 2)] if len(weeks) > 1 else first:
        best = _better(best, tried(one.count))
    if best is None or not moves_with_pins(router):
        return best
    need, chosen = replicas(history.during(weeks[-1])), best
    for again in [a for _, a in orders[-1](best.count) for _ in range(need[a] - 1)][:REPLICAS]:
        chosen = _better(chosen, tried(chosen.count, (*chosen.more, again))) or chosen
    return chosen


def _better(best: _Choice | None, other: _Choice | None) -> _Choice | None:
    """The one with the larger lower bound."""
    return other if best is None or (other is not None and other.proven.lower > best.proven.lower) else best


def held(history: History, window: Window, now: Present, pins: Pins) -> Judged:
    """A window with our pins, each held until :func:`releases` lets it go."""
    return judged(history, window, now.router, pins=pins, changes=releases(history, window, pins))


def lengths(most: int) -> list[int]:
    """
    The numbers of pins that are tried: all up to ``LENGTHS``, then as many, evenly spread.

    >>> lengths(24)
    [3, 6, 9, 12, 15, 18, 21, 24]
    """
    return sorted({round(most * n / LENGTHS) for n in range(1, LENGTHS + 1)} - {0})


def _promise(history: History, bases: Sequence[Judged], tried: Sequence[Judged], gpus_per_pod: int) -> Effect:
    """
    What the judged weeks saw, swaps added up and GPU hours on average, with the interval in which the share of the next one lies;
    P95 is that of the newest. Where there are too few loads for a proof, the newest week alone.
    """
    measured = bool(np.isfinite(history.load_seconds).any())
    pairs = list(zip(bases, tried, strict=True))
    each = [effect(base, other, measured=measured, gpus_per_pod=gpus_per_pod) for base, other in pairs]
    proven = proof(pairs, Measure.SWAPS)
    if proven is None:
        return each[-1]
    hours = [one.gpu_hours_saved for one in each if one.gpu_hours_saved is not None]
    return replace(
        each[-1],
        swaps_removed=proven.share,
        low=proven.low,
        high=proven.high,
        swaps=sum(one.swaps or 0 for one in each),
        base_swaps=sum(one.base_swaps or 0 for one in each),
        gpu_hours_saved=sum(hours) / len(hours) if hours else None,
    )


def _instead(history: History) -> str:
    held = len(history.pinned)
    return f", instead of the {held} that {'is' if held == 1 else 'are'} pinned now" if held else ""


def _places(history: History, pins: Pins) -> tuple[Place, ...]:
    return tuple(Place(history.names[a], history.pods[p]) for p, a in pins)


def _method(router: Present, weeks: Sequence[Window]) -> str:
    return f"replay {router.how} of {'a week' if len(weeks) == 1 else f'{len(weeks)} weeks'}, by what was known before"


def _advised(
    history: History,
    router: Present,
    weeks: Sequence[Window],
    learned: Window,
    bases: Sequence[Judged],
    best: _Choice,
    pins: Pins,
    gpus_per_pod: int,
) -> Advice:
    many, pods = len(pins), len({p for p, _ in pins})
    return Advice(
        kind=Kind.PINS,
        verdict=Verdict.ADVISED,
        what=f"pin {many} {'adapter' if many == 1 else 'adapters'} on {pods} {'pod' if pods == 1 else 'pods'}{_instead(history)}",
        why=f"{_pins(best.count + len(best.more))} of an order learned before each judged week removed "
        f"{percent(best.proven.share)} of its load time, more surely than other numbers of pins would have; drawing days anew, "
        f"at least {percent(best.proven.lower)} in 95 of 100 cases",
        effect=_promise(history, bases, best.tried, gpus_per_pod),
        judged=Window(weeks[0].start, weeks[-1].end),
        learned=learned,
        method=_method(router, weeks),
        cost=f"{many} of {sum(history.slots)} slots serve nobody else any more",
        risk="release a pin that nobody asks for during a day, and all of them when new adapters take more than 10 % of the "
        "requests (LoraNewAdapters): the promise counts on it; decide anew every week",
        can=None,
        how="",
        amount=many,
        adapters=tuple(dict.fromkeys(history.names[a] for _, a in pins)),
        places=_places(history, pins),
        provenance=history.provenance,
    )


def _nothing(
    history: History, router: Present, weeks: Sequence[Window], learned: Window, bases: Sequence[Judged], why: str
) -> Advice:
    swaps = sum(int(base.swaps.sum()) for base in bases)
    return Advice(
        kind=Kind.PINS,
        verdict=Verdict.NOT_WORTH,
        what="pin nothing",
        why=why,
        effect=Effect(0.0, 0.0, 0.0, swaps, swaps, 0.0, 0.0),
        judged=Window(weeks[0].start, weeks[-1].end),
        learned=learned,
        method=_method(router, weeks),
        cost="none",
        risk="none",
        can=True,
        how="nothing is to be done",
        amount=0,
        provenance=history.provenance,
    )


def _why_not(best: _Choice | None) -> str:
    if best is None:
        return "no number of pins removes a load: either next to nothing is loaded, or no adapter is a candidate"
    return (
        f"even the best number of pins tried, {best.count}, {_changed(best.proven.share)} in weeks after what its order "
        f"was learned from (lower bound of what it removes: {percent(best.proven.lower)}): pins are advised above the replay's "
        f"own error of {percent(MODEL_ERROR)}, and with a lower bound above zero"
    )


def _changed(share: float) -> str:
    """What a change did to the load time, of which this share is gone."""
    return f"removed {percent(share)} of the load time" if share >= 0 else f"added {percent(-share)} to the load time"


def _pins(count: int) -> str:
    return f"{count} {'pin' if count == 1 else 'pins'}"


def _unproven(history: History, since: int, router: Present) -> Advice:
    days = (history.window.end - since) / DAY
    return Advice(
        kind=Kind.PINS,
        verdict=Verdict.UNPROVEN,
        what="pin nothing yet",
        why=f"there are {days:.1f} days since the history's begin or the last change of the mix; eight are needed, to learn from "
        "one and judge by seven",
        effect=Effect(None, None, None, None, None),
        judged=None,
        learned=None,
        method=f"replay {router.how}",
        cost="none",
        risk="none",
        can=True,
        how="nothing is to be done",
        amount=0,
        provenance=history.provenance,
    )


def _article(
    history: History,
    router: Present,
    weeks: Sequence[Window],
    bases: Sequence[Judged],
    rule: Sequence[Judged],
    gpus_per_pod: int,
) -> Advice:
    proven = proof(list(zip(bases, rule, strict=True)))
    pins = rule_pins(history, ARTICLE_TOP, ARTICLE_DAYS * DAY)
    return Advice(
        kind=Kind.PINS,
        verdict=Verdict.NOT_WORTH if proven is None else proven.verdict,
        what=f"pin the top {ARTICLE_TOP} by their requests of {ARTICLE_DAYS} days, each on one pod (the article's rule)",
        why="there was no load to remove"
        if proven is None
        else f"it {_changed(proven.share)} in weeks that the count had not seen",
        effect=_promise(history, bases, rule, gpus_per_pod),
        judged=Window(weeks[0].start, weeks[-1].end),
        learned=Window(max(history.window.start, history.window.end - ARTICLE_DAYS * DAY), history.window.end),
        method=_method(router, weeks),
        cost=f"{len(pins)} of {sum(history.slots)} slots serve nobody else any more",
        risk="counts say who is asked for often, not whose loads a pin would save",
        can=None,
        how="",
        amount=len(pins),
        adapters=tuple(history.names[a] for _, a in pins),
        places=_places(history, pins),
        provenance=history.provenance,
    )
