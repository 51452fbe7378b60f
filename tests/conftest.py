from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# No deadline: the first call of a kernel may compile it. Derandomised: the same cases in every run.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci")

# They start programs and wait for them: as much as all others together take.
LONG = [["test_scripts.py"], ["test_spark.py", "test_kills.py", "test_broker_runs.py"]]


def pytest_collection_modifyitems(items):
    """What takes long stands first in either half, with which two workers begin: else one ends long after the other."""
    long = [[item for item in items if item.path.name in names] for names in LONG]
    others = [item for item in items if not any(item.path.name in names for names in LONG)]
    half = (len(items) + 1) // 2 - len(long[0])
    items[:] = [*long[0], *others[:half], *long[1], *others[half:]]


@pytest.fixture(autouse=True)
def _global_seeds():
    # The contract checks of river and scikit-learn draw from the global generators.
    random.seed(0)
    np.random.seed(0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def data_dir():
    """Directory of the real data sets; skips the test where there is none."""
    named = os.environ.get("MOMOSTREAM_DATA")
    # A wrong MOMOSTREAM_DATA does not fall back: it would hide the mistake.
    directory = Path(named) if named else ROOT.parent / "shared" / "data"
    if not directory.is_dir():
        where = f"MOMOSTREAM_DATA={named}" if named else "../shared/data (MOMOSTREAM_DATA is not set)"
        pytest.skip(f"needs the real data sets: no directory {where}")
    return directory
