"""
Cases from public threads of other projects, as the rows our sources would store of them: what must be said is said, and what was
wrongly said there is not.

One such case is not here: a counter that is a sum of ticks (Dynamo's ``lora_churn_loads_total``, sampled 3, 0, 3, 0, which a
rate takes for resets). No source of ours reads that system, so nothing of it is ever stored.
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import pytest
from builders import rows
from diagnose.told import text
from lru_pod import Pod, Row
from stored import stored

from lora_watch import names
from lora_watch.diagnose.diagnosis import Diagnosis, State
from lora_watch.diagnose.finding import Finding, Severity
from lora_watch.explore import cards
from lora_watch.explore.situation import Memory, diagnosis
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.schema import SAMPLES

END = 20_000 * DAY + 12 * HOUR
WINDOW = Window(END - HOUR, END)


def told(folder: Path, *pods: Pod, samples: pl.DataFrame | None = None, seen: bool = True) -> Diagnosis:
    """The diagnosis of what the pods did; without ``seen`` only their requests are known."""
    events = [pod.event_rows() for pod in pods if pod.events and seen]
    asked = [pod.request_rows() for pod in pods if pod.requests]
    store = stored(
        folder,
        events=pl.concat(events) if events else None,
        requests=pl.concat(asked) if asked else None,
        samples=samples,
    )
    return diagnosis(Memory(store, DAY), WINDOW)


def page(metric: str, value: float, *, adapter: str | None = None, minutes: int = 60) -> Iterator[Row]:
    """Samples of a page of a pod, every 15 s up to the end."""
    for number in range(4 * minutes):
        at = END - minutes * MINUTE + number * 15 * SECOND
        yield {"at": at, "metric": metric, "value": value, "adapter": adapter, "series": f"{metric}/{adapter}", "labels": "{}"}


def sampled(*parts: Iterator[Row]) -> pl.DataFrame:
    return rows(SAMPLES, [row for part in parts for row in part], provenance="activity")


def kinds(found: Diagnosis) -> dict[str, Finding]:
    return {one.kind: one for one in found.findings}


def levers(found: Diagnosis) -> set[str]:
    return {remedy.lever for one in found.findings for remedy in one.remedies if remedy.possible != "not here"}


def poisson(rate: float, minutes: float, adapters: Sequence[str], seed: int = 1) -> Iterator[tuple[int, str]]:
    """Requests at random, equally for all adapters, up to a minute before the end."""
    draw, at = random.Random(seed), END - (minutes + 1) * MINUTE
    while at < END - MINUTE:
        at += draw.expovariate(rate) * SECOND
        yield round(at), draw.choice(adapters)


# SGLang: 16 adapters on 8 slots at 4 requests a second; the median TTFT went from 40 ms to 6 s


@pytest.fixture(scope="module")
def sixteen_on_eight(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    pod = Pod(slots=8, load=0.45, size=10**9).start(END - HOUR)
    for at, adapter in poisson(4.0, 6, [f"lora-{n}" for n in range(16)]):
        pod.ask(at, adapter)
    return told(tmp_path_factory.mktemp("s1"), pod)


def test_twice_as_many_adapters_as_slots_is_a_thrash_of_the_working_set(sixteen_on_eight: Diagnosis):
    found = kinds(sixteen_on_eight)["thrash"]
    assert "16 adapters are in use on 8 slots" in found.summary
    assert found.cause.startswith("Working set above the slots")
    assert found.severity is Severity.HARM


def test_replicas_alone_are_no_remedy_for_it(sixteen_on_eight: Diagnosis):
    found = kinds(sixteen_on_eight)["thrash"]
    assert found.remedies[0].lever == "slots"
    assert any(one.startswith("Adding replicas alone") for one in found.avoid)


def test_the_same_seen_only_in_a_request_log_is_told_by_replay_and_as_inferred(tmp_path: Path):
    pod = Pod(slots=8)
    for at, adapter in poisson(4.0, 6, [f"lora-{n}" for n in range(16)]):
        pod.ask(at, adapter)
    found = told(tmp_path, pod, samples=sampled(page(names.SAMPLE_MAX_LORA, 8.0)), seen=False)
    thrash = kinds(found)["thrash"]
    assert "by replay of the requests: 16 adapters are in use on 8 slots" in thrash.summary
    assert thrash.provenance == "inferred"
    assert found.pools[0].state is State.WATCH


# SGLang: 6 adapters on 3 slots: mean 12 s, median 7 s, P90 33 s


def starving(pod: Pod, minutes: float) -> Pod:
    """Half of the adapters are served at once, the other half wait for half a minute."""
    for at, adapter in poisson(4.0, minutes, "abcdef"):
        pod.ask(at, adapter, wait=0.5 if adapter in "abc" else 30.0)
    return pod


def test_adapters_that_wait_behind_others_are_named_and_the_drain_flag_is_told(tmp_path: Path):
    found = told(tmp_path, starving(Pod(slots=3, load=0.0), 1), seen=False)
    one = kinds(found)["starvation"]
    assert set(one.adapters) == {"d", "e", "f"}
    assert "their requests wait 30 s (p95), where others wait 500 ms" in one.summary
    assert "--lora-drain-wait-threshold" in text(one)


def test_a_pool_with_starving_adapters_is_not_healthy_on_the_mean(tmp_path: Path):
    found = told(tmp_path, starving(Pod(slots=3, load=0.0), 1), seen=False)
    assert found.pools[0].state is State.WATCH
    assert "the mean" in kinds(found)["starvation"].avoid[0]


def test_where_it_swaps_all_the_time_both_are_said(tmp_path: Path):
    found = told(tmp_path, starving(Pod(slots=3, load=0.002).start(END - HOUR), 6))
    assert {"starvation", "thrash"} <= set(kinds(found))


# vLLM: a name that is unloaded while its weights stay


def test_an_unloaded_adapter_whose_weights_stay_is_a_disagreement_and_no_eviction(tmp_path: Path):
    pod = Pod(slots=2, cpu=3).start(END - 40 * MINUTE)
    pod.events.append({"at": END - 40 * MINUTE, "kind": "start", "detail": '{"role":"api"}'})
    for number, adapter in enumerate(("alice", "bob", "carol")):
        pod.events.append({"at": END - 30 * MINUTE + number, "kind": "register", "adapter": adapter, "ok": True})
    pod.ask(END - 25 * MINUTE, "alice")
    pod.ask(END - 24 * MINUTE, "bob")
    pod.events.append({"at": END - 20 * MINUTE, "kind": "unregister", "adapter": "bob", "ok": True})
    found = kinds(told(tmp_path, pod))
    assert found["phantom"].summary == (
        "Registry and residency disagree: bob is no longer served, the weights are still in 1 slot"
    )
    assert "evict" not in text(found["phantom"])


# vLLM: one slot and one adapter that is loaded in place with each step


def test_loads_in_place_are_a_loop_and_neither_a_thrash_nor_a_lack_of_slots(tmp_path: Path):
    pod = Pod(slots=1).start(END - HOUR)
    pod.ask(END - 20 * MINUTE, "solo")
    for number in range(600):
        at = END - 10 * MINUTE + number * SECOND
        load = {"kind": "load", "adapter": "solo", "reason": "inplace", "ok": True, "in_step": True, "seconds": 0.02}
        pod.events.append({**load, "at": at, "tier": "cpu", "from_tier": "disk"})
        pod.events.append({**load, "at": at + 1, "tier": "gpu", "from_tier": "disk"})
        pod.events.append({"at": at + 2, "kind": "steps", "count": 1, "wall_seconds": 1.0, "clock": "host"})
        pod.ask(at + 3, "solo")
    found = told(tmp_path, pod)
    assert "solo is loaded in place 1 times a second" in kinds(found)["reload-loop"].summary
    assert "thrash" not in kinds(found)
    assert "slots" not in levers(found)


# KServe and KAITO start engines with several adapters and without --max-loras


@pytest.mark.parametrize("adapters", [2, 40])
def test_several_adapters_on_the_default_of_one_slot_are_said_before_any_traffic(tmp_path: Path, adapters: int):
    pod = Pod(slots=1, cpu=1).start(END - 30 * MINUTE)
    for number in range(adapters):
        pod.events.append({"at": END - 29 * MINUTE + number, "kind": "register", "adapter": f"lora-{number}", "ok": True})
    found = kinds(told(tmp_path, pod))["slots-below-adapters"]
    assert found.summary == f"pod-0: {adapters} adapters are served from 1 slot"
    assert found.severity is Severity.WARN


def test_it_is_said_where_only_the_engines_own_page_tells_of_its_one_slot(tmp_path: Path):
    flight = [page(names.SAMPLE_IN_FLIGHT, 1.0, adapter=name) for name in ("a", "b", "c")]
    found = kinds(told(tmp_path, samples=sampled(page(names.SAMPLE_MAX_LORA, 1.0), *flight)))
    assert found["slots-below-adapters"].summary == "pod-0: 3 adapters are served from 1 slot"
    assert found["slots-below-adapters"].provenance == "activity"


# llm-d and vLLM: all slots hold idle adapters, and the page lists none


def test_an_idle_pod_that_lists_no_adapter_is_unknown_and_never_zero(tmp_path: Path):
    found = told(tmp_path, samples=sampled(page(names.SAMPLE_MAX_LORA, 4.0)))
    (pool,) = found.pools
    assert pool.state is State.UNKNOWN
    assert next(one.what for one in found.gaps if one.pods) == "residency: loads, evictions and stays"
    assert "0 %" not in cards.as_markdown(found)
    assert all(margin.value is None for margin in pool.margins)


def test_adapters_in_flight_are_a_lower_bound_of_what_is_resident(tmp_path: Path):
    flight = page(names.SAMPLE_IN_FLIGHT, 1.0, adapter="a")
    found = told(tmp_path, samples=sampled(page(names.SAMPLE_MAX_LORA, 4.0), flight))
    assert any("a lower bound" in one.why for one in found.gaps)
    assert found.pools[0].state is State.UNKNOWN


# AIBrix: three replicas of which one loads for 41 s where 5 s were expected


def test_a_load_of_41_seconds_is_a_slow_load_from_disk_and_no_eviction(tmp_path: Path):
    pods = []
    for number in range(3):
        pod = Pod(slots=32, name=f"pod-{number}", read=4.0).start(END - 3 * HOUR)
        for past in range(10):
            pod.ask(END - 2 * HOUR + past * 5 * MINUTE, f"old-{past}")
        for now in range(4):
            pod.read = 41.0 if now == number else 4.0
            pod.ask(END - 40 * MINUTE + now * 5 * MINUTE, f"new-{now}")
        pods.append(pod)
    found = told(tmp_path, *pods)
    one = kinds(found)["slow-load"]
    assert "slow loads from disk, 41 s (95th percentile) against 4 s as usual" in one.summary
    assert set(one.pods) == {"pod-0", "pod-1", "pod-2"}
    assert "evict" not in text(one)
    assert "thrash" not in kinds(found)


# vLLM: 8 adapters on 7 slots, the eighth in CPU memory


@pytest.fixture(scope="module")
def eight_on_seven(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    pod = Pod(slots=7, cpu=8, load=0.02).start(END - HOUR)
    for number in range(1800):
        pod.ask(END - 15 * MINUTE + number * SECOND // 2, f"lora-{number % 8}", hold=0.2)
    return told(tmp_path_factory.mktemp("s11"), pod)


def test_eight_adapters_on_seven_slots_are_one_slot_short(eight_on_seven: Diagnosis):
    found = kinds(eight_on_seven)
    assert found["one-slot-short"].summary.startswith("One slot short: 8 adapters on 7 slots per pod")
    assert found["thrash"].summary.startswith("One slot short")
    assert found["thrash"].remedies[0].text == "+1 slot per pod (--max-loras 7 → 8)"
    assert found["thrash"].remedies[0].effect == pytest.approx(1.0, abs=0.01)


def test_a_miss_of_the_slots_is_not_told_as_one_of_the_host_tier(eight_on_seven: Diagnosis):
    assert not {"no-warm-tier", "slow-load"} & set(kinds(eight_on_seven))
    assert "cpu-cache" not in levers(eight_on_seven)


# LoRAX: 10 s to the first token, each adapter in turn


@pytest.fixture(scope="module")
def ten_seconds(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    pod = Pod(slots=1, cpu=2, load=2.0, read=8.0).start(END - HOUR)
    for number in range(40):
        pod.ask(END - 50 * MINUTE + number * MINUTE, None if number % 5 == 4 else f"lora-{number % 5}", hold=1.0)
    return told(tmp_path_factory.mktemp("s14"), pod)


def test_swaps_of_a_fixed_cost_are_told_as_slow_loads_by_their_phases(ten_seconds: Diagnosis):
    slow = {one.scope: one.summary for one in ten_seconds.findings if one.kind == "slow-load"}
    assert "slow loads from disk, 8 s" in slow["disk"]
    assert "slow copies to the GPU, 2 s" in slow["copy"]


def test_one_request_at_a_time_is_no_backlog(ten_seconds: Diagnosis):
    assert not {"starvation", "hard-cliff", "saturation"} & set(kinds(ten_seconds))
