"""Steps of a row of the forecaster: the same as their slow twins on arrays."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.horizon.features import FeatureMap
from momostream.horizon.past import Past
from momostream.horizon.settings import HorizonSettings
from momostream.kernels import forecasts
from momostream.kernels.horizon import components_learn
from momostream.kernels.mixture import mix_rows
from momostream.kernels.stack import stack_learn, stack_predict
from momostream.stream.stack import TAILS, cdf_tables, tail_candidates
from tests import naive

H, P, M, K = 4, 3, 5, 6
Q = H * P


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def learnt_mixture(rng):
    """Mixing, tails and outputs of a mixture that has learnt something."""
    mixing = np.empty((3, M, Q))
    mixing[0] = rng.dirichlet(np.ones(M), Q).T
    mixing[1], mixing[2] = rng.normal(size=(M, Q)), rng.integers(0, 4, size=(M, Q))
    outputs = np.abs(rng.normal(size=(4, Q))) + [[0.0], [200.0], [0.0], [0.5]]
    return mixing, rng.uniform(0.05, 2.0, size=(2, M, Q, 4)), outputs


def test_repeated_values_and_range():
    n, low, high = np.array([2.0, 2.0, 2.0, 0.0]), np.array([1.0, 1.0, 1.0, np.nan]), np.array([2.0, 2.0, 2.0, np.nan])
    least = np.array([0.5, 0.5, 2.0, 0.0])
    forecasts.past_note(np.array([1.5, np.nan, 3.0, 7.0]), np.array([1.5, 1.5, 1.5, 0.0]), n, low, high, least)
    assert_array_equal(least, [0.5, 0.5, 1.5, 7.0])
    assert_array_equal(n, [3.0, 2.0, 0.0, 0.0])
    assert_array_equal(low, [1.0, 1.0, 1.0, 7.0])
    assert_array_equal(high, [2.0, 2.0, 3.0, 7.0])
    found, values = np.empty((2, 4)), np.full(4, 9.0)
    low[1] = high[1] = np.nan
    forecasts.past_reach(0.2, values, low, high, *found)
    assert_allclose(found, naive.reach_of(values, low, high, 0.2))


@pytest.mark.parametrize(
    ("settings", "n_terms", "kind"), [({}, 0, None), ({"seasons": (7, 14)}, 3, 1), ({"lags": 30}, 2, None)]
)
def test_features_of_one_row_are_those_of_many_pasts(rng, settings, n_terms, kind):
    features = FeatureMap(HorizonSettings(horizon=5, **settings), n_series=P, n_inputs=2, n_terms=n_terms, kind=kind)
    past, terms = Past(P, 2 + n_terms, 40), rng.normal(size=n_terms)
    for n in range(25):
        past.append(rng.normal(size=P), rng.normal(size=2 + n_terms))
        rows = float(n), past.series, past.inputs, past.first, past.last
        f, point = features.of_row(*rows, terms)
        wanted = features.newest(*rows, past.earlier(features.seasonal_lags), terms)
        assert_array_equal(f, wanted[0])
        assert_array_equal(point, wanted[1])


@pytest.mark.parametrize("n_rows", [10, 400])
def test_moments_of_iterated_regressions(rng, n_rows):
    past, y, d = rng.normal(size=(9, 4, P)), rng.normal(size=P), 1 + P * 3 + 2
    past[4, 0], y[1], past[8, 0, 0] = 40.0, np.nan, 90.0
    terms, origin, W = rng.normal(size=2), rng.normal(size=P), rng.normal(size=(d, P))
    A, C, squares = n_rows * np.eye(d), rng.normal(size=(d, P)), np.full(P, float(n_rows))
    A[3, 3] = 0.0
    for first, now in ((0, 5), (7, 8)):
        wanted = naive.iterated_moments(past, first, now, 2, terms, origin, y, n_rows, 6.0, W, squares, A, C)
        args = past, first, now, 2, terms, origin, y, n_rows, 6.0, W, np.empty(d), np.empty(P), squares, A, C
        assert forecasts.iterated_learn(*args) == 1
        for found, expected in zip((squares, A, C), wanted, strict=True):
            assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    before = A.copy()
    args = past, 5, 5, 2, terms, origin, y, n_rows, 6.0, W, np.empty(d), np.empty(P), squares, A, C
    assert forecasts.iterated_learn(*args) == 0
    assert forecasts.iterated_learn(*args[:1], 0, *args[2:6], np.full(P, np.nan), *args[7:]) == 0
    assert_array_equal(A, before)
    largest = np.empty(d)
    forecasts.largest_features(6.0, n_rows, A, largest)
    assert_allclose(largest, np.where(np.diag(A) > 0.0, 6.0 * np.sqrt(np.diag(A) / n_rows), np.inf))


@pytest.mark.parametrize("mass", [5.0, 100.0])
def test_a_row_of_the_wide_regression(rng, mass):
    d = 7
    f, changes = rng.normal(size=d), rng.normal(size=Q)
    f[2], changes[1], changes[2], changes[3], changes[4] = 0.0, np.nan, 0.0, 90.0, -90.0
    squares, masses, varied = np.full(Q, mass), np.full(Q, mass), rng.uniform(size=d)
    S, W = np.stack([np.eye(d), 2.0 * np.eye(d)]), 3.0 * rng.normal(size=(2, d, Q))
    features, targets, learnt, scratch = np.empty(d), np.empty(Q), np.empty(Q), np.empty((2, Q))
    wanted = naive.wide_row(0.9, 6.0, f, changes, squares, masses, W)
    wanted_varied = 0.9 * varied + (f != 0.0)
    moved = [W[k] + np.outer(S[k] @ f, np.nan_to_num(wanted[2] - f @ W[k])) / (0.9 + f @ S[k] @ f) for k in range(2)]
    forecasts.wide_learn(
        0.9, 6.0, f, changes, varied, squares, masses, np.empty(d), *scratch, S, W, features, targets, learnt
    )
    assert_array_equal(features, f)
    assert_allclose(varied, wanted_varied)
    for found, expected in zip((squares, masses, learnt, targets, W), (*wanted, moved), strict=True):
        assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_tempered_errors_and_blended_means(rng):
    values, errors, planes = rng.normal(size=(H, P)), rng.normal(size=(K, H, P)), np.abs(rng.normal(size=(5, M, Q)))
    values[1, 2] = np.nan
    values[0, 0] = planes[0, 3, 0]
    found = np.empty_like(errors)
    forecasts.tempered_errors(values, errors, planes, found)
    away = np.maximum(np.abs(values.ravel() - planes[0, 3]), 0.1 * planes[1, 4]).reshape(H, P)
    assert_allclose(found, errors / np.sqrt(away))
    weights, mean = rng.uniform(size=(H, P, K)), np.empty((H, P))
    forecasts.blend_mean(errors, weights, mean)
    assert_allclose(mean, np.einsum("khp,hpk->hp", errors, weights))


def test_the_mixture_around_a_blend(rng):
    blend, middle, last = rng.normal(size=(H, P)), rng.normal(size=(H, P)), rng.normal(size=P)
    rests, factors = np.array([0.0, 1.0, 0.0]), rng.uniform(0.5, 2.0, size=(H, P))
    squares, masses = rng.uniform(size=(2, M, H, P)) + 0.1
    mixing, tails, outputs = learnt_mixture(rng)
    stds = np.empty((M, H, P))
    assert forecasts.deviations(squares, masses, stds) == 0
    assert_allclose(stds, np.sqrt(squares / masses * (1.0 + forecasts.NU0 / masses)))
    stds[0, 0, 0] = 0.0
    planes, wanted = np.empty((2, 5, M, Q))
    lumps = np.array([9.0, 0.01, 9.0])
    args = blend, middle, last, rests, lumps, stds, factors, tail_candidates(), mixing, tails, outputs
    forecasts.mixture_planes(3, 1, 4, 4.0, 1.0, *args, np.empty((3, M, Q)), planes, np.empty((3, Q)))
    at_last = np.arange(M)[:, None, None] >= 3
    wanted[0] = np.where(at_last, np.where(rests > 0.0, last, middle), blend).reshape(M, Q)
    wanted[1] = np.maximum(stds * factors, 1e-9 * np.abs(last) + 1e-100).reshape(M, Q)
    wanted[1, 3].reshape(H, P)[:, 1] = 0.01
    changed = mixing.copy()
    changed[0] = naive.weights_at_last(mixing[0], wanted, rests, H, 4.0, 1.0)
    stack_predict(0.0, tail_candidates(), changed, tails, outputs, wanted, np.empty(Q))
    assert_allclose(planes, wanted, rtol=1e-12)
    masses[2, 1, 1] = 0.0
    assert forecasts.deviations(squares, masses, stds) == 1


def test_the_mixture_learns(rng):
    y, factors = rng.normal(size=(H, P)), rng.uniform(0.5, 2.0, size=(H, P))
    y[2, 1] = np.nan
    squares, masses = rng.uniform(size=(2, M, H, P)) + 0.1
    mixing, tails, outputs = learnt_mixture(rng)
    outputs[0, :2] = -3.0
    speeds, rates = np.linspace(0.9, 0.99, M), np.array([0.02, 0.005, 0.003, 0.998, 0.001, 0.02])
    planes = np.abs(rng.normal(size=(5, M, Q))) + 0.2
    planes[3], planes[4] = 4.0, mixing[0]
    slow = [array.copy() for array in (squares, masses, mixing, tails, outputs, planes)]
    fast = [squares, masses, mixing, tails, outputs, planes]
    error, usual, scores, wanted_scores = np.empty((H, P)), np.empty((H, P)), np.empty(Q), np.empty(Q)
    wanted_usual = squares[2] / masses[2]
    tables, scratch = (tail_candidates(), cdf_tables()), (np.empty(M), np.empty((mix_rows(M, len(TAILS)), Q)))
    forecasts.mixture_learn(speeds, rates, 2, 0.1, -0.5, y, factors, *tables, *fast, error, usual, *scratch, scores)
    components_learn(speeds, (y - slow[5][0].reshape(M, H, P)) / factors, slow[0], slow[1])
    stack_learn(rates, y.ravel(), *tables, *slow[2:], np.empty(M), wanted_scores)
    np.maximum(slow[3][0], 0.1, out=slow[3][0])
    np.maximum(slow[4][0], -0.5, out=slow[4][0])
    for found, expected in zip(fast, slow, strict=True):
        assert_allclose(found, expected, rtol=1e-12)
    assert_allclose(scores, wanted_scores)
    assert_allclose(error, y - planes[0, 0].reshape(H, P))
    assert_allclose(usual, wanted_usual)


def test_factors_of_levels(rng):
    sums, found = rng.uniform(0.0, 900.0, size=(2, P, 9)), np.empty((P, 9))
    sums[0, 0, 0], sums[1, 0, 1] = 1e9, 1e9
    forecasts.level_log_factors(20.0, 0.05, 10.0, sums, found)
    assert_allclose(found, naive.level_log_factors(20.0, 0.05, 10.0, sums))


def test_correlations_of_steps_and_series(rng):
    scores = 4.0 * rng.normal(size=(H, P))
    scores[1, 2] = scores[3, 0] = np.nan
    steps, series = np.stack([np.eye(H), np.ones((H, H))]), np.stack([np.eye(P), np.ones((P, P))])
    wanted = naive.score_moments(0.9, 3.0, scores, *steps), naive.score_moments(0.9, 3.0, scores.T, *series)
    forecasts.correlation_learn(0.9, 3.0, scores, *steps, *series, *np.empty((2, H, P)))
    assert_allclose(steps, wanted[0])
    assert_allclose(series, wanted[1])


def test_a_ring_keeps_forecasts_and_scores(rng):
    located, slopes, planes = rng.normal(size=(K, H, P)), rng.normal(size=(2, H, P, 2)), rng.normal(size=(5, M, Q))
    kept = np.empty((H, K, P)), np.empty((H, 2, P, 2)), np.empty((H, 5, M, P))
    forecasts.keep_forecast(located, slopes, planes, *kept)
    assert_array_equal(kept[0], located.swapaxes(0, 1))
    assert_array_equal(kept[1], slopes.swapaxes(0, 1))
    assert_array_equal(kept[2], planes.reshape(5, M, H, P).transpose(2, 0, 1, 3))
    for row in (2, 11):
        scores, ring, steps = rng.normal(size=(H, P)), np.zeros((H, H, P)), np.arange(1, min(H, row) + 1)
        wanted = ring.copy()
        wanted[(row - steps) % H, steps - 1] = scores[: len(steps)]
        forecasts.keep_scores(row, scores, ring)
        assert_array_equal(ring, wanted)
