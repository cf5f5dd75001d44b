"""
The store in a notebook: ``lora_watch.open(path)``, one method per figure, and what comes out is a polars frame.

A new figure is a line in ``queries.FIGURES`` and a method here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypedDict, Unpack

import polars as pl

from lora_watch.config import DeriveSettings, load, parse_duration
from lora_watch.derive.attribution import around_evictions, attribution
from lora_watch.derive.cost import cost
from lora_watch.derive.groups import GROUPS as GROUP_COLUMNS
from lora_watch.derive.groups import group_columns
from lora_watch.derive.load_waits import load_waits
from lora_watch.derive.locality import came
from lora_watch.derive.miss_ratio_curve import miss_ratio_curve
from lora_watch.derive.queue_replay import queue_replay
from lora_watch.derive.residency_interval import residency_interval
from lora_watch.derive.shards import bucket_ranges, shards_for
from lora_watch.derive.swaps import swaps_per_minute
from lora_watch.derive.timeline import timeline
from lora_watch.derive.working_set import working_set
from lora_watch.diagnose.incidents import Incident, utc
from lora_watch.errors import LoraWatchError
from lora_watch.explore import findings
from lora_watch.explore.around import STRUCTURES, WARM_UP, Around
from lora_watch.explore.queries import FIGURES, Frames, Overview, Past, newest, overview_by_shards
from lora_watch.explore.status import bounded
from lora_watch.model import HOUR, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, FINDINGS, MEASURED, REQUESTS, SAMPLES, Table
from lora_watch.store.tables import Store

Moment = datetime | str | int
"""A datetime with a zone, ISO 8601 text with a zone, or µs since 1970 in UTC."""


class Span(TypedDict, total=False):
    """The ends of a window, where they are told."""

    start: Moment
    end: Moment


By = str | Sequence[str]
"""``pod``, ``pool``, ``adapter`` or ``cluster``; or several, such as ``("pod", "adapter")``."""
GROUPS = {
    "pod": ("cluster", "pool", "role", "pod"),
    "pool": ("cluster", "pool", "role"),
    "adapter": ("cluster", "pool", "role", "adapter"),
    "cluster": ("cluster", "role"),
}
"""The columns of a group, by its name; prefill and decode pods (``role``) never share a row."""
USUAL = "1h"
"""The window where none is told."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Some whole pods, one of so many ``shards``; ``own``: the rows of a result that are about no other part."""

    store: Store
    shards: int
    own: pl.Expr | None = None

    def of(self, result: pl.LazyFrame) -> pl.LazyFrame:
        return result if self.own is None else result.filter(self.own)


class Notebook:
    """
    The tables of one folder. Every method that is about a window takes

    * ``last``, such as ``"7d"``: that long, up to where the stored data end, or to ``end``; or
    * ``start`` and ``end`` (a moment: datetime or ISO text with a zone, or µs UTC); without ``end`` where the data end;

    the last hour if nothing is told; and ``by`` (``pod``, ``pool``, ``adapter``, ``cluster``, or several) where it has groups.
    A pool at a time is in memory, by pod only some pods at a time. Unknown is null, and ``provenance`` says how a row is known.
    Raises LoraWatchError, with what to do, where the window or the group makes no sense or nothing is stored.
    """

    def __init__(self, store: Store, lookback: int) -> None:
        self._store = store
        self._lookback = lookback

    def __repr__(self) -> str:
        end = newest(self._store, None)
        return f"<lora_watch data in {self._store.root}, {'empty' if end is None else f'up to {utc(end - 1)}'}>"

    def window(self, last: str | None = None, *, start: Moment | None = None, end: Moment | None = None) -> Window:
        """The window that these arguments mean."""
        until = self._end() if end is None else _micros(end, "end")
        if last is not None and start is not None:
            raise LoraWatchError("a window is `last`, or `start` and `end`: not `last` and `start`")
        try:
            length = round(parse_duration(USUAL if last is None else last).total_seconds() * SECOND)
        except ValueError as error:
            raise LoraWatchError(f"cannot read the window: {error}") from error
        return bounded(until - length if start is None else _micros(start, "start"), until)

    def residency(self, last: str | None = None, *, by: By = "pod", **span: Unpack[Span]) -> pl.DataFrame:
        """How long adapters stay in a slot: p50 and p95 with what they leave out (:mod:`lora_watch.derive.residency`)."""
        return self._figure("residency", by, self.window(last, **span))

    def swaps(self, last: str | None = None, *, by: By = "pod", **span: Unpack[Span]) -> pl.DataFrame:
        """Swaps and loads, warm and cold (:mod:`lora_watch.derive.swaps`)."""
        return self._figure("swaps", by, self.window(last, **span))

    def swaps_per_minute(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """Swaps of each pod minute by minute, from bins of a second (:mod:`lora_watch.derive.swaps`)."""
        window = self.window(last, **span)
        rows = [part.store.rows(ADAPTER_EVENTS, window).lazy() for part in self._parts(("pod",), window)]
        return _together([swaps_per_minute(some, window).collect() for some in rows])

    def occupancy(self, last: str | None = None, *, by: By = "pod", **span: Unpack[Span]) -> pl.DataFrame:
        """Slots, residents, active adapters and their ratios (:mod:`lora_watch.derive.occupancy`)."""
        return self._figure("occupancy", by, self.window(last, **span))

    def inference_share(self, last: str | None = None, *, by: By = "pod", **span: Unpack[Span]) -> pl.DataFrame:
        """Share of the time spent on inference proper, with its grade (:mod:`lora_watch.derive.inference_share`)."""
        return self._figure("inference_share", by, self.window(last, **span))

    def misses(self, last: str | None = None, *, by: By = "pod", **span: Unpack[Span]) -> pl.DataFrame:
        """Requests that found their adapter hot, warm or cold, and ghost hits (:mod:`lora_watch.derive.misses`)."""
        return self._figure("misses", by, self.window(last, **span))

    def swap_queue(self, last: str | None = None, *, by: By = "pod", **span: Unpack[Span]) -> pl.DataFrame:
        """Requests that wait for an adapter that is in no slot (:mod:`lora_watch.derive.swap_queue`)."""
        return self._figure("swap_queue", by, self.window(last, **span))

    def little(self, last: str | None = None, *, by: By = "pod", **span: Unpack[Span]) -> pl.DataFrame:
        """Occupied slots against load rate × mean stay: 0 on complete data (:mod:`lora_watch.derive.little`)."""
        return self._figure("little", by, self.window(last, **span))

    def working_set(self, last: str | None = None, *, by: By = "pool", **span: Unpack[Span]) -> pl.DataFrame:
        """W(T): distinct adapters asked for within T seconds (:mod:`lora_watch.derive.working_set`)."""
        window = self.window(last, **span)
        before = window.start - WARM_UP
        return self._of_requests(by, window, lambda asked, keys: working_set(asked, window, keys, held_from=before))

    def miss_ratio_curve(self, last: str | None = None, *, by: By = "pod", **span: Unpack[Span]) -> pl.DataFrame:
        """LRU misses at every number of slots, exact (:mod:`lora_watch.derive.miss_ratio_curve`)."""
        window = self.window(last, **span)
        return self._of_requests(by, window, lambda asked, keys: miss_ratio_curve(asked, window, keys))

    def residency_interval(self, last: str | None = None, *, by: By = "pool", **span: Unpack[Span]) -> pl.DataFrame:
        """95 % intervals of residency's p50 and p95 (:mod:`lora_watch.derive.residency_interval`)."""
        window = self.window(last, **span)
        return self._derived(by, window, lambda read, keys: residency_interval(read.stays, window, keys))

    def timeline(self, last: str | None = None, *, by: By = "pool", **span: Unpack[Span]) -> pl.DataFrame:
        """Requests, loads, swaps and the time they took, minute by minute (:mod:`lora_watch.derive.timeline`)."""
        window = self.window(last, **span)
        return self._derived(
            by, window, lambda read, keys: timeline(read.events, read.requests, window, by=keys, moves=read.moves).collect()
        )

    def load_waits(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """What each request waited for loads, its own and others' (:mod:`lora_watch.derive.load_waits`)."""
        window = self.window(last, **span)
        return self._derived("pod", window, lambda read, _: load_waits(read.requests, read.events), sort=False)

    def attribution(self, last: str | None = None, *, by: By = "pool", **span: Unpack[Span]) -> pl.DataFrame:
        """What loads did to latency, with intervals (:mod:`lora_watch.derive.attribution`)."""
        window = self.window(last, **span)
        return self._derived(
            by,
            window,
            lambda read, keys: attribution(queue_replay(read.requests, read.events), read.events, window, keys),
        )

    def around_evictions(self, last: str | None = None, *, by: By = "pool", **span: Unpack[Span]) -> pl.DataFrame:
        """Mean latency before and after evictions (:func:`lora_watch.derive.attribution.around_evictions`)."""
        if "adapter" in _keys(by)[0]:
            raise LoraWatchError("an eviction is an event of an engine: choose pod, pool or cluster, not adapter")
        window = self.window(last, **span)
        return self._derived(
            by,
            window,
            lambda read, keys: around_evictions(queue_replay(read.requests, read.events), read.events, window, keys),
        )

    def cost(self, last: str | None = None, *, by: By = "pool", gpus_per_pod: int = 1, **span: Unpack[Span]) -> pl.DataFrame:
        """GPU hours that loads took (:mod:`lora_watch.derive.cost`)."""
        window = self.window(last, **span)
        return self._derived(by, window, lambda read, keys: cost(read.events, window, keys, gpus_per_pod=gpus_per_pod).collect())

    def stampedes(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """Loads of one adapter that overlap on several pods (:mod:`lora_watch.derive.stampedes`)."""
        return self._found("stampedes", self.window(last, **span))

    def convoys(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """Stretches in which many pods were loading at once (:mod:`lora_watch.derive.convoys`)."""
        return self._found("convoys", self.window(last, **span))

    def cascades(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """Evictions that lead to reloads that evict the next (:mod:`lora_watch.derive.cascades`)."""
        return self._found("cascades", self.window(last, **span))

    def families(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """Variants of one adapter that came together (:mod:`lora_watch.derive.families`)."""
        return self._found("families", self.window(last, **span))

    def reload_loops(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """An adapter loaded in place again and again (:mod:`lora_watch.derive.reload_loops`)."""
        return self._found("reload_loops", self.window(last, **span))

    def phantoms(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """Where the registry of names and residency disagree (:mod:`lora_watch.derive.phantoms`)."""
        return self._found("phantoms", self.window(last, **span))

    def imbalance(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """How unequally requests and loads fall on the pods of a pool (:mod:`lora_watch.derive.imbalance`)."""
        return self._found("imbalance", self.window(last, **span))

    def starvation(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """Adapters whose requests wait longer than the rest of the pool's (:mod:`lora_watch.derive.starvation`)."""
        return self._found("starvation", self.window(last, **span))

    def slow_loads(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """Loads that took longer than usual (:mod:`lora_watch.derive.slow_loads`)."""
        return self._found("slow_loads", self.window(last, **span))

    def ghosts(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """Adapters that hold a slot and are not asked for (:mod:`lora_watch.derive.ghosts`)."""
        return self._found("ghosts", self.window(last, **span))

    def scans(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """Stretches in which many rare adapters were each asked for in one run (:mod:`lora_watch.derive.scans`)."""
        return self._found("scans", self.window(last, **span))

    def kv_pressure(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """How full the KV cache was, and how many slots that cost (:mod:`lora_watch.derive.kv_pressure`)."""
        return self._found("kv_pressure", self.window(last, **span))

    def prefix_reuse(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """The prefix cache's hits before and after an adapter got variants (:mod:`lora_watch.derive.prefix_reuse`)."""
        return self._found("prefix_reuse", self.window(last, **span))

    def swapping_sides(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """Pools of which one role swaps and the other does not (:mod:`lora_watch.derive.sides`)."""
        return self._found("swapping_sides", self.window(last, **span))

    def one_sided(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """Adapters that are resident on the prefill or the decode side only (:mod:`lora_watch.derive.sides`)."""
        return self._found("one_sided", self.window(last, **span))

    def shifts(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """How alike the mixes of adapters at different hours are (:mod:`lora_watch.derive.shifts`)."""
        return self._found("shifts", self.window(last, **span))

    def overview(self, last: str | None = None, **span: Unpack[Span]) -> Overview:
        """What ``lora-watch status`` shows: ``.pods``, a row a pod, and ``.adapters``, a row a pod and adapter."""
        return overview_by_shards(self._store, self.window(last, **span), self._lookback)

    def requests(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """The finished requests, as they are stored, by the time they finished."""
        return self._rows(self.window(last, **span), REQUESTS)

    def events(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """The adapter events, as they are stored (docs/event-log-v1.md)."""
        return self._rows(self.window(last, **span), ADAPTER_EVENTS)

    def samples(self, last: str | None = None, *, metric: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """The samples, as they are stored; of one ``metric`` if told."""
        return self._rows(self.window(last, **span), SAMPLES, None if metric is None else pl.col("metric") == metric)

    def findings(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """The told states of findings; ``detail`` is the whole finding as JSON."""
        return self._rows(self.window(last, **span), FINDINGS)

    def incidents(self, last: str | None = None, **span: Unpack[Span]) -> pl.DataFrame:
        """The incidents that reach into the window, the newest first; ``start`` and ``end`` in µs UTC, null: it goes on."""
        return pl.DataFrame(
            [
                {
                    "id": one.id,
                    "cluster": one.cluster,
                    "pool": one.pool,
                    "status": one.status,
                    "severity": str(one.severity),
                    "start": one.start,
                    "end": one.end,
                    "title": one.title,
                    "cause": one.cause,
                    "findings": [life.worst.kind for life in one.lives],
                }
                for one in self._incidents(self.window(last, **span))
            ],
            schema={
                **dict.fromkeys(("id", "cluster", "pool", "status", "severity"), pl.String),
                **dict.fromkeys(("start", "end"), pl.Int64),
                **dict.fromkeys(("title", "cause"), pl.String),
                "findings": pl.List(pl.String),
            },
            orient="row",
        )

    def postmortem(self, incident: str, last: str = "30d") -> str:
        """The draft of an incident's post-mortem as Markdown."""
        window = self.window(last)
        return findings.rendered(findings.one(self._store, incident, window, window.end), "md")

    def scan(self, table: str) -> pl.LazyFrame:
        """A whole table, read as far as the query needs it; ``.collect(engine="streaming")`` reads what is larger than memory."""
        known = {one.name: one for one in (*MEASURED, FINDINGS)}
        if table not in known:
            raise LoraWatchError(f"there is no table {table!r}; there are {', '.join(known)}")
        return self._store.scan(known[table])

    def _incidents(self, window: Window) -> tuple[Incident, ...]:
        return findings.told(self._store, window, window.end)

    def _rows(self, window: Window, table: Table, where: pl.Expr | None = None) -> pl.DataFrame:
        return self._store.rows(table, window, where).sort("at", *table.key)

    def _figure(self, name: str, by: By, window: Window) -> pl.DataFrame:
        groups, keys = _keys(by)
        if name == "inference_share" and "adapter" in groups:
            raise LoraWatchError("inference_share has no rows by adapter: one step of an engine serves many")
        parts = []
        for part in self._parts(groups, window):
            read = Frames(part.store, window, Past(part.store, self._lookback, step=part.shards * HOUR))
            parts.append(part.of(FIGURES[name](read, keys)).collect())
        return _together(parts)

    def _derived(
        self, by: By, window: Window, derive: Callable[[Frames, tuple[str, ...]], pl.DataFrame], *, sort: bool = True
    ) -> pl.DataFrame:
        groups, keys = _keys(by)
        parts = []
        for part in self._parts(groups, window):
            read = Frames(part.store, window, Past(part.store, self._lookback, step=part.shards * HOUR))
            parts.append(part.of(derive(read, keys).lazy()).collect())
        return _together(parts) if sort else pl.concat(parts)

    def _found(self, name: str, window: Window) -> pl.DataFrame:
        parts = [part.of(STRUCTURES[name](Around(part.store, window, self._lookback))) for part in self._parts(("pool",), window)]
        return pl.concat([part.collect() for part in parts])

    def _of_requests(
        self, by: By, window: Window, derive: Callable[[pl.LazyFrame, tuple[str, ...]], pl.DataFrame]
    ) -> pl.DataFrame:
        groups, keys = _keys(by)
        if "adapter" in groups:
            raise LoraWatchError("adapters share the slots, so this figure has no rows by adapter; choose pod, pool or cluster")
        asked = Window(window.start - WARM_UP, window.end + HOUR)
        parts = []
        for part in self._parts(groups, window):
            rows = part.store.rows(REQUESTS, asked).lazy().filter(came() < window.end)
            parts.append(part.of(derive(rows, keys).lazy()).collect())
        return _together(parts)

    def _parts(self, groups: Sequence[str], window: Window) -> Iterator[_Part]:
        """
        Parts of the store that hold every group whole: some pods at a time for groups within a pod, else all pods of a pool or,
        for clusters, of a cluster.
        """
        if "pod" in groups:
            shards = shards_for(sum(self._store.count(table, window) for table in (ADAPTER_EVENTS, REQUESTS)))
            for low, high in bucket_ranges(shards):
                yield _Part(self._store if shards == 1 else self._store.part(range(low, high)), shards)
            return
        columns = ["cluster"] if tuple(groups) == ("cluster",) else ["cluster", "pool"]
        wide = Window(window.start - self._lookback, window.end + HOUR)
        pods = pl.concat([self._store.distinct(table, wide, ("cluster", "pool", "pod")) for table in MEASURED]).unique()
        if pods.is_empty():
            yield _Part(self._store, 1)
        for group in pods.partition_by(columns):  # a pod whose rows name two pools is read for both
            own = pl.all_horizontal(pl.col(name).eq_missing(group[name][0]) for name in columns)
            members = group["pod"].unique().to_list()
            whole = pl.col("cluster").eq_missing(group["cluster"][0]) & pl.col("pod").is_in(members, nulls_equal=True)
            yield _Part(self._store.part(where=whole), 1, own)

    def _end(self) -> int:
        end = newest(self._store, None)
        if end is None:
            raise LoraWatchError(
                f"nothing is stored in {self._store.root}: name the folder that `lora-watch serve` or `import` wrote, or `end`"
            )
        return end


def open_folder(path: str | Path) -> Notebook:
    """
    The tables of a folder, or of the folder that a configuration file names.

    LoraWatchError where there is none, ConfigError where the file is no configuration.
    """
    where = Path(path).expanduser()
    if where.is_file():
        settings = load(where)
        return Notebook(Store(settings.store.folder), round(settings.derive.lookback.total_seconds() * SECOND))
    if not where.is_dir():
        raise LoraWatchError(
            f"there is no folder {str(path)!r}: name the folder of the tables (`store.folder`, lora-watch-data unless told) "
            "or the configuration file"
        )
    return Notebook(Store(where), round(DeriveSettings().lookback.total_seconds() * SECOND))


def _keys(by: By) -> tuple[tuple[str, ...], tuple[str, ...]]:
    chosen = (by,) if isinstance(by, str) else tuple(by)
    if unknown := [name for name in chosen if name not in GROUPS]:
        raise LoraWatchError(f"cannot group by {unknown[0]!r}; choose from {', '.join(GROUPS)}, or several of them")
    if not chosen:
        raise LoraWatchError(f"group by one or more of {', '.join(GROUPS)}")
    return chosen, tuple(group_columns([column for name in chosen for column in GROUPS[name]]))


def _together(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Parts as one frame, by the names of the groups, then as each part has them."""
    frame = pl.concat(parts)
    return frame.sort([name for name in frame.columns if name in GROUP_COLUMNS], maintain_order=True)


def _micros(moment: Moment, name: str) -> int:
    if isinstance(moment, bool):
        raise LoraWatchError(f"`{name}` is a moment, not {moment}")
    if isinstance(moment, int):
        return moment
    try:
        return findings.moment(moment if isinstance(moment, str) else moment.isoformat())
    except (ValueError, AttributeError) as error:
        raise LoraWatchError(
            f"`{name}` cannot be read: {error}; give a datetime or ISO text with a zone, such as 2026-11-30T10:15:00Z, or µs UTC"
        ) from error
