from collections import defaultdict
from itertools import pairwise

import pytest
from builders import events
from hypothesis import given
from scenes import quiet, scene
from strategies import HORIZON, QUICK, Log, lru_logs

from lora_watch.derive.cascades import TAU, cascades
from lora_watch.derive.moves import moves
from lora_watch.model import SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS

MINUTES = Window(0, 600 * SECOND)
RING = "a:0-10 b:1-12 c:10-14 a:12-16 b:14- c:16-"
"""Two slots, three adapters in turn: c evicts a, which comes back and evicts b, which comes back and evicts c, and so on."""


def test_each_evicts_whom_the_next_one_loads():
    (row,) = cascades(events(RING, slots=2).lazy(), MINUTES).collect().to_dicts()
    assert row["adapters"] == ["c", "a", "b", "c"]
    assert (row["swaps"], row["distinct_adapters"], row["last_evicted"]) == (4, 3, "a")
    assert (row["start"], row["end"]) == (10 * SECOND, 16 * SECOND + 1)
    assert (row["mean_reload_seconds"], row["goes_on"], row["flagged"]) == (2.0, False, False)


def test_a_victim_that_comes_back_late_makes_no_link():
    assert cascades(events(RING, slots=2).lazy(), MINUTES, tau=SECOND).collect().height == 0


def test_a_long_chain_is_cut_and_says_that_it_goes_on():
    rows = cascades(events(RING, slots=2).lazy(), MINUTES, longest=2, shortest=2).collect().to_dicts()
    assert [(row["adapters"], row["goes_on"]) for row in rows] == [(["c", "a"], True), (["b", "c"], False)]


def test_the_least_chain_is_two_swaps():
    with pytest.raises(ValueError, match="at least two swaps"):
        cascades(events(RING).lazy(), MINUTES, shortest=1)


def test_moves_at_hand_are_used():
    told = events(RING, slots=2).lazy()
    assert cascades(told, MINUTES, moves=moves(told)).collect().equals(cascades(told, MINUTES).collect())


def test_a_fill_in_between_breaks_the_chain():
    """b comes back into a free slot: whoever is evicted then was not evicted for it."""
    frame = cascades(events("a:0-10 c:10- a:12- b:20-").lazy(), MINUTES, shortest=2).collect()
    assert frame.height == 0


def test_nothing_in_nothing_out():
    assert cascades(ADAPTER_EVENTS.empty().lazy(), MINUTES).collect().height == 0


@QUICK
@given(lru_logs())
def test_chains_are_those_that_following_each_swap_by_hand_gives(log: Log):
    records = log.events.filter(log.events["tier"] == "gpu").sort("stream", "seq").to_dicts()
    swaps = []
    for before, after in pairwise(records):
        same = before["stream"] == after["stream"] and after["seq"] == before["seq"] + 1
        if same and (before["kind"], after["kind"]) == ("evict", "load"):
            swaps.append((after["stream"], after["at"], after["adapter"], before["adapter"]))
    follows: dict[int, int] = {}
    for n, (stream, at, _, victim) in enumerate(swaps):
        loads = [r for r in records if r["stream"] == stream and r["kind"] == "load" and r["adapter"] == victim and r["at"] >= at]
        later = [m for m in range(n + 1, len(swaps)) if swaps[m][0] == stream and swaps[m][2] == victim]
        if later and loads and swaps[later[0]][1] - at <= TAU:
            follows[n] = later[0]
    chains: dict[int, list[str]] = defaultdict(list)
    for n in range(len(swaps)):
        if n not in follows.values():
            step: int | None = n
            while step is not None:
                chains[n].append(swaps[step][2])
                step = follows.get(step)
    wanted = sorted(chain for chain in chains.values() if len(chain) >= 3)
    frame = cascades(log.events.lazy(), Window(0, HORIZON * SECOND), longest=1000).collect()
    assert sorted(frame["adapters"].to_list()) == wanted


def test_the_simulated_cascades_are_rings_of_the_pipelines_adapters():
    played = scene("cascade")
    frame = cascades(played.events, played.window).collect()
    assert not frame["flagged"].any()
    longest = frame.sort("swaps", descending=True).row(0, named=True)
    assert (longest["pods"], longest["swaps"], longest["distinct_adapters"]) == (["vllm-0"], 20, 6)


def test_a_healthy_cluster_has_chains_too_which_is_why_none_is_flagged():
    played, window = quiet("healthy")
    frame = cascades(played.events_of(window), window).collect()
    assert frame.height
    assert not frame["flagged"].any()
