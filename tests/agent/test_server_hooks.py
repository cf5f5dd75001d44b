import types
from dataclasses import dataclass

import pytest
from agent.conftest import Clock, HookedEngine
from agent.fake_vllm import FakeRequest, FakeRequestState, FakeStats, run
from agent.test_hooks import BrokenRecorder


@pytest.fixture
def models(engine):
    return engine.fake.OpenAIServingModels(engine_client=None)


def registered(engine):
    fields = ("kind", "adapter", "adapter_id", "path", "ok", "inplace", "error")
    return [{name: r[name] for name in fields if name in r} for r in engine.records()[1:]]


def test_a_registered_name_is_recorded_with_its_id_and_path(engine, models):
    assert run(models.load_lora_adapter(FakeRequest("a", 0, "/adapters/a"))) == "Success"
    assert registered(engine) == [
        {"kind": "register", "adapter": "a", "adapter_id": 1, "path": "/adapters/a", "ok": True, "inplace": False}
    ]


def test_a_refused_name_is_recorded_with_the_reason(engine, models):
    run(models.load_lora_adapter(FakeRequest("bad", 0, "/nowhere")))
    (record,) = registered(engine)
    assert (record["ok"], record["adapter_id"], record["error"]) == (False, None, "No adapter found for /nowhere")


def test_withdrawing_a_name_evicts_nothing(engine, models):
    run(models.load_lora_adapter(FakeRequest("a", 0, "/adapters/a")))
    run(models.unload_lora_adapter(FakeRequest("a", 0)))
    run(models.unload_lora_adapter(FakeRequest("a", 0)))
    assert [(r["kind"], r["adapter_id"], r["ok"]) for r in registered(engine)] == [
        ("register", 1, True),
        ("unregister", 1, True),
        ("unregister", None, False),
    ]


def test_a_name_found_by_a_resolver_is_registered_once(engine, models):
    models.resolvable["late"] = "/adapters/late"
    run(models.resolve_lora("late"))
    run(models.resolve_lora("late"))
    assert [(r["adapter"], r["adapter_id"], r["path"]) for r in registered(engine)] == [("late", 99, "/adapters/late")]


def test_a_name_nobody_knows_is_no_event(engine, models):
    run(models.resolve_lora("typo"))
    assert registered(engine) == []


def test_an_adapter_that_was_found_but_not_loaded_is_a_refused_name(engine, models):
    models.resolvable["broken"] = None
    run(models.resolve_lora("broken"))
    assert [(r["adapter"], r["ok"]) for r in registered(engine)] == [("broken", False)]


def test_one_server_for_several_engines_does_not_say_which(engine):
    client = types.SimpleNamespace(vllm_config=types.SimpleNamespace(parallel_config=types.SimpleNamespace(data_parallel_size=2)))
    engine.fake.OpenAIServingModels(engine_client=client)
    assert engine.records()[0]["engine"] == ""


def test_a_finished_request_says_its_times_in_wall_time(engine):
    # the engine's clock and the wall clock stand at the same 1000 s here
    processor = engine.fake.OutputProcessor()
    stats = FakeStats(arrival_time=990.0, queued_ts=991.0, scheduled_ts=992.5, first_token_ts=994.0, last_token_ts=999.0)
    processor.request_states["r1"] = FakeRequestState("r1", "cmpl-1", "a", stats, num_cached_tokens=3)
    processor.finish("r1", "length")
    (record,) = engine.records()
    times = [record[name] / 1e6 for name in ("arrived", "queued", "scheduled", "first_token", "finished")]
    assert times == [990.0, 991.0, 992.5, 994.0, 999.0]
    counts = [record[name] for name in ("prompt_tokens", "generated_tokens", "cached_tokens", "preemptions")]
    assert (record["request_id"], record["adapter"], record["finish_reason"], counts) == ("cmpl-1", "a", "length", [7, 5, 3, 0])


@dataclass
class PutAside(Clock):
    """Before each of so many looks at the monotonic clock the thread is put aside for 12 ms."""

    looks: int = 0

    def monotonic(self):
        if self.looks:
            self.looks -= 1
            self.seconds += 0.012
        return self.seconds


@pytest.mark.parametrize(("looks", "off"), [(2, 0.0), (6, 0.0), (100, 0.007)])
def test_a_thread_that_is_put_aside_between_two_clocks_moves_no_time(tmp_path, looks, off):
    engine = HookedEngine(tmp_path, clock=PutAside())
    processor = engine.fake.OutputProcessor()
    stats = FakeStats(arrival_time=990.0, queued_ts=991.0, scheduled_ts=992.5, first_token_ts=994.0, last_token_ts=999.0)
    processor.request_states["r1"] = FakeRequestState("r1", "cmpl-1", "a", stats)
    engine.clock.looks = looks
    processor.finish("r1", "length")
    (record,) = engine.records()
    assert [record[name] / 1e6 for name in ("queued", "scheduled", "finished")] == pytest.approx([991.0, 992.5, 999.0], abs=off)


def test_a_request_to_the_base_model_has_no_adapter(engine):
    processor = engine.fake.OutputProcessor()
    processor.request_states["r1"] = FakeRequestState("r1", "cmpl-1")
    processor.finish("r1", "stop")
    assert engine.records()[0]["adapter"] is None


def test_a_time_the_engine_did_not_reach_is_unknown(engine):
    processor = engine.fake.OutputProcessor()
    processor.request_states["r1"] = FakeRequestState("r1", "cmpl-1")
    processor.finish("r1", "stop")
    (record,) = engine.records()
    assert [record[name] for name in ("queued", "scheduled", "first_token")] == [None] * 3


def test_an_engine_without_stats_still_tells_who_was_asked(engine):
    processor = engine.fake.OutputProcessor()
    processor.request_states["r1"] = FakeRequestState("r1", "cmpl-1", "a", stats=None)
    processor.finish("r1", "stop")
    (record,) = engine.records()
    assert (record["adapter"], record["arrived"], record["finished"]) == ("a", None, 1_000_000_000)


def test_an_aborted_request_is_recorded_once(engine):
    processor = engine.fake.OutputProcessor()
    for name in ("r1", "r2"):
        processor.request_states[name] = FakeRequestState(name, f"cmpl-{name}", "a")
    assert processor.abort_requests(iter(["r1", "unknown"])) == ["r1"]
    assert processor.abort_requests(["r1"]) == []
    assert [(r["request_id"], r["finish_reason"]) for r in engine.records()] == [("cmpl-r1", "abort")]


def test_the_samples_of_an_aborted_parent_are_recorded_once_each(engine):
    processor = engine.fake.OutputProcessor()
    for i in range(2):
        processor.request_states[f"r{i}"] = FakeRequestState(f"r{i}", "cmpl-1", "a", parent_req=object(), request_index=i)
    processor.children["parent"] = ["r0", "r1"]
    processor.abort_requests(["parent"])
    assert [(r["request_id"], r["sample"]) for r in engine.records()] == [("cmpl-1", 0), ("cmpl-1", 1)]


def test_a_request_that_died_with_the_engine_is_recorded_once(engine):
    processor = engine.fake.OutputProcessor()
    processor.request_states["r1"] = FakeRequestState("r1", "cmpl-1", "a")
    processor.propagate_error(RuntimeError("dead"))
    processor.propagate_error(RuntimeError("dead"))
    processor.abort_requests(["r1"])
    assert [(r["request_id"], r["finish_reason"]) for r in engine.records()] == [("cmpl-1", "error")]


def test_a_long_name_is_cut_with_a_mark_and_ten_kilobytes_pass_whole(engine):
    processor = engine.fake.OutputProcessor()
    for name in ("\x01" * 10_000, "a" * 100_000, "a" * 100_001):
        processor.request_states["r"] = FakeRequestState("r", "cmpl-1", name)
        processor.finish("r", "stop")
    whole, long, longer = (record["adapter"] for record in engine.records())
    assert whole == "\x01" * 10_000
    assert "…[cut: 100000 characters" in long
    assert long != longer


def test_hooks_that_fail_leave_the_server_working(tmp_path):
    engine = HookedEngine(tmp_path, recorder=BrokenRecorder())
    models = engine.fake.OpenAIServingModels(engine_client=None)
    models.resolvable["late"] = "/adapters/late"
    assert run(models.load_lora_adapter(FakeRequest("a", 0))) == "Success"
    assert run(models.resolve_lora("late")).lora_name == "late"
    assert run(models.unload_lora_adapter(FakeRequest("a", 0))) == "Success"
    processor = engine.fake.OutputProcessor()
    for name in ("r1", "r2"):
        processor.request_states[name] = FakeRequestState(name, name)
    processor.finish("r1", "stop")
    processor.propagate_error(RuntimeError("dead"))
    assert processor.abort_requests(["r2"]) == ["r2"]
    assert engine.guard.failures >= 6


def test_the_snapshot_of_a_server_is_its_registry(engine, models):
    run(models.load_lora_adapter(FakeRequest("a", 0, "/adapters/a")))
    assert list(engine.server.snapshot()) == [{"registered": [["a", 1, "/adapters/a"]], "part": 1, "parts": 1}]
