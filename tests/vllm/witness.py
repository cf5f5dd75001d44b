"""
What vLLM's own log lines say happened: the independent witness. Plain Python, and nothing of lora_watch.

A slot's table needs no more than the ``Activating`` lines: who is activated in a slot has replaced who was there before.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

LINES = {
    "add": re.compile(r"Adding lora\. Model id: \d+, int id: (\d+)$"),
    "activate": re.compile(r"Activating LoRA\. int id: (\d+), slot index: (\d+)$"),
    "remove": re.compile(r"Removing adapter int id: (\d+)$"),
}


class Seen(NamedTuple):
    """One log line: seconds since the epoch (None in plain text), ``add``, ``activate`` or ``remove``, the id, the slot."""

    at: float | None
    what: str
    adapter_id: int
    slot: int | None


def read(path: Path) -> list[Seen]:
    """The LoRA lines of a log, JSON or text, in order."""
    seen = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        at, message = None, text
        if text.startswith('{"created"'):
            fields = json.loads(text)
            at, message = fields["created"], fields["message"]
        elif " DEBUG " not in text:
            continue
        for what, pattern in LINES.items():
            if match := pattern.search(message):
                slot = int(match[2]) if what == "activate" else None
                seen.append(Seen(at, what, int(match[1]), slot))
    return seen


class Change(NamedTuple):
    """A slot changed hands: ``before`` is None where it was free, and equal to ``after`` where it was reloaded in place."""

    at: float | None
    slot: int
    before: int | None
    after: int


def changes(seen: Iterable[Seen]) -> list[Change]:
    """Every activation, with who was in the slot before it."""
    table: dict[int, int] = {}
    out = []
    for line in seen:
        if line.what == "activate" and line.slot is not None:
            out.append(Change(line.at, line.slot, table.get(line.slot), line.adapter_id))
            table[line.slot] = line.adapter_id
    return out


def table_at(seen: Iterable[Seen], at: float) -> dict[int, int]:
    """Slot → id at a moment."""
    return {change.slot: change.after for change in changes(seen) if change.at is not None and change.at <= at}


def tables_between(seen: Iterable[Seen], start: float, end: float) -> list[dict[int, int]]:
    """The table at ``start``, and after each change until ``end``: what an observer in between may have seen."""
    seen = list(seen)
    moments = [start, *(c.at for c in changes(seen) if c.at is not None and start < c.at <= end)]
    return [table_at(seen, moment) for moment in moments]


def swaps(seen: Iterable[Seen]) -> list[Change]:
    """Changes in which one adapter made room for another."""
    return [change for change in changes(seen) if change.before not in (None, change.after)]


def stays(seen: Iterable[Seen]) -> list[tuple[int, float, float | None]]:
    """
    (id, loaded at, left at) of every residency in a slot; a reload in place ends one and begins another; None: still there.

    A ``Removing`` line of an id in a slot empties the slot, whichever tier it is about: the CPU tier holds all of the GPU's.
    """
    table: dict[int, tuple[int, float]] = {}
    out: list[tuple[int, float, float | None]] = []
    for line in seen:
        assert line.at is not None
        gone = [line.slot] if line.what == "activate" else [s for s, (i, _) in table.items() if i == line.adapter_id]
        if line.what in ("activate", "remove"):
            out += [(*table.pop(slot), line.at) for slot in gone if slot in table]
        if line.what == "activate" and line.slot is not None:
            table[line.slot] = (line.adapter_id, line.at)
    return out + [(adapter_id, at, None) for adapter_id, at in table.values()]
