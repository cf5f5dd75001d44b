"""Which store the explorer shows: what its starter was told, handed on in the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lora_watch.config import Settings, load
from lora_watch.errors import LoraWatchError
from lora_watch.model import SECOND
from lora_watch.store.tables import Store

CONFIG = "LORA_WATCH_EXPLORE_CONFIG"
DATA = "LORA_WATCH_EXPLORE_DATA"
"""Names of the environment's variables; the folder of the tables goes before the configuration's."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The settings, the tables, and how far before a window (µs) what still matters in it is looked for."""

    settings: Settings
    store: Store
    lookback: int


def opened(environment: Mapping[str, str]) -> Opened:
    """ConfigError where the configuration is wrong, LoraWatchError where neither it nor a folder is named."""
    config, data = environment.get(CONFIG), environment.get(DATA)
    if not config and not data:
        raise LoraWatchError(
            f"nothing says what to show: start the explorer with `lora-watch explore`, or set {DATA} or {CONFIG}"
        )
    settings = load(Path(config)) if config else Settings()
    folder = Path(data) if data else settings.store.folder
    return Opened(settings, Store(folder), round(settings.derive.lookback.total_seconds() * SECOND))
