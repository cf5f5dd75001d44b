"""Turns a loop over integer arrays into machine code, or leaves it as it is."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

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
    """``function``, compiled into the kernels that call it: without an entry for Python, which takes longer to compile than the loop."""
    return cast("Kernel", njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(function))
