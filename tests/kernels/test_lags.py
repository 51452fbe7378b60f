"""Kernels of the lags: same answers as slow, obvious twins, compiled or interpreted."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.kernels.lags import lag_features, learn_linear, predict_linear, remember
from momostream.kernels.scalar import NU0
from momostream.stream.lags import Autoregression
from tests import naive

# Interpreted code says what compiled code keeps to itself.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")


@pytest.mark.parametrize(("D", "P"), [(0, 1), (2, 1), (1, 3)])
def test_lag_features(D, P):
    rng = np.random.default_rng(4)
    x, past_x, past_y = rng.normal(size=D), rng.normal(size=(2, D)), rng.normal(size=(3, P))
    width = 1 + 3 * D + 3 * P
    units = np.vstack([rng.normal(size=width - 1), rng.uniform(0.05, 2.0, width - 1)])
    raw = np.concatenate(
        [x, x - past_x[0], past_y[0], past_y[0] - past_y[1], past_y[1] - past_y[2], past_x[0] - past_x[1]]
    )
    expected = np.clip((raw - units[0]) / units[1], -2.0, 2.0)
    f = np.full(width, np.nan)
    lag_features(x, past_x, past_y, units, 2.0, f)
    assert_allclose(f, np.concatenate([[1.0], expected]), rtol=1e-12)
    assert np.abs(f).max() == 2.0


def test_remember_moves_the_past_and_keeps_what_is_missing():
    past_x, past_y = np.zeros((2, 1)), np.full((3, 2), np.nan)
    history = [(1.0, [1.0, np.nan]), (2.0, [2.0, np.nan]), (3.0, [np.nan, 7.0]), (4.0, [4.0, 8.0])]
    expected = [
        [[1.0, np.nan]] * 3,
        [[2.0, np.nan], [1.0, np.nan], [1.0, np.nan]],
        [[2.0, 7.0], [2.0, 7.0], [1.0, 7.0]],
        [[4.0, 8.0], [2.0, 7.0], [2.0, 7.0]],
    ]
    for (x, y), after in zip(history, expected, strict=True):
        remember(np.array([x]), np.array(y), past_x, past_y)
        assert_array_equal(past_y, after)
    assert_array_equal(past_x, [[4.0], [3.0]])


@pytest.mark.parametrize("forgetting", [1.0, 0.98])
@pytest.mark.parametrize(("width", "n_targets"), [(1, 1), (4, 2), (6, 3)])
def test_recursive_least_squares_is_weighted_ridge(forgetting, width, n_targets):
    rng = np.random.default_rng(5)
    n, room = 30, 7
    precision = rng.uniform(0.5, 3.0, width)
    F, T = rng.normal(size=(n, room)), rng.normal(size=(n, n_targets))
    P, B = np.full((room, room), 9.0), np.full((room, n_targets), 9.0)
    P[:width, :width], B[:width] = np.diag(1.0 / precision), 0.0
    gain, mean = np.empty(room), np.empty(n_targets)
    for i in range(n):
        inverse, weights = naive.weighted_ridge(F[:i, :width], T[:i], forgetting, precision)
        c = predict_linear(width, F[i], P, B, gain, mean)
        assert_allclose(mean, weights.T @ F[i, :width], rtol=1e-8, atol=1e-10)
        assert c == pytest.approx(1.0 + F[i, :width] @ inverse @ F[i, :width], rel=1e-9)
        learn_linear(width, forgetting, c, gain, T[i] - mean, P, B)
    inverse, weights = naive.weighted_ridge(F[:, :width], T, forgetting, precision)
    assert_allclose(P[:width, :width], inverse, rtol=1e-7, atol=1e-10)
    assert_allclose(B[:width], weights, rtol=1e-7, atol=1e-10)
    # What is beyond the width is not its own.
    assert_array_equal(B[width:], 9.0)
    assert_array_equal(P[width:], 9.0)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_rows_of_lags_are_learnt_as_one_by_one_bit_for_bit(missing):
    rng = np.random.default_rng(13)
    X, Y = rng.normal(size=(30, 1)), rng.normal(size=(30, 2)).cumsum(axis=0)
    Y[1:][rng.random((29, 2)) < missing] = np.nan
    one, many = Autoregression(1, 2), Autoregression(1, 2)
    plane_rows = np.full((30, 2, 3, 2), np.nan)
    expected = plane_rows.copy()
    for lags in (one, many):
        lags.learn(X[0], Y[0])
    for i in range(1, 30):
        one.predict(X[i], expected[i, 0], expected[i, 1])
        one.learn(X[i], Y[i])
    # Features are cut from the ninth row on.
    many.learn_rows(X[1:9], Y[1:9], plane_rows[1:9])
    many.learn_rows(X[9:], Y[9:], plane_rows[9:])
    assert_array_equal(plane_rows, expected)
    for name in ("past_x", "past_y", "residuals", "P", "W", "_features", "_targets"):
        assert_array_equal(getattr(many, name)[:29], getattr(one, name)[:29], err_msg=name)


def test_deviation_of_the_lags_follows_from_their_residuals():
    rng = np.random.default_rng(14)
    lags, location, spread = Autoregression(0, 1, discount=0.9), *np.full((2, 3, 1), np.nan)
    Y = rng.normal(size=25).cumsum()
    squares, mass = np.zeros(3), 0.0
    for i, y in enumerate(Y):
        lags.predict(np.empty(0), location, spread)
        c = np.append(lags._c, 1.0)
        if i >= 2:
            assert_allclose(spread[:, 0], np.sqrt(squares / mass * (1.0 + NU0 / mass) * c), rtol=1e-10)
            assert location[2, 0] == Y[i - 1]
        elif i == 1:
            assert np.all(np.isinf(spread))
        if i:
            squares = 0.9 * squares + (y - location[:, 0]) ** 2 / c
            mass = 0.9 * mass + 1.0
        lags.learn(np.empty(0), np.array([y]))


def test_an_output_that_comes_late_does_not_spoil_the_lags_of_the_others():
    # Fails while `lag_features` hands on the NaN of an output without a past, which stays in all residuals for good.
    lags, location, spread = Autoregression(1, 2), *np.empty((2, 3, 2))
    for t in range(40):
        lags.predict(np.zeros(1), location, spread)
        lags.learn(np.zeros(1), np.array([t, np.nan if t < 5 else 2.0 * t]))
        if lags.is_due:
            lags.refresh()
    assert np.all(np.isfinite(location)) and np.all(np.isfinite(spread)) and np.all(np.isfinite(lags.residuals))
