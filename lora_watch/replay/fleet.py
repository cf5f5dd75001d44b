"""The pods a trace is replayed on."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lora_watch.replay.policies import LRU, Policy
from lora_watch.replay.state import Pods, empty_pods
from lora_watch.replay.trace import LONGEST


@dataclass(frozen=True, slots=True)
class Fleet:
    """
    The pods a trace is replayed on. One number for all pods, or one for each.

    ``slots`` is vLLM's ``max_loras``; ``cpu_capacity`` its ``max_cpu_loras``, by default as many as slots: then there is no
    warm tier. ``seats`` is ``max_num_seqs``, the requests that run at once. ``pins`` are (pod, adapter) codes: loaded at the
    start and after every restart, never evicted. ``warm_load`` and ``cold_load`` are the µs that a load takes, during which
    its requests hold the slot.

    ``name_hashes``, one for each adapter, make the pods work in steps as vLLM does, which touches the adapters of a batch in the
    order of a Python set of their names: ``hash(name)`` in the engine's process, or any numbers of 64 bits where its
    ``PYTHONHASHSEED`` is not known; LRU only. Without them the order is that of the requests, and no adapter in flight ever
    leaves its slot.

    ValueError where a pod has no slot, a CPU cache smaller than its slots, no seat, or no slot without a pin.
    """

    slots: int | Sequence[int]
    cpu_capacity: int | Sequence[int] | None = None
    seats: int | Sequence[int] = 256
    policy: Policy = LRU
    pins: Collection[tuple[int, int]] = ()
    warm_load: int = 0
    cold_load: int = 0
    name_hashes: Sequence[int] | None = None

    def pods(self, pods: int, adapters: int) -> Pods:
        """The pods before the start."""
        slots, seats = _each("slots", self.slots, pods), _each("seats", self.seats, pods)
        cpu = slots.copy() if self.cpu_capacity is None else _each("cpu_capacity", self.cpu_capacity, pods)
        if (cpu < slots).any():
            raise ValueError(f"what is in a slot is in the CPU cache: {cpu.tolist()} places cannot hold {slots.tolist()} slots")
        if not 0 <= self.warm_load <= self.cold_load <= LONGEST:
            raise ValueError(f"a cold load takes as long as a warm one or longer: {self.warm_load}, {self.cold_load} µs")
        pinned = np.zeros((pods, adapters + 1), dtype=np.bool_)
        for p, a in self.pins:
            if not (0 <= p < pods and 0 <= a < adapters):
                raise ValueError(f"a pin is (pod, adapter) below ({pods}, {adapters}), got ({p}, {a})")
            pinned[p, a] = True
        if (pinned.sum(axis=1) >= slots).any():
            raise ValueError("a pod needs at least one slot without a pin, so that a miss can load")
        if self.name_hashes is not None:
            hashes = np.array(self.name_hashes)
            if hashes.shape != (adapters,) or (adapters and hashes.dtype.kind != "i"):
                raise ValueError(f"name_hashes is an integer of 64 bits for each of {adapters} adapters, got {self.name_hashes}")
        return empty_pods(slots, cpu, seats, pinned)


def _each(name: str, value: int | Sequence[int], pods: int) -> NDArray[np.int64]:
    """One number for each pod, all at least 1."""
    array: NDArray[np.int64] = np.full(pods, value) if isinstance(value, int) else np.array(value)
    if array.shape != (pods,) or array.dtype.kind != "i" or not 1 <= array.min() <= array.max() < 1 << 31:
        raise ValueError(f"{name} is one number from 1 for all of {pods} pods or one for each, got {value}")
    return np.asarray(array, dtype=np.int64)
