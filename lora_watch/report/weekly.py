"""
The weekly report as a value: one field a section. Times are µs UTC, shares are ratios, None is unknown and never zero.

How it is written out stands elsewhere (HTML, Markdown, JSON); all three are made of this and of nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lora_watch.model import Window
from lora_watch.recommend.advice import Advice, Recommendation
from lora_watch.report.weeks import Week


@dataclass(frozen=True, slots=True)
class Head:
    """
    Which week, made when; ``held`` is the part of it that any row is about, None where there is none. ``pool``: the only pool
    that was asked for, None: all. ``complete``: the week had ended.
    """

    week: Week
    made_at: int
    held: Window | None
    pool: str | None
    complete: bool


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour of a pool. ``seconds`` of it are held; ``missed`` of ``known`` requests found their adapter in no slot."""

    at: int
    seconds: float
    pods: int
    requests: int
    loads: int
    swaps: int
    missed: int
    known: int
    p95_seconds: float | None


@dataclass(frozen=True, slots=True)
class PoolWeek:
    """
    One pool of one role in the week; ``whole`` is its name without the role: prefill and decode pods serve the same requests,
    which nobody may count twice. ``p95_seconds`` of the time to the first token; ``seconds``: so much of the week is held.
    """

    pool: str
    pods: int
    adapters: int
    requests: int
    loads: int
    swaps: int
    missed: int
    known: int
    p50_seconds: float | None
    p95_seconds: float | None
    seconds: float
    provenance: str | None
    hours: tuple[Hour, ...] = ()
    whole: str = ""

    @property
    def miss_ratio(self) -> float | None:
        """Misses ÷ requests of which it is known."""
        return self.missed / self.known if self.known else None

    @property
    def swaps_per_second(self) -> float | None:
        """Per second and pod, over what is held."""
        return self.swaps / self.seconds / self.pods if self.seconds and self.pods else None


def served(pools: Sequence[PoolWeek], what: str) -> int:
    """
    The ``requests`` or ``adapters`` of all pools; where a pool has several roles, of the one that tells most.

    >>> sides = [PoolWeek(f"chat / {role}", 1, 2, count, 0, 0, 0, 0, None, None, 0.0, None, whole="chat")
    ...          for role, count in (("prefill", 7), ("decode", 6))]
    >>> served(sides, "requests")
    7
    """
    most: dict[str, int] = {}
    for one in pools:
        name = one.whole or one.pool
        most[name] = max(most.get(name, 0), int(getattr(one, what)))
    return sum(most.values())


@dataclass(frozen=True, slots=True)
class WeekBefore:
    """The week before, of all pools that the report is about, where both weeks are held whole."""

    requests: int
    loads: int
    swaps: int
    p95_seconds: float | None


@dataclass(frozen=True, slots=True)
class Happened:
    """One incident. ``harm_seconds``: so long of the week a finding of harm was open; ``remedy``: what helps most, in words."""

    id: str
    pool: str
    severity: str
    status: str
    start: int
    end: int | None
    seconds: float
    harm_seconds: float
    title: str
    cause: str
    remedy: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """How a pool stood at the end of what is held: ``state`` in one word, ``sentence`` in words; ``findings`` then."""

    pool: str
    state: str
    sentence: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Incidents:
    """
    What was told of the week, the gravest first. ``told``: findings of it are stored; where none is, ``standing`` is what one
    look at the end says, and ``looked`` when a service looked last (µs UTC; None: none ever did): from the week's end on it was
    quiet, as far as somebody looked.
    """

    told: bool
    found: tuple[Happened, ...] = ()
    standing: tuple[Standing, ...] = ()
    looked: int | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """
    GPU time that loads took from a pool: ``gpu_hours_lost`` of ``gpu_hours``, a lower bound where ``unknown_loads`` say no
    length. ``money_lost`` in ``currency``, None without a price.
    """

    pool: str
    loads: int
    unknown_loads: int
    gpu_hours_lost: float
    gpu_hours: float | None
    money_lost: float | None
    currency: str | None
    provenance: str | None

    @property
    def lost_ratio(self) -> float | None:
        """Lost ÷ all GPU hours."""
        return self.gpu_hours_lost / self.gpu_hours if self.gpu_hours else None


@dataclass(frozen=True, slots=True)
class Offender:
    """
    An adapter, or a family of them (``members`` above 1), with its share of the pool's requests and loads and the GPU hours
    that its own loads took. ``new``: nobody asked for it before the week; None: nobody knows.
    """

    name: str
    pool: str
    members: int
    requests: int
    request_share: float | None
    loads: int
    load_share: float | None
    gpu_hours_lost: float
    miss_ratio: float | None
    new: bool | None = None


@dataclass(frozen=True, slots=True)
class Offenders:
    """Who was loaded most, by GPU time of the loads."""

    adapters: tuple[Offender, ...] = ()
    families: tuple[Offender, ...] = ()


@dataclass(frozen=True, slots=True)
class Advised:
    """The recommendation for a pool; None with the reason in ``why`` where there is none."""

    pool: str
    recommendation: Recommendation | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    One rule, learned before the week and judged on it: the share of what hurts (``of``: swaps, …) at present that it
    ``promised`` to remove, with the interval, and that it ``removed``. ``mine``: it is what lora_watch would have advised.
    ``bound``: nobody can have it, since it knows the week.
    """

    rule: str
    what: str
    promised: float | None
    low: float | None
    high: float | None
    removed: float | None
    of: str = "swaps"
    mine: bool = False
    bound: bool = False

    @property
    def kept(self) -> bool | None:
        """
        Whether what was removed lies in the promised interval; None where there was no promise or nothing to hold it against.
        """
        if self.low is None or self.high is None or self.removed is None:
            return None
        return self.low <= self.removed <= self.high


@dataclass(frozen=True, slots=True)
class Promise:
    """What advice as of the week's start would have done in the week, beside other rules. Without ``outcomes``: ``why``."""

    pool: str
    judged: Window | None
    outcomes: tuple[Outcome, ...] = ()
    swaps: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Ruled:
    """The article's rule (pin the top 5 by 30-day count) beside ours for one pool; None: there is none of it."""

    pool: str
    article: Advice | None
    ours: Advice | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Evicted:
    """
    One eviction policy on the pool's own log: ``loads`` of ``base`` under LRU in the same replay; ``bound``: nobody can have
    it.
    """

    policy: str
    loads: int
    base: int
    method: str
    bound: bool = False

    @property
    def removed(self) -> float | None:
        """Share of LRU's loads that it removes; negative: it adds some."""
        return 1 - self.loads / self.base if self.base else None


@dataclass(frozen=True, slots=True)
class Policies:
    """Eviction policies compared on one pool's requests of the week. Without ``rows``: ``why``."""

    pool: str
    requests: int
    rows: tuple[Evicted, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Quiet:
    """Hours of the held part in which no row at all tells of a pool: ``hours`` of them, the longest stretch from ``start`` on."""

    pool: str
    hours: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Missing:
    """Records that were lost before anyone could read them."""

    pool: str
    pod: str
    reason: str
    records: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table by how they are known."""

    table: str
    provenance: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class AddsUp:
    """Does a pool's log add up? Little's residual: slot-time that records do not explain ÷ all of it; None: nothing was there."""

    pool: str
    residual_ratio: float | None
    unknown_lookups: int
    requests: int


@dataclass(frozen=True, slots=True)
class Quality:
    """
    How far the report can be trusted. ``held_ratio``: held ÷ the week. ``late_seconds``: the newest row lay so long before the
    end of the week, or before the moment at which the report was made.
    """

    held_ratio: float
    late_seconds: float
    provenance: str | None
    quiet: tuple[Quiet, ...] = ()
    missing: tuple[Missing, ...] = ()
    rows: tuple[Rows, ...] = ()
    adds_up: tuple[AddsUp, ...] = ()


@dataclass(frozen=True, slots=True)
class WeeklyReport:
    """The whole report; ``summary`` is the week in five lines."""

    head: Head
    summary: tuple[str, ...]
    pools: tuple[PoolWeek, ...]
    incidents: Incidents
    lost: tuple[Lost, ...]
    offenders: Offenders
    advice: tuple[Advised, ...]
    promises: tuple[Promise, ...]
    article: tuple[Ruled, ...]
    policies: tuple[Policies, ...]
    quality: Quality
    before: WeekBefore | None = None
