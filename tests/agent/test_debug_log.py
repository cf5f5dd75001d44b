"""The log of an unmodified vLLM as event log v1: tiers, names and boots by the rules, whatever else the file holds."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch.agent.debug_lines import parse
from lora_watch.agent.debug_log import HOLD, SNAPSHOT_EVERY, Converter, convert

DATA = Path(__file__).parents[1] / "data"
NOW = 1_796_030_000_000_000  # 2026-11-30
START = 1_796_000_000.0
NAMED = "Loaded new LoRA adapter: name '{}', path '/a'"


class Log:
    """Writes JSON lines as the shipped configuration does, a millisecond apart."""

    def __init__(self, at: float = START) -> None:
        self.at = at
        self.lines: list[str] = []
        self.pid = 100

    def _line(self, pid: int, process: str, name: str, level: str, message: str) -> "Log":
        self.at += 0.001
        fields = {
            "created": self.at,
            "process": pid,
            "processName": process,
            "name": name,
            "levelname": level,
            "message": message,
        }
        self.lines.append(json.dumps(fields))
        return self

    def worker(self, message: str, process: str = "VllmWorker-0") -> "Log":
        return self._line(self.pid, process, "vllm.lora.model_manager", "DEBUG", message)

    def api(self, message: str, level: str = "INFO") -> "Log":
        return self._line(1, "MainProcess", "vllm.entrypoints.openai.models.serving", level, message)

    def cold(self, adapter_id: int, slot: int, *, cpu_out: int | None = None, gpu_out: int | None = None) -> "Log":
        """A load from disk in the engine's order; ``cpu_out`` and ``gpu_out`` make room."""
        if cpu_out is not None:
            self.worker(f"Removing adapter int id: {cpu_out}")
        self.worker(f"Adding lora. Model id: {adapter_id}, int id: {adapter_id}")
        return self.warm(adapter_id, slot, gpu_out=gpu_out)

    def warm(self, adapter_id: int, slot: int, *, gpu_out: int | None = None) -> "Log":
        if gpu_out is not None:
            self.worker(f"Removing adapter int id: {gpu_out}")
        return self.worker(f"Activating LoRA. int id: {adapter_id}, slot index: {slot}")

    def registered(self, adapter_id: int, name: str, slot: int, **out: int) -> "Log":
        return self.cold(adapter_id, slot, **out).api(NAMED.format(name))

    def pause(self, seconds: float) -> "Log":
        self.at += seconds
        return self


def moves(log: Log | Iterable[str]) -> list[str]:
    """Loads and evictions as ``load gpu a 0 preload``."""
    records = convert(log.lines if isinstance(log, Log) else log, now=NOW)
    return [text(r) for r in records if r["kind"] in ("load", "evict")]


def text(r: dict[str, Any]) -> str:
    slot = f" {r['slot']}" if r.get("slot") is not None else ""
    return f"{r['kind']} {r['tier']} {r['adapter']}{slot} {r['reason']}"


def test_a_cold_load_is_told_by_tier_with_what_it_displaced():
    log = Log().registered(1, "a", 0).registered(2, "b", 0, cpu_out=9, gpu_out=1)
    assert moves(log)[2:] == ["evict cpu id:9 lru", "load cpu b preload", "evict gpu a 0 lru", "load gpu b 0 preload"]


def test_a_load_of_a_known_name_is_a_demand():
    log = Log().registered(1, "a", 0).registered(2, "b", 0, gpu_out=1).warm(1, 0, gpu_out=2)
    assert moves(log)[-2:] == ["evict gpu b 0 lru", "load gpu a 0 demand"]


def test_the_origin_of_a_warm_load_is_the_cpu_cache_and_of_a_cold_one_the_disk():
    log = Log().registered(1, "a", 0).registered(2, "b", 0, gpu_out=1).warm(1, 0, gpu_out=2)
    loads = [r for r in convert(log.lines, now=NOW) if r["kind"] == "load" and r["tier"] == "gpu"]
    assert [r["from_tier"] for r in loads] == ["disk", "disk", "cpu"]


def test_two_equal_removals_before_another_adapter_are_the_cpu_cache_and_the_slot():
    log = Log().registered(1, "a", 0)
    log.worker("Removing adapter int id: 1").worker("Removing adapter int id: 1").cold(2, 0)
    assert moves(log)[2:4] == ["evict gpu a 0 lru", "evict cpu a lru"]


def test_two_equal_removals_before_the_same_adapter_are_a_reload_in_place():
    log = Log().registered(1, "a", 0)
    log.worker("Removing adapter int id: 1").worker("Removing adapter int id: 1").cold(1, 0)
    expected = ["evict gpu a 0 inplace", "evict cpu a inplace", "load cpu a inplace", "load gpu a 0 inplace"]
    assert moves(log)[2:] == expected


def test_two_equal_removals_with_nothing_after_them_are_an_explicit_removal():
    log = Log().registered(1, "a", 0)
    log.worker("Removing adapter int id: 1").worker("Removing adapter int id: 1")
    assert moves(log)[2:] == ["evict gpu a 0 explicit", "evict cpu a explicit"]


def test_a_removal_long_before_the_next_line_is_not_made_for_it():
    log = Log().registered(1, "a", 0).registered(2, "b", 1)
    log.worker("Removing adapter int id: 1").worker("Removing adapter int id: 1").pause(60).registered(3, "c", 0)
    assert moves(log)[4:6] == ["evict gpu a 0 explicit", "evict cpu a explicit"]


def test_a_removal_while_the_cpu_cache_has_room_is_not_made_for_the_load_behind_it():
    log = Log().api("non-default args: {'enable_lora': True, 'max_loras': 2, 'max_cpu_loras': 3}")
    log.registered(1, "a", 0).registered(2, "b", 1)
    log.worker("Removing adapter int id: 1").worker("Removing adapter int id: 1").registered(3, "c", 0)
    assert moves(log)[4:6] == ["evict gpu a 0 explicit", "evict cpu a explicit"]


def test_in_plain_text_a_removal_up_to_a_second_before_may_have_made_room():
    line = "(Worker pid=7) DEBUG 11-30 08:20:{} [lora/model_manager.py:1] {}"
    said = [(10, "Adding lora. Model id: 1, int id: 1"), (10, "Activating LoRA. int id: 1, slot index: 0")]
    said += [(20, "Removing adapter int id: 1"), (20, "Removing adapter int id: 1"), (21, "Adding lora. Model id: 2, int id: 2")]
    assert moves(line.format(*pair) for pair in said)[2:4] == ["evict gpu id:1 0 lru", "evict cpu id:1 lru"]


def test_an_explicit_removal_just_before_a_warm_load_is_told_apart_from_the_eviction():
    log = Log().registered(1, "a", 0).registered(2, "b", 1).registered(3, "c", 0, gpu_out=1)
    log.worker("Removing adapter int id: 1").warm(3, 0)  # 1 sits in the CPU cache only
    assert "evict cpu a explicit" in moves(log)


def test_an_id_without_a_name_waits_for_it():
    converter = Converter(now=NOW)
    log = Log().cold(1, 0)
    assert [r["kind"] for line in log.lines for r in converter.feed(line)] == ["start"]
    named = converter.feed(Log(log.at).api(NAMED.format("a")).lines[0])
    assert [r.get("adapter") for r in named] == ["a", "a", None, "a"]


def test_an_id_that_never_gets_a_name_is_called_by_its_number():
    log = Log().registered(1, "a", 0).cold(7, 1).pause(2 * HOLD / 1e6).warm(1, 1, gpu_out=7)
    assert moves(log)[2:4] == ["load cpu id:7 demand", "load gpu id:7 1 demand"]


def test_a_failed_load_consumes_an_id_and_takes_no_name():
    log = Log().registered(1, "a", 0).registered(3, "c", 1)
    assert moves(log)[2:] == ["load cpu c preload", "load gpu c 1 preload"]


def test_an_adapter_that_was_added_and_could_not_be_activated_takes_no_name():
    log = Log().registered(1, "a", 0).worker("Adding lora. Model id: 2, int id: 2").registered(3, "c", 1)
    assert [r["adapter"] for r in convert(log.lines, now=NOW) if r.get("adapter_id") == 3] == ["c", "c", "c"]


def test_loads_that_overlap_get_their_names_in_order():
    log = Log().cold(1, 0).cold(2, 1).api(NAMED.format("a")).api(NAMED.format("b"))
    assert moves(log) == ["load cpu a preload", "load gpu a 0 preload", "load cpu b preload", "load gpu b 1 preload"]


def test_a_name_registered_again_keeps_the_old_id_resident_beside_the_new():
    log = Log().registered(1, "a", 0).api("Removed LoRA adapter: name 'a'").registered(2, "a", 1)
    records = list(convert(log.lines, now=NOW))
    assert [(r["adapter_id"], r["adapter"]) for r in records if r["kind"] == "load" and r["tier"] == "gpu"] == [
        (1, "a"),
        (2, "a"),
    ]
    assert [(r["kind"], r["adapter_id"]) for r in records if "register" in r["kind"]] == [
        ("register", 1),
        ("unregister", 1),
        ("register", 2),
    ]


def test_a_reload_under_a_registered_name_keeps_its_id():
    log = Log().registered(1, "a", 0)
    log.worker("Removing adapter int id: 1").worker("Removing adapter int id: 1").registered(1, "a", 0)
    registers = [r for r in convert(log.lines, now=NOW) if r["kind"] == "register"]
    assert [(r["adapter_id"], r["inplace"]) for r in registers] == [(1, False), (1, True)]


def test_an_adapter_found_by_a_resolver_is_named():
    log = Log().cold(1, 0).api("Resolved and loaded LoRA adapter 'found' using LoRAResolver")
    assert moves(log) == ["load cpu found preload", "load gpu found 0 preload"]


def test_warm_up_dummies_are_tagged_and_their_ids_free_for_real_adapters():
    log = Log().cold(1, 0).cold(2, 1).pause(60)
    for adapter_id in (1, 2):
        log.worker(f"Removing adapter int id: {adapter_id}").worker(f"Removing adapter int id: {adapter_id}")
    log.pause(20).registered(1, "a", 0)
    assert {move.rsplit(" ", 1)[1] for move in moves(log)[:-2]} == {"warmup"}
    assert moves(log)[-2:] == ["load cpu a preload", "load gpu a 0 preload"]


def test_a_new_worker_process_is_a_new_boot_with_its_own_seqs_and_names():
    log = Log().registered(1, "a", 0).registered(2, "b", 1)
    log.pid = 200
    log.registered(1, "b", 0)
    loads = [r for r in convert(log.lines, now=NOW) if r["kind"] == "load" and r["tier"] == "gpu"]
    assert [r["adapter"] for r in loads] == ["a", "b", "b"]
    assert len({r["boot"] for r in loads}) == 2


def test_a_restart_under_the_same_process_id_is_noticed():
    log = Log().registered(1, "a", 0).pause(60).registered(1, "z", 0)
    loads = [r for r in convert(log.lines, now=NOW) if r["kind"] == "load" and r["tier"] == "gpu"]
    assert [r["adapter"] for r in loads] == ["a", "z"]
    assert len({r["boot"] for r in loads}) == 2


def test_the_start_line_of_the_server_gives_slots_and_places():
    line = "non-default args: {'lora_modules': [LoRAModulePath(name=\"'max_loras': 99\")], 'enable_lora': True, 'max_loras': 8}"
    log = Log().api(line).registered(1, "a", 0)
    start = next(r for r in convert(log.lines, now=NOW) if r["kind"] == "start")
    assert (start["slots"], start["cpu_capacity"]) == (8, 8)


def test_capacities_are_unknown_without_a_start_line():
    start = next(convert(Log().registered(1, "a", 0).lines, now=NOW))
    assert (start["slots"], start["cpu_capacity"]) == (None, None)


def test_only_rank_zero_is_told():
    log = Log()
    for process in ("VllmWorker-0", "VllmWorker-1", "Worker_TP1"):
        log.worker("Adding lora. Model id: 1, int id: 1", process)
    assert len(moves(log)) == 1


def test_data_parallel_engines_are_kept_apart():
    log = Log()
    for pid, process in ((1001, "Worker_DP0_TP0"), (1002, "Worker_DP1_TP0")):
        log.pid = pid
        log.worker("Adding lora. Model id: 1, int id: 1", process)
        log.worker("Activating LoRA. int id: 1, slot index: 0", process)
    log.api(NAMED.format("a"))
    loads = [r for r in convert(log.lines, now=NOW) if r["kind"] == "load" and r["tier"] == "gpu"]
    assert sorted((r["engine"], r["adapter"]) for r in loads) == [("0", "a"), ("1", "a")]


def test_a_log_that_begins_in_the_middle_is_told_from_there():
    log = Log().warm(5, 1, gpu_out=3).warm(3, 1, gpu_out=5)
    assert moves(log) == ["evict gpu id:3 lru", "load gpu id:5 1 demand", "evict gpu id:5 1 lru", "load gpu id:3 1 demand"]


@pytest.mark.parametrize("missing", [5, 6])
def test_a_missing_line_is_a_loss_followed_by_how_things_are(missing):
    lines = Log().registered(1, "a", 0).registered(2, "b", 1).registered(3, "c", 0, gpu_out=1).lines
    del lines[missing + 1]
    kinds = [r["kind"] for r in convert(lines, now=NOW)]
    assert kinds.count("lost") == 1
    assert kinds[kinds.index("lost") + 1] == "snapshot"


def test_plain_text_is_dated_by_the_year_it_must_be_of():
    line = "(Worker pid=7) DEBUG {} 08:20:32 [lora/model_manager.py:68] Removing adapter int id: 3"
    days = {day: parse(line.format(day), now=NOW) for day in ("11-30", "12-01", "12-25", "02-29")}
    assert {day: seen and seen.at for day, seen in days.items()} == {
        "11-30": 1_796_026_832_000_000,
        "12-01": 1_796_113_232_000_000,
        "12-25": 1_766_650_832_000_000,
        "02-29": 1_772_353_232_000_000,  # no leap year: the day after the 28th
    }


def test_the_time_of_a_log_collector_is_preferred():
    line = "(Worker pid=7) DEBUG 01-01 00:00:00 [lora/model_manager.py:68] Removing adapter int id: 3"
    seen = parse(f"2026-11-30T08:20:32.25+02:00 stderr F {line}", now=NOW)
    assert seen is not None
    assert seen.at == 1_796_019_632_250_000


def test_colours_are_passed_over():
    line = "\x1b[0;36m(Worker pid=7)\x1b[0;0m \x1b[37mDEBUG\x1b[0m 11-30 08:20:32 [models.py:68] Removing adapter int id: 3"
    assert parse(line, now=NOW) is not None


def test_a_name_with_line_breaks_in_plain_text_is_joined():
    head = "(APIServer pid=1) INFO 11-30 08:20:33 [entrypoints/.../models/serving.py:226] "
    worker = "(Worker pid=7) DEBUG 11-30 08:20:32 [lora/model_manager.py:1383] "
    lines = [f"{worker}Adding lora. Model id: 1, int id: 1", f"{worker}Activating LoRA. int id: 1, slot index: 0"]
    lines += [f"{head}Loaded new LoRA adapter: name 'two\r", f"{head}lines', path '/a'"]
    assert moves(lines) == ["load cpu two\nlines preload", "load gpu two\nlines 0 preload"]


@pytest.mark.parametrize("forged", ["Removing adapter int id: 1", "Activating LoRA. int id: 1, slot index: 0"])
def test_a_name_cannot_forge_what_the_worker_says(forged):
    honest = Log().registered(1, "a", 0).api(NAMED.format(forged))
    assert len(moves(honest)) == 2
    head = "(APIServer pid=1) INFO 11-30 08:20:33 [entrypoints/.../models/serving.py:226] "
    assert moves([f"{head}Loaded new LoRA adapter: name 'x\r", f"{head}{forged}", f"{head}', path '/a'"]) == []


def test_a_name_that_looks_like_the_end_of_the_line_is_kept_whole():
    log = Log().registered(1, "x', path '/etc", 0)
    assert moves(log)[0] == "load cpu x', path '/etc preload"


def test_the_json_capture_of_another_version_is_told_whole():
    lines = (DATA / "vllm-debug-0.28.jsonl").read_text().splitlines()
    records = list(convert(lines, now=NOW))
    count = sum("Adding lora" in line or "Activating" in line or "Removing" in line for line in lines)
    assert sum(r["kind"] in ("load", "evict") for r in records) == count == 33
    assert not [r for r in records if r["kind"] == "lost" or str(r.get("adapter")).startswith("id:")]


def test_the_text_capture_is_told_whole():
    lines = (DATA / "vllm-debug-0.32.log").read_text().splitlines()
    records = list(convert(lines, now=NOW))
    count = sum("Adding lora" in line or "Activating" in line or "Removing" in line for line in lines)
    assert sum(r["kind"] in ("load", "evict") for r in records) == count
    assert [(r["slots"], r["cpu_capacity"]) for r in records if r["kind"] == "start" and r["role"] == "worker"] == [(2, 3)]


def test_the_same_lines_give_the_same_records():
    lines = (DATA / "vllm-debug-0.28.jsonl").read_text().splitlines()
    assert list(convert(lines, now=NOW)) == list(convert(lines, now=NOW + 10**15))


def test_a_snapshot_is_told_now_and_then():
    log = Log().registered(1, "a", 0).registered(2, "b", 0, gpu_out=1)
    for i in range(SNAPSHOT_EVERY // 2):
        log.warm(1 + i % 2, 0, gpu_out=2 - i % 2)
    snapshots = [r for r in convert(log.lines, now=NOW) if r["kind"] == "snapshot"]
    assert [len(r["cpu"]) for r in snapshots] == [2]


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "{",
        "null",
        "{}",
        "[" * 10_000,
        '{"created": NaN}',
        '{"created": true, "process": 1, "message": "x"}',
        "\x00" * 50,
        "\ufffd",
        "x" * 2_000_000,
    ],
)
def test_garbage_is_passed_over(garbage):
    log = Log().registered(1, "a", 0)
    log.lines.insert(1, garbage)
    assert moves(log) == ["load cpu a preload", "load gpu a 0 preload"]


MESSAGES = st.one_of(
    st.builds("Adding lora. Model id: {0}, int id: {0}".format, st.integers(1, 6)),
    st.builds("Activating LoRA. int id: {}, slot index: {}".format, st.integers(1, 6), st.integers(0, 2)),
    st.builds("Removing adapter int id: {}".format, st.integers(1, 6)),
    st.sampled_from([NAMED.format("a"), NAMED.format("b"), "Removed LoRA adapter: name 'a'", "non-default args: {}"]),
)


@settings(deadline=None)
@given(st.lists(st.tuples(MESSAGES, st.sampled_from([0.0, 1.0, 100.0]))))
def test_any_lines_give_sound_records(said):
    log = Log()
    for message, pause in said:
        log.pause(pause)
        (log.worker if message.startswith(("Adding", "Activating", "Removing")) else log.api)(message)
    records = list(convert(log.lines, now=NOW))
    lines = sum(message.startswith(("Adding", "Activating", "Removing")) for message, _ in said)
    assert sum(r["kind"] in ("load", "evict") for r in records) == lines
    for boot in {r["boot"] for r in records}:
        mine = [r for r in records if r["boot"] == boot]
        assert [r["seq"] for r in mine] == list(range(1, len(mine) + 1))
        assert [r["at"] for r in mine] == sorted(r["at"] for r in mine)
        assert mine[0]["kind"] == "start"


@settings(deadline=None)
@given(st.text(), st.text(alphabet="\n\r'\"\\,{}() abcLoaded", max_size=40))
def test_any_text_is_read_without_an_error(line, name):
    converter = Converter(now=NOW)
    converter.feed(line)
    converter.feed(f"(A pid=1) INFO 11-30 08:20:33 [serving.py:226] Loaded new LoRA adapter: name '{name}")
    converter.feed(line)
    converter.flush()
