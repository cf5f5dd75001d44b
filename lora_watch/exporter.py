"""
The service's own ``/metrics``: what was derived, and how the watcher itself is doing.

Labels are bounded: per pod at most ``adapters`` adapters have series of their own (most requests and loads first), the rest is
one series called ``other`` where the figure adds up, and none where it does not (a quantile of a sum is no sum of quantiles).
Unknown is an absent series, never 0. Every derived series carries its own ``provenance``: the worst of what it was made from.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import polars as pl
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lora_watch import links, names
from lora_watch.derive.groups import POD, POOL
from lora_watch.diagnose.finding import Finding
from lora_watch.diagnose.life import State
from lora_watch.diagnose.words import percent
from lora_watch.model import Provenance

OTHER = "other"
FINDINGS_SHOWN = 100
"""Open findings with series of their own, the gravest and then the newest first."""
CUT = 300
"""Characters of a text that becomes a label."""
EVIDENCE_SHOWN = 3


class Derived(Protocol):
    """What the exporter needs of an overview: one frame a pod, one a pod and adapter."""

    @property
    def pods(self) -> pl.DataFrame: ...  # one row a pod
    @property
    def adapters(self) -> pl.DataFrame: ...  # one row a pod and adapter


class Told(Protocol):
    """What the exporter needs of a look for findings: see :class:`lora_watch.explore.signals.Signals`."""

    @property
    def pods(self) -> pl.DataFrame: ...  # one row a pod
    @property
    def pools(self) -> pl.DataFrame: ...  # one row a pool
    @property
    def working_set(self) -> pl.DataFrame: ...  # one row a pool and span
    @property
    def load_seconds(self) -> pl.DataFrame: ...  # one row a pool and phase


@dataclass(frozen=True, slots=True)
class Series:
    """One family made of columns: ``columns`` maps a value of the label ``by`` to the column that holds it."""

    part: str  # of the overview: whose provenance it bears
    name: str
    help: str
    columns: tuple[tuple[str, str], ...]
    by: str | None = None
    adds_up: bool = False
    labels: tuple[str, ...] = ()  # further columns that become labels


POD_SERIES = (
    Series(
        "residency",
        names.RESIDENCY_SECONDS,
        "Quantile of how long an adapter stays in a slot, Kaplan-Meier over the window",
        (("0.5", "p50_seconds"), ("0.95", "p95_seconds")),
        by="quantile",
    ),
    Series(
        "residency",
        names.RESIDENCY_STAYS,
        "Stays in the window: completed, still open or cut off (censored), begun unseen (left_truncated)",
        (("completed", "completed"), ("censored", "censored"), ("left_truncated", "left_truncated")),
        by="state",
    ),
    Series(
        "swaps",
        names.SWAPS_PER_SECOND,
        "Evictions from a GPU slot to make room, per second the engine was up in the window",
        (("", "swaps_per_second"),),
    ),
    Series(
        "swaps",
        names.LOADS_PER_SECOND,
        "Loads into a GPU slot per second the engine was up in the window, by where the adapter was",
        (("cpu", "warm_loads_per_second"), ("disk", "cold_loads_per_second")),
        by="from_tier",
    ),
    Series("occupancy", names.SLOTS, "GPU slots (max_loras)", (("", "slots"),)),
    Series(
        "occupancy", names.RESIDENT_ADAPTERS, "Adapters in a GPU slot, time average over the window", (("", "resident_adapters"),)
    ),
    Series(
        "occupancy",
        names.OCCUPANCY_RATIO,
        "Resident adapters over slots, time average; 1 in any warm pod",
        (("", "occupancy_ratio"),),
    ),
    Series(
        "occupancy",
        names.ACTIVE_ADAPTERS,
        "Distinct adapters in flight or queued at least once in the window",
        (("", "active_adapters"),),
    ),
    Series(
        "occupancy", names.ACTIVE_PER_SLOT, "Active adapters over slots; above 1 some must swap", (("", "active_per_slot_ratio"),)
    ),
    Series(
        "misses",
        names.MISS_RATIO,
        "Requests whose adapter was not in a slot when scheduled, over requests with an adapter",
        (("", "miss_ratio"),),
    ),
    Series(
        "misses",
        names.REQUESTS,
        "Requests with an adapter that finished in the window, by where the adapter was",
        (("hot", "hot"), ("warm", "warm_requests"), ("cold", "cold_requests"), ("unknown", "unknown")),
        by="lookup",
    ),
    Series("misses", names.GHOST_HITS, "Hits whose adapter was evicted within 30 s", (("", "ghost_hits"),)),
    Series(
        "swap_queue",
        names.SWAP_QUEUE_DEPTH,
        "Requests waiting for an adapter that was not in a slot",
        (("mean", "swap_queue_mean"), ("max", "swap_queue_max")),
        by="statistic",
    ),
    Series(
        "inference_share",
        names.INFERENCE_SHARE,
        "Share of GPU wall time spent on inference, with its grade: A CUDA events, A- host time, B busy GPU, C interval from GPU "
        "counters, D upper bound by activity",
        (("low", "share_low"), ("high", "share_high")),
        by="bound",
        labels=("grade",),
    ),
    Series(
        "inference_share",
        names.GPU_BUSY,
        "Share of time the pod's GPUs read busy, whatever with: what dashboards show",
        (("", "busy_ratio"),),
    ),
    Series(
        "little",
        names.LITTLE_RESIDUAL,
        "Little's law: relative gap between occupied slots and load rate x mean stay; 0 on complete data",
        (("", "little_residual_ratio"),),
    ),
)
ADAPTER_SERIES = (
    Series(
        "residency",
        names.ADAPTER_STAY_SECONDS,
        "Quantile of how long this adapter stays in a slot, Kaplan-Meier over the window",
        (("0.5", "p50_seconds"), ("0.95", "p95_seconds")),
        by="quantile",
    ),
    Series(
        "residents", names.ADAPTER_RESIDENT, "1 while the adapter is in a GPU slot at the end of the window", (("", "resident"),)
    ),
    Series(
        "misses",
        names.ADAPTER_REQUESTS,
        "Requests for this adapter that finished in the window",
        (("", "requests"),),
        adds_up=True,
    ),
    Series("swaps", names.ADAPTER_LOADS, "Loads of this adapter into a GPU slot in the window", (("", "loads"),), adds_up=True),
)


_MINUTES = "in the ten minutes before the last look for findings"
RECENT_SERIES = tuple(
    Series("recent", name, f"{help} {_MINUTES}", (("", column),))
    for name, column, help in (
        (names.RECENT_SWAPS, "swaps_per_second", "Evictions from a GPU slot to make room, per second,"),
        (names.RECENT_LOADS, "loads_per_second", "Loads into a GPU slot, per second,"),
        (names.RECENT_COLD_LOADS, "cold_loads_per_second", "Loads whose adapter had to be read from disk, per second,"),
        (names.RECENT_REQUESTS, "requests_per_second", "Requests with an adapter that finished, per second,"),
        (names.RECENT_MISS_RATIO, "miss_ratio", "Loads per request with an adapter"),
        (names.RECENT_STALL_SHARE, "stall_share", "Share of time that engines stood still for loads"),
        (names.RECENT_SWAP_QUEUE, "swap_queue", "Requests that wait for a slot, mean"),
        (names.RECENT_INFERENCE_SHARE, "share_high", "Share of time spent on inference, upper end,"),
        (names.RECENT_GPU_BUSY, "busy_ratio", "Share of time the pod's GPUs read busy, whatever with,"),
        (names.RECENT_KV_CACHE, "kv_cache", "Share of the KV cache in use, of the fullest engine,"),
        (names.RECENT_LOST, "lost", "Records that could not be kept"),
    )
)
POOL_SERIES = tuple(
    Series("pool", name, help, (("", column),))
    for name, column, help in (
        (names.POOL_ACTIVE_ADAPTERS, "active_adapters", "Distinct adapters asked for in the window of the look for findings"),
        (names.PRESSURE, "pressure", "W(300 s) over the pool's slots; above 1 no mean stay is five minutes"),
        (names.PREDICTED_MISS_RATIO, "predicted_miss_ratio", "Miss ratio that the requests of ten minutes predict at the slots"),
        (names.NEWMASS, "newmass", "Share of requests on adapters first seen within the hour; none while the pool is learned"),
        (names.NEW_ADAPTERS, "new_adapters", "Adapters first seen within the hour"),
        (names.RHO_PEAK, "rho_peak", "How near to its end the pool will be at the peak of the next hours; 1 is the end"),
        (names.RHO_NOW, "rho_now", "How near to its end the pool is now"),
        (names.PEAK_REQUESTS, "peak_rps", "Requests per second expected at the peak of the next hours"),
        (names.IN_FLIGHT_PER_SLOT, "in_flight_per_slot", "Adapters in flight over slots, of the fullest pod"),
        (names.POOL_PHANTOM_SLOTS, "phantom_slots", "Slots held by adapters whose name was withdrawn"),
    )
)
WORKING_SET_SERIES = (
    Series("pool", names.WORKING_SET, "W(T): distinct adapters asked for within T seconds", (("", "adapters"),)),
)
LOAD_SECONDS_SERIES = (
    Series("pool", names.POOL_LOAD_SECONDS, f"Mean seconds of a phase of loads {_MINUTES}", (("", "load_seconds"),)),
)


class Exporter(Collector):
    """Publishes the newest overview and counts what the service does. Thread-safe: an overview is replaced whole."""

    def __init__(self, *, adapters: int, idle_seconds: float = 30.0, explorer: str = links.EXPLORER) -> None:
        self._cap = adapters
        self._explorer = explorer.rstrip("/")
        self._signals: Told | None = None
        self._open: tuple[State, ...] = ()
        self._idle_seconds = idle_seconds
        self._derived: Derived | None = None
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, which nobody reads
        self.registry = CollectorRegistry()
        self.registry.register(self)
        source, job = ["source"], ["job"]
        self.source_success = Gauge(names.SOURCE_LAST_SUCCESS, "When a source was last read", source, registry=self.registry)
        self.source_lag = Gauge(
            names.SOURCE_LAG, "How far behind now the source's last complete read is", source, registry=self.registry
        )
        self.source_rows = Counter(names.SOURCE_ROWS.removesuffix("_total"), "Rows stored", source, registry=self.registry)
        self.source_lost = Counter(
            names.SOURCE_LOST.removesuffix("_total"),
            "Records that were dropped before they could be read",
            source,
            registry=self.registry,
        )
        self.source_late = Counter(
            names.SOURCE_LATE.removesuffix("_total"),
            "Rows that came after their time had been read",
            source,
            registry=self.registry,
        )
        self.source_errors = Counter(
            names.SOURCE_ERRORS.removesuffix("_total"),
            "Reads that failed, and problems of single pods",
            source,
            registry=self.registry,
        )
        self.job_runs = Counter(
            names.JOB_RUNS.removesuffix("_total"), "Runs by outcome", [*job, "outcome"], registry=self.registry
        )
        self.job_seconds = Histogram(names.JOB_SECONDS, "Duration of a run", job, registry=self.registry)
        self.job_success = Gauge(names.JOB_LAST_SUCCESS, "When a job last ended well", job, registry=self.registry)

    def publish(self, derived: Derived) -> None:
        """Replace what is published."""
        self._derived = derived

    def publish_signals(self, signals: Told) -> None:
        """Replace what the last look for findings measured."""
        self._signals = signals

    def publish_findings(self, open_: Iterable[State]) -> None:
        """Replace the findings that are open."""
        self._open = tuple(open_)

    def collect(self) -> Iterator[Metric]:
        """The derived families; called at each scrape."""
        derived, signals = self._derived, self._signals
        if derived is not None:
            yield from families(derived.pods, POD_SERIES, POD)
            yield from families(bounded(derived.adapters, self._cap), ADAPTER_SERIES, (*POD, "adapter"))
        if signals is not None:
            yield from families(signals.pods, RECENT_SERIES, POD)
            yield from families(signals.pools, POOL_SERIES, POOL)
            yield from families(signals.working_set, WORKING_SET_SERIES, (*POOL, "seconds"))
            yield from families(signals.load_seconds, LOAD_SECONDS_SERIES, (*POOL, "phase"))
            yield from open_findings(self._open, self._explorer)

    def serve(self, host: str, port: int) -> tuple[str, "Stop"]:
        """
        Answer on ``host:port`` (0: a free one): the address, and what stops it. Raises OSError where the port is taken.

        A connection on which nothing comes for ``idle_seconds`` is closed.
        """
        server, thread = start_http_server(port, host, self.registry)
        theirs: Any = server.RequestHandlerClass
        idle_seconds = self._idle_seconds

        class Handler(theirs):  # type: ignore[misc]  # a class known at run time only
            timeout = idle_seconds

            def handle(self) -> None:
                with suppress(TimeoutError):
                    super().handle()

        server.RequestHandlerClass = Handler

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics", stop


class Stop(Protocol):
    """Stops what was started, and waits until it has."""

    def __call__(self) -> None: ...


def families(frame: pl.DataFrame, series: Iterable[Series], identity: Sequence[str]) -> Iterator[Metric]:
    """One metric family a ``Series``: a sample for each row and column that is known."""
    for one in series:
        further = [one.by] if one.by else []
        family = GaugeMetricFamily(one.name, one.help, labels=[*identity, *further, *one.labels, "provenance"])
        for label, column in one.columns:
            if column not in frame.columns:
                continue
            known = frame.filter(pl.col(column).is_not_null())
            told = f"{one.part}_provenance" if f"{one.part}_provenance" in frame.columns else "provenance"
            for row in known.select(*identity, *one.labels, told, pl.col(column).cast(pl.Float64)).iter_rows():
                *texts, provenance, value = row
                split = len(identity)
                labels = [*texts[:split], *([label] if one.by else []), *texts[split:], provenance]
                family.add_metric([text or "" for text in labels], value)
        yield family


def open_findings(told: Iterable[State], explorer: str) -> Iterator[Metric]:
    """
    A small series for each open finding, and one that carries its words as labels; at most ``FINDINGS_SHOWN`` of each.

    Words change when a state of the finding is told (opened, worse, better, still there), not at each look, so that a finding has
    a few series in its life. They are cut to ``CUT`` characters, and what is not printable becomes a space. Names of clusters,
    pools and roles are whole, as every other series has them: by these labels an alert finds its words.
    """
    shown = sorted(told, key=lambda one: (-one.finding.severity.rank, -one.opened, one.id))[:FINDINGS_SHOWN]
    who = ("finding", "kind", *POOL)
    small = GaugeMetricFamily(names.OPEN_FINDING, "1 for each open finding", labels=[*who, "severity"])
    words = ("summary", "cause", "evidence", "remedy", "explorer", "provenance")
    info = GaugeMetricFamily(names.FINDING_INFO, "1 for each open finding, with its words", labels=[*who, *words])
    for one in shown:
        finding = one.finding
        where = {name: _encodable(getattr(finding, name)) for name in POOL}
        whose = [_label(one.id), _label(finding.kind), *where.values()]
        small.add_metric([*whose, str(finding.severity)], 1)
        evidence = "; ".join(each.text for each in finding.evidence[:EVIDENCE_SHOWN])
        texts = (finding.summary, finding.cause, evidence, _best(finding))
        info.add_metric([*whose, *(_label(text) for text in texts), _address(explorer, where), finding.provenance], 1)
    yield small
    yield info


def _best(finding: Finding) -> str:
    """The remedy to try first, and what it is predicted to change; empty where there is none."""
    for remedy in finding.remedies:
        effect = "" if remedy.effect is None else f" ({percent(abs(remedy.effect))} of the {remedy.of} "
        return remedy.text + (effect and effect + ("less)" if (remedy.effect or 0) >= 0 else "more)"))
    return ""


def _label(text: str) -> str:
    """A text as a label: printable, on one line, not too long; half a surrogate pair becomes ``?``."""
    plain = "".join(char if char.isprintable() else " " for char in _encodable(text))
    return plain if len(plain) <= CUT else plain[: CUT - 1] + "…"


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _address(explorer: str, where: Mapping[str, str]) -> str:
    """The explorer at whom a finding is about; a name that is too long for an address does not restrict it."""
    named = {name: quoted for name, text in where.items() if text and len(quoted := quote(text, safe="")) <= CUT}
    return links.explorer(explorer, {**named, "last": "1h"})


def _worst(column: str) -> pl.Expr:
    order = {str(provenance): i for i, provenance in enumerate(Provenance)}
    return pl.col(column).drop_nulls().sort_by(pl.col(column).drop_nulls().replace_strict(order, default=len(order))).last()


def bounded(adapters: pl.DataFrame, cap: int) -> pl.DataFrame:
    """
    At most ``cap`` adapters a pod, most requests and then most loads first; the rest is summed into ``other``.

    Columns that do not add up are null in ``other``. An adapter that is really called ``other`` is counted with the rest.
    """
    if adapters.is_empty():
        return adapters
    rank = pl.struct(
        pl.col("requests").fill_null(0).neg().alias("r"),
        pl.col("loads").fill_null(0).neg().alias("l"),
        pl.col("adapter").alias("a"),
    ).rank("ordinal")
    ranked = adapters.with_columns(_rank=rank.over(POD)).with_columns(
        _kept=(pl.col("_rank") <= cap) & (pl.col("adapter") != OTHER)
    )
    kept, rest = ranked.filter("_kept").drop("_rank", "_kept"), ranked.filter(~pl.col("_kept"))
    if rest.is_empty():
        return kept
    sums = [column for one in ADAPTER_SERIES if one.adds_up for _, column in one.columns]
    other = rest.group_by(POD, maintain_order=True).agg(
        pl.lit(OTHER).alias("adapter"),
        *[_worst(name) for name in rest.columns if name.endswith("provenance")],
        *[pl.when(pl.col(c).count() > 0).then(pl.col(c).sum()).alias(c) for c in sums],
    )
    return pl.concat([kept, other.select([c for c in kept.columns if c in other.columns])], how="diagonal_relaxed")
