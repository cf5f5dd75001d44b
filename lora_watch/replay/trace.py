"""What is replayed: requests as integer arrays, checked once at the door."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

LONGEST = 1 << 59
"""µs, 18,000 years: no time, hold or load may be larger, so that their sums fit 64 bits."""
BASE = -1
"""Adapter code of a request for the base model: it takes a seat in the batch and no slot."""


def _integers(name: str, values: ArrayLike, dtype: type[np.signedinteger]) -> NDArray[np.signedinteger]:
    """``values`` as a one-dimensional array of ``dtype``; ValueError where a value is no integer or does not fit."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} is one value a request, got an array of {array.ndim} dimensions")
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name} is integers, got {array.dtype}")
    if array.size and (int(array.min()) < np.iinfo(dtype).min or int(array.max()) > np.iinfo(dtype).max):
        raise ValueError(f"{name} does not fit {np.dtype(dtype).name}: {array.min()} … {array.max()}")
    ready = np.ascontiguousarray(array, dtype=dtype)
    return ready if ready.flags.writeable else ready.copy()  # kernels are compiled anew for read-only arrays


@dataclass(frozen=True, slots=True, init=False)
class Trace:
    """
    Requests in the order they arrive.

    ``adapter`` is a code 0 … ``adapters`` − 1 (``BASE`` for the base model), ``pod`` a code 0 … ``pods`` − 1 or None where a
    router is still to choose, ``at`` the arrival and ``hold`` the time from its load's end to the request's own end, in µs.
    ``hold`` of 0 (the default) is a use without a length: nothing is ever in flight. Without ``at`` every request comes one
    second after the one before. Raises ValueError where lengths differ, a code is out of range, a time decreases or a hold
    is negative.

    >>> len(Trace([0, 1, 0], adapters=2))
    3
    """

    adapter: NDArray[np.int32]
    adapters: int
    pod: NDArray[np.int32] | None
    pods: int
    at: NDArray[np.int64] = field(repr=False)
    hold: NDArray[np.int64] = field(repr=False)

    def __init__(
        self,
        adapter: ArrayLike,
        *,
        adapters: int | None = None,
        pod: ArrayLike | None = None,
        pods: int | None = None,
        at: ArrayLike | None = None,
        hold: ArrayLike | None = None,
    ) -> None:
        codes = _integers("adapter", adapter, np.int32)
        size = len(codes)
        known = int(codes.max(initial=-1)) + 1 if adapters is None else adapters
        if size and not BASE <= codes.min() <= codes.max() < known:
            raise ValueError(f"adapter codes are {BASE} … {known - 1}, got {codes.min()} … {codes.max()}")
        where = None if pod is None else _integers("pod", pod, np.int32)
        fleet = (1 if where is None else int(where.max(initial=0)) + 1) if pods is None else pods
        if fleet < 1 or (where is not None and len(where) and not 0 <= where.min() <= where.max() < fleet):
            raise ValueError(f"pod codes are 0 … {fleet - 1}" + ("" if where is None else f", got {where.min()} … {where.max()}"))
        times = np.arange(size, dtype=np.int64) * 1_000_000 if at is None else _integers("at", at, np.int64)
        holds = np.zeros(size, dtype=np.int64) if hold is None else _integers("hold", hold, np.int64)
        for name, array in (("pod", where), ("at", times), ("hold", holds)):
            if array is not None and len(array) != size:
                raise ValueError(f"{name} is one value a request: {size} requests, {len(array)} values")
        if size and (np.diff(times) < 0).any():
            raise ValueError(f"requests come in order: at falls behind request {int(np.argmax(np.diff(times) < 0))}")
        if size and not 0 <= holds.min() <= holds.max() <= LONGEST:
            raise ValueError(f"a hold is 0 … {LONGEST} µs, got {holds.min()} … {holds.max()}")
        if size and not -LONGEST <= times[0] <= times[-1] <= LONGEST:
            raise ValueError(f"a time is within {LONGEST} µs of the epoch, got {times[0]} … {times[-1]}")
        for name, value in (
            ("adapter", codes),
            ("adapters", known),
            ("pod", where),
            ("pods", fleet),
            ("at", times),
            ("hold", holds),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.adapter)

    def pods_or_one(self) -> NDArray[np.int32]:
        """The pod of each request; all on pod 0 where none is said."""
        return np.zeros(len(self), dtype=np.int32) if self.pod is None else self.pod
