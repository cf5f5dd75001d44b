"""Writes event logs in the documented format, independently of the agent: what a reader must cope with, at any size."""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


def write_log(folder: Path, boot: str, records: Iterable[Mapping[str, Any]], *, per_segment: int = 5_000) -> int:
    """Write one boot's log in segments; ``v``, ``boot`` and ``seq`` are added. Returns the last seq."""
    folder.mkdir(parents=True, exist_ok=True)
    segment, seq = None, 0
    for seq, record in enumerate(records, 1):
        if (seq - 1) % per_segment == 0:
            if segment is not None:
                segment.close()
            segment = (folder / f"{boot}.{seq:012}.jsonl").open("w", encoding="utf-8")
        assert segment is not None
        segment.write(json.dumps({"v": 1, "boot": boot, "seq": seq, **record}, ensure_ascii=False, separators=(",", ":")) + "\n")
    if segment is not None:
        segment.close()
    return seq


def worker(count: int, *, start: int, slots: int = 4, adapters: int = 12, seed: int = 1) -> Iterator[dict[str, Any]]:
    """A worker's records from ``start`` (µs): a start, then LRU swaps of random adapters, about ``count`` records."""
    rng = random.Random(seed)
    at, resident, common = start, [], {"engine": "0", "tp_rank": 0}
    yield {**common, "at": at, "kind": "start", "role": "worker", "slots": slots, "cpu_capacity": 2 * slots, "clock": "host"}
    made = 1
    while made < count:
        at += rng.randint(1_000, 400_000)
        name = rng.randrange(adapters)
        who = {"adapter": f"adapter-{name:02}", "adapter_id": name + 1}
        hot = name in resident
        if not hot:
            slot = len(resident)
            if len(resident) == slots:
                victim = resident.pop(0)
                slot = victim % slots
                gone = {"adapter": f"adapter-{victim:02}", "adapter_id": victim + 1}
                yield {**common, **gone, "at": at, "kind": "evict", "tier": "gpu", "slot": slot, "reason": "lru", "in_step": True}
                made += 1
            load = {
                "kind": "load",
                "tier": "gpu",
                "from_tier": "cpu",
                "slot": slot,
                "seconds": 0.01,
                "reason": "demand",
                "ok": True,
            }
            yield {**common, **who, "at": at + 500, **load, "in_step": True}
            made += 1
        else:
            resident.remove(name)
        resident.append(name)
        yield {**common, **who, "at": at + 600, "kind": "use", "lookup": "hot" if hot else "warm"}
        made += 1
    yield {**common, "at": at + 1_000, "kind": "stop", "role": "worker"}


def api_server(count: int, *, start: int, adapters: int = 12, seed: int = 2) -> Iterator[dict[str, Any]]:
    """An API server's records from ``start`` (µs): a start and ``count`` finished requests."""
    rng = random.Random(seed)
    at = start
    yield {"at": at, "kind": "start", "role": "api", "engine": "0"}
    for number in range(count):
        at += rng.randint(1_000, 400_000)
        times = {"arrived": at, "queued": at + 10, "scheduled": at + 20, "first_token": at + 30_000, "finished": at + 90_000}
        tokens = {"prompt_tokens": 5, "generated_tokens": 8, "cached_tokens": 0, "preemptions": 0, "finish_reason": "length"}
        name = f"adapter-{rng.randrange(adapters):02}"
        yield {
            "at": at + 90_000,
            "kind": "request",
            "request_id": f"r{number}",
            "adapter": name,
            "engine": "0",
            **times,
            **tokens,
        }
