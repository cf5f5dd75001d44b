"""Commands that look at what is there: status, check, cost, and what is expected."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lora_watch.cli.options import DEFAULT_CONFIG, AtOrData, CheckFormat, ConfigFile, DataFolder, FailOn, Format, Last
from lora_watch.cli.settings import exit_with, guarded, open_store, read_settings, wanted_settings


def status(
    config: ConfigFile = DEFAULT_CONFIG,
    data: Annotated[Path | None, typer.Option(help="Folder of the tables, instead of the configuration's.")] = None,
    last: Annotated[str, typer.Option(help="Length of the window, such as 15m or 7d.")] = "1h",
    at: AtOrData = None,
    adapters: Annotated[int, typer.Option(help="Adapters to list a pod; 0 lists none.", min=0)] = 10,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """Residency, swaps, occupancy, misses and inference share, per pod and adapter, from what is stored."""
    from lora_watch.explore import status as view
    from lora_watch.service import wall_clock

    def run() -> None:
        store, lookback = open_store(config, data)
        window = view.window_of(last, at)
        shown = view.read(store, window, lookback=lookback, now=wall_clock())
        if format is Format.JSON:
            sys.stdout.write(view.as_json(shown) + "\n")
        else:
            view.show(shown, adapters=adapters)

    guarded(run)


def check(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    prometheus: Annotated[str | None, typer.Option(help="Address of a Prometheus to look at.")] = None,
    pod: Annotated[list[str] | None, typer.Option(help="An engine's page, http://HOST:PORT/metrics; several times.")] = None,
    agent: Annotated[list[str] | None, typer.Option(help="A sidecar, http://HOST:PORT; the n-th is the n-th pod's.")] = None,
    history: Annotated[
        list[Path] | None, typer.Option(help="A file or folder: Parquet, CSV, JSON lines, event logs; several times.")
    ] = None,
    last: Last = "1h",
    at: AtOrData = None,
    watch: Annotated[float, typer.Option(help="Seconds between two looks at pods, for rates.", min=0, max=3600)] = 15,
    fail_on: Annotated[FailOn | None, typer.Option(help="Exit with 1 if a finding is as grave as this.")] = None,
    format: Annotated[CheckFormat, typer.Option(help="For people, for programs, or for a ticket.")] = CheckFormat.TABLE,
) -> None:
    """Is it thrashing now, why, and what will help? One look; no service is needed.

    Without --data, --prometheus, --pod, --agent or --history it looks at the configuration's store, or, where that is empty,
    at its targets.
    """
    from lora_watch import check as look

    def run() -> int:
        asked = look.Asked(data, prometheus, tuple(pod or ()), tuple(agent or ()), tuple(history or ()), last, at, watch)
        settings = wanted_settings(config, needed=asked.nothing)
        return look.run(settings, asked, format=format, fail_on=fail_on)

    exit_with(run)


def cost(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    last: Last = "7d",
    at: AtOrData = None,
    price: Annotated[
        float | None, typer.Option(help="Of a GPU for an hour, instead of the configuration's.", min=0, max=1e9)
    ] = None,
    adapters: Annotated[int, typer.Option(help="Adapters to list; 0 lists none.", min=0)] = 10,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """How much GPU time, money and latency did swaps cost?"""
    from lora_watch.explore import cost as view
    from lora_watch.service import wall_clock

    def run() -> None:
        store, lookback = open_store(config, data)
        settings = wanted_settings(config, needed=False)
        priced = settings.cost if price is None else settings.cost.model_copy(update={"gpu_hour_price": price})
        told = view.read(store, last, at, lookback, priced, now=wall_clock())
        if format is Format.JSON:
            sys.stdout.write(view.as_json(told) + "\n")
        else:
            view.show(told, adapters=adapters)

    guarded(run)


def expect(
    adapters: Annotated[list[str], typer.Argument(help="Names of new adapters; `*` stands for anything.")],
    begin: Annotated[str, typer.Option("--from", help="When it starts, ISO 8601 with a zone.")],
    end: Annotated[str, typer.Option("--to", help="When it ends, likewise.")],
    note: Annotated[str, typer.Option(help="What it is for.")] = "",
    config: ConfigFile = DEFAULT_CONFIG,
    file: Annotated[Path | None, typer.Option(help="The file to add it to, instead of the configuration's.")] = None,
) -> None:
    """Announce an experiment: its new adapters are then told as expected, not as a warning."""
    from lora_watch.explore import expect as plan

    def run() -> None:
        where = file if file is not None else wanted_settings(config, needed=False).diagnose.expected
        count = plan.announce(where, plan.announcement(adapters, begin, end, note))
        typer.echo(f"{count} announcement{'' if count == 1 else 's'} in {where}")
        if file is None and not config.exists():
            typer.echo(plan.WITHOUT_CONFIGURATION)

    guarded(run)


def doctor(
    config: ConfigFile = DEFAULT_CONFIG,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """Can each target be reached, what can be known from it, what is missing, how to get it. Exit code 1: one is out of reach."""
    from lora_watch.explore import doctor as view
    from lora_watch.service import wall_clock

    settings = read_settings(config)

    def run() -> None:
        report = view.examine(settings, wall_clock)
        if format is Format.JSON:
            sys.stdout.write(view.as_json(report) + "\n")
        else:
            view.show(report)
        if not report.reachable:
            raise typer.Exit(1)

    guarded(run)
