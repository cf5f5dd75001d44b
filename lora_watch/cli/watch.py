"""Commands that run something: the service, the agent, the explorer, the demo, the simulator."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lora_watch.cli.options import DEFAULT_CONFIG, ConfigFile, DataFolder
from lora_watch.cli.settings import fail, guarded, open_store, read_settings

if TYPE_CHECKING:
    from polars import DataFrame

    from lora_watch.explore.situation import Finder
    from lora_watch.report.scheduled import Scheduled


def serve(config: ConfigFile = DEFAULT_CONFIG) -> None:
    """Collect, store, derive, diagnose and publish until told to stop (SIGTERM or Ctrl-C)."""
    from functools import cache

    from lora_watch.service import Service, set_up_logging, wall_clock
    from lora_watch.sources.configured import sources_of

    settings = read_settings(config)
    set_up_logging(settings.log)
    sources = sources_of(settings, wall_clock)
    if not sources:
        fail(f"{config} names nothing to watch: add `targets`, `target_files`, `event_logs`, `routers`, `gpus` or `prometheus`")

    @cache
    def finder() -> "Finder":
        from lora_watch.explore.signals import signals
        from lora_watch.explore.situation import Finder  # its kernels take a second to load: collecting need not wait for it

        return Finder(
            service.store,
            settings,
            lambda problems: service.report("files of diagnose", problems),
            see=lambda told, found: service.exporter.publish_signals(signals(service.store, told, found)),
        )

    @cache
    def reporter() -> "Scheduled":
        from lora_watch.report.scheduled import Scheduled

        return Scheduled(service.store, settings)

    def advice(now: int) -> "DataFrame":
        from lora_watch.explore.stored_advice import apart

        return apart(service.store, settings, now)

    report = (lambda now: reporter().run(now)) if settings.report.enabled else None
    service = Service(settings, sources, find=lambda window: finder()(window), report=report, advise=advice)
    guarded(service.run)


def agent(context: typer.Context) -> None:
    """Run the sidecar beside an engine (the same as `lora-watch-agent`; its own --help tells more)."""
    from lora_watch.agent.main import main as agent_main

    raise typer.Exit(agent_main(context.args))


def explore(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65_535)] = 8501,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    base_path: Annotated[str, typer.Option(help="Path under which a reverse proxy shows it, such as /lora-watch.")] = "",
) -> None:
    """Show it in a browser: now, over time, by adapter, what swaps cost, what would help. It reads, and changes nothing."""
    from lora_watch.explore import start

    def run() -> None:
        named = config if data is None or config != DEFAULT_CONFIG or config.exists() else None
        if named is not None:
            read_settings(named)
        open_store(config, data)
        program = start.command(host, port, base_path)
        path = f"/{base_path.strip('/')}" if base_path.strip("/") else ""
        typer.echo(f"explorer  http://{f'[{host}]' if ':' in host else host}:{port}{path}")
        start.run(program, start.environment(os.environ, named, data))

    guarded(run)


def demo(
    scenario: Annotated[str, typer.Option(help="Name of a scenario that comes along, or a YAML file.")] = "thursday",
    speed: Annotated[float, typer.Option(help="How many times as fast as time it runs.")] = 60.0,
    days: Annotated[int, typer.Option(help="Days of history that are laid meanwhile; 0: none.")] = 30,
    stay: Annotated[
        bool | None,
        typer.Option("--stay/--no-stay", help="Go on once the change was told; by default on a terminal only."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder that keeps the tables; by default they are removed at the end.")
    ] = None,
    *,
    residency_gauges: Annotated[
        bool, typer.Option("--residency-gauges", help="Its engines show who is in their slots, as an open proposal to vLLM does.")
    ] = False,
) -> None:
    """Start a simulated cluster and the ordinary service against it, and show what it sees."""
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:500,muzzy_decay_ms:0")  # what polars frees goes back at once
    from lora_watch.demo import run

    staying = sys.stdin.isatty() if stay is None else stay
    guarded(lambda: run(data, scenario=scenario, speed=speed, days=days, stay=staying, residency_gauges=residency_gauges))


def simulate(
    scenario: Annotated[str, typer.Option(help="Name of a scenario that comes along, or a YAML file.")],
    out: Annotated[Path, typer.Option(help="Folder for the tables and truth.json; it must hold no tables yet.")],
    days: Annotated[float | None, typer.Option(help="How many days; the scenario's own number where absent.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same rows.", min=0)] = 1,
) -> None:
    """Lay the tables of a simulated cluster whose truth is known, to try everything else on."""

    def run() -> None:
        from rich.console import Console
        from rich.progress import Progress

        from lora_watch.simulate.scenario import load
        from lora_watch.simulate.write import give_memory_back
        from lora_watch.simulate.write import simulate as lay

        give_memory_back()
        chosen = load(scenario)
        length = chosen.days if days is None else days
        if not 0 < length <= 366:
            fail(f"a simulation takes up to 366 days, not {length:g}")
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(f"simulating {length:g} days of {chosen.name}", total=1.0)
            laid = lay(chosen, length, seed, out, told=lambda share: bar.update(task, completed=share))
        what = f"{laid.requests:,} requests, {laid.events:,} adapter events, {laid.samples:,} samples"
        typer.echo(f"{chosen.name}: {what} in {out}; what is true of it in {out / 'truth.json'}")
        end = datetime.fromtimestamp(laid.window.end / 1e6, UTC).isoformat()
        typer.echo(f"look: lora-watch status --data {out} --at {end} --last 1h")

    guarded(run)


def derive_hours(config: ConfigFile = DEFAULT_CONFIG, data: DataFolder = None) -> None:
    """Work out what every closed hour says, so that wide windows of the explorer open at once; `serve` does it by itself."""
    from functools import partial

    from rich.console import Console
    from rich.progress import track

    from lora_watch.explore import hours
    from lora_watch.explore.queries import newest
    from lora_watch.jobs import close_hours
    from lora_watch.model import HOUR
    from lora_watch.service import wall_clock

    def run() -> None:
        store, lookback = open_store(config, data)
        now = wall_clock()
        end = newest(store, now)
        if end is not None and now - end > HOUR:  # nothing is written any more: the hour in which the data end is closed too
            end += HOUR - 1
        days = [] if end is None else hours.stale(store, end)
        for day in track(days[::-1], "working out days", console=Console(stderr=True), transient=True):
            close_hours(store, lambda _, day=day: [day], partial(hours.of_day, store, lookback=lookback), until=day.end)  # type: ignore[misc]  # a lambda's default has no type
        typer.echo(f"{len(days)} days worked out in {store.root}; the others were already")

    guarded(run)
