"""Folds the records of one process into how things are now, and into counters since it began (or since its log begins)."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LOAD_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the load-time histogram, seconds: 1 ms (a tiny adapter from RAM) … 30 s (a large one from network storage)."""


@dataclass(slots=True)
class Histogram:
    """Counts by bucket of ``LOAD_BOUNDS`` (one more for what lies above), and the sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LOAD_BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one load of ``seconds``."""
        self.counts[bisect_left(LOAD_BOUNDS, seconds)] += 1
        self.total += seconds

    def merge(self, other: "Histogram") -> None:
        """Count all that ``other`` counted."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


@dataclass(slots=True)
class Slot:
    """Who sits in a GPU slot, by id; ``loaded_at`` µs UTC."""

    adapter: str
    slot: int | None
    loaded_at: int
    rank: int | None = None


@dataclass(slots=True)
class State:
    """
    One process: its tiers, its running batch, its registry, and what it counted.

    Warm-up dummies are followed in no table and no counter. A failed load is counted apart and changes no tier. ``since`` is
    when the counters begin: the start of the process, or the oldest record left where older ones were deleted (then ``complete``
    is False).
    """

    role: str | None = None
    alive: bool = True
    engine: str = "0"
    model: str | None = None
    vllm: str | None = None
    slots: int | None = None
    cpu_capacity: int | None = None
    since: int | None = None
    complete: bool = True
    last_seq: int = 0
    last_at: int = 0
    gpu: dict[int, Slot] = field(default_factory=dict)
    cpu: dict[int, str] = field(default_factory=dict)
    pinned: dict[int, str] = field(default_factory=dict)
    in_batch: dict[int, str] = field(default_factory=dict)
    registered: dict[str, tuple[int | None, str | None]] = field(default_factory=dict)
    loads: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # tier, from_tier, reason
    failed_loads: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    evictions: Counter[tuple[str, str]] = field(default_factory=Counter)  # tier, reason
    uses: Counter[str] = field(default_factory=Counter)  # lookup
    requests: Counter[str] = field(default_factory=Counter)  # finish_reason
    lost: Counter[str] = field(default_factory=Counter)  # reason
    load_seconds: dict[tuple[str, str], Histogram] = field(default_factory=dict)  # tier, from_tier
    unreadable: int = 0
    steps: int = 0
    execute_seconds: dict[str, float] = field(default_factory=dict)  # clock
    adapter_seconds: dict[str, float] = field(default_factory=dict)

    def fold(self, record: Mapping[str, Any]) -> None:
        """Take in the next record. A kind nobody knows only moves the position; one whose fields make no sense is counted."""
        try:
            self._fold(record)
        except (TypeError, ValueError, KeyError, OverflowError):
            self.unreadable += 1

    def _fold(self, record: Mapping[str, Any]) -> None:
        self.last_seq, self.last_at = record["seq"], record["at"]
        if self.since is None:
            self.since = record["at"]
            self.complete = record["seq"] == 1
        kind, adapter = record["kind"], str(record.get("adapter"))
        key: Any = record.get("adapter_id")
        if record.get("reason") == "warmup":
            return
        if kind == "load":
            self._load(record)
        elif kind == "evict":
            (self.gpu if record.get("tier") == "gpu" else self.cpu).pop(key, None)
            self.evictions[str(record.get("tier")), str(record.get("reason"))] += 1
        elif kind == "use":
            self.uses[str(record.get("lookup"))] += 1
            self.in_batch[key] = adapter
        elif kind == "release":
            self.in_batch.pop(key, None)
        elif kind == "pin":
            if record.get("ok"):
                self.pinned[key] = adapter
        elif kind == "unpin":
            self.pinned.pop(key, None)
        elif kind == "request":
            self.requests[str(record.get("finish_reason"))] += 1
        elif kind == "steps":
            clock, count = str(record.get("clock")), _whole(record.get("count")) or 0
            executing, on_adapters = _seconds(record.get("execute_seconds")), _seconds(record.get("adapter_seconds"))
            self.steps += count
            self.execute_seconds[clock] = self.execute_seconds.get(clock, 0.0) + executing
            self.adapter_seconds[clock] = self.adapter_seconds.get(clock, 0.0) + on_adapters
        elif kind == "register":
            if record.get("ok"):
                self.registered[adapter] = (key, record.get("path"))
        elif kind == "unregister":
            if record.get("ok"):
                self.registered.pop(adapter, None)
        elif kind == "lost":
            self.lost[str(record.get("reason"))] += _whole(record.get("count")) or 0
        elif kind == "start":
            self._start(record)
        elif kind == "snapshot":
            self._snapshot(record)

    def _load(self, record: Mapping[str, Any]) -> None:
        tier, from_tier = str(record.get("tier")), str(record.get("from_tier"))
        if not record.get("ok", True):
            self.failed_loads[tier, from_tier, str(record.get("reason"))] += 1
            return
        key: Any = record.get("adapter_id")
        seconds = None if record.get("seconds") is None else _seconds(record["seconds"])
        if tier == "gpu":
            self.gpu[key] = Slot(str(record.get("adapter")), _whole(record.get("slot")), record["at"], record.get("rank"))
        else:
            self.cpu[key] = str(record.get("adapter"))
        self.loads[tier, from_tier, str(record.get("reason"))] += 1
        if seconds is not None:
            self.load_seconds.setdefault((tier, from_tier), Histogram()).add(seconds)

    def _start(self, record: Mapping[str, Any]) -> None:
        if record.get("role") == "worker":
            self.role = "worker"
            self.slots, self.cpu_capacity = _whole(record.get("slots")), _whole(record.get("cpu_capacity"))
            self.model = None if record.get("model") is None else str(record["model"])
            for table in (self.gpu, self.cpu, self.pinned, self.in_batch):
                table.clear()
        else:
            self.role = self.role or "api"
            self.registered.clear()
        self.engine = str(record.get("engine", "0"))
        self.vllm = record.get("vllm")

    def _snapshot(self, record: Mapping[str, Any]) -> None:
        first = record.get("part", 1) == 1
        self.engine = str(record.get("engine", "0"))
        if "registered" in record:
            self.role = self.role or "api"
            if first:
                self.registered.clear()
            self.registered.update({str(name): (key, path) for name, key, path in record["registered"]})
            return
        self.role = "worker"
        self.slots, self.cpu_capacity = _whole(record.get("slots")), _whole(record.get("cpu_capacity"))
        if first:
            for table in (self.gpu, self.cpu, self.pinned, self.in_batch):
                table.clear()
        self.gpu.update({key: Slot(str(name), _whole(slot), at) for slot, name, key, at in record.get("gpu", ())})
        self.cpu.update({key: str(name) for name, key in record.get("cpu", ())})
        self.pinned.update({key: str(name) for name, key in record.get("pinned", ())})
        self.in_batch.update({key: str(name) for name, key in record.get("in_batch", ())})

    def absorb(self, other: "State") -> None:
        """Add the counters of a process whose log is gone: what was counted stays counted."""
        for mine, theirs in (
            (self.loads, other.loads),
            (self.failed_loads, other.failed_loads),
            (self.evictions, other.evictions),
            (self.uses, other.uses),
            (self.requests, other.requests),
            (self.lost, other.lost),
        ):
            mine.update(theirs)  # type: ignore[arg-type]  # pairs of counters with like keys
        for sums, more in ((self.execute_seconds, other.execute_seconds), (self.adapter_seconds, other.adapter_seconds)):
            for clock, seconds in more.items():
                sums[clock] = sums.get(clock, 0.0) + seconds
        for key, histogram in other.load_seconds.items():
            self.load_seconds.setdefault(key, Histogram()).merge(histogram)
        self.steps += other.steps
        self.unreadable += other.unreadable

    def to_json(self) -> dict[str, Any]:
        """
        As ``/state`` shows it: residents of a process that died are shown with ``alive`` false, and are gone from ``/metrics``.
        """
        return {
            "role": self.role,
            "alive": self.alive,
            "engine": self.engine,
            "model": self.model,
            "vllm": self.vllm,
            "slots": self.slots,
            "cpu_capacity": self.cpu_capacity,
            "gpu": sorted(
                (
                    {
                        "slot": slot.slot,
                        "adapter": slot.adapter,
                        "adapter_id": key,
                        "loaded_at": slot.loaded_at,
                        "pinned": key in self.pinned,
                    }
                    for key, slot in self.gpu.items()
                ),
                key=lambda row: (row["slot"] is None, row["slot"], str(row["adapter_id"])),
            ),
            "cpu": [{"adapter": name, "adapter_id": key, "pinned": key in self.pinned} for key, name in self.cpu.items()],
            "in_batch": [{"adapter": name, "adapter_id": key} for key, name in self.in_batch.items()],
            "registered": [{"adapter": name, "adapter_id": key, "path": path} for name, (key, path) in self.registered.items()],
            "counters": {
                "since": self.since,
                "complete": self.complete,
                "loads": _rows(self.loads, "tier", "from_tier", "reason"),
                "failed_loads": _rows(self.failed_loads, "tier", "from_tier", "reason"),
                "evictions": _rows(self.evictions, "tier", "reason"),
                "uses": dict(self.uses),
                "requests": dict(self.requests),
                "lost": dict(self.lost),
                "unreadable": self.unreadable,
                "steps": self.steps,
                "execute_seconds": dict(self.execute_seconds),
                "adapter_seconds": dict(self.adapter_seconds),
            },
            "last_seq": self.last_seq,
            "last_at": self.last_at,
        }


def _whole(value: Any) -> int | None:
    """A count or a place as a record has it, None where it has none; TypeError or ValueError for what can be neither."""
    if value is None:
        return None
    if type(value) is not int:
        raise TypeError(f"not a whole number: {type(value).__name__}")
    if not 0 <= value < 1 << 63:
        raise ValueError("a whole number out of range")
    return value


def _seconds(value: Any) -> float:
    """A length of time as a record has it, 0 where it has none; an error for what is negative or no number."""
    seconds = float(value or 0.0)
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError("not a length of time")
    return seconds


def _rows(counter: Mapping[Any, int], *names: str) -> list[dict[str, Any]]:
    return [{**dict(zip(names, key, strict=True)), "count": count} for key, count in sorted(counter.items())]
