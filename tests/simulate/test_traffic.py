import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch.model import DAY, HOUR, SECOND
from lora_watch.replay.trace import BASE
from lora_watch.simulate.scenario import (
    MONDAY,
    Burst,
    Grow,
    Onboard,
    Pipeline,
    Retire,
    Scan,
    Scenario,
    Split,
    Traffic,
    Truth,
)
from lora_watch.simulate.traffic import Requests, catalogue, days, everything, joined, spans


def scenario(*events: object, **traffic: object) -> Scenario:
    settings = {"requests_per_second": 1.0, "adapters": 10, **traffic}
    return Scenario(name="s", about="", traffic=Traffic(**settings), events=events, truth=Truth())


def asked(chosen: Scenario, length: float = 1.0, seed: int = 1) -> Requests:
    return everything(chosen, catalogue(chosen, seed), length, seed)


def same(one: Requests, two: Requests) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ("at", "adapter", "prompt", "generated"))


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.floats(1, 5), st.floats(0, 1))
def test_the_same_seed_gives_the_same_arrays_and_another_others(seed: int, session: float, swing: float):
    chosen = scenario(session_requests=session, daily_swing=swing, drift=0.3)
    first, again, other = (asked(chosen, 0.2, number) for number in (seed, seed, seed + 1))
    assert same(first, again)
    assert not same(first, other)
    assert (np.diff(first.at) >= 0).all()


@settings(max_examples=10)
@given(st.integers(1, 400), st.floats(0.1, 1.3))
def test_spans_add_up_to_the_whole_and_hold_their_requests(most: int, length: float):
    chosen = scenario(Burst(kind="burst", start=1, adapters=(1,), requests=50, seconds=1), requests_per_second=0.02)
    parts = list(spans(chosen, catalogue(chosen, 1), length, 1, most))
    windows, came = [window for window, _ in parts], [requests for _, requests in parts]
    assert (windows[0].start, windows[-1].end) == (MONDAY, MONDAY + round(length * DAY))
    assert [one.end for one in windows[:-1]] == [two.start for two in windows[1:]]
    assert all(window.start <= at < window.end for window, requests in parts for at in requests.at.tolist())
    assert same(joined(came), asked(chosen, length))
    assert joined(came).number.tolist() == list(range(len(joined(came))))
    assert max(len(requests) for requests in came) <= most + 1


def test_a_longer_simulation_begins_with_the_shorter_one():
    chosen = scenario(session_requests=4, drift=0.3)
    short, long = asked(chosen, 1.5), asked(chosen, 2.2)
    cut = len(short)
    assert same(short, long[:cut])
    assert long.at[cut] >= MONDAY + 1.5 * DAY


def test_popularity_is_zipf_and_the_rate_is_as_told():
    requests = asked(scenario(requests_per_second=2, zipf=1.0))
    assert len(requests) / 86_400 == pytest.approx(2, rel=0.02)
    counts = np.bincount(requests.adapter)
    assert counts[0] / counts[4] == pytest.approx(5, rel=0.1)


def test_weights_stand_in_for_zipf():
    counts = np.bincount(asked(scenario(adapters=2, weights=(3.0, 1.0))).adapter)
    assert counts[0] / counts[1] == pytest.approx(3, rel=0.05)


def test_the_day_swings_in_each_adapters_own_zone():
    requests = asked(scenario(adapters=2, zipf=0, daily_swing=0.8, zones=(0.0, 12.0)))
    hour = (requests.at - MONDAY) // HOUR
    at_two = [np.bincount(hour[requests.adapter == code], minlength=24)[14] for code in (0, 1)]
    assert at_two[0] > 5 * at_two[1]


def test_weekends_are_quieter():
    requests = asked(scenario(weekend=0.25), 7)
    by_day = np.bincount((requests.at - MONDAY) // DAY)
    assert by_day[5:].mean() / by_day[:5].mean() == pytest.approx(0.25, rel=0.05)


def test_a_session_asks_for_one_adapter_again_and_again():
    def repeats(session: float) -> float:
        adapter = asked(scenario(requests_per_second=0.02, zipf=0, session_requests=session)).adapter
        return float((adapter[1:] == adapter[:-1]).mean())

    assert repeats(8) > 4 * repeats(1)


def test_a_ramp_reaches_the_share_and_the_growth_of_a_split_in_a_straight_line():
    ramp = Split(kind="split", start=4, top=10, share=0.6, growth=2.0, ramp_hours=8)
    requests = asked(scenario(ramp, requests_per_second=10))
    hour = (requests.at - MONDAY) / HOUR
    variant = requests.adapter >= 10
    counts = [
        (round(a), int(((hour >= a) & (hour < b)).sum()), variant[(hour >= a) & (hour < b)].mean())
        for a, b in ((0, 2), (4, 6), (8, 10), (14, 16))
    ]
    usual = 2 * 36_000
    for begin, count, share in counts:
        gone = min(max((begin + 1 - 4) / 8, 0.0), 1.0)
        assert share == pytest.approx(0.6 * gone, abs=0.01)
        assert count / usual == pytest.approx(1 + gone, rel=0.03)


def test_a_split_sends_half_to_variants_from_its_moment_on():
    chosen = scenario(Split(kind="split", start=10.25, top=3, share=0.5, growth=1.0))
    known, requests = catalogue(chosen, 1), asked(chosen)
    assert known.names[10:] == tuple(name + "-experiment" for name in known.names[:3])
    variant = requests.adapter >= 10
    start = MONDAY + round(10.25 * HOUR)
    assert requests.at[variant].min() >= start
    after = requests.at >= start
    assert variant[after].sum() / (requests.adapter[after] % 10 < 3).sum() == pytest.approx(0.5, abs=0.02)
    assert known.bytes[10:].tolist() == known.bytes[:3].tolist()


def test_new_adapters_come_and_retired_ones_go_at_their_moment():
    chosen = scenario(
        Onboard(kind="onboard", start=6, adapters=2, share=0.5), Retire(kind="retire", start=12, adapters=(0,), unregister=True)
    )
    known, requests = catalogue(chosen, 1), asked(chosen)
    assert requests.at[requests.adapter >= 10].min() >= MONDAY + 6 * HOUR
    assert requests.at[requests.adapter == 0].max() < MONDAY + 12 * HOUR
    assert (known.gone[0], known.born[10]) == (MONDAY + 12 * HOUR, MONDAY + 6 * HOUR)


def test_a_scan_asks_for_every_adapter_in_turn_each_night():
    chosen = scenario(Scan(kind="scan", start=2, seconds=100, requests=3), requests_per_second=1e-7)
    requests = asked(chosen, 2)
    for day in (0, 1):
        begin = MONDAY + day * DAY + 2 * HOUR
        scanned = requests.adapter[(requests.at >= begin) & (requests.at < begin + 100 * SECOND)]
        assert scanned.tolist() == np.repeat(np.arange(10), 3).tolist()


def test_a_burst_comes_at_once():
    chosen = scenario(Burst(kind="burst", start=3, adapters=(4,), requests=50, seconds=2), requests_per_second=0.001)
    requests = asked(chosen)
    begin = MONDAY + 3 * HOUR
    assert ((requests.adapter == 4) & (requests.at >= begin) & (requests.at < begin + 2 * SECOND)).sum() == 50


def test_growth_multiplies_from_its_moment_on():
    requests = asked(scenario(Grow(kind="grow", start=12, factor=3), requests_per_second=0.5))
    before, after = np.bincount((requests.at - MONDAY) // (12 * HOUR))
    assert after / before == pytest.approx(3, rel=0.05)


def test_a_pipeline_follows_what_an_earlier_one_added():
    lines = (Pipeline(first=0, then=1, probability=1.0), Pipeline(first=1, then=2, probability=1.0))
    counts = np.bincount(asked(scenario(adapters=3, zipf=0, pipelines=lines), 0.9).adapter)
    assert counts / counts[0] == pytest.approx([1, 2, 3], rel=0.05)


def test_a_share_is_for_the_base_model():
    requests = asked(scenario(base_share=0.3))
    assert (requests.adapter == BASE).mean() == pytest.approx(0.3, abs=0.01)


def test_a_share_of_the_adapters_is_large():
    known = catalogue(scenario(adapters=400, large_share=0.25), 1)
    assert (known.rank == 64).mean() == pytest.approx(0.25, abs=0.07)
    assert set(known.bytes[known.rank == 64].tolist()) == {356_515_840}
    assert set(known.bytes[known.rank == 16].tolist()) == {65_536_000}


def test_each_day_is_told_by_itself():
    chosen = scenario(session_requests=5, session_gap_seconds=600)
    parts = list(days(chosen, catalogue(chosen, 1), 2.5, 1))
    bounds = [(int(part.at.min() - MONDAY) // DAY, int(part.at.max() - MONDAY) // DAY) for part in parts]
    assert bounds == [(0, 0), (1, 1), (2, 2)]
    assert parts[2].at.max() < MONDAY + 2.5 * DAY
