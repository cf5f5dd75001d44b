"""``lora-watch rules``: what Prometheus records and alerts on."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from lora_watch.cli.options import DEFAULT_CONFIG, AtOrData, ConfigFile, DataFolder, Format
from lora_watch.cli.settings import fail, guarded, open_store
from lora_watch.errors import LoraWatchError
from lora_watch.rules.choices import Install, Profile

rules_app = typer.Typer(help="Prometheus rules: what is recorded, and what alerts.")


class RulesFor(StrEnum):
    """Who reads the rules."""

    PROMETHEUS = "prometheus"
    OPERATOR = "operator"


InstallOption = Annotated[Install, typer.Option("--install", help="raw: no service in the path; full: with the exporter.")]


ProfileOption = Annotated[Profile, typer.Option("--profile", help="article: its limits, to be loaded beside the default.")]


ScaleOption = Annotated[
    float, typer.Option("--time-scale", help="How fast the watched clock runs: lengths of time are divided by it.", min=1)
]


ForOption = Annotated[RulesFor, typer.Option("--for", help="A rule file, or a resource of the Prometheus operator.")]


RunbooksOption = Annotated[str | None, typer.Option("--runbooks", help="Address of the folder of the runbooks.")]


ExplorerOption = Annotated[str | None, typer.Option("--explorer", help="Address of the explorer.")]


@rules_app.callback(invoke_without_command=True)
def rules(
    context: typer.Context,
    install: InstallOption = Install.RAW,
    profile: ProfileOption = Profile.DEFAULT,
    time_scale: ScaleOption = 1.0,
    form: ForOption = RulesFor.PROMETHEUS,
    runbooks: RunbooksOption = None,
    explorer: ExplorerOption = None,
) -> None:
    """Prometheus rules: what is recorded, and what alerts. Alone it prints them, as `rules show` does."""
    if context.invoked_subcommand is None:
        _show_rules(install, profile, time_scale, form, runbooks, explorer)


@rules_app.command("show")
def rules_show(
    install: InstallOption = Install.RAW,
    profile: ProfileOption = Profile.DEFAULT,
    time_scale: ScaleOption = 1.0,
    form: ForOption = RulesFor.PROMETHEUS,
    runbooks: RunbooksOption = None,
    explorer: ExplorerOption = None,
) -> None:
    """Print the rules as YAML: for a file under Prometheus' rule_files, or for kubectl apply."""
    _show_rules(install, profile, time_scale, form, runbooks, explorer)


@rules_app.command("calibrate")
def rules_calibrate(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    last: Annotated[str, typer.Option(help="Length of the history, such as 28d.")] = "28d",
    at: AtOrData = None,
    profile: ProfileOption = Profile.DEFAULT,
    harm: Annotated[float, typer.Option(help="Harm episodes in 28 days that are not too many.", min=0)] = 1,
    cause: Annotated[float, typer.Option(help="Cause episodes in 28 days, of one alert, that are not too many.", min=0)] = 8,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """Replay every alert over stored history: its episodes, which never stop or never could, and limits that would do."""
    from rich.console import Console
    from rich.progress import Progress

    from lora_watch.explore import calibration as view
    from lora_watch.explore.status import window_of
    from lora_watch.model import Window
    from lora_watch.rules.rule import Tier
    from lora_watch.schema import REQUESTS

    def run() -> None:
        store, _ = open_store(config, data)
        length, end = window_of(last, at)
        end = store.newest(REQUESTS) if end is None else end
        if end is None:
            raise LoraWatchError(f"{store.root} holds no requests: nothing to replay rules over")
        wanted = {Tier.HARM: harm, Tier.CAUSE: cause}
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("replaying", total=1.0)
            judged, window = view.calibrated(
                store, Window(end - length, end + 1), profile, wanted, lambda done: bar.update(task, completed=done)
            )
        if format is Format.JSON:
            sys.stdout.write(view.as_json(judged, window) + "\n")
        else:
            view.show(judged, window)

    guarded(run)


def _show_rules(
    install: Install,
    profile: Profile,
    time_scale: float,
    form: RulesFor,
    runbooks: str | None,
    explorer: str | None,
) -> None:
    from lora_watch.rules import render
    from lora_watch.rules.pace import Pace

    usual = render.Addresses()
    make = render.prometheus_rule if form is RulesFor.OPERATOR else render.rules
    try:
        addresses = render.Addresses(runbooks or usual.runbooks, explorer or usual.explorer)
        pace = Pace(time_scale)
    except ValueError as error:
        fail(str(error))
    sys.stdout.write(make(install, profile, pace, addresses))
