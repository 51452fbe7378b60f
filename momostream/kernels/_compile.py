"""The decorator that compiles a kernel, and the types of its arguments.

Machine code is kept on disk (`momostream.kernels._code`). Where it is missing, processes beside this one compile it
(`momostream.kernels._workers`), and this one loads it; where there cannot be any, this process compiles for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit, types
from numba.core.cpu import CPUTargetOptions

from momostream.kernels._code import CodeFiles, has_internals, identity
from momostream.kernels._workers import Task, compile_with, deferred, is_worker

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
        The decorator.
    """
    options = {
        "nogil": True,
        "error_model": "numpy",
        # Not fastmath=True: it lets the compiler assume that there are no NaNs, and np.isnan then answers False.
        "fastmath": {"reassoc", "contract", "nsz"} if reassociate else {"contract"},
        **_LEAN,
    }
    signatures = signature if isinstance(signature, list) else [signature]

    def compile_function(function: Any) -> Callable[..., Any]:
        dispatcher = njit(**options)(function)
        # The function itself with NUMBA_DISABLE_JIT=1.
        if dispatcher is function:
            return dispatcher
        if has_internals and hasattr(dispatcher, "_cache"):
            _known[function] = identity(function, signatures, options, _known)
            files = dispatcher._cache = CodeFiles(function, _known[function], signatures)
            if is_worker():
                deferred.append(Task(dispatcher, signatures))
                return dispatcher
            if not files.is_complete():
                compile_with(function.__module__, files.is_complete)
        for each in signatures:
            dispatcher.compile(each)
        dispatcher.disable_compile()
        return dispatcher

    return compile_function


# A kernel allocates nothing and is called from Python and from kernels only: it need not count references to arrays,
# nor have an entry for C. Compiling then takes a quarter less time, and a row a tenth. Left out if numba drops them.
_LEAN = {
    name: value for name, value in (("_nrt", False), ("no_cfunc_wrapper", True)) if hasattr(CPUTargetOptions, name)
}

# Hashes of the kernels by their Python functions.
_known: dict[Any, str] = {}
