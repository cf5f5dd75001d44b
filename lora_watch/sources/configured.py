"""Which sources a configuration asks for: the one place that turns settings into targets, credentials and sources."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from lora_watch import names
from lora_watch.config import CredentialSettings, GpuExporterSettings, PrometheusSettings, RouterSettings, Settings
from lora_watch.errors import ConfigError
from lora_watch.model import SECOND, PodId
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.sources import vllm
from lora_watch.sources.agent import AgentEvents, AgentRequests, AgentStatus, Doors
from lora_watch.sources.agent_files import AgentLogFiles, LogFolder
from lora_watch.sources.base import Source
from lora_watch.sources.dcgm import Dcgm
from lora_watch.sources.epp import Epp
from lora_watch.sources.http import NO_CREDENTIALS, Credentials
from lora_watch.sources.placed import PlacedPages, PlacedSamples, System
from lora_watch.sources.prometheus import PodLabels, Prometheus, PrometheusSamples, Reading
from lora_watch.sources.request_log import Reader, load_formats
from lora_watch.sources.request_log_files import RequestLog, RequestLogs
from lora_watch.sources.scrape import PodMetrics
from lora_watch.sources.targets import Target, TargetFiles, Targets

VLLM_METRICS = (*vllm.SERIES, names.LORA_REQUESTS_INFO)
"""What is read of vLLM in a Prometheus."""


def sources_of(settings: Settings, clock: Callable[[], int]) -> tuple[Source, ...]:
    """
    Every source the settings name, in the order they should first be read; empty where they name nothing. ``clock`` gives µs UTC.

    Their names are ``pods``, ``agents-events``, ``agents-requests``, ``agents-status``, ``files-events``, ``files-requests``,
    ``request-logs``, ``routers``, ``gpus`` and the names of the Prometheus servers, with ``-router`` and ``-gpu`` for what else
    is read of them. Raises ConfigError where a request log has a format that nobody knows.
    """
    collect = settings.collect
    interval = _micros(collect.interval)
    sources: list[Source] = []
    if settings.targets or settings.target_files:
        targets = targets_of(settings)
        doors = doors_of(settings)
        sources += [
            AgentEvents("agents-events", targets, records_per_stream=collect.events_per_tick, doors=doors),
            AgentRequests("agents-requests", targets, records_per_stream=collect.events_per_tick, doors=doors),
            AgentStatus("agents-status", targets, clock, interval, doors=doors),
            pod_metrics_of(settings, targets),
        ]
    if settings.event_logs:
        folders = [LogFolder(log.folder, PodId(settings.cluster, log.pod, log.pool, log.role)) for log in settings.event_logs]
        sources += [
            AgentLogFiles(name, table, folders, records_per_stream=collect.events_per_tick)
            for name, table in (("files-events", ADAPTER_EVENTS), ("files-requests", REQUESTS))
        ]
    if settings.request_logs:
        sources.append(RequestLogs("request-logs", request_logs_of(settings), lines_per_stream=collect.events_per_tick))
    for name, system, found in (
        ("routers", epp_of(settings), settings.routers),
        ("gpus", dcgm_of(settings), settings.gpus.exporters),
    ):
        if found:
            sources.append(_pages(settings, name, system, found))
    for server in settings.prometheus:
        reading = Reading(history=_micros(server.history), lag=_micros(server.lag), settle=0)
        sources += prometheus_sources(settings, server, server.name, pod_labels_of(settings, server), reading)
    return tuple(sources)


def pod_labels_of(settings: Settings, server: PrometheusSettings) -> PodLabels:
    """Which labels of a server's series say whose they are."""
    return PodLabels(
        pod=(server.pod_label, "instance"),
        cluster=(server.cluster_label,),
        pool=(server.pool_label,),
        role=(server.role_label,),
        default_cluster=settings.cluster,
    )


def prometheus_sources(
    settings: Settings,
    server: PrometheusSettings,
    name: str,
    labels: PodLabels,
    reading: Reading,
    *,
    metrics: Sequence[str] | None = None,
) -> list[Source]:
    """One source for each system read of a server; ``name`` is theirs and their streams'. ``metrics``: only these of vLLM's."""
    collect = settings.collect
    timeout = (collect.connect_timeout.total_seconds(), 6 * collect.read_timeout.total_seconds())
    placed: dict[str, System] = {"router": epp_of(settings), "gpu": dcgm_of(settings)}
    made: list[Source] = []
    for kind in dict.fromkeys(server.systems):
        door = Prometheus(server.url, credentials_of(settings, server.credentials), timeout=timeout)
        if kind == "vllm":
            wanted = VLLM_METRICS if metrics is None else metrics
            made.append(
                PrometheusSamples(name, door, matchers=server.selector, pod_labels=labels, reading=reading, metrics=wanted)
            )
        else:
            made.append(
                PlacedSamples(f"{name}-{kind}", door, placed[kind], matchers=server.selector, pod_labels=labels, reading=reading)
            )
    return made


def request_logs_of(settings: Settings) -> list[RequestLog]:
    """The request logs the settings name. Raises ConfigError for a format that nobody knows."""
    formats = load_formats(settings.request_log_formats)
    logs = []
    for number, entry in enumerate(settings.request_logs):
        if entry.format not in formats:
            raise ConfigError(f"request_logs[{number}].format {entry.format!r} is not known; known here: {', '.join(formats)}")
        pod = PodId(settings.cluster, entry.pod, entry.pool, entry.role)
        reader = Reader(formats[entry.format], pod, "request-logs", frozenset(settings.base_models), entry.pods)
        logs += [RequestLog(file, reader) for file in entry.files]
    return logs


def epp_of(settings: Settings) -> Epp:
    """The router, with the names that are no adapters."""
    return Epp(settings.base_models)


def dcgm_of(settings: Settings) -> Dcgm:
    """The GPU exporter, with the GPUs whose pod the settings name."""
    return Dcgm(
        {(gpu.host, gpu.gpu, gpu.instance): PodId(settings.cluster, gpu.pod, gpu.pool, gpu.role) for gpu in settings.gpus.pods}
    )


def _pages(settings: Settings, name: str, system: System, found: Sequence[RouterSettings | GpuExporterSettings]) -> PlacedPages:
    """The pages of exporters that are no engines."""
    collect = settings.collect
    targets = [
        Target(
            cluster=settings.cluster,
            pod=one.pod or _host(one.metrics),
            pool=one.pool if isinstance(one, RouterSettings) else "",
            metrics_url=one.metrics,
            credentials=credentials_of(settings, one.credentials),
        )
        for one in found
    ]
    return PlacedPages(
        name,
        Targets(targets),
        system,
        _micros(collect.interval),
        threads=collect.threads,
        timeout=(collect.connect_timeout.total_seconds(), collect.read_timeout.total_seconds()),
        deadline_seconds=collect.deadline.total_seconds(),
        max_bytes=collect.page_bytes,
    )


def doors_of(settings: Settings) -> Doors:
    """How sidecars are reached."""
    collect = settings.collect
    timeout = (collect.connect_timeout.total_seconds(), collect.read_timeout.total_seconds())
    return Doors(threads=collect.threads, timeout=timeout, deadline_seconds=collect.deadline.total_seconds())


def pod_metrics_of(settings: Settings, targets: Targets) -> PodMetrics:
    """The direct scrape of these targets."""
    collect = settings.collect
    return PodMetrics(
        "pods",
        targets,
        _micros(collect.interval),
        threads=collect.threads,
        timeout=(collect.connect_timeout.total_seconds(), collect.read_timeout.total_seconds()),
        deadline_seconds=collect.deadline.total_seconds(),
        max_bytes=collect.page_bytes,
    )


def targets_of(settings: Settings) -> Targets:
    """The pods the settings name, one by one and in files."""
    fixed = [
        Target(
            cluster=settings.cluster,
            pod=target.pod or _host(target.agent or target.metrics or ""),
            pool=target.pool,
            role=target.role,
            metrics_url=target.metrics or "",
            agent_url=target.agent or "",
            credentials=credentials_of(settings, target.credentials),
        )
        for target in settings.targets
    ]
    files = [
        TargetFiles(
            paths=entry.files,
            cluster=settings.cluster,
            agent_port=entry.agent_port or 0,
            credentials=credentials_of(settings, entry.credentials),
        )
        for entry in settings.target_files
    ]
    return Targets(fixed, files)


def credentials_of(settings: Settings, name: str | None) -> Credentials:
    """The named credentials; none where there is no name. The name exists: the configuration was checked."""
    if name is None:
        return NO_CREDENTIALS
    stored: CredentialSettings = settings.credentials[name]
    texts = {
        key: None if value is None else str(value) for key, value in stored.model_dump(exclude={"verify", "headers"}).items()
    }
    return Credentials(**texts, verify=stored.verify, headers=stored.headers)


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0] or url


def _micros(length: timedelta) -> int:
    return round(length.total_seconds() * SECOND)
