"""
From the store to the report: everything that is asked of the tables, each through ``explore``, put into one value.

Nothing here writes a sentence but for what is missing, and why.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from lora_watch.config import Settings
from lora_watch.derive.families import relatives
from lora_watch.derive.groups import POOL
from lora_watch.diagnose.finding import Possible, Severity, ranked
from lora_watch.diagnose.incidents import Incident, utc
from lora_watch.errors import NotEnoughHistory
from lora_watch.explore import findings, history, week
from lora_watch.explore.advice import prices_of
from lora_watch.explore.cards import effect
from lora_watch.explore.expect import announced_in
from lora_watch.explore.looks import Looks
from lora_watch.explore.panels import pool_title
from lora_watch.explore.queries import newest
from lora_watch.jobs import LOOKS
from lora_watch.model import DAY, HOUR, SECOND, Window, worst
from lora_watch.recommend.advice import Kind, Recommendation, Verdict
from lora_watch.recommend.backtest import held_out
from lora_watch.recommend.present import Present, present
from lora_watch.recommend.recommend import Prices, recommend
from lora_watch.report.policies import compared
from lora_watch.report.summary import summary
from lora_watch.report.weekly import (
    AddsUp,
    Advised,
    Happened,
    Head,
    Hour,
    Incidents,
    Lost,
    Missing,
    Offender,
    Offenders,
    Outcome,
    Policies,
    PoolWeek,
    Promise,
    Quality,
    Quiet,
    Rows,
    Ruled,
    Standing,
    WeekBefore,
    WeeklyReport,
)
from lora_watch.report.weeks import Week
from lora_watch.schema import FINDINGS
from lora_watch.store.tables import Store

LEARNED = 30 * DAY
"""Advice is learned from so much before the end of the week."""
LEAST_BEFORE = 2 * DAY
"""So much must be held of the time before a week for anything to have been advised then."""
LEAST_JUDGED = DAY
"""A week that has just begun judges no promise."""
WHOLE = 0.95
"""A week of which so much is held may be compared with another."""
OVERLAP = 6 * HOUR
"""A week whose last hours are missing is judged on so much of the time before it, which the promise knew, too: a thirtieth."""
LEARNING = DAY
"""So long after the first request that is held everybody may have been there before."""
ALIKE = (Kind.SLOTS, Kind.PODS, Kind.ROUTING)
"""Changes that are the same change a week later; pins are not, and are replayed."""
TOP = 10
"""Offenders of a kind."""
Told = Callable[[str, float], None]
"""Is told what is worked on, and the share of the whole that is done."""
Key = tuple[Any, ...]
_COUNTED, _REPLAYED, _ADVISED = 0.3, 0.4, 0.97
"""Shares of the time that go by until a part is done; about."""


def gather(
    store: Store,
    settings: Settings,
    chosen: Week,
    *,
    now: int,
    pool: str | None = None,
    told: Told = lambda _what, _share: None,
) -> WeeklyReport:
    """
    The report on a week, as of ``now`` (µs UTC), of all pools or of those called ``pool``.

    NotEnoughHistory where no row is about the week, naming the newest week that has some; a week of which little is held says so
    in the report. StoreError where a table can't be read.
    """
    store = store if pool is None else store.part(where=pl.col("pool").fill_null("") == pool)
    window = Window(chosen.window.start, min(chosen.window.end, max(now, chosen.window.start + 1)))
    held = week.held(store, window)
    if held is None:
        raise NotEnoughHistory(_nothing(store, chosen, pool, now))
    lookback = round(settings.derive.lookback.total_seconds() * SECOND)
    told("what was counted", 0.0)
    counted = week.counted(store, held, lookback, settings.cost, lambda share: told("what was counted", _COUNTED * share))
    told("latency", _COUNTED)
    pools = _pools(counted, week.latency(store, held), week.latency_by_hour(store, held), held)
    told("incidents", _COUNTED + 0.02)
    happened = _incidents(store, settings, chosen, held, lookback, pool, now)
    advice, promises, article, policies = _advice(
        store,
        settings,
        chosen,
        held,
        lookback,
        len(pools),
        lambda what, share: told(what, _REPLAYED + (_ADVISED - _REPLAYED) * share),
    )
    told("the rest", _ADVISED)
    head = Head(chosen, now, held, pool, complete=now >= chosen.window.end)
    lost = tuple(_lost(row) for row in counted.pools.iter_rows(named=True))
    offenders = _offenders(store, counted, held, settings.cost.gpus_per_pod)
    quality = _quality(counted, pools, head, held)
    return WeeklyReport(
        head,
        summary(head, pools, happened, lost, offenders, advice, promises, quality),
        tuple(pools),
        happened,
        lost,
        offenders,
        advice,
        promises,
        article,
        policies,
        quality,
        _before(store, chosen, quality),
    )


def _before(store: Store, chosen: Week, quality: Quality) -> WeekBefore | None:
    """The week before; None where either week is not held whole: a part beside a whole compares nothing."""
    last = chosen.before.window
    held = week.held(store, last) if quality.held_ratio >= WHOLE else None
    if held is None or held.end - held.start < WHOLE * (last.end - last.start):
        return None
    told = week.totals(store, last)
    slowest = week.latency(store, last)["p95_seconds"].max()
    loads, swaps = (int(told[name].sum()) for name in ("loads", "swaps"))
    requests = int(told.group_by("cluster", "pool").agg(pl.col("requests").max())["requests"].sum())
    return WeekBefore(requests, loads, swaps, slowest if isinstance(slowest, float) else None)


def _nothing(store: Store, chosen: Week, pool: str | None, now: int) -> str:
    last = newest(store, now)
    whose = "" if pool is None else f" of a pool {pool!r}"
    if last is None:
        there = "no other rows of it are stored" if pool is not None else "nothing is stored at all"
    elif last > now:
        there = f"all rows are ahead of this clock: they are of {utc(last - 1)} and before"
    else:
        there = f"the newest rows are of {utc(last - 1)}"
    return f"{store.root} holds nothing{whose} of week {chosen.name}; {there}"


def _pools(counted: week.Counted, whole: pl.DataFrame, hourly: pl.DataFrame, held: Window) -> list[PoolWeek]:
    """The busiest first."""
    latency = {row[:3]: row[4:] for row in whole.select(*POOL, "requests", "p50_seconds", "p95_seconds").iter_rows()}
    by_hour = {row[:4]: row[4] for row in hourly.select(*POOL, "at", "p95_seconds").iter_rows()}
    asked = dict(_keyed(counted.adapters.filter(pl.col("requests") > 0).group_by(POOL).agg(pl.len())))
    provenances = {row[:3]: row[3] for row in counted.pools.select(*POOL, "provenance").iter_rows()}
    made = []
    for key, rows in counted.hours.sort("at").group_by(POOL, maintain_order=True):
        hours = tuple(_hour(row, by_hour.get((*key, row["at"])), held) for row in rows.iter_rows(named=True))
        p50, p95 = latency.get(key, (None, None))
        made.append(
            PoolWeek(
                pool_title(*key),
                max((hour.pods for hour in hours), default=0),
                int(asked.get(key, 0)),
                sum(hour.requests for hour in hours),
                sum(hour.loads for hour in hours),
                sum(hour.swaps for hour in hours),
                sum(hour.missed for hour in hours),
                sum(hour.known for hour in hours),
                p50,
                p95,
                held.seconds,
                worst({one for one in (*rows["provenance"].to_list(), provenances.get(key)) if one is not None}),
                hours,
                pool_title(key[0], key[1], None),
            )
        )
    return sorted(made, key=lambda one: (-one.requests, one.pool))


def _keyed(frame: pl.DataFrame) -> Iterator[tuple[Key, Any]]:
    return ((row[:3], row[3]) for row in frame.iter_rows())


def _hour(row: Mapping[str, Any], p95: float | None, held: Window) -> Hour:
    seconds = (min(row["at"] + HOUR, held.end) - max(row["at"], held.start)) / SECOND
    missed = (row["warm"] or 0) + (row["cold"] or 0)
    return Hour(
        row["at"],
        seconds,
        row["pods"],
        row["requests"],
        row["loads"],
        row["swaps"],
        missed,
        missed + (row["hot"] or 0),
        p95,
    )


def _incidents(
    store: Store, settings: Settings, chosen: Week, held: Window, lookback: int, pool: str | None, now: int
) -> Incidents:
    """What was told; where nobody looked, one look at the end of what is held."""
    at = min(now, chosen.window.end)
    found = tuple(one for one in findings.told(store, chosen.window, at) if pool is None or one.pool == pool)
    if found:
        return Incidents(told=True, found=tuple(sorted((_happened(one, chosen.window, at) for one in found), key=_gravest)))
    looked = Looks(store, lookback, settings.diagnose)(Window(held.start, held.end)).diagnosis
    standing = [
        Standing(
            pool_title(one.cluster, one.pool, one.role),
            str(one.state),
            one.sentence,
            tuple(
                each.summary
                for each in looked.findings
                if (each.cluster, each.pool, each.role) == (one.cluster, one.pool, one.role)
                and each.severity is not Severity.INFORMATION
            ),
        )
        for one in looked.pools
    ]
    return Incidents(told=False, standing=tuple(standing), looked=store.position(FINDINGS, LOOKS))


def _gravest(one: Happened) -> tuple[int, float, int]:
    return -Severity(one.severity).rank, -one.harm_seconds, one.start


def _happened(one: Incident, window: Window, now: int) -> Happened:
    reach = max(life.reaches(now) for life in one.lives) if one.end is None else one.end
    harm = [
        (max(life.start, window.start), min(life.reaches(now), window.end))
        for life in one.lives
        if life.worst.severity is Severity.HARM
    ]
    remedies = ranked(
        [remedy for life in one.lives for remedy in life.worst.remedies if remedy.possible is not Possible.NOT_HERE]
    )
    best = next((remedy for remedy in remedies if remedy.effect is not None and remedy.effect > 0), None)
    return Happened(
        one.id,
        pool_title(one.cluster, one.pool, None),
        str(one.severity),
        one.status,
        one.start,
        one.end,
        max(min(reach, window.end) - max(one.start, window.start), 0) / SECOND,
        _union(harm) / SECOND,
        one.title,
        one.cause,
        "" if best is None else f"{best.text}: {effect(best)}",
        tuple(dict.fromkeys(life.worst.kind for life in one.lives)),
    )


def _union(spans: Iterable[tuple[int, int]]) -> int:
    """µs that any of the spans covers."""
    whole, reach = 0, 0
    for start, end in sorted(spans):
        begin = max(start, reach)
        whole += max(end - begin, 0)
        reach = max(reach, end)
    return whole


def _lost(row: Mapping[str, Any]) -> Lost:
    return Lost(
        pool_title(row["cluster"], row["pool"], row["role"]),
        row["loads"] or 0,
        row["unknown_loads"] or 0,
        row["gpu_hours_lost"] or 0.0,
        row["gpu_hours"],
        row["money_lost"],
        row["currency"],
        row["provenance"],
    )


def _offenders(store: Store, counted: week.Counted, held: Window, gpus: int) -> Offenders:
    totals = {row[:3]: row[3:] for row in counted.adapters.group_by(POOL).agg(pl.col("requests", "loads").sum()).iter_rows()}
    earlier = week.before(store, held.start)
    seen = set(earlier.select(*POOL, "adapter").iter_rows())
    firsts = [at for at in (earlier["first"].min(), counted.adapters["first"].min()) if isinstance(at, int)]
    learned = min(firsts, default=held.end) + LEARNING
    rows = counted.adapters.with_columns(
        pl.col("requests", "loads", "unknown_loads", "stall_seconds", "hot", "warm", "cold").fill_null(0)
    )
    adapters: list[Offender] = []
    groups: dict[Key, list[Mapping[str, Any]]] = {}
    for row in rows.iter_rows(named=True):
        key = tuple(row[name] for name in POOL)
        one = _offender(row["adapter"], key, [row], totals[key], gpus, _new(row, key, seen, learned))
        adapters.append(one)
        groups.setdefault(key, []).append(row)
    families = [
        _offender(name, key, members, totals[key], gpus)
        for key, mine in groups.items()
        for name, members in _families(mine).items()
        if len(members) > 1
    ]
    return Offenders(tuple(sorted(adapters, key=_worst_first)[:TOP]), tuple(sorted(families, key=_worst_first)[:TOP]))


def _new(row: Mapping[str, Any], key: Key, seen: set[Key], learned: int) -> bool | None:
    """Whether an adapter is new; None where it was asked for so early that nobody knows whether it was before."""
    if (*key, row["adapter"]) in seen:
        return False
    return True if row["first"] is not None and row["first"] >= learned else None


def _worst_first(one: Offender) -> tuple[float, int, str]:
    return -one.gpu_hours_lost, -one.loads, one.name


def _families(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """
    Adapters that belong together by their names: experiments and other variants by what they end in, the rest by their base.
    """
    known = {one.name: one for one in relatives({str(row["adapter"]) for row in rows})}
    made: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        one = known.get(str(row["adapter"]))
        if one is not None:
            name = f"*{one.suffix}" if one.kind in {"experiment", "shared"} else f"{one.base}*"
            made.setdefault(name, []).append(row)
    return made


def _offender(
    name: str,
    key: Key,
    rows: Sequence[Mapping[str, Any]],
    total: Sequence[Any],
    gpus: int,
    new: bool | None = None,  # noqa: FBT001
) -> Offender:
    requests, loads, missed = (sum(row[one] for row in rows) for one in ("requests", "loads", "warm"))
    missed += sum(row["cold"] for row in rows)
    known = missed + sum(row["hot"] for row in rows)
    return Offender(
        name,
        pool_title(*key),
        len(rows),
        requests,
        requests / total[0] if total[0] else None,
        loads,
        loads / total[1] if total[1] else None,
        sum(row["stall_seconds"] for row in rows) * gpus / 3600,
        missed / known if known else None,
        new,
    )


def _advice(
    store: Store, settings: Settings, chosen: Week, held: Window, lookback: int, pools: int, told: Told
) -> tuple[tuple[Advised, ...], tuple[Promise, ...], tuple[Ruled, ...], tuple[Policies, ...]]:
    """What replay says of each pool; where it can say nothing, why."""
    window = Window(max(held.end - LEARNED, 0), held.end)
    advice: list[Advised] = []
    promises: list[Promise] = []
    article: list[Ruled] = []
    policies: list[Policies] = []
    try:
        for one in history.held(store, window, lookback=lookback, expected=announced_in(settings.diagnose.expected)):
            name = pool_title(*one.pool)
            prices = prices_of(settings, one.setup.base_model)
            now = present(one.history)
            mine = _share(told, name, len(advice) / max(pools, len(advice) + 1), 1 / max(pools, 1))
            made = _recommended(one, prices, _share(mine, "advice", 0.0, 0.5))
            advice.append(Advised(name, made, "") if isinstance(made, Recommendation) else Advised(name, None, made))
            article.append(_ruled(name, made))
            promises.append(_promise(name, one, made, chosen.window, now, prices, _share(mine, "last week's advice", 0.5, 0.4)))
            mine("eviction policies", 0.9)
            policies.append(compared(name, one.history, held, now))
    except NotEnoughHistory as error:
        if not advice:
            why = str(error)
            return (
                (Advised("", None, why),),
                (Promise("", None, why=why),),
                (Ruled("", None, None, why),),
                (Policies("", 0, (), why),),
            )
    return tuple(advice), tuple(promises), tuple(article), tuple(policies)


def _share(told: Told, of: str, start: float, part: float) -> Told:
    """Tells the progress of a part of the work as a share of the whole."""
    return lambda what, share: told(f"{of}: {what}", start + part * share)


def _recommended(one: history.Held, prices: Prices, told: Told) -> Recommendation | str:
    """What is advised at the end of a history, or why nothing is."""
    try:
        return recommend(one.history, one.setup, prices=prices, told=told)
    except NotEnoughHistory as error:
        return str(error)


def _promise(
    name: str, one: history.Held, made: Recommendation | str, window: Window, now: Present, prices: Prices, told: Told
) -> Promise:
    """
    What would have been advised at the week's start, and what it would have done in the week: pins by a replay of them, the
    rest as the same change is judged at the week's end.
    """
    judged = Window(window.start, min(window.end, one.history.window.end))
    times = one.history.trace.at
    before_it = window.start - int(times[0]) if len(times) else 0
    if before_it < LEAST_BEFORE:
        much = f"{before_it / DAY:.1f} days are held" if before_it > DAY // 10 else "nothing is held"
        return Promise(name, None, why=f"{much} of the time before the week, and advice needs {LEAST_BEFORE // DAY} days")
    if judged.end - judged.start < LEAST_JUDGED:
        return Promise(name, None, why=f"the week is {(judged.end - judged.start) / DAY:.1f} days old")
    told("pins", 0.0)
    tried = held_out(one.history, judged, now)
    pins = tried.advice
    proven = pins.verdict is Verdict.ADVISED
    outcomes = [
        Outcome(
            "ours: pins",
            pins.what,
            pins.effect.swaps_removed if proven else None,
            pins.effect.low if proven else None,
            pins.effect.high if proven else None,
            tried.realised.swaps_removed,
            mine=True,
        )
    ]
    before = replace(one, history=one.history.during(Window(one.history.window.start, window.start)))
    past = _recommended(before, prices, _share(told, "all changes", 0.3, 0.7))
    if isinstance(past, Recommendation) and isinstance(made, Recommendation):
        outcomes += _changes(past, made, window)
    outcomes += [Outcome(rule, "", None, None, None, effect.swaps_removed) for rule, effect in tried.rules.items()]
    outcomes += [Outcome(bound, "", None, None, None, share, "loads", bound=True) for bound, share in tried.bounds.items()]
    return Promise(name, judged, tuple(outcomes), tried.realised.base_swaps)


def _changes(past: Recommendation, made: Recommendation, window: Window) -> Iterator[Outcome]:
    """Each proven change but pins, with the same one judged on the week; none where that was judged on more than the week."""
    since = {
        (one.kind, one.amount): one
        for one in made.advice
        if one.judged is not None and one.judged.start >= window.start - OVERLAP and one.kind in ALIKE
    }
    for one in past.advice:
        after = since.get((one.kind, one.amount))
        if one.verdict is Verdict.ADVISED and after is not None and after.effect.of == one.effect.of:
            yield Outcome(
                f"ours: {one.kind}",
                one.what,
                one.effect.removed,
                *one.effect.sure,
                after.effect.removed,
                one.effect.of,
                mine=True,
            )


def _ruled(name: str, made: Recommendation | str) -> Ruled:
    if isinstance(made, str):
        return Ruled(name, None, None, made)
    ours = next((one for one in made.advice if one.kind is Kind.PINS), None)
    why = "" if made.article_rule is not None else "the rule could not be replayed"
    return Ruled(name, made.article_rule, ours, why)


def _quality(counted: week.Counted, pools: Sequence[PoolWeek], head: Head, held: Window) -> Quality:
    until = min(head.week.window.end, head.made_at)
    asked = max(until - head.week.window.start, 1)
    found = counted.rows["provenance"].drop_nulls().to_list()
    return Quality(
        min((held.end - held.start) / asked, 1.0),
        max(until - held.end, 0) / SECOND,
        worst(
            {
                one
                for one in found
                if counted.rows.filter(pl.col("provenance") == one)["table"].is_in(["adapter_events", "requests"]).any()
            }
        ),
        tuple(quiet for pool in pools for quiet in _quiet(pool, held)),
        tuple(
            Missing(pool_title(row["cluster"], row["pool"], row["role"]), row["pod"] or "", row["reason"] or "", row["records"])
            for row in counted.lost.iter_rows(named=True)
        ),
        tuple(Rows(*row) for row in counted.rows.select("table", "provenance", "rows").iter_rows()),
        tuple(_adds_up(row, pools) for row in counted.pools.iter_rows(named=True)),
    )


def _adds_up(row: Mapping[str, Any], pools: Sequence[PoolWeek]) -> AddsUp:
    name = pool_title(row["cluster"], row["pool"], row["role"])
    mine = next((one for one in pools if one.pool == name), None)
    occupied, residual = row["occupied_slot_seconds"], row["residual_slot_seconds"]
    return AddsUp(
        name,
        residual / occupied if occupied and residual is not None else None,
        0 if mine is None else mine.requests - mine.known,
        0 if mine is None else mine.requests,
    )


def _quiet(pool: PoolWeek, held: Window) -> Iterator[Quiet]:
    """Hours without any row, all together, and the longest stretch of them."""
    there = {hour.at for hour in pool.hours}
    first = held.start // HOUR * HOUR
    silent = [at for at in range(first, held.end, HOUR) if at not in there]
    if not silent:
        return
    best, start = (silent[0], silent[0] + HOUR), silent[0]
    for before_it, at in zip([None, *silent[:-1]], silent, strict=True):
        start = at if before_it != at - HOUR else start
        best = max(best, (start, at + HOUR), key=lambda one: one[1] - one[0])
    yield Quiet(pool.pool, len(silent), *best)
