"""Turns a loop over integer arrays into machine code, or leaves it as it is."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(function: Kernel) -> Kernel:
    """
    ``function``, compiled by numba at its first call; with ``NUMBA_DISABLE_JIT=1`` in the environment, ``function`` itself.
    Compiled, it holds up no other thread.

    Machine code is kept beside the module (or in ``NUMBA_CACHE_DIR``), so that only the first process pays for it; what is
    older than any module in the kernel's folder is forgotten, since a ``part`` may have changed there. Where no folder can be
    written to, as in a read-only container without a home, every process compiles anew.
    """
    try:
        kernel = njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return cast("Kernel", njit(nogil=True)(function))
    if kernel is not function and (kept := kernel.stats.cache_path):
        forget_older_code(Path(function.__code__.co_filename), Path(kept), function.__qualname__)
    return cast("Kernel", kernel)


def forget_older_code(module: Path, kept: Path, name: str) -> None:
    """Remove a kernel's index of kept code if a module of its folder is newer; numba looks at the kernel's own only."""
    changed = max((source.stat().st_mtime for source in module.parent.glob("*.py")), default=0.0)
    for index in kept.glob(f"{module.stem}.{name}-*.nbi"):
        with suppress(OSError):  # another process was first, or the folder is read-only and nothing in it ever changes
            if index.stat().st_mtime < changed:
                index.unlink()


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
