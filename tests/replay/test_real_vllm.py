"""The recording of a real vLLM that ships with the package: 12 adapters, preloaded one by one, then a thrash on few slots."""

import json
from typing import Any

from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import Trace
from lora_watch.simulate.recorded import RECORDING


def worker_log() -> list[dict[str, Any]]:
    logs = [
        [json.loads(line) for line in file.read_text().splitlines()] for file in sorted((RECORDING / "events").glob("*.jsonl"))
    ]
    return next(log for log in logs if log[0].get("role") == "worker")


def test_uses_alone_tell_where_a_real_vllm_found_each_adapter():
    """
    Under its slots and its CPU cache, with a use lasting until the adapter left the batch; a preload is a use too.

    Every lookup and every eviction from the CPU cache agrees. Twice the engine, whose steps touch a batch's adapters in the
    order of a set, evicted one that was in the batch and loaded it again within the step: two loads and two evictions that
    no use asked for.
    """
    log = worker_log()
    codes: dict[str, int] = {}
    adapter, at, hold, lookup = [], [], [], []
    begun: dict[str, int] = {}
    for record in log:
        name = record.get("adapter")
        preloaded = record["kind"] == "load" and record["tier"] == "gpu" and record["reason"] == "preload"
        if preloaded or record["kind"] == "use":
            begun[name] = len(adapter)
            adapter.append(codes.setdefault(name, len(codes)))
            at.append(record["at"])
            hold.append(0)
            lookup.append(2 if preloaded else ("hot", "warm", "cold").index(record["lookup"]))
        elif record["kind"] == "release":
            hold[begun[name]] = record["at"] - at[begun[name]]
    told = replay(Trace(adapter, at=at, hold=hold), Fleet(log[0]["slots"], log[0]["cpu_capacity"]))
    assert len(adapter) > 400
    assert told.lookup.tolist() == lookup
    dropped = [codes[record["adapter"]] for record in log if record["kind"] == "evict" and record["tier"] == "cpu"]
    assert [victim for victim in told.cpu_victim[told.order].tolist() if victim >= 0] == dropped
    loads = sum(record["kind"] == "load" and record["tier"] == "gpu" for record in log)
    evicted = sum(record["kind"] == "evict" and record["tier"] == "gpu" for record in log)
    assert (loads - told.loads, evicted - told.swaps) == (2, 2)
