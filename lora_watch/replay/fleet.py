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

    ``pool_bytes`` instead of slots, with ``sizes`` (bytes) for each adapter, make pools that hold as many adapters as fit, as
    S-LoRA's do. Pins count with their bytes, ``cpu_capacity`` is in bytes then, and where anything counts slots, bytes stand for
    them. With equal sizes such a pool is one of ``pool_bytes ÷ size`` slots.

    ``name_hashes``, one for each adapter, make the pods work in steps as vLLM does, which touches the adapters of a batch in the
    order of a Python set of their names: ``hash(name)`` in the engine's process, or any numbers of 64 bits where its
    ``PYTHONHASHSEED`` is not known; LRU only. Without them the order is that of the requests, and no adapter in flight ever
    leaves its slot.

    ValueError where a pod has no slot, a CPU cache smaller than its slots, no seat, or no slot without a pin; and for an adapter
    that is larger than what its pool has beside the other pins.
    """

    slots: int | Sequence[int] | None = None
    cpu_capacity: int | Sequence[int] | None = None
    seats: int | Sequence[int] = 256
    policy: Policy = LRU
    pins: Collection[tuple[int, int]] = ()
    warm_load: int = 0
    cold_load: int = 0
    name_hashes: Sequence[int] | None = None
    pool_bytes: int | Sequence[int] | None = None
    sizes: Sequence[int] | None = None

    def pods(self, pods: int, adapters: int) -> Pods:
        """The pods before the start."""
        seats = _each("seats", self.seats, pods, _MOST)
        if not 0 <= self.warm_load <= self.cold_load <= LONGEST:
            raise ValueError(f"a cold load takes as long as a warm one or longer: {self.warm_load}, {self.cold_load} µs")
        pinned = np.zeros((pods, adapters + 1), dtype=np.bool_)
        for p, a in self.pins:
            if not (0 <= p < pods and 0 <= a < adapters):
                raise ValueError(f"a pin is (pod, adapter) below ({pods}, {adapters}), got ({p}, {a})")
            pinned[p, a] = True
        if self.pool_bytes is not None:
            return self._pools(self.pool_bytes, seats, pinned)
        if self.slots is None or self.sizes is not None:
            raise ValueError("a fleet has slots, or pool_bytes and sizes")
        slots = _each("slots", self.slots, pods, _MOST)
        cpu = slots.copy() if self.cpu_capacity is None else _each("cpu_capacity", self.cpu_capacity, pods, _MOST)
        if (cpu < slots).any():
            raise ValueError(f"what is in a slot is in the CPU cache: {cpu.tolist()} places cannot hold {slots.tolist()} slots")
        if (pinned.sum(axis=1) >= slots).any():
            raise ValueError("a pod needs at least one slot without a pin, so that a miss can load")
        if self.name_hashes is not None:
            hashes = np.array(self.name_hashes)
            if hashes.shape != (adapters,) or (adapters and hashes.dtype.kind != "i"):
                raise ValueError(f"name_hashes is an integer of 64 bits for each of {adapters} adapters, got {self.name_hashes}")
        return empty_pods(slots, cpu, seats, pinned)

    def _pools(self, room: int | Sequence[int], seats: NDArray[np.int64], pinned: NDArray[np.bool_]) -> Pods:
        """
        Pods whose slots are bytes, counted in the greatest common divisor of all sizes: nobody can use what is less, and where
        sizes are equal the pods are those of slots.
        """
        pods, adapters = len(seats), pinned.shape[1] - 1
        pool = _each("pool_bytes", room, pods, LARGEST)
        cpu = pool.copy() if self.cpu_capacity is None else _each("cpu_capacity", self.cpu_capacity, pods, LARGEST)
        size = np.asarray(() if self.sizes is None else self.sizes)
        if self.slots is not None or size.shape != (adapters,) or (adapters and size.dtype.kind not in "iu"):
            raise ValueError(f"a pool of bytes has no slots, and sizes in whole bytes for each of {adapters} adapters")
        if (cpu < pool).any():
            raise ValueError(f"what is in a pool is in the CPU cache: {cpu.tolist()} bytes cannot hold {pool.tolist()}")
        if adapters and size.min() < 1:
            raise ValueError(f"adapter {size.argmin()} has {size.min()} bytes: a size is at least 1")
        if adapters and size.max() > pool.min():
            raise ValueError(f"adapter {size.argmax()} has {size.max()} bytes: it never fits a pool of {pool.min()}")
        size = size.astype(np.int64)
        free = pool - (pinned[:, :-1] * size).sum(axis=1)
        never = ~pinned[:, :-1] & (size > free[:, None])
        if (free < 0).any() or never.any():
            p = int(((free < 0) | never.any(axis=1)).argmax())
            largest = int((size * ~pinned[p, :-1]).argmax())
            raise ValueError(f"pins leave {free[p]} of {pool[p]} bytes on pod {p}: adapter {largest} has {size[largest]}")
        with_base = np.append(size, size.min() if adapters else 1)
        unit = np.gcd.reduce(with_base)
        return empty_pods(pool // unit, cpu // unit, seats, pinned, with_base // unit)


LARGEST = 1 << 42
"""Bytes of a pool or a CPU cache at most (4 TiB), so that sums over half a million adapters fit 64 bits."""
_MOST = (1 << 31) - 1


def _each(name: str, value: int | Sequence[int], pods: int, most: int) -> NDArray[np.int64]:
    """One number for each pod, from 1 to ``most``."""
    array: NDArray[np.int64] = np.full(pods, value) if isinstance(value, int) else np.array(value)
    if array.shape != (pods,) or array.dtype.kind != "i" or not 1 <= array.min() <= array.max() <= most:
        raise ValueError(f"{name} is one number from 1 for all of {pods} pods or one for each, got {value}")
    return np.asarray(array, dtype=np.int64)
