import polars as pl
from builders import events, rows

from lora_watch.derive.moves import moves
from lora_watch.model import SECOND
from lora_watch.schema import ADAPTER_EVENTS


def told(frame: pl.DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return moves(frame.lazy()).select(columns).collect().rows()


def test_a_load_says_whether_an_eviction_made_room_for_it():
    assert told(events("a:0-30 b:30- c:40-"), "kind", "adapter", "made_room") == [
        ("load", "a", False),
        ("evict", "a", False),
        ("load", "b", True),
        ("load", "c", False),
    ]


def test_an_eviction_more_than_a_minute_ago_made_room_for_nothing():
    assert told(events("a:0-30 b:91-"), "made_room")[-1] == (False,)


def test_each_knows_what_came_next_in_its_own_boot():
    other = events("b:5-", pod="pod-1")
    assert told(pl.concat([events("a:0-30"), other]), "pod", "next_kind", "next_at") == [
        ("pod-0", "evict", 30 * SECOND),
        ("pod-0", None, None),
        ("pod-1", None, None),
    ]


def test_failed_loads_are_there_and_warm_up_the_cpu_tier_and_what_is_said_twice_are_not():
    base = {"at": 0, "kind": "load", "tier": "gpu", "adapter": "a"}
    records = [
        {**base, "ok": False},
        {**base, "reason": "warmup"},
        {**base, "tier": "cpu"},
        {"at": 0, "kind": "use", "tier": "gpu"},
    ]
    frame = rows(ADAPTER_EVENTS, records)
    assert told(pl.concat([frame, frame]), "seq", "ok") == [(1, False)]
