"""The factor that regions and leaves share: dense algebra after any history."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.gp.covariance import Covariance
from momostream.gp.factor import Factor, grown, packed, scaled
from tests import naive

TEXTS = ("matern12", "rbf", "matern32+linear")
each_kernel = pytest.mark.parametrize("text", TEXTS)
each_precision = pytest.mark.parametrize("precision", [np.float64, np.float32])


def new_factor(text="matern32", n_inputs=2, n_targets=2, capacity=40, noise=0.05, precision=np.float64):
    covariance = Covariance.parse(text)
    linear = [math.log(0.2)] if covariance.linear else []
    theta = np.concatenate([np.linspace(-0.2, 0.3, n_inputs), [math.log(noise)], linear])
    inputs = np.vstack([np.full(n_inputs, 0.5), covariance.inverse_lengths(theta)])
    return Factor(covariance, theta, inputs, n_targets, capacity, precision)


def problem(n, n_inputs=2, n_targets=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n_inputs)), rng.normal(size=(n, n_targets))


def append(factor, x, r):
    """Append one row as a region does."""
    s, mean = factor.scaled(x), np.empty(len(r))
    variance = factor.project(s, mean)
    factor.append(s, math.sqrt(max(factor.noise + variance, factor.noise)), r - mean)


def check(factor, X, R, rtol=1e-9):
    """The factor is that of the rows, and what it solves is solved."""
    n, S = factor.n_rows, scaled(X, factor.inputs)
    assert n == len(X)
    K = naive.gram(factor.kind, factor.linear, factor.noise, S) if n else np.empty((0, 0))
    L = factor.dense()
    assert_array_equal(factor.S[:n], S)
    assert_array_equal(np.triu(L, 1), 0.0)
    assert_allclose(L @ L.T, K, rtol=rtol, atol=rtol)
    assert_allclose(L @ factor.Z[:n], R, rtol=100 * rtol, atol=100 * rtol)
    assert_array_equal(factor.pivots, L.diagonal())


@each_kernel
@pytest.mark.parametrize("n_blocked", [0, 1, 17, 30])
def test_built_in_a_block_and_row_by_row(text, n_blocked):
    X, R = problem(30)
    factor = new_factor(text)
    factor.build(X, R, n_blocked)
    check(factor, X, R)
    assert factor.capacity == 40


@each_kernel
def test_rows_one_by_one_are_those_that_a_build_makes_bit_for_bit(text):
    X, R = problem(30)
    built, appended = new_factor(text), new_factor(text)
    built.build(X, R, 20)
    appended.build(X[:20], R[:20], 20)
    for x, r in zip(X[20:], R[20:], strict=True):
        append(appended, x, r)
    for name in ("S", "Z"):
        assert_array_equal(getattr(built, name)[:30], getattr(appended, name)[:30])
    assert_array_equal(built.L[: packed(30)], appended.L[: packed(30)])


@each_kernel
@each_precision
@pytest.mark.parametrize("sizes", [(1,), (24,), (5, 1, 12)])
def test_blocks(text, sizes, precision):
    X, R = problem(sum(sizes))
    factor = new_factor(text, precision=precision)
    for part in np.split(np.arange(len(X)), np.cumsum(sizes)[:-1]):
        pivots, solved = factor.append_block(X[part], R[part].copy())
        assert_allclose(pivots, factor.pivots[part], rtol=1e-6)
        assert_array_equal(solved, factor.Z[part])
    check(factor, X, R, rtol=1e-9 if precision is np.float64 else 1e-5)


@each_kernel
@pytest.mark.parametrize("count", [1, 7, 30])
def test_the_oldest_rows_are_dropped(text, count):
    X, R = problem(30)
    factor = new_factor(text)
    factor.build(X, R, 30)
    factor.open_gaps()
    factor.gaps[20] = 1.0
    factor.drop_oldest(count)
    check(factor, X[count:], R[count:])
    assert factor.n_dropped == count
    assert_array_equal(np.flatnonzero(factor.gaps[:, 0]), [20 - count] if count <= 20 else [])


def test_growing_keeps_rows_gaps_and_what_was_projected():
    X, R = problem(40)
    factor = new_factor()
    factor.build(X, R, 40)
    factor.open_gaps()
    factor.gaps[3] = 1.0
    mean = np.empty(2)
    factor.project(factor.scaled(X[0]), mean)
    v, before = factor.v.copy(), factor.nbytes
    factor.grow(60)
    check(factor, X, R)
    assert factor.capacity == len(factor.gaps) == len(factor.v) == 60
    assert_array_equal(factor.v[:40], v)
    assert_array_equal(np.flatnonzero(factor.gaps[:, 1]), [3])
    assert factor.nbytes > before
    append(factor, X[0], R[0])
    check(factor, np.vstack([X, X[:1]]), np.vstack([R, R[:1]]))


@each_kernel
def test_solves_and_inverses(text):
    X, R = problem(20)
    factor = new_factor(text)
    factor.build(X, R, 20)
    K = naive.gram(factor.kind, factor.linear, factor.noise, factor.S[:20])
    assert_allclose(factor.solve_transposed(factor.solve(R)), np.linalg.solve(K, R), rtol=1e-8)
    assert_allclose(factor.inverse(), np.linalg.inv(K), rtol=1e-7, atol=1e-9)
    assert_allclose(factor.inverse_diagonal(), np.diag(np.linalg.inv(K)), rtol=1e-8)


@each_kernel
@pytest.mark.parametrize("n", [0, 20])
def test_many_projections_are_those_one_by_one(text, n):
    X, R = problem(n)
    factor = new_factor(text)
    factor.build(X, R, n)
    new, _ = problem(5, seed=1)
    T, V, prior = factor.project_rows(new)
    for i, x in enumerate(new):
        mean = np.empty(2)
        variance = factor.project(factor.scaled(x), mean)
        assert_array_equal(T[i], factor.scaled(x))
        assert_allclose(V[:, i], factor.v[:n], rtol=1e-9, atol=1e-12)
        assert_allclose(prior[i] - V[:, i] @ V[:, i], variance, rtol=1e-9, atol=1e-12)
        assert_allclose(V[:, i] @ factor.Z[:n], mean, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n_blocked", [0, 5])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_rows_that_are_not_finite_are_reported(n_blocked):
    X, R = problem(5)
    X[2] = np.nan
    with pytest.raises(np.linalg.LinAlgError):
        new_factor().build(X, R, n_blocked)


def test_a_block_that_cannot_be_factorised_leaves_the_factor_alone():
    X, R = problem(10)
    factor = new_factor()
    factor.build(X, R, 10)
    with pytest.raises(np.linalg.LinAlgError):
        factor.append_block(np.full((3, 2), np.nan), np.ones((3, 2)))
    check(factor, X, R)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda factor: pickle.loads(pickle.dumps(factor))])
def test_a_copy_is_a_factor_of_its_own(copied):
    X, R = problem(10)
    factor = new_factor()
    factor.build(X, R, 10)
    other = copied(factor)
    other.drop_oldest(4)
    check(factor, X, R)
    check(other, X[4:], R[4:])


def test_single_precision_takes_half_the_bytes():
    double, single = new_factor(), new_factor(precision=np.float32)
    assert single.L.nbytes + single.v.nbytes == (double.L.nbytes + double.v.nbytes) // 2
    assert single.nbytes == single.S.nbytes + single.Z.nbytes + single.L.nbytes + single.v.nbytes


def test_grown_keeps_type_and_values():
    larger = grown(np.arange(4, dtype=np.float32), 9)
    assert larger.dtype == np.float32
    assert_array_equal(larger[:4], np.arange(4))
    assert larger.shape == (9,)
