"""``lora-watch incidents``: what happened, when, on which pool."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lora_watch.cli.options import DEFAULT_CONFIG, At, ConfigFile, DataFolder, Format, Last
from lora_watch.cli.settings import guarded, open_store

incidents_app = typer.Typer(help="What happened, when, on which pool: stored findings as incidents.")


class Form(StrEnum):
    """How one incident is written out."""

    MARKDOWN = "md"
    TEXT = "text"
    JSON = "json"


@incidents_app.callback(invoke_without_command=True)
def incidents(
    context: typer.Context,
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    last: Last = "7d",
    at: At = None,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """What happened, when, on which pool: stored findings as incidents, the newest first. `incidents show ID` tells one."""
    if context.invoked_subcommand is None:
        _list_incidents(config, data, last, at, format)


@incidents_app.command("list")
def incidents_list(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    last: Last = "7d",
    at: At = None,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """The same as `incidents` alone."""
    _list_incidents(config, data, last, at, format)


@incidents_app.command("show")
def incidents_show(
    name: Annotated[str, typer.Argument(metavar="ID", help="An incident, or one of its findings.")],
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    last: Last = "30d",
    at: At = None,
    format: Annotated[Form, typer.Option(help="Draft of a post-mortem (md), the same as text, or all of it (json).")] = Form.TEXT,
) -> None:
    """One incident: its timeline, cause, evidence, what helps and what does not; `--format md` drafts the post-mortem."""
    from lora_watch.explore import findings as view
    from lora_watch.service import wall_clock

    def run() -> None:
        store, _ = open_store(config, data)
        now = wall_clock()
        window = view.window_until(last, at, now)
        sys.stdout.write(view.rendered(view.one(store, name, window, min(now, window.end)), str(format)))

    guarded(run)


def _list_incidents(config: Path, data: Path | None, last: str, at: str | None, format: Format) -> None:
    from lora_watch.explore import findings as view
    from lora_watch.schema import FINDINGS
    from lora_watch.service import wall_clock

    def run() -> None:
        store, _ = open_store(config, data)
        now = wall_clock()
        window = view.window_until(last, at, now)
        found = view.told(store, window, min(now, window.end))
        if format is Format.JSON:
            sys.stdout.write(view.list_as_json(found) + "\n")
        else:
            view.show(found, window, None if found else store.newest(FINDINGS))

    guarded(run)
