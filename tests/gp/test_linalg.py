"""BLAS-3 versions: same answers as `np.linalg`, no needless copies."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.gp import linalg
from tests import naive

SIZES = [0, 1, 2, 5, 33]


def problem(n, n_right=4):
    rng = np.random.default_rng(n)
    A = rng.normal(size=(n, n + 3))
    K = A @ A.T / (n + 3) + 0.1 * np.eye(n)
    return (K + K.T) / 2, rng.normal(size=(n, n_right))


def packed(K):
    return np.concatenate([naive.pack(np.linalg.cholesky(K)), [np.nan]])


@pytest.mark.parametrize("n", SIZES)
def test_factorise(n):
    K, _ = problem(n)
    L = linalg.factorise(K.copy())
    assert L.shape == (n * (n + 1) // 2,)
    assert_allclose(L, naive.pack(np.linalg.cholesky(K)), rtol=1e-12, atol=1e-14)


def test_factorise_reads_the_lower_triangle_only():
    K, _ = problem(5)
    assert_array_equal(linalg.factorise(np.tril(K)), linalg.factorise(K.copy()))


def test_factorise_works_in_place():
    K, _ = problem(5)
    work = K.copy()
    linalg.factorise(work)
    assert_allclose(np.tril(work), np.linalg.cholesky(K), rtol=1e-12, atol=1e-14)


def test_factorise_leaves_other_memory_alone():
    K, _ = problem(5)
    expected = naive.pack(np.linalg.cholesky(K))
    frozen = K.copy()
    frozen.flags.writeable = False
    fortran = np.asfortranarray(K)
    single = K.astype(np.float32)
    assert_allclose(linalg.factorise(frozen), expected, rtol=1e-12)
    assert_array_equal(frozen, K)
    assert_allclose(linalg.factorise(fortran), expected, rtol=1e-12)
    assert_array_equal(fortran, K)
    assert_allclose(linalg.factorise(single), expected, rtol=1e-4)
    assert_allclose(single, K, rtol=1e-6)


@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 3, 4])
def test_factorise_refuses(value, at):
    K, _ = problem(5)
    K[at, at] = value
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        linalg.factorise(K)


def test_factorise_refuses_nan_off_the_diagonal():
    K, _ = problem(5)
    K[3, 1] = K[1, 3] = np.nan
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        linalg.factorise(K)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("n_right", [0, 1, 7])
@pytest.mark.parametrize("panel", [1, 4, 512])
def test_solve_many(n, n_right, panel, monkeypatch):
    monkeypatch.setattr(linalg, "PANEL", panel)
    K, B = problem(n, n_right)
    L, before = packed(K), B.copy()
    triangle = np.linalg.cholesky(K)
    assert_allclose(linalg.solve_many(L, n, B), np.linalg.solve(triangle, B), rtol=1e-10, atol=1e-12)
    assert_allclose(linalg.solve_many_transposed(L, n, B), np.linalg.solve(triangle.T, B), rtol=1e-10, atol=1e-12)
    assert_array_equal(B, before)


@pytest.mark.parametrize("solve", [linalg.solve_many, linalg.solve_many_transposed])
def test_solve_in_place(solve):
    K, B = problem(9)
    L = packed(K)
    expected = solve(L, 9, B)
    answer = solve(L, 9, B, overwrite=True)
    assert answer is B
    assert_array_equal(answer, expected)


@pytest.mark.parametrize("solve", [linalg.solve_many, linalg.solve_many_transposed])
@pytest.mark.parametrize("overwrite", [False, True])
def test_solve_reads_any_memory(solve, overwrite):
    K, B = problem(9)
    L = packed(K)
    L.flags.writeable = False
    expected = solve(L, 9, B)
    frozen = B.copy()
    frozen.flags.writeable = False
    assert_array_equal(solve(L, 9, frozen, overwrite=overwrite), expected)
    assert_array_equal(frozen, B)
    assert_array_equal(solve(L, 9, np.asfortranarray(B), overwrite=overwrite), expected)
    assert_array_equal(solve(L, 9, np.repeat(B, 2, axis=1)[:, ::2], overwrite=overwrite), expected)


def test_solve_keeps_nan_to_its_column():
    K, B = problem(9)
    B[2, 1] = np.nan
    answer = linalg.solve_many(packed(K), 9, B)
    assert_array_equal(np.isnan(answer).any(axis=0), [False, True, False, False])


@pytest.mark.parametrize("n", SIZES)
def test_inverse(n):
    K, _ = problem(n)
    L = packed(K)
    L.flags.writeable = False
    answer = linalg.inverse(L, n)
    assert answer.shape == (n, n) and answer.flags.c_contiguous
    assert_array_equal(answer, answer.T)
    assert_allclose(answer, np.linalg.inv(K), rtol=1e-9, atol=1e-10)
    assert_allclose(linalg.inverse_diagonal(L, n), np.diag(np.linalg.inv(K)), rtol=1e-9)


@pytest.mark.parametrize("function", [linalg.inverse, linalg.inverse_diagonal])
def test_a_singular_factor_has_no_inverse(function):
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        function(np.array([1.0, 1.0, 0.0]), 2)


def test_leave_one_out_variances_from_the_inverse_diagonal():
    S = np.random.default_rng(0).normal(size=(8, 2))
    K = naive.gram(naive.MATERN32, 0.0, 0.1, S)
    diagonal = linalg.inverse_diagonal(linalg.factorise(K.copy()), 8)
    for i in range(8):
        others = np.delete(np.arange(8), i)
        _, variance = naive.predict(naive.MATERN32, 0.0, 0.1, S[others], np.zeros((7, 1)), S[i])
        assert_allclose(1 / diagonal[i], variance + 0.1, rtol=1e-10)
