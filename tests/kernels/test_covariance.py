"""Covariances and gradients of their likelihood: same answers as `naive`, compiled or interpreted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.gp.covariance import Covariance
from momostream.gp.tuning import log_likelihood
from momostream.kernels.covariance import (
    MATERN12,
    RBF,
    TILE,
    _correlate,
    covariance_column,
    cross_covariance,
    gram,
    gram_and_slope,
    likelihood_gradient,
    mirror_lower,
)
from momostream.kernels.scalar import decay
from tests import naive

# Interpreted code says what compiled code keeps to itself.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered")
LINEARS = (0.0, 0.3)


def points(rng, n, n_inputs):
    S = rng.normal(size=(n, n_inputs))
    if n > 3:
        S[n // 2] = S[0]
        S[n - 1] = S[0]
    return S


@pytest.mark.parametrize("kind", naive.KINDS)
@pytest.mark.parametrize("linear", LINEARS)
@pytest.mark.parametrize(("n", "n_inputs"), [(0, 2), (1, 3), (7, 0), (9, 1), (40, 5)])
class TestCovariances:
    def test_covariance_column(self, kind, linear, n, n_inputs):
        rng = np.random.default_rng(1)
        S, s = points(rng, n + 2, n_inputs), rng.normal(size=n_inputs)
        out = np.full(n + 3, 7.0)
        covariance_column(kind, linear, S, n, s, out)
        assert_allclose(out[:n], naive.cross_covariance(kind, linear, S[:n], s[None])[:, 0], rtol=1e-13, atol=1e-14)
        assert_array_equal(out[n:], 7.0)

    def test_cross_covariance(self, kind, linear, n, n_inputs):
        rng = np.random.default_rng(2)
        S, T = points(rng, n, n_inputs), points(rng, 6, n_inputs)
        out = np.full((n, 6), np.nan)
        cross_covariance(kind, linear, S, T, out)
        assert_allclose(out, naive.cross_covariance(kind, linear, S, T), rtol=1e-13, atol=1e-14)
        turned = np.full((6, n), np.nan)
        cross_covariance(kind, linear, T, S, turned)
        assert_allclose(turned, out.T, rtol=1e-13, atol=1e-14)

    def test_gram(self, kind, linear, n, n_inputs):
        S = points(np.random.default_rng(3), n, n_inputs)
        out = np.full((n, n), np.nan)
        gram(kind, linear, 0.1, S, out)
        assert_allclose(out, naive.gram(kind, linear, 0.1, S), rtol=1e-13, atol=1e-14)
        assert_array_equal(out, out.T)

    def test_gram_and_slope(self, kind, linear, n, n_inputs):
        S = points(np.random.default_rng(4), n, n_inputs)
        K, G, same = np.full((n, n), np.nan), np.full((n, n), np.nan), np.full((n, n), np.nan)
        gram_and_slope(kind, linear, 0.1, np.ascontiguousarray(S.T), K, G)
        gram(kind, linear, 0.1, S, same)
        below = np.tril_indices(n)
        assert_allclose(K[below], same[below], rtol=1e-14, atol=1e-15)
        assert np.all(np.isnan(K[np.triu_indices(n, 1)])) and np.all(np.isnan(G[np.triu_indices(n, 1)]))
        mirror_lower(G)
        assert_array_equal(np.diag(G), 0.0)
        assert np.all(np.isfinite(G))
        apart = np.array([[np.any(s != t) for t in S] for s in S], dtype=bool).reshape(n, n)
        assert_allclose(G[apart], naive.slopes(kind, S)[apart], rtol=1e-12, atol=1e-14)
        if kind == MATERN12:
            assert_array_equal(G[~apart], 0.0)


def test_gram_larger_than_a_tile():
    S = np.random.default_rng(6).normal(size=(2 * TILE + 5, 2))
    out = np.full((len(S), len(S)), np.nan)
    gram(RBF, 0.0, 0.0, S, out)
    assert_allclose(out, naive.gram(RBF, 0.0, 0.0, S), rtol=1e-13)


@pytest.mark.parametrize("kind", naive.KINDS)
@pytest.mark.parametrize("distance", [0.0, 5e-324, 1e-160, 1e-8, 1e3, 1e100, 1e160])
@pytest.mark.filterwarnings("ignore:overflow")
def test_any_distance_gives_finite_numbers(kind, distance):
    S = np.array([[0.0], [distance]])
    K, G = np.empty((2, 2)), np.empty((2, 2))
    gram_and_slope(kind, 0.0, 0.0, np.ascontiguousarray(S.T), K, G)
    mirror_lower(K)
    mirror_lower(G)
    assert np.all(np.isfinite(K)) and np.all(np.isfinite(G))
    assert 0.0 <= K[0, 1] <= 1.0
    out = np.empty((2, 2))
    gram(kind, 0.0, 0.0, S, out)
    assert_array_equal(out, K)


@pytest.mark.parametrize("kind", naive.KINDS)
def test_gradient_of_the_log_marginal_likelihood(kind):
    rng = np.random.default_rng(7)
    X, y, noise = rng.normal(size=(12, 3)), rng.normal(size=12), 0.05
    logs = np.array([-0.2, 0.4, 0.1])
    expected = naive.finite_difference_gradient(
        lambda logs: naive.log_marginal_likelihood(kind, 0.0, noise, np.exp(logs), X, y), logs
    )
    S = X / np.exp(logs)
    K, G, gradient = np.empty((12, 12)), np.empty((12, 12)), np.empty(3)
    T = np.ascontiguousarray(S.T)
    gram_and_slope(kind, 0.0, noise, T, K, G)
    mirror_lower(K)
    alpha = np.linalg.solve(K, y)
    # The slope of the log likelihood by K is half of alpha alpha' - K^-1; the kernel takes its negative.
    with_trace = np.empty(len(gradient) + 1)
    likelihood_gradient(np.linalg.inv(K), alpha[None], 1.0, G, T, np.empty(12), with_trace)
    gradient[:] = -with_trace[:-1]
    assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)


TEXTS = ("matern12", "matern32", "matern52", "rbf", "matern32+linear", "rbf+linear")


def test_decay_of_nan_is_nan():
    assert math.isnan(decay(math.nan))
    values = np.array([1.0, np.nan, 1e6])
    for kind in naive.KINDS:
        out = values.copy()
        _correlate(kind, out)
        assert_array_equal(np.isnan(out), [False, True, False])


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("n", "n_inputs", "n_targets"), [(12, 3, 1), (9, 1, 3), (6, 0, 2), (1, 2, 2)])
@pytest.mark.parametrize("given", [False, True])
def test_gradient_of_the_likelihood(text, n, n_inputs, n_targets, given):
    rng = np.random.default_rng(2)
    covariance = Covariance.parse(text)
    X, R = rng.normal(size=(n, n_inputs)), rng.normal(size=(n, n_targets))
    theta = rng.normal(size=covariance.n_parameters(n_inputs)) * 0.3
    theta[n_inputs] = math.log(0.05)
    signal = np.linspace(0.5, 2.0, n_targets) if given else None
    _, gradient = log_likelihood(covariance, theta, X, R, signal)

    def value(theta):
        return log_likelihood(covariance, theta, X, R, signal)[0]

    m = len(theta)
    assert_allclose(gradient[:m], naive.finite_difference_gradient(value, theta), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("n", "D", "P"), [(0, 2, 1), (1, 0, 1), (7, 3, 2), (9, 1, 4)])
def test_likelihood_gradient_by_its_definition(n, D, P):
    rng = np.random.default_rng(3)
    inverse, G = (a + a.T for a in rng.normal(size=(2, n, n)))
    A, T = rng.normal(size=(P, n)), rng.normal(size=(D, n))
    W = 1.5 * inverse - A.T @ A
    out = np.full(D + 1, np.nan)
    upper = np.triu(np.full((n, n), np.nan), 1)
    # The upper triangles hold anything.
    likelihood_gradient(np.tril(inverse) + upper, A, 1.5, np.tril(G) + upper, T, np.empty(n), out)
    assert_allclose(out[:D], naive.gradient_contraction(W, G, T.T), rtol=1e-10, atol=1e-12)
    assert_allclose(out[D], 0.5 * np.trace(W), rtol=1e-10, atol=1e-12)
