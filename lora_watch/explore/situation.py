"""The chain from stored rows to a diagnosis: what is read, what is derived from it, which rules look at it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypedDict

import polars as pl

from lora_watch.config import DiagnoseSettings, Settings
from lora_watch.derive.capacity import capacity
from lora_watch.derive.cusum import Pool, cusum
from lora_watch.derive.expected import Expected, announced
from lora_watch.derive.first_seen import Newness, first_seen, no_first_seen
from lora_watch.derive.forecast import hourly
from lora_watch.derive.groups import POD, POOL, of_pool
from lora_watch.derive.hysteresis import State
from lora_watch.derive.locality import ErrorClass
from lora_watch.derive.miss_ratio_curve import miss_ratio_curves
from lora_watch.derive.rates import at_pods_of, rates_from_attempts
from lora_watch.derive.reuse_histogram import ReuseHistograms
from lora_watch.derive.setup import KINDS, setup
from lora_watch.derive.timeline import timeline
from lora_watch.derive.usual_misses import DAYS, MissLimit, miss_history, miss_limits
from lora_watch.derive.warning import LIMITS, SPAN, alarms, warning
from lora_watch.diagnose.diagnosis import Diagnosis, in_order
from lora_watch.diagnose.facts import PoolFacts
from lora_watch.diagnose.finding import Finding, Severity
from lora_watch.diagnose.gaps import gaps
from lora_watch.diagnose.health import pool_state
from lora_watch.diagnose.lints import lints
from lora_watch.diagnose.new_adapters import new_adapters
from lora_watch.diagnose.one_slot_short import one_slot_short
from lora_watch.diagnose.saturation import hard_cliff, saturation
from lora_watch.diagnose.swaps_alone import swaps_alone
from lora_watch.diagnose.thrash import thrash
from lora_watch.errors import ConfigError, LoraWatchError
from lora_watch.explore.around import ASKED, NAMELESS, RESIDENT, WARM_UP, Around
from lora_watch.explore.expect import announced_in
from lora_watch.explore.queries import REREAD, Overview, overview_by_shards
from lora_watch.explore.structures import of_requests, structures
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Provenance, Window
from lora_watch.recommend.levers import Levers, levers
from lora_watch.schema import ADAPTER_EVENTS, FINDINGS, REQUESTS, SAMPLES
from lora_watch.sources.adapter_files import AdapterFile, Kept, read_all
from lora_watch.sources.router_setup import RouterSetup
from lora_watch.sources.router_setup import read as read_router
from lora_watch.store.tables import Store

ROUNDS = 3
"""Minutes before the end at which the early warning is asked too: a limit has to hold for some of them."""
HISTORY = 8 * DAY
"""How far back a forecast looks: every hour of the week once, and a day more."""
STALLED = 0.05
"""Share of pod time in loads above which they are why requests wait, not a lack of slots."""
REPLAY_EVERY = 10 * MINUTE
"""So long the predicted effects of remedies are kept."""
LATE = HOUR
"""Requests that came so late are still looked for when adapters first seen are brought up to date."""
THIN = 100
"""Requests of a pod in ten minutes, below which its misses are read off its histogram: a curve of so few wavers by 0.05."""
REMEMBERED = 1_000
"""Requests that such a histogram remembers: it wavers by 0.016, and follows a change within some of its hours."""
FIRST_FED = 3 * HOUR
"""So far back a new histogram begins."""

POOL_RULES: tuple[Callable[[PoolFacts], Iterator[Finding]], ...] = (
    thrash,
    swaps_alone,
    one_slot_short,
    new_adapters,
    saturation,
    hard_cliff,
)


@dataclass(frozen=True, slots=True)
class Situation:
    """
    Everything derived about a window: an overview of its last hour, the pools' facts, how pods are set up, and the requests of
    its last part (``LONG`` at most) with those of the hour before.
    """

    window: Window
    overview: Overview
    pools: tuple[PoolFacts, ...]
    setup: pl.DataFrame
    requests: pl.DataFrame


def diagnosis(
    memory: "Memory",
    window: Window,
    *,
    expected: Sequence[Expected] = (),
    routers: Sequence[RouterSetup] = (),
    files: Sequence[AdapterFile] = (),
    see: "See | None" = None,
) -> Diagnosis:
    """
    What is wrong in a window, why, and what will help; "now" is its end.

    Numbers called *now* are of the last ten minutes, those of residency and misses of the last hour; what began earlier in the
    window is told with its beginning. ``see`` is shown what they were derived from, and the findings. StoreError where a table
    can't be read.
    """
    read = Around(memory.store, window, memory.lookback)
    with ThreadPoolExecutor(1) as beside:  # a long window's requests are read twice, at the same time
        made = beside.submit(of_requests, read) if read.late != window else None
        told = situation(memory, window, expected=expected, read=read)
        found: list[Finding] = [finding for facts in told.pools for rule in POOL_RULES for finding in rule(facts)]
        found += lints(told.setup, window.end, routers, files)
        found += structures(read, _thrashing(told.pools), made.result() if made is not None else {})
    found = [one for one in found if not (one.kind == "starvation" and _explained(one, told.pools))]
    states = tuple(pool_state(facts, found) for facts in told.pools)
    if see is not None:
        see(told, tuple(found))
    return Diagnosis(window, states, in_order(found), tuple(gaps(told.pools)))


See = Callable[[Situation, tuple[Finding, ...]], None]
"""What is shown a situation and what was found in it."""


class Memory:
    """
    What is carried from one diagnosis of a store to the next: when adapters were first seen, and how busy each hour was.

    A new one reads it from the store; a kept one reads what came since, and all anew every ``REREAD``. One thread at a time.
    """

    def __init__(self, store: Store, lookback: int) -> None:
        self.store = store
        self.lookback = lookback
        self._seen = no_first_seen()
        self._seen_to: int | None = None
        self._seen_anew = 0
        self._hours = pl.DataFrame()
        self._hours_to: int | None = None
        self._misses = pl.DataFrame()
        self._limits: dict[Pool, MissLimit] = {}
        self._reuse = ReuseHistograms(POD, REMEMBERED)
        self._fed_to: int | None = None
        self._levers: dict[tuple[object, ...], tuple[Window, Levers]] = {}

    def replayed(self, pool: tuple[object, ...], part: Window, replay: Callable[[], Levers]) -> Levers:
        """What levers would have changed in a part of a pool's time; anew every ``REPLAY_EVERY``, or with another start."""
        held = self._levers.get(pool)
        if held is None or not 0 <= part.end - held[0].end < REPLAY_EVERY or abs(part.start - held[0].start) > REPLAY_EVERY:
            self._levers[pool] = held = (part, replay())
        return held[1]

    def first_seen(self, end: int) -> pl.DataFrame:
        """When each adapter of each pool was first asked for, as far as ``lookback`` and a day before it go."""
        if self._seen_to is None or end >= self._seen_anew + REREAD:  # older requests may have been imported since
            self._seen, self._seen_to, self._seen_anew = no_first_seen(), end - self.lookback - DAY + LATE, end
        begin = min(self._seen_to - LATE, end - 1)
        new = self.store.scan(REQUESTS, Window(begin, end)).select(*POOL, "adapter", "at")
        self._seen = first_seen(
            self._seen, new.group_by(*POOL, "adapter").agg(pl.col("at").min()).collect(engine="streaming").lazy()
        )
        self._seen_to = end
        return self._seen

    def hours(self, end: int) -> pl.DataFrame:
        """Requests by whole hour of the last ``HISTORY``, read anew each hour."""
        hour = end // HOUR
        if self._hours_to != hour:
            window = Window(hour * HOUR - HISTORY, hour * HOUR)
            self._hours = hourly(self.store.scan(REQUESTS, window), window, stored=True)
            self._misses = _misses_by_hour(self.store.scan(ADAPTER_EVENTS, window), self._hours)
            self._limits = self._learned(window)
            self._hours_to = hour
        return self._hours

    def misses(self, end: int) -> pl.DataFrame:
        """Requests and misses by whole hour of the last ``HISTORY``."""
        self.hours(end)
        return self._misses

    def limits(self, end: int) -> Mapping[Pool, MissLimit]:
        """The limit of the miss ratio of each pool with a history of misses, learned anew each hour."""
        self.hours(end)
        return self._limits

    def reuse(self, requests: pl.DataFrame, end: int, slots: Sequence[int]) -> pl.DataFrame:
        """
        Curves of each pod from all its requests since the first look, of those that have filled their memory.

        ``requests`` are those up to ``end`` that are held; what came before the last look was counted then. The first look counts
        those of pods with few: who looks once need not read the others'.
        """
        new = requests.lazy().filter(pl.col("at") < end)
        if self._fed_to is None or end < self._fed_to:
            self._reuse, self._fed_to = ReuseHistograms(POD, REMEMBERED), end - FIRST_FED
            busy = new.filter(pl.col("at") >= end - SPAN).group_by(POD).len().filter(pl.col("len") >= THIN)
            new = new.join(busy, on=POD, how="anti", nulls_equal=True)
        self._reuse.update(new.filter(pl.col("at") >= self._fed_to), end)
        self._fed_to = end
        return self._reuse.curves(slots).filter(pl.col("error_class") != str(ErrorClass.FADING))

    def _learned(self, window: Window) -> dict[Pool, MissLimit]:
        fixed = LIMITS["predicted_miss_ratio"]
        missed = self._misses.filter(pl.col("misses") > 0).group_by(*POOL).agg(hours=pl.col("hour").max() - pl.col("hour").min())
        days = {tuple(pool): hours / DAY for *pool, hours in missed.iter_rows()}
        if max(days.values(), default=0.0) < DAYS - HOUR / DAY:  # nothing can be learned from less: spare the reading
            return {pool: MissLimit(fixed, held, learned=False) for pool, held in days.items()}
        past = miss_history(self.store.scan(ADAPTER_EVENTS, window), self.store.scan(REQUESTS, window), window)
        return miss_limits(past, fixed, self._harmed(window))

    def _harmed(self, window: Window) -> dict[Pool, list[tuple[int, int]]]:
        """When users felt something, by pool, as far as it was told and stored."""
        told = self.store.rows(FINDINGS, window, pl.col("severity") == str(Severity.HARM))
        spans = told.group_by(*POOL, "id").agg(pl.col("since").min(), end=pl.coalesce("until", "seen").max())
        harmed: dict[Pool, list[tuple[int, int]]] = {}
        for *pool, _, since, end in spans.iter_rows():
            harmed.setdefault(tuple(part or "" for part in pool), []).append((since, end))
        return harmed


class Finder:
    """
    What the service asks once a minute: the findings of a window. Keeps its memory; one thread at a time.

    With ``tell``, which is told at each look what people have said that can't be read, that goes on as it was last read. ``see``
    is shown each situation.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        tell: Callable[[set[str]], None] | None = None,
        *,
        see: See | None = None,
    ) -> None:
        self._memory = Memory(store, round(settings.derive.lookback.total_seconds() * SECOND))
        self._looks = settings.diagnose
        self._tell = tell
        self._see = see
        self._given = Given(expected=(), routers=(), files=())
        self._kept: Kept = {}

    def __call__(self, window: Window) -> tuple[Finding, ...]:
        """Raises LoraWatchError where a table can't be read; without ``tell`` also where what people have said can't be."""
        if self._tell is None:
            self._given = given(self._looks, self._kept)
        else:
            self._given, problems = readable(self._looks, self._given, self._kept)
            self._tell(problems)
        return diagnosis(self._memory, window, see=self._see, **self._given).findings


class Given(TypedDict):
    """What people have said beside the data."""

    expected: tuple[Expected, ...]
    routers: tuple[RouterSetup, ...]
    files: tuple[AdapterFile, ...]


def given(looks: DiagnoseSettings, kept: Kept | None = None) -> Given:
    """Announced experiments, the configurations of routers and the adapters' files, as the configuration names them."""
    return Given(expected=announced_in(looks.expected), routers=_routers(looks), files=_files(looks, kept))


def readable(looks: DiagnoseSettings, before: Given, kept: Kept | None = None) -> tuple[Given, set[str]]:
    """The same as far as it can be read, the rest as it was ``before``, and what is wrong with it."""
    told, problems = before.copy(), set()
    try:
        told["expected"] = announced_in(looks.expected)
    except LoraWatchError as error:
        problems.add(f"{error}; what was announced before still holds")
    try:
        told["routers"] = _routers(looks)
    except LoraWatchError as error:
        problems.add(f"{error}; routers are looked at as they were")
    try:
        told["files"] = _files(looks, kept)
    except LoraWatchError as error:
        problems.add(f"{error}; adapters are known as they were")
    return told, problems


def _routers(looks: DiagnoseSettings) -> tuple[RouterSetup, ...]:
    return tuple(read_router(file) for file in looks.router_configs)


def _files(looks: DiagnoseSettings, kept: Kept | None) -> tuple[AdapterFile, ...]:
    """Adapters that can be read. ConfigError where a folder has none."""
    files: list[AdapterFile] = []
    for folder in looks.adapter_folders:
        read, problems = read_all(folder, kept)
        if problems and not read:
            raise ConfigError(f"no adapter could be read: {problems[0]}")
        files += read
    return tuple(files)


def _explained(finding: Finding, pools: Sequence[PoolFacts]) -> bool:
    """Whether waits in the finding's pool are those of loads: a pod that stands still for them lets everybody wait."""
    return any(
        (one.cluster, one.pool, one.role) == (finding.cluster, finding.pool, finding.role) and (one.stall_share or 0.0) >= STALLED
        for one in pools
    )


def _thrashing(pools: Sequence[PoolFacts]) -> pl.DataFrame:
    rows = [(one.cluster, one.pool, one.role) for one in pools if one.onset is not None]
    return pl.DataFrame(rows, schema=dict.fromkeys(POOL, pl.String()), orient="row")


def situation(memory: Memory, window: Window, *, expected: Sequence[Expected] = (), read: Around | None = None) -> Situation:
    """Read and derive what the rules look at; ``read``, where others look at the window too, so that each is read once."""
    store, lookback = memory.store, memory.lookback
    read = Around(store, window, lookback) if read is None else read
    requests = read.lately.collect()
    last = Window(max(window.start, window.end - HOUR), window.end)
    overview = overview_by_shards(store, last, min(lookback, RESIDENT), brief=True)
    overview = replace(overview, pods=overview.pods.with_columns(NAMELESS))
    moved = pl.col("kind").is_in(["load", "evict"])
    events = store.rows(ADAPTER_EVENTS, window, moved).lazy()
    with read.reading():
        lines = timeline(events, read.inside, window, stored=True).collect(engine="streaming")
        adapters = _adapters(read.inside, memory.first_seen(window.end), window, expected)
    seen = memory.first_seen(window.end)
    began = seen.group_by(POOL).agg(began=pl.col("first_seen").min())
    minutes = lines.with_columns(misses=pl.min_horizontal("loads", "requests"))
    doubled = cusum({}, minutes, memory.misses(window.end))
    limits = memory.limits(window.end)
    warnings, held, routed = _warnings(memory, requests, window, overview.pods, seen, expected)
    pools = []
    for pods in overview.pods.partition_by(POOL, maintain_order=True):
        key = pods.row(0)[:3]
        own = of_pool(key)
        slots = {pod: count for pod, count in pods.select("pod", "slots").iter_rows() if count}
        started = began.filter(own)["began"]
        asked = adapters.filter(own)
        pools.append(
            PoolFacts(
                window,
                str(key[0] or ""),
                str(key[1] or ""),
                str(key[2] or ""),
                pods=pods,
                timeline=lines.filter(own),
                adapters=(asked.filter(pl.col("adapter").is_not_null()) if len(asked) else routed.filter(own)).drop(POOL),
                routed=asked.is_empty() and not routed.filter(own).is_empty(),
                learning=not len(started) or started.item() > window.end - Newness().learning,
                warning=next(warnings.filter(own).iter_rows(named=True), None),
                alarms={
                    signal: State(on, since) for signal, on, since in held.filter(own).select("signal", "on", "since").iter_rows()
                },
                doubled=doubled.get(key),
                usual=limits.get(key),
                replay=_replay(memory, key, slots),
            )
        )
    told = store.rows(ADAPTER_EVENTS, Window(window.end - lookback, window.end), pl.col("kind").is_in(KINDS))
    with read.reading():
        set_up = setup(told.lazy().with_columns(NAMELESS), read.inside, window).collect()
    return Situation(window, overview, tuple(pools), _with_pages(set_up, overview.pods), requests)


def _with_pages(told: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """How pods are set up, and those of which only a page tells: its slots, and the adapters that had requests."""
    others = pods.join(told, on=POD, how="anti", nulls_equal=True).filter(pl.col("slots").is_not_null())
    seen = others.select(
        *POD,
        "slots",
        known=pl.col("active_adapters").cast(told.schema["known"]),
        asked=pl.col("requests").fill_null(0).cast(told.schema["asked"]),
        provenance=pl.coalesce("occupancy_provenance", pl.lit(str(Provenance.ACTIVITY))),
    )
    return pl.concat([told, seen], how="diagonal_relaxed")


def _replay(memory: Memory, pool: tuple[str | None, ...], slots: Mapping[str, int]) -> Callable[[Window], Levers]:
    def replay(part: Window) -> Levers:
        return memory.replayed((*pool, *sorted(slots.items())), part, lambda: levers(asked(part), part, slots))

    def asked(part: Window) -> pl.LazyFrame:
        return memory.store.rows(REQUESTS, Window(part.start - WARM_UP, part.end), of_pool(pool), columns=ASKED).lazy()

    return replay


def _warnings(
    memory: Memory,
    requests: pl.DataFrame,
    window: Window,
    pods: pl.DataFrame,
    seen: pl.DataFrame,
    expected: Sequence[Expected],
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """
    The early warning at the end of the window, which of its signals are alarms after some rounds up to there, and the adapters
    that the router's counters tell of.
    """
    begin = window.end - ROUNDS * MINUTE - SPAN
    events = memory.store.rows(ADAPTER_EVENTS, Window(begin, window.end), pl.col("kind") == "load").lazy()
    samples = memory.store.rows(SAMPLES, Window(begin, window.end)).lazy()
    fleet = pods.lazy().select(*POD, "slots")
    # a curve by itself ends where all adapters of the pod have a slot: those of pods with more slots would not be told
    known = pods["slots"].drop_nulls().unique()
    slots = sorted({count for slot in known for count in (slot - 1, slot, slot + 1) if count >= 0})
    reused = memory.reuse(requests, window.end, slots)
    recent = requests.filter(pl.col("at") >= begin - WARM_UP).lazy()
    can = capacity(recent, samples, events, Window(begin, window.end))
    own = {pool: {"predicted_miss_ratio": limit.limits} for pool, limit in memory.limits(window.end).items()}
    held: pl.DataFrame | None = None
    told = pl.DataFrame()
    ends = range(window.end - ROUNDS * MINUTE, window.end + 1, MINUTE)
    exact = miss_ratio_curves(recent, [Window(end - SPAN, end) for end in ends], by=POD, slots=slots)
    for end, curve in zip(ends, exact, strict=True):
        curves = _thin_replaced(curve, reused)
        told = warning(
            recent,
            end,
            fleet,
            seen,
            events=events,
            history=memory.hours(window.end),
            curves=None if curves.is_empty() else curves,
            capacity=can,
            attempts=samples,
            expected=expected,
        )
        held = alarms(held, told, own=own)
    assert held is not None
    return told, held, _routed(samples, fleet, Window(window.end - SPAN, window.end), expected)


def _thin_replaced(exact: pl.DataFrame, reused: pl.DataFrame) -> pl.DataFrame:
    """Exact curves, and the histograms' of the pods that had fewer requests than ``THIN``; weighed by the requests there were."""
    columns = [*POD, "slots", "miss_ratio", "requests", "method", "error_class", "provenance"]
    thin = exact.filter(pl.col("requests") < THIN).select(*POD, "slots", "requests")
    other = reused.drop("requests").join(thin, on=[*POD, "slots"], nulls_equal=True).select(columns)
    kept = exact.select(columns).join(other, on=[*POD, "slots"], how="anti", nulls_equal=True)
    return pl.concat([kept, other])


def _routed(samples: pl.LazyFrame, fleet: pl.LazyFrame, window: Window, expected: Sequence[Expected]) -> pl.DataFrame:
    """What :class:`PoolFacts` says of adapters, beside their pool, by the router's counters."""
    rows = (
        at_pods_of(rates_from_attempts(samples, window, POD), fleet)
        .filter(pl.col("adapter").is_not_null() & (pl.col("requests_per_second") > 0))
        .group_by(*POOL, "adapter")
        .agg(pl.col("requests").sum(), first_seen=pl.lit(None, dtype=pl.Int64))
        .sort(*POOL, "adapter")
        .collect()
    )
    told = [announced(expected, name, window.end) is not None for name in rows["adapter"]]
    return rows.with_columns(announced=pl.Series(told, dtype=pl.Boolean))


def _misses_by_hour(events: pl.LazyFrame, hours: pl.DataFrame) -> pl.DataFrame:
    """The hours with their ``misses``: loads that a request needed, at most one a request."""
    needed = (pl.col("kind") == "load") & (pl.col("tier") == "gpu") & pl.col("reason").eq_missing("demand")
    counted = (
        events.filter(needed & pl.col("ok").ne_missing(False))
        .group_by(*POOL, hour=pl.col("at") // HOUR * HOUR)
        .agg(misses=pl.len().cast(pl.Int64))
        .collect(engine="streaming")
    )
    told = hours.join(counted, on=[*POOL, "hour"], how="left", nulls_equal=True)
    return told.with_columns(misses=pl.min_horizontal(pl.col("misses").fill_null(0), "requests"))


def _adapters(requests: pl.LazyFrame, seen: pl.DataFrame, window: Window, expected: Sequence[Expected]) -> pl.DataFrame:
    """What :class:`PoolFacts` says of adapters, beside their pool; the base model, where it was asked for, is a row of null."""
    recent = (pl.col("at") >= window.end - SPAN).sum().cast(pl.Int64)
    rows = (
        requests.group_by(*POOL, "adapter")
        .agg(requests=recent)
        .collect(engine="streaming")
        .join(seen, on=[*POOL, "adapter"], how="left", nulls_equal=True)
        .sort("adapter")
    )
    told = [name is not None and announced(expected, name, window.end) is not None for name in rows["adapter"]]
    return rows.with_columns(announced=pl.Series(told, dtype=pl.Boolean))
