"""
How fast the replay is, beside a bare move-to-front loop in the same process: ``python benchmarks/replay_speed.py``.

Sessions of 12 requests over 79 Zipf(1.0) adapters, 11 million requests; ``--requests 1e6`` makes a small run. Every kernel is
compiled first; of three runs the fastest counts, in processor time, kernels and bare loop in turn.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lora_watch.model import SECOND, Window
from lora_watch.replay.cluster import Outcome, replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.locality import working_set
from lora_watch.replay.policies import Eviction, Policy
from lora_watch.replay.routers import ARTICLE, LLM_D, LLM_D_RESIDENCY, RANDOM, ROUND_ROBIN, Router
from lora_watch.replay.stack import FIRST, misses_by_slots, stack_distances, tree_distances
from lora_watch.replay.trace import Trace

ADAPTERS, PODS, SLOTS, SESSION = 79, 8, 4, 12
RUNS = 3


@njit
def bare(adapter: NDArray[np.int32], adapters: int) -> int:
    """Move each adapter to the front of one list; nothing is counted but the depth, so that the loop isn't optimised away."""
    stack = np.arange(adapters).astype(np.int32)
    depth = 0
    for i in range(len(adapter)):
        wanted = adapter[i]
        carried = wanted
        place = 0
        while True:
            here = stack[place]
            stack[place] = carried
            if here == wanted:
                break
            carried = here
            place += 1
        depth += place
    return depth


def traffic(requests: int) -> tuple[Trace, Trace]:
    """The trace without pods, and with each request on a pod by its adapter."""
    random = np.random.default_rng(3)
    weights = 1 / np.arange(1, ADAPTERS + 1)
    sessions = random.choice(ADAPTERS, 40, p=weights / weights.sum())
    adapter = np.empty(requests, dtype=np.int32)
    which = random.integers(0, 40, requests)
    fresh = random.random(requests) < 1 / SESSION
    drawn = random.choice(ADAPTERS, requests, p=weights / weights.sum())
    for i, (session, new) in enumerate(zip(which.tolist(), fresh.tolist(), strict=True)):
        if new:
            sessions[session] = drawn[i]
        adapter[i] = sessions[session]
    at = np.cumsum(random.exponential(SECOND / 4.2, requests)).astype(np.int64)
    hold = (random.exponential(1.0, requests) * SECOND).astype(np.int64)
    free = Trace(adapter, adapters=ADAPTERS, pods=PODS, at=at, hold=hold)
    placed = Trace(adapter, adapters=ADAPTERS, pod=adapter % PODS, pods=PODS, at=at)
    return free, placed


def fastest(runs: int, *works: Callable[[], object]) -> list[float]:
    """Processor seconds of each, in turn; the least of ``runs``."""
    best = [float("inf")] * len(works)
    for _ in range(runs):
        for place, work in enumerate(works):
            begin = time.process_time()
            work()
            best[place] = min(best[place], time.process_time() - begin)
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=float, default=11e6)
    requests = int(parser.parse_args().requests)
    free, placed = traffic(requests)
    pool = Trace(free.adapter, adapters=ADAPTERS)
    uniform = Trace(np.random.default_rng(4).integers(0, ADAPTERS, requests).astype(np.int32), adapters=ADAPTERS)
    zeros = np.zeros(1, dtype=np.int32)
    tree_distances(zeros, zeros, 1, 1, zeros.copy())

    def row(name: str, seconds: float, count: int, note: str = "") -> None:
        print(f"{name:<46} {seconds:8.2f} s {1e9 * seconds / count:8.1f} ns/request {count / seconds / 1e6:8.1f} M/s  {note}")

    print(f"{requests:,} requests, {ADAPTERS} adapters, {PODS} pods x {SLOTS} slots, one thread\n")
    for label, trace in (("sessions", pool), ("uniform", uniform)):
        distance = np.empty(len(trace), dtype=np.int32)
        pod = trace.pods_or_one()
        bare(trace.adapter[:1], ADAPTERS)
        misses_by_slots(Trace(trace.adapter[:1], adapters=ADAPTERS))
        loop, curve, each, tree = fastest(
            RUNS,
            lambda trace=trace: bare(trace.adapter, ADAPTERS),
            lambda trace=trace: misses_by_slots(trace),
            lambda trace=trace: stack_distances(trace),
            lambda trace=trace, pod=pod, distance=distance: tree_distances(trace.adapter, pod, 1, ADAPTERS, distance),
        )
        depth = distance[distance != FIRST].mean()
        row(f"bare move-to-front loop, {label}", loop, requests, f"mean stack depth {depth:.1f}")
        row(f"  miss-ratio curve, all slot counts ({loop / curve:.2f} x)", curve, requests)
        row("  a distance for each request, list", each, requests)
        row("  a distance for each request, Fenwick tree", tree, requests)
    spans = [SECOND * 5 * 2**k for k in range(8)]
    window = Window(0, int(pool.at[-1]) + 1)
    working_set(Trace([0]), Window(0, 10), [1])
    row("working-set curve, 8 spans", fastest(RUNS, lambda: working_set(pool, window, spans))[0], requests)
    print()
    sizes = np.random.default_rng(5).choice([16, 32, 64, 128], ADAPTERS, p=[0.3, 0.3, 0.25, 0.15]).tolist()
    replays: list[tuple[str, Trace, Fleet, Router | None]] = [
        ("given pods, LRU", placed, Fleet(SLOTS), None),
        ("given pods, LRU, warm tier of 16", placed, Fleet(SLOTS, cpu_capacity=16), None),
        ("given pods, LFU", placed, Fleet(SLOTS, policy=Policy(Eviction.LFU)), None),
        ("given pods, time-weighted", placed, Fleet(SLOTS, policy=Policy(Eviction.TIME_WEIGHTED)), None),
        ("given pods, MIN", placed, Fleet(SLOTS, policy=Policy(Eviction.MIN)), None),
        ("round robin, holds", free, Fleet(SLOTS), ROUND_ROBIN),
        ("random, holds", free, Fleet(SLOTS), RANDOM),
        ("article's EPP, holds", free, Fleet(SLOTS), ARTICLE),
        ("article's EPP, holds, +1 slot", free, Fleet(SLOTS + 1), ARTICLE),
        ("article's EPP, holds, pools of bytes", free, Fleet(pool_bytes=SLOTS * 64, sizes=sizes), ARTICLE),
        ("article's EPP, holds, scraped every 5 s", free, Fleet(SLOTS), Router(scrape=5 * SECOND, coalesce=True)),
        ("llm-d lora-affinity, holds", free, Fleet(SLOTS), LLM_D),
        ("llm-d lora-load-state (proposed), holds", free, Fleet(SLOTS), LLM_D_RESIDENCY),
    ]
    replay(Trace([0]), Fleet(1))
    replay(Trace([0]), Fleet(1, policy=Policy(Eviction.MIN)))
    told: list[Outcome] = []
    for name, trace, fleet, router in replays:
        seconds = fastest(1, lambda trace=trace, fleet=fleet, router=router: told.append(replay(trace, fleet, router)))[0]
        row(name, seconds, requests, f"miss {told[-1].loads / requests:.4f}, waited {told[-1].blocked.mean():.4f}")
        told.clear()


if __name__ == "__main__":
    main()
