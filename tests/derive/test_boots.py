from typing import Any

from builders import rows

from lora_watch.derive.boots import boots
from lora_watch.model import SECOND
from lora_watch.schema import ADAPTER_EVENTS


def told(*records: dict[str, Any]) -> list[dict[str, Any]]:
    frame = rows(
        ADAPTER_EVENTS, [{"at": record["t"] * SECOND, **{k: v for k, v in record.items() if k != "t"}} for record in records]
    )
    return boots(frame.lazy()).collect().rows(named=True)


START = {"kind": "start", "slots": 4, "cpu_capacity": 8}


def test_a_boot_starts_with_its_slots_and_is_alive_until_told_otherwise():
    (boot,) = told({"t": 3, **START})
    assert (boot["started_at"], boot["ended_at"], boot["ended_by"], boot["slots"], boot["cpu_capacity"], boot["lost"]) == (
        3 * SECOND,
        None,
        None,
        4,
        8,
        0,
    )


def test_an_api_server_is_no_boot_of_a_worker():
    assert told({"t": 0, "kind": "start"}, {"t": 1, "kind": "register", "adapter": "a"}, {"t": 2, "kind": "stop"}) == []


def test_a_boot_whose_start_is_not_held_has_an_unknown_start():
    (boot,) = told({"t": 5, "kind": "use", "adapter": "a"})
    assert (boot["started_at"], boot["first_at"], boot["slots"]) == (None, 5 * SECOND, None)


def test_a_boot_ends_by_stop_by_kill_or_by_the_next_start():
    def ends(*records: dict[str, Any]) -> list[Any]:
        return [(boot["ended_by"], boot["ended_at"] and boot["ended_at"] // SECOND) for boot in told({"t": 0, **START}, *records)]

    assert ends({"t": 9, "kind": "stop"}) == [("stop", 9)]
    assert ends({"t": 9, "kind": "lost", "reason": "killed"}) == [("lost", 9)]
    assert ends({"t": 9, "kind": "lost", "reason": "disk"}) == [(None, None)]
    assert ends({"t": 9, **START, "stream": "new", "seq": 1}) == [("restart", 9), (None, None)]
    assert ends({"t": 9, **START, "stream": "new", "seq": 1}, {"t": 20, "kind": "stop"}) == [("restart", 9), (None, None)]


def test_lost_records_are_summed_once_however_often_they_are_said():
    lost = {"t": 5, "kind": "lost", "reason": "disk", "count": 7, "seq": 9}
    (boot,) = told({"t": 0, **START}, lost, lost, {**lost, "count": 2, "seq": 20})
    assert boot["lost"] == 9


def test_no_events_make_no_boots():
    assert boots(ADAPTER_EVENTS.empty().lazy()).collect().is_empty()
