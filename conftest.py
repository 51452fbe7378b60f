"""Shared by all tests: fixtures, seeds, and the tier of each test."""

from __future__ import annotations

import os
import random
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent

# No deadline: the first call of a kernel may compile it. Derandomised: the same cases in every run.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci")

# The tier of a test is that of its folder or file; the longest path counts. A mark on the test itself beats the rule.
TIERS = {
    ".": "unit",
    "tests/estimators/test_river_forecaster.py": "contract",
    "tests/estimators/test_river_monitor.py": "contract",
    "tests/estimators/test_river_regressor.py": "contract",
    "tests/cli": "system",
    "tests/docs": "system",
    "tests/engines": "system",
    "tests/feeds/test_kafka.py": "system",
    "tests/feeds/test_mqtt.py": "system",
    "tests/kernels/test_compile.py": "system",
    "tests/runs/test_broker_runs.py": "system",
    "tests/runs/test_kills.py": "system",
    "tests/test_packaging.py": "system",
    "tests/serve/test_serve_kills.py": "system",
    "tests/serve/test_page.py": "system",
    "tests/serve/test_serve_command.py": "system",
}

# sktime pins pandas, so it has an environment of its own; without it, its adapter cannot even be imported.
collect_ignore = [] if find_spec("sktime") else ["momostream/sktime.py", "momostream/estimators/sktime_forecaster.py"]

# They start programs and wait for them: as much as all others together take.
LONG = [["test_scripts.py"], ["test_spark.py", "test_kills.py", "test_broker_runs.py"]]


def tier_of(path: Path) -> str:
    """The tier of the tests in a file.

    Examples
    --------
    >>> tier_of(ROOT / "tests" / "gp" / "test_tuning.py"), tier_of(ROOT / "tests" / "engines" / "test_spark.py")
    ('unit', 'system')
    """
    name = path.relative_to(ROOT).as_posix()
    return next(TIERS[known] for known in (name, *map(str, PurePosixPath(name).parents)) if known in TIERS)


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its tier; start the longest tests first, so that no worker ends long after the others."""
    for item in items:
        if not any(map(item.get_closest_marker, {*TIERS.values()})):
            item.add_marker(tier_of(item.path))
    # Two workers begin with one half each.
    long = [[item for item in items if item.path.name in names] for names in LONG]
    others = [item for item in items if not any(item.path.name in names for names in LONG)]
    half = (len(items) + 1) // 2 - len(long[0])
    items[:] = [*long[0], *others[:half], *long[1], *others[half:]]


@pytest.fixture(autouse=True)
def _global_seeds() -> None:
    # The contract checks of river and scikit-learn draw from the global generators.
    random.seed(0)
    np.random.seed(0)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Directory of the real data sets; skips the test where there is none."""
    named = os.environ.get("MOMOSTREAM_DATA")
    # A wrong MOMOSTREAM_DATA does not fall back: it would hide the mistake.
    directory = Path(named) if named else ROOT.parent / "shared" / "data"
    if not directory.is_dir():
        where = f"MOMOSTREAM_DATA={named}" if named else "../shared/data (MOMOSTREAM_DATA is not set)"
        pytest.skip(f"needs the real data sets: no directory {where}")
    return directory
