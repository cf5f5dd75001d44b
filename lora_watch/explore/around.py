"""What structures are found in, and how each is found in it: rows that say where, when and by which numbers."""

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType

import polars as pl

from lora_watch import names
from lora_watch.derive.cascades import cascades
from lora_watch.derive.clocks import clock_offsets
from lora_watch.derive.convoys import convoys
from lora_watch.derive.families import families
from lora_watch.derive.ghosts import ghosts
from lora_watch.derive.groups import BY_POD, POD
from lora_watch.derive.imbalance import imbalance
from lora_watch.derive.kv_pressure import kv_pressure
from lora_watch.derive.phantoms import phantoms
from lora_watch.derive.prefix_reuse import prefix_reuse
from lora_watch.derive.reload_loops import reload_loops
from lora_watch.derive.scans import scans
from lora_watch.derive.shifts import shifts
from lora_watch.derive.sides import one_sided, swapping_sides
from lora_watch.derive.slow_loads import slow_loads, usual_load_seconds
from lora_watch.derive.stampedes import stampedes
from lora_watch.derive.starvation import starvation
from lora_watch.derive.swaps import swaps
from lora_watch.explore.queries import LONGEST_REQUEST, PASSING, Frames, Past
from lora_watch.model import HOUR, MINUTE, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.store.tables import DAMAGED, Store, translated

LASTING = ("register", "unregister", "pin", "unpin", "start")
"""Kinds of events that still hold long after they were written."""
FURTHEST_SECONDS = 1e10
"""Of a clock from ours: three centuries."""
WARM_UP = HOUR
"""Requests from so long before a window fill the slots of a replay, and tell what is usual."""
LONG = 3 * HOUR
"""
In a longer window uses, releases and steps are not read: requests stand for uses. Who waits and which pod is busiest is asked of
its last part. Its requests are not held either: each question streams what it needs from the tables.
"""
RESIDENT = 7 * HOUR
"""So far back a resident's load, or the listing of it that agents write every six hours, is looked for."""
ASKED = (
    *("cluster", "pool", "role", "pod", "engine", "stream", "seq", "at", "adapter", "provenance", "finish_reason"),
    *("arrived", "queued", "scheduled", "first_token", "finished", "prompt_tokens", "cached_tokens"),
)
"""The columns of requests that anything here reads."""
NAMELESS = pl.col("pod").fill_null("")
"""The pod of rows that name none (a table of somebody else's may have such): all of them are of one pod, without a name."""
SAMPLED = (*POD, "engine", "series", "at", "metric", "labels", "value", "provenance")
"""The columns of samples that anything here reads."""


class Around(Frames):
    """What structures are found in: a window, and what from before it tells what is pinned, named and usual."""

    def __init__(self, store: Store, window: Window, lookback: int) -> None:
        super().__init__(store, window, Past(store, min(lookback, RESIDENT), brief=True))
        self._part = store
        self._before = Window(window.end - max(lookback, window.end - window.start) - 1, window.start)

    @cached_property
    def lasting(self) -> pl.LazyFrame:
        """The events, with the pins and names from before."""
        told = self._part.rows(ADAPTER_EVENTS, self._before, pl.col("kind").is_in(LASTING))
        return pl.concat([self.events, told.lazy().with_columns(NAMELESS)]).unique(
            ["stream", "seq"], keep="any", maintain_order=True
        )

    def reading(self) -> translated:
        """Where frames of requests that are not held are collected: StoreError where a file is gone or damaged."""
        return translated(f"reading table {REQUESTS.name} in {self._part.root / REQUESTS.name}", advice=DAMAGED)

    @cached_property
    def asked(self) -> pl.LazyFrame:
        """
        Requests that finished in the window or an hour before; of them the columns ``ASKED``. One version of the table, however
        often it is asked.
        """
        if self.late.start == self.window.start:
            return self.lately
        told = self._part.scan(REQUESTS, Window(self.window.start - WARM_UP, self.window.end)).select(ASKED)
        return told.with_columns(NAMELESS)

    @cached_property
    def requests(self) -> pl.LazyFrame:
        """The last request of each pod that finished in the window or ``LONGEST_REQUEST`` after it: when it was heard of."""
        told = self._part.scan(REQUESTS, Window(self.window.start, self.window.end + LONGEST_REQUEST))
        with self.reading():
            return told.group_by(BY_POD).agg(pl.col("at").max()).collect(engine="streaming").lazy()

    @cached_property
    def late(self) -> Window:
        """The last part of the window, ``LONG`` at most."""
        return Window(max(self.window.start, self.window.end - LONG), self.window.end)

    @cached_property
    def lately(self) -> pl.LazyFrame:
        """Requests that finished in the last part of the window or an hour before: the columns ``ASKED``."""
        told = self._part.rows(REQUESTS, Window(self.late.start - WARM_UP, self.window.end), columns=ASKED)
        return told.lazy().with_columns(NAMELESS)

    @cached_property
    def _told(self) -> pl.LazyFrame:
        if self.window.end - self.window.start <= LONG:
            return super()._told.with_columns(NAMELESS)
        begin = self.window.start - MINUTE  # a load's eviction may lie just before the window
        moved = ~pl.col("kind").is_in(PASSING)
        inside = self._part.rows(ADAPTER_EVENTS, Window(begin, self.window.end), moved)
        return pl.concat([self._past.until(begin), inside]).lazy().with_columns(NAMELESS)

    @cached_property
    def inside(self) -> pl.LazyFrame:
        """Requests that finished in the window."""
        return self.asked.filter(pl.col("at") >= self.window.start)

    @cached_property
    def families(self) -> pl.LazyFrame:
        """Variants among the adapters of the window."""
        return families(self.inside, self.window).collect().lazy()

    @cached_property
    def offsets(self) -> pl.LazyFrame:
        """By how much the clocks of pods are off; what no clock can be off by is no offset."""
        sane = pl.col("value").is_between(-FURTHEST_SECONDS, FURTHEST_SECONDS)
        return clock_offsets(self.sampled(names.SAMPLE_CLOCK_OFFSET, self.window).filter(sane))

    @cached_property
    def usual(self) -> pl.LazyFrame:
        """What loads took before."""
        return usual_load_seconds(self._part.rows(ADAPTER_EVENTS, self._before, pl.col("kind") == "load").lazy())

    def sampled(self, metric: str, window: Window) -> pl.LazyFrame:
        """The samples of one metric in a window."""
        return self._part.rows(SAMPLES, window, pl.col("metric") == metric, columns=SAMPLED).lazy()

    @property
    def waiting(self) -> pl.LazyFrame:
        """How many requests waited, and for what, in the last part of the window and an hour before."""
        return self.sampled(names.WAITING_BY_REASON, Window(self.late.start - WARM_UP, self.late.end))


STRUCTURES: Mapping[str, Callable[[Around], pl.LazyFrame]] = MappingProxyType(
    {
        "stampedes": lambda read: stampedes(read.lasting, read.window, offsets=read.offsets),
        "convoys": lambda read: convoys(read.lasting, read.window, offsets=read.offsets),
        "cascades": lambda read: cascades(read.lasting, read.window),
        "families": lambda read: read.families,
        "reload_loops": lambda read: reload_loops(read.lasting, read.window),
        "phantoms": lambda read: phantoms(
            read.lasting.filter(pl.col("kind").is_in(["register", "unregister", "start"])), read.stays, read.window
        ),
        "imbalance": lambda read: imbalance(read.lately, read.late, events=read.lasting, pods=read.lasting.select(POD).unique()),
        "starvation": lambda read: starvation(read.lately, read.late, samples=read.waiting, stored=True),
        "slow_loads": lambda read: slow_loads(read.lasting, read.window, usual=read.usual),
        "ghosts": lambda read: ghosts(read.lasting, read.stays, read.late, requests=read.lately),
        "shifts": lambda read: shifts(read.inside, read.window, stored=True),
        "scans": lambda read: scans(read.inside, read.window, stored=True),
        "kv_pressure": lambda read: kv_pressure(read.sampled(names.KV_CACHE_USAGE, read.window), read.window, stays=read.stays),
        "prefix_reuse": lambda read: prefix_reuse(read.inside, read.families, read.window, stored=True),
        "swapping_sides": lambda read: swapping_sides(swaps(read.lasting, read.window, by=POD), read.window),
        "one_sided": lambda read: one_sided(read.stays, read.window),
    }
)
"""Structures by name: rows with pods, adapters, start, end, whether their own test ``flagged`` them, and the numbers for it."""
