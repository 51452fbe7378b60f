"""Kernels compiled by several processes at once.

    python -m momostream.kernels._workers BOARD MODULE...

A worker imports the modules without compiling their kernels, then compiles one kernel after another that no other
worker has claimed and whose callees are done. Claims and finished kernels are files on the *board*, a folder of this
one run.
"""

from __future__ import annotations

import logging
import os
import pkgutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from momostream.kernels import _code

__all__ = ["FORECASTS", "Task", "compile_with", "deferred", "every_kernel", "is_worker", "on_wait"]

_log = logging.getLogger("momostream")

# Rooms that only forecasters need; the others are compiled together.
FORECASTS = frozenset({"momostream.kernels.forecasts", "momostream.kernels.horizon"})
# Kernels that are not part of the model.
ELSEWHERE = ("momostream.datasets",)
MOST_WORKERS = 8
POLL_SECONDS = 0.02
# CPU time of a kernel and of the start of a worker, for the message before a long wait (benchmarks/start.py).
SECONDS_A_KERNEL, SECONDS_A_WORKER = 0.25, 0.8

# Says how long a wait is going to be; the command line has its own way.
on_wait: list[Callable[[str], None]] = []


@dataclass(eq=False)
class Task:
    """A kernel that a worker has not compiled yet."""

    dispatcher: Any
    signatures: list[Any]
    is_loaded: bool = field(default=False, init=False)

    def callees(self, tasks: dict[Any, Task]) -> list[Task]:
        """The kernels that this one calls."""
        outside = _code.referenced(self.dispatcher.py_func).values()
        return [
            tasks[function] for function in (getattr(value, "py_func", None) for value in outside) if function in tasks
        ]

    def load(self, tasks: dict[Any, Task]) -> None:
        """Compile the kernel or load its code, after its callees."""
        if self.is_loaded:
            return
        self.is_loaded = True
        for callee in self.callees(tasks):
            callee.load(tasks)
        for signature in self.signatures:
            self.dispatcher.compile(signature)
        # Callers must not compile it for other types.
        self.dispatcher.disable_compile()


# Kernels that the modules of a worker have defined, in their order.
deferred: list[Task] = []
_board: Path | None = None
# Groups of modules that this process has tried to compile.
_tried: set[tuple[str, ...]] = set()


def is_worker() -> bool:
    """Whether kernels are to be deferred."""
    return _board is not None


# ---------------------------------------------------------------------- the process that waits


def compile_with(module: str, is_done: Callable[[], bool]) -> None:
    """Have the kernels of a module and of its group compiled; where that is impossible, nothing happens.

    Parameters
    ----------
    module
        Name of a module whose kernel has no machine code.
    is_done
        Whether another process has compiled it in the meantime.
    """
    group = _group(module)
    if group in _tried or not can_start():
        return
    _tried.add(group)
    with _only_process() as has_waited:
        if has_waited and is_done():
            return
        try:
            run_workers(group)
        except RuntimeError as error:
            # This process compiles then, where an error shows its place.
            _log.warning("%s", error)


def every_kernel() -> tuple[str, ...]:
    """Names of all modules with kernels."""
    return (*_rooms(), *ELSEWHERE)


def can_start() -> bool:
    """Whether worker processes can be started and their code be kept."""
    # Inside another program, such as a web server, the executable is not Python.
    is_python = Path(sys.executable or "").stem.lower().startswith("python") and not getattr(sys, "frozen", False)
    return is_python and _code.writable_folder() is not None


def run_workers(modules: tuple[str, ...]) -> int:
    """Compile the kernels of modules that have no machine code, on all cores.

    Returns
    -------
    int
        How many were compiled.

    Raises
    ------
    RuntimeError
        If a worker has failed.
    """
    n_workers = min(_n_cores(), MOST_WORKERS)
    with TemporaryDirectory(prefix="momostream-") as name:
        board = Path(name)
        command = [sys.executable, "-m", __name__, name, *modules]
        with (board / "errors").open("wb") as errors:
            workers = [
                subprocess.Popen(
                    command, env=_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
                )
                for _ in range(n_workers)
            ]
            try:
                codes = list(_watch(workers, board))
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait()
        if any(codes):
            said = (board / "errors").read_text(errors="replace").strip().splitlines()
            raise RuntimeError(f"a process that compiled kernels has failed: {said[-1] if said else codes}")
        return len(list(board.glob("*.done")))


def _watch(workers: list[subprocess.Popen[bytes]], board: Path) -> Iterator[int]:
    """Wait for the workers until all have ended or one has failed; say once how long it is going to take."""
    waiting, has_said = list(workers), False
    while waiting:
        time.sleep(POLL_SECONDS)
        if not has_said and (board / "total").exists():
            has_said = True
            n_kernels = int((board / "total").read_text())
            if n_kernels:
                _say(n_kernels, len(workers))
        for worker in list(waiting):
            code = worker.poll()
            if code is not None:
                waiting.remove(worker)
                yield code
                if code:
                    return


def _say(n_kernels: int, n_workers: int) -> None:
    seconds = n_kernels * SECONDS_A_KERNEL + n_workers * SECONDS_A_WORKER
    cores = "1 core" if n_workers == 1 else f"{n_workers} cores"
    functions = "1 function" if n_kernels == 1 else f"{n_kernels} functions"
    message = f"compiling {functions}, about {seconds:.0f} s of CPU on {cores}, once"
    if on_wait:
        on_wait[-1](message)
    else:
        _log.warning("momostream: %s", message)


def _environment() -> dict[str, str]:
    """Environment of a worker: this package, and the processor to compile for."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    name, features = _code.target()
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "NUMBA_CPU_NAME": name,
        "NUMBA_CPU_FEATURES": features,
        # Colours are looked up for each error of numba's own trials, of which there are thousands.
        "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1",
    }


def _group(module: str) -> tuple[str, ...]:
    """Modules that are compiled together with one."""
    rooms = _rooms()
    if module in FORECASTS:
        return tuple(room for room in rooms if room in FORECASTS)
    if module in rooms:
        return tuple(room for room in rooms if room not in FORECASTS)
    return (module,)


def _rooms() -> list[str]:
    package = __name__.rpartition(".")[0]
    names = [info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)])]
    return [f"{package}.{name}" for name in names if not name.startswith("_")]


def _n_cores() -> int:
    # As many as this process may use; not all systems say so.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _only_process() -> Iterator[bool]:
    """Let one process compile at a time, where the system has locks; says whether this one had to wait for another."""
    folder = _code.writable_folder()
    try:
        import fcntl
    except ImportError:  # pragma: no cover
        yield False
        return
    assert folder is not None
    with (folder / "lock").open("w") as file:
        has_waited = False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            has_waited = True
            fcntl.flock(file, fcntl.LOCK_EX)
        yield has_waited


# ---------------------------------------------------------------------- a worker


def work(board: Path, modules: list[str]) -> None:
    """Compile kernels of the modules that no other worker has claimed, until all are done."""
    global _board
    import gc

    # A worker is short, and what it allocates is nearly all needed.
    gc.disable()
    _board, parent = board, os.getppid()
    for module in modules:
        import_module(module)
    tasks = {task.dispatcher.py_func: task for task in deferred}
    waiting = [(f"{number}", task) for number, task in enumerate(deferred) if not task.dispatcher._cache.is_complete()]
    _put(board / "total", str(len(waiting)))
    done = set(deferred) - {task for _, task in waiting}
    while waiting:
        for name, task in waiting:
            if all(callee in done for callee in task.callees(tasks)) and _claim(board / f"{name}.claim"):
                task.load(tasks)
                _put(board / f"{name}.done", "")
                break
        else:
            time.sleep(POLL_SECONDS)
            if os.getppid() != parent:
                sys.exit("the process that wanted the kernels has ended")
        finished = {task for name, task in waiting if (board / f"{name}.done").exists()}
        done |= finished
        waiting = [(name, task) for name, task in waiting if task not in finished]


def code_files(modules: Iterable[str]) -> list[Path]:
    """The files with the machine code of all kernels of modules, for the target; this process must not use kernels."""
    global _board
    _board = Path(os.devnull)
    for module in modules:
        import_module(module)
    return [path for task in deferred for path in task.dispatcher._cache.paths()]


def _claim(path: Path) -> bool:
    """Whether this worker is the first to ask."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _put(path: Path, text: str) -> None:
    """Write a file that others never see half written."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(text)
    os.replace(unfinished, path)


if __name__ == "__main__":
    # Not in this copy of the module, which is called __main__, but in that which the decorator imports.
    from momostream.kernels import _workers

    _workers.work(Path(sys.argv[1]), sys.argv[2:])
