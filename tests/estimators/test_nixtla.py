"""The model for StatsForecast: the protocol on arrays, and the library itself where it is installed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream import MOMoGPForecaster
from momostream.nixtla import MOMoGP

QUICK = {"season_length": 12, "experts": ("last value", "season", "own lags"), "seed": 0}


def series(n=120):
    return 10.0 + np.sin(np.arange(n) * 2 * np.pi / 12) + 0.1 * np.random.default_rng(0).normal(size=n)


def test_forecasts_are_those_of_the_forecaster():
    y = series()
    inner = MOMoGPForecaster(6, seasons=12, experts=QUICK["experts"], seed=0)
    for value in y:
        inner.learn_one({"y": value})
    expected = inner.forecast(6, with_dist=True)
    found = MOMoGP(**QUICK).forecast(y, 6, level=[90, 50])
    assert list(found) == ["mean", "lo-50", "hi-50", "lo-90", "hi-90"]
    assert_array_equal(found["mean"], expected.mean["y"])
    assert_array_equal(found["lo-90"], expected.interval(0.9)["y"]["lower"])
    assert_array_equal(MOMoGP(6, **QUICK).fit(y).predict(6)["mean"], expected.mean["y"])


def test_forward_learns_the_new_rows_only():
    y = series()
    model = MOMoGP(6, **QUICK).fit(y[:100])
    assert_array_equal(model.forward(y, 6)["mean"], MOMoGP(**QUICK).forecast(y, 6)["mean"])
    assert_array_equal(model.predict(6)["mean"], MOMoGP(**QUICK).forecast(y[:100], 6)["mean"])
    # Another series is learnt from its beginning.
    assert_array_equal(model.forward(y + 1.0, 6)["mean"], MOMoGP(**QUICK).forecast(y + 1.0, 6)["mean"])


def test_inputs_and_fitted_values():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(126, 1))
    y = 5.0 * X[:120, 0] + 0.1 * rng.normal(size=120)
    found = MOMoGP(**QUICK).forecast(y, 6, X=X[:120], X_future=X[120:], fitted=True)
    actual, blind = 5.0 * X[120:, 0], MOMoGP(**QUICK).forecast(y, 6)
    errors = [np.abs(forecast["mean"] - actual).mean() for forecast in (found, blind)]
    assert errors[0] < 0.5 * errors[1]
    assert np.isnan(found["fitted"][0]) and np.abs(found["fitted"][60:] - y[60:]).mean() < 1.0
    copy = MOMoGP(6, **QUICK).fit(y, X[:120]).new()
    assert repr(copy) == "MOMoGP" and copy.predict(6, X[120:])["mean"].shape == (6,)


@pytest.mark.filterwarnings("ignore")
def test_statsforecast_takes_it():
    statsforecast = pytest.importorskip("statsforecast", reason="StatsForecast has an environment of its own")
    times = pd.date_range("2024-01-01", periods=120, freq="h")
    lines = [pd.DataFrame({"unique_id": name, "ds": times, "y": series() + k}) for k, name in enumerate("ab")]
    library = statsforecast.StatsForecast(models=[MOMoGP(6, **QUICK)], freq="h")
    found = library.forecast(df=pd.concat(lines), h=6, level=[90])
    assert list(found.columns) == ["unique_id", "ds", "MOMoGP", "MOMoGP-lo-90", "MOMoGP-hi-90"] and len(found) == 12
    assert (found["MOMoGP-lo-90"] < found["MOMoGP"]).all()
    tables = [library.cross_validation(df=pd.concat(lines), h=6, n_windows=3, refit=refit) for refit in (True, False)]
    assert_allclose(tables[0]["MOMoGP"], tables[1]["MOMoGP"])
