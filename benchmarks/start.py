"""The first minutes: CPU seconds until an answer, with and without machine code, on the command line and in Python.

    python -m benchmarks.start [--clone] [--quick]

Each job runs in processes of its own, from copies of the package: *compiling* has no machine code yet, *wheel* has
that of a wheel but no bytecode, *warm* has been used before. CPU time includes that of worker processes. A busy machine
takes more of it, two or three times as much beside ten other processes, so the time of ``import numba`` in the same run
is shown as a yardstick. ``--clone`` also runs ``./run demo`` in a fresh clone of the last commit, environment included.
A full run takes about 5 minutes; ``--quick`` measures two jobs once and keeps nothing.
"""

from __future__ import annotations

import argparse
import math
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.data import ROOT
from benchmarks.harness import RESULTS, about, keep_result, kept_results, one_thread, origin, table, write_results

KEPT = RESULTS / "start.jsonl"
REPEATS = 3
REGRESSOR = """
from momostream import MOMoGPRegressor
model = MOMoGPRegressor(seed=0)
model.learn_one({"a": 1.0, "b": 2.0}, {"c": 3.0})
model.predict_one({"a": 1.0, "b": 2.0})
"""
FORECASTER = """
from momostream import MOMoGPForecaster
model = MOMoGPForecaster(horizon=6, seed=0)
model.learn_one({"a": 1.0, "b": 2.0})
model.forecast(6)
"""
COMMAND = ["-m", "momostream"]
# What is asked, its words, and the most CPU seconds it may take in the states in which that was promised.
JOBS: dict[str, tuple[list[str], dict[str, float]]] = {
    "import momostream": (["-c", "import momostream"], {}),
    "momostream --help": ([*COMMAND, "--help"], {"warm": 0.3}),
    "first prediction of a regressor": (["-c", REGRESSOR], {"compiling": 25.0, "wheel": 6.0, "warm": 1.2}),
    "first forecast": (["-c", FORECASTER], {"compiling": 25.0, "wheel": 6.0, "warm": 2.0}),
    "momostream read feed.db": ([*COMMAND, "read", "feed.db"], {"warm": 2.0}),
    "momostream inspect model.momo": ([*COMMAND, "inspect", "model.momo"], {"warm": 2.0}),
    "momostream forecast model.momo": ([*COMMAND, "forecast", "model.momo"], {"warm": 2.0}),
    "momostream demo": ([*COMMAND, "demo", "--folder", "report"], {"compiling": 90.0}),
}
STATES = ("compiling", "wheel", "warm")
# Jobs that are measured once, because they take long.
ONCE = {"momostream demo"}
QUICK = ("import momostream", "momostream --help")


def cpu(command: Sequence[str | Path], folder: Path, package: Path) -> float:
    """CPU seconds of a command and of all processes it waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    variables = {name: value for name, value in one_thread().items() if name != "NUMBA_CACHE_DIR"}
    variables |= {"PYTHONPATH": str(package), "XDG_CACHE_HOME": str(folder / "cache"), "MPLBACKEND": "Agg"}
    subprocess.run(command, cwd=folder, env=variables, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def copy_package(root: Path, state: str) -> Path:
    """A copy of the package in a state; warm is what the caller makes of it."""
    left = ["__pycache__"] if state == "wheel" else ["__pycache__", "_machine_code"]
    shutil.copytree(ROOT / "momostream", root / "momostream", ignore=shutil.ignore_patterns(*left))
    return root


def write_feed(path: Path) -> None:
    """Three days of a wind turbine, every ten minutes."""
    lines = ["time,wind,power"]
    for t in range(432):
        wind = 8.0 - 2.0 * math.cos(2.0 * math.pi * t / 144) + 0.3 * math.sin(1.7 * t)
        lines.append(f"2024-03-{1 + t // 144:02d} {t // 6 % 24:02d}:{10 * (t % 6):02d},{wind:.4f},{wind**3:.3f}")
    path.write_text("\n".join(lines) + "\n")


def prepare(folder: Path) -> None:
    """The feed, a model of it and a store; as a side effect, everything is compiled."""
    write_feed(folder / "feed.csv")
    options = ["-t", "power", "-t", "wind", "--horizon", "6", "-q"]
    cpu([sys.executable, *COMMAND, "fit", "feed.csv", *options, "--save", "model.momo"], folder, ROOT)
    cpu([sys.executable, *COMMAND, "run", "feed.csv", *options, "--store", "feed.db"], folder, ROOT)
    cpu([sys.executable, *COMMAND, "compile"], folder, ROOT)


def measure(job: str, folder: Path, repeats: int) -> dict[str, float]:
    """CPU seconds of a job in each state."""
    words, _ = JOBS[job]
    found = {}
    for state in ("compiling", "wheel"):
        times = []
        # Compiling is long enough to be measured once.
        for _ in range(1 if state == "compiling" else repeats):
            with tempfile.TemporaryDirectory() as place:
                package = copy_package(Path(place), state)
                times.append(cpu([sys.executable, *words], folder, package))
                if state == "wheel" and len(times) == repeats:
                    found["warm"] = median(cpu([sys.executable, *words], folder, package) for _ in range(repeats))
        found[state] = median(times)
    return found


def demo_of_a_clone() -> float:
    """CPU seconds of ``./run demo`` in a fresh clone of the last commit."""
    with tempfile.TemporaryDirectory() as place:
        clone = Path(place) / "clone"
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        return cpu([clone / "run", "demo"], clone, clone)


def report(results: list[dict[str, Any]]) -> str:
    """The newest answers as a table."""
    newest = {result["job"]: result for result in results}
    shown = [newest[job] for job in [*JOBS, "./run demo in a fresh clone"] if job in newest]
    lines, verdicts = [], []
    for result in shown:
        most = JOBS[result["job"]][1] if result["job"] in JOBS else {"compiling": 90.0}
        cells = [f"{result['seconds'][state]:.2f}" if state in result["seconds"] else "" for state in STATES]
        lines.append([result["job"], *cells, f"{result['yardstick']:.2f}"])
        for state, limit in most.items():
            took = result["seconds"][state]
            verdict = "PASS" if took <= limit else "MISS"
            verdicts.append(f"* {result['job']}, {state}: {took:.2f} s, at most {limit:g}: {verdict}")
    parts = ["# The first minutes", origin("start", shown), docstring()]
    return "\n\n".join([*parts, table(["CPU seconds", *STATES, "import numba"], lines), "\n".join(verdicts)])


def docstring() -> str:
    """What the states mean, as the docstring says it."""
    return " ".join((__doc__ or "").split("\n\n")[2].split("``--clone``")[0].split())


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description="CPU seconds until the first answer.")
    parser.add_argument("--clone", action="store_true", help="also ./run demo in a fresh clone; needs the network")
    parser.add_argument("--quick", action="store_true", help="two jobs, once, nothing kept")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if not options.quick:
            prepare(folder)
        for job in QUICK if options.quick else JOBS:
            repeats = 1 if options.quick or job in ONCE else REPEATS
            yardstick = median(cpu([sys.executable, "-c", "import numba"], folder, ROOT) for _ in range(repeats))
            results.append({"job": job, "seconds": measure(job, folder, repeats), "yardstick": yardstick} | about())
        if options.clone:
            yardstick = cpu([sys.executable, "-c", "import numba"], folder, ROOT)
            seconds = {"compiling": demo_of_a_clone()}
            results.append({"job": "./run demo in a fresh clone", "seconds": seconds, "yardstick": yardstick} | about())
    if options.quick:
        print(report(results))
        return
    for result in results:
        keep_result(KEPT, result)
    text = report(kept_results(KEPT))
    print(text)
    write_results("start", text)


if __name__ == "__main__":
    main()
