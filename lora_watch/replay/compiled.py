"""Turns a loop over integer arrays into machine code, or leaves it as it is."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(function: Kernel) -> Kernel:
    """
    ``function``, compiled by numba at its first call; with ``NUMBA_DISABLE_JIT=1`` in the environment, ``function`` itself.

    Machine code is kept beside the module (or in ``NUMBA_CACHE_DIR``), so that only the first process pays for it. Where no
    folder can be written to, as in a read-only container without a home, every process compiles anew. numba looks at the
    age of the kernel's own file only: after an edit to a ``part`` in another file, delete the ``*.nbi`` files.
    """
    try:
        return cast("Kernel", njit(cache=True)(function))
    except RuntimeError:
        return cast("Kernel", njit(function))


def part(function: Kernel) -> Kernel:
    """
    ``function`` as a piece of the kernels that call it.

    It gets no entry for Python, which takes longer to compile than a loop: call a ``part`` from kernels only, since a call
    from Python would end the process. It counts no references to the arrays it is handed, which its caller holds anyway
    (counting took four fifths of a replay's time), so it must not make any.
    """
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
    return cast("Kernel", njit(**options)(function))


@part
def whole(value: int) -> int:
    """``value`` in 64 bits, so that parts are compiled for one type and not for each width and literal they are called with."""
    return np.int64(value)  # type: ignore[return-value]  # an int to the kernels, whose integers have 64 bits
