"""What all advice of a pool comes to: the state that an engine is to be told."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lora_watch.recommend.advice import Advice, Kind, Place, Setup, Verdict

HOURS = 168
HOPE = (
    "preload.sh loads adapters ahead and pins nothing: the least recently used leaves again, so do not count on what pins by the "
    "hour of the week promise"
)
"""What is to be known of preloads where pins were judged."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """
    ``slots`` of each pod (None: unchanged or unknown) and ``more_slots``; ``cpu`` adapters in host memory, at least as many.
    ``pins`` and ``preloads`` by adapter and pod, ``unpin`` and ``retire`` what is no longer wanted; what
    is to be pinned is not in ``unpin``, whatever else is advised. ``more_pods`` to add.
    ``uneven``: the fewest and most slots that a pod has now, where they differ.
    """

    slots: int | None
    more_slots: int
    cpu: int | None
    more_pods: int
    pins: tuple[Place, ...]
    preloads: tuple[Place, ...]
    unpin: tuple[Place, ...]
    retire: tuple[str, ...]
    kinds: tuple[Kind, ...]
    left_out: int = 0
    uneven: tuple[int, int] | None = None

    @property
    def loaded(self) -> tuple[Place, ...]:
        """Pins and preloads: what an engine that knows no pins can at least have loaded, each once."""
        return tuple(dict.fromkeys((*self.pins, *self.preloads)))

    def loads_on(self) -> dict[str, tuple[str, ...]]:
        """The pods of each adapter that is pinned or preloaded."""
        return _pods(self.loaded)


def wanted(setup: Setup, advice: Sequence[Advice]) -> Wanted:
    """
    The state that the advised changes lead to. Of two that change slots or pods the first counts: they are other ways to one end.

    Where the slots are known no pod gets more pins than slots − 1: with every slot pinned an engine can load nothing more.
    """
    advised = [one for one in advice if one.verdict is Verdict.ADVISED]
    more, pods = _first(advised, Kind.SLOTS), _first(advised, Kind.PODS)
    slots = setup.slots + more if setup.slots is not None and setup.most_slots is None and more else None
    pins, left_out = _with_room(_places(advised, Kind.PINS), slots or setup.slots)
    cpu = None if slots is None else max(slots, setup.cpu_capacity or 0)
    return Wanted(
        slots,
        more,
        cpu,
        pods,
        pins,
        _places(advised, Kind.PRELOAD),
        tuple(one for one in _places(advised, Kind.UNPIN) if one not in pins),
        tuple(sorted({name for one in advised if one.kind is Kind.RETIRE for name in one.adapters})),
        tuple(dict.fromkeys(one.kind for one in advised)),
        left_out,
        None if setup.slots is None or setup.most_slots is None else (setup.slots, setup.most_slots),
    )


def sentences(want: Wanted, cannot: Mapping[Kind, str], *, engine: str) -> list[str]:
    """What is advised and not told: ``cannot`` says it by kind; kinds that no engine is told have a sentence of their own."""
    told = [cannot[kind] for kind in want.kinds if kind in cannot]
    told += [_ELSEWHERE[kind] for kind in want.kinds if kind in _ELSEWHERE and kind not in cannot]
    if want.more_slots and want.uneven is not None:
        fewest, most = want.uneven
        told.append(f"pods have {fewest} to {most} slots: add {want.more_slots} to what each was started with")
    elif want.more_slots and want.slots is None:
        told.append(f"how many slots pods have now is not known: add {want.more_slots} to what {engine} was started with")
    if want.left_out:
        told.append(f"{want.left_out} pins are left out: one slot of each pod stays free, or nothing else could be loaded")
    if len({Kind.SLOTS, Kind.PINS, Kind.PODS, Kind.ROUTING} & set(want.kinds)) > 1:
        told.append("each change was judged by itself: make one, let a week pass, and ask again before the next")
    if not want.kinds:
        told.append("nothing is advised, so there is nothing to change")
    return told


_ELSEWHERE: Mapping[Kind, str] = {
    Kind.PODS: "more pods: the replicas of the deployment, which the autoscaler or its owner sets",
    Kind.ROUTING: "routing is the router's to change, not the engine's: see the target llm_d",
    Kind.MERGE: "adapters that are used as one: whoever trains them can merge them; no setting does",
    Kind.CAP: "holding experiments to a few adapters or pods: the team that starts them; no setting of the engine does",
    Kind.GROUPS: "adapters that follow each other: sessions kept on one pod by the router; the engine has no word in it",
    Kind.SPLIT: "a split of the fleet: two deployments, each with its own adapters, and a route to each",
}


def _first(advised: Iterable[Advice], kind: Kind) -> int:
    return next((one.amount or 0 for one in advised if one.kind is kind), 0)


def _places(advised: Iterable[Advice], kind: Kind) -> tuple[Place, ...]:
    found = dict.fromkeys(place for one in advised if one.kind is kind for place in one.places)
    return tuple(sorted(found, key=lambda place: (place.pod, place.adapter, place.hours)))


def _with_room(pins: tuple[Place, ...], slots: int | None) -> tuple[tuple[Place, ...], int]:
    if slots is None:
        return pins, 0
    kept: list[Place] = []
    taken: dict[str, int] = {}
    for place in pins:
        if taken.get(place.pod, 0) < slots - 1:
            taken[place.pod] = taken.get(place.pod, 0) + 1
            kept.append(place)
    return tuple(kept), len(pins) - len(kept)


def _pods(places: Iterable[Place]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for place in places:
        found.setdefault(place.adapter, {})[place.pod] = None
    return {adapter: tuple(pods) for adapter, pods in sorted(found.items())}
