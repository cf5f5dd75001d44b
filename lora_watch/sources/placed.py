"""
Systems whose series are about somebody else than the server that exports them: a router counts by pod, a GPU exporter by GPU.

A ``System`` says which names it reads and where a series belongs. Pages are read by ``PlacedPages``, Prometheus by
``PlacedSamples``; both store the same series, so either channel may go on where the other stopped.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from lora_watch import names
from lora_watch.errors import SourceError
from lora_watch.model import SECOND, PodId, Provenance, Window
from lora_watch.schema import SAMPLES, Batch
from lora_watch.sources.base import Turns, capped, printable, stream
from lora_watch.sources.exposition import Page, parse_page
from lora_watch.sources.http import HttpDoor
from lora_watch.sources.prometheus import PodLabels, Prometheus, PrometheusSamples, Raw, Reading
from lora_watch.sources.series import COLUMNS, is_finite, sample_frame, sample_row
from lora_watch.sources.targets import Target, Targets

_ACCEPT = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a series belongs: its pod, its labels as they are stored, its adapter (None: no adapter's), how it is known."""

    pod: PodId
    labels: Mapping[str, str]
    adapter: str | None = None
    provenance: Provenance = Provenance.OBSERVED


class System(Protocol):
    """What is read of one kind of exporter."""

    @property
    def name(self) -> str: ...  # of its streams
    @property
    def families(self) -> Mapping[str, Sequence[str]]: ...  # stored name → the names it goes by, newest first
    def place(self, metric: str, labels: Mapping[str, str], exporter: PodId, /) -> Place | str:
        """Where a series of the stored name ``metric`` belongs; a text says why it belongs nowhere."""


def _row(system: System, metric: str, labels: Mapping[str, str], exporter: PodId, source: str) -> dict[str, Any] | str:
    """The row of a series, without its time and value; a text says why there is none."""
    place = system.place(metric, labels, exporter)
    if isinstance(place, str):
        return place
    return sample_row(place.pod, 0, metric, 0.0, place.labels, source, adapter=place.adapter, provenance=place.provenance)


def read_page(page: Page, system: System, exporter: PodId, at: int, source: str) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """
    The rows of one page at ``at`` (µs UTC), and what was wrong with it.

    Of the names of one family the newest one on the page counts, the others are left out: twins of one count are never added.
    Values that are not finite are left out and counted. Two series that become one (labels that are not stored told them apart)
    are a problem, and the first one counts.
    """
    present = {sample.name for sample in page.samples}
    chosen = {next((one for one in family if one in present), ""): metric for metric, family in system.families.items()}
    rows: dict[str, dict[str, Any]] = {}
    problems: dict[str, None] = dict.fromkeys(page.problems)
    infinite = 0
    for sample in page.samples:
        if sample.name not in chosen:
            continue
        if not is_finite(sample.value):
            infinite += 1
            continue
        row = _row(system, chosen[sample.name], sample.labels, exporter, source)
        if isinstance(row, str):
            problems[row] = None
        elif row["series"] in rows:
            problems[f"{sample.name}: two series of {printable(row['pod'])} are one, the first one counts"] = None
        else:
            rows[row["series"]] = {**row, "at": at, "value": sample.value}
    if infinite:
        problems[f"{infinite} values are NaN or infinite and were left out"] = None
    if not present:
        problems[f"no metric of a {system.name} is on the page: is this its address?"] = None
    return list(rows.values()), capped(tuple(problems))


class PlacedPages:
    """
    Samples of one system, from the pages of ``targets`` (their ``metrics_url``).

    Stream ``scrape-<system>/<cluster>/<exporter>``: the exclusive end (µs UTC) of the last look, good or bad. An exporter looked
    at less than half an ``interval`` (µs) before ``until`` is passed over. Rows bear the time ``until`` − 1. Each look leaves a
    row ``lora_watch:scrape_up{endpoint="<system>"}`` of the exporter, 1 or 0; one that fails is a problem and stops no other.
    """

    def __init__(
        self,
        name: str,
        targets: Targets,
        system: System,
        interval: int = 15 * SECOND,
        *,
        threads: int = 8,
        timeout: tuple[float, float] = (3.0, 10.0),
        deadline_seconds: float = 15.0,
        max_bytes: int = 64 << 20,
    ) -> None:
        self.name = name
        self.table = SAMPLES
        self._targets = targets
        self._system = system
        self._interval = interval
        self._threads = threads
        self._timeout = timeout
        self._deadline_seconds = deadline_seconds
        self._max_bytes = max_bytes
        self._turns = Turns(threads)
        self._wanted = frozenset(name for family in system.families.values() for name in family)

    def read(self, positions: Mapping[str, int], until: int) -> Batch:
        """One look at each exporter that is due."""
        targets, problems = self._targets.read()
        streams = {stream(f"scrape-{self._system.name}", target.cluster, target.pod): target for target in targets}
        due = {name: target for name, target in streams.items() if 2 * (until - positions.get(name, 0)) >= self._interval}
        found = [*problems, *self._turns.waiting(list(due))]
        picked = self._turns.pick(list(due))
        with ThreadPoolExecutor(self._threads) as pool:
            looks = list(pool.map(lambda name: self._look(due[name], until), picked))
        self._turns.settle({name: look[-1]["value"] == 1.0 for name, (look, _) in zip(picked, looks, strict=True)}, streams)
        rows: dict[str, dict[str, Any]] = {}
        for target, (look, trouble) in zip((due[name] for name in picked), looks, strict=True):
            found += [f"{self._system.name} {printable(target.pod)}: {problem}" for problem in trouble]
            if again := sum(1 for row in look if rows.setdefault(row["series"], row) is not row):
                found.append(f"{self._system.name} {printable(target.pod)}: another exporter told {again} of its series already")
        return Batch(sample_frame(rows.values()), dict.fromkeys(picked, until), tuple(found))

    def _look(self, target: Target, until: int) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
        """The rows and problems of one exporter."""
        rows: list[dict[str, Any]] = []
        problems: tuple[str, ...] = ()
        up = 1.0
        try:
            door = HttpDoor(target.metrics_url, target.credentials, self._timeout, self._deadline_seconds, self._max_bytes)
            with door.open(accept=_ACCEPT) as (headers, chunks):
                page = parse_page(chunks, self._wanted, content_type=headers.get("content-type", ""))
            rows, problems = read_page(page, self._system, target.pod_id, until - 1, self.name)
        except SourceError as error:
            up, problems = 0.0, (str(error),)
        labels = {"endpoint": self._system.name}
        rows.append(sample_row(target.pod_id, until - 1, names.SAMPLE_SCRAPE_UP, up, labels, self.name))
        return rows, problems


class PlacedSamples(PrometheusSamples):
    """
    The same from a Prometheus that scrapes these exporters: stream ``prom/<id>/<stored name>``, a family's names in one query.

    At each instant and for each scraped target, of the names of one family the newest that is there counts. So a router that
    is upgraded in the middle of a window is counted once before and once after.
    """

    def __init__(
        self,
        name: str,
        prometheus: Prometheus,
        system: System,
        *,
        matchers: str = "",
        pod_labels: PodLabels | None = None,
        reading: Reading | None = None,
    ) -> None:
        super().__init__(
            name, prometheus, matchers=matchers, pod_labels=pod_labels, reading=reading, metrics=tuple(system.families)
        )
        self._system = system

    def _rows(self, metric: str, window: Window, _named: set[tuple[str, str]], problems: list[str]) -> list[pl.DataFrame]:
        """The rows of one family in one window; learns how long the next window may be."""
        family = self._system.families[metric]
        matchers = ",".join(part for part in (f'__name__=~"{"|".join(family)}"', self._matchers) if part)
        frames, height = [], 0
        for raw in self._prometheus.raw(f"{{{matchers}}}", window):
            problems += raw.problems
            height += raw.samples.height
            if raw.samples.height:
                frames.append(self._placed(metric, family, raw, problems))
        length = window.end - window.start
        self._lengths[metric] = min(length * self._reading.samples // max(height, 1), self._reading.span)
        return frames

    def _placed(self, metric: str, family: Sequence[str], raw: Raw, problems: list[str]) -> pl.DataFrame:
        """Each series put in its place once, then its samples; twins out."""
        attributes: list[dict[str, Any]] = []
        reasons: dict[str, None] = {}
        for number, labels in enumerate(raw.labels):
            told = labels.get("__name__", "")
            if told not in family:
                reasons[f"{metric}: the server sent a series of another name: {printable(told)}"] = None
                continue
            exporter = self._pods.pod_id(labels) or PodId(self._pods.default_cluster, "")
            own = {label: text for label, text in labels.items() if label != "__name__"}
            row = _row(self._system, metric, own, exporter, self.name)
            if isinstance(row, str):
                reasons[row] = None
                continue
            target = repr((exporter, labels.get("instance"), labels.get("job")))
            attributes.append({"number": number, "rank": family.index(told), "target": target, **row})
        problems += capped(tuple(reasons))
        schema: dict[str, pl.DataType] = {"number": pl.UInt32(), "rank": pl.Int64(), "target": pl.String(), **COLUMNS}
        wide = pl.DataFrame(attributes, schema=schema, orient="row").drop("at", "value")
        finite = raw.samples.filter(pl.col("value").is_finite())
        if finite.height < raw.samples.height:
            problems.append(f"{metric}: {raw.samples.height - finite.height} values are NaN or infinite and were left out")
        placed = finite.join(wide, on="number", maintain_order="left_right")
        newest = placed.filter(pl.col("rank") == pl.col("rank").min().over("target", "at"))
        return newest.select(list(COLUMNS))
