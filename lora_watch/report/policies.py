"""Eviction policies compared on a pool's own requests, with the router in the loop, and the bound that knows the future."""

from dataclasses import replace

from lora_watch.model import DAY, Window
from lora_watch.recommend.history import History
from lora_watch.recommend.present import NEAR, Present
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.policies import LRU, Eviction, Policy
from lora_watch.replay.routers import Router
from lora_watch.replay.trace import Trace
from lora_watch.report.weekly import Evicted, Policies

WARM_UP = DAY
"""Before the judged window, so much only fills the slots."""
FEWEST = 200
"""With fewer requests nothing is compared."""
OTHERS = {"LFU": Policy(Eviction.LFU), "time-weighted": Policy(Eviction.TIME_WEIGHTED)}
"""What engines could do instead of LRU; LFU forgets with a time constant of ten minutes, the article's score looks ten back."""
BOUND = "Belady's MIN"


def compared(pool: str, history: History, window: Window, present: Present) -> Policies:
    """
    Loads in ``window`` under LRU (as vLLM), LFU and the article's time-weighted score, each with the router that stands for the
    pool's own (``present``), and under MIN beside an LRU without lengths of requests on
    the recorded pods: MIN takes neither a router nor requests that hold their slots.

    Where there is no such router, or its loads are not ``NEAR`` those of the recorded pods over this window, requests keep their
    recorded pods.

    Loads include those of requests that arrived in the window only. Without ``FEWEST`` requests for adapters ``rows`` is empty.
    """
    part = history.during(Window(max(window.start - WARM_UP, history.window.start), window.end)).trace
    asked = int(((part.at >= window.start) & (part.adapter >= 0)).sum())
    if asked < FEWEST:
        return Policies(
            pool, asked, why=f"{asked} requests for adapters in the week: fewer than {FEWEST} tell policies apart by chance"
        )
    free = Trace(part.adapter, adapters=part.adapters, pods=part.pods, at=part.at, hold=part.hold)
    instant = Trace(part.adapter, adapters=part.adapters, pod=part.pods_or_one(), pods=part.pods, at=part.at)

    def loads(trace: Trace, policy: Policy, router: Router | None = None) -> int:
        told = replay(trace, _with(history.fleet(), policy), router)
        return int(((part.at >= window.start) & (told.lookup > 0)).sum())

    recorded = loads(part, LRU)
    base, router, given, how = recorded, None, part, "replay on the recorded pods"
    if present.router is not None:
        routed = loads(free, LRU, present.router)
        if abs(routed - recorded) <= NEAR * recorded:
            base, router, given, how = routed, present.router, free, f"replay {present.how}"
    rows = [Evicted("LRU", base, base, how)]
    rows += [Evicted(name, loads(given, policy, router), base, how) for name, policy in OTHERS.items()]
    bound = Evicted(
        BOUND,
        loads(instant, Policy(Eviction.MIN)),
        loads(instant, LRU),
        "replay on the recorded pods, requests without length",
        bound=True,
    )
    return Policies(pool, asked, (*rows, bound))


def _with(fleet: Fleet, policy: Policy) -> Fleet:
    return replace(fleet, policy=policy)
