"""What hypothesis draws: complete engine logs under LRU, survival data, windows."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import polars as pl
from builders import rows, snapshot
from hypothesis import settings
from hypothesis import strategies as st

from lora_watch.model import SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS

QUICK = settings(deadline=None, max_examples=40)
"""A frame's first use may take a second on a busy machine; forty logs of up to 75 uses find what there is."""
HORIZON = 4000
"""Seconds within which drawn logs take place."""


@dataclass(frozen=True)
class Log:
    """A complete log of some pods and what it must come out to: (pod, adapter, loaded, left or None) in µs."""

    events: pl.DataFrame
    stays: list[tuple[str, str, int, int | None]]
    slots: int


@st.composite
def lru_logs(draw: st.DrawFn, *, with_slots: bool = True) -> Log:
    """Up to three pods that serve drawn adapters with LRU; every load and evict is in the log, in the engine's order."""
    slots = draw(st.integers(1, 3))
    records: list[dict[str, Any]] = []
    truth: list[tuple[str, str, int, int | None]] = []
    for pod in [f"pod-{n}" for n in range(draw(st.integers(1, 3)))]:
        where: OrderedDict[str, tuple[int, int]] = OrderedDict()
        clock = draw(st.integers(0, 10)) * SECOND
        seq = 1
        common = {"pod": pod, "stream": f"agent/c/{pod}/boot", "tier": "gpu", "in_step": True}
        records.append({**common, "tier": None, "seq": seq, "at": clock, "kind": "start", "slots": slots, "cpu_capacity": 8})
        uses = draw(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 120)), min_size=1, max_size=25))
        for adapter, gap in uses:
            clock += gap * SECOND
            if adapter in where:
                where.move_to_end(adapter)
                continue
            slot = len(where)
            if len(where) == slots:
                victim, (slot, loaded) = where.popitem(last=False)
                seq += 1
                place = {"slot": slot} if with_slots else {}
                records.append({**common, **place, "seq": seq, "at": clock, "kind": "evict", "adapter": victim, "reason": "lru"})
                truth.append((pod, victim, loaded, clock))
            seq += 1
            load = {"kind": "load", "adapter": adapter, "from_tier": "cpu", "reason": "demand", "ok": True, "seconds": 0.01}
            records.append({**common, **({"slot": slot} if with_slots else {}), **load, "seq": seq, "at": clock})
            where[adapter] = (slot, clock)
        truth.extend((pod, adapter, loaded, None) for adapter, (_, loaded) in where.items())
    return Log(rows(ADAPTER_EVENTS, records), truth, slots)


@st.composite
def logs_with_snapshots(draw: st.DrawFn, *, ties: bool = True) -> tuple[pl.DataFrame, pl.DataFrame]:
    """
    One pod's complete log under LRU without and with true snapshots, of one to three parts, between any of its records.

    Records bear ids and slots; in the second frame seqs count the snapshots in, as they do where an agent writes them. Without
    ``ties`` no two records of the first are of one time.
    """
    log = draw(lru_logs())
    pod = log.events.filter(pl.col("pod") == "pod-0").sort("seq")
    number = pl.col("adapter").replace_strict({name: ord(name) for name in "abcdef"}, default=None, return_dtype=pl.Int64)
    plain = pod.with_columns(adapter_id=number, at=pl.col("at") + (0 if ties else pl.col("seq")))
    slots: dict[int, tuple[str, int]] = {}
    records: list[dict[str, Any]] = []
    for record in plain.rows(named=True):
        if record["kind"] == "load":
            slots[record["slot"]] = (record["adapter"], record["at"])
        elif record["kind"] == "evict":
            del slots[record["slot"]]
        records.append(record)
        for parts in draw(st.lists(st.integers(1, 3), max_size=1)):
            listed = [f"{name}:{slot}@{at / SECOND}" for slot, (name, at) in slots.items()]
            common = {key: record[key] for key in ("pod", "stream", "at")}
            records.extend(
                snapshot(" ".join(listed[part - 1 :: parts]), part=part, parts=parts, slots=log.slots, **common)
                for part in range(1, parts + 1)
            )
    frame = [{**record, "seq": seq} for seq, record in enumerate(records, 1)]
    return plain, rows(ADAPTER_EVENTS, frame)


@st.composite
def subjects(draw: st.DrawFn) -> pl.DataFrame:
    """Survival data with delayed entry, censoring and many ties: group, entry < exit, event."""
    row = st.tuples(st.sampled_from("xy"), st.integers(0, 12), st.integers(1, 12), st.booleans())
    drawn = draw(st.lists(row, min_size=1, max_size=40))
    return pl.DataFrame(
        [(group, entry, entry + length, event) for group, entry, length, event in drawn],
        schema={"group": pl.String, "entry": pl.Int64, "exit": pl.Int64, "event": pl.Boolean},
        orient="row",
    )


def windows(low: int = 0, high: int = HORIZON) -> st.SearchStrategy[Window]:
    """Windows of whole seconds within the horizon."""
    bounds = st.tuples(st.integers(low, high), st.integers(1, high))
    return bounds.map(lambda bound: Window(bound[0] * SECOND, (bound[0] + bound[1]) * SECOND))


def cut(window: Window, share: float) -> tuple[Window, Window] | None:
    """The window in two parts at a whole second; None where it is too short."""
    middle = window.start + int((window.end - window.start) // SECOND * share) * SECOND
    return None if middle <= window.start else (Window(window.start, middle), Window(middle, window.end))
