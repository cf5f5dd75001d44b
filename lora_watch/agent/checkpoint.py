"""
What the sidecar has counted of a process, beside its log: ``<boot>.counts``.

Without it a sidecar that starts again could count only what is left of a pruned log. Its counters would come back smaller, and
Prometheus takes a counter that fell for one that began anew: all that is left would look like the traffic of one scrape.
"""

import contextlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from lora_watch.agent.state import LOAD_BOUNDS, Histogram, Slot, State

VERSION = 1
"""Of the file and of what the counters mean: a file of another version is not read, and the log is counted again."""
MAX_BYTES = 64 << 20
_TEXTS = ("role", "model", "vllm", "engine")
_NUMBERS = ("slots", "cpu_capacity", "since", "last_seq", "last_at", "unreadable", "steps")
_NAMES = ("cpu", "pinned", "in_batch")
_PAIRS = ("loads", "failed_loads", "evictions")
_SINGLES = ("uses", "requests", "lost")
_SUMS = ("execute_seconds", "adapter_seconds")


def path_of(directory: Path, boot: str) -> Path:
    """Where the counts of ``boot`` are."""
    return directory / f"{boot}.counts"


def save(directory: Path, boot: str, state: State, position: int) -> None:
    """Replace the file of ``boot`` whole; ``state`` is that of its records up to ``position``. OSError where that fails."""
    stored = {
        "v": VERSION,
        "position": position,
        "complete": state.complete,
        **{name: getattr(state, name) for name in (*_TEXTS, *_NUMBERS)},
        **{name: list(getattr(state, name).items()) for name in (*_NAMES, *_PAIRS, *_SINGLES, *_SUMS, "registered")},
        "gpu": [[key, slot.adapter, slot.slot, slot.loaded_at, slot.rank] for key, slot in state.gpu.items()],
        "load_seconds": [[key, histogram.counts, histogram.total] for key, histogram in state.load_seconds.items()],
    }
    hidden = path_of(directory, boot).with_suffix(".counts-new")
    fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="ascii") as file:
        json.dump(stored, file)
    hidden.replace(path_of(directory, boot))


def load(directory: Path, boot: str) -> tuple[State, int] | None:
    """The state of ``boot`` and the position it is of; None where there is no file, or one that makes no sense."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        path = path_of(directory, boot)
        if path.is_symlink() or path.stat().st_size > MAX_BYTES:
            return None
        stored: Any = json.loads(path.read_bytes())
        if stored["v"] == VERSION:
            return _state(stored), _number(stored["position"])
    return None


def _state(stored: Any) -> State:
    state = State(complete=stored["complete"] is True)
    for name in _TEXTS:
        setattr(state, name, None if stored[name] is None else _text(stored[name]))
    for name in _NUMBERS:
        setattr(state, name, None if stored[name] is None else _number(stored[name]))
    for name in _NAMES:
        setattr(state, name, {key: _text(adapter) for key, adapter in stored[name]})
    for name in _PAIRS:
        setattr(state, name, Counter({tuple(map(_text, key)): _number(count) for key, count in stored[name]}))
    for name in _SINGLES:
        setattr(state, name, Counter({_text(key): _number(count) for key, count in stored[name]}))
    for name in _SUMS:
        setattr(state, name, {_text(key): _length(seconds) for key, seconds in stored[name]})
    state.registered = {_text(name): (key, path) for name, (key, path) in stored["registered"]}
    for key, adapter, slot, at, rank in stored["gpu"]:
        state.gpu[key] = Slot(_text(adapter), None if slot is None else _number(slot), at, rank)
    for (tier, from_tier), counts, total in stored["load_seconds"]:
        if len(counts) != len(LOAD_BOUNDS) + 1:
            raise ValueError("a histogram of other bounds")
        state.load_seconds[_text(tier), _text(from_tier)] = Histogram(list(map(_number, counts)), _length(total))
    return state


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise TypeError("not a whole number")
    return value


def _length(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e300:
        raise TypeError("not a length of time")
    return float(value)
