"""Regressions of one step that are iterated: weights of least squares, steps fed back, no runaway."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.horizon.calendar import Ahead
from momostream.horizon.iterated import LEAST_PIVOT, PENALTY, IteratedLags
from momostream.horizon.past import Past

NAN = np.nan


def calendar(terms, t, horizon=4):
    return Ahead(terms[t : t + 1 + horizon], np.zeros(1 + horizon, dtype=np.int64))


def follow(lags, past, Y, terms=None, start=0):
    terms = np.zeros((len(Y) + 10, lags.n_terms)) if terms is None else terms
    for t, y in enumerate(Y, start):
        past.append(y, np.empty(0))
        lags.learn(past, calendar(terms, t))
    return lags, terms


def rotation(n_rows, seed=0):
    """Two series that follow each other around the point (5, -3), with noise."""
    rng = np.random.default_rng(seed)
    turn = 0.97 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    Y = np.zeros((n_rows, 2))
    for t in range(1, n_rows):
        Y[t] = turn @ Y[t - 1] + 0.1 * rng.normal(size=2)
    return Y + [5.0, -3.0], turn


def test_a_vector_autoregression_is_found_and_iterated():
    Y, turn = rotation(800)
    past = Past(2, 0, 50)
    lags, terms = follow(IteratedLags(2, 0), past, Y)
    location = np.empty((2, 4, 2))
    lags.predict(past, calendar(terms, 799), location)
    expected, at = [], Y[-1] - [5.0, -3.0]
    for _ in range(4):
        at = turn @ at
        expected.append(at + [5.0, -3.0])
    assert_allclose(location[0], expected, atol=0.08)


def test_the_weights_are_those_of_a_ridge_on_all_rows():
    Y, _ = rotation(60)
    terms = np.random.default_rng(1).normal(size=(80, 1))
    lags, _ = follow(IteratedLags(2, 1), Past(2, 0, 200), Y, terms)
    lags._solve()
    n = lags.n_changes
    rows = [
        np.concatenate([[1.0], Y[t] - Y[0], *(Y[max(t - k, 0)] - Y[max(t - k - 1, 0)] for k in range(n)), terms[t + 1]])
        for t in range(59)
    ]
    # No feature or change of these is cut.
    F, T = np.array(rows), np.diff(Y, axis=0)
    variance = np.maximum((F**2).sum(axis=0) - F.sum(axis=0) ** 2 / len(F), 1e-12 * (F**2).sum(axis=0))
    size = np.sqrt(np.where(variance > 0.0, variance, 1.0))
    size[0] = np.sqrt(len(F))
    penalty = np.full(len(size), PENALTY / len(F))
    penalty[0] = 1e-3 / len(F)
    penalty += LEAST_PIVOT
    for p in range(2):
        own = np.r_[0, 1 + p + 2 * np.arange(1 + n), F.shape[1] - 1]
        for k, used in enumerate([np.arange(F.shape[1]), own]):
            G = F[:, used] / size[used]
            w = np.linalg.solve(G.T @ G + np.diag(penalty[used]), G.T @ T[:, p]) / size[used]
            assert_allclose(lags.W[k, used, p], w, rtol=1e-6, atol=1e-9)
            assert_array_equal(np.delete(lags.W[k, :, p], used), 0.0)


def test_nothing_is_expected_from_few_rows():
    past = Past(1, 0, 20)
    lags, terms = follow(IteratedLags(1, 0), past, np.arange(6.0)[:, None])
    location = np.empty((2, 4, 1))
    lags.predict(past, calendar(terms, 5), location)
    assert_array_equal(location, 5.0)


def test_missing_values_move_no_weight():
    Y, _ = rotation(300)
    gaps = Y.copy()
    gaps[100:110] = NAN
    gaps[50, 0] = NAN
    past = Past(2, 0, 50)
    lags, terms = follow(IteratedLags(2, 0), past, gaps)
    assert lags.n_rows == 299 - 10
    location = np.empty((2, 4, 2))
    lags.predict(past, calendar(terms, 299), location)
    assert np.abs(location - [5.0, -3.0]).max() < 3.0


@pytest.mark.parametrize("size", [1e3, 1e9])
def test_forecasts_stay_near_the_range_of_the_series(size):
    Y, _ = rotation(300)
    Y[150] += size
    past = Past(2, 0, 50)
    lags, terms = follow(IteratedLags(2, 0), past, Y)
    location = np.empty((2, 4, 2))
    lags.predict(past, calendar(terms, 299), location)
    lowest, highest = past.reach()
    assert np.isfinite(location).all()
    assert ((location >= lowest) & (location <= highest)).all()
    assert np.abs(location - [5.0, -3.0]).max() < 10.0


def test_series_that_are_the_same():
    y = rotation(200)[0][:, :1]
    past = Past(2, 0, 50)
    lags, terms = follow(IteratedLags(2, 0), past, np.repeat(y, 2, axis=1))
    location = np.empty((2, 4, 2))
    lags.predict(past, calendar(terms, 199), location)
    assert np.abs(location - 5.0).max() < 3.0
    assert_allclose(location[:, :, 0], location[:, :, 1], rtol=1e-6)


def test_the_next_of_many_paths_is_the_first_step():
    Y, _ = rotation(100)
    past = Past(2, 0, 200)
    lags, terms = follow(IteratedLags(2, 0), past, Y)
    location = np.empty((2, 4, 2))
    lags.predict(past, calendar(terms, 99), location)
    paths = np.repeat(past.series[None, past.first : past.last + 1], 3, axis=0)
    following = lags.predict_next(paths, past.last - past.first, terms[99])
    assert_allclose(following, np.repeat(location[:, :1], 3, axis=1), rtol=1e-12)


@pytest.mark.parametrize("n_rows", [0, 5, 90])
def test_restored_lags_resume_bit_for_bit(n_rows):
    Y, _ = rotation(150)
    past = Past(2, 0, 50)
    lags, _ = follow(IteratedLags(2, 0), past, Y[:n_rows])
    state, copy, other = lags.state(), IteratedLags(2, 0), Past(2, 0, 50)
    copy.restore(state)
    other.restore(past.state())
    follow(lags, past, Y[n_rows:])
    follow(copy, other, Y[n_rows:])
    assert_array_equal(copy.W, lags.W)
    assert_array_equal(copy.A, lags.A)
