"""Options that several commands take."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[Path, typer.Option("--config", "-c", help="The configuration file.")]


DEFAULT_CONFIG = Path("lora-watch.yaml")


DataFolder = Annotated[Path | None, typer.Option("--data", help="Folder of the tables, instead of the configuration's.")]


Last = Annotated[str, typer.Option("--last", help="Length of the window, such as 1d or 30d.")]


At = Annotated[str | None, typer.Option("--at", help="End of the window, ISO 8601 with a zone; now if absent.")]


AtOrData = Annotated[str | None, typer.Option("--at", help="End, ISO 8601 with a zone; where the data end if absent.")]


class Format(StrEnum):
    """How a command answers."""

    TABLE = "table"
    JSON = "json"


class CheckFormat(StrEnum):
    """How `check` answers."""

    TABLE = "table"
    JSON = "json"
    MD = "md"


class FailOn(StrEnum):
    """From which severity on `check` fails."""

    WARN = "warn"
    HARM = "harm"
