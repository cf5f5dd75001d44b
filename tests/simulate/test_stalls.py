"""The fleet whose loads stall, held against a plain engine that is moved on µs by µs."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay.traces import ADAPTERS, held

from lora_watch.replay.cluster import AFTER_ALL, NEVER
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.policies import Eviction, Policy
from lora_watch.replay.routers import ARTICLE, LLM_D, ROUND_ROBIN, Router
from lora_watch.replay.trace import BASE, Trace
from lora_watch.simulate.stalls import Costs, Stalls, Told, stalled


def costs(load: float, adapters: int = ADAPTERS, *, disk: float = 0, slow: tuple[int, int] = (0, 0)) -> Costs:
    return Costs(
        np.full(adapters, float(load)),
        np.full(adapters, float(disk)),
        gpu_more=0.0,
        least=1.0,
        spread=0.0,
        slow_begin=np.array(slow[:1], dtype=np.int64),
        slow_end=np.array(slow[1:], dtype=np.int64),
        factor=np.array([10.0]),
        seed=1,
    )


def real(told: Told, trace: Trace) -> list[tuple[int, int]]:
    """(scheduled, finished) of each request of a single pod that never restarted, in real time."""
    length, end = told.length.astype(np.int64), told.start + trace.hold
    order = np.argsort(told.start, kind="stable")
    order = order[told.start[order] != NEVER]
    answer = {}
    for k, i in enumerate(order.tolist()):
        ahead = int(length[order[:k]].sum())
        before_end = int(length[order][told.start[order] < end[i]].sum())
        answer[i] = (int(told.start[i]) + ahead, int(end[i]) + before_end)
    return [answer.get(i, (NEVER, NEVER)) for i in range(len(told.start))]


def plain(trace: Trace, slots: int, seats: int, load: int) -> tuple[list[bool], list[tuple[int, int]]]:
    """Who loads, and when each request is scheduled and finished, by an engine that moves on one µs at a time."""
    count = len(trace)
    left = trace.hold.tolist()
    loads, scheduled, finished = [False] * count, [NEVER] * count, [NEVER] * count
    residents: list[int] = []  # least recently used first
    running: list[int] = []
    waiting: list[int] = []
    t = stall = coming = 0

    def touch(a: int) -> None:
        residents.remove(a)
        residents.append(a)

    def start(i: int) -> bool:
        nonlocal stall
        a = int(trace.adapter[i])
        if len(running) >= seats:
            return False
        behind = max(t, stall)
        if a != BASE and a not in residents:
            if len(residents) == slots:
                idle = [b for b in residents if all(trace.adapter[j] != b for j in running)]
                if not idle:
                    return False
                residents.remove(idle[0])
            residents.append(a)
            loads[i] = True
            stall = behind + load
        elif a != BASE:
            touch(a)
        scheduled[i] = behind
        running.append(i)
        return True

    while coming < count or running or waiting:
        if t >= stall:
            ended = sorted(i for i in running if left[i] == 0)
            for i in ended:
                running.remove(i)
                finished[i] = t
                if trace.adapter[i] != BASE:
                    touch(int(trace.adapter[i]))
            if ended:
                waiting[:] = [i for i in waiting if not start(i)]
        while coming < count and trace.at[coming] <= t:
            if not start(coming):
                waiting.append(coming)
            coming += 1
        if t >= stall:
            for i in running:
                left[i] -= 1
        t += 1
    return loads, list(zip(scheduled, finished, strict=True))


@settings(max_examples=150)
@given(held(), st.integers(1, 3), st.integers(1, 5), st.integers(1, 6))
def test_a_pod_whose_loads_stall_does_what_the_plain_one_does(trace: Trace, slots: int, seats: int, load: int):
    trace = Trace(trace.adapter, adapters=ADAPTERS, at=trace.at, hold=np.maximum(trace.hold, 1))
    told = stalled(trace, Fleet(slots, ADAPTERS + slots, seats), None, costs(load))
    loads, times = plain(trace, slots, seats, load)
    assert (told.lookup > 0).tolist() == loads
    assert real(told, trace) == times


def whole(spans: list[Told], count: int) -> dict[str, list[int]]:
    """What several spans tell of all requests, by column: of one that is told again the later word."""
    columns = {one.name: [0] * count for one in fields(Told) if one.name != "offsets"}
    for told in spans:
        for name, column in columns.items():
            for number, value in zip(told.number.tolist(), getattr(told, name).tolist(), strict=True):
                column[number] = value
    return columns


@settings(max_examples=300)
@given(
    held(),
    st.lists(st.integers(0, 70), max_size=4),
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 2)), max_size=3, unique=True),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 9),
    st.sampled_from([ROUND_ROBIN, ARTICLE, replace(ARTICLE, scrape=7), replace(LLM_D, coalesce=True), None]),
)
def test_wherever_a_trace_is_cut_the_same_comes_out(
    trace: Trace,
    cuts: list[int],
    restarts: list[tuple[int, int]],
    slots: int,
    seats: int,
    load: int,
    router: Router | None,
):
    trace = Trace(trace.adapter, adapters=ADAPTERS, pods=3, at=trace.at, hold=np.maximum(trace.hold, 1))
    fleet = Fleet(slots, slots + 1, seats, pins=[(1, 2)] if slots > 1 else [])
    price = costs(load, disk=3)._replace(spread=3.0)
    one = stalled(trace, fleet, router, price, restarts)
    fleet_in_spans, spans, begin = Stalls(fleet, 3, ADAPTERS, router, price, restarts), [], 0
    for cut in [*sorted(cuts), AFTER_ALL]:
        end = int(np.searchsorted(trace.at, cut, side="right"))
        part = slice(begin, max(end, begin))
        piece = Trace(trace.adapter[part], adapters=ADAPTERS, pods=3, at=trace.at[part], hold=trace.hold[part])
        spans.append(fleet_in_spans.through(piece, cut))
        begin = max(end, begin)
    assert whole(spans, len(trace)) == whole([one], len(trace))
    assert spans[-1].offsets == one.offsets


def test_a_look_that_a_cut_comes_behind_sees_the_pods_as_they_were():
    """Both pods hold 0, and at 10 one still runs it, where all who come before 20 go; at the cut neither does."""
    at, hold = [1, 2, 3, 4, 5, 6, *[19] * 10], [14, *[1] * 15]
    router, count = replace(ARTICLE, scrape=10), len(at)
    one = stalled(Trace([0] * count, pods=2, at=at, hold=hold), Fleet(1), router, costs(1, 1))
    assert set(one.pod[:6].tolist()) == {0, 1}
    assert set(one.pod[6:].tolist()) == {int(one.pod[0])}
    fleet, told = Stalls(Fleet(1), 2, 1, router, costs(1, 1)), []
    for part, until in ((slice(0, 6), 18), (slice(6, count), AFTER_ALL)):
        piece = Trace([0] * len(at[part]), adapters=1, pods=2, at=at[part], hold=hold[part])
        told.append(fleet.through(piece, until))
    assert whole(told, count) == whole([one], count)


def test_a_restart_in_a_full_batch_forgets_what_ran():
    """What ran before a restart once stayed in the list of what runs, which then had no room for the same again."""
    at, hold = [0, 1, 2, 10, 11, 12, 20, 21, 22], [1000] * 9
    told = stalled(Trace([0] * 9, at=at, hold=hold), Fleet(1, seats=3), None, costs(1, 1), restarts=[(5, 0), (15, 0)])
    assert told.boot.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert (told.start != NEVER).all()


def test_spans_follow_each_other_and_hold_their_requests():
    fleet = Stalls(Fleet(1), 1, 1, None, costs(1, 1))
    fleet.through(Trace([0], at=[5], hold=[1]), 10)
    for at, until in ((10, 20), (30, 20)):
        with pytest.raises(ValueError, match="one after the other"):
            fleet.through(Trace([0], at=[at], hold=[1]), until)
    with pytest.raises(ValueError, match="one after the other"):
        fleet.through(Trace([], adapters=1), 9)
    with pytest.raises(ValueError, match="the fleet has"):
        fleet.through(Trace([0], adapters=2, at=[11], hold=[1]), 20)


def test_a_load_delays_what_runs_beside_it_by_its_length():
    trace = Trace([0, 1], at=[0, 50], hold=[100, 100])
    assert real(stalled(trace, Fleet(2), None, costs(7, 2)), trace) == [(0, 114), (50, 157)]


def test_who_comes_during_a_load_is_scheduled_behind_it():
    trace = Trace([0, 0], at=[0, 3], hold=[100, 100])
    assert real(stalled(trace, Fleet(2), None, costs(7, 1)), trace) == [(0, 107), (7, 107)]


def test_a_cold_load_reads_the_disk_first_and_a_slow_disk_takes_longer():
    trace = Trace([0, 1, 0, 1, 0], at=[0, 1000, 2000, 3000, 4000], hold=[1] * 5)
    told = stalled(trace, Fleet(1), None, costs(5, 2, disk=20, slow=(1500, 2500)))
    assert told.length.tolist() == [25, 25, 205, 25, 25]
    assert told.gpu_part.tolist() == [5] * 5


def test_a_restart_cuts_a_load_short_and_the_clock_goes_on():
    told = stalled(Trace([0, 0], at=[0, 500], hold=[10, 10]), Fleet(1), None, costs(1000, 1), restarts=[(400, 0)])
    assert told.boot.tolist() == [0, 1]
    assert told.offsets == ((0, 400),)
    assert told.start.tolist() == [0, 100]


def test_a_router_spreads_requests_over_pods_that_stall_each_on_its_own():
    told = stalled(Trace([0, 0, 0], pods=3, at=[0, 1, 2], hold=[9, 9, 9]), Fleet(1), ROUND_ROBIN, costs(100, 1))
    assert told.pod.tolist() == [0, 1, 2]
    assert told.start.tolist() == [0, 1, 2]


def test_requests_keep_their_pods_without_a_router_and_a_stale_router_sees_no_load_yet():
    at = [1, 2, 3, 4]
    assert stalled(Trace([0] * 4, pod=[1, 0, 1, 0], at=at, hold=[1] * 4), Fleet(1), None, costs(5, 1)).pod.tolist() == [
        1,
        0,
        1,
        0,
    ]
    fresh, stale = (
        stalled(Trace([0] * 4, pods=4, at=at, hold=[50] * 4), Fleet(1), replace(ARTICLE, scrape=scrape), costs(5, 1))
        for scrape in (0, 1000)
    )
    assert (fresh.lookup > 0).sum() == 1
    assert (stale.lookup > 0).sum() > 1


def test_other_policies_and_a_fleets_own_load_times_are_refused():
    for fleet in (Fleet(1, policy=Policy(Eviction.LFU)), Fleet(1, warm_load=1, cold_load=1)):
        with pytest.raises(ValueError, match="loads take what the costs say"):
            stalled(Trace([0], hold=[1]), fleet, None, costs(1, 1))
    with pytest.raises(ValueError, match="a load takes 1"):
        stalled(Trace([0], hold=[1]), Fleet(1), None, costs(0, 1))
    with pytest.raises(ValueError, match="1 µs at least"):
        stalled(Trace([0], hold=[0]), Fleet(1), None, costs(1, 1))
