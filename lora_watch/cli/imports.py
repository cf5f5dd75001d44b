"""``lora-watch import``: the past, read into the store."""

from pathlib import Path
from typing import Annotated

import typer

from lora_watch.cli.options import DEFAULT_CONFIG, ConfigFile, DataFolder
from lora_watch.cli.settings import exit_with, writable

import_app = typer.Typer(no_args_is_help=True, help="Read the past into the store; the same command goes on where it stopped.")


@import_app.command("prometheus")
def import_prometheus(
    begin: Annotated[str, typer.Option("--from", help="Where the span begins: a date, or a moment with a zone.")],
    end: Annotated[str | None, typer.Option("--to", help="Where it ends; where the service's own reading began, or now.")] = None,
    server: Annotated[
        str | None, typer.Option(help="Name of the server in the configuration; needed where it has several.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Address of a server that the configuration does not name.")] = None,
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
) -> None:
    """Every raw sample of a span of time that a Prometheus holds."""
    from lora_watch import import_history as history
    from lora_watch.service import wall_clock

    def run() -> int:
        settings, store = writable(config, data)
        chosen = history.server_of(settings, server, url)
        window = history.span(begin, end, history.begun(store, chosen, wall_clock()))
        with history.bar() as show:
            return history.finish(history.from_prometheus(settings, chosen, window, store, wall_clock, show))

    exit_with(run)


@import_app.command("table")
def import_table(
    files: Annotated[list[Path], typer.Argument(help="Parquet, CSV or JSON lines.")],
    table: Annotated[str, typer.Option(help="The table: adapter_events, requests, samples or findings.")],
    provenance: Annotated[str | None, typer.Option(help="How rows are known that do not say it, such as observed.")] = None,
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
) -> None:
    """Rows in the form of one of our own tables."""
    from lora_watch import import_history as history
    from lora_watch.service import wall_clock

    def run() -> int:
        settings, store = writable(config, data)
        filling = history.filling(settings.cluster, provenance)
        with history.bar() as show:
            return history.finish(history.from_tables(files, history.table_named(table), filling, store, wall_clock, show))

    exit_with(run)


@import_app.command("events")
def import_events(
    paths: Annotated[list[Path], typer.Argument(help="Folders of segments, or files of one process each.")],
    pod: Annotated[str, typer.Option(help="The pod that wrote them.")],
    pool: Annotated[str, typer.Option(help="Its pool.")] = "",
    role: Annotated[str, typer.Option(help="Its role.")] = "",
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
) -> None:
    """Event logs that an agent wrote."""
    from lora_watch import import_history as history
    from lora_watch.model import PodId
    from lora_watch.service import wall_clock

    def run() -> int:
        settings, store = writable(config, data)
        whose = PodId(settings.cluster, pod, pool, role)
        with history.bar() as show:
            return history.finish(history.from_event_logs(paths, whose, store, wall_clock, show))

    exit_with(run)


@import_app.command("requests")
def import_requests(
    files: Annotated[list[str], typer.Argument(help="Request logs, compressed (.gz) or not.")],
    format: Annotated[str, typer.Option(help="openai, litellm, envoy, or one of request_log_formats.")],
    pod: Annotated[str, typer.Option(help="The pod of the lines that name none.")],
    pool: Annotated[str, typer.Option(help="Its pool.")] = "",
    role: Annotated[str, typer.Option(help="Its role.")] = "",
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
) -> None:
    """Request logs of a server, a gateway or a proxy."""
    from lora_watch import import_history as history
    from lora_watch.model import PodId
    from lora_watch.service import wall_clock

    def run() -> int:
        settings, store = writable(config, data)
        reader = history.reader_of(settings, format, PodId(settings.cluster, pod, pool, role))
        with history.bar() as show:
            return history.finish(history.from_request_logs(files, reader, store, wall_clock, show))

    exit_with(run)
