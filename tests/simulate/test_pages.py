"""The pages a simulated cluster serves: vLLM's with its habits, the router's in both spellings, the GPU exporters'."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from simulate.page_server import serving_pages
from simulate.small import MIXED, shrunk

from lora_watch import names
from lora_watch.model import HOUR, MINUTE, SECOND, PodId
from lora_watch.simulate.engines import lives
from lora_watch.simulate.gpus import Gpu
from lora_watch.simulate.meters import MODEL, Meter
from lora_watch.simulate.pages import EnginePages, GpuPage, RouterPage, metered
from lora_watch.simulate.rows import Rows
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.traffic import Catalogue, catalogue, everything
from lora_watch.sources.dcgm import Dcgm
from lora_watch.sources.epp import Epp
from lora_watch.sources.exposition import Sample, parse_page
from lora_watch.sources.placed import PlacedPages, read_page

DATA = Path(__file__).parents[1] / "data"
LATE = MIXED.begin + 170 * MINUTE


class Told(NamedTuple):
    scenario: Scenario
    known: Catalogue
    meters: list[Meter]

    def of(self, pod: int) -> list[Meter]:
        return [meter for meter in self.meters if meter.life.pod == pod]


@pytest.fixture(scope="module")
def told() -> Told:
    known = catalogue(MIXED, 1)
    return Told(MIXED, known, metered(list(lives(MIXED, known, everything(MIXED, known, MIXED.days, 1), MIXED.days, 1))))


def samples(text: str, *wanted: str) -> list[Sample]:
    page = parse_page([text.encode()], wanted)
    assert page.problems == ()
    return list(page.samples)


def kinds(text: str) -> dict[str, str]:
    return {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}


def label_names(text: str) -> dict[str, set[frozenset[str]]]:
    every = {line.split("{")[0].split()[0] for line in text.splitlines() if line and not line.startswith("#")}
    found: dict[str, set[frozenset[str]]] = {}
    for sample in samples(text, *every):
        found.setdefault(sample.name, set()).add(frozenset(sample.labels))
    return found


def test_the_gauges_combinations_stay_for_good_and_name_those_in_flight_twice(told: Told):
    page = EnginePages(told.of(2), told.known)
    before: set[str] = set()
    for minute in range(1, 170, 13):
        gauges = samples(page.at(MIXED.begin + minute * MINUTE), names.LORA_REQUESTS_INFO)
        assert all(one.labels["running_lora_adapters"] == one.labels["waiting_lora_adapters"] for one in gauges)
        now = {one.labels["running_lora_adapters"] for one in gauges}
        assert before <= now
        before = now
    assert len(before) > 20


def test_the_newest_of_them_is_who_is_in_flight_and_was_set_at_the_last_step(told: Told):
    page = EnginePages(told.of(2), told.known)
    (life,) = [meter.life for meter in told.of(2)]
    for moment in range(MIXED.begin + MINUTE, LATE, 7 * MINUTE + 12_345):
        gauges = samples(page.at(moment), names.LORA_REQUESTS_INFO)
        newest = max(gauges, key=lambda one: one.value)
        there = (life.opened <= moment) & (life.closes > moment)
        flying = {told.known.names[code] for code in life.adapter[life.opens[there]].tolist()}
        assert set(filter(None, newest.labels["running_lora_adapters"].split(","))) == flying
        assert newest.value <= moment / SECOND
        assert len({one.value for one in gauges}) == len(gauges)


def test_a_page_of_fewer_series_has_those_that_were_set_last(told: Told):
    whole, some = EnginePages(told.of(2), told.known), EnginePages(told.of(2), told.known, most_series=20)
    for moment in (LATE, MIXED.begin + MINUTE, MIXED.begin + HOUR, LATE):
        every = samples(whole.at(moment), names.LORA_REQUESTS_INFO)
        last = sorted(one.value for one in every)[-20:]
        assert samples(some.at(moment), names.LORA_REQUESTS_INFO) == [one for one in every if one.value >= last[0]]


def test_an_engine_that_nobody_has_asked_for_anything_has_no_sample_of_it(told: Told):
    page = EnginePages(told.of(0), told.known)
    first = int(told.of(0)[0].life.ready[0])
    assert samples(page.at(first - 1), names.LORA_REQUESTS_INFO) == []
    assert len(samples(page.at(first), names.LORA_REQUESTS_INFO)) == 1


def test_the_time_stamps_are_those_of_the_pods_clock(told: Told):
    page = EnginePages(told.of(0), told.known, clock=lambda moment: moment + 1000 * SECOND)
    newest = max(one.value for one in samples(page.at(LATE), names.LORA_REQUESTS_INFO))
    assert LATE / SECOND < newest <= LATE / SECOND + 1000


def test_a_process_that_starts_anew_counts_from_0(told: Told):
    page = EnginePages(told.of(1), told.known)
    start = told.of(1)[1].life.begin
    counted = [sum(one.value for one in samples(page.at(at), names.PROMPT_TOKENS)) for at in (start - 1, start)]
    assert counted[0] > 1000
    assert counted[1] == 0


def test_counters_never_fall_within_a_life_and_end_at_what_was_asked_for(told: Told):
    page, (meter,) = EnginePages(told.of(2), told.known), told.of(2)
    moments = [*range(MIXED.begin, LATE, 5 * MINUTE + 777_777), int(meter.finishes[-1])]
    for name in (names.GENERATION_TOKENS, names.PROMPT_TOKENS, f"{names.HISTOGRAMS[1]}_count"):
        values = [samples(page.at(moment), name)[0].value for moment in moments]
        assert values == sorted(values)
    life = meter.life
    assert samples(page.at(moments[-1]), names.GENERATION_TOKENS)[0].value == life.asked.generated[life.number].sum()
    assert samples(page.at(moments[-1]), names.PROMPT_TOKENS)[0].value == life.asked.prompt[life.number].sum()
    assert values[-1] == len(life.number)


def test_families_types_labels_and_buckets_are_those_of_a_real_page(told: Told):
    real = (DATA / "vllm-0.32.0-after.prom").read_text()
    ours = EnginePages(told.of(0), told.known).at(LATE)
    assert kinds(ours).items() <= kinds(real).items()
    real_labels = label_names(real)
    assert all(labels == real_labels[name] for name, labels in label_names(ours).items())
    for name in names.HISTOGRAMS:
        bounds = [[one.labels["le"] for one in samples(text, f"{name}_bucket")] for text in (ours, real)]
        assert bounds[0] == bounds[1]


def test_the_residency_gauges_name_who_the_log_says_is_resident(told: Told):
    parts = list(Rows(told.scenario, told.known, [meter.life for meter in told.meters], LATE + HOUR, 1).parts())
    log = pl.concat([part.events for part in parts]).filter(
        pl.col("kind").is_in(["load", "evict"]) | pl.col("slots").is_not_null()
    )
    for pod in range(3):
        page = EnginePages(told.of(pod), told.known, residency=True)
        for moment in range(MIXED.begin + MINUTE, LATE, 11 * MINUTE + 54_321):
            resident: dict[str, set[str]] = {"gpu": set(), "cpu": set()}
            past = log.filter((pl.col("pod") == f"a-{pod}") & (pl.col("at") <= moment)).sort("at", "stream", "seq")
            for kind, tier, adapter in past.select("kind", "tier", "adapter").iter_rows():
                if kind == "start":
                    resident = {"gpu": set(), "cpu": set()}
                elif kind == "load":
                    resident[tier].add(adapter)
                else:
                    resident[tier].discard(adapter)
            loaded = samples(page.at(moment), names.ADAPTER_LOADED)
            for tier, there in resident.items():
                assert {one.labels["adapter_name"] for one in loaded if one.labels["level"] == tier} == there
            counted = samples(page.at(moment), names.GPU_ADAPTERS, names.CPU_ADAPTERS, names.MAX_GPU_ADAPTERS)
            assert [one.value for one in counted] == [len(resident["gpu"]), len(resident["cpu"]), 3]


def test_pinned_adapters_are_told_as_such(told: Told):
    loaded = samples(EnginePages(told.of(0), told.known, residency=True).at(LATE), names.ADAPTER_LOADED)
    pinned = {one.labels["adapter_name"] for one in loaded if one.labels["pinned"] == "true"}
    assert pinned == {told.known.names[1], told.known.names[3]}


def test_the_rival_proposal_counts_by_tier(told: Told):
    page = EnginePages(told.of(0), told.known, residency=True, upstream="vllm-45820").at(LATE)
    hits, lookups, usage = (
        {one.labels["tier"]: one.value for one in samples(page, name)}
        for name in (names.CACHE_HITS, names.CACHE_LOOKUPS, names.CACHE_USAGE)
    )
    assert lookups["gpu"] - hits["gpu"] == lookups["cpu"] > hits["cpu"] > 0
    assert usage["gpu"] == 1.0


def router_rows(text: str) -> list[tuple[str, str, str, float]]:
    page = parse_page([text.encode()], {name for family in Epp().families.values() for name in family})
    rows, problems = read_page(page, Epp({MODEL}), PodId("c", "epp"), LATE, "test")
    assert problems == ()
    return sorted((row["pod"], row["metric"], row["labels"], row["value"]) for row in rows)


def test_both_spellings_of_the_router_read_the_same_and_its_twins_are_never_added(told: Told):
    new, old, both = (
        router_rows(RouterPage(told.scenario, told.known, told.meters, spelling=spelling).at(LATE))
        for spelling in ("llm-d", "gaie", "both")
    )
    assert new == both
    fewer_labels = {names.EPP_RUNNING[0], names.EPP_ERRORS[0]}
    assert [row for row in old if row[1] not in fewer_labels] == [row for row in new if row[1] not in fewer_labels]
    assert {row[1] for row in old} == {row[1] for row in new} >= fewer_labels


def test_each_request_is_an_attempt_on_the_pod_that_got_it(told: Told):
    text = RouterPage(told.scenario, told.known, told.meters, spelling="llm-d").at(LATE)
    tried: dict[str, float] = {}
    for one in samples(text, names.EPP_ATTEMPTS[0]):
        tried[one.labels["target_model_name"]] = tried.get(one.labels["target_model_name"], 0) + one.value
    asked = {one.labels["target_model_name"]: one.value for one in samples(text, names.EPP_REQUESTS[0])}
    assert tried == asked
    assert MODEL in asked
    pods = {one.labels["endpoint_name"]: one.value for one in samples(text, names.EPP_ATTEMPTS[0])}
    assert sorted(pods) == ["a-0", "a-1", "a-2"]


def test_requests_that_end_with_their_engine_are_the_routers_errors(told: Told):
    lost = sum(int(meter.life.cut.sum()) + len(meter.life.refused) for meter in told.meters if meter.life.end < LATE)
    text = RouterPage(told.scenario, told.known, told.meters, spelling="llm-d").at(LATE)
    assert sum(one.value for one in samples(text, names.EPP_ERRORS[0])) == lost > 0


def test_nothing_runs_any_more_when_all_has_ended(told: Told):
    end = max(int(meter.finishes[-1]) for meter in told.meters) + MINUTE
    text = RouterPage(told.scenario, told.known, told.meters, spelling="llm-d").at(end)
    assert {one.value for one in samples(text, names.EPP_RUNNING[0], names.EPP_POOL_RUNNING[0])} == {0.0}
    assert [one.value for one in samples(text, names.EPP_READY[0])] == [3.0]


def test_the_routers_labels_are_those_of_its_pages(told: Told):
    real = label_names((DATA / "epp-both-names.prom").read_text())
    ours = label_names(RouterPage(told.scenario, told.known, told.meters).at(LATE))
    assert {name: labels for name, labels in ours.items() if name in real and labels != real[name]} == {}


def test_a_pool_for_decode_is_the_one_whose_attempts_the_router_counts():
    scenario = shrunk("prefill-decode-mismatch", 1.0)
    known = catalogue(scenario, 1)
    served = list(lives(scenario, known, everything(scenario, known, 0.02, 1), 0.02, 1))
    text = RouterPage(scenario, known, served, spelling="llm-d").at(scenario.begin + 20 * MINUTE)
    decode = scenario.pools[1]
    tried = {one.labels["endpoint_name"] for one in samples(text, names.EPP_ATTEMPTS[0])}
    assert tried == {f"{decode.name}-{p}" for p in range(decode.pods)}


def test_a_gpus_counters_are_parts_of_each_other_and_util_is_the_greatest(told: Told):
    page = GpuPage(told.scenario, told.known, told.meters, sm_active=True)
    for moment in range(MIXED.begin + 2 * MINUTE, LATE, 9 * MINUTE + 1):
        text = page.at(moment)
        engine, sm, dram, tensor, util = (
            np.array([one.value for one in samples(text, name)])
            for name in (
                names.GPU_ENGINE_ACTIVE,
                names.GPU_SM_ACTIVE,
                names.GPU_DRAM_ACTIVE,
                names.GPU_TENSOR_ACTIVE,
                names.GPU_UTIL,
            )
        )
        assert ((tensor >= 0) & (tensor <= dram + sm) & (sm <= engine) & (dram <= engine) & (engine <= 1)).all()
        assert (util >= np.floor(100 * engine)).all()


def test_sm_active_is_off_and_memory_is_taken_whatever_happens(told: Told):
    text = GpuPage(told.scenario, told.known, told.of(0)).at(LATE)
    assert samples(text, names.GPU_SM_ACTIVE) == []
    assert [one.value for one in samples(text, names.GPU_MEMORY_USED)] == [73_400.0]


def test_without_kubernetes_labels_a_configured_host_says_whose_the_gpu_is(told: Told):
    pod = PodId(MIXED.cluster, "a-0", "a")
    with serving_pages({"dcgm": GpuPage(told.scenario, told.known, told.of(0), kubernetes=False)}) as cluster:
        cluster.moment = LATE
        targets = cluster.targets(PodId(MIXED.cluster, "dcgm"))
        lost, found = (
            PlacedPages("dcgm", targets, system).read({}, LATE + 1) for system in (Dcgm(), Dcgm({("node-of-a-0", "0", ""): pod}))
        )
    assert "belongs to no pod" in lost.problems[0]
    assert found.problems == ()
    assert names.GPU_ENGINE_ACTIVE in found.rows.filter(pl.col("pod") == "a-0")["metric"]


def test_a_gpus_value_holds_until_the_next_collection(told: Told):
    page = GpuPage(told.scenario, told.known, told.of(0))
    texts = [page.at(LATE + n * SECOND) for n in range(90)]
    changes = [n for n in range(1, 90) if texts[n] != texts[n - 1]]
    assert len(changes) == 3
    assert {changes[1] - changes[0], changes[2] - changes[1]} == {30}


def test_steps_that_a_gpu_is_told_of_are_those_of_the_pace(told: Told):
    gpu = Gpu(told.scenario, told.known, "a-1")
    hours = np.arange(4) * HOUR + MIXED.begin
    spent = np.diff(gpu.spent(told.of(1), hours), axis=1)
    paces = [meter.life.pace for meter in told.of(1)]
    inference = np.zeros(3, dtype=np.int64)
    for pace in paces:
        place = pace.hour - MIXED.begin // HOUR
        inference[place : place + len(pace.busy)] += pace.busy - pace.stalled
    assert (spent[0] + spent[1]).tolist() == inference.tolist()


def test_an_exporter_that_collects_more_often_than_a_second_is_refused(told: Told):
    with pytest.raises(ValueError, match="whole number of seconds"):
        GpuPage(told.scenario, told.known, told.meters, interval=SECOND // 2)
