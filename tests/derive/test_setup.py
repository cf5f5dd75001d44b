"""How each pod is set up, as far as its own records say."""

from typing import Any

import polars as pl
import pytest
from builders import rows
from polars.testing import assert_frame_equal

from lora_watch.derive.registry import registry
from lora_watch.derive.setup import KINDS, setup
from lora_watch.model import HOUR, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS

WINDOW = Window(0, HOUR)
WORKER = {"kind": "start", "slots": 4, "cpu_capacity": 8, "detail": '{"role":"worker","max_rank":64}'}
API = {"kind": "start", "detail": '{"role":"api"}'}


def log(*records: dict[str, Any], boot: str = "worker", **common: Any) -> pl.DataFrame:
    """Records of one boot, a second apart unless told."""
    made = [{"at": n * SECOND, **record, "stream": f"agent/c/pod-0/{boot}"} for n, record in enumerate(records)]
    return rows(ADAPTER_EVENTS, made, **common)


def named(kind: str, *adapters: str, **more: Any) -> list[dict[str, Any]]:
    return [{"kind": kind, "adapter": adapter, "ok": True, **more} for adapter in adapters]


def asked(*adapters: str | None, at: int = 10 * SECOND) -> pl.DataFrame:
    return rows(REQUESTS, [{"at": at + n, "adapter": adapter} for n, adapter in enumerate(adapters)], stream="api")


def told(*logs: pl.DataFrame, requests: pl.DataFrame | None = None, window: Window = WINDOW) -> dict[str, Any]:
    events = pl.concat(logs).lazy()
    (row,) = setup(events, (asked() if requests is None else requests).lazy(), window).collect().to_dicts()
    return row


def test_a_worker_says_its_slots_its_cpu_places_and_its_rank():
    row = told(log(WORKER))
    assert (row["slots"], row["cpu_capacity"], row["max_rank"], row["since"]) == (4, 8, 64, 0)
    assert (row["known"], row["asked"], row["pinned"], row["largest_rank"]) == (None, 0, 0, None)


def test_the_newest_worker_counts_and_is_told_since_it_started():
    row = told(log(WORKER), log({**WORKER, "at": 50 * SECOND, "slots": 6}, boot="next"))
    assert (row["slots"], row["since"]) == (6, 50 * SECOND)


def test_names_registered_and_asked_for_are_known_once_each():
    row = told(log(WORKER), log(API, *named("register", "a", "b"), boot="api"), requests=asked("b", "c", "c", None))
    assert (row["known"], row["asked"]) == (3, 3)
    assert row["known_at"] == [1 * SECOND, 2 * SECOND, 10 * SECOND + 1]


def test_a_name_that_was_withdrawn_is_not_known_and_a_refused_call_changes_nothing():
    calls = [*named("register", "a", "b", "c"), *named("unregister", "a"), *named("unregister", "b", ok=False)]
    assert told(log(WORKER), log(API, *calls, boot="api"))["known"] == 2


def test_names_of_an_api_server_that_was_replaced_ended_with_it():
    old = log(API, *named("register", "a", "b", "c"), boot="one")
    new = log({**API, "at": 100 * SECOND}, *named("register", "d", at=101 * SECOND), boot="two")
    assert told(log(WORKER), old, new)["known"] == 1
    assert told(log(WORKER), old, log({**API, "at": 100 * SECOND}, boot="two"))["known"] is None


def test_a_restarted_worker_beside_the_same_server_keeps_its_names():
    row = told(log(WORKER), log({**WORKER, "at": 99 * SECOND}, boot="next"), log(API, *named("register", "a"), boot="api"))
    assert (row["known"], row["known_at"], row["since"]) == (1, [1 * SECOND], 99 * SECOND)


def test_a_pin_ends_with_its_adapters_unpin_or_evict():
    calls = [*named("pin", "a", "b", "c"), *named("unpin", "b"), *named("evict", "c"), *named("pin", "d", ok=False)]
    row = told(log(WORKER, *calls))
    assert (row["pinned"], row["pinned_at"]) == (1, [1 * SECOND])


def test_pins_of_the_worker_before_ended_with_it():
    row = told(log(WORKER, *named("pin", "a")), log({**WORKER, "at": 99 * SECOND}, boot="next"))
    assert (row["pinned"], row["pinned_at"]) == (0, None)


def test_the_largest_rank_that_was_loaded_is_told_with_the_bytes_of_that_rank():
    loads = [
        {"kind": "load", "adapter": name, "tier": "gpu", "rank": rank, "bytes": size}
        for name, rank, size in (("a", 8, 900), ("b", 16, 100), ("c", 16, 200), ("d", None, 5000))
    ]
    row = told(log(WORKER, *loads))
    assert (row["largest_rank"], row["largest_bytes"]) == (16, 200)


def test_requests_outside_the_window_and_events_after_it_do_not_count():
    late = log({**WORKER, "at": HOUR, "slots": 99}, boot="later")
    row = told(log(WORKER), late, requests=asked("a", at=HOUR))
    assert (row["slots"], row["known"], row["asked"]) == (4, None, 0)


def test_an_api_server_alone_is_no_pod_that_has_slots():
    frame = setup(log(API, *named("register", "a"), boot="api").lazy(), asked().lazy(), WINDOW).collect()
    assert frame.is_empty()


@pytest.mark.parametrize("value", ["null", '"many"', "[]"])
def test_a_rank_that_is_no_number_is_unknown(value):
    assert told(log({**WORKER, "detail": f'{{"max_rank":{value}}}'}))["max_rank"] is None


def test_records_said_twice_and_in_any_order_say_the_same():
    events = pl.concat([log(WORKER, *named("pin", "a")), log(API, *named("register", "a", "b"), boot="api")])
    once = setup(events.lazy(), asked("c").lazy(), WINDOW).collect()
    assert_frame_equal(once, setup(pl.concat([events, events]).reverse().lazy(), asked("c").lazy(), WINDOW).collect())


def test_the_kinds_that_are_read_are_enough():
    events = pl.concat([log(WORKER, *named("pin", "a"), *named("use", "a")), log(API, *named("register", "a"), boot="api")])
    kept = events.filter(pl.col("kind").is_in(KINDS))
    frames = [setup(one.lazy(), asked().lazy(), WINDOW).collect() for one in (events, kept)]
    assert_frame_equal(*frames)


def test_a_registry_says_of_each_name_what_was_accepted_last_and_when():
    calls = log(API, *named("register", "a", "b"), *named("unregister", "a"), boot="api")
    found = registry(calls.lazy(), HOUR).select("adapter", "kind", "at").sort("adapter").collect()
    assert found.rows() == [("a", "unregister", 3 * SECOND), ("b", "register", 2 * SECOND)]
    assert registry(calls.lazy(), 1).collect().is_empty()
