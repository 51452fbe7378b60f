"""What the documents show works: README blocks, examples, and benchmarks that offer `--quick`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fences import fenced_blocks

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Not __main__.py, whose --quick runs all of them.
QUICK_BENCHMARKS = [
    path for path in sorted((ROOT / "benchmarks").glob("[!_]*.py")) if "--quick" in path.read_text(encoding="utf-8")
]
LIMIT_SECONDS = 300


def run_script(path: Path, cwd: Path, *arguments: str) -> str:
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(path), *arguments],
        cwd=cwd,
        env={**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": search},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, f"{path.name} failed\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_readme_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    readme = ROOT / "README.md"
    blocks = [block.in_place for block in fenced_blocks(readme) if block.language == "python"]
    assert blocks
    namespace = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(readme), "exec"), namespace)


def test_examples_folder_is_not_empty():
    if not (ROOT / "examples").is_dir():
        pytest.skip("no examples folder")
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path, tmp_path):
    assert run_script(path, tmp_path).strip(), f"{path.name} prints nothing"


@pytest.mark.parametrize("path", QUICK_BENCHMARKS, ids=lambda path: path.name)
def test_benchmark_runs_quickly(path, tmp_path, request):
    if "MOMOSTREAM_DATA" in path.read_text(encoding="utf-8"):
        request.getfixturevalue("data_dir")  # skips where there is none
    run_script(path, tmp_path, "--quick")
