"""Which sources a configuration asks for: the one place that turns settings into targets, credentials and sources."""

from collections.abc import Callable
from datetime import timedelta

from lora_watch.config import CredentialSettings, Settings
from lora_watch.model import SECOND, PodId
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.sources.agent import AgentEvents, AgentRequests, AgentStatus, Doors
from lora_watch.sources.agent_files import AgentLogFiles, LogFolder
from lora_watch.sources.base import Source
from lora_watch.sources.http import NO_CREDENTIALS, Credentials
from lora_watch.sources.prometheus import PodLabels, Prometheus, PrometheusSamples, Reading
from lora_watch.sources.scrape import PodMetrics
from lora_watch.sources.targets import Target, TargetFiles, Targets


def sources_of(settings: Settings, clock: Callable[[], int]) -> tuple[Source, ...]:
    """
    Every source the settings name, in the order they should first be read; empty where they name nothing. ``clock`` gives µs UTC.

    Their names are ``pods``, ``agents-events``, ``agents-requests``, ``agents-status``, ``files-events``, ``files-requests`` and
    the names of the Prometheus servers.
    """
    collect = settings.collect
    timeout = (collect.connect_timeout.total_seconds(), collect.read_timeout.total_seconds())
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
    for server in settings.prometheus:
        labels = PodLabels(
            pod=(server.pod_label, "instance"),
            cluster=(server.cluster_label,),
            pool=(server.pool_label,),
            role=(server.role_label,),
            default_cluster=settings.cluster,
        )
        reading = Reading(history=_micros(server.history), lag=_micros(server.lag), settle=0)
        door = Prometheus(server.url, credentials_of(settings, server.credentials), timeout=(timeout[0], 6 * timeout[1]))
        sources.append(PrometheusSamples(server.name, door, matchers=server.selector, pod_labels=labels, reading=reading))
    return tuple(sources)


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
