"""Which router stands for the present one."""

import numpy as np
import pytest

from lora_watch.model import SECOND
from lora_watch.recommend.present import ROUTERS, nearest, present, stays
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
    assert found.loads == pytest.approx(found.recorded_loads, rel=0.05)


def test_one_pod_has_no_router():
    found = present(month(ring(4, 2), 2))
    assert (found.name, found.router, found.loads, found.how) == (None, None, 60, "on the recorded pods")


def test_where_no_router_comes_near_the_recorded_pods_stand():
    by_hand = [n // 250 % 2 for n in range(4000)]  # all on one pod for a while, then on the other: nobody routes so
    found = present(month(ring(4, 100), 100, slots=(3, 3), pod=by_hand))
    assert (found.name, found.loads) == (None, found.recorded_loads)


def test_of_routers_with_the_same_loads_the_one_that_keeps_adapters_where_they_are_recorded_stands():
    assert nearest({"one": [10], "other": [11]}, [10], {"one": [0.2], "other": [0.9]}, [0.9]) == "other"
    assert nearest({"one": [10], "other": [20]}, [10], {"one": [0.2], "other": [0.9]}, [0.9]) == "one"
    assert nearest({"one": [0]}, [0]) is None


def test_stays_are_the_requests_that_follow_their_adapters_last():
    codes, pods = np.array([0, 1, 0, -1, 1, 0], dtype=np.int32), np.array([0, 1, 0, 0, 0, 1], dtype=np.int32)
    assert stays(codes, pods) == 1 / 3
    assert stays(codes[:2], pods[:2]) == 1.0
