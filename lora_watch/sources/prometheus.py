"""
Raw samples out of Prometheus (2.x, 3.x and what speaks its query API), as Prometheus scraped them: never evaluated, never
interpolated.

History is read by instant queries with a range selector, ``metric{…}[W]`` at the end of the window, because evaluated range
queries change when late data arrives. Ranges are closed on both ends in 2.x and left-open in 3.x: the query is placed one
millisecond before the end, W long, so that both answer with all of ``[start, end)``, and a filter takes off what 2.x adds.

Tells what vllm.py tells, with the same traps: of the stock gauge's series only the newest counts, at each instant.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import msgspec
import polars as pl
import requests
from prometheus_api_client import PrometheusConnect
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from lora_watch import names
from lora_watch.errors import SourceError, SourceRejected, SourceUnavailable
from lora_watch.model import HOUR, MINUTE, SECOND, PodId, Window
from lora_watch.schema import SAMPLES, Batch
from lora_watch.sources import vllm
from lora_watch.sources.base import printable, stream
from lora_watch.sources.http import (
    NO_CREDENTIALS,
    Credentials,
    DeadlineAdapter,
    check_not_html,
    check_status,
    clean_url,
    shown,
    translate,
)
from lora_watch.sources.series import COLUMNS, labels_json, sample_row

MILLISECOND = 1_000
MAX_POINTS = 10_999
"""Samples of one series in one answer: Prometheus refuses 11,000 points in a range query, proxies copy the limit."""
_GIVE_UP = 3
"""Metrics that fail one after another, with none read before, until the server is taken for gone."""
_RETRIED = (429, 502, 503, 504)


class _TooMuch(Exception):
    """The answer would be larger than it may be: ask for less time at once."""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    histograms: list[msgspec.Raw] = []


class _Data(msgspec.Struct):
    resultType: str
    result: list[_Series]


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""
    errorType: str = ""
    warnings: list[str] = []


@dataclass(frozen=True, slots=True)
class Raw:
    """
    Raw samples of some series: labels of each, and a frame ``number`` (of the series), ``at`` (µs), ``value``; and warnings.
    """

    labels: tuple[dict[str, str], ...]
    samples: pl.DataFrame
    problems: tuple[str, ...]


class Prometheus(PrometheusConnect):  # type: ignore[misc]  # the library has no types
    """
    The door to one Prometheus.

    Differs from its parent in what fails silently there: POST with the query in the body, retried on 429, 502 to 504 and a broken
    connection; time-outs to connect and to read, and a ``deadline_seconds`` for the whole answer; at most ``max_bytes`` of it;
    errors told apart and Prometheus' own words kept; warnings kept; typed decoding; no compression (it costs more than it saves
    nearby).
    """

    def __init__(
        self,
        url: str,
        credentials: Credentials = NO_CREDENTIALS,
        *,
        timeout: tuple[float, float] = (3.0, 60.0),
        deadline_seconds: float = 120.0,
        retries: int = 2,
        backoff_seconds: float = 0.3,
        max_bytes: int = 256 << 20,
    ) -> None:
        self._credentials = credentials
        self._seconds = timeout
        self._deadline_seconds = deadline_seconds
        self._max_bytes = max_bytes
        retry = Retry(
            total=retries,
            backoff_factor=backoff_seconds,
            status_forcelist=_RETRIED,
            allowed_methods=frozenset({"GET", "POST"}),  # queries change nothing
            raise_on_status=False,
            respect_retry_after_header=False,  # a server may not make us wait for an hour
            redirect=0,
        )
        session = requests.Session()
        session.trust_env = False
        super().__init__(url=clean_url(url).rstrip("/"), session=session, retry=retry, method="POST")
        self._adapter = DeadlineAdapter(max_retries=retry)
        session.mount(self.url, self._adapter)  # the parent has just put its own there

    def __repr__(self) -> str:
        return f"Prometheus({shown(self.url)!r})"

    def raw(self, selector: str, window: Window) -> list[Raw]:
        """
        All raw samples of ``selector`` in ``window``, whose ends are cut to whole milliseconds; in parts where one answer is too
        much.

        Native histograms have no raw float: they are left out, and a problem. Raises SourceUnavailable, or SourceRejected for a
        query that Prometheus refuses, or of which a single second is too much.
        """
        try:
            return [self._raw(selector, window)]
        except _TooMuch as error:
            if window.end - window.start <= SECOND:
                raise SourceRejected(f"{error}; even one second is too much: narrow the matchers") from None
        halves = window.split((window.end - window.start) // 2 // MILLISECOND * MILLISECOND)
        return [raw for half in halves for raw in self.raw(selector, half)]

    def _raw(self, selector: str, window: Window) -> Raw:
        """One answer."""
        start, end = window.start // MILLISECOND, window.end // MILLISECOND
        answer = self._query(f"{selector}[{end - start}ms]", f"{(end - 1) // 1000}.{(end - 1) % 1000:03d}")
        problems = [f"{self!r}: {printable(text, 300)}" for text in answer.warnings]
        data = answer.data
        if data is None or data.resultType != "matrix":
            raise SourceRejected(f"{self!r}: {printable(selector)} gave no range of samples")
        native = sum(1 for series in data.result if series.histograms)
        if native:
            problems.append(f"{self!r}: {native} series of {printable(selector)} are native histograms, which are not read")
        found = data.result
        lengths = [len(series.values) for series in found]
        points = list(chain.from_iterable(series.values for series in found))
        samples = pl.DataFrame(
            {
                "number": pl.Series(chain.from_iterable(repeat(n, k) for n, k in enumerate(lengths)), dtype=pl.UInt32),
                "at": pl.Series([at for at, _ in points], dtype=pl.Float64),
                "value": pl.Series([value for _, value in points], dtype=pl.String).cast(pl.Float64, strict=False),
            }
        )
        at = (pl.col("at") * 1000).round().cast(pl.Int64)
        inside = at.is_between(start, end, closed="left")
        samples = samples.filter(inside).with_columns(at * MILLISECOND)
        return Raw(tuple(series.metric for series in found), samples, tuple(problems))

    def _query(self, promql: str, at: str) -> _Answer:
        """One instant query."""
        what = promql.partition("[")[0]  # without its range: the same trouble is the same words at every tick
        doing = f"asking {shown(self.url)} for {printable(what)}"
        headers: dict[str, str | bytes] = {"Accept-Encoding": "identity"}
        headers |= {name: secret.reveal().encode() for name, secret in self._credentials.secret_headers().items()}
        self._credentials.apply(self._session)
        body = bytearray()
        with self._adapter.within(self._deadline_seconds) as passed:
            try:
                response = self._session.post(
                    f"{self.url}/api/v1/query",
                    data={"query": promql, "time": at},
                    headers=headers,
                    timeout=self._seconds,
                    stream=True,
                    allow_redirects=False,
                )
                with response:
                    for chunk in response.iter_content(1 << 18):
                        body += chunk
                        if len(body) > self._max_bytes:
                            raise _TooMuch(f"{doing}: more than {self._max_bytes} bytes")
            except (requests.RequestException, HTTPError, OSError, UnicodeError) as error:
                if passed():
                    raise SourceUnavailable(f"{doing}: not finished after {self._deadline_seconds:g} s") from None
                raise translate(error, doing) from None
        if passed():
            raise SourceUnavailable(f"{doing}: not finished after {self._deadline_seconds:g} s")
        check_not_html(response.headers.get("content-type", ""), bytes(body[:256]), doing)
        return _decoded(response.status_code, bytes(body), doing)


def _decoded(status: int, body: bytes, doing: str) -> _Answer:
    """The answer, or the error it means: a refusal in Prometheus' own words where it has some."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, RecursionError) as error:
        check_status(status, doing)
        raise SourceRejected(f"{doing}: not the answer of a Prometheus ({error})") from None
    if answer.status == "success" and 200 <= status < 300:
        return answer
    said = f"{doing}: {answer.errorType}: {printable(answer.error, 500)}"
    if "too many samples" in answer.error or "exceeds the limit" in answer.error:
        raise _TooMuch(said)
    if status in {408, 429} or status >= 500 or answer.errorType in {"timeout", "canceled", "internal", "unavailable"}:
        raise SourceUnavailable(said)
    raise SourceRejected(said)


@dataclass(frozen=True, slots=True)
class PodLabels:
    """
    Which labels of a series say whose it is. The first one that a series has counts; ``default_*`` where it has none.

    A series with none of the ``pod`` labels belongs to no pod we know: it is left out, and counted.
    """

    pod: Sequence[str] = ("pod", "instance")
    cluster: Sequence[str] = ("cluster",)
    pool: Sequence[str] = ("pool", "inference_pool")
    role: Sequence[str] = ("role",)
    default_cluster: str = "default"
    default_pool: str = ""
    default_role: str = ""

    def pod_id(self, labels: Mapping[str, str]) -> PodId | None:
        """The pod a series is about; None where no label names one."""
        pod = _first(labels, self.pod, "")
        if not pod:
            return None
        return PodId(
            _first(labels, self.cluster, self.default_cluster),
            pod,
            _first(labels, self.pool, self.default_pool),
            _first(labels, self.role, self.default_role),
        )

    def rest(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels that are no part of the identity: what makes two series of one pod two."""
        used = {*self.cluster, *self.pool, *self.role, "__name__"} | {next((name for name in self.pod if labels.get(name)), "")}
        return {name: text for name, text in labels.items() if name not in used}


def _first(labels: Mapping[str, str], candidates: Sequence[str], default: str) -> str:
    return next((labels[name] for name in candidates if labels.get(name)), default)


@dataclass(frozen=True, slots=True)
class Reading:
    """
    How far and how much at once (µs): ``history`` before ``until`` on the first read; ``lag`` read again each time, for late
    samples (at least two scrapes); ``settle`` before ``until`` not read yet; ``interval`` between scrapes and ``samples`` in one
    answer, which bound its window; ``span`` read of one stream in one tick at most, so that catching up starves nobody.

    Every ``again`` it is read ``back`` from its position instead of the lag, as far as this process has read before: samples
    later than the lag are stored then, and counted as late.
    """

    history: int = HOUR
    lag: int = 2 * MINUTE
    settle: int = 5 * SECOND
    interval: int = 15 * SECOND
    samples: int = 500_000
    span: int = 6 * HOUR
    again: int = 10 * MINUTE
    back: int = HOUR


class PrometheusSamples:
    """
    `samples` from one Prometheus: one stream ``prom/<id>/<metric>`` per metric, position the exclusive end of what was read (µs).

    ``matchers`` are put in every selector (``namespace="llm"``). A lag is read again at each tick: rows carry (series, at), and
    the store keeps the first. A metric that is refused is a problem and stays where it is; SourceUnavailable or SourceRejected
    are raised where no metric could be read. Values that are not finite are left out and counted; staleness markers never arrive
    in a raw range.
    """

    def __init__(
        self,
        name: str,
        prometheus: Prometheus,
        *,
        matchers: str = "",
        pod_labels: PodLabels | None = None,
        reading: Reading | None = None,
        metrics: Sequence[str] = (*vllm.SERIES, names.LORA_REQUESTS_INFO),
        known: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self.name = name
        self.table = SAMPLES
        self._prometheus = prometheus
        self._matchers = matchers
        self._pods = pod_labels or PodLabels()
        self._reading = reading or Reading()
        # The stock gauge comes last: where residents are named it is not read (see vllm.read_page).
        self._metrics = sorted(metrics, key=lambda metric: metric == names.LORA_REQUESTS_INFO)
        self._known = known
        self._lengths: dict[str, int] = {}
        self._looked_back = 0
        self._begun: dict[str, int] = {}

    def read(self, positions: Mapping[str, int], until: int) -> Batch:
        """Every metric from its position less the lag, to ``until`` less what is to settle."""
        frames: list[pl.DataFrame] = []
        moved: dict[str, int] = {}
        problems: list[str] = []
        failures: list[SourceError] = []
        named: set[tuple[str, str]] = set()
        end = (until - self._reading.settle) // MILLISECOND * MILLISECOND
        look_back = end - self._looked_back >= self._reading.again
        late_before: int | None = None
        for metric in self._metrics:
            name = stream("prom", self.name, metric)
            known = positions.get(name)
            position = end - self._reading.history if known is None else known
            self._begun.setdefault(name, position - self._reading.lag)
            lag = self._reading.lag
            if look_back and known is not None:
                late_before = min(known - lag, late_before or known)
                lag = max(lag, min(self._reading.back, known - self._begun[name]))
            try:
                for window in self._windows(metric, position, lag, min(end, position + self._reading.span)):
                    frames += self._rows(metric, window, named, problems)
                    moved[name] = max(position, window.end)
            except SourceError as error:
                failures.append(error)
                problems.append(f"{metric}: {error}")
                self._lengths[metric] = self._lengths.get(metric, HOUR) // 2  # it may have been too much to do in time
                if isinstance(error, SourceUnavailable) and not moved and len(failures) >= _GIVE_UP:
                    break  # nobody answers: the others would wait as long, one by one
        if failures and not moved:
            raise failures[0]
        if look_back:
            self._looked_back = end
        moved = {name: position for name, position in moved.items() if position > positions.get(name, -1)}
        rows = pl.concat(frames) if frames else pl.DataFrame(schema=dict(COLUMNS))
        rows = rows.unique(["series", "at"], keep="first", maintain_order=True)
        return Batch(SAMPLES.conform(rows), moved, tuple(dict.fromkeys(problems)), late_before)

    def _windows(self, metric: str, position: int, lag: int, end: int) -> Iterator[Window]:
        """Consecutive windows from the lag before ``position`` to ``end``, each as long as its answer may be."""
        start = max(0, (position - lag) // MILLISECOND * MILLISECOND)
        while start < end and position < end:
            length = max(SECOND, min(self._lengths.get(metric, HOUR), MAX_POINTS * self._reading.interval))
            window = Window(start, min(end, start + length))
            yield window
            start = window.end

    def _rows(self, metric: str, window: Window, named: set[tuple[str, str]], problems: list[str]) -> list[pl.DataFrame]:
        """The rows of one metric in one window; learns how long the next window may be."""
        matchers = ",".join(part for part in (f'__name__="{metric}"', self._matchers) if part)
        frames = []
        height = 0
        for raw in self._prometheus.raw(f"{{{matchers}}}", window):
            problems += raw.problems
            height += raw.samples.height
            if raw.samples.height:
                gauge = metric == names.LORA_REQUESTS_INFO
                frames.append(self._in_flight(raw, named, problems) if gauge else self._plain(metric, raw, named, problems))
        length = window.end - window.start
        self._lengths[metric] = min(length * self._reading.samples // max(height, 1), self._reading.span)
        return frames

    def _plain(self, metric: str, raw: Raw, named: set[tuple[str, str]], problems: list[str]) -> pl.DataFrame:
        """Samples as they are, each series mapped once."""
        attributes = []
        for number, labels in enumerate(raw.labels):
            if (pod := self._pods.pod_id(labels)) is None:
                continue
            if metric in (names.ADAPTER_LOADED, names.GPU_ADAPTERS):
                named.add((pod.cluster, pod.pod))
            row = sample_row(pod, 0, vllm.RENAMED.get(metric, metric), 0.0, self._pods.rest(labels), self.name)
            attributes.append({"number": number, **row})
        self._strangers(len(raw.labels) - len(attributes), metric, problems)
        finite = raw.samples.filter(pl.col("value").is_finite())
        if finite.height < raw.samples.height:
            problems.append(f"{metric}: {raw.samples.height - finite.height} values are NaN or infinite and were left out")
        return _joined(finite, attributes, ("at", "value"))

    def _in_flight(self, raw: Raw, named: set[tuple[str, str]], problems: list[str]) -> pl.DataFrame:
        """
        The stock gauge: at each instant and for each target, only the series with the newest time stamp; then its names.

        A target is a pod and every label but the gauge's own: two servers behind one pod are looked at apart.
        """
        pods = [self._pods.pod_id(labels) for labels in raw.labels]
        self._strangers(pods.count(None), names.LORA_REQUESTS_INFO, problems)
        rest = [
            {name: text for name, text in self._pods.rest(labels).items() if name not in _GAUGE_LABELS} for labels in raw.labels
        ]
        targets = [labels_json({"pod": repr(pod), **own}) for pod, own in zip(pods, rest, strict=True)]
        series = pl.DataFrame({"target": targets, "stranger": [pod is None for pod in pods]}).with_row_index("number")
        looks = (
            raw.samples.join(series.filter(~pl.col("stranger")), on="number")
            .with_columns(time=vllm.gauge_times(pl.col("value"), pl.col("at") / SECOND))
            .with_columns(usable=pl.col("time").is_not_null())
        )
        if unusable := looks.filter(~pl.col("usable")).height:
            problems.append(
                f"{names.LORA_REQUESTS_INFO}: {unusable} values are no time stamps near ours; is a pod's clock wrong?"
            )
        newest = looks.filter("usable").sort("time", "number").group_by("target", "at").last()
        attributes: list[dict[str, Any]] = []
        for number in newest["number"].unique().sort():
            pod = pods[number]
            if pod is None:
                continue
            seen = vllm.in_flight(raw.labels[number], self._known())
            problems += [f"pod {printable(pod.pod)}: {problem}" for problem in seen.problems]
            adapters = (pod.cluster, pod.pod) not in named
            rows = vllm.in_flight_rows(pod, 0, seen, self.name, adapters=adapters, labels=rest[number])
            attributes += [{"number": number, **row} for row in rows]
        return _joined(newest, attributes, ("at",))

    def _strangers(self, count: int, metric: str, problems: list[str]) -> None:
        if count:
            problems.append(f"{metric}: {count} series have none of the labels {', '.join(self._pods.pod)} and were left out")


_GAUGE_LABELS = frozenset({"max_lora", "running_lora_adapters", "waiting_lora_adapters"})


def _joined(samples: pl.DataFrame, attributes: Sequence[Mapping[str, Any]], taken: Collection[str]) -> pl.DataFrame:
    """Rows of `samples`: ``taken`` columns come from ``samples``, the others from the attributes of the series' number."""
    schema: dict[str, pl.DataType] = {"number": pl.UInt32(), **COLUMNS}
    wide = pl.DataFrame(attributes, schema=schema, orient="row").drop(*taken)
    return samples.select("number", *taken).join(wide, on="number", maintain_order="left_right").select(list(COLUMNS))
