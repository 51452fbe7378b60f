"""``momostream compile``: compile the kernels before they are needed."""

from __future__ import annotations

from momostream.cli.command import command
from momostream.cli.messages import explain_compiling

__all__ = ["compile_kernels"]


@command
def compile_kernels() -> None:
    """Compile everything that has no machine code yet, so that the next start is quick.

    Other commands do so when they need it. Code is written beside the package or, where that is not allowed, into
    $XDG_CACHE_HOME/momostream; $NUMBA_CACHE_DIR names another folder.
    """
    with explain_compiling():
        from momostream.kernels._code import target, writable_folder
        from momostream.kernels._workers import can_start, every_kernel, run_workers

        if not can_start():
            raise ValueError("no folder for machine code can be written: set NUMBA_CACHE_DIR to one that can")
        n_compiled = run_workers(every_kernel())
    print(f"functions compiled for {target()[0]}: {n_compiled}, in {writable_folder()}")
