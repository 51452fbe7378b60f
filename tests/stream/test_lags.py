"""Linear regression on lags: recovery, gaps, offsets, columns that come later, state."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.stream.lags import Autoregression


def linear_series(n_rows, seed=0, noise=0.0):
    """Changes that are linear in the inputs, their change, the last outputs and older changes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 2))
    Y = np.zeros((n_rows, 2))
    for t in range(3, n_rows):
        Y[t] = Y[t - 1] - 0.3 * Y[t - 1] + 0.2 * (Y[t - 1] - Y[t - 2]) - 0.1 * Y[t - 1][::-1]
        Y[t] += X[t] @ [[0.5, -0.2], [0.1, 0.4]] + 0.3 * (X[t] - X[t - 1]) + noise * rng.normal(size=2)
    return X, Y


def run(lags, X, Y, by_block=False):
    """Predict and learn each row; returns locations and standard deviations ``(n, 2, 4, n_targets)``."""
    plane_rows = np.empty((len(X), 2, 4, Y.shape[1]))
    at = 0
    while at < len(X):
        size = min(lags.room, len(X) - at) if by_block and lags.n_rows > 0 else 1
        rows = slice(at, at + size)
        if by_block and lags.n_rows > 0:
            lags.learn_rows(np.ascontiguousarray(X[rows]), np.ascontiguousarray(Y[rows]), plane_rows[rows])
        else:
            lags.predict(X[at], plane_rows[at, 0], plane_rows[at, 1])
            lags.learn(X[at], Y[at])
        if lags.is_due:
            lags.refresh()
        at = rows.stop
    return plane_rows


def test_a_linear_autoregression_is_recovered():
    X, Y = linear_series(1500)
    plane_rows = run(Autoregression(2, 2, forgetting=1.0), X, Y)
    error = np.abs(plane_rows[-200:, 0] - Y[-200:, None]).mean(axis=(0, 2))
    size = np.abs(np.diff(Y, axis=0)).mean()
    assert error[0] < 0.01 * size
    # The others lack features: the older changes, or all.
    assert error[0] < error[1] < error[2]


def test_intervals_of_a_noisy_autoregression():
    X, Y = linear_series(1500, noise=0.5)
    plane_rows = run(Autoregression(2, 2), X, Y)
    z = (Y[300:] - plane_rows[300:, 0, 0]) / plane_rows[300:, 1, 0]
    assert_allclose(np.sqrt((z**2).mean(axis=0)), 1.0, atol=0.15)
    assert_allclose(plane_rows[-1, 1, 0], 0.5, rtol=0.4)


@pytest.mark.parametrize("offset", [1e8, -1e8])
def test_a_small_signal_on_a_huge_offset(offset):
    X, Y = linear_series(600)
    plain = run(Autoregression(2, 2), X, Y)
    lifted = run(Autoregression(2, 2), X + offset, Y + offset)
    assert np.isfinite(lifted[3:, :, :3]).all()
    error, same = (
        np.abs(plane_rows[100:, 0, 0] - target[100:]).mean()
        for plane_rows, target in ((lifted, Y + offset), (plain, Y))
    )
    assert error < 1.05 * same + 1e-5


@pytest.mark.parametrize("units", [(2.0**20, 1.0), (1.0, 2.0**-30), (2.0**-30, 2.0**30)])
def test_units_do_not_matter(units):
    X, Y = linear_series(200, noise=0.1)
    plain = run(Autoregression(2, 2), X + 3.0, Y - 2.0)
    scaled = run(Autoregression(2, 2), units[0] * (X + 3.0), units[1] * (Y - 2.0))
    assert_array_equal(scaled / units[1], plain)


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_rows_in_blocks_are_rows_one_by_one_bit_for_bit(gaps):
    X, Y = linear_series(700, noise=0.1)
    Y[np.random.default_rng(1).random(Y.shape) < gaps] = np.nan
    Y[0] = 0.0
    one, many = Autoregression(2, 2), Autoregression(2, 2)
    assert_array_equal(run(many, X, Y, by_block=True), run(one, X, Y))
    assert_array_equal(many.A, one.A)
    assert_array_equal(many.W, one.W)


def test_missing_targets():
    X, Y = linear_series(800, noise=0.05)
    gappy = Y.copy()
    gappy[np.random.default_rng(2).random(Y.shape) < 0.2] = np.nan
    gappy[0, 1] = np.nan
    lags = Autoregression(2, 2)
    plane_rows = run(lags, X, gappy)
    assert np.isfinite(plane_rows[20:, :, :3]).all()
    error = np.abs(plane_rows[300:, 0] - Y[300:, None]).mean(axis=(0, 2))
    assert error[0] < 0.8 * error[2]


@pytest.mark.parametrize("seen_from", [0, 40, 10**9])
def test_new_columns_keep_the_old_outputs_sensible(seen_from):
    X, Y = linear_series(700, noise=0.05)
    before = run(narrow := Autoregression(1, 1), X[:, :1], Y[:, :1])
    assert narrow.n_rows == 700
    lags = Autoregression(1, 1)
    run(lags, X[:300, :1], Y[:300, :1])
    lags.widen(2, 2, np.array([0.0, X[300, 1]]))
    later = Y[300:].copy()
    later[:seen_from, 1] = np.nan
    plane_rows = run(lags, X[300:], later)
    assert np.isfinite(plane_rows[:, :, :3, 0]).all()
    error = np.abs(plane_rows[:, 0, 0, 0] - Y[300:, 0])
    old = np.abs(before[300:, 0, 0, 0] - Y[300:, 0])
    assert error.mean() < 1.3 * old.mean()
    assert error.max() < 2.0 * old.max()
    if seen_from == 0:
        # The new columns carry what was noise before.
        assert error[200:].mean() < old[200:].mean()
        assert np.abs(plane_rows[200:, 0, 0, 1] - Y[500:, 1]).mean() < np.abs(np.diff(Y[499:, 1])).mean()
    elif seen_from > 400:
        assert np.isinf(plane_rows[:, 1, :, 1]).all()


def test_a_new_output_far_from_zero_is_learnt():
    X, Y = linear_series(600, noise=0.05)
    lags = Autoregression(2, 1)
    run(lags, X[:200], Y[:200, :1])
    lags.widen(2, 2, np.zeros(2))
    both = np.column_stack([Y[200:, 0], 1e6 + 1e3 * Y[200:, 1]])
    plane_rows = run(lags, X[200:], both)
    error = np.abs(plane_rows[200:, 0, :, 1] - both[200:, 1:]).mean(axis=0)
    assert error[2] < 3e3
    assert error[0] < error[2]


@pytest.mark.parametrize("kind", ["inputs", "outputs", "all", "turns constant", "starts to vary"])
def test_constant_columns(kind):
    X, Y = linear_series(900, noise=0.05)
    if kind in ("inputs", "all"):
        X[:, 0] = 1e7
    if kind in ("outputs", "all"):
        Y[:, 1] = -3.0
    if kind == "turns constant":
        X[300:, 0], Y[300:, 1] = 0.1, 0.3
    if kind == "starts to vary":
        X[:300, 0], Y[:300, 1] = 0.1, 0.3
    plane_rows = run(Autoregression(2, 2, forgetting=0.9), X, Y)
    assert np.isfinite(plane_rows[2:, :, :3]).all()
    error = np.abs(plane_rows[600:, 0, 0, 0] - Y[600:, 0]).mean()
    assert error < 1.1 * np.abs(np.diff(Y[599:, 0])).mean()


def test_a_column_may_stay_constant_for_ever():
    lags = Autoregression(1, 1, forgetting=0.5)
    rng = np.random.default_rng(0)
    run(lags, rng.normal(size=(50, 1)), rng.normal(size=(50, 1)))
    plane_rows = run(lags, np.full((6000, 1), 0.1), np.full((6000, 1), 0.7))
    assert np.isfinite(plane_rows[:, 0]).all()
    assert np.isfinite(lags.units).all()
    assert (lags.units[1] > 0.0).all()
    assert_allclose(plane_rows[-1, 0], 0.7, atol=1e-9)
    plane_rows = run(lags, rng.normal(size=(50, 1)), rng.normal(size=(50, 1)))
    assert np.abs(plane_rows[:, 0]).max() < 20.0


def test_no_inputs_and_one_row():
    lags = Autoregression(0, 1)
    location, std = np.empty((2, 4, 1))
    lags.predict(np.zeros(0), location, std)
    assert np.isinf(std).all()
    lags.learn(np.zeros(0), np.array([4.0]))
    lags.predict(np.zeros(0), location, std)
    assert_array_equal(location, 4.0)
    assert np.isinf(std).all()


def test_prediction_changes_nothing():
    X, Y = linear_series(200, noise=0.1)
    quiet, asked = Autoregression(2, 2), Autoregression(2, 2)
    part = np.empty((2, 4, 2))
    rng = np.random.default_rng(3)
    expected = run(quiet, X, Y)
    for x, y, planes in zip(X, Y, expected, strict=True):
        asked.predict(rng.normal(size=2), *part)
        asked.predict_rows(rng.normal(size=(2, 2)), *np.empty((2, 2, 4, 2)))
        asked.predict(x, *part)
        assert_array_equal(part, planes)
        asked.learn(x, y)
        if asked.is_due:
            asked.refresh()


@pytest.mark.parametrize("stop", [0, 1, 2, 40, 333])
def test_a_restored_regression_resumes_bit_for_bit(stop):
    X, Y = linear_series(500, noise=0.1)
    Y[np.random.default_rng(4).random(Y.shape) < 0.1] = np.nan
    lags = Autoregression(2, 2)
    run(lags, X[:stop], Y[:stop])
    state = lags.state()
    expected = run(lags, X[stop:], Y[stop:])
    # The state is a picture of its time, though the regression has gone on.
    again = Autoregression(2, 2)
    again.restore(state)
    assert_array_equal(run(again, X[stop:], Y[stop:]), expected)


def test_one_jump_does_not_throw_the_next_prediction():
    X, Y = linear_series(400, noise=0.05)
    X[300] *= 1e6
    plane_rows = run(Autoregression(2, 2), X, np.where(np.arange(400)[:, None] == 300, 0.0, Y))
    assert np.abs(plane_rows[300:, 0] - Y[300:, None]).max() < 60.0
