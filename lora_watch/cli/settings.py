"""What commands open: settings and stores, and how they end."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from lora_watch.cli.options import DEFAULT_CONFIG
from lora_watch.errors import LoraWatchError

if TYPE_CHECKING:
    from lora_watch.config import Settings
    from lora_watch.store.tables import Store


def read_settings(file: Path) -> "Settings":
    from lora_watch.config import load

    try:
        settings = load(file)
        if settings.request_logs:
            from lora_watch.sources.configured import request_logs_of

            request_logs_of(settings)  # their formats are known
    except LoraWatchError as error:
        fail(str(error))
    return settings


def wanted_settings(config: Path, *, needed: bool) -> "Settings":
    """The settings; the defaults where nobody needs a configuration and there is none."""
    from lora_watch.config import Settings

    return Settings() if not needed and config == DEFAULT_CONFIG and not config.exists() else read_settings(config)


def open_store(config: Path, data: Path | None) -> "tuple[Store, int]":
    from lora_watch.config import DeriveSettings
    from lora_watch.model import SECOND
    from lora_watch.store import tables

    if data is not None:
        folder, derive = data, DeriveSettings()
    else:
        settings = read_settings(config)
        folder, derive = settings.store.folder, settings.derive
    try:
        there = folder.is_dir()
    except OSError as error:
        fail(f"cannot look into {folder}: {error.strerror or error}")
    if not there:
        fail(f"there is no data in {folder}: run `lora-watch serve`, or name the folder with --data")
    return tables.Store(folder), round(derive.lookback.total_seconds() * SECOND)


def writable(config: Path, data: Path | None) -> "tuple[Settings, Store]":
    """The settings and the store to write to; with --data alone there need be no configuration."""
    from lora_watch.config import Settings
    from lora_watch.store.tables import Store

    settings = Settings() if data is not None and config == DEFAULT_CONFIG and not config.exists() else read_settings(config)
    return settings, Store(data or settings.store.folder)


def exit_with(run: Callable[[], int]) -> None:
    def exits() -> None:
        if code := run():
            raise typer.Exit(code)

    guarded(exits)


def guarded(run: Callable[[], None]) -> None:
    try:
        run()
    except LoraWatchError as error:
        fail(str(error))


def fail(message: str) -> NoReturn:
    typer.echo(f"lora-watch: {message}", err=True)
    raise typer.Exit(2)
