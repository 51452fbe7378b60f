"""Small dense matrices: factor and inverse are those of LAPACK."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.kernels.dense import factorise_dense, invert_dense
from momostream.kernels.scalar import NOT_POSITIVE_DEFINITE, OK

SIZES = (0, 1, 3, 4, 5, 8, 11, 33)


def positive_definite(n):
    A = np.random.default_rng(n).normal(size=(n, n + 2))
    return A @ A.T + 0.1 * np.eye(n)


@pytest.mark.parametrize("n", SIZES)
def test_factor_and_inverse(n):
    A = positive_definite(n)
    # The upper triangle holds anything.
    L = np.tril(A) + np.triu(np.full((n, n), np.nan), 1)
    assert factorise_dense(L) == OK
    assert_allclose(L, np.linalg.cholesky(A), rtol=1e-11, atol=1e-12)
    invert_dense(L, np.empty(n))
    expected = np.linalg.inv(A)
    assert_allclose(np.tril(L), np.tril(expected), rtol=1e-8, atol=1e-10 * np.abs(expected).max(initial=1.0))


@pytest.mark.parametrize("at", [0, 2, 6])
@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan, np.inf])
def test_a_pivot_that_is_not_positive(at, value):
    A = positive_definite(7)
    A[at, at] = value
    assert factorise_dense(A) == NOT_POSITIVE_DEFINITE


def test_above_the_diagonal_there_are_zeros():
    L = positive_definite(9)
    factorise_dense(L)
    assert_array_equal(np.triu(L, 1), 0.0)
