"""What ``lora-watch what-if`` says: a plan beside the present, whether it does harm, and what is not known of it."""

import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from lora_watch.config import Settings
from lora_watch.derive.warning import LIMITS
from lora_watch.diagnose.incidents import utc
from lora_watch.diagnose.saturation import WORDS
from lora_watch.diagnose.thrash import HARM_SHARE
from lora_watch.diagnose.words import count, listed, named, percent, span
from lora_watch.errors import LoraWatchError
from lora_watch.explore.advice import window_until
from lora_watch.explore.expect import announced_in
from lora_watch.explore.history import Held, held
from lora_watch.model import SECOND, Window
from lora_watch.recommend.advice import Setup
from lora_watch.recommend.present import present
from lora_watch.recommend.what_if import ROUTING, Added, Foreseen, Number, Peak, State, WhatIf, foresee, timed
from lora_watch.store.tables import Store

WORSE = 1e-9
"""A figure that grows by less is as it was."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A plan as the command line says it; ``rank`` is that of added adapters."""

    slots: str | None = None
    pods: str | None = None
    pins: tuple[str, ...] = ()
    routing: str | None = None
    add: int | None = None
    split_of: str | None = None
    share: float = 0.5
    rate: float | None = None
    zipf: float = 1.0
    rank: int | None = None
    load_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Sign:
    """One limit that the plan passes: ``text`` in words, the ``value`` then and ``now``. ``harm`` pages, else it warns."""

    signal: str
    harm: bool
    text: str
    value: float
    now: float | None
    limit: float


@dataclass(frozen=True, slots=True)
class Answer:
    """One pool's answer: what is foreseen, the signs, what was passed already and gets no worse, and what is not known."""

    pool: str
    foreseen: Foreseen
    signs: tuple[Sign, ...]
    before: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """harm, warn or fine."""
        return "harm" if any(sign.harm for sign in self.signs) else "warn" if self.signs else "fine"


def answers(
    store: Store, last: str, at: str | None, now: int, settings: Settings, asked: Asked, *, pool: str | None = None
) -> list[Answer]:
    """
    The plan for the pool, with both its roles where prefill and decode are apart. LoraWatchError where the plan is impossible, or
    there are several pools and none is named.
    """
    window: Window = window_until(store, last, at, now)
    lookback = round(settings.derive.lookback.total_seconds() * SECOND)
    found = held(store, window, lookback=lookback, pool=pool, expected=announced_in(settings.diagnose.expected))
    read = list(found)
    names = sorted({one.pool[1] or "" for one in read})
    if len(names) > 1:
        raise LoraWatchError(f"there are several pools: say --pool {listed(names)}")
    return [_answer(one, asked, settings.cost.gpus_per_pod) for one in read]


def _answer(one: Held, asked: Asked, gpus_per_pod: int) -> Answer:
    plan = plan_of(asked, one)
    try:
        cpu = one.setup.cpu_capacity
        router = present(one.history, timed(one.history, cpu))
        foreseen = foresee(one.history, router, plan, cpu_capacity=cpu, gpus_per_pod=gpus_per_pod)
    except ValueError as error:
        raise LoraWatchError(f"replaying the plan: {error}") from None
    told = Answer(one.setup.pool or "the pool", foreseen, (), (), tuple(_unknown(foreseen, one, asked)))
    signs, before = judged(foreseen)
    if (rank := _rank_sign(asked, one.setup)) is not None:
        signs = (rank, *signs)
    return replace(told, signs=signs, before=before)


def plan_of(asked: Asked, one: Held) -> WhatIf:
    """The plan in the pool's terms. LoraWatchError says what of it can't be read."""
    added = None
    if asked.add is not None:
        if asked.split_of is None and asked.rate is None:
            raise LoraWatchError("added adapters need traffic: --split-of 'top 20' or names, or --rate of their own")
        if asked.split_of is not None and asked.rate is not None:
            raise LoraWatchError("--split-of takes requests from others, --rate brings more: give one of them")
        split = None if asked.split_of is None else split_of(asked.split_of, one.history.names)
        seconds = asked.load_seconds if asked.load_seconds is not None else _seconds_of(asked.rank, one)
        added = Added(asked.add, split, asked.share, asked.rate, asked.zipf, seconds)
    elif asked.split_of is not None or asked.rate is not None:
        raise LoraWatchError("--split-of and --rate are of added adapters: say how many with --add-adapters")
    if asked.routing is not None and asked.routing not in ROUTING:
        raise LoraWatchError(f"{asked.routing[:40]!r} is no routing; known are {', '.join(ROUTING)}")
    if asked.add is None and (asked.rank is not None or asked.load_seconds is not None):
        raise LoraWatchError("--rank and --load-seconds are of added adapters: say how many with --add-adapters")
    pins = tuple(dict.fromkeys(name for text in asked.pins for name in _names(text, one.history.names)))
    return WhatIf(number(asked.slots, "slots"), number(asked.pods, "pods"), pins, asked.routing, added)


def number(text: str | None, what: str) -> Number | None:
    """
    A number as typed: itself, or ``+1`` and ``-1`` for so many more or fewer. LoraWatchError where it is none.

    >>> number("5", "slots"), number("+1", "pods")
    (Number(value=5, more=False), Number(value=1, more=True))
    """
    if text is None:
        return None
    told = text.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,6}", told):
        raise LoraWatchError(f"--{what} is a number, or +1 for one more: {text[:40]!r} is neither")
    return Number(int(told), told[0] in "+-")


def split_of(text: str, known: Sequence[str]) -> tuple[str, ...] | int:
    """
    Who is split: ``top 20``, or names with commas between them.

    >>> split_of("top 20", []), split_of("a,b", ["a", "b"])
    (20, ('a', 'b'))
    """
    words = text.split()
    if len(words) == 2 and words[0] == "top" and words[1].isascii() and words[1].isdecimal() and len(words[1]) <= 7:
        return int(words[1])
    return _names(text, known)


def _names(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """A name as it is where it is one, commas and all; else what stands between commas."""
    return (text,) if text in known else tuple(part.strip() for part in text.split(",") if part.strip())


def _seconds_of(rank: int | None, one: Held) -> float | None:
    """
    Seconds of a load of that rank: those measured of adapters of known bytes, in proportion to the bytes of the rank (a slot's
    bytes ÷ its rank); None where something of it is unknown.
    """
    history, setup = one.history, one.setup
    pairs = zip(history.load_seconds, history.bytes, strict=True)
    known = [(seconds, size) for seconds, size in pairs if math.isfinite(seconds) and size > 0]
    if rank is None or setup.slot_bytes is None or not setup.max_rank or not known:
        return None
    return float(sum(one[0] for one in known) / sum(one[1] for one in known) * setup.slot_bytes / setup.max_rank * rank)


def judged(foreseen: Foreseen) -> tuple[tuple[Sign, ...], tuple[str, ...]]:
    """
    The limits that the plan passes, and those that the present passes and the plan does not make worse.

    As the alerts have them: harm is rho from ``rho_peak`` on, pods that stand still for loads ``HARM_SHARE`` of ten minutes, and
    a pod whose slots adapters in flight fill from ``hard_cliff`` on; misses from ``predicted_miss_ratio`` on warn. rho and loads
    are of the busiest ten minutes of the judged window. A limit counts where the figure is above it and higher than at present.
    """
    signs, before = [], []
    for sign in _signs(foreseen.now, foreseen.then):
        if sign.value < sign.limit:
            continue
        if sign.now is not None and sign.now >= sign.limit and sign.value <= sign.now + WORSE:
            before.append(f"{sign.text} (limit {percent(sign.limit)}, now {percent(sign.now)}), and the plan makes it no worse")
        else:
            signs.append(sign)
    return tuple(signs), tuple(before)


def _signs(now: State, then: State) -> Iterator[Sign]:
    peak, base = then.peak, now.peak
    if peak is not None:
        when = f"at the peak ({utc(peak.at)})"
        text = f"the pool needs {percent(peak.rho)} of what it can do {when}; first to run out: {WORDS[peak.bottleneck]}"
        yield Sign("rho_peak", True, text, peak.rho, None if base is None else base.rho, LIMITS["rho_peak"].enter)
        text = f"adapters in flight take {percent(peak.fullest_pod)} of the fullest pod's slots {when}, and others wait"
        full = None if base is None else base.fullest_pod
        yield Sign("hard_cliff", True, text, peak.fullest_pod, full, LIMITS["hard_cliff"].enter)
    if then.load_share_worst is not None:
        text = f"pods stand still for loads {percent(min(then.load_share_worst, 1.0))} of the worst ten minutes"
        yield Sign("stall_share", True, text, then.load_share_worst, now.load_share_worst, HARM_SHARE)
    text = f"{percent(then.miss_ratio)} of requests miss"
    limit = LIMITS["predicted_miss_ratio"].enter
    yield Sign("miss_ratio", False, text, then.miss_ratio, now.miss_ratio, limit)


def _rank_sign(asked: Asked, setup: Setup) -> Sign | None:
    if asked.rank is None or setup.max_rank is None or asked.rank <= setup.max_rank:
        return None
    above = f"rank {asked.rank} is above --max-lora-rank {setup.max_rank}"
    text = f"{above}: engines refuse to load it, and raising that makes every slot larger"
    return Sign("rank", True, text, float(asked.rank), None, float(setup.max_rank))


def _unknown(foreseen: Foreseen, one: Held, asked: Asked) -> Iterator[str]:
    if foreseen.then.load_share_worst is None:
        yield "how long loads take: no load told its duration, so harm by loads cannot be foreseen"
    if asked.rank is not None and asked.load_seconds is None and _seconds_of(asked.rank, one) is None:
        yield "what a load of that rank takes: bytes or durations of loads are not known, the mean of the others stands for it"
    if foreseen.router is None and foreseen.now.pods > 1:
        yield "which router routes: none that can be replayed comes near the recorded pods, on which requests stay"
    if len(foreseen.pins) < len(set(foreseen.plan.pins)):
        left = count(len(set(foreseen.plan.pins)) - len(foreseen.pins), "pin is", "pins are")
        yield f"{left} in no pod of the plan: pinned already, or no pod has two slots without a pin, one of which stays free"
    yield from foreseen.gaps


def as_json(told: Sequence[Answer]) -> str:
    """One JSON object in ASCII; unknown is null, times are ISO 8601."""
    return json.dumps({"verdict": worst(told), "pools": [_tree(one) for one in told]}, allow_nan=False)


def worst(told: Sequence[Answer]) -> str:
    """The gravest of the verdicts."""
    return max((one.verdict for one in told), key=("fine", "warn", "harm").index, default="fine")


def fails(told: Sequence[Answer], limit: str | None) -> bool:
    """Whether a verdict is as grave as ``limit`` (warn or harm); never where there is none."""
    grave = {None: (), "harm": ("harm",), "warn": ("warn", "harm")}
    return worst(told) in grave[None if limit is None else str(limit)]


def _tree(one: Answer) -> dict[str, Any]:
    foreseen = one.foreseen
    tree = asdict(foreseen)
    tree["judged"] = {"start": utc(foreseen.judged.start), "end": utc(foreseen.judged.end)}
    tree["effect"] |= {"removed": foreseen.effect.removed, "of": foreseen.effect.of}
    for side in ("now", "then"):
        if tree[side]["peak"] is not None:
            tree[side]["peak"]["at"] = utc(tree[side]["peak"]["at"])
    return {
        "pool": one.pool,
        "verdict": one.verdict,
        "signs": [asdict(sign) for sign in one.signs],
        "already": list(one.before),
        "unknown": list(one.unknown),
        **tree,
    }


def show(told: Sequence[Answer], console: Console | None = None) -> None:
    """Print each pool's answer: the verdict in words, the plan beside the present, how it is known."""
    console = console or Console(file=sys.stdout, width=None if sys.stdout.isatty() else 130, highlight=False)
    for one in told:
        console.print(escape(f"{named(one.pool)}: {planned(one.foreseen.plan)}"), style="bold", highlight=False)
        for line in verdict_lines(one):
            console.print(line, markup=False, highlight=False)
        console.print(_grid(one.foreseen))
        for line in _basis(one.foreseen):
            console.print(line, markup=False, highlight=False)
        for line in one.unknown:
            console.print(f"not known: {line}", markup=False, highlight=False)


def planned(plan: WhatIf) -> str:
    """
    A plan in words.

    >>> planned(WhatIf(slots=Number(5), pods=Number(2, more=True)))
    '5 slots per pod, +2 pods'
    """
    parts = []
    if plan.slots is not None:
        parts.append(f"{_number(plan.slots, 'slot')} per pod")
    if plan.pods is not None:
        parts.append(_number(plan.pods, "pod"))
    if plan.pins:
        parts.append(f"{listed(plan.pins)} pinned")
    if plan.router is not None:
        parts.append(f"{plan.router} routing")
    if (added := plan.added) is not None:
        who = count(added.count, "adapter")
        if isinstance(added.split_of, int):
            parts.append(f"{who} more, {percent(added.share)} of the requests of the top {added.split_of}")
        elif added.split_of is not None:
            parts.append(f"{who} more, {percent(added.share)} of the requests of {listed(added.split_of)}")
        else:
            parts.append(f"{who} more with {added.rate:g} requests/s")
    return ", ".join(parts) or "nothing changed"


def _number(told: Number, noun: str) -> str:
    """
    So many, or so many more or fewer.

    >>> _number(Number(1), "pod"), _number(Number(-1, more=True), "pod")
    ('1 pod', '−1 pod')
    """
    if not told.more:
        return count(told.value, noun)
    return f"{'−' if told.value < 0 else '+'}{count(abs(told.value), noun)}"


def _grid(foreseen: Foreseen) -> Grid:
    grid = Grid(header_style="bold")
    for heading in ("", "now", "then"):
        grid.add_column(heading, justify="left" if not heading else "right")
    now, then = foreseen.now, foreseen.then
    for name, values in _rows(now, then):
        grid.add_row(name, *values)
    return grid


def _rows(now: State, then: State) -> Iterator[tuple[str, tuple[str, str]]]:
    def both(show: Any) -> tuple[str, str]:
        return show(now), show(then)

    yield "pods, slots in all", both(lambda one: f"{one.pods}, {one.slots}")
    yield "adapters asked for", both(lambda one: str(one.adapters))
    yield "requests that miss", both(lambda one: percent(one.miss_ratio))
    yield "  95 % interval", both(lambda one: f"{percent(one.miss_low)} … {percent(one.miss_high)}")
    yield "swaps/s, pool", both(lambda one: f"{one.swaps_per_second:.3g}")
    yield "residency p50", both(lambda one: _seconds(one.residency_p50_seconds))
    yield "residency p95", both(lambda one: _seconds(one.residency_p95_seconds))
    yield "wait for slot and load, p95", both(lambda one: _seconds(one.wait_p95_seconds))
    yield "wait for a slot, p95", both(lambda one: _seconds(one.slot_wait_p95_seconds))
    yield "pods' time in loads", both(lambda one: _share(one.load_share))
    yield "  worst ten minutes", both(lambda one: _share(one.load_share_worst))
    yield "load at the peak (rho)", both(lambda one: "–" if one.peak is None else percent(one.peak.rho))
    yield "  at", both(lambda one: "–" if one.peak is None else _clock(one.peak))


def verdict_lines(one: Answer) -> list[str]:
    """The verdict: whether the plan does harm, each sign in words; then what changes, and what was past its limit already."""
    lines = []
    for sign in one.signs:
        now = "" if sign.now is None or sign.signal == "rank" else f" (now {percent(sign.now)})"
        limit = "" if sign.signal == "rank" else f"; limit {percent(sign.limit)}"
        lines.append(f"{'HARM' if sign.harm else 'WARNING'}: {sign.text}{limit}{now}.")
    if not one.signs:
        lines.append("No limit is passed that is not passed already." if one.before else "No limit is passed: no harm foreseen.")
    lines += _differences(one.foreseen)
    return lines + [f"Past its limit already: {text}." for text in one.before]


def _differences(foreseen: Foreseen) -> Iterator[str]:
    """What the plan changes, in words."""
    effect = foreseen.effect
    low, high = effect.sure
    if effect.removed is not None and low is not None and high is not None:
        less = effect.removed >= 0
        first, last = (low, high) if less else (-high, -low)
        fewer = "fewer" if effect.of == "swaps" else "less"
        what = f"{percent(abs(effect.removed))} {fewer if less else 'more'} {effect.of}"
        yield f"{what[:1].upper()}{what[1:]} (95 % interval {percent(first)} … {percent(last)})."
    elif effect.swaps and effect.base_swaps == 0:
        yield f"{count(effect.swaps, 'swap')}, where there is none now."
    if effect.p95_seconds_saved is not None and abs(effect.p95_seconds_saved) >= 0.0005:
        saved = effect.p95_seconds_saved
        yield f"The P95 of requests: {span(abs(saved))} {'less' if saved > 0 else 'more'} for slots and loads."
    if foreseen.moved:
        yield f"The added adapters carry {percent(foreseen.moved)} of requests."


def _basis(foreseen: Foreseen) -> list[str]:
    window = foreseen.judged
    when = f"{utc(window.start)} … {utc(window.end)} ({span(window.seconds)}), {count(foreseen.now.requests, 'request')}"
    return [f"By {foreseen.method}; {when}; {foreseen.provenance or 'provenance unknown'}."]


def _seconds(value: float | None) -> str:
    return "–" if value is None else span(value)


def _share(value: float | None) -> str:
    return "–" if value is None else percent(value)


def _clock(peak: Peak) -> str:
    return datetime.fromtimestamp(peak.at / SECOND, UTC).strftime("%a %H:%M UTC")
