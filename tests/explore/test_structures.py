"""Which rule reads which frame, and what a store of nothing, or of hostile rows, makes of them."""

import json
from pathlib import Path

import polars as pl
import pytest
from builders import events, requests, rows
from stored import stored

from lora_watch import names
from lora_watch.errors import StoreError
from lora_watch.explore.around import STRUCTURES, Around
from lora_watch.explore.structures import RULES, structures
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.store.tables import Store

END = 20_000 * DAY
WINDOW = Window(END - HOUR, END)
NOBODY = pl.DataFrame(schema=dict.fromkeys(("cluster", "pool", "role"), pl.String()))


def found(store: Store, thrashing: pl.DataFrame = NOBODY, window: Window = WINDOW):
    return list(structures(Around(store, window, DAY), thrashing))


def test_every_structure_has_a_rule_but_those_that_only_explain():
    assert set(STRUCTURES) - set(RULES) == {"cascades", "families"}


def test_an_empty_store_has_no_structures(tmp_path: Path):
    assert found(Store(tmp_path)) == []


def test_every_frame_begins_with_the_same_columns(tmp_path: Path):
    read = Around(Store(tmp_path), WINDOW, DAY)
    heads = {tuple(frame(read).collect_schema().names()[:8]) for frame in STRUCTURES.values()}
    assert heads == {("cluster", "pool", "role", "pods", "adapters", "start", "end", "flagged")}


def ring() -> pl.DataFrame:
    """Three adapters in turn on two slots, a swap a second for ten minutes."""
    records = [{"at": WINDOW.start, "kind": "start", "slots": 2, "clock": "host"}]
    for number in range(600):
        at = WINDOW.start + 10 * MINUTE + number * SECOND
        gone, came = f"a{(number - 2) % 3}", f"a{number % 3}"
        where = {"tier": "gpu", "in_step": True}
        records.append({**where, "at": at, "kind": "evict", "adapter": gone, "reason": "lru"})
        records.append({**where, "at": at + 1, "kind": "load", "adapter": came, "ok": True, "reason": "demand", "seconds": 0.01})
    return rows(ADAPTER_EVENTS, records)


def test_chains_are_told_only_of_pools_that_thrash(tmp_path: Path):
    store = stored(tmp_path, events=ring())
    thrashing = pl.DataFrame({"cluster": ["c"], "pool": ["p"], "role": [""]})
    assert "cascade" not in {one.kind for one in found(store)}
    assert "cascade" in {one.kind for one in found(store, thrashing)}
    assert "cascade" not in {one.kind for one in found(store, thrashing.with_columns(pool=pl.lit("other")))}


def test_a_pin_from_before_the_window_makes_a_ghost_in_it(tmp_path: Path):
    start = {"at": END - 20 * HOUR, "kind": "start", "slots": 2, "clock": "host"}
    load = {"at": END - 5 * HOUR, "kind": "load", "tier": "gpu", "adapter": "old", "slot": 0, "ok": True, "reason": "demand"}
    pin = {"at": END - 4 * HOUR, "kind": "pin", "adapter": "old", "ok": True}
    store = stored(tmp_path, events=rows(ADAPTER_EVENTS, [start, load, pin]))
    assert [one.adapters for one in found(store) if one.kind == "ghost-pins"] == [("old",)]


def test_reads_before_the_window_say_what_is_usual(tmp_path: Path):
    def read(at: int, seconds: float) -> dict:
        base = {"kind": "load", "tier": "cpu", "from_tier": "disk", "adapter": "a", "ok": True, "reason": "demand"}
        return {**base, "at": at, "seconds": seconds, "bytes": 10**8}

    past = [read(END - 5 * HOUR + n * MINUTE, 0.05) for n in range(30)]
    now = [read(END - 30 * MINUTE + n * MINUTE, 1.2) for n in range(8)]
    (one,) = found(stored(tmp_path, events=rows(ADAPTER_EVENTS, past + now)))
    assert (one.kind, one.scope) == ("slow-load", "disk")
    assert "against 50 ms as usual" in one.summary


def test_a_full_cache_is_found_in_samples(tmp_path: Path):
    made = [
        {"at": END - 20 * MINUTE + n * 15 * SECOND, "metric": names.KV_CACHE_USAGE, "value": 0.97, "series": "s", "labels": "{}"}
        for n in range(80)
    ]
    assert {one.kind for one in found(stored(tmp_path, samples=rows(SAMPLES, made)))} == {"kv-pressure"}


HOSTILE = [
    {"at": END - 5 * MINUTE, "kind": "load"},
    {"at": END - 5 * MINUTE, "kind": "load", "tier": "gpu", "adapter": "a", "seconds": float("nan"), "ok": None},
    {"at": END - 5 * MINUTE, "kind": "load", "tier": "gpu", "adapter": "a", "seconds": -1.0, "bytes": -5},
    {"at": END - 5 * MINUTE, "kind": "load", "tier": "cpu", "adapter": "a", "seconds": float("inf")},
    {"at": END - 5 * MINUTE, "kind": "evict", "tier": "gpu", "adapter": None, "reason": "lru"},
    {"at": END - 5 * MINUTE, "kind": "start", "slots": -3, "cpu_capacity": 0, "detail": "not json"},
    {"at": END - 5 * MINUTE, "kind": "snapshot", "detail": json.dumps({"gpu": [[0, "x", 1, None]], "parts": 7})},
    {"at": END - 5 * MINUTE, "kind": "pin", "adapter": None},
    {"at": END - 5 * MINUTE, "kind": "unregister", "adapter": "b"},
    {"at": END - 5 * MINUTE, "kind": "steps", "count": -1, "wall_seconds": -1.0},
    {"at": END - 5 * MINUTE, "kind": "what", "tier": "moon"},
]


@pytest.mark.parametrize("pod", ["pod-0", "", None])
def test_rows_that_make_no_sense_break_no_rule(tmp_path: Path, pod: str | None):
    seen = rows(ADAPTER_EVENTS, HOSTILE * 5, pod=pod, pool=None, stream="s")
    asked = rows(REQUESTS, [{"at": END - MINUTE, "adapter": "a", "queued": END, "scheduled": 5, "finished": -1}] * 3, pod=pod)
    odd = [
        {"at": END - n * SECOND, "metric": metric, "value": value, "series": f"{metric}{n}", "labels": "not json"}
        for metric in (names.KV_CACHE_USAGE, names.WAITING_BY_REASON, names.SAMPLE_CLOCK_OFFSET)
        for n, value in enumerate((float("nan"), float("inf"), -1.0, 1e300), 1)
    ]
    store = stored(tmp_path, events=seen, requests=asked, samples=rows(SAMPLES, odd, pod=pod))
    thrashing = pl.DataFrame({"cluster": ["c"], "pool": [None], "role": [""]}, schema=NOBODY.schema)
    for one in found(store, thrashing):
        assert one.summary.isprintable()


def test_twenty_reloads_at_one_moment_are_told(tmp_path: Path):
    again = {"at": END - 5 * MINUTE, "kind": "load", "tier": "gpu", "adapter": "a", "ok": True, "reason": "inplace"}
    (one,) = found(stored(tmp_path, events=rows(ADAPTER_EVENTS, [again] * 25)))
    assert (one.kind, "25 times at once" in one.summary) == ("reload-loop", True)


def test_what_lies_outside_the_window_is_not_found(tmp_path: Path):
    early = Window(END - 3 * HOUR, END - 2 * HOUR)
    store = stored(tmp_path, events=ring(), requests=requests("a:1/1/2/3"))
    assert found(store, window=early) == []
    assert events("a:1-").height == 1


def test_a_long_window_finds_what_is_held_in_a_short_one(tmp_path: Path):
    """Of a window of more than three hours requests are streamed from the tables, of a shorter one they are held."""
    asked = [
        {"adapter": f"a{n % 7}", "at": END - 2 * HOUR + n * SECOND, "queued": END - 2 * HOUR + n * SECOND} for n in range(7000)
    ]
    store = stored(tmp_path, requests=rows(REQUESTS, asked))
    short, long = (Around(store, Window(END - hours * HOUR, END), DAY) for hours in (3, 9))
    for name in ("families", "imbalance", "shifts", "scans", "prefix_reuse", "starvation"):
        same = [STRUCTURES[name](read).select("pods", "adapters", "flagged").collect().rows() for read in (short, long)]
        assert same[0] == same[1], name


def test_a_damaged_file_of_a_long_window_says_which_table(tmp_path: Path):
    store = stored(tmp_path, requests=rows(REQUESTS, [{"adapter": "a", "at": END - HOUR}]))
    read = Around(store, Window(END - DAY, END), DAY)
    assert read.asked.collect().height == 1
    for file in (tmp_path / REQUESTS.name).rglob("*.parquet"):
        file.write_bytes(b"PAR1")
    with pytest.raises(StoreError, match="reading table requests"):
        list(structures(read, NOBODY))
