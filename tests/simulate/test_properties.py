"""What must hold in every scenario, of the rows as they are stored."""

import json
from itertools import pairwise

import polars as pl
import pytest
from simulate.small import Laid, laid, shrunk

from lora_watch.derive.boots import boots
from lora_watch.derive.inference_share import inference_share
from lora_watch.derive.little import little
from lora_watch.derive.stays import stays
from lora_watch.model import HOUR, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.simulate.scenario import shipped


@pytest.fixture(scope="module", params=[*shipped(), "mixed"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Laid, pl.DataFrame]:
    """A small run of each scenario that ships, with its events."""
    run = laid(shrunk(request.param), tmp_path_factory.mktemp(request.param) / "data")
    return run, run.store.scan(ADAPTER_EVENTS).collect()


def test_littles_law_leaves_nothing_over(told: tuple[Laid, pl.DataFrame]):
    run, events = told
    account = little(events.lazy(), run.window, boots=boots(events.lazy()), stays=stays(events.lazy())).collect()
    assert account.height == sum(pool.pods for pool in run.scenario.pools)
    assert account.select("residual_slot_seconds", "flow_residual", "unseen_loads", "unseen_leaves").sum().row(0) == (0, 0, 0, 0)


def test_residents_never_exceed_slots_and_no_slot_holds_two(told: tuple[Laid, pl.DataFrame]):
    run, events = told
    slots = {pool.name: pool.slots for pool in run.scenario.pools}
    moves = events.filter((pl.col("tier") == "gpu") & pl.col("kind").is_in(["load", "evict"])).sort("stream", "seq")
    for (stream,), rows in moves.group_by(["stream"], maintain_order=True):
        held: dict[int, str] = {}
        for kind, slot, adapter in rows.select("kind", "slot", "adapter").iter_rows():
            if kind == "load":
                assert slot not in held, (stream, slot)
                held[slot] = adapter
            else:
                assert held.pop(slot) == adapter, (stream, slot)
            assert len(held) <= slots[rows["pool"][0]]


def test_loads_on_demand_are_no_more_than_uses(told: tuple[Laid, pl.DataFrame]):
    _, events = told
    loads = events.filter((pl.col("kind") == "load") & (pl.col("tier") == "gpu") & (pl.col("reason") == "demand"))
    uses = events.filter(pl.col("kind") == "use")
    missed = uses.filter(pl.col("lookup") != "hot")
    assert loads.height == missed.height <= uses.height
    assert (missed["lookup"] == "cold").sum() == (loads["from_tier"] == "disk").sum()


def test_an_adapter_is_in_the_batch_only_while_it_is_in_a_slot(told: tuple[Laid, pl.DataFrame]):
    _, events = told
    chain = events.filter(
        pl.col("kind").is_in(["use", "release"]) | ((pl.col("tier") == "gpu") & pl.col("kind").is_in(["load", "evict"]))
    ).sort("stream", "adapter", "seq")
    follows = {"load": {"use", "evict"}, "use": {"release", "evict"}, "release": {"use", "evict"}, "evict": {"load"}}
    wrong = [
        (before, after)
        for before, after in pairwise(chain.select("stream", "adapter", "kind", "reason").iter_rows())
        if before[:2] == after[:2] and after[3] != "inplace" and before[3] != "inplace" and after[2] not in follows[before[2]]
    ]
    assert wrong == []
    evicted_in_use = [
        (before, after)
        for before, after in pairwise(chain.select("stream", "adapter", "kind", "reason").iter_rows())
        if before[:2] == after[:2] and before[2] == "use" and after[2] == "evict" and after[3] != "inplace"
    ]
    assert evicted_in_use == []


def test_seqs_have_no_gap_and_times_never_run_back(told: tuple[Laid, pl.DataFrame]):
    run, events = told
    asked = run.store.scan(REQUESTS).collect()
    log = pl.concat([events.select("stream", "seq", "at"), asked.select("stream", "seq", "at")]).sort("stream", "seq")
    assert log.select((pl.col("seq") == pl.int_range(1, pl.len() + 1).over("stream")).all()).item()
    assert log.select((pl.col("at").diff().over("stream").fill_null(0) >= 0).all()).item()
    assert log.select(pl.col("at").is_between(run.window.start, run.window.end, closed="left").all()).item()


def test_a_requests_times_are_in_order(told: tuple[Laid, pl.DataFrame]):
    run, _ = told
    asked = run.store.scan(REQUESTS).collect()
    assert asked.height > 100
    for before, after in pairwise(("arrived", "queued", "scheduled", "first_token", "finished")):
        assert asked.select((pl.col(before) <= pl.col(after)).fill_null(value=True).all()).item(), (before, after)
    whole = asked.filter(pl.col("finish_reason") == "stop")
    assert whole.select("first_token", "generated_tokens").null_count().row(0) == (0, 0)
    cut = asked.filter(pl.col("finish_reason") == "error")
    assert cut["generated_tokens"].null_count() == cut.height
    assert (cut.height > 0) == (run.scenario.name == "mixed")


def test_the_share_that_steps_tell_is_the_true_one(told: tuple[Laid, pl.DataFrame]):
    run, events = told
    truth = json.loads((run.folder / "truth.json").read_text())
    hour = Window(run.window.start + HOUR, run.window.start + 2 * HOUR)
    seen = inference_share(events.lazy(), hour, boots=boots(events.lazy())).collect()
    reloaded = {pod for event in truth["events"] if event["kind"] == "reload" for pod in event["pods"]}
    assert seen.height == len(truth["pods"])
    for pod, share, grade in seen.select("pod", "share", "grade").iter_rows():
        assert grade == "A"
        if pod not in reloaded:
            assert share == pytest.approx(truth["pods"][pod]["inference_share"][1], abs=0.02)


def test_samples_agree_with_the_requests(told: tuple[Laid, pl.DataFrame]):
    run, _ = told
    asked, samples = run.store.scan(REQUESTS).collect(), run.store.scan(SAMPLES).collect()
    running = samples.filter(pl.col("metric") == "vllm:num_requests_running")
    at = int(running["at"][running.height // 2])
    served = asked.filter((pl.col("scheduled") <= at) & (pl.col("finished") > at)).group_by("pod").len()
    seen = running.filter(pl.col("at") == at).select("pod", "value")
    told_of = dict(served.iter_rows())
    assert {pod: value for pod, value in seen.iter_rows() if value} == told_of


def test_the_truth_counts_what_is_stored(told: tuple[Laid, pl.DataFrame]):
    run, events = told
    truth = json.loads((run.folder / "truth.json").read_text())
    loads = events.filter((pl.col("kind") == "load") & (pl.col("tier") == "gpu") & (pl.col("reason") == "demand"))
    assert sum(sum(pod["loads"]) for pod in truth["pods"].values()) == loads.height
    swaps = events.filter((pl.col("kind") == "evict") & (pl.col("tier") == "gpu") & (pl.col("reason") == "lru"))
    assert sum(sum(pod["swaps"]) for pod in truth["pods"].values()) == swaps.height
