"""Which router stands for the present one: of those that replay knows, the one whose loads come nearest to the recorded pods'."""

from collections.abc import Mapping
from dataclasses import dataclass

from lora_watch.recommend.history import History
from lora_watch.replay.cluster import replay
from lora_watch.replay.routers import ARTICLE, LLM_D, LLM_D_RESIDENCY, RANDOM, ROUND_ROBIN, Router
from lora_watch.replay.trace import Trace

NEAR = 0.25
"""A router whose loads differ by more than this share from the recorded pods' stands for none."""
LOOKED_AT = 400_000
"""Requests that are replayed to find the router, the newest: half a second for all of them."""
ROUTERS: Mapping[str, Router] = {
    "round robin": ROUND_ROBIN,
    "random": RANDOM,
    "the article's affinity router": ARTICLE,
    "llm-d's lora-affinity-scorer": LLM_D,
    "llm-d's residency scorer": LLM_D_RESIDENCY,
}


@dataclass(frozen=True, slots=True)
class Present:
    """
    The router in the loop: its name in ``ROUTERS`` and itself, both None where requests keep the pods they were recorded on.

    ``loads`` are those of its replay, ``recorded_loads`` those of the recorded pods.
    """

    name: str | None
    router: Router | None
    loads: int
    recorded_loads: int

    @property
    def how(self) -> str:
        """What was replayed, in words."""
        return "on the recorded pods" if self.name is None else f"with {self.name}"


def nearest(loads: Mapping[str, int], recorded: int) -> str | None:
    """The name of the replay whose loads are nearest to the recorded pods'; None where it is not within ``NEAR`` of them."""
    name = min(loads, key=lambda one: abs(loads[one] - recorded))
    return name if abs(loads[name] - recorded) <= NEAR * recorded else None


def present(history: History) -> Present:
    """
    The router that stands for the pool's own, found on its newest ``LOOKED_AT`` requests, of which a quarter only fills slots.

    None stands where there is one pod, or none comes near: then slots and pins are judged on the recorded pods.
    """
    whole = history.trace
    cut = slice(max(len(whole) - LOOKED_AT, 0), len(whole))
    given = Trace(
        whole.adapter[cut],
        adapters=whole.adapters,
        pod=whole.pods_or_one()[cut],
        pods=whole.pods,
        at=whole.at[cut],
        hold=whole.hold[cut],
    )
    free = Trace(given.adapter, adapters=given.adapters, pods=given.pods, at=given.at, hold=given.hold)
    counted = slice(len(given) // 4, None)

    def loads(router: Router | None) -> int:
        told = replay(free if router else given, history.fleet(), router)
        return int((told.lookup[counted] > 0).sum())

    recorded = loads(None)
    if whole.pods == 1:
        return Present(None, None, recorded, recorded)
    every = {name: loads(router) for name, router in ROUTERS.items()}
    name = nearest(every, recorded)
    if name is None:
        return Present(None, None, recorded, recorded)
    return Present(name, ROUTERS[name], every[name], recorded)
