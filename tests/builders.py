"""Small event frames from one line of text: ``events("a:0-30 b:10-")`` loads a at 0 s, evicts it at 30 s, loads b at 10 s."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from lora_watch.model import SECOND
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, Table

_DEFAULTS: Mapping[str, Any] = {
    "cluster": "c",
    "pool": "p",
    "role": "",
    "pod": "pod-0",
    "engine": "0",
    "provenance": "observed",
    "source": "test",
}


def rows(table: Table, records: Iterable[Mapping[str, Any]], **common: Any) -> pl.DataFrame:
    """``records`` as conformed rows of ``table``; seq and stream are filled in where absent."""
    filled = []
    for seq, record in enumerate(records, 1):
        row = {**_DEFAULTS, **common, **record}
        row.setdefault("stream", f"agent/{row['cluster']}/{row['pod']}/boot")
        row.setdefault("seq", seq)
        filled.append({name: row.get(name) for name in table.schema if name not in {"date", "bucket"}})
    kept = {name: dtype for name, dtype in table.schema.items() if name not in {"date", "bucket"}}
    return table.conform(pl.DataFrame(filled, schema=kept, orient="row"))


def events(text: str, *, start_at: float | None = None, slots: int = 4, **common: Any) -> pl.DataFrame:
    """
    GPU loads and evictions in seconds: ``a:0-30`` load at 0, evict at 30; ``b:10-`` never evicted.

    ``c:-20``: evicted at 20, its load unseen. A ``!`` after the name makes its load a cold one (from disk).
    With ``start_at`` a `start` record comes first.
    """
    records: list[dict[str, Any]] = []
    if start_at is not None:
        records.append(
            {"at": int(start_at * SECOND), "kind": "start", "clock": "host", "slots": slots, "cpu_capacity": 2 * slots}
        )
    for word in text.split():
        name, _, span = word.partition(":")
        cold = name.endswith("!")
        name = name.rstrip("!")
        loaded, _, evicted = span.partition("-")
        base = {"tier": "gpu", "adapter": name, "in_step": True, "ok": True}
        if loaded:
            records.append(
                {
                    **base,
                    "kind": "load",
                    "at": round(float(loaded) * SECOND),
                    "from_tier": "disk" if cold else "cpu",
                    "reason": "demand",
                    "seconds": 0.01,
                }
            )
        if evicted:
            records.append({**base, "kind": "evict", "at": round(float(evicted) * SECOND), "reason": "lru"})
    records.sort(key=lambda record: (record["at"], record["kind"] != "start", record["kind"] == "load"))
    return rows(ADAPTER_EVENTS, records, **common)


def snapshot(text: str, *, part: int = 1, parts: int = 1, **fields: Any) -> dict[str, Any]:
    """A worker's snapshot as a stored record: ``a:0@30 b:1@`` lists a in slot 0 since 30 s, b in slot 1 since who knows when."""
    gpu: list[list[Any]] = []
    for word in text.split():
        name, _, place = word.partition(":")
        slot, _, since = place.partition("@")
        gpu.append([int(slot), name, ord(name[0]), round(float(since) * SECOND) if since else None])
    detail = {"gpu": gpu, "cpu": [], "in_batch": [], "part": part, "parts": parts, "pinned": [], "role": "worker"}
    return {"kind": "snapshot", "detail": json.dumps(detail, ensure_ascii=False, sort_keys=True), **fields}


def requests(text: str, **common: Any) -> pl.DataFrame:
    """Finished requests in seconds: ``a:10/12/13/20`` is adapter a queued at 10, scheduled 12, first token 13, finished 20."""
    records = []
    for word in text.split():
        name, _, times = word.partition(":")
        queued, scheduled, first, finished = (round(float(t) * SECOND) for t in times.split("/"))
        records.append(
            {
                "at": finished,
                "adapter": name,
                "arrived": queued,
                "queued": queued,
                "scheduled": scheduled,
                "first_token": first,
                "finished": finished,
            }
        )
    return rows(REQUESTS, records, **common)
