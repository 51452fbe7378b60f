"""Wheel and source distribution: built, checked, installed into an empty environment and used there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")

USER_PROGRAM = """
from collections.abc import Hashable

from momostream import MOMoGPForecaster, MOMoGPRegressor

regressor = MOMoGPRegressor(seed=0)
forecaster = MOMoGPForecaster(horizon=3, seed=0)
for t in range(30):
    regressor.learn_one({"a": float(t % 5)}, {"b": float(t % 5) ** 2})
    forecaster.learn_one({"a": float(t % 5)})
predicted: dict[Hashable, float] = regressor.predict_one({"a": 2.0})
low, high = regressor.predict_one({"a": 2.0}, with_dist=True).interval(0.9)["b"]
assert low < predicted["b"] < high
assert len(forecaster.forecast(3)) == 3
print(f"{predicted['b']:.1f}")
"""


def done(*command: object, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command outside of this checkout's packages."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "NUMBA_CACHE_DIR"}}
    words = [str(word) for word in command]
    result = subprocess.run(words, cwd=cwd, env=environment | variables, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Folder with the wheel, machine code included, and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder]
    done(*build, "--sdist")
    done(*build, "--wheel", HATCH_BUILD_HOOK_ENABLE_CUSTOM="true")
    return folder


@pytest.fixture(scope="module")
def wheel(dist):
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The Python of an environment with nothing but the wheel and what it needs, as new as in this one."""
    if UV is None:
        pytest.skip("uv is not installed")
    folder = tmp_path_factory.mktemp("empty")
    done(UV, "venv", "-q", "-p", sys.executable, folder / "env")
    # Machine code fits the versions that it was compiled with.
    pins = folder / "pins.txt"
    pins.write_text(done(UV, "pip", "freeze", "--python", sys.executable, "--exclude-editable").stdout)
    python = folder / "env" / "bin" / "python"
    done(UV, "pip", "install", "-q", "--python", python, "-c", pins, f"momostream[cli] @ {wheel.as_uri()}")
    return python


def test_descriptions_are_complete(dist):
    """As the package index wants them."""
    said = done(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir()).stdout
    assert said.count("PASSED") == 2


def test_contents(dist, wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "momostream/py.typed" in names and "momostream/serve/page/index.html" in names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs"))]
    # Each function of each room: as many as are defined, some for two precisions.
    assert len([name for name in names if name.endswith(".code")]) > 100
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    assert {"run", "hatch_build.py", "CITATION.cff", "SECURITY.md", "tests/naive.py", "docs/start.md"} <= sources
    assert not [name for name in sources if name.endswith((".code", ".pyc"))]


def test_an_empty_environment_predicts_and_forecasts_at_once(installed, tmp_path):
    said = done(installed, "-c", USER_PROGRAM, cwd=tmp_path)
    # Nothing is compiled, and nothing is complained about.
    assert (said.stdout, said.stderr) == ("4.0\n", "")
    assert "forecast" in done(installed, "-m", "momostream", "--help", cwd=tmp_path).stdout


def test_types_reach_the_user(installed, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"{USER_PROGRAM}MOMoGPForecaster(horizons=3)\n")
    check = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(installed), program.name]
    said = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, timeout=600).stdout
    # Nothing but the misspelt parameter.
    assert said.count("error:") == 1 and 'keyword argument "horizons"' in said, said
