"""``lora-watch config``: the configuration, checked and explained."""

import typer

from lora_watch.cli.options import DEFAULT_CONFIG, ConfigFile
from lora_watch.cli.settings import read_settings

config_app = typer.Typer(no_args_is_help=True, help="Read, check and explain the configuration.")


@config_app.command("check")
def config_check(config: ConfigFile = DEFAULT_CONFIG) -> None:
    """Say whether the configuration is right, and if not, what is wrong where."""
    settings = read_settings(config)
    counts = (
        (len(settings.targets), "target", "targets"),
        (len(settings.target_files), "group of target files", "groups of target files"),
        (len(settings.event_logs), "event log", "event logs"),
        (len(settings.prometheus), "Prometheus server", "Prometheus servers"),
        (len(settings.routers), "router", "routers"),
        (len(settings.gpus.exporters), "GPU exporter", "GPU exporters"),
    )
    what = ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in counts if count)
    typer.echo(f"{config} is right: {what or 'nothing to watch yet'}; data in {settings.store.folder}")


@config_app.command("example")
def config_example() -> None:
    """Print a configuration to start from."""
    from lora_watch.config import EXAMPLE

    typer.echo(EXAMPLE, nl=False)


@config_app.command("reference")
def config_reference() -> None:
    """Print every key with its default and meaning, as Markdown."""
    from lora_watch.config import reference

    typer.echo(reference(), nl=False)
