"""Which router stands for the present one."""

import numpy as np
import pytest

from lora_watch.model import SECOND
from lora_watch.recommend.present import ROUTERS, Seen, apart, nearest, present, stays
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.routers import Router
from lora_watch.replay.trace import Trace
from tests.recommend.months import month, ring


@pytest.mark.parametrize("name", ROUTERS)
def test_the_router_that_placed_the_requests_is_found_again(name: str):
    random = np.random.default_rng(4)
    weights = 1 / np.arange(1, 31)
    codes = random.choice(30, 20_000, p=weights / weights.sum())
    free = month(codes.tolist(), 0.2, slots=(3, 3, 3, 3), hold=4 * SECOND).trace
    other = Router(**{field: getattr(ROUTERS[name], field) for field in ROUTERS[name].__slots__} | {"seed": 7})
    pod = replay(Trace(free.adapter, adapters=30, pods=4, at=free.at, hold=free.hold), Fleet(3), other).pod
    found = present(month(codes.tolist(), 0.2, slots=(3, 3, 3, 3), pod=pod.tolist(), hold=4 * SECOND))
    assert found.name == name
    assert found.router == ROUTERS[name]
    assert found.how == f"with {name}"
    assert found.loads == pytest.approx(found.recorded_loads, rel=0.1)  # where homes lie is chance


def test_one_pod_has_no_router():
    found = present(month(ring(4, 2), 2))
    assert (found.name, found.router, found.loads, found.how) == (None, None, 60, "on the recorded pods")


def test_where_no_router_comes_near_the_recorded_pods_stand():
    by_hand = [n // 250 % 2 for n in range(4000)]  # all on one pod for a while, then on the other: nobody routes so
    found = present(month(ring(4, 100), 100, slots=(3, 3), pod=by_hand))
    assert (found.name, found.loads) == (None, found.recorded_loads)


def test_of_routers_with_loads_that_are_near_the_one_that_places_as_recorded_stands():
    assert nearest({"one": [10], "other": [12]}, [10], elsewhere={"one": [0.7], "other": [0.1]}) == "other"
    assert nearest({"one": [10], "other": [20]}, [10], elsewhere={"one": [0.7], "other": [0.1]}) == "one"


def test_without_requests_nobody_knows_whether_a_load_more_is_many():
    assert nearest({"one": [0]}, [0]) is None


def test_no_loads_are_near_to_a_few_among_many_requests():
    assert nearest({"one": [9], "other": [2]}, [0], [1000]) == "other"


def test_placements_differ_by_where_adapters_stay_and_by_how_even_pods_are():
    even, uneven = Seen(0, 10, 0.5, (0.5, 0.5)), Seen(0, 10, 0.75, (0.25, 0.75))
    assert apart(even, uneven) == apart(uneven, even) == 0.5
    assert apart(even, even) == 0.0


def test_a_pool_without_loads_has_a_router_too():
    codes = np.random.default_rng(4).choice(8, 8000).tolist()
    free = month(codes, 0.2, slots=(4, 4), hold=SECOND).trace
    pod = replay(Trace(free.adapter, pods=2, at=free.at, hold=free.hold), Fleet(4), ROUTERS["the article's affinity router"]).pod
    found = present(month(codes, 0.2, slots=(4, 4), pod=pod.tolist(), hold=SECOND))
    assert (found.recorded_loads, found.loads) == (0, 0)
    assert found.name in {"the article's affinity router", "llm-d's residency scorer"}


def test_stays_are_the_requests_that_follow_their_adapters_last():
    codes, pods = np.array([0, 1, 0, -1, 1, 0], dtype=np.int32), np.array([0, 1, 0, 0, 0, 1], dtype=np.int32)
    assert stays(codes, pods) == 1 / 3
    assert stays(codes[:2], pods[:2]) == 1.0
