"""The likelihood on few rows is that of LAPACK, and the direction of the search that of the two-loop recursion."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.gp import tuning
from momostream.gp.covariance import KERNELS, Covariance
from momostream.kernels.likelihood import search_direction
from tests import naive


@pytest.mark.parametrize("text", [*KERNELS, "matern32+linear"])
@pytest.mark.parametrize(("n", "n_inputs", "n_targets"), [(1, 1, 1), (7, 3, 2), (20, 0, 1), (64, 9, 6)])
def test_few_rows_have_the_likelihood_of_many(text, n, n_inputs, n_targets, monkeypatch):
    covariance, rng = Covariance.parse(text), np.random.default_rng(1)
    X, R = rng.normal(size=(n, n_inputs)), rng.normal(size=(n, n_targets))
    theta = 0.3 * rng.normal(size=covariance.n_parameters(n_inputs))
    value, gradient = tuning.log_likelihood(covariance, theta, X, R)
    monkeypatch.setattr(tuning, "FEW", 0)
    expected, slope = tuning.log_likelihood(covariance, theta, X, R)
    assert value == pytest.approx(expected, rel=1e-10)
    assert_allclose(gradient, slope, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_moves", [0, 1, 6])
@pytest.mark.parametrize("at_bound", [False, True])
def test_direction_of_the_search(n_moves, at_bound):
    rng = np.random.default_rng(n_moves)
    theta, gradient = rng.normal(size=5), 3.0 * rng.normal(size=5)
    lower, upper = theta - 1.0, theta + 1.0
    if at_bound:
        lower[0], upper[1] = theta[0], theta[1]
        gradient[0], gradient[1] = 2.0, -2.0
    moves = rng.normal(size=(n_moves, 5))
    turns = moves + 0.1 * rng.normal(size=(n_moves, 5))
    direction = np.empty(5)
    assert search_direction(lower, upper, theta, gradient, moves, turns, 0.5, np.empty(n_moves), direction) == 1
    free = np.array([not at_bound, not at_bound, True, True, True])
    expected = naive.search_direction(free, gradient, moves, turns, 0.5)
    assert_allclose(direction, expected, rtol=1e-12, atol=1e-14)
    assert np.abs(direction).max() <= 0.5 + 1e-12
    assert_array_equal(direction[~free], 0.0)


def test_a_memory_that_leads_up_is_not_used():
    theta, gradient, direction = np.zeros(2), np.array([1.0, 0.0]), np.empty(2)
    moves, turns = np.array([[1.0, 0.0]]), np.array([[-1.0, 0.0]])
    assert search_direction(theta - 9.0, theta + 9.0, theta, gradient, moves, turns, 2.0, np.empty(1), direction) == 0
    assert_array_equal(direction, [-1.0, 0.0])
