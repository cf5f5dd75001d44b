"""The router that stands for the pool's own."""

import numpy as np

from lora_watch.model import Window
from lora_watch.recommend.history import History
from lora_watch.recommend.present import PART, present
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.routers import ARTICLE, ROUND_ROBIN, Router
from lora_watch.replay.trace import Trace

ADAPTERS, PODS, SLOTS = 40, 4, 4


def _history(router: Router, requests: int, *, held: int = 0) -> History:
    """Zipf(1.0) requests placed by ``router``; the last tenth of them holds its slot for ``held`` µs."""
    random = np.random.default_rng(4)
    weights = 1 / np.arange(1, ADAPTERS + 1)
    adapter = random.choice(ADAPTERS, requests, p=weights / weights.sum()).astype(np.int32)
    at = np.arange(requests, dtype=np.int64) * 100_000
    hold = np.where(np.arange(requests) >= requests - requests // 10, held, 1_000).astype(np.int64)
    free = Trace(adapter, adapters=ADAPTERS, pods=PODS, at=at, hold=hold)
    pod = replay(free, Fleet(SLOTS), router).pod
    return History(
        Window(0, int(at[-1]) + 1),
        Trace(adapter, adapters=ADAPTERS, pod=pod, pods=PODS, at=at, hold=hold),
        tuple(f"a{i}" for i in range(ADAPTERS)),
        tuple(f"pod-{i}" for i in range(PODS)),
        (SLOTS,) * PODS,
        np.full(ADAPTERS, 0.1),
        np.full(ADAPTERS, -1, dtype=np.int64),
        np.zeros(ADAPTERS, dtype=np.int64),
        np.zeros(ADAPTERS, dtype=np.bool_),
    )


def test_the_router_that_placed_the_requests_is_found() -> None:
    assert present(_history(ARTICLE, 20_000)).name == "the article's affinity router"
    assert present(_history(ROUND_ROBIN, 20_000)).name in {"round robin", "random"}


def test_hours_in_which_requests_wait_do_not_decide_it() -> None:
    """In the last tenth, which by itself is long enough to be looked at, every pod is full and every router does the same."""
    found = present(_history(ARTICLE, 8 * PART, held=8_000_000))
    assert found.name == "the article's affinity router"


def test_where_no_router_comes_near_pods_stay_as_recorded() -> None:
    history = _history(ARTICLE, 20_000)
    home = history.trace.adapter % PODS  # each adapter on one pod: fewer loads than any router makes
    few = history.trace.adapter < PODS * SLOTS
    trace = Trace(
        history.trace.adapter[few],
        adapters=ADAPTERS,
        pod=home[few],
        pods=PODS,
        at=history.trace.at[few],
        hold=history.trace.hold[few],
    )
    found = present(
        History(
            history.window,
            trace,
            history.names,
            history.pods,
            history.slots,
            history.load_seconds,
            history.bytes,
            history.first_seen,
            history.experiment,
        )
    )
    assert found.name is None
    assert found.loads == found.recorded_loads
    assert found.how == "on the recorded pods"
