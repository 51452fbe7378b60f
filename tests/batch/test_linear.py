"""The linear regression: the same answers as dense algebra on all rows, whatever is missing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import t
from sklearn.linear_model import Ridge

from momostream.batch.linear import INTERCEPT_RIDGE, RIDGES, LinearRegression
from momostream.batch.region import NU0, SCALE0, SHRINKAGE
from momostream.distributions.mixtures import StudentT
from tests import naive

PRIOR = NU0 * SCALE0
BLOCKS = {"one by one": None, "equal": np.repeat(np.arange(6), 5), "unequal": np.array([3] * 17 + [0] * 2 + [8] * 11)}


def problem(n=30, n_inputs=3, n_targets=2, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_inputs)) * [1.0, 50.0, 1e-3][:n_inputs] + [0.0, 7.0, 2.0][:n_inputs]
    slopes = rng.normal(size=(n_inputs, n_targets)) / np.array([1.0, 50.0, 1e-3])[:n_inputs, None]
    mix = np.eye(n_targets) + 0.8 * np.eye(n_targets, k=1)
    Y = X @ slopes + noise * rng.normal(size=(n, n_targets)) @ mix
    return X, Y * 10.0 ** np.arange(n_targets)


def with_gaps(**options):
    X, Y = problem(**options)
    Y[4:9, 1] = Y[20, 0] = np.nan
    return X, Y


def like(regression, X, Y, columns=slice(None)):
    """An regression with the same hyper-parameters that learns these rows."""
    other = LinearRegression(regression.centre, regression.std, regression.offset[columns], regression.scale[columns])
    other.ridge = regression.ridge
    other.learn(X, Y[:, columns])
    return other


def dense(regression, X, Y, p):
    """Features and standardised targets of the observed rows of one output, and the prior precisions."""
    seen = ~np.isnan(Y[:, p])
    Phi = np.hstack([np.ones((seen.sum(), 1)), (X[seen] - regression.centre) / regression.std])
    precision = np.r_[INTERCEPT_RIDGE, np.full(X.shape[1], regression.ridge)]
    return Phi, (Y[seen, p] - regression.offset[p]) / regression.scale[p], precision


def correlation_of(S):
    size = np.sqrt(np.diag(S))
    return S / np.outer(size, size)


# ---------------------------------------------------------------------------------------------- the distribution


@pytest.mark.parametrize("rows", [problem, with_gaps])
def test_prediction_is_that_of_dense_algebra(rows):
    X, Y = rows()
    regression = LinearRegression.fit(X, Y)
    new = X[:5] + [1.0, 30.0, 1e-3]
    answer = regression.predict(new)
    for p in range(2):
        Phi, r, precision = dense(regression, X, Y, p)
        weights, inverse, quadratic = naive.linear_fit(Phi, r, precision)
        asked = np.hstack([np.ones((5, 1)), (new - regression.centre) / regression.std])
        assert_allclose(answer.mean[:, p], asked @ weights * regression.scale[p] + regression.offset[p], rtol=1e-9)
        variance = (PRIOR + quadratic) / (NU0 + len(r))
        assert_allclose(answer.S[p, p], variance * regression.scale[p] ** 2, rtol=1e-6)
        spread = answer.variance if answer.extra is None else answer.variance + answer.extra[:, p]
        assert_allclose(spread, 1 + np.diag(asked @ inverse @ asked.T), rtol=1e-9)
        assert_allclose(answer.scale[:, p], np.sqrt(spread * answer.S[p, p]), rtol=1e-12)
    assert answer.dof == pytest.approx(NU0 + (~np.isnan(Y)).sum() / 2)
    assert_allclose(np.diag(regression.posterior_covariance(new)), answer.variance, rtol=1e-12)


def test_means_are_those_of_ridge_regression():
    X, Y = problem()
    regression = LinearRegression.fit(X, Y)
    ridge = Ridge(alpha=regression.ridge).fit((X - regression.centre) / regression.std, Y)
    assert_allclose(regression.predict(X).mean, ridge.predict((X - regression.centre) / regression.std), rtol=1e-5)


@pytest.mark.parametrize("rows", [problem, with_gaps])
@pytest.mark.parametrize("ridge", [RIDGES[0], 1.0, RIDGES[-1]])
def test_evidence_is_that_of_dense_algebra(rows, ridge):
    X, Y = rows()
    regression = LinearRegression.fit(X, Y)
    regression.ridge = ridge
    total = 0.0
    for p in range(2):
        Phi, r, precision = dense(regression, X, Y, p)
        K = np.eye(len(r)) + Phi @ np.diag(1 / precision) @ Phi.T
        total += naive.matrix_t_log_density(K, r[:, None], nu=NU0, prior=PRIOR) - len(r) * np.log(regression.scale[p])
    assert regression.log_evidence() == pytest.approx(total, rel=1e-6)
    assert regression.log_evidence(ridge) == regression.log_evidence()


def test_evidence_is_the_sum_of_one_step_ahead_densities():
    X, Y = problem(n_targets=1)
    regression = LinearRegression.fit(X, Y)
    stream, total = like(regression, X[:0], Y[:0]), 0.0
    for x, y in zip(X, Y, strict=True):
        answer = stream.predict(x[None])
        total += StudentT(answer.mean, answer.S, answer.dof, answer.variance).log_pdf(y[None])[0]
        stream.learn(x[None], y[None])
    assert total == pytest.approx(regression.log_evidence(), abs=1e-4)


def test_the_evidence_chooses_the_ridge():
    X, Y = problem(n=60)
    regression = LinearRegression.fit(X, Y)
    assert regression.log_evidence() == max(regression.log_evidence(ridge) for ridge in RIDGES)
    assert regression.ridge < 10.0
    nothing = np.random.default_rng(0).normal(size=Y.shape)
    assert LinearRegression.fit(X, nothing).ridge >= 10.0


@pytest.mark.parametrize("rows", [problem, with_gaps])
def test_it_does_not_matter_how_rows_are_cut_into_calls(rows):
    X, Y = rows()
    whole = LinearRegression.fit(X, Y)
    parts = like(whole, X[:0], Y[:0])
    for part in (slice(0, 1), slice(1, 12), slice(12, 30)):
        parts.learn(X[part], Y[part])
        parts.predict(X)  # an answer in between is forgotten
    assert parts.n_rows == 30
    assert_allclose(parts.predict(X).mean, whole.predict(X).mean, rtol=1e-9)
    assert_allclose(parts.predict(X).S, whole.predict(X).S, rtol=1e-9)
    assert parts.log_evidence() == pytest.approx(whole.log_evidence(), rel=1e-10)


def test_prediction_changes_nothing():
    X, Y = problem()
    regression = LinearRegression.fit(X, Y)
    before = regression.predict(X)
    regression.held_out(X, Y)
    after = regression.predict(X)
    assert_array_equal(after.mean, before.mean)
    assert_array_equal(after.S, before.S)


def test_units_do_not_matter():
    X, Y = problem()
    a, b, c, d = np.array([1e4, -2.0, 0.3]), np.array([5.0, 0.0, -9.0]), np.array([-1e-3, 70.0]), np.array([4.0, -1e3])
    before, after = LinearRegression.fit(X, Y), LinearRegression.fit(a * X + b, c * Y + d)
    assert after.ridge == before.ridge
    x = X[:6] + 1.0
    first, second = before.predict(x), after.predict(a * x + b)
    assert_allclose(second.mean, c * first.mean + d, rtol=1e-8)
    assert_allclose(second.S, first.S * np.outer(c, c), rtol=1e-8)
    assert_allclose(second.variance, first.variance, rtol=1e-8)
    assert after.log_evidence() - before.log_evidence() == pytest.approx(-30 * np.log(np.abs(c)).sum(), abs=1e-6)


def test_new_rows_are_covered():
    X, Y = problem(n=400)
    regression = LinearRegression.fit(X[:100], Y[:100])
    answer = regression.predict(X[100:])
    inside = np.abs(Y[100:] - answer.mean) < t.ppf(0.95, answer.dof) * answer.scale
    assert np.all(np.abs(inside.mean(axis=0) - 0.9) < 0.05)


# ---------------------------------------------------------------------------------------------- held-out answers


@pytest.mark.parametrize("rows", [problem, with_gaps])
@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("ridge", [1e-2, 10.0])
def test_held_out_is_refitting_without_these_rows(rows, blocks, ridge):
    X, Y = rows()
    regression = like(LinearRegression.fit(X, Y), X, Y)
    regression.ridge = ridge
    answer = regression.held_out(X, Y, blocks)
    names = np.arange(30) if blocks is None else blocks
    for name in np.unique(names):
        inside = names == name
        for p in range(2):
            # One output at a time: rows that another output lacks make no difference.
            other = like(regression, X[~inside], Y[~inside], [p]).predict(X[inside])
            seen = ~np.isnan(Y[inside, p])
            assert_allclose(answer.mean[inside, p][seen], other.mean[seen, 0], rtol=1e-6, atol=1e-6)
            assert_allclose(answer.scale[inside, p][seen], other.scale[seen, 0], rtol=1e-6)
    assert_array_equal(np.isnan(answer.mean), np.isnan(Y))
    assert np.all(answer.scale > 0)


@pytest.mark.parametrize("rows", [problem, with_gaps])
def test_held_out_with_the_scatter_of_all_rows(rows):
    X, Y = rows()
    regression = LinearRegression.fit(X, Y)
    answer = regression.held_out(X, Y, own_scatter=True)
    assert_array_equal(answer.mean, regression.held_out(X, Y).mean)
    for p in range(2):
        Phi, r, precision = dense(regression, X, Y, p)
        _, inverse, quadratic = naive.linear_fit(Phi, r, precision)
        leverage = np.diag(Phi @ inverse @ Phi.T)
        variance = (PRIOR + quadratic) / (NU0 + len(r)) / (1 - leverage)
        assert_allclose(answer.scale[~np.isnan(Y[:, p]), p], np.sqrt(variance) * regression.scale[p], rtol=1e-6)


def test_a_row_that_alone_decides_a_slope_is_not_predicted_by_itself():
    X, Y = problem(n=20, n_inputs=2)
    X[:, 1] = 0.0
    X[3, 1] = 1.0
    Y[3] += 100.0
    regression = LinearRegression.fit(X, Y)
    answer = regression.held_out(X, Y)
    assert np.all(np.abs(Y[3] - answer.mean[3]) > 20.0)
    assert np.isfinite(answer.scale).all()


# ---------------------------------------------------------------------------------------------- how outputs go together


def same_signal(n=400, correlation=0.0, seed=0):
    """Two outputs with the same slopes and noise of a given correlation."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    noise = rng.normal(size=(n, 2)) @ np.linalg.cholesky([[1.0, correlation], [correlation, 1.0]]).T
    return X, (X @ [3.0, -2.0])[:, None] + 0.1 * noise


@pytest.mark.parametrize("correlation", [-0.8, 0.0, 0.6])
def test_correlation_is_that_of_the_residuals(correlation):
    X, Y = same_signal(correlation=correlation)
    assert LinearRegression.fit(X, Y).correlation()[0, 1] == pytest.approx(correlation, abs=0.1)


@pytest.mark.parametrize("correlation", [-0.8, 0.0, 0.6])
@pytest.mark.parametrize("n_missing", [1, 150])
def test_missing_targets_leave_the_correlation_of_the_residuals(correlation, n_missing):
    # One missing value once turned it into the correlation of the targets themselves, .9996 here.
    X, Y = same_signal(correlation=correlation)
    Y[:n_missing, 1] = np.nan
    regression = LinearRegression.fit(X, Y)
    assert regression.correlation()[0, 1] == pytest.approx(correlation, abs=0.12)
    residuals = (Y - regression.predict(X).mean)[n_missing:]
    n_whole = len(residuals)
    expected = correlation_of(residuals.T @ residuals)[0, 1] * n_whole / (n_whole + 2)
    assert regression.correlation()[0, 1] == pytest.approx(expected, abs=1e-4)


def test_targets_that_never_meet_are_uncorrelated():
    X, Y = same_signal(correlation=0.6)
    Y[:200, 0] = Y[200:, 1] = np.nan
    assert_allclose(LinearRegression.fit(X, Y).correlation(), np.eye(2), atol=1e-12)


def test_the_covariance_of_targets_is_that_of_dense_algebra():
    X, Y = problem(n_targets=3)
    regression = LinearRegression.fit(X, Y)
    R = (Y - regression.offset) / regression.scale
    Phi, _, precision = dense(regression, X, Y, 0)
    K = np.eye(30) + Phi @ np.diag(1 / precision) @ Phi.T
    scatter = R.T @ np.linalg.solve(K, R)
    assert_allclose(regression.correlation(), correlation_of(scatter), atol=1.1 * SHRINKAGE)


# ---------------------------------------------------------------------------------------------- hard cases


def hard_cases():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=(40, 1))
    yield "collinear targets", X, np.hstack([y, 2 * y, -y])
    yield "exactly linear", X, X @ rng.normal(size=(2, 2))
    yield "exactly linear, far from zero", X + 1e6, 1e9 + (X + 1e6) @ rng.normal(size=(2, 2))
    yield "collinear inputs", np.hstack([X, X[:, :1] * 3]), y
    yield "constant target", X, np.hstack([y, np.full((40, 1), 0.1)])
    yield "nothing but zeros", X, np.zeros((40, 2))
    yield "more targets than rows", X[:5], rng.normal(size=(5, 12))
    yield "more inputs than rows", rng.normal(size=(5, 30)), y[:5]
    yield "one row", X[:1], y[:1]
    yield "one row, many targets", X[:1], rng.normal(size=(1, 4))
    yield "no covariate", X[:, :0], np.hstack([y, y**2])
    yield "constant covariate", np.full((40, 2), 3.0), y
    yield "duplicates", np.repeat(X[:4], 10, axis=0), np.hstack([y, y**2])
    yield "huge and tiny targets", X, np.hstack([y * 1e150, y * 1e-150])
    gap = np.hstack([y, y, X[:, :1]])
    gap[5:, 1] = np.nan
    yield "collinear and mostly missing", X, gap
    gap = np.hstack([y, y])
    gap[:, 1] = np.nan
    yield "a target that is never there", X, gap
    yield "no target at all", X, np.full((40, 2), np.nan)
    exact = X @ rng.normal(size=(2, 2))
    exact[0, 0] = np.nan
    yield "exactly linear with a gap", X, exact


@pytest.mark.parametrize("case", list(hard_cases()), ids=lambda case: case[0])
def test_hard_cases_have_finite_densities(case):
    _, X, Y = case
    regression = LinearRegression.fit(X, Y)
    answer = regression.predict(np.vstack([X[:5], X[:1] + 3.0]))
    assert np.isfinite(answer.mean).all() and np.all(answer.variance >= 1.0) and np.isfinite(answer.S).all()
    assert np.all(np.linalg.eigvalsh(regression.correlation()) > 0)
    assert_allclose(np.diag(regression.correlation()), 1.0, rtol=1e-9)
    distribution = StudentT(answer.mean, answer.S, answer.dof, answer.variance)
    for asked in (answer.mean, answer.mean + 3 * answer.scale, answer.mean + 1.0):
        assert np.isfinite(distribution.log_pdf(asked)).all()
    assert np.isfinite(regression.log_evidence())
    for blocks in (None, np.arange(len(X)) // 4):
        own = regression.held_out(X, Y, blocks)
        assert_array_equal(np.isnan(own.mean), np.isnan(Y))
        assert np.isfinite(own.scale).all() and np.all(own.scale > 0)
