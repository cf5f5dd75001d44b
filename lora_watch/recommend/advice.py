"""What is recommended, as values: each with what it promises, how that is known, what it costs, and whether it can be done."""

from dataclasses import dataclass, field
from enum import StrEnum

from lora_watch.model import Window

MONTH_HOURS = 730.0
"""Hours of a month, for everything that is told by the month: 365 days ÷ 12."""


class Kind(StrEnum):
    """What is to be changed."""

    SLOTS = "slots"  # more of them on every pod
    PODS = "pods"  # more of them
    ROUTING = "routing"  # another scorer
    PINS = "pins"  # adapters that nothing may evict
    PRELOAD = "preload"  # adapters loaded ahead by hour of week
    UNPIN = "unpin"  # pins that nobody asks for
    RETIRE = "retire"  # registered adapters that nobody asks for
    MERGE = "merge"  # adapters that are used as one
    CAP = "cap"  # experiments, held to so many adapters or pods
    GROUPS = "groups"  # adapters that follow each other, kept on one pod
    SPLIT = "split"  # the fleet, by tenant


class Verdict(StrEnum):
    """What the proof came to."""

    ADVISED = "advised"  # the lower bound of what it saves is above zero and above the replay's own error
    NOT_WORTH = "not worth it"  # it saves nothing that is sure
    HARMFUL = "harmful"  # it makes things worse
    UNPROVEN = "unproven"  # replay can't judge it: what it does is not in the log


@dataclass(frozen=True, slots=True)
class Place:
    """One adapter on one pod: a pin or a preload; ``hours`` of the week (0: Monday 00:00 UTC), empty for always."""

    adapter: str
    pod: str
    hours: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Effect:
    """
    What a change would have done to the judged window. Shares of the present, positive: less of it; None is unknown.

    ``swaps_removed`` with a 95 % interval ``low`` … ``high``: of advice, that in which the share of the next such time lies; of a
    week that is over (:func:`lora_watch.recommend.proof.effect`) what its days, drawn anew, come to. ``swaps`` and ``base_swaps``
    are those of the judged time; ``p95_seconds_saved`` is of what requests waited for a slot and their own adapter's load;
    ``gpu_hours_saved`` a month of ``MONTH_HOURS``.

    Where requests wait for slots at present (None: they don't), ``waits_removed`` with its interval is the share of that waiting
    that is gone: it says more there than swaps, since requests that wait for one adapter enter together and share its load.
    """

    swaps_removed: float | None
    low: float | None
    high: float | None
    swaps: int | None
    base_swaps: int | None
    p95_seconds_saved: float | None = None
    gpu_hours_saved: float | None = None
    waits_removed: float | None = None
    waits_low: float | None = None
    waits_high: float | None = None

    @property
    def of(self) -> str:
        """What hurts, and is to become less."""
        return "swaps" if self.waits_removed is None else "waiting for slots"

    @property
    def removed(self) -> float | None:
        """The share of it that is gone."""
        return self.swaps_removed if self.waits_removed is None else self.waits_removed

    @property
    def sure(self) -> tuple[float | None, float | None]:
        """The interval of that share."""
        return (self.low, self.high) if self.waits_removed is None else (self.waits_low, self.waits_high)


@dataclass(frozen=True, slots=True)
class Advice:
    """
    One change, judged.

    ``what`` says it in words for people; ``amount``, ``adapters`` and ``places`` for programs. ``judged`` is the window in which
    it was replayed, ``learned`` the one it was chosen from (None: nothing was chosen), ``method`` what was replayed. ``cost`` and
    ``risk`` are words (the price in KV-cache tokens, a restart, …), ``can`` says whether this engine and deployment can do it at
    all and ``how``; None: unknown.
    """

    kind: Kind
    verdict: Verdict
    what: str
    why: str
    effect: Effect
    judged: Window | None
    learned: Window | None
    method: str
    cost: str
    risk: str
    can: bool | None
    how: str
    amount: int | None = None
    adapters: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    provenance: str | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """
    What the engines of a pool were started with, as far as it is known: what is said about them and what they are told depends
    on it. Unknown is None.
    """

    pool: str
    engine: str | None = None  # vllm | sglang | lorax | …
    version: str | None = None
    pods: int | None = None
    slots: int | None = None  # of each pod; of the one with fewest, where they differ
    most_slots: int | None = None  # of the pod with most, where they differ
    cpu_capacity: int | None = None
    max_rank: int | None = None
    base_model: str | None = None
    slot_bytes: int | None = None  # that one slot takes on a GPU, at least


@dataclass(frozen=True, slots=True)
class Recommendation:
    """
    Everything advised for one pool, the most useful first; ``sentence`` is what it comes to.

    ``article_rule`` is the article's rule (pin the top 5 by 30-day count) judged in the same way. ``bounds`` are shares of the
    loads that any policy without more slots could remove at most, by name (pooled Belady, per-pod MIN, hindsight-static).
    ``learning_cut`` (µs UTC) is the change point before which nothing was learned.
    """

    setup: Setup
    window: Window
    sentence: str
    advice: tuple[Advice, ...]
    article_rule: Advice | None
    bounds: dict[str, float] = field(default_factory=dict)
    router: str | None = None
    learning_cut: int | None = None
    provenance: str | None = None
    gaps: tuple[str, ...] = ()
