"""Every example runs, and every benchmark that has `--quick`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.tools.fleet_spark import BRIEF_JAVA

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Not __main__.py, whose --quick runs all of them.
QUICK_BENCHMARKS = [
    path for path in sorted((ROOT / "benchmarks").glob("[!_]*.py")) if "--quick" in path.read_text(encoding="utf-8")
]
# Of `benchmarks.data`, only these two need no files.
READS_DATA = re.compile(r"^from benchmarks\.data import (?!ROOT$|simulated$)", re.MULTILINE)
# Far more than any takes, so that none fails beside other work.
LIMIT_SECONDS = 1200


def run_script(path: Path, cwd: Path, *arguments: str) -> str:
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(path), *arguments],
        cwd=cwd,
        env={**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": search, "JDK_JAVA_OPTIONS": BRIEF_JAVA},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, f"{path.name} failed\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_examples_folder_is_not_empty():
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path, tmp_path):
    assert run_script(path, tmp_path).strip(), f"{path.name} prints nothing"


@pytest.mark.parametrize("path", QUICK_BENCHMARKS, ids=lambda path: path.name)
def test_benchmark_runs_quickly(path, tmp_path, request):
    if READS_DATA.search(path.read_text(encoding="utf-8")):
        request.getfixturevalue("data_dir")  # skips where there is none
    run_script(path, tmp_path, "--quick")
