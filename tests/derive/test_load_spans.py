from typing import Any

from builders import rows

from lora_watch.derive.load_spans import load_spans
from lora_watch.model import SECOND
from lora_watch.schema import ADAPTER_EVENTS


def told(*records: dict[str, Any]) -> list[dict[str, Any]]:
    common = {"kind": "load", "adapter": "a", "reason": "demand", "ok": True}
    return load_spans(rows(ADAPTER_EVENTS, [{**common, **record} for record in records]).lazy()).collect().to_dicts()


READ = {"tier": "cpu", "from_tier": "disk", "at": 12 * SECOND, "seconds": 2.0}
COPY = {"tier": "gpu", "from_tier": "disk", "at": 13 * SECOND, "seconds": 0.5}


def test_a_cold_load_begins_with_its_read_from_disk():
    (row,) = told(READ, COPY)
    assert (row["began"], row["at"], row["cold"]) == (10 * SECOND, 13 * SECOND, True)
    assert (row["disk_seconds"], row["copy_seconds"], row["timed"]) == (2.0, 0.5, True)


def test_a_warm_load_is_its_copy_alone():
    (row,) = told(READ, {**COPY, "from_tier": "cpu"})
    assert (row["began"], row["cold"], row["disk_seconds"]) == (12 * SECOND + 500_000, False, None)


def test_a_read_long_before_or_of_another_adapter_is_not_its_own():
    for read in ({**READ, "at": -60 * SECOND}, {**READ, "adapter": "b"}, {**READ, "ok": False}):
        assert told(read, COPY)[-1]["disk_seconds"] is None


def test_a_load_of_unknown_length_is_a_moment():
    (row,) = told({**COPY, "seconds": None})
    assert (row["began"], row["timed"]) == (13 * SECOND, False)
    assert told({**COPY, "seconds": float("inf")})[0]["timed"] is False


def test_rows_said_twice_count_once_and_the_worst_provenance_is_carried():
    once = {**READ, "seq": 1, "provenance": "inferred"}
    (row,) = told(once, {**COPY, "seq": 2}, {**COPY, "seq": 2})
    assert row["provenance"] == "inferred"
