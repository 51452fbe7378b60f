"""The decorator that compiles a kernel, and the types of its arguments.

numba keys its cache on disk by the file of the *calling* function only: after an edit of a callee in another file the
caller would keep running the old machine code. So every entry is stamped with a hash over all files of this package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit, types

__all__ = ["both", "f8", "i8", "kernel", "ro", "rw", "void", "whole"]

i8 = types.int64
f8 = types.float64
void = types.void

# Whole numbers that a kernel only reads.
whole = types.Array(i8, 1, "C", readonly=True)


def ro(ndim: int, number: Any = f8) -> Any:
    """Type of an array that the kernel only reads; accepts read-only memory."""
    return types.Array(number, ndim, "C", readonly=True)


def rw(ndim: int, number: Any = f8) -> Any:
    """Type of an array that the kernel writes."""
    return types.Array(number, ndim, "C")


def both(signature: Callable[[Any], Any]) -> list[Any]:
    """Signatures for factors of double and of single precision, from a function of the type of their numbers."""
    return [signature(f8), signature(types.float32)]


def kernel(signature: Any, reassociate: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for one signature, with the flags that all kernels share.

    Parameters
    ----------
    signature : numba signature or list of them
        Result type called with the argument types, arrays given by `ro` and `rw`.
    reassociate : bool
        Whether sums may be regrouped; false where a result depends on the order of two roundings.

    Returns
    -------
    callable
        The decorator. Machine code is cached on disk where a directory for it can be written.
    """
    # Not fastmath=True: it lets the compiler assume that there are no NaNs, and np.isnan then answers False.
    fastmath = {"reassoc", "contract", "nsz"} if reassociate else {"contract"}
    signatures = signature if isinstance(signature, list) else [signature]

    def compile_function(function: Callable[..., Any]) -> Callable[..., Any]:
        def compiled(cached: bool) -> Callable[..., Any]:
            dispatcher = njit(nogil=True, error_model="numpy", fastmath=fastmath)(function)
            # The function itself with NUMBA_DISABLE_JIT=1.
            if dispatcher is not function:
                if cached:
                    _use_cache(dispatcher)
                for each in signatures:
                    dispatcher.compile(each)
                dispatcher.disable_compile()
            return dispatcher

        try:
            return compiled(cached=True)
        except (RuntimeError, OSError):
            # No cache directory can be written (a read-only installation, a full disk): compile in each process.
            return compiled(cached=False)

    return compile_function


def _use_cache(dispatcher: Any) -> None:
    """Keep machine code on disk, for as long as no kernel file changes."""
    dispatcher.enable_caching()
    file = getattr(dispatcher._cache, "_cache_file", None)
    if not hasattr(file, "_source_stamp"):
        # It is private to numba and may go. An entry without our stamp could be stale: rather compile each time.
        raise RuntimeError("this version of numba keeps its cache in another way")
    file._source_stamp = (file._source_stamp, _stamp())


@cache
def _stamp() -> str:
    """Hash over the files of all kernels."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
