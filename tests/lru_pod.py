"""A pod with LRU slots that writes what an agent would: as rows of our tables, or as an event log."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from builders import rows

from lora_watch.model import SECOND
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS

Row = dict[str, Any]


@dataclass
class Pod:
    """
    Hand it requests in order of time. A load takes ``load`` seconds, and before it ``read`` seconds where it comes from disk.

    ``events`` and ``requests`` are its records, in the fields of the tables; a test may add some of its own.
    """

    slots: int
    cpu: int = 64
    name: str = "pod-0"
    load: float = 0.01
    read: float | None = None
    size: int = 65_536_000
    events: list[Row] = field(default_factory=list)
    requests: list[Row] = field(default_factory=list)
    _held: list[str] = field(default_factory=list)

    def start(self, at: int) -> "Pod":
        """Its worker started."""
        row = {"at": at, "kind": "start", "slots": self.slots, "cpu_capacity": self.cpu, "clock": "host"}
        self.events.append({**row, "detail": '{"role":"worker"}'})
        return self

    def ask(self, at: int, adapter: str | None, *, wait: float = 0.0, hold: float = 0.5) -> None:
        """One request that comes at ``at`` (µs), waits, loads its adapter where it is in no slot, and runs (seconds)."""
        begin = at + round(wait * SECOND)
        if adapter is not None and adapter not in self._held:
            begin = self._swap(begin, adapter)
        elif adapter is not None:
            self._held.remove(adapter)
            self._held.append(adapter)
        end = begin + round(hold * SECOND)
        times = {"arrived": at, "queued": at, "scheduled": begin, "first_token": begin + 1, "finished": end}
        self.requests.append({"at": end, "adapter": adapter, **times})

    def event_rows(self) -> pl.DataFrame:
        """Rows of ``adapter_events``."""
        return rows(ADAPTER_EVENTS, self.events, pod=self.name)

    def request_rows(self) -> pl.DataFrame:
        """Rows of ``requests``."""
        return rows(REQUESTS, self.requests, pod=self.name, stream=f"api/{self.name}")

    def worker_log(self) -> Iterator[Row]:
        """Records of an event log."""
        for row in sorted(self.events, key=lambda one: one["at"]):
            yield {name: value for name, value in row.items() if name != "detail"} | {"engine": "0", "tp_rank": 0}

    def server_log(self) -> Iterator[Row]:
        """Records of the API server's log."""
        for number, row in enumerate(sorted(self.requests, key=lambda one: one["at"])):
            yield {**row, "kind": "request", "request_id": f"r{number}", "engine": "0", "finish_reason": "length"}

    def _swap(self, at: int, adapter: str) -> int:
        where = {"tier": "gpu", "in_step": True, "ok": True}
        if len(self._held) == self.slots:
            self.events.append({**where, "at": at, "kind": "evict", "adapter": self._held.pop(0), "reason": "lru"})
        if self.read is not None:
            at += round(self.read * SECOND)
            row = {"at": at, "kind": "load", "tier": "cpu", "from_tier": "disk", "seconds": self.read, "bytes": self.size}
            self.events.append({**row, "adapter": adapter, "reason": "demand", "ok": True, "in_step": True})
        at += round(self.load * SECOND)
        came = {"from_tier": "cpu" if self.read is None else "disk", "seconds": self.load, "bytes": self.size}
        self.events.append({**where, "at": at, "kind": "load", "adapter": adapter, "reason": "demand", **came})
        self._held.append(adapter)
        return at
