"""The chain from stored rows to a diagnosis: what is read, what is derived from it, which rules look at it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from lora_watch import names
from lora_watch.derive.capacity import capacity
from lora_watch.derive.expected import Expected, announced
from lora_watch.derive.first_seen import Newness, first_seen, no_first_seen
from lora_watch.derive.forecast import hourly
from lora_watch.derive.hysteresis import State
from lora_watch.derive.locality import POD, POOL
from lora_watch.derive.miss_ratio_curve import miss_ratio_curve
from lora_watch.derive.setup import KINDS, setup
from lora_watch.derive.slow_loads import usual_load_seconds
from lora_watch.derive.timeline import timeline
from lora_watch.derive.warning import SPAN, alarms, warning
from lora_watch.diagnose.diagnosis import Diagnosis, in_order
from lora_watch.diagnose.facts import PoolFacts
from lora_watch.diagnose.finding import Finding
from lora_watch.diagnose.gaps import gaps
from lora_watch.diagnose.health import pool_state
from lora_watch.diagnose.lints import lints
from lora_watch.diagnose.new_adapters import new_adapters
from lora_watch.diagnose.one_slot_short import one_slot_short
from lora_watch.diagnose.saturation import hard_cliff, saturation
from lora_watch.diagnose.thrash import thrash
from lora_watch.explore.queries import Frames, Overview, Past, overview_by_shards
from lora_watch.explore.structures import chains, structures
from lora_watch.model import DAY, HOUR, MINUTE, Window
from lora_watch.recommend.levers import Levers, levers
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.sources.router_setup import RouterSetup
from lora_watch.store.tables import Store

ROUNDS = 5
"""Minutes before the end at which the early warning is asked too: a limit has to hold for some of them."""
HISTORY = 8 * DAY
"""How far back a forecast looks: every hour of the week once, and a day more."""
WARM_UP = HOUR
"""Requests from so long before a window fill the slots of what is replayed."""
LASTING = ("start", "register", "unregister", "pin", "unpin")
"""Kinds of events that say something until another one unsays it."""
SAMPLED = (names.SAMPLE_CLOCK_OFFSET, names.WAITING_BY_REASON, names.KV_CACHE_USAGE, names.KV_CACHE_USAGE_OLD)

POOL_RULES: tuple[Callable[[PoolFacts], Iterator[Finding]], ...] = (
    thrash,
    one_slot_short,
    new_adapters,
    saturation,
    hard_cliff,
)


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything derived about a window: an overview of its last hour, the pools' facts, how pods are set up."""

    window: Window
    overview: Overview
    pools: tuple[PoolFacts, ...]
    setup: pl.DataFrame


def diagnosis(
    store: Store,
    window: Window,
    lookback: int,
    *,
    expected: Sequence[Expected] = (),
    routers: Sequence[RouterSetup] = (),
) -> Diagnosis:
    """
    What is wrong in a window, why, and what will help; "now" is its end.

    Numbers called *now* are of the last ten minutes, those of residency and misses of the last hour; what began earlier in the
    window is told with its beginning. StoreError where a table can't be read.
    """
    told = situation(store, window, lookback, expected=expected)
    found: list[Finding] = [finding for facts in told.pools for rule in POOL_RULES for finding in rule(facts)]
    found += lints(told.setup, window.end, routers)
    found += _structures(store, told, lookback)
    states = tuple(pool_state(facts, found) for facts in told.pools)
    return Diagnosis(window, states, in_order(found), tuple(gaps(told.pools)))


def _structures(store: Store, told: Situation, lookback: int) -> Iterator[Finding]:
    """Stampedes and the like; chains of swaps only where a pool thrashes."""
    window = told.window
    read = Frames(store, window, Past(store, lookback))
    before = Window(window.end - max(lookback, window.end - window.start), window.start)
    lasting = store.rows(ADAPTER_EVENTS, before, pl.col("kind").is_in(LASTING))
    events = pl.concat([read.events, lasting.lazy()]).unique(["stream", "seq"], keep="any", maintain_order=True)
    requests = store.rows(REQUESTS, Window(window.start - WARM_UP, window.end)).lazy()
    samples = store.rows(SAMPLES, window, pl.col("metric").is_in(SAMPLED)).lazy()
    loads = store.scan(ADAPTER_EVENTS, before).filter(pl.col("kind") == "load")
    usual = usual_load_seconds(loads).collect(engine="streaming").lazy()
    yield from structures(events, read.stays, requests, samples, window, usual)
    thrashing = pl.DataFrame(
        [{"cluster": one.cluster, "pool": one.pool, "role": one.role} for one in told.pools if one.onset is not None],
        schema=dict.fromkeys(POOL, pl.String()),
    )
    if not thrashing.is_empty():
        yield from chains(events.join(thrashing.lazy(), on=POOL, how="semi", nulls_equal=True), window)


def situation(store: Store, window: Window, lookback: int, *, expected: Sequence[Expected] = ()) -> Situation:
    """Read and derive what the rules look at."""
    last = Window(max(window.start, window.end - HOUR), window.end)
    overview = overview_by_shards(store, last, lookback)
    moved = pl.col("kind").is_in(["load", "evict"])
    events = store.rows(ADAPTER_EVENTS, window, moved).lazy()
    requests = store.rows(REQUESTS, Window(window.start - WARM_UP, window.end))
    inside = requests.lazy().filter(pl.col("at") >= window.start)
    lines = timeline(events, inside, window).collect()
    seen = first_seen(no_first_seen(), store.scan(REQUESTS, Window(window.end - lookback - DAY, window.end)))
    began = seen.group_by(POOL).agg(began=pl.col("first_seen").min())
    fleet = overview.pods.lazy().select(*POD, "slots")
    history = _history(store, window)
    warnings, held = _warnings(store, requests, window, fleet, seen, history, expected)
    pools = []
    for pods in overview.pods.partition_by(POOL, maintain_order=True):
        key = pods.row(0)[:3]
        own = _same(key)
        slots = {pod: count for pod, count in pods.select("pod", "slots").iter_rows() if count}
        started = began.filter(own)["began"]
        pools.append(
            PoolFacts(
                window,
                str(key[0] or ""),
                str(key[1] or ""),
                str(key[2] or ""),
                pods=pods,
                timeline=lines.filter(own),
                adapters=_adapters(requests.filter(own), seen.filter(own), window, expected),
                learning=not len(started) or started.item() > window.end - Newness().learning,
                warning=next(warnings.filter(own).iter_rows(named=True), None),
                alarms={
                    signal: State(on, since) for signal, on, since in held.filter(own).select("signal", "on", "since").iter_rows()
                },
                replay=_replay(requests.filter(own).lazy(), slots),
            )
        )
    told = store.rows(ADAPTER_EVENTS, Window(window.end - lookback, window.end), pl.col("kind").is_in(KINDS))
    return Situation(window, overview, tuple(pools), setup(told.lazy(), inside, window).collect())


def _replay(requests: pl.LazyFrame, slots: Mapping[str, int]) -> Callable[[Window], Levers]:
    return lambda part: levers(requests.filter(pl.col("at") >= part.start - WARM_UP), part, slots)


def _warnings(
    store: Store,
    requests: pl.DataFrame,
    window: Window,
    fleet: pl.LazyFrame,
    seen: pl.DataFrame,
    history: pl.DataFrame,
    expected: Sequence[Expected],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The early warning at the end of the window, and which of its signals are alarms after some rounds up to there."""
    begin = window.end - ROUNDS * MINUTE - SPAN
    events = store.rows(ADAPTER_EVENTS, Window(begin, window.end), pl.col("kind") == "load").lazy()
    samples = store.rows(SAMPLES, Window(begin, window.end)).lazy()
    can = capacity(requests.lazy(), samples, events, Window(begin, window.end))
    held: pl.DataFrame | None = None
    told = pl.DataFrame()
    for end in range(window.end - ROUNDS * MINUTE, window.end + 1, MINUTE):
        curves = miss_ratio_curve(requests.lazy(), Window(end - SPAN, end), by=POD)
        told = warning(
            requests.lazy(),
            end,
            fleet,
            seen,
            events=events,
            history=history,
            curves=None if curves.is_empty() else curves,
            capacity=can,
            expected=expected,
        )
        held = alarms(held, told)
    assert held is not None
    return told, held


def _history(store: Store, window: Window) -> pl.DataFrame:
    return hourly(store.scan(REQUESTS, Window(window.end - HISTORY, window.end)), Window(window.end - HISTORY, window.end))


def _adapters(requests: pl.DataFrame, seen: pl.DataFrame, window: Window, expected: Sequence[Expected]) -> pl.DataFrame:
    """See :class:`PoolFacts`."""
    recent = (pl.col("at") >= window.end - SPAN).sum().cast(pl.Int64)
    rows = (
        requests.filter((pl.col("at") >= window.start) & pl.col("adapter").is_not_null())
        .group_by("adapter")
        .agg(requests=recent)
        .join(seen.select("adapter", "first_seen"), on="adapter", how="left")
        .sort("adapter")
    )
    told = [announced(expected, name, window.end) is not None for name in rows["adapter"]]
    return rows.with_columns(announced=pl.Series(told, dtype=pl.Boolean))


def _same(key: tuple[str | None, ...]) -> pl.Expr:
    return pl.all_horizontal(*(pl.col(column).eq_missing(pl.lit(value)) for column, value in zip(POOL, key, strict=True)))
