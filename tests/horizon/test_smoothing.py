"""Smooth fans: less noise where steps are alike, none of it where a series has corners, and the same after loading."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream import MOMoGPForecaster
from momostream.horizon.smoothing import EVERY, SETTLED, STRENGTHS, Smoothing, smoothing_matrices

H = 12


def teach(smoothing, forecast, values):
    if smoothing.is_due():
        smoothing.learn(forecast, values)


def taught(shapes, n=400, noise=0.1, seed=0, missing=0.0):
    """Forecasts that are right but for the noise of each step; one series for each shape."""
    rng = np.random.default_rng(seed)
    smoothing = Smoothing(H, len(shapes))
    for n_row in range(n):
        values = np.stack([shape(n_row + np.arange(H)) for shape in shapes], axis=1)
        forecast = values + noise * rng.normal(size=values.shape)
        came = np.where(rng.random(values.shape) < missing, np.nan, values + 0.3 * rng.normal(size=values.shape))
        teach(smoothing, forecast, came)
    return smoothing


def test_matrices_are_penalised_least_squares():
    forecast, h = np.random.default_rng(1).normal(size=5), np.arange(1.0, 6.0)
    for strength, matrix in zip(STRENGTHS, smoothing_matrices(5), strict=True):
        rows = np.vstack([np.diag(h**-0.5), strength**0.5 * np.diff(np.eye(5), 2, axis=0)])
        wanted = np.concatenate([h**-0.5 * forecast, np.zeros(3)])
        assert_allclose(matrix @ forecast, np.linalg.lstsq(rows, wanted)[0], atol=1e-9)
    # A straight line is smooth.
    assert_allclose(smoothing_matrices(5) @ (3.0 - 2.0 * h), np.tile(3.0 - 2.0 * h, (len(STRENGTHS), 1)), atol=1e-9)


def test_a_series_is_smoothed_as_much_as_pays():
    smoothing = taught([lambda n: n / 50, lambda n: np.where(n % 6 == 0, 3.0, 0.0)], missing=0.2)
    assert smoothing.chosen[0] >= 3 and smoothing.chosen[1] == 0
    rough = np.random.default_rng(2).normal(size=(H, 2))
    (smooth,) = smoothing.smooth(rough)
    assert np.abs(np.diff(smooth[:, 0], 2)).mean() < 0.2 * np.abs(np.diff(rough[:, 0], 2)).mean()
    assert_array_equal(smooth[:, 1], rough[:, 1])


def test_nothing_is_smoothed_at_first_nor_in_short_forecasts():
    smoothing = taught([lambda n: n / 50], n=2)
    rough = np.random.default_rng(2).normal(size=(H, 1))
    assert smoothing.smooth(rough)[0] is rough
    short = Smoothing(2, 1)
    for _ in range(50):
        assert not short.is_due()
    assert not short.chosen.any()


def test_a_constant_series_is_left_alone():
    smoothing = Smoothing(H, 1)
    for _ in range(100):
        teach(smoothing, np.full((H, 1), 5.0), np.full((H, 1), 5.0))
    assert not smoothing.chosen.any() and np.isfinite(smoothing.losses).all()


def test_the_strength_follows_the_series():
    smoothing = taught([lambda n: n / 50], n=300)
    assert smoothing.chosen[0] > 0
    rng = np.random.default_rng(3)
    for n in range(EVERY * SETTLED):
        values = np.where((n + np.arange(H)) % 5 == 0, 3.0, 0.0)[:, None]
        teach(smoothing, values, values + 0.1 * rng.normal(size=(H, 1)))
    assert smoothing.chosen[0] == 0


def test_fans_of_noisy_walks_are_smooth(monkeypatch):
    rng = np.random.default_rng(0)
    walks = np.zeros((500, 4))
    for n in range(1, 500):
        walks[n] = 0.97 * walks[n - 1] + rng.normal(size=4)

    def bends():
        model = MOMoGPForecaster(horizon=20, seed=0, experts=("last value", "season", "wide lags"))
        for row in walks.tolist():
            model.learn_one(dict(zip("abcd", row, strict=True)))
        return np.abs(np.diff(model.forecast(20, with_dist=True).median.to_numpy(), 2, axis=0)).mean()

    smooth = bends()
    monkeypatch.setattr(Smoothing, "smooth", lambda self, *forecasts: forecasts)
    assert smooth < 0.3 * bends()


@pytest.mark.parametrize("n", [40, 300])
def test_saved_models_smooth_alike(tmp_path, n):
    import momostream

    rng = np.random.default_rng(0)
    rows = np.cumsum(rng.normal(size=n + 30)).tolist()
    model = MOMoGPForecaster(horizon=8, seed=0, experts=("last value", "own lags"))
    for value in rows[:n]:
        model.learn_one(value)
    model.save(tmp_path / "a.momo")
    loaded = momostream.load(tmp_path / "a.momo")
    for value in rows[n:]:
        model.learn_one(value)
        loaded.learn_one(value)
    assert model.forecast(8) == loaded.forecast(8)
    assert_array_equal(model._model.smoothing.losses, loaded._model.smoothing.losses)
