"""Each scenario shows what it is for, at its own size, where it happens."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from lora_watch.model import HOUR, SECOND
from lora_watch.simulate.engines import Life, lives
from lora_watch.simulate.scenario import Scenario, load
from lora_watch.simulate.traffic import catalogue, everything


@cache
def played(name: str, hours: float, from_hour: float = 0.0) -> tuple[Scenario, tuple[Life, ...]]:
    """The scenario's first hours, or those from a later one on, with its events moved along."""
    scenario = load(name)
    events = tuple(
        event.model_copy(update={"start": event.start - from_hour, **({"end": event.end - from_hour} if event.end else {})})
        for event in scenario.events
    )
    scenario = scenario.model_copy(update={"begin": scenario.begin + round(from_hour * HOUR), "events": events})
    known = catalogue(scenario, 1)
    return scenario, tuple(lives(scenario, known, everything(scenario, known, hours / 24, 1), hours / 24, 1))


def loads(told: tuple[Life, ...], start: int, end: int) -> list[tuple[int, int, int, int]]:
    """(began, done, pod, adapter) of the loads that begin in the span."""
    found = []
    for life in told:
        loaded = life.loaded
        inside = np.flatnonzero((loaded.began >= start) & (loaded.began < end))
        columns = (loaded.began[inside], loaded.done[inside], life.adapter[loaded.place[inside]])
        found += [(int(a), int(b), life.pod, int(c)) for a, b, c in zip(*columns, strict=True)]
    return sorted(found)


def per_second(told: tuple[Life, ...], scenario: Scenario, a: float, b: float) -> float:
    return len(loads(told, scenario.begin + round(a * HOUR), scenario.begin + round(b * HOUR))) / ((b - a) * 3600)


def wait(told: tuple[Life, ...], scenario: Scenario, a: float, b: float) -> float:
    """The 95th percentile of the time to the first token of requests that came in these hours (s)."""
    times = []
    for life in told:
        arrived = life.asked.at[life.number]
        inside = np.flatnonzero((arrived >= scenario.begin + a * HOUR) & (arrived < scenario.begin + b * HOUR))
        times.append((life.first_tokens(inside) - arrived[inside]) / SECOND)
    return float(np.quantile(np.concatenate(times), 0.95))


def test_healthy_swaps_now_and_then():
    scenario, told = played("healthy", 4)
    assert 0 < per_second(told, scenario, 1, 4) / 8 < 0.02


def test_a_stampede_loads_one_adapter_on_most_pods_at_once():
    scenario, told = played("stampede", 3.1)
    burst = scenario.begin + 3 * HOUR
    of_it = [one for one in loads(told, burst, burst + 2 * SECOND) if one[3] == 7]
    assert len({pod for _, _, pod, _ in of_it}) >= 6
    assert any(after[0] < before[1] for before, after in pairwise(of_it))


def test_a_convoy_has_all_pods_loading_at_once():
    scenario, told = played("convoy", 2.1, from_hour=3.9)
    burst = scenario.begin + round(1.1 * HOUR)
    spans = loads(told, burst, burst + 2 * SECOND)
    most = max(len({pod for a, b, pod, _ in spans if a <= moment < b}) for moment, _, _, _ in spans)
    assert most == 4
    assert len({adapter for *_, adapter in spans}) >= 8


def test_in_a_cascade_the_evicted_is_soon_loaded_again():
    _, told = played("cascade", 2)
    life = told[0]
    again = [
        any(life.adapter[life.loaded.place[later]] == victim for later in range(n + 1, min(n + 7, len(life.loaded.place))))
        for n, victim in enumerate(life.loaded.victim.tolist())
        if victim >= 0
    ]
    assert np.mean(again) > 0.5


def test_slow_loads_are_slower_and_not_more():
    scenario, told = played("slow-load", 4, from_hour=7)
    before, during = per_second(told, scenario, 0.5, 2), per_second(told, scenario, 2.5, 4)
    assert during == pytest.approx(before, rel=0.3)
    assert wait(told, scenario, 2.5, 4) > 5 * wait(told, scenario, 0.5, 2)


def test_one_more_slot_would_remove_every_swap_of_one_slot_short():
    scenario, told = played("one-slot-short", 2)
    assert per_second(told, scenario, 1, 2) > 0.1
    roomy = scenario.model_copy(update={"pools": (scenario.pools[0].model_copy(update={"slots": 8}),)})
    known = catalogue(roomy, 1)
    told = tuple(lives(roomy, known, everything(roomy, known, 2 / 24, 1), 2 / 24, 1))
    assert per_second(told, roomy, 1, 2) == 0


def test_without_a_warm_tier_every_load_is_cold():
    _, told = played("no-warm-tier", 1)
    assert all((life.lookup[life.loaded.place] == 2).all() and len(life.loaded.place) for life in told)


def test_imbalance_sends_most_requests_to_one_pod():
    _, told = played("imbalance", 1)
    counts = sorted(len(life.number) for life in told)
    assert counts[-1] > 3 * counts[-2]


def test_only_decode_pods_swap_in_a_mismatch():
    _, told = played("prefill-decode-mismatch", 1)
    assert {life.pool.role: bool((life.loaded.victim >= 0).any()) for life in told} == {"prefill": False, "decode": True}


def test_thursdays_first_hours_are_well_and_its_afternoon_is_not():
    """Swaps triple at 10:15, which costs the first minutes' requests little; towards the day's peak the pool saturates."""
    scenario, told = played("thursday", 7, from_hour=32)
    before, after = per_second(told, scenario, 1, 2.25), per_second(told, scenario, 2.5, 3.5)
    assert after / before > 2.5
    assert wait(told, scenario, 1, 2.25) < 1
    assert wait(told, scenario, 2.25, 2.75) < 4
    assert wait(told, scenario, 6, 7) > 10
