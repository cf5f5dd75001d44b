"""What ``lora-watch status`` answers where the data or the terminal are odd."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import rows

from lora_watch.errors import LoraWatchError
from lora_watch.explore.queries import overview_by_shards
from lora_watch.explore.status import as_json, read
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, Batch
from lora_watch.store.tables import Store

NOW = 1_796_000_000 * SECOND


def stored(folder: Path, pod: str, at: int, adapter: str = "a") -> Store:
    store = Store(folder)
    load = {"at": at, "kind": "load", "tier": "gpu", "adapter": adapter, "from_tier": "cpu", "reason": "demand", "ok": True}
    start = {"at": at - SECOND, "kind": "start", "slots": 2, "cpu_capacity": 2}
    frame = rows(ADAPTER_EVENTS, [start, load], pod=pod, stream=f"agent/c/{pod}/boot")
    store.ledger(ADAPTER_EVENTS).append(Batch(frame, {frame["stream"][0]: 2}), at=at)
    return store


def test_a_pod_whose_clock_is_ahead_does_not_move_the_window_past_the_others(tmp_path: Path):
    stored(tmp_path, "right", NOW - SECOND)
    store = stored(tmp_path, "ahead", NOW + HOUR)
    shown = read(store, (10 * MINUTE, None), lookback=HOUR, now=NOW)
    assert (shown.window.end, shown.pods["pod"].to_list()) == (NOW - SECOND + 1, ["right"])


def test_where_all_data_lie_ahead_the_window_ends_with_them(tmp_path: Path):
    store = stored(tmp_path, "ahead", NOW + HOUR)
    assert read(store, (10 * MINUTE, None), lookback=HOUR, now=NOW).window.end == NOW + HOUR + 1


def test_a_window_that_is_yet_to_come_is_refused(tmp_path: Path):
    store = stored(tmp_path, "pod-0", NOW)
    with pytest.raises(LoraWatchError, match="yet to come"):
        read(store, (10 * MINUTE, NOW + DAY), lookback=HOUR, now=NOW + MINUTE)
    assert read(store, (10 * MINUTE, NOW + DAY), lookback=HOUR, now=NOW + 2 * DAY).window.end == NOW + DAY


def test_any_name_passes_a_terminal_that_lacks_its_letters(tmp_path: Path):
    store = stored(tmp_path, "pod 🦙", NOW, adapter="ключ 🦙")
    command = [sys.executable, "-m", "lora_watch.cli", "status", "--data", str(tmp_path)]
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    for_people = subprocess.run(command, capture_output=True, env=latin, check=True).stdout.decode("latin-1")
    for_programs = subprocess.run([*command, "--format", "json"], capture_output=True, env=latin, check=True).stdout
    assert "\\U0001f999" in for_people
    assert [one["adapter"] for one in json.loads(for_programs)["adapters"]] == ["ключ 🦙"]
    assert as_json(read(store, (HOUR, None), lookback=HOUR)).isascii()


def test_the_overview_of_many_shards_is_that_of_one(tmp_path: Path):
    for number in range(6):
        store = stored(tmp_path, f"pod-{number}", NOW - number * MINUTE, adapter=f"a{number % 3}")
    window = Window(NOW - 4 * MINUTE, NOW + 1)
    one, many = (overview_by_shards(store, window, HOUR, shards) for shards in (1, 16))
    assert one.pods.height == 6
    assert one.pods.equals(many.pods)
    assert one.adapters.equals(many.adapters)


def test_steps_that_end_behind_the_window_count_with_their_part(tmp_path: Path):
    store = Store(tmp_path)
    clocked = {"kind": "steps", "count": 1, "clock": "cuda", "wall_seconds": 2.0, "execute_seconds": 1.0, "adapter_seconds": 0.0}
    records = [
        {"at": NOW, "kind": "start", "slots": 2},
        {**clocked, "at": NOW + 5 * SECOND},
        {**clocked, "at": NOW + 11 * SECOND},
    ]
    frame = rows(ADAPTER_EVENTS, records, stream="s")
    store.ledger(ADAPTER_EVENTS).append(Batch(frame, {"s": 3}), at=NOW)
    shown = overview_by_shards(store, Window(NOW, NOW + 10 * SECOND), HOUR)
    assert shown.pods["share"].to_list() == [pytest.approx((1.0 + 0.5) / 10)]
