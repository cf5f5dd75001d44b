"""The command line. Each command imports what it needs when it runs, so that `--help` and the agent stay light."""

import io
import sys
from typing import Annotated

import typer

from lora_watch.cli import advise, configuration, imports, incidents, look, rules, watch

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _print_version(*, asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def lora_watch(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.", show_default=False)
    ] = False,
) -> None:
    """Which LoRA adapters sit on the GPU, what swapping them costs, and whether the cluster thrashes."""


def version() -> None:
    """Print the version."""
    from lora_watch import __version__

    typer.echo(__version__)


app.command()(watch.serve)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})(watch.agent)
app.command()(look.status)
app.command()(look.check)
app.command()(look.cost)
app.command("what-if")(advise.what_if)
app.command()(advise.plan)
app.command()(advise.recommend)
app.command()(advise.backtest)
app.command()(advise.report)
app.command()(look.expect)
app.command()(look.doctor)
app.command()(watch.explore)
app.command()(watch.demo)
app.command()(watch.simulate)
app.command("derive")(watch.derive_hours)
app.command()(version)
app.add_typer(configuration.config_app, name="config")
app.add_typer(imports.import_app, name="import")
app.add_typer(incidents.incidents_app, name="incidents")
app.add_typer(rules.rules_app, name="rules")


def main() -> None:
    """The console script ``lora-watch``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a name's letters shows their numbers
    app()
