"""Spoiled readings of every kind, drawn at random: no NaN, no interval of zero or absurd width, no runaway."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from momostream import MOMoGPForecaster, MOMoGPRegressor

KINDS = ("spike", "stuck", "code", "units", "missing", "infinite steps", "constant")
# Rows before the first spoiled reading (a column of 200 readings is taken to have shown its range), and all rows.
FIRST, ROWS = 220, 440


def machine(seed):
    """Readings of three sensors of one machine, clean."""
    rng = np.random.default_rng(seed)
    wind = np.zeros(ROWS)
    for t in range(1, ROWS):
        wind[t] = 0.95 * wind[t - 1] + rng.normal()
    wind = np.abs(9.0 + wind)
    power = 2000.0 / (1.0 + np.exp(9.0 - wind)) + 5.0 * rng.normal(size=ROWS)
    return np.column_stack([wind, power, 40.0 + power / 100.0 + rng.normal(size=ROWS)])


def spoil(rows, kind, rng):
    """Spoil single readings or runs of them, about one in twenty."""
    found, deviation = rows.copy(), rows.std(axis=0)
    for _ in range(max(1, int(0.05 * rows.size / 8))):
        start, column = int(rng.integers(FIRST, len(rows))), int(rng.integers(rows.shape[1]))
        part = found[start : start + int(rng.integers(1, 16)), column]
        if kind == "spike":
            part[:1] += rng.choice([-1.0, 1.0]) * deviation[column] * 10.0 ** rng.uniform(1.0, 9.0)
        elif kind == "stuck":
            part[:] = found[start - 1, column]
        elif kind == "code":
            part[:] = rng.choice([-9999.0, 9999.0, -200.0, 1e20, -1e20])
        elif kind == "units":
            part *= rng.choice([1000.0, 0.001, 3.6, -1.0])
        elif kind == "missing":
            part[:] = np.nan
        elif kind == "infinite steps":
            part[::2] += 1e6 * deviation[column]
        else:
            found[start:, column] = found[start - 1, column]
    return found


def check_interval(low, high, clean):
    """Ends are finite, in order, apart, and within a hundred ranges of all clean values."""
    reach = np.nanmax(clean) - np.nanmin(clean)
    assert np.isfinite([low, high]).all()
    assert low < high, (low, high)
    assert high - low < 100.0 * reach, (low, high, reach)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_regressor_survives(kind, seed):
    clean, rng = machine(seed), np.random.default_rng((seed, KINDS.index(kind)))
    read = spoil(clean, kind, rng)
    model = MOMoGPRegressor(seed=0, tuning_evaluations=5)
    errors = []
    for t in range(ROWS):
        x, y = {"wind": read[t, 0]}, {"power": read[t, 1], "load": read[t, 2]}
        if t > 20:
            prediction = model.predict_one(x, with_dist=True)
            assert np.isfinite([*prediction.mean.values()]).all()
            for column, target in enumerate(("power", "load"), 1):
                check_interval(*prediction.interval(0.9)[target], clean[:, column])
            errors.append(prediction.mean["power"] - clean[t, 1])
        model.learn_one(x, y)
    # Not worse than the mean of all clean values by more than a half, spoiled inputs and constants included.
    assert np.sqrt(np.mean(np.square(errors))) < 1.5 * clean[:, 1].std()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_forecaster_survives(kind, seed):
    clean, rng = machine(seed + 10), np.random.default_rng((seed, KINDS.index(kind)))
    read = spoil(clean, kind, rng)
    model = MOMoGPForecaster(horizon=3, experts=("own lags", "wide lags", "last value"), seed=0)
    for t in range(ROWS):
        model.learn_one(dict(zip(("wind", "power", "load"), read[t], strict=True)))
        if t > 60 and t % 7 == 0:
            arrays = model.forecast(3, with_dist=True).arrays
            lower, upper = arrays.quantiles((0.05, 0.95))
            assert np.isfinite(arrays.mean).all()
            for column in range(3):
                for step in range(3):
                    check_interval(lower[step, column], upper[step, column], clean[:, column])


def noise_free(n):
    """A function of two inputs that change from row to row without memory: a guessed input is far from the true one."""
    X = np.random.default_rng(3).uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2


def test_frames_with_inputs_that_are_set_aside_do_not_make_circuits_unsure():
    X, y = noise_free(420)
    learn, test = pd.DataFrame(X[:320], columns=["a", "b"]), pd.DataFrame(X[320:], columns=["a", "b"])
    errors = []
    for spike in (0.0, 500.0):
        learn.loc[300:301, "b"] += spike
        model = MOMoGPRegressor(experts=("matern32",), seed=0)
        model.learn_many(learn, pd.Series(y[:320], name="y"))
        errors.append(np.sqrt(((model.predict_many(test)["y"].to_numpy() - y[320:]) ** 2).mean()))
    assert model.rejected_readings["b"]["count"] == 2
    assert errors[1] < 1.2 * errors[0]


@pytest.mark.parametrize("bounds", ["auto", {"y": (-9.0, 9.0)}])
def test_an_input_that_was_set_aside_does_not_make_circuits_unsure(bounds):
    X, y = noise_free(420)
    errors, std = np.empty((2, 2, 100))
    for k, spike in enumerate((0.0, 500.0)):
        model = MOMoGPRegressor(experts=("matern32",), bounds=bounds, seed=0)
        for t in range(420):
            x = {"a": X[t, 0], "b": X[t, 1] + (spike if t in (316, 317) else 0.0)}
            if t >= 320:
                prediction = model.predict_one(x, with_dist=True)
                errors[k, t - 320], std[k, t - 320] = prediction.mean["y"] - y[t], prediction.std["y"]
            else:
                model.predict_one(x)
            model.learn_one(x, {"y": y[t]})
        assert ("b" in model.rejected_readings) == (spike > 0.0)
    # Learnt in full, with a guess in place of the input, the two rows make these ratios 39 and 72.
    assert np.sqrt((errors[1] ** 2).mean() / (errors[0] ** 2).mean()) < 1.2
    assert std[1].mean() < 1.3 * std[0].mean()
