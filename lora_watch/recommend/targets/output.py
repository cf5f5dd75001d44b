"""What a target's function gives back: files to read and apply by hand, and what the engine cannot be told."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lora_watch.recommend.advice import Advice, Setup

UNKNOWN_PATH = "REPLACE_WITH_PATH"
"""Stands where an adapter's path belongs and nobody told it."""


@dataclass(frozen=True, slots=True)
class File:
    """A text file: its name, which is always one of ours, and its content."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class Output:
    """``files`` to apply, none where there is nothing to tell; ``told``: in sentences, what of the advice they do not do."""

    files: tuple[File, ...]
    told: tuple[str, ...]


Target = Callable[[Setup, Sequence[Advice], Mapping[str, str]], Output]
"""
From a pool's setup, its advice and the paths of adapters by name (those that are known) to what one engine is told. Only what is
``ADVISED`` is written; the same input gives the same bytes; nothing is applied.
"""
