"""Feeds that are odd without being spoiled, default settings: no exception, no runaway, no interval of zero width."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest

from momostream import MOMoGPForecaster, MOMoGPRegressor

ROWS, HORIZON = 330, 3
START = datetime(2024, 3, 1)


def wander(rng, n_rows=ROWS):
    """A level that wanders around 10."""
    y = np.zeros(n_rows)
    for t in range(1, n_rows):
        y[t] = 0.9 * y[t - 1] + rng.normal()
    return 10.0 + y


def one_value(rng):
    """Constants of all sizes, beside a series that moves."""
    return {"zero": np.zeros(ROWS), "large": np.full(ROWS, 1e6), "small": np.full(ROWS, -1e-9), "y": wander(rng)}


def one_value_for_long(rng):
    """A constant that moves at last."""
    y = wander(rng)
    y[:250] = 10.0
    return {"y": y}


def only_one_value(rng):
    """Nothing else."""
    return {"y": np.full(ROWS, 0.1)}


def twins(rng):
    """A series twice, and once more in other units."""
    y = wander(rng)
    return {"one": y, "other": y.copy(), "units": 1000.0 * y + 273.15}


def at_a_bound(rng):
    """Zero half of the time, and full half of the time."""
    y = wander(rng)
    return {"rain": np.maximum(y - 10.0, 0.0), "power": np.minimum(200.0 * y, 2000.0), "y": y}


def sentinels(rng):
    """Codes for a missing reading, alone and in runs, that appear when the feed is known."""
    columns = {"a": wander(rng), "b": wander(rng)}
    for column, code in zip(columns.values(), (-9999.0, 1e20), strict=True):
        column[150 + rng.choice(ROWS - 150, 8, replace=False)] = code
        column[200:215] = code
    return columns


FEEDS = (one_value, one_value_for_long, only_one_value, twins, at_a_bound, sentinels)
# What these series can be; all others are between these.
LARGEST = {"large": 1e6, "units": 3e4, "power": 2000.0}


def check(name, low, high, may_touch):
    """Ends are finite and in order, apart unless a lump at a limit holds both, and no further off than three ranges."""
    largest = LARGEST.get(name, 20.0)
    assert np.isfinite([low, high]).all()
    assert low < high or (may_touch and low == high), (name, low, high)
    assert max(abs(low), abs(high)) < 3.0 * largest, (name, low, high)


@pytest.mark.parametrize("feed", FEEDS, ids=lambda feed: feed.__name__)
def test_forecasts_of_odd_feeds(feed):
    columns = feed(np.random.default_rng(0))
    model = MOMoGPForecaster(horizon=HORIZON, seed=0)
    for t in range(ROWS):
        model.learn_one({name: float(column[t]) for name, column in columns.items()})
        if t < 5 or t % 11 == 0:
            forecast = model.forecast(HORIZON, with_dist=True)
            assert np.isfinite(forecast.arrays.mean).all()
            ends = forecast.arrays.quantiles((0.05, 0.95))
            for p, name in enumerate(forecast.series):
                for low, high in ends[:, :, p].T if t >= 5 else []:
                    check(name, low, high, feed is at_a_bound)
    paths = forecast.sample(50, seed=0)
    assert np.isfinite(paths).all()
    if feed is twins:
        # They are forecast alike.
        mean = forecast.mean
        np.testing.assert_allclose(mean["one"], mean["other"], rtol=0.02)


@pytest.mark.parametrize("feed", FEEDS, ids=lambda feed: feed.__name__)
def test_predictions_of_odd_feeds(feed):
    columns = feed(np.random.default_rng(0))
    model = MOMoGPRegressor(seed=0)
    for t in range(1, ROWS):
        # The last row is the input: one that is constant, doubled, at a bound or a code.
        x = {f"last {name}": float(column[t - 1]) for name, column in columns.items()}
        if t > 5 and t % 7 == 0:
            prediction = model.predict_one(x, with_dist=True)
            assert np.isfinite([*prediction.mean.values()]).all()
            for name, (low, high) in prediction.interval(0.9).items():
                check(name, low, high, feed is at_a_bound)
        model.learn_one(x, {name: float(column[t]) for name, column in columns.items()})


@pytest.mark.parametrize("faster", [True, False])
def test_a_clock_that_changes_its_step_for_good(faster):
    rng = np.random.default_rng(0)
    hour, ten = timedelta(hours=1), timedelta(minutes=10)
    steps = [hour, ten] if faster else [ten, hour]
    model, at = MOMoGPForecaster(horizon=HORIZON, time="at", seed=0), START
    for t in range(ROWS):
        at += steps[t >= 130]
        day = 2.0 * np.pi * (at.hour + at.minute / 60.0) / 24.0
        model.learn_one({"y": 10.0 + 5.0 * np.sin(day) + rng.normal()}, {"at": at})
        if t >= 10:
            forecast = model.forecast(HORIZON, with_dist=True)
            for low, high in forecast.arrays.quantiles((0.05, 0.95))[:, :, 0].T:
                check("y", low, high, may_touch=False)
    assert model.step == steps[1]
    assert forecast.index[0].to_pydatetime() == at + steps[1]
    assert np.abs(forecast.mean["y"] - 10.0).max() < 8.0
