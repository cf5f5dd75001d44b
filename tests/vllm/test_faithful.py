"""
The replay is faithful to the engine: the same requests give the same loads, evictions and slots.

Two engines are asked, both with three slots: one with five places in its CPU cache and no pin, one with four places whose first
adapter is pinned. Each loads twelve adapters by hand at its start; then come 150 requests one by one, then bursts of 2 to 6
requests, each behind the one before; on the engine without a pin a thirteenth adapter is loaded by hand then, and bursts follow
that overlap.

*Single requests.* The replay gets the adapters in their order and nothing else: no time, no length, no hash. Compared is the
sequence of moves, (load or evict, tier, adapter, slot), request by request; it must be equal.

*Bursts.* The replay gets, in the order in which the API server passed them on, when each request was queued and for how long it
ran, in instants: the seams between engine steps. When it starts, and all that follows from it, is the replay's word. vLLM touches
the adapters of a batch in the order of a Python set of their names. That order differs from process to process, as hashes of
strings do, and decides who is least recently used among those of one step, and who is evicted in the middle of it. The engine is
started with a ``PYTHONHASHSEED`` and the replay is told the hashes, so nothing is left to chance and nothing is excused. Compared
is the sequence of moves, those of one step in alphabetical order on both sides; the *agreement* is the length of the longest
common subsequence, as ``difflib`` finds it, by the length of the longer side. It must be 0.99 or more. What is left open is the
order of requests that came in the same few µs, and an instant misjudged on a machine under load.
"""

import random
from pathlib import Path

import faithful
import pytest
from faithful import Run, engine_steps, in_batches, one_by_one, replay_steps, side_by_side

from lora_watch.replay.policies import Eviction, Policy

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="session")
def free(venv: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The engine without a pin."""
    return faithful.tell(venv, model, tmp_path_factory.mktemp("faithful") / "free", slots=3, cpu_places=5, pin=False, seed=1)


@pytest.fixture(scope="session")
def pinned(venv: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The engine with a pin."""
    return faithful.tell(venv, model, tmp_path_factory.mktemp("faithful") / "pinned", slots=3, cpu_places=4, pin=True, seed=2)


@pytest.fixture(params=["free", "pinned"])
def run(request: pytest.FixtureRequest) -> Run:
    """Either."""
    either: Run = request.getfixturevalue(request.param)
    return either


def singles(run: Run) -> list[faithful.Step]:
    """What the engine did up to the bursts."""
    return [step for step in engine_steps(run) if step.at < run.boundary]


def bursts(run: Run, **fleet: object) -> faithful.Agreement:
    """The engine and the replay side by side from the first burst on."""
    batched = in_batches(run, **fleet)
    model = [step for step in replay_steps(batched.trace, batched.told, run.pins) if step.at > batched.boundary]
    return side_by_side([step for step in engine_steps(run) if step.at > run.boundary], model)


def test_the_run_swapped_often_enough_to_prove_something(run):
    for steps in (singles(run), [step for step in engine_steps(run) if step.at > run.boundary]):
        evicted = [move.tier for step in steps for move in step.moves if move.kind == "evict"]
        assert min(evicted.count("gpu"), evicted.count("cpu")) > 50
    assert all(status == 200 for what, status in run.answers.items() if what != "one too many")


def test_single_requests_load_evict_and_fill_slots_exactly_as_the_replay_says(run):
    agreement = side_by_side(singles(run), replay_steps(*one_by_one(run), run.pins))
    assert agreement.same == agreement.total, agreement.differences


def test_single_requests_are_hot_warm_or_cold_exactly_as_the_replay_says(run):
    found = [("hot", "warm", "cold").index(r["lookup"]) for r in run.worker if r["kind"] == "use" and r["at"] < run.boundary]
    _, told = one_by_one(run)
    assert len(found) == faithful.SINGLES
    assert told.lookup[-faithful.SINGLES :].tolist() == found


def test_bursts_agree_to_99_in_100_moves(run):
    agreement = bursts(run, hashes=run.hashes)
    assert agreement.ratio >= 0.99, f"{agreement.same} of {agreement.total} moves agree\n{agreement.differences}"


def test_requests_start_in_the_step_in_which_the_engine_scheduled_them(run):
    batched = in_batches(run, hashes=run.hashes)
    pairs = [(ours, its) for ours, its in zip(batched.told.start.tolist(), batched.scheduled, strict=True) if its >= 0]
    assert sum(ours == its for ours, its in pairs) >= 0.99 * len(pairs)


def test_requests_did_wait_and_adapters_were_loaded_again_within_a_step(free):
    batched = in_batches(free, hashes=free.hashes)
    assert int(batched.told.blocked.sum()) > 10
    assert len(batched.told.reloads) > 10


def test_a_replay_that_does_not_know_the_hashes_still_counts_the_loads_to_five_in_100(free):
    counts = []
    for seed in range(20):
        told = in_batches(free, hashes=[random.Random(f"{seed} {name}").getrandbits(62) for name in faithful.NAMES]).told
        counts.append(told.loads + len(told.reloads))
    engine = sum(move[:2] == ("load", "gpu") for step in engine_steps(free) for move in step.moves)
    assert sum(counts) / len(counts) == pytest.approx(engine, rel=0.05)


@pytest.mark.parametrize("rule", [Eviction.LFU, Eviction.TIME_WEIGHTED])
def test_another_rule_than_the_engines_would_be_seen(run, rule):
    assert side_by_side(singles(run), replay_steps(*one_by_one(run, policy=Policy(rule)), run.pins)).ratio < 0.95


def test_a_replay_without_the_order_within_a_batch_would_be_seen(free):
    assert bursts(free).ratio < 0.95


def test_what_is_pinned_stays_in_its_slot(pinned):
    assert not [r for r in pinned.worker if r["kind"] == "evict" and r["adapter"] in pinned.pins]


def test_vllm_dies_of_more_adapters_in_a_batch_than_slots_that_are_not_pinned(pinned):
    """Its scheduler counts slots, pinned or not; the replay lets the last one wait, and advice on pins must keep room for all."""
    assert pinned.answers["one too many"] >= 500
