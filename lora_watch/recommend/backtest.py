"""What last weeks' advice would have done: given at each week's start from what was known then, judged by what came."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np

from lora_watch.model import DAY, Window
from lora_watch.recommend.advice import Advice, Effect, Verdict
from lora_watch.recommend.bounds import bounds
from lora_watch.recommend.change_points import changes
from lora_watch.recommend.history import History
from lora_watch.recommend.judge import judged
from lora_watch.recommend.pins import WEEK, Pins, advise_pins, held, rule_pins
from lora_watch.recommend.present import Present, present
from lora_watch.recommend.proof import effect

BEFORE = 2 * DAY
"""With less before a week nothing is asked of it."""
TOP_5, TOP_10, TOP_5_WEEK, ONE_SLOT = "top 5 of 30 days", "top 10 of 30 days", "top 5 of 7 days", "+1 slot per pod"


@dataclass(frozen=True, slots=True)
class Week:
    """
    One held-out week: the ``advice`` on pins as it would have been given at its start (what it promised is the advice's effect),
    what it would have ``realised`` (all 0 where nothing was to be pinned), what it would have if nobody had released a pin before
    the week was over (``unreleased``; see :func:`releases`), what simple ``rules`` and one slot more would have, by
    name, and the ``bounds``, shares of the loads. ``router`` is the one in the loop, None where requests kept their pods.
    """

    window: Window
    requests: int
    loads: int
    miss_ratio: float | None
    advice: Advice
    realised: Effect
    unreleased: Effect
    rules: dict[str, Effect]
    bounds: dict[str, float]
    router: str | None

    @property
    def kept(self) -> bool | None:
        """Whether what was realised lies in the interval that was promised; None where no pins were."""
        promised, came = self.advice.effect, self.realised.swaps_removed
        if self.advice.verdict is not Verdict.ADVISED or promised.low is None or promised.high is None or came is None:
            return None
        return promised.low <= came <= promised.high


@dataclass(frozen=True, slots=True)
class Backtest:
    """The held-out weeks, the oldest first."""

    weeks: tuple[Week, ...]
    provenance: str | None


def backtest(
    history: History,
    weeks: int = 4,
    *,
    opt_in: Collection[str] = (),
    now: Present | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Backtest:
    """
    The last ``weeks`` weeks of the history, those for which there are two days before, each judged by itself.

    At a week's start the advice sees the history up to there only: its requests, and the change points and the router found in
    them (``now``, if it is given). ``progress`` is told (done, all) after each week.
    """
    end, start = history.window.end, history.window.start
    weeks_held = [Window(end - n * WEEK, end - (n - 1) * WEEK) for n in range(weeks, 0, -1) if end - n * WEEK - BEFORE >= start]
    told: list[Week] = []
    for week in weeks_held:
        told.append(held_out(history, week, now, opt_in))
        if progress is not None:
            progress(len(told), len(weeks_held))
    return Backtest(tuple(told), history.provenance)


def held_out(history: History, week: Window, now: Present | None = None, opt_in: Collection[str] = ()) -> Week:
    """One week, or any other window, advised from what lay before it."""
    past = history.during(Window(history.window.start, week.start))
    past = replace(past, changes=changes(past))
    router = present(past) if now is None else now
    advice = advise_pins(past, router, opt_in=opt_in).advice
    base = judged(history, week, router.router)
    measured = bool(np.isfinite(history.load_seconds).any())

    def of(pins: Pins) -> Effect:
        return effect(base, judged(history, week, router.router, pins=pins), measured=measured)

    adapter, pod = {name: a for a, name in enumerate(history.names)}, {name: p for p, name in enumerate(history.pods)}
    ours = tuple((pod[place.pod], adapter[place.adapter]) for place in advice.places)
    rules = {
        TOP_5: of(rule_pins(past, 5, 30 * DAY)),
        TOP_10: of(rule_pins(past, 10, 30 * DAY)),
        TOP_5_WEEK: of(rule_pins(past, 5, 7 * DAY)),
        ONE_SLOT: effect(base, judged(history, week, router.router, more_slots=1), measured=measured),
    }
    return Week(
        week,
        base.requests,
        int(base.loads.sum()),
        base.miss_ratio,
        advice,
        effect(base, held(history, week, router, ours) if ours else base, measured=measured),
        of(ours) if ours else effect(base, base, measured=measured),
        rules,
        bounds(history, week, router, base),
        router.name,
    )
