"""Adapters and examples for libraries that pin others, run in an environment of their own.

``./run tests`` creates it in ``.venv-neighbours``; MOMOSTREAM_NEIGHBOURS names another one. Without it,
these are skipped.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("MOMOSTREAM_NEIGHBOURS") or ROOT / ".venv-neighbours") / "bin" / "python"
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="no environment with sktime and StatsForecast: ./run tests creates it"
)


def run(cwd: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(PYTHON), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{arguments} failed\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.parametrize("name", ["test_sktime.py", "test_nixtla.py", "test_backtest.py"])
def test_contracts_hold_there(name):
    said = run(ROOT, *PYTEST, f"tests/estimators/{name}")
    assert " passed" in said and " skipped" not in said, said


@pytest.mark.parametrize("name", ["with_sktime.py", "with_statsforecast.py"])
def test_examples_run_there(name, tmp_path):
    said = run(tmp_path, str(ROOT / "examples" / name))
    assert "skipped" not in said and "momostream" in said.lower().replace("momogp", "momostream"), said
