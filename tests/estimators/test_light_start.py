"""What a first forecast imports, and river's base class without its package."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pandas", "sklearn", "matplotlib", "scipy.stats", "scipy.optimize", "river.time_series", "river.metrics")


def printed_by(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.system
def test_a_forecast_imports_nothing_heavy():
    code = (
        "import sys, momostream\n"
        "model = momostream.MOMoGPForecaster(2, experts=('last value', 'own lags'))\n"
        "for value in range(20): model.learn_one({'y': value % 3})\n"
        "model.forecast(2, with_dist=True).arrays.mean\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert printed_by(code) == "[]"


@pytest.mark.system
@pytest.mark.parametrize("first", ["momostream.estimators.forecaster", "river.time_series"])
def test_it_is_a_forecaster_of_river_whichever_is_imported_first(first):
    code = (
        f"import importlib, sys; importlib.import_module('{first}')\n"
        "import momostream, pickle, river.time_series\n"
        "from river.time_series.base import Forecaster\n"
        "model = pickle.loads(pickle.dumps(momostream.MOMoGPForecaster(2)))\n"
        "print(isinstance(model, Forecaster), isinstance(model, river.time_series.base.Forecaster),\n"
        "      issubclass(river.time_series.HoltWinters, Forecaster),\n"
        "      sum('_Loaded' in type(finder).__name__ for finder in sys.meta_path))"
    )
    assert printed_by(code) == "True True True 0"


@pytest.mark.system
def test_a_store_is_read_without_models():
    code = "import sys, momostream.storage.store, momostream.storage.lines; print('numba' in sys.modules)"
    assert printed_by(code) == "False"
