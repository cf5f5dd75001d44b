"""How the explorer is started: which program, with which options, in which environment."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import lora_watch
from lora_watch.errors import LoraWatchError
from lora_watch.explore.opened import CONFIG, DATA

OPTIONS = {
    "server.headless": "true",
    "server.fileWatcherType": "none",
    "server.enableStaticServing": "false",
    "server.showEmailPrompt": "false",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "viewer",
    "client.showErrorDetails": "type",
    "client.showErrorLinks": "false",
    "global.developmentMode": "false",
    "runner.magicEnabled": "false",
    "theme.light.primaryColor": "#0072b2",
    "theme.dark.primaryColor": "#56b4e9",
    "theme.baseRadius": "medium",
    "theme.metricValueFontSize": "1.6rem",
}
"""Streamlit's options; those of a `.streamlit/config.toml` go for the others."""

FRUGAL = {
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:500,muzzy_decay_ms:0",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": "1048576",
}
"""Variables that have the allocators of polars and of C give memory back soon: a question over many rows is a peak, and over."""


def folder() -> Path:
    """Where the pages are: inside the installed package, or beside it in a checkout. LoraWatchError where they are in neither."""
    package = Path(lora_watch.__file__).parent
    for place in (package / "dashboards", package.parent / "dashboards"):
        if (place / "app" / "start.py").is_file():
            return place
    raise LoraWatchError(f"the pages of the explorer are not in {package}: install lora-watch anew")


def command(host: str, port: int, base_path: str) -> list[str]:
    """The program and its options. ``base_path``: where a reverse proxy puts it, such as ``/lora-watch``."""
    if not 0 < port < 65_536:
        raise LoraWatchError(f"there is no port {port}")
    options = {**OPTIONS, "server.address": host, "server.port": str(port), "server.baseUrlPath": base_path.strip("/")}
    return [sys.executable, str(folder() / "app" / "start.py"), *(f"--{name}={value}" for name, value in options.items())]


def environment(before: Mapping[str, str], config: Path | None, data: Path | None) -> dict[str, str]:
    """The environment that tells the pages what to show: absolute paths, whatever the folder it is started in."""
    told = {CONFIG: config, DATA: data}
    kept = {name: value for name, value in before.items() if name not in told}
    return FRUGAL | kept | {name: str(path.absolute()) for name, path in told.items() if path is not None}


def run(arguments: list[str], variables: Mapping[str, str]) -> None:
    """Become that program: signals and the exit code are its own."""
    sys.stdout.flush()
    os.execve(arguments[0], arguments, dict(variables))
