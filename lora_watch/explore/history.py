"""
What is stored of a pool's last weeks, as the recommendation reads it: every request in order, and what is known of its pods,
loads and names.

A month is read a day at a time into arrays of small integers, so that memory is theirs and not that of a month of rows.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch import names
from lora_watch.derive.expected import Expected
from lora_watch.derive.families import relatives
from lora_watch.derive.groups import POOL, of_pool, ranked_provenance
from lora_watch.derive.locality import came
from lora_watch.derive.registry import KINDS as NAMING
from lora_watch.derive.registry import registry
from lora_watch.diagnose.words import count, listed, span
from lora_watch.errors import NotEnoughHistory
from lora_watch.explore.timeline import reading
from lora_watch.model import DAY, HOUR, Window
from lora_watch.recommend.advice import Setup
from lora_watch.recommend.history import History
from lora_watch.replay.trace import BASE, LONGEST, Trace
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.store.tables import Store

NOW = HOUR
"""A pod that was heard of so shortly before the end of the window is there now."""
KNOWN_BACK = 30 * DAY
"""So far before the window it is looked for when adapters were asked for first, and when pods started."""
DEPLOYED = ("start", "snapshot", "pin", "unpin", *NAMING)
PAGES = (names.SAMPLE_MAX_LORA, names.MAX_GPU_ADAPTERS)
MOST_SLOTS = 100_000
"""No engine has more: a number above is none."""
MOST_RANK = 4096
Told = Callable[[float], None]
"""Is told the share of the reading that is done."""
Pool = tuple[str | None, str | None, str | None]
"""Cluster, pool and role."""


@dataclass(frozen=True, slots=True)
class Held:
    """What is stored of one pool: its requests, how its pods are set up, and from where adapters are loaded, if that was told."""

    pool: Pool
    history: History
    setup: Setup
    paths: Mapping[str, str]


def held(
    store: Store,
    window: Window,
    *,
    lookback: int,
    pool: str | None = None,
    expected: Sequence[Expected] = (),
    told: Told = lambda _: None,
) -> Iterator[Held]:
    """
    The pools with requests in the window, the busiest first; of them those called ``pool``, if told.

    A request counts when it came, and is there once it finished. The pods are those that are there now (heard of in the last
    ``NOW``), with the slots that they have now; what a pod that is gone served is replayed on the one that followed it. Pods of
    whose slots nobody told are left out, with their requests. ``lookback`` (µs): how far before the window's end is looked
    at least, and ``KNOWN_BACK`` further, for how pods were started. Each pool is read when it is asked for.

    NotEnoughHistory where no pool has requests on pods of known slots; StoreError where a table can't be read.
    """
    with reading(store):
        asked = _asked(store, window)
    pools = [
        tuple(key) for key in asked.group_by(POOL).agg(pl.col("count").sum()).sort("count", descending=True)[list(POOL)].rows()
    ]
    wanted = [one for one in pools if pool is None or (one[1] or "") == pool]
    if not wanted:
        raise NotEnoughHistory(_nobody(store, window, pool, [one[1] or "" for one in pools]))
    since = min(window.start, window.end - lookback) - KNOWN_BACK  # a pod may have run for long
    events = _events(store, Window(max(since, 0), window.end))
    pages = store.rows(SAMPLES, Window(window.end - NOW, window.end), pl.col("metric").is_in(PAGES))
    known, gaps = 0, []
    for place, one in enumerate(wanted):
        mine = of_pool(one)
        fleet = _fleet(asked.filter(mine), events.filter(mine), pages.filter(mine))
        if fleet is None:
            gaps.append(f"{'/'.join(filter(None, one)) or 'the pool'}: nobody told the slots of any of its pods")
            continue
        known += 1
        done = partial(_part_of, told, place, len(wanted))
        yield _held(store, window, one, asked.filter(mine), events.filter(mine), fleet, expected, done)
    if not known:
        raise NotEnoughHistory(
            f"nothing can be replayed: {'; '.join(gaps)}. Slots come from the agent, or from vLLM's metrics page"
        )


def _part_of(told: Told, place: int, parts: int, share: float) -> None:
    told((place + share) / parts)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The pods that are there now and their slots; ``place``: on which of them what each pod served is replayed."""

    pods: tuple[str, ...]
    slots: tuple[int, ...]
    place: Mapping[str, int]
    gaps: tuple[str, ...]


def _nobody(store: Store, window: Window, pool: str | None, there: Sequence[str]) -> str:
    if pool is not None and there:
        return f"no pool {pool!r} had a request in the window; there are {listed(there)}"
    if store.newest(REQUESTS) is None:
        return f"{store.root} holds no requests, and advice is learned from them: the agent, request logs or an import bring them"
    return (
        f"{store.root} holds no requests of the {span(window.seconds)} up to the window's end: choose another by --at or --last"
    )


def _asked(store: Store, window: Window) -> pl.DataFrame:
    """How often each adapter was asked for on each pod of each pool, when first and last, and how well it is known."""
    return (
        store.scan(REQUESTS, window)
        .filter(came().is_between(window.start, window.end, closed="left"))
        .group_by(*POOL, pl.col("pod").fill_null(""), "adapter")
        .agg(
            count=pl.len().cast(pl.Int64),
            first=came().min(),
            last=pl.col("at").max(),
            ranked=ranked_provenance().max(),
        )
        .collect(engine="streaming")
    )


def _events(store: Store, window: Window) -> pl.DataFrame:
    """What pods said of how they are set up, and the evictions of what they had pinned."""
    kind = pl.col("kind")
    said = store.rows(ADAPTER_EVENTS, window, kind.is_in(DEPLOYED)).with_columns(pl.col("pod").fill_null(""))
    pinned = said.filter(kind == "pin")["adapter"].unique()
    if pinned.is_empty():
        return said
    gone = store.rows(
        ADAPTER_EVENTS, window, (kind == "evict") & (pl.col("tier") == "gpu") & pl.col("adapter").is_in(pinned.to_list())
    )
    return pl.concat([said, gone.with_columns(pl.col("pod").fill_null(""))])


def _fleet(asked: pl.DataFrame, events: pl.DataFrame, pages: pl.DataFrame) -> _Fleet | None:
    """The pods that are there now; None where nobody told the slots of any."""
    told = _slots(events, pages)
    pods = asked.group_by("pod").agg(pl.col("count").sum(), pl.col("first").min(), pl.col("last").max()).sort("pod")
    heard = dict(pages.group_by(pl.col("pod").fill_null("")).agg(pl.col("at").max()).iter_rows())
    spans = {pod: (first, max(last, heard.get(pod, 0)), n) for pod, n, first, last in pods.iter_rows()}
    end = max(last for _, last, _ in spans.values())
    there = [pod for pod, (_, last, _) in spans.items() if last >= end - NOW]
    now = sorted(pod for pod in there if told.get(pod))
    if not now:
        return None
    gaps = []
    untold = [pod for pod in there if not told.get(pod)]
    if untold:
        lost = sum(spans[pod][2] for pod in untold)
        gaps.append(
            f"nobody told the slots of {count(len(untold), 'pod')} ({listed(untold)}): "
            f"{count(lost, 'request is', 'requests are')} left out with {'it' if len(untold) == 1 else 'them'}"
        )
    place = {pod: at for at, pod in enumerate(now)}
    taken = {at: spans[pod][0] for at, pod in enumerate(now)}  # since when somebody stands there
    gone = sorted((pod for pod in spans if pod not in there), key=lambda pod: (-spans[pod][1], pod))
    for pod in gone:
        first, last, _ = spans[pod]
        free = [at for at, since in taken.items() if since >= last]
        place[pod] = min(free or taken, key=lambda at: (abs(taken[at] - last), at))
        taken[place[pod]] = min(first, taken[place[pod]])
    if gone:
        gaps.append(f"{count(len(gone), 'pod is', 'pods are')} gone since: what they served is replayed on those that followed")
    return _Fleet(tuple(now), tuple(told[pod] for pod in now), place, tuple(gaps))


def _slots(events: pl.DataFrame, pages: pl.DataFrame) -> dict[str, int]:
    """The slots that each pod said last, those of its engines added up; of a pod that said none, those of its page."""
    sane = pl.col("slots").is_between(1, MOST_SLOTS)
    told = events.filter(sane).sort("at", "seq").group_by("pod", pl.col("engine").fill_null("")).last()
    page = (
        pages.filter(pl.col("value").is_between(1, MOST_SLOTS))
        .sort("at")
        .group_by(pl.col("pod").fill_null(""), pl.col("engine").fill_null(""))
        .agg(slots=pl.col("value").last().cast(pl.Int64))
    )
    counted = [dict(frame.group_by("pod").agg(pl.col("slots").sum()).iter_rows()) for frame in (page, told)]
    return counted[0] | counted[1]


def _held(
    store: Store,
    window: Window,
    pool: Pool,
    asked: pl.DataFrame,
    events: pl.DataFrame,
    fleet: _Fleet,
    expected: Sequence[Expected],
    told: Told,
) -> Held:
    known = asked.filter(pl.col("pod").is_in(list(fleet.place)))
    adapters = tuple(known["adapter"].drop_nulls().unique().sort())
    trace = _trace(store, window, pool, int(known["count"].sum()), adapters, fleet, told)
    code = {name: at for at, name in enumerate(adapters)}
    loads = _loads(store, window, pool)
    firsts = _firsts(store, window, pool, known)
    served = registry(events.lazy(), window.end).filter(pl.col("kind") == "register").collect()["adapter"].unique().sort()
    history = History(
        window,
        trace,
        adapters,
        fleet.pods,
        fleet.slots,
        load_seconds=_seconds(loads, adapters),
        bytes=_by_code(dict(loads.select("adapter", "bytes").iter_rows()), adapters, -1),
        first_seen=_by_code(firsts, adapters, window.start),
        experiment=_experiments(adapters, served.to_list(), expected, window),
        pinned=_pinned(events, fleet, code),
        provenance=str(known["ranked"].max()) if len(known) else None,
        gaps=fleet.gaps,
        registered=tuple(served) if len(served) else None,
    )
    return Held(pool, history, _setup(pool, events, loads, fleet), _paths(events))


def _trace(store: Store, window: Window, pool: Pool, most: int, adapters: Sequence[str], fleet: _Fleet, told: Told) -> Trace:
    """The requests of a pool in order of arrival; those of pods that are in no place are left out."""
    adapter, pod = np.empty(most, dtype=np.int32), np.empty(most, dtype=np.int32)
    at, hold = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    enum = pl.Enum(list(adapters))
    placed = pl.Enum(list(fleet.place))
    places = np.array(list(fleet.place.values()), dtype=np.int32)
    filled = 0
    with reading(store):
        for day in window.split(DAY):
            rows = (
                store.scan(REQUESTS, day)
                .filter(of_pool(pool) & came().is_between(window.start, window.end, closed="left"))
                .select(
                    "seq",
                    came=came(),
                    adapter=pl.col("adapter").cast(enum, strict=False).to_physical().cast(pl.Int32).fill_null(BASE),
                    pod=pl.col("pod").fill_null("").cast(placed, strict=False).to_physical().cast(pl.Int32),
                    hold=(pl.col("finished") - pl.col("scheduled")).fill_null(0).clip(0, LONGEST),
                )
                .filter(pl.col("pod").is_not_null())
                .collect(engine="streaming")
                .sort("came", "pod", "seq")
                .head(most - filled)  # more may have come since they were counted
            )
            part = slice(filled, filled + rows.height)
            adapter[part], pod[part] = rows["adapter"].to_numpy(), places[rows["pod"].to_numpy()]
            at[part], hold[part] = rows["came"].to_numpy(), rows["hold"].to_numpy()
            filled += rows.height
            told((day.end - window.start) / (window.end - window.start))
    arrays: list[NDArray[np.int32] | NDArray[np.int64]] = [adapter[:filled], pod[:filled], at[:filled], hold[:filled]]
    if (at[1:filled] < at[: max(filled - 1, 0)]).any():  # who finished the day after
        order = np.argsort(at[:filled], kind="stable")
        for array in arrays:
            array[:] = array[order]
    return Trace(arrays[0], adapters=len(adapters), pod=arrays[1], pods=len(fleet.pods), at=arrays[2], hold=arrays[3])


def _loads(store: Store, window: Window, pool: Pool) -> pl.DataFrame:
    """Of each adapter: loads into a slot, the seconds that one took with the read from disk it needed, newest bytes and rank."""
    kind, tier, timed = pl.col("kind"), pl.col("tier"), pl.col("seconds").is_between(0, 1e9)
    with reading(store):
        rows = (
            store.scan(ADAPTER_EVENTS, window)
            .filter(of_pool(pool) & (kind == "load") & pl.col("ok").ne_missing(False) & pl.col("adapter").is_not_null())
            .filter(pl.col("reason").ne_missing("warmup"))
            .group_by("adapter")
            .agg(
                copies=((tier == "gpu") & timed).sum(),
                seconds=pl.col("seconds").filter(timed).sum(),
                bytes=pl.col("bytes").filter(pl.col("bytes") > 0).sort_by(pl.col("at").filter(pl.col("bytes") > 0)).last(),
                rank=pl.col("rank").filter(pl.col("rank") > 0).sort_by(pl.col("at").filter(pl.col("rank") > 0)).last(),
            )
            .collect(engine="streaming")
        )
    return rows.with_columns(seconds=pl.when(pl.col("copies") > 0).then(pl.col("seconds") / pl.col("copies")))


def _seconds(loads: pl.DataFrame, adapters: Sequence[str]) -> NDArray[np.float64]:
    """What a load takes: of the adapter, else of its rank, else of all; NaN where nobody measured any."""
    weighted = (pl.col("seconds") * pl.col("copies")).sum() / pl.col("copies").filter(pl.col("seconds").is_not_null()).sum()
    by_rank = dict(loads.group_by("rank").agg(weighted.alias("mean")).iter_rows())
    every = loads.select(weighted).item()
    own = {name: (seconds, rank) for name, seconds, rank in loads.select("adapter", "seconds", "rank").iter_rows()}

    def of(name: str) -> float:
        seconds, rank = own.get(name, (None, None))
        for value in (seconds, by_rank.get(rank) if rank is not None else None, every):
            if value is not None and np.isfinite(value):
                return float(value)
        return float("nan")

    return np.array([of(name) for name in adapters], dtype=np.float64)


def _by_code(known: Mapping[str, int | None], adapters: Sequence[str], unknown: int) -> NDArray[np.int64]:
    values = (known.get(name) for name in adapters)
    return np.array([unknown if value is None else value for value in values], dtype=np.int64)


def _firsts(store: Store, window: Window, pool: Pool, asked: pl.DataFrame) -> dict[str, int]:
    """When each adapter was asked for first, in the window or in what is looked through before it."""
    inside = dict(asked.group_by("adapter").agg(pl.col("first").min()).iter_rows())
    if window.start > 0:
        with reading(store):
            before = (
                store.scan(REQUESTS, Window(max(window.start - KNOWN_BACK, 0), window.start))
                .filter(of_pool(pool))
                .group_by("adapter")
                .agg(first=pl.col("at").min())
                .collect(engine="streaming")
            )
        inside |= dict(before.iter_rows())
    return inside


def _experiments(
    adapters: Sequence[str], served: Sequence[str], expected: Sequence[Expected], window: Window
) -> NDArray[np.bool_]:
    """Which adapters were announced for any time of the window, or are named as variants for an experiment."""
    named = {one.name for one in relatives({*adapters, *served}) if one.kind == "experiment"}
    days = [part.start for part in window.split(HOUR)]
    running = [(one, at) for one in expected for at in _first(one, days)]
    return np.array([name in named or any(one.matches(name, at) for one, at in running) for name in adapters], dtype=np.bool_)


def _first(one: Expected, moments: Sequence[int]) -> list[int]:
    """The first of the moments at which an announcement holds, for any name."""
    anyone = one.model_copy(update={"adapters": ("*",)})
    return [at for at in moments if anyone.matches("", at)][:1]


def _pinned(events: pl.DataFrame, fleet: _Fleet, code: dict[str, int]) -> tuple[tuple[int, int], ...]:
    """What the pods hold pinned: the last accepted `pin`, `unpin` or `evict` of it by their newest worker is a pin."""
    kind = pl.col("kind")
    worker = (kind != "start") | (pl.col("detail").str.json_path_match("$.role") != "api").fill_null(value=True)
    own = events.filter(worker & kind.is_in(["start", "pin", "unpin", "evict"]) & pl.col("ok").ne_missing(False)).sort(
        "at", "seq"
    )
    newest = own.group_by("pod", pl.col("engine").fill_null("")).agg(pl.col("stream").last())
    last = own.filter(kind != "start").join(newest, on=["pod", "stream"], how="semi").group_by("pod", "adapter").agg(kind.last())
    places = {pod: at for at, pod in enumerate(fleet.pods)}
    pins = sorted(
        (places[pod], code[name])
        for pod, name in last.filter(kind == "pin").select("pod", "adapter").iter_rows()
        if pod in places and name in code
    )
    room = {at: slots - 1 for at, slots in enumerate(fleet.slots)}
    kept = []
    for pod, adapter in pins:
        if room[pod] > 0:
            room[pod] -= 1
            kept.append((pod, adapter))
    return tuple(kept)


def _setup(pool: Pool, events: pl.DataFrame, loads: pl.DataFrame, fleet: _Fleet) -> Setup:
    """How the pods that are there now are set up, as their newest workers said."""
    started = events.filter((pl.col("kind") == "start") & pl.col("pod").is_in(list(fleet.pods)) & (pl.col("slots") >= 1)).sort(
        "at"
    )
    said = started.row(-1, named=True) if len(started) else {}
    detail = _object(said.get("detail"))
    told = detail.get("max_rank")
    rank = told if isinstance(told, int) and 0 < told <= MOST_RANK else None
    sized = loads.filter(pl.col("bytes") > 0)
    largest = sized["bytes"].max()
    if rank is not None:  # a slot is as large as the largest rank wants it, whoever sits there
        scaled = sized.filter(pl.col("rank") > 0).select((pl.col("bytes").cast(pl.Float64) / pl.col("rank") * rank).max()).item()
        largest = largest if scaled is None else max(int(scaled), largest)  # type: ignore[type-var]  # bytes
    vllm, model = detail.get("vllm"), detail.get("model")
    return Setup(
        pool="/".join(filter(None, pool)),
        engine="vllm" if isinstance(vllm, str) else None,
        version=vllm if isinstance(vllm, str) else None,
        pods=len(fleet.pods),
        slots=min(fleet.slots),
        most_slots=max(fleet.slots) if max(fleet.slots) > min(fleet.slots) else None,
        cpu_capacity=said.get("cpu_capacity"),
        max_rank=rank,
        base_model=model if isinstance(model, str) else None,
        slot_bytes=int(largest) if isinstance(largest, int) else None,
    )


def _paths(events: pl.DataFrame) -> dict[str, str]:
    """The path that each name was registered with last."""
    told = events.filter((pl.col("kind") == "register") & pl.col("ok").ne_missing(False) & pl.col("adapter").is_not_null())
    path = pl.col("detail").str.json_path_match("$.path")
    return dict(
        told.sort("at").with_columns(path=path).drop_nulls("path").group_by("adapter").agg(pl.col("path").last()).iter_rows()
    )


def _object(text: str | None) -> dict[str, object]:
    """A JSON object, or an empty one where it is none."""
    try:
        tree = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}
