"""What is known of one pool in one window: what every rule about a pool reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from lora_watch.derive.cusum import THRESHOLD, Evidence
from lora_watch.derive.hysteresis import Limits, State
from lora_watch.derive.timeline import high_spans
from lora_watch.derive.usual_misses import DAYS, MissLimit
from lora_watch.derive.warning import LIMITS
from lora_watch.diagnose.words import count, percent
from lora_watch.model import HOUR, MINUTE, SECOND, Provenance, Window, worst
from lora_watch.recommend.levers import NOTHING, Lever, Levers

RECENT = 10 * MINUTE
"""What "now" means where a rate needs some time to be one."""
MISSES = Limits(enter=0.15, leave=0.105, for_=3 * MINUTE, keep=10 * MINUTE)
"""Swaps per request: misses that filling free slots does not explain. 0.07 was a healthy cluster's, 0.26 a thrashing one's."""
REPLAYED = HOUR
"""Levers are replayed over so much at most."""


@dataclass(frozen=True)
class PoolFacts:
    """
    One pool of one role.

    ``pods``: its rows of an overview; ``timeline``: its rows of :func:`lora_watch.derive.timeline.timeline`, a minute each, over
    the window; ``adapters``: one row for each that was asked for in the window, with ``adapter``, ``requests`` (in the last ten
    minutes), ``first_seen`` (µs UTC) and ``announced``; ``learning``: the pool is too young to call anything new; ``warning``:
    its row of the early warning, None where nothing was asked for; ``alarms``: by signal, whether it is one and since when.
    ``doubled``: the CUSUM of its misses against what is usual at the hour, None while nobody knows what is. ``routed``: there is
    no request, and ``adapters`` are those of the last ten minutes by the router's counters, ``first_seen`` unknown; ``usual``:
    the limit of its miss ratio, None where no history of its misses is held. ``replay`` tells what levers would have changed in
    a part of the window.
    """

    window: Window
    cluster: str
    pool: str
    role: str
    pods: pl.DataFrame
    timeline: pl.DataFrame
    adapters: pl.DataFrame
    learning: bool
    warning: Mapping[str, Any] | None = None
    alarms: Mapping[str, State] = field(default_factory=dict)
    doubled: Evidence | None = None
    routed: bool = False
    usual: MissLimit | None = None
    replay: Callable[[Window], Levers] = lambda _: NOTHING
    _cache: dict[Window, Levers] = field(default_factory=dict)

    @property
    def onset(self) -> int | None:
        """Since when swaps per request are above ``MISSES`` (µs UTC), None where they are not now."""
        spans = self.high("swaps_per_request", MISSES)
        return spans[-1][0] if spans and spans[-1][1] is None else None

    @property
    def levers(self) -> Levers:
        """What levers would have changed since the onset, or in the last ten minutes; ``REPLAYED`` at most. Replayed once."""
        since = max(self.onset or self.window.end, self.window.end - REPLAYED)
        part = Window(min(since, self.window.end - RECENT), self.window.end)
        if part not in self._cache:
            self._cache[part] = self.replay(part)
        return self._cache[part]

    def lever(self, name: str, amount: int) -> Lever | None:
        """A lever as it was replayed, None where it was not."""
        return next((one for one in self.levers.levers if (one.lever, one.amount) == (name, amount)), None)

    def removed(self, name: str, amount: int) -> float | None:
        """The share of what hurts (swaps, or the wait for slots) that a lever would have removed, None without a replay."""
        one = self.lever(name, amount)
        return None if one is None else one.removed

    def warned(self, name: str) -> float | None:
        """A number of the early warning, None where it is not known."""
        value = (self.warning or {}).get(name)
        return None if value is None else float(value)

    def alarm(self, signal: str) -> int | None:
        """Since when a signal is an alarm (µs UTC), None where it is none."""
        state = self.alarms.get(signal)
        return state.since if state is not None and state.on else None

    @property
    def doubled_since(self) -> int | None:
        """Since when misses are about double the usual of the hour, by CUSUM (µs UTC); None where not, or not known."""
        known = self.doubled
        return known.rising_since if known is not None and known.total >= THRESHOLD else None

    @property
    def provenance(self) -> str:
        """The worst of what its timeline and its warning come from."""
        known = {*self.timeline["provenance"].drop_nulls().unique(), *filter(None, [(self.warning or {}).get("provenance")])}
        return worst(known) or str(Provenance.INFERRED)

    @property
    def names(self) -> tuple[str, ...]:
        """The pods' names, sorted."""
        return tuple(self.pods["pod"].sort())

    @property
    def slots(self) -> int | None:
        """Slots of all pods, None where those of any are unknown: a part is nothing to set against the whole."""
        slots = self.pods["slots"]
        return int(slots.sum()) if len(slots) and not slots.null_count() else None

    @property
    def slots_said(self) -> str:
        """The slots in words: of all pods, or at least so many, or unknown."""
        slots = self.pods["slots"]
        unknown = slots.null_count()
        if unknown == len(slots):
            return "an unknown number of slots"
        known = count(int(slots.sum()), "slot")
        return f"at least {known} (those of {count(unknown, 'pod')} are unknown)" if unknown else known

    @property
    def slots_per_pod(self) -> int | None:
        """Slots of the pod that has fewest, of those whose slots are known."""
        known = self.pods["slots"].drop_nulls()
        return int(known.min()) if len(known) else None  # type: ignore[arg-type]  # a column of integers

    @property
    def method(self) -> str:
        """How the predicted misses were come by, and how far they can be off; empty where there are none."""
        told = self.warning or {}
        return ": ".join(str(told[name]) for name in ("method", "error_class") if told.get(name))

    @property
    def miss_limit(self) -> Limits:
        """From which predicted miss ratio on it is trouble: the pool's own limit where it could be learned."""
        return self.usual.limits if self.usual is not None else LIMITS["predicted_miss_ratio"]

    @property
    def miss_limit_said(self) -> str:
        """The same in words, with the reason for just this limit."""
        days = 0.0 if self.usual is None else self.usual.days
        limit = percent(self.miss_limit.enter)
        if self.usual is not None and self.usual.learned:
            return f"{limit}, learned from {days:.0f} days of this pool"
        held = f"{days:.1f} days of this pool's misses are" if days else "no history of this pool's misses is"
        return f"{limit}, the same for all pools: {held} held, {DAYS:.0f} days would teach its own"

    @property
    def active_adapters(self) -> int:
        """Adapters that were asked for in the window; ``routed``: in the last ten minutes."""
        return self.adapters.height

    def newcomers(self, since: int) -> tuple[tuple[str, ...], float]:
        """
        Adapters first seen at ``since`` (µs UTC) or later, those with most requests first, and their share of the requests of the
        last ten minutes; nobody while the pool is being learned.
        """
        if self.learning:
            return (), 0.0
        new = self.adapters.filter(pl.col("first_seen") >= since).sort(["requests", "adapter"], descending=[True, False])
        whole = int(self.adapters["requests"].sum())
        return tuple(new["adapter"]), int(new["requests"].sum()) / whole if whole else 0.0

    @property
    def sees_loads(self) -> bool:
        """Whether any pod tells its loads; a page of an engine and a log of requests do not, and then no load is no zero."""
        return bool(self.pods["loads"].is_not_null().any())

    def recent(self, column: str) -> float | None:
        """Sum of a timeline's column over the last ten minutes; None where nothing was seen in them, or no pod tells it."""
        rows = self.timeline.filter(pl.col("at") >= self.window.end - RECENT)
        told = (column == "requests" or self.sees_loads) and not rows[column].null_count()
        return float(rows[column].sum()) if rows.height and told else None

    @property
    def loads_per_request(self) -> float | None:
        """Loads ÷ requests of the last ten minutes; None below ten requests."""
        return self._per_request("loads")

    @property
    def swaps_per_request(self) -> float | None:
        """Swaps ÷ requests of the last ten minutes, what ``MISSES`` limits; None below ten requests."""
        return self._per_request("swaps")

    def _per_request(self, column: str) -> float | None:
        requests, moved = self.recent("requests"), self.recent(column)
        return moved / requests if requests is not None and moved is not None and requests >= 10 else None

    @property
    def stall_share(self) -> float | None:
        """Share of pod time that stood still for loads in the last ten minutes; None where nobody knows how long loads take."""
        stall = self.recent("stall_seconds")
        if stall is None or self.pods.is_empty() or (stall == 0 and self.recent("loads")):
            return None
        return stall / self.pods.height / (RECENT / SECOND)

    @property
    def swaps_per_second(self) -> float | None:
        """Swaps per second and pod in the last ten minutes."""
        swaps = self.recent("swaps")
        return None if swaps is None or self.pods.is_empty() else swaps / self.pods.height / (RECENT / SECOND)

    def before(self, moment: int, part: str, whole: str) -> float | None:
        """``part`` ÷ ``whole`` over the minutes that ended by a moment; None below ten of ``whole`` or ten minutes, or untold."""
        rows = self.timeline.filter(pl.col("at") + MINUTE <= moment)
        if not self.sees_loads or rows.height < 10 or rows[whole].sum() < 10:
            return None
        return float(rows[part].sum()) / float(rows[whole].sum())

    def high(self, column: str, limits: Limits) -> list[tuple[int, int | None]]:
        """When a column of the timeline was high: (since, until), the last one open where it still is."""
        return high_spans(self.timeline, column, limits, self.window.end)
