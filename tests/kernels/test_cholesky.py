"""The packed factor: same answers as `naive` after any history, compiled or interpreted."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from momostream.kernels.cholesky import (
    append_row,
    drop_oldest,
    pack_lower,
    project,
    rebuild,
    solve_lower,
    solve_upper,
    unpack_lower,
    unpack_rows,
)
from momostream.kernels.covariance import (
    MATERN32,
    MATERN52,
    RBF,
    covariance_column,
    cross_covariance,
    gram,
    gram_and_slope,
    likelihood_gradient,
    mirror_lower,
)
from momostream.kernels.scalar import NOT_POSITIVE_DEFINITE, OK
from tests import naive

LINEARS = (0.0, 0.3)


INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"


class Rows:
    """Rows and their factor, changed only by kernels, next to the plain rows that they should stand for."""

    def __init__(self, kind, linear, noise, n_inputs, n_targets, capacity):
        self.kind, self.linear, self.noise = kind, linear, noise
        self.capacity = capacity
        self.n = 0
        self.S = np.full((capacity, n_inputs), np.nan)
        self.Z = np.full((capacity, n_targets), np.nan)
        self.L = np.full(capacity * (capacity + 1) // 2, np.nan)
        self.v = np.full(capacity, np.nan)
        self.mean = np.full(n_targets, np.nan)
        self.work = np.full(2 * capacity + n_targets, np.nan)
        self.points: list[np.ndarray] = []
        self.targets: list[np.ndarray] = []

    def append(self, s, y):
        variance = project(self.kind, self.linear, self.S, self.L, self.Z, self.n, s, self.v, self.mean)
        pivot = math.sqrt(max(self.noise + variance, self.noise))
        append_row(self.n, s, self.v, pivot, y - self.mean, self.S, self.Z, self.L)
        self.n += 1
        self.points.append(s)
        self.targets.append(y)

    def drop(self):
        drop_oldest(self.n, self.S, self.Z, self.L, self.work)
        self.n -= 1
        del self.points[0], self.targets[0]

    def rebuild(self, start=0):
        Y = np.array(self.targets).reshape(self.n, self.Z.shape[1])
        return rebuild(self.kind, self.linear, self.noise, start, self.n, Y, self.v, self.mean, self.S, self.Z, self.L)

    def check(self):
        n = self.n
        points = np.array(self.points).reshape(n, self.S.shape[1])
        targets = np.array(self.targets).reshape(n, self.Z.shape[1])
        assert_array_equal(self.S[:n], points)
        L = naive.unpack(self.L, n)
        # Backward errors: L and Z themselves move by as much as the condition number lets them.
        scale = 1.0 + self.linear * float(np.max(np.sum(points**2, axis=1), initial=0.0))
        K = naive.gram(self.kind, self.linear, self.noise, points)
        assert_allclose(L @ L.T, K, rtol=0, atol=1e-13 * scale * (n + 1))
        size = (1.0 + np.max(np.abs(L), initial=0.0)) * (1.0 + np.max(np.abs(self.Z[:n]), initial=0.0))
        assert_allclose(L @ self.Z[:n], targets, rtol=0, atol=1e-13 * size * (n + 1))
        assert np.all(np.diag(L) > 0)


def points(rng, n, n_inputs):
    S = rng.normal(size=(n, n_inputs))
    if n > 3:
        S[n // 2] = S[0]
        S[n - 1] = S[0]
    return S


@pytest.mark.parametrize("n", [*range(10), 31, 64])
def test_triangular_solves(n):
    rng = np.random.default_rng(n)
    dense = np.tril(rng.normal(size=(n, n)) / math.sqrt(n + 1)) + 2 * np.eye(n)
    L = np.concatenate([naive.pack(dense), [np.nan]])
    b = rng.normal(size=n + 2)
    x = b.copy()
    solve_lower(L, n, x)
    assert_allclose(x[:n], np.linalg.solve(dense, b[:n]), rtol=1e-11, atol=1e-12)
    assert_array_equal(x[n:], b[n:])
    x = b.copy()
    solve_upper(L, n, x)
    assert_allclose(x[:n], np.linalg.solve(dense.T, b[:n]), rtol=1e-11, atol=1e-12)
    assert_array_equal(x[n:], b[n:])


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_pack_and_unpack(n):
    dense = np.random.default_rng(n).normal(size=(n, n))
    L = np.full(n * (n + 1) // 2, np.nan)
    pack_lower(dense, n, L)
    assert_array_equal(L, naive.pack(dense))
    out = np.full((n, n), np.nan)
    unpack_lower(L, n, out)
    assert_array_equal(out, np.tril(dense))
    mirror_lower(out)
    assert_array_equal(out, np.tril(dense) + np.tril(dense, -1).T)


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 3), (2, 7), (6, 7), (0, 7)])
def test_unpack_rows(start, stop):
    dense = np.tril(np.random.default_rng(0).normal(size=(7, 7)))
    left, diagonal = np.full((stop - start, start), np.nan), np.full((stop - start, stop - start), 5.0)
    unpack_rows(naive.pack(dense), start, stop, left, diagonal)
    assert_array_equal(left, dense[start:stop, :start])
    assert_array_equal(np.tril(diagonal), dense[start:stop, start:stop])
    assert_array_equal(diagonal[np.triu_indices(stop - start, 1)], 5.0)


@pytest.mark.parametrize("kind", naive.KINDS)
@pytest.mark.parametrize("linear", LINEARS)
@pytest.mark.parametrize("n", [0, 1, 6, 13])
def test_project(kind, linear, n):
    rng = np.random.default_rng(n)
    rows = Rows(kind, linear, 0.01, 3, 2, 16)
    for s in points(rng, n, 3):
        rows.append(s, rng.normal(size=2))
    s = rng.normal(size=3)
    variance = project(kind, linear, rows.S, rows.L, rows.Z, n, s, rows.v, rows.mean)
    S, Y = np.array(rows.points).reshape(n, 3), np.array(rows.targets).reshape(n, 2)
    mean, expected = naive.predict(kind, linear, 0.01, S, Y, s)
    assert_allclose(rows.mean, mean, rtol=1e-9, atol=1e-10)
    assert_allclose(variance, expected, rtol=1e-9, atol=1e-10)
    k = naive.cross_covariance(kind, linear, S, s[None])[:, 0]
    assert_allclose(naive.unpack(rows.L, n) @ rows.v[:n], k, atol=1e-12)


STEPS = st.lists(st.sampled_from(["append", "append", "append", "twice", "drop", "rebuild"]), max_size=30)


@settings(max_examples=30 if INTERPRETED else 100, deadline=None, derandomize=True)
@given(
    steps=STEPS,
    kind=st.sampled_from(naive.KINDS),
    linear=st.sampled_from(LINEARS),
    noise=st.sampled_from([1e-12, 1e-6, 1e-2, 1.0]),
    n_inputs=st.integers(0, 4),
    n_targets=st.integers(0, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_history_matches_naive(steps, kind, linear, noise, n_inputs, n_targets, seed):
    rng = np.random.default_rng(seed)
    rows = Rows(kind, linear, noise, n_inputs, n_targets, capacity=32)
    for step in steps:
        if step == "append" or (step == "twice" and rows.n == 0):
            rows.append(rng.normal(size=n_inputs), rng.normal(size=n_targets))
        elif step == "twice":
            rows.append(rows.points[rng.integers(rows.n)], rng.normal(size=n_targets))
        elif step == "drop" and rows.n > 0:
            rows.drop()
        elif step == "rebuild":
            assert rows.rebuild(start=int(rng.integers(rows.n + 1))) == OK
    rows.check()


@pytest.mark.parametrize("kind", naive.KINDS)
@pytest.mark.parametrize("noise", [1e-12, 1e-4, 1.0])
def test_window_that_slides_for_long(kind, noise):
    rng = np.random.default_rng(8)
    size = 12 if INTERPRETED else 60
    rows = Rows(kind, 0.0, noise, 2, 3, capacity=size + 1)
    for _ in range(5 * size):
        rows.append(rng.normal(size=2), rng.normal(size=3))
        if rows.n > size:
            rows.drop()
    # Distinct points (RBF excepted, numerically): errors must not pile up over the generations of rows.
    n = rows.n
    L = naive.unpack(rows.L, n)
    K = naive.gram(kind, 0.0, noise, np.array(rows.points))
    assert_allclose(L @ L.T, K, rtol=0, atol=1e-12)
    residual = np.abs(L @ rows.Z[:n] - np.array(rows.targets))
    assert np.max(residual) <= 1e-12 * (1.0 + np.max(np.abs(rows.Z[:n])))


def test_drop_down_to_nothing_and_start_again():
    rng = np.random.default_rng(9)
    rows = Rows(MATERN32, 0.2, 1e-3, 2, 2, capacity=11)
    for _ in range(2):
        for _ in range(11):
            rows.append(rng.normal(size=2), rng.normal(size=2))
        while rows.n:
            rows.drop()
            rows.check()


@pytest.mark.parametrize("kind", naive.KINDS)
@pytest.mark.parametrize("linear", LINEARS)
@pytest.mark.parametrize("n_targets", [0, 1, 3, 7])
@pytest.mark.parametrize("n_inputs", [0, 1, 3, 9])
@pytest.mark.parametrize("noise", [1e-12, 1e-2])
def test_rebuild_equals_appending_bit_for_bit(kind, linear, n_targets, n_inputs, noise):
    rng = np.random.default_rng(10)
    n = 18 if INTERPRETED else 90
    rows = Rows(kind, linear, noise, n_inputs, n_targets, capacity=n + 3)
    for s in points(rng, n, n_inputs):
        rows.append(s, rng.normal(size=n_targets))
    L, Z, S = rows.L.copy(), rows.Z.copy(), rows.S.copy()
    for start in (0, 1, n // 2, n - 1, n):
        rows.L[start * (start + 1) // 2 :] = np.nan
        rows.Z[start:] = np.nan
        assert rows.rebuild(start) == OK
        assert_array_equal(rows.L, L)
        assert_array_equal(rows.Z, Z)
        assert_array_equal(rows.S, S)


def test_duplicates_without_noise_to_speak_of_keep_the_pivot_at_the_noise():
    rows = Rows(RBF, 0.0, 1e-12, 1, 1, capacity=20)
    for _ in range(20):
        rows.append(np.array([0.5]), np.array([1.0]))
    pivots = np.diag(naive.unpack(rows.L, 20))
    assert np.all(pivots >= 1e-6)
    assert np.all(np.isfinite(rows.Z))


def rebuild_a_duplicate(first_pivot, noise):
    """Row 1 repeats row 0; a first pivot below 1 stands for round-off: the variance left is negative."""
    rows = Rows(MATERN32, 0.0, noise, 1, 1, capacity=2)
    rows.S[:] = 0.3
    rows.Z[0] = 0.0
    rows.L[0] = first_pivot
    rows.n, rows.targets = 2, [np.zeros(1), np.zeros(1)]
    return rows.rebuild(start=1), rows.L[2]


def test_rebuild_takes_no_variance_below_the_noise():
    status, pivot = rebuild_a_duplicate(1.0 - 1e-9, noise=1e-6)
    assert status == OK
    assert pivot == math.sqrt(1e-6)


def test_rebuild_reports_a_duplicate_without_noise():
    status, _ = rebuild_a_duplicate(1.0, noise=0.0)
    assert status == NOT_POSITIVE_DEFINITE


@pytest.mark.filterwarnings("ignore:overflow")
def test_rebuild_reports_a_factor_that_has_broken_down():
    status, _ = rebuild_a_duplicate(1e-200, noise=1e-6)
    assert status == NOT_POSITIVE_DEFINITE


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow", "ignore:divide by zero")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("linear", LINEARS)
def test_rebuild_reports_rows_that_are_not_numbers(bad, linear):
    rng = np.random.default_rng(11)
    rows = Rows(MATERN52, linear, 1e-3, 2, 1, capacity=8)
    for _ in range(8):
        rows.append(rng.normal(size=2), rng.normal(size=1))
    L = rows.L.copy()
    rows.S[5, 1] = bad
    assert rows.rebuild() == NOT_POSITIVE_DEFINITE
    assert_array_equal(rows.L[: 5 * 6 // 2], L[: 5 * 6 // 2])


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("kind", naive.KINDS)
@pytest.mark.parametrize("linear", LINEARS)
def test_nan_stays_nan(kind, linear):
    rng = np.random.default_rng(12)
    rows = Rows(kind, linear, 0.1, 2, 2, capacity=6)
    s = np.array([np.nan, 0.0])
    assert np.isnan(project(kind, linear, rows.S, rows.L, rows.Z, 0, s, rows.v, rows.mean))
    for _ in range(5):
        rows.append(rng.normal(size=2), rng.normal(size=2))
    assert np.isnan(project(kind, linear, rows.S, rows.L, rows.Z, 5, s, rows.v, rows.mean))
    assert np.all(np.isnan(rows.v[:5])) and np.all(np.isnan(rows.mean))
    S = rng.normal(size=(4, 2))
    S[2, 0] = np.nan
    K, G = np.empty((4, 4)), np.empty((4, 4))
    gram_and_slope(kind, linear, 0.1, np.ascontiguousarray(S.T), K, G)
    mirror_lower(K)
    mirror_lower(G)
    touched = np.isnan(S).any(axis=1)
    touched = touched[:, None] | touched[None, :]
    assert_array_equal(np.isnan(K), touched)
    assert_array_equal(np.isnan(G), touched & ~np.eye(4, dtype=bool))
    b = np.array([1.0, np.nan, 1.0, 1.0, 1.0])
    solve_lower(rows.L, 5, b)
    assert_array_equal(np.isnan(b), [False, True, True, True, True])
    b = np.array([1.0, np.nan, 1.0, 1.0, 1.0])
    solve_upper(rows.L, 5, b)
    assert_array_equal(np.isnan(b), [True, True, False, False, False])
    # A target that is missing spoils its own output only.
    rows.append(rng.normal(size=2), np.array([np.nan, 1.0]))
    assert_array_equal(np.isnan(rows.Z[5]), [True, False])


def frozen(*arrays):
    copies = [np.array(a, dtype=np.float64, order="C") for a in arrays]
    for a in copies:
        a.flags.writeable = False
    return copies


def test_inputs_may_be_read_only():
    rng = np.random.default_rng(13)
    n = 6
    S, Y, s = frozen(rng.normal(size=(n, 2)), rng.normal(size=(n, 3)), rng.normal(size=2))
    kind, linear, noise = MATERN32, 0.1, 0.1
    K, G, v, mean = np.empty((n, n)), np.empty((n, n)), np.empty(n), np.empty(3)
    covariance_column(kind, linear, S, n, s, v)
    cross_covariance(kind, linear, S, S, K)
    gram(kind, linear, noise, S, K)
    T = np.ascontiguousarray(S.T)
    T.flags.writeable = False
    gram_and_slope(kind, linear, noise, T, K, G)
    mirror_lower(K)
    likelihood_gradient(*frozen(K, np.ones((3, n))), 1.0, G, T, np.empty(n), np.empty(3))
    L = np.empty(n * (n + 1) // 2)
    pack_lower(*frozen(np.linalg.cholesky(K)), n, L)
    own_S, own_Z, own_L = np.empty((n, 2)), np.empty((n, 3)), np.empty_like(L)
    own_S[:] = S
    assert rebuild(kind, linear, noise, 0, n, Y, v, mean, own_S, own_Z, own_L) == OK
    assert_allclose(own_L, L, rtol=1e-12)
    L, Z = frozen(L, own_Z)
    unpack_lower(L, n, K)
    unpack_rows(L, 0, n, np.empty((n, 0)), K)
    solve_lower(L, n, np.ones(n))
    solve_upper(L, n, np.ones(n))
    project(kind, linear, S, L, Z, n, s, v, mean)
    v, residual = frozen(v, mean)
    append_row(n - 1, s, v, 1.0, residual, own_S, own_Z, own_L)
