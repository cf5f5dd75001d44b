"""lora_watch: which LoRA adapters sit on the GPU, what swapping them costs, and when an LLM cluster thrashes."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lora_watch.explore.notebook import Notebook

__version__ = "0.1.0"


def open(path: str | Path) -> "Notebook":
    """
    The stored data in a notebook: of the folder of the tables, or of the one that a configuration file names.

    One method per figure, such as ``open("lora-watch-data").residency("7d", by="adapter")``; each returns a polars frame.
    LoraWatchError where there is no such folder.
    """
    from lora_watch.explore.notebook import open_folder

    return open_folder(path)
