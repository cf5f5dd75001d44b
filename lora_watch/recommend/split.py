"""A fleet of its own for each tenant: nobody's adapters push out another one's."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from lora_watch.derive.families import SEPARATORS
from lora_watch.recommend.advice import Advice, Kind, Place, Setup
from lora_watch.recommend.means import means
from lora_watch.recommend.trial import Counted, Told, Trial, counted
from lora_watch.replay.cluster import Reloads, replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import Trace

FEWEST = 2
"""Tenants, and adapters that at least one of them has: otherwise names tell of no tenants."""
_WORD = re.compile("[" + re.escape(SEPARATORS) + "]")


def tenants(names: Sequence[str]) -> list[str]:
    """
    The tenant of each name: what stands before its first separator, or all of it.

    >>> tenants(["acme-sql", "acme/legal", "beta"])
    ['acme', 'acme', 'beta']
    """
    return [_WORD.split(name, maxsplit=1)[0] or name for name in names]


def advise_split(trial: Trial, setup: Setup) -> Iterator[Advice]:
    """
    The same pods, shared out among tenants by their work: each part is replayed by itself, with the same router within it.

    Tenants are read off names. There are as many parts as pods at most; where there are more tenants the ones with least work
    share a part. The base model's requests go to the first part. None without a router, with one pod, or where names tell of no
    tenants.
    """
    part = trial.part
    owner = tenants(trial.history.names)
    trace = part.trace
    work = np.bincount(trace.adapter[trace.adapter >= 0], minlength=trace.adapters)
    by_tenant: dict[str, int] = defaultdict(int)
    for at, name in enumerate(owner):
        by_tenant[name] += int(work[at])
    busy = [name for name, count in by_tenant.items() if count]
    if trial.present.router is None or trace.pods < FEWEST or len(busy) < FEWEST or len(busy) == int((work > 0).sum()):
        return
    groups = shared_out({name: by_tenant[name] for name in busy}, trace.pods)
    group = {name: at for at, (members, _) in enumerate(groups) for name in members}
    of_adapter = np.array([*(group.get(name, 0) for name in owner), 0], dtype=np.int32)  # the last entry is the base model's
    pods = [pods for _, pods in groups]
    told = _apart(trial, of_adapter[trace.adapter], pods)
    can, how = means(Kind.SPLIT, setup)
    homes = [
        Place(trial.history.names[at], part.pods[pod])
        for at in np.flatnonzero(work).tolist()
        for pod in pods[int(of_adapter[at])]
    ]
    yield trial.advice(
        Kind.SPLIT,
        told,
        what=f"split the fleet by tenant: {len(groups)} parts for {len(busy)} tenants",
        why="adapters of one tenant (the first word of their names) push out those of another",
        cost="no pod more, but one deployment for each part",
        risk="a part has only its own pods when it is busy",
        can=can,
        how=how,
        amount=len(groups),
        places=homes,
    )


def shared_out(work: dict[str, int], pods: int) -> list[tuple[list[str], list[int]]]:
    """
    Tenants and pods of each part. Tenants with most work first go to the part with the least so far; then each pod that is left
    goes to the part with most work a pod.

    >>> shared_out({"a": 8, "b": 3, "c": 1}, pods=4)
    [(['a'], [0, 3]), (['b'], [1]), (['c'], [2])]
    """
    count = min(len(work), pods)
    members: list[list[str]] = [[] for _ in range(count)]
    total = [0] * count
    for name in sorted(work, key=lambda one: (-work[one], one)):
        least = min(range(count), key=lambda at: (total[at], at))
        members[least].append(name)
        total[least] += work[name]
    owned = [[at] for at in range(count)]
    for pod in range(count, pods):
        owned[max(range(count), key=lambda at: (total[at] / len(owned[at]), -at))].append(pod)
    return list(zip(members, owned, strict=True))


def _apart(trial: Trial, group: NDArray[np.int32], pods: Sequence[Sequence[int]]) -> Counted:
    """Each part's requests replayed on its own pods."""
    trace, slots = trial.part.trace, trial.part.slots
    lookup = np.full(len(trace), -1, dtype=np.int8)
    victim = np.full(len(trace), -1, dtype=np.int32)
    start = np.zeros(len(trace), dtype=np.int64)
    again: list[NDArray[np.int64]] = []
    for at, mine in enumerate(pods):
        chosen = np.flatnonzero(group == at)
        own = Trace(trace.adapter[chosen], adapters=trace.adapters, pods=len(mine), at=trace.at[chosen], hold=trace.hold[chosen])
        places = {pod: place for place, pod in enumerate(mine)}
        pins = [(places[pod], adapter) for pod, adapter in trial.part.pinned if pod in places]
        fleet = Fleet([slots[pod] for pod in mine], seats=trial.part.fleet().seats, pins=pins)
        told = replay(own, trial.stepped(fleet), trial.present.router)
        lookup[chosen], victim[chosen], start[chosen] = told.lookup, told.victim, told.start
        again.append(np.array([getattr(told.reloads, field.name) for field in fields(Reloads)]))
    return counted(trial, Told(lookup, victim, start, Reloads(*np.concatenate(again, axis=1))), trace)
