"""The questions that benchmarks answer.

    python -m benchmarks            # lists them, with the time of a full run and the date of the last
    python -m benchmarks --quick    # the short form of each, one after the other; nothing is kept
    python -m benchmarks --readme   # puts the tables of the results into README.md

``python -m benchmarks.NAME`` answers one in full.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.data import ROOT
from benchmarks.harness import RESULTS, one_thread
from benchmarks.tools.readme import filled

QUESTIONS = (
    "peers",
    "stream",
    "forecast",
    "paper",
    "speed",
    "kernels",
    "start",
    "anomaly",
    "sensors",
    "covariances",
    "regimes",
    "circuits",
    "choices",
    "fleet",
    "serve",
    "gauntlet",
)
DAY = re.compile(r"^Measured .*?(\d{4}-\d\d-\d\d) by ", re.MULTILINE)
DURATION = re.compile(r"A full\s+run\s+takes\s+(.+?)[.;,:]", re.DOTALL)


def docstring(name: str) -> str:
    """The docstring of a benchmark; read, not imported, because imports compile."""
    source = (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(source)) or ""


def duration(name: str) -> str:
    """How long a full run takes, as its docstring says."""
    found = DURATION.search(docstring(name))
    return " ".join(found[1].split()) if found else "unknown"


def last_run(name: str, folder: Path = RESULTS) -> str:
    """File of the results, with the day of the last run."""
    path = folder / f"{name}.md"
    if not path.is_file():
        return "not run yet"
    found = DAY.search(path.read_text(encoding="utf-8"))
    return f"results/{name}.md, {found[1] if found else 'day not recorded'}"


def listing() -> str:
    """Two lines for each question."""
    lines = []
    for name in QUESTIONS:
        lines += [f"{name:10} {docstring(name).splitlines()[0]}"]
        lines += [f"{'':10} full run {duration(name)}; {last_run(name)}"]
    return "\n".join(lines)


def run_quick() -> list[str]:
    """The short form of each question; names of those that failed."""
    failed = []
    for name in QUESTIONS:
        start = time.perf_counter()
        command = [sys.executable, "-m", f"benchmarks.{name}", "--quick"]
        done = subprocess.run(command, env=one_thread(), cwd=ROOT, capture_output=True, text=True, check=False)
        print(
            f"{name:10} {'ok' if done.returncode == 0 else 'failed':6} {time.perf_counter() - start:4.0f} s", flush=True
        )
        if done.returncode:
            failed.append(name)
            print(done.stderr[-2000:], file=sys.stderr)
    return failed


def main() -> None:
    """List, run or copy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--quick", action="store_true", help="run the short form of each")
    what.add_argument("--readme", action="store_true", help="put the tables of the results into README.md")
    options = parser.parse_args()
    if options.quick:
        failed = run_quick()
        if failed:
            raise SystemExit("failed: " + ", ".join(failed))
    elif options.readme:
        path = ROOT / "README.md"
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(listing())


if __name__ == "__main__":
    main()
