import pytest
from agent.conftest import Clock, HookedEngine
from agent.fake_vllm import FakeRequest, FakeScheduled, FakeVllm, step

A, B, C, D = (FakeRequest(name, i) for i, name in enumerate("abcd", 1))


def test_a_cold_request_reads_the_disk_then_fills_a_slot_then_runs(engine):
    worker = engine.fake.Worker()
    step(worker, A)
    assert engine.short() == ["start", "load cpu disk a demand", "load gpu disk a 0 demand", "use a 0 cold"]


def test_start_says_what_the_engine_has(engine):
    engine.fake.Worker(slots=2, capacity=4)
    (start,) = engine.records()
    assert {key: start[key] for key in ("role", "slots", "cpu_capacity", "model", "vllm", "engine", "tp_rank")} == {
        "role": "worker",
        "slots": 2,
        "cpu_capacity": 4,
        "model": "tiny",
        "vllm": "0.32.0",
        "engine": "0",
        "tp_rank": 0,
    }


def test_a_load_says_rank_and_bytes(engine):
    step(engine.fake.Worker(), A)
    loads = [record for record in engine.records() if record["kind"] == "load"]
    assert [(load["rank"], load["bytes"], load["ok"], load["in_step"]) for load in loads] == [(8, 33, True, True)] * 2


def test_an_adapter_that_stays_in_the_batch_is_recorded_once(engine):
    worker = engine.fake.Worker()
    for _ in range(5):
        step(worker, A, B)
    assert [row for row in engine.short() if row.startswith("use")] in (
        ["use a 0 cold", "use b 1 cold"],
        ["use b 0 cold", "use a 1 cold"],
    )


def test_an_adapter_that_comes_back_to_its_slot_is_hot(engine):
    worker = engine.fake.Worker()
    step(worker, A)
    step(worker)
    step(worker, A)
    assert engine.short(after=4) == ["release a", "use a 0 hot"]


def test_an_adapter_in_the_cpu_cache_is_warm_and_evicts_the_oldest(engine):
    worker = engine.fake.Worker(slots=2, capacity=4)
    for request in (A, B, C):
        step(worker, request)
    after = len(engine.records())
    step(worker, A)
    assert engine.short(after=after) == ["release c", "evict gpu b 1 lru", "load gpu cpu a 1 demand", "use a 1 warm"]


def test_a_full_cpu_cache_evicts_from_both_tiers_and_the_slot_first(engine):
    worker = engine.fake.Worker(slots=1, capacity=1)
    step(worker, A)
    after = len(engine.records())
    step(worker, B)
    assert engine.short(after=after) == [
        "release a",
        "evict gpu a 0 lru",
        "evict cpu a lru",
        "load cpu disk b demand",
        "load gpu disk b 0 demand",
        "use b 0 cold",
    ]


def test_the_batch_empties_with_a_step_without_tokens(engine):
    worker = engine.fake.Worker()
    step(worker, A, B)
    after = len(engine.records())
    step(worker)
    assert sorted(engine.short(after=after)) == ["release a", "release b"]


def test_an_api_call_between_steps_is_a_preload(engine):
    worker = engine.fake.Worker()
    worker.add_lora(A)
    assert engine.short(after=1) == ["load cpu disk a preload", "load gpu disk a 0 preload"]
    assert all(record["in_step"] is False for record in engine.records()[1:])


def test_a_snapshot_right_after_a_load_lists_what_was_loaded(tmp_path):
    engine = HookedEngine(tmp_path, segment_bytes=1)  # every record ends its segment: a snapshot follows each
    worker = engine.fake.Worker(slots=2, capacity=4)
    worker.add_lora(A)
    worker.add_lora(B)
    held = None
    for record in engine.records():
        if record["kind"] == "load" and record["tier"] == "gpu":
            held = record["adapter"]
        elif record["kind"] == "snapshot" and held is not None:
            assert held in [adapter for _, adapter, *_ in record["gpu"]]


def test_a_preloaded_adapter_is_hot_at_its_first_request(engine):
    worker = engine.fake.Worker()
    worker.add_lora(A)
    step(worker, A)
    assert engine.short(after=3) == ["use a 0 hot"]


def test_a_reload_in_place_says_so_for_both_tiers(engine):
    worker = engine.fake.Worker()
    worker.add_lora(A)
    worker.add_lora(FakeRequest("a", 1, load_inplace=True))
    assert engine.short(after=3) == [
        "evict gpu a 0 inplace",
        "evict cpu a inplace",
        "load cpu disk a inplace",
        "load gpu disk a 0 inplace",
    ]


def test_a_removal_by_the_operator_is_explicit(engine):
    worker = engine.fake.Worker()
    worker.add_lora(A)
    worker.lora_manager.remove_adapter(1)
    assert engine.short(after=3) == ["evict gpu a 0 explicit", "evict cpu a explicit"]


def test_warm_up_is_tagged_and_its_ids_do_not_name_later_adapters(engine):
    worker = engine.fake.Worker()
    for i in (1, 2):
        worker.lora_manager.add_dummy_lora(FakeRequest(f"warmup_{i}", i), rank=8)
    worker.lora_manager.set_active_adapters({FakeRequest("warmup_1", 1)})
    worker.lora_manager.remove_all_adapters()
    warm_up = engine.records()[1:]
    assert {record["reason"] for record in warm_up} == {"warmup"}
    step(worker, A)
    assert engine.short(after=1 + len(warm_up)) == ["load cpu disk a demand", "load gpu disk a 0 demand", "use a 0 cold"]


def test_dropping_every_adapter_is_a_restart(engine):
    worker = engine.fake.Worker()
    worker.add_lora(A)
    worker.lora_manager.remove_all_adapters()
    assert engine.short(after=3) == ["evict gpu a 0 restart", "evict cpu a restart"]


def test_an_adapter_that_cannot_be_read_is_a_failed_load_and_the_error_passes(engine):
    worker = engine.fake.Worker()
    engine.fake.broken.add(1)
    with pytest.raises(FileNotFoundError, match="No adapter"):
        worker.add_lora(A)
    assert engine.short(after=1) == ["load cpu disk a preload failed"]
    assert engine.records()[-1]["error"] == "FileNotFoundError: No adapter found for /adapters/x"


def test_a_copy_that_fails_is_a_failed_load_of_the_slot(tmp_path):
    engine = HookedEngine(tmp_path, fake=FakeVllm(slot_after_copy=True))
    worker = engine.fake.Worker()
    worker.lora_manager._adapter_manager.fail_copy = True
    with pytest.raises(MemoryError):
        step(worker, A)
    assert engine.short(after=1) == ["load cpu disk a demand", "load gpu disk a demand failed"]


def test_an_engine_that_fills_the_slot_after_the_copy_is_recorded_alike(tmp_path):
    engine = HookedEngine(tmp_path, fake=FakeVllm(slot_after_copy=True))
    step(engine.fake.Worker(), A)
    assert engine.short(after=1) == ["load cpu disk a demand", "load gpu disk a 0 demand", "use a 0 cold"]


def test_slots_that_are_all_pinned_are_a_failed_load(engine):
    worker = engine.fake.Worker(slots=1, capacity=4)
    worker.add_lora(A)
    worker.lora_manager.pin_adapter(1)
    with pytest.raises(RuntimeError, match="pinned"):
        step(worker, B)
    assert engine.short(after=4) == ["load cpu disk b demand", "load gpu disk b demand failed"]


def test_a_pin_is_recorded_and_ends_with_the_adapter(engine):
    worker = engine.fake.Worker()
    worker.add_lora(A)
    worker.lora_manager.pin_adapter(1)
    worker.lora_manager.remove_adapter(1)
    assert engine.short(after=3) == ["pin a", "evict gpu a 0 explicit", "unpin a", "evict cpu a explicit"]


def test_a_pin_that_is_refused_says_why(engine):
    worker = engine.fake.Worker()
    with pytest.raises(ValueError, match="not registered"):
        worker.lora_manager.pin_adapter(7)
    assert engine.records()[-1]["ok"] is False
    assert "not registered" in engine.records()[-1]["error"]


def test_pinning_an_adapter_of_the_cpu_cache_loads_it(engine):
    worker = engine.fake.Worker(slots=1, capacity=4)
    worker.add_lora(A)
    worker.add_lora(B)
    after = len(engine.records())
    worker.lora_manager.pin_adapter(1)
    assert engine.short(after=after) == ["evict gpu b 0 lru", "load gpu cpu a 0 preload", "pin a"]


def test_a_new_id_under_an_old_name_is_another_adapter(engine):
    worker = engine.fake.Worker()
    step(worker, A)
    step(worker, FakeRequest("a", 9))
    assert engine.short(after=4)[-2:] == ["load gpu disk a 1 demand", "use a 1 cold"]


def test_records_of_a_step_are_written_at_its_end(engine):
    worker = engine.fake.Worker()
    seen = []
    worker.sample_tokens = lambda _: seen.append(len(engine.records()))
    worker.fail = None
    inside = worker.lora_manager.set_active_adapters
    worker.lora_manager.set_active_adapters = lambda requests: (inside(requests), seen.append(len(engine.records())))
    step(worker, A)
    assert seen == [1, 4]


def test_steps_are_summed_once_a_second(engine):
    worker = engine.fake.Worker()
    apply = worker.lora_manager.set_active_adapters

    def slowly(requests):
        engine.clock.seconds += 0.25
        apply(requests)

    worker.lora_manager.set_active_adapters = slowly
    for _ in range(5):
        step(worker, A)
    (steps,) = [record for record in engine.records() if record["kind"] == "steps"]
    assert (steps["count"], steps["wall_seconds"], steps["execute_seconds"], steps["clock"]) == (4, 1.0, 1.0, "host")


def test_idle_time_belongs_to_no_steps_record(engine):
    worker = engine.fake.Worker()
    step(worker, A)
    engine.clock.seconds += 600
    step(worker, A)
    (steps,) = [record for record in engine.records() if record["kind"] == "steps"]
    assert (steps["count"], steps["wall_seconds"]) == (1, 0.0)


def test_the_last_part_of_a_second_is_recorded_at_the_end(engine):
    worker = engine.fake.Worker()
    step(worker, A)
    worker.shutdown()
    assert engine.short()[-2:] == ["steps", "stop"]


def test_an_engine_built_anew_in_the_process_is_another_boot(engine):
    engine.fake.Worker().shutdown()
    engine.fake.Worker()
    assert len({record["boot"] for record in engine.records()}) == 2


@pytest.mark.parametrize("ranks", [(1, 0), (0, 1)])
def test_other_ranks_record_nothing(tmp_path, ranks):
    engine = HookedEngine(tmp_path, ranks=ranks)
    worker = engine.fake.Worker()
    assert step(worker, A) == "tokens"
    worker.add_lora(B)
    assert engine.records() == []


def test_the_engine_gets_its_own_results_and_errors(engine):
    worker = engine.fake.Worker()
    assert step(worker, A) == "tokens"
    assert worker.add_lora(A) is True
    worker.fail = SystemExit(3)
    with pytest.raises(SystemExit):
        worker.execute_model(scheduler_output=FakeScheduled(1))
    assert engine.guard.failures == 0


class BrokenRecorder:
    """Every door of the recorder raises."""

    boot = ""
    last_at = 0
    engine = "0"

    def __getattr__(self, name):
        raise RuntimeError(f"injected: {name}")


def test_hooks_that_fail_leave_the_engine_working(tmp_path):
    engine = HookedEngine(tmp_path, recorder=BrokenRecorder())
    worker = engine.fake.Worker(slots=1, capacity=2)
    engine.worker.enabled = True
    assert step(worker, A) == "tokens"
    assert step(worker, B) == "tokens"
    assert step(worker) == "tokens"
    assert worker.add_lora(C) is True
    assert worker.lora_manager.pin_adapter(3) is True
    assert worker.lora_manager.remove_adapter(3) is True
    assert worker.lora_manager.add_dummy_lora(FakeRequest("warmup_5", 5), rank=8) is True
    worker.lora_manager.remove_all_adapters()
    worker.shutdown()
    assert engine.guard.failures > 10


def test_a_failure_is_logged_once(tmp_path, caplog):
    engine = HookedEngine(tmp_path, recorder=BrokenRecorder())
    worker = engine.fake.Worker()
    engine.worker.enabled = True
    for _ in range(3):
        step(worker, A)
    assert engine.guard.failures > 3
    assert len(caplog.records) == 1


def test_a_snapshot_says_the_tiers_as_they_are(engine):
    worker = engine.fake.Worker(slots=2, capacity=4)
    step(worker, A)
    step(worker, B)
    worker.lora_manager.pin_adapter(1)
    (part,) = engine.worker.snapshot()
    assert [(row[0], row[1], row[2]) for row in part["gpu"]] == [(0, "a", 1), (1, "b", 2)]
    assert part["cpu"] == [["a", 1], ["b", 2]]
    assert part["pinned"] == [["a", 1]]
    assert part["in_batch"] == [["b", 2]]
    assert (part["slots"], part["cpu_capacity"], part["part"], part["parts"]) == (2, 4, 1, 1)


def test_a_snapshot_with_long_names_comes_in_parts_that_fit_a_line(engine):
    worker = engine.fake.Worker(slots=2, capacity=6)
    for i in range(1, 7):
        worker.add_lora(FakeRequest(f"{i}" + "\x00" * 10_000, i))
    parts = list(engine.worker.snapshot())
    assert [part["part"] for part in parts] == list(range(1, len(parts) + 1))
    assert sum(len(part["cpu"]) for part in parts) == 6
    assert all(len(part["cpu"]) + len(part["gpu"]) <= 1 for part in parts)


def test_the_clock_of_the_test_stands_still():
    assert Clock().wall() == Clock().wall() == 1_000_000_000
