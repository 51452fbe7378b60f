"""Shared by the benchmarks: scores, cost in a process of its own, kept results, tables with versions and machine."""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import ROOT

Array = NDArray[np.float64]

RESULTS = ROOT / "benchmarks" / "results"

# Densities below this count as 1 in the published code of the paper.
LENIENT = 1e-10

PACKAGES = ("numpy", "numba", "scipy", "scikit-learn", "river")


def scores(distribution: Any, Y: Array) -> dict[str, float]:
    """RMSE and MAE as in the paper, honest and lenient NLPD, coverage of the central 90 %.

    The lenient figure is that of the paper's published code: moment-matched Gaussian, densities below 1e-10 count 0.
    """
    error = Y - distribution.mean
    log_pdf = distribution.log_pdf(Y)
    cov = distribution.cov
    whitened = np.linalg.solve(np.linalg.cholesky(cov), error[:, :, None])[:, :, 0]
    gauss = -0.5 * (whitened**2).sum(axis=1) - 0.5 * np.linalg.slogdet(2.0 * np.pi * cov)[1]
    lower, upper = distribution.interval(0.9)
    return {
        "rmse": float(np.sqrt((error**2).mean(axis=0)).mean()),
        "mae": float(np.abs(error).mean()),
        "nlpd": float(-log_pdf.mean()),
        "lenient": float(-np.where(gauss < np.log(LENIENT), 0.0, gauss).mean()),
        "coverage": float(((lower <= Y) & (upper >= Y)).mean()),
    }


def cpu_seconds() -> float:
    """CPU time of this process and of its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak_gigabytes() -> float:
    """Largest resident memory of this process so far, plus that of its largest child."""
    kilobytes = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return kilobytes / 2**20


def from_kernel(path: str, name: str) -> int:
    """The number of this name in one of the kernel's files about this process."""
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise RuntimeError(f"{path} does not hold {name}")


def bytes_held(thing: Any) -> int:
    """Memory of an object and of all it refers to; code and classes not counted, arrays by their buffers.

    Examples
    --------
    >>> buffer = np.zeros(1000)
    >>> bytes_held([buffer[:500], buffer[500:]]) // 1000
    8
    """
    total, known, waiting = 0, set(), [thing]
    while waiting:
        found = waiting.pop()
        if id(found) in known or isinstance(found, type | ModuleType | FunctionType | BuiltinFunctionType):
            continue
        known.add(id(found))
        total += sys.getsizeof(found)
        waiting.extend(gc.get_referents(found))
        if isinstance(found, np.ndarray) and found.base is not None:
            waiting.append(found.base)
    return total


def options_unless_task(
    parser: argparse.ArgumentParser, measure: Callable[[dict[str, Any]], dict[str, Any]]
) -> argparse.Namespace:
    """Parse the command line; a process started by `in_own_process` measures its task, prints the answer and ends."""
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(json.dumps(measure(json.loads(options.task))))
        raise SystemExit
    return options


def one_thread() -> dict[str, str]:
    """The environment of a process that finds this package, has one BLAS thread and keeps bytecode, as by default."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT), **dict.fromkeys(names, "1")}


def in_own_process(module: str, task: dict[str, Any]) -> dict[str, Any]:
    """Run ``python -m module --task JSON`` with one BLAS thread and read the JSON it prints last.

    A process of its own has a peak memory of its own.
    """
    command = [sys.executable, "-m", module, "--task", json.dumps(task)]
    done = subprocess.run(command, env=one_thread(), stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def in_this_process(module: str, task: dict[str, Any]) -> dict[str, Any]:
    """The same without a process: for quick runs, most of whose time would be starts and whose figures are not kept."""
    answer: dict[str, Any] = json.loads(json.dumps(import_module(module).measure(task)))
    return answer


def carry_out(
    name: str,
    tasks: list[dict[str, Any]],
    words: Callable[[dict[str, Any]], str],
    report: Callable[[list[dict[str, Any]]], str],
    keep: bool,
) -> None:
    """Run the tasks of ``benchmarks.name`` and print the report.

    Where results are kept, each task has a process of its own. A run that fails is a result too; its failure is
    reported at the end.
    """
    path = RESULTS / f"{name}.jsonl"
    where = about()
    results = []
    measured = in_own_process if keep else in_this_process
    for number, task in enumerate(tasks, 1):
        print(f"{number}/{len(tasks)}: {words(task)}", file=sys.stderr, flush=True)
        try:
            found = measured(f"benchmarks.{name}", task)
        except subprocess.CalledProcessError:
            found = {**task, "failed": True}
        results.append({**found, **where})
        if keep:
            keep_result(path, results[-1])
    text = report(kept_results(path) if keep else results)
    print(text)
    if keep:
        write_results(name, text)
    failed = [f"{result['model']} on {result['feed']}" for result in results if "failed" in result]
    if failed:
        raise SystemExit("failed: " + ", ".join(failed))


def kept_results(path: Path) -> list[dict[str, Any]]:
    """Results that `keep_result` has written, oldest first."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def keep_result(path: Path, result: dict[str, Any]) -> None:
    """Append one result as a line of JSON."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")


def table(header: list[str], rows: list[list[str]]) -> str:
    """A markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def mean_and_deviation(values: list[float], digits: int) -> str:
    """``mean`` or, for several values, ``mean ± deviation``."""
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values):.{digits}f}"


def about() -> dict[str, Any]:
    """Origin of a kept result: date, revision, command, versions, machine."""
    return {
        "date": datetime.now().isoformat(timespec="seconds"),
        "revision": revision(),
        "options": sys.argv[1:],
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
        "machine": f"{_cpu_model()}, {os.cpu_count()} cores",
    }


def origin(name: str, results: list[dict[str, Any]]) -> str:
    r"""Origin of the figures of a report: one line, from the fields that `about` added to its results.

    Examples
    --------
    >>> one = {"date": "2024-03-01T12:00:00", "revision": "abc", "python": "3.11.7", "machine": "a machine"}
    >>> line = origin("stream", [one | {"versions": {"numpy": "2.4.6"}}, one | {"date": "2024-03-02T09:00:00"}])
    >>> print(line.replace("; ", ";\n"))
    Measured 2024-03-01 to 2024-03-02 by `python -m benchmarks.stream`, revision abc;
    Python 3.11.7, numpy 2.4.6;
    a machine, one BLAS thread.
    """

    def known(key: str) -> list[Any]:
        return list({json.dumps(result[key]): result[key] for result in results if key in result}.values())

    days = sorted(date[:10] for date in known("date"))
    when = " to ".join(dict.fromkeys([days[0], days[-1]])) if days else "on a day not recorded"
    commands = [" ".join([f"python -m benchmarks.{name}", *options]) for options in known("options")]
    asked = " and ".join(f"`{command}`" for command in commands or [f"python -m benchmarks.{name}"])
    packages: dict[str, list[str]] = {"Python": known("python")}
    for versions in known("versions"):
        for package, number in versions.items():
            packages.setdefault(package, []).append(number)
    stack = [f"{package} {' and '.join(dict.fromkeys(found))}" for package, found in packages.items() if found]
    parts = [
        f"Measured {when} by {asked}, revision {', '.join(known('revision')) or 'not recorded'}",
        ", ".join(stack) or "versions not recorded",
        f"{' and '.join(known('machine')) or 'machine not recorded'}, one BLAS thread.",
    ]
    return "; ".join(parts)


def revision() -> str:
    """The commit that is checked out, marked if the tree differs from it in more than results."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("diff", "--name-only", "HEAD", "--", ".", ":!benchmarks/results")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("-dirty" if changed else "")


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_results(name: str, text: str) -> None:
    """Keep a result as markdown."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text + "\n", encoding="utf-8")
