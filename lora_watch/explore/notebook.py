"""
The store in a notebook: ``lora_watch.open(path)``, one method per figure, and what comes out is a polars frame.

A new figure is a line in ``queries.FIGURES`` and a method here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import polars as pl

from lora_watch.config import DeriveSettings, load, parse_duration
from lora_watch.derive.groups import GROUPS as GROUP_COLUMNS
from lora_watch.derive.groups import group_columns
from lora_watch.derive.locality import came
from lora_watch.derive.miss_ratio_curve import miss_ratio_curve
from lora_watch.derive.shards import bucket_ranges, shards_for
from lora_watch.derive.swaps import swaps_per_minute
from lora_watch.derive.working_set import working_set
from lora_watch.diagnose.incidents import Incident, utc
from lora_watch.errors import LoraWatchError
from lora_watch.explore import findings
from lora_watch.explore.queries import FIGURES, Frames, Overview, Past, newest, overview_by_shards
from lora_watch.model import HOUR, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, FINDINGS, MEASURED, REQUESTS, SAMPLES, Table
from lora_watch.store.tables import Store

Moment = datetime | str | int
"""A datetime with a zone, ISO 8601 text with a zone, or µs since 1970 in UTC."""
By = str | Sequence[str]
"""``pod``, ``pool``, ``adapter`` or ``cluster``; or several, such as ``("pod", "adapter")``."""
GROUPS = {
    "pod": ("cluster", "pool", "role", "pod"),
    "pool": ("cluster", "pool", "role"),
    "adapter": ("cluster", "pool", "role", "adapter"),
    "cluster": ("cluster", "role"),
}
"""The columns of a group, by its name; prefill and decode pods (``role``) never share a row."""
WARM_UP = HOUR
"""Requests from so long before a window fill the slots of a replay and the spans of a working set."""
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
        begin = until - length if start is None else _micros(start, "start")
        if begin >= until:
            raise LoraWatchError(f"a window begins before it ends, not from {utc(begin)} to {utc(until)}")
        return Window(begin, until)

    def residency(
        self, last: str | None = None, *, by: By = "pod", start: Moment | None = None, end: Moment | None = None
    ) -> pl.DataFrame:
        """How long adapters stay in a slot: p50 and p95 with what they leave out (:mod:`lora_watch.derive.residency`)."""
        return self._figure("residency", by, self.window(last, start=start, end=end))

    def swaps(
        self, last: str | None = None, *, by: By = "pod", start: Moment | None = None, end: Moment | None = None
    ) -> pl.DataFrame:
        """Swaps and loads, warm and cold (:mod:`lora_watch.derive.swaps`)."""
        return self._figure("swaps", by, self.window(last, start=start, end=end))

    def swaps_per_minute(
        self, last: str | None = None, *, start: Moment | None = None, end: Moment | None = None
    ) -> pl.DataFrame:
        """Swaps of each pod minute by minute, from bins of a second (:mod:`lora_watch.derive.swaps`)."""
        window = self.window(last, start=start, end=end)
        rows = [part.store.rows(ADAPTER_EVENTS, window).lazy() for part in self._parts(("pod",), window)]
        return _together([swaps_per_minute(some, window).collect() for some in rows])

    def occupancy(
        self, last: str | None = None, *, by: By = "pod", start: Moment | None = None, end: Moment | None = None
    ) -> pl.DataFrame:
        """Slots, residents, active adapters and their ratios (:mod:`lora_watch.derive.occupancy`)."""
        return self._figure("occupancy", by, self.window(last, start=start, end=end))

    def inference_share(
        self, last: str | None = None, *, by: By = "pod", start: Moment | None = None, end: Moment | None = None
    ) -> pl.DataFrame:
        """Share of the time spent on inference proper, with its grade (:mod:`lora_watch.derive.inference_share`)."""
        return self._figure("inference_share", by, self.window(last, start=start, end=end))

    def misses(
        self, last: str | None = None, *, by: By = "pod", start: Moment | None = None, end: Moment | None = None
    ) -> pl.DataFrame:
        """Requests that found their adapter hot, warm or cold, and ghost hits (:mod:`lora_watch.derive.misses`)."""
        return self._figure("misses", by, self.window(last, start=start, end=end))

    def swap_queue(
        self, last: str | None = None, *, by: By = "pod", start: Moment | None = None, end: Moment | None = None
    ) -> pl.DataFrame:
        """Requests that wait for an adapter that is in no slot (:mod:`lora_watch.derive.swap_queue`)."""
        return self._figure("swap_queue", by, self.window(last, start=start, end=end))

    def little(
        self, last: str | None = None, *, by: By = "pod", start: Moment | None = None, end: Moment | None = None
    ) -> pl.DataFrame:
        """Occupied slots against load rate × mean stay: 0 on complete data (:mod:`lora_watch.derive.little`)."""
        return self._figure("little", by, self.window(last, start=start, end=end))

    def working_set(
        self, last: str | None = None, *, by: By = "pool", start: Moment | None = None, end: Moment | None = None
    ) -> pl.DataFrame:
        """W(T): distinct adapters asked for within T seconds (:mod:`lora_watch.derive.working_set`)."""
        window = self.window(last, start=start, end=end)
        before = window.start - WARM_UP
        return self._of_requests(by, window, lambda asked, keys: working_set(asked, window, keys, held_from=before))

    def miss_ratio_curve(
        self, last: str | None = None, *, by: By = "pod", start: Moment | None = None, end: Moment | None = None
    ) -> pl.DataFrame:
        """LRU misses at every number of slots, exact (:mod:`lora_watch.derive.miss_ratio_curve`)."""
        window = self.window(last, start=start, end=end)
        return self._of_requests(by, window, lambda asked, keys: miss_ratio_curve(asked, window, keys))

    def overview(self, last: str | None = None, *, start: Moment | None = None, end: Moment | None = None) -> Overview:
        """What ``lora-watch status`` shows: ``.pods``, a row a pod, and ``.adapters``, a row a pod and adapter."""
        return overview_by_shards(self._store, self.window(last, start=start, end=end), self._lookback)

    def requests(self, last: str | None = None, *, start: Moment | None = None, end: Moment | None = None) -> pl.DataFrame:
        """The finished requests, as they are stored, by the time they finished."""
        return self._rows(REQUESTS, last, start, end)

    def events(self, last: str | None = None, *, start: Moment | None = None, end: Moment | None = None) -> pl.DataFrame:
        """The adapter events, as they are stored (docs/event-log-v1.md)."""
        return self._rows(ADAPTER_EVENTS, last, start, end)

    def samples(
        self,
        last: str | None = None,
        *,
        metric: str | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
    ) -> pl.DataFrame:
        """The samples, as they are stored; of one ``metric`` if told."""
        return self._rows(SAMPLES, last, start, end, None if metric is None else pl.col("metric") == metric)

    def findings(self, last: str | None = None, *, start: Moment | None = None, end: Moment | None = None) -> pl.DataFrame:
        """The told states of findings; ``detail`` is the whole finding as JSON."""
        return self._rows(FINDINGS, last, start, end)

    def incidents(self, last: str | None = None, *, start: Moment | None = None, end: Moment | None = None) -> pl.DataFrame:
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
                for one in self._incidents(self.window(last, start=start, end=end))
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

    def _rows(
        self, table: Table, last: str | None, start: Moment | None, end: Moment | None, where: pl.Expr | None = None
    ) -> pl.DataFrame:
        rows = self._store.rows(table, self.window(last, start=start, end=end), where)
        return rows.sort("at", *table.key)

    def _figure(self, name: str, by: By, window: Window) -> pl.DataFrame:
        names, keys = _keys(by)
        if name == "inference_share" and "adapter" in names:
            raise LoraWatchError("inference_share has no rows by adapter: one step of an engine serves many")
        parts = []
        for part in self._parts(names, window):
            read = Frames(part.store, window, Past(part.store, self._lookback, step=part.shards * HOUR))
            parts.append(part.of(FIGURES[name](read, keys)).collect())
        return _together(parts)

    def _of_requests(
        self, by: By, window: Window, derive: Callable[[pl.LazyFrame, tuple[str, ...]], pl.DataFrame]
    ) -> pl.DataFrame:
        names, keys = _keys(by)
        if "adapter" in names:
            raise LoraWatchError("adapters share the slots, so this figure has no rows by adapter; choose pod, pool or cluster")
        asked = Window(window.start - WARM_UP, window.end + HOUR)
        parts = []
        for part in self._parts(names, window):
            rows = part.store.rows(REQUESTS, asked).lazy().filter(came() < window.end)
            parts.append(part.of(derive(rows, keys).lazy()).collect())
        return _together(parts)

    def _parts(self, names: Sequence[str], window: Window) -> Iterator[_Part]:
        """
        Parts of the store that hold every group whole: some pods at a time for groups within a pod, else all pods of a pool or,
        for clusters, of a cluster.
        """
        if "pod" in names:
            shards = shards_for(sum(self._store.count(table, window) for table in (ADAPTER_EVENTS, REQUESTS)))
            for low, high in bucket_ranges(shards):
                yield _Part(self._store if shards == 1 else self._store.part(range(low, high)), shards)
            return
        columns = ["cluster"] if names == ("cluster",) else ["cluster", "pool"]
        wide = Window(window.start - self._lookback, window.end + HOUR)
        pods = pl.concat([self._store.distinct(table, wide, ("cluster", "pool", "pod")) for table in MEASURED]).unique()
        if pods.is_empty():
            yield _Part(self._store, 1)
        for group in pods.partition_by(columns):  # a pod whose rows name two pools is read for both
            own = pl.all_horizontal(pl.col(name).eq_missing(group[name][0]) for name in columns)
            whole = pl.col("cluster").eq_missing(group["cluster"][0]) & pl.col("pod").is_in(
                group["pod"].unique(), nulls_equal=True
            )
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
    names = (by,) if isinstance(by, str) else tuple(by)
    if unknown := [name for name in names if name not in GROUPS]:
        raise LoraWatchError(f"cannot group by {unknown[0]!r}; choose from {', '.join(GROUPS)}, or several of them")
    if not names:
        raise LoraWatchError(f"group by one or more of {', '.join(GROUPS)}")
    return names, tuple(group_columns([column for name in names for column in GROUPS[name]]))


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
