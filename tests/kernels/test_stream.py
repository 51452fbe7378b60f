"""Kernels of the stream: same answers as slow, obvious twins, compiled or interpreted; and the tuner on top of them."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from momostream.gp import tuning
from momostream.gp.covariance import Covariance
from momostream.gp.tuning import ResumableTuner, log_likelihood, tune
from momostream.kernels.covariance import _correlate, likelihood_gradient
from momostream.kernels.lags import lag_features, learn_linear, predict_linear, remember
from momostream.kernels.scalar import FARTHEST, NU0, UNKNOWN, decay, log
from momostream.kernels.stack import _interpolate, _normal_quantile, learn_copula, refresh_copula
from momostream.stream import stack as stacking
from momostream.stream.lags import Autoregression
from momostream.stream.leaf import Leaf
from momostream.stream.rows import RowStore
from momostream.stream.stack import Stack
from tests import naive

INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
compiled_only = pytest.mark.skipif(INTERPRETED, reason="slow, and no kernel of its own")
# Interpreted code says what compiled code keeps to itself.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
TEXTS = ("matern12", "matern32", "matern52", "rbf", "matern32+linear", "rbf+linear")


# ---------------------------------------------------------------------------------------------- elementary functions


def test_decay_is_the_exponential():
    rng = np.random.default_rng(0)
    farthest = FARTHEST
    edges = [0.0, 5e-324, 1e-300, 1e-17, farthest]
    # Where the whole number changes that is taken out, too.
    halves = np.log(2.0) * (np.arange(int(farthest)) + 0.5)
    for a in np.concatenate([edges, rng.uniform(0, farthest, 800), farthest * 10 ** rng.uniform(-20, 0, 800), halves]):
        assert decay(a) == pytest.approx(math.exp(-a), rel=5e-16, abs=0.0)
    assert decay(0.0) == 1.0


@pytest.mark.parametrize("a", [np.nextafter(FARTHEST, 1e9), 745.0, 1e6, 1e300, np.inf])
def test_decay_is_zero_far_away(a):
    assert decay(a) == 0.0


def test_decay_of_nan_is_nan():
    assert math.isnan(decay(math.nan))
    values = np.array([1.0, np.nan, 1e6])
    for kind in naive.KINDS:
        out = values.copy()
        _correlate(kind, out)
        assert_array_equal(np.isnan(out), [False, True, False])


def test_log_is_the_logarithm():
    rng = np.random.default_rng(1)
    places = np.concatenate([[1.0, 2.0, 0.5, 2.2250738585072014e-308, 1.7e308], 10 ** rng.uniform(-300, 300, 1000)])
    for x in places:
        assert log(x) == pytest.approx(math.log(x), rel=4e-15, abs=1e-15)
    for x in 1.0 + np.concatenate([rng.uniform(-0.5, 1.0, 1000), 10 ** rng.uniform(-16, -1, 200)]):
        assert log(x) == pytest.approx(math.log(x), rel=1e-14, abs=3e-16)


def test_normal_quantile():
    for u in np.concatenate([10 ** np.linspace(-9, -0.31, 60), 1 - 10 ** np.linspace(-9, -0.31, 60)]):
        assert _normal_quantile(u) == pytest.approx(norm.ppf(u), abs=5e-4)


def test_interpolation_at_between_and_beyond_the_entries():
    table = np.array([1.0, 3.0, 2.0])
    found = [_interpolate(table, x, -1.0, 2.0) for x in (-9.0, -1.0, -0.75, -0.5, -0.25, 0.0, 5.0, math.inf)]
    assert_allclose(found, [1.0, 1.0, 2.0, 3.0, 2.5, 2.0, 2.0, 2.0])


# ---------------------------------------------------------------------------------------------- the likelihood


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
    A, S = rng.normal(size=(n, P)), rng.normal(size=(n, D))
    W = 1.5 * inverse - A @ A.T
    out = np.full(D + 1, np.nan)
    upper = np.triu(np.full((n, n), np.nan), 1)
    # The upper triangles hold anything.
    likelihood_gradient(np.tril(inverse) + upper, A, 1.5, np.tril(G) + upper, S, out)
    assert_allclose(out[:D], naive.gradient_contraction(W, G, S), rtol=1e-10, atol=1e-12)
    assert_allclose(out[D], 0.5 * np.trace(W), rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------------------------------------- lags


@pytest.mark.parametrize(("D", "P"), [(0, 1), (2, 1), (1, 3)])
def test_lag_features(D, P):
    rng = np.random.default_rng(4)
    x, past_x, past_y = rng.normal(size=D), rng.normal(size=(2, D)), rng.normal(size=(3, P))
    width = 1 + 3 * D + 3 * P
    units = np.vstack([rng.normal(size=width - 1), rng.uniform(0.05, 2.0, width - 1)])
    raw = np.concatenate(
        [x, x - past_x[0], past_y[0], past_y[0] - past_y[1], past_y[1] - past_y[2], past_x[0] - past_x[1]]
    )
    expected = np.clip((raw - units[0]) / units[1], -2.0, 2.0)
    f = np.full(width, np.nan)
    lag_features(x, past_x, past_y, units, 2.0, f)
    assert_allclose(f, np.concatenate([[1.0], expected]), rtol=1e-12)
    assert np.abs(f).max() == 2.0


def test_remember_moves_the_past_and_keeps_what_is_missing():
    past_x, past_y = np.zeros((2, 1)), np.full((3, 2), np.nan)
    history = [(1.0, [1.0, np.nan]), (2.0, [2.0, np.nan]), (3.0, [np.nan, 7.0]), (4.0, [4.0, 8.0])]
    expected = [
        [[1.0, np.nan]] * 3,
        [[2.0, np.nan], [1.0, np.nan], [1.0, np.nan]],
        [[2.0, 7.0], [2.0, 7.0], [1.0, 7.0]],
        [[4.0, 8.0], [2.0, 7.0], [2.0, 7.0]],
    ]
    for (x, y), after in zip(history, expected, strict=True):
        remember(np.array([x]), np.array(y), past_x, past_y)
        assert_array_equal(past_y, after)
    assert_array_equal(past_x, [[4.0], [3.0]])


@pytest.mark.parametrize("forgetting", [1.0, 0.98])
@pytest.mark.parametrize(("width", "n_targets"), [(1, 1), (4, 2), (6, 3)])
def test_recursive_least_squares_is_weighted_ridge(forgetting, width, n_targets):
    rng = np.random.default_rng(5)
    n, room = 30, 7
    precision = rng.uniform(0.5, 3.0, width)
    F, T = rng.normal(size=(n, room)), rng.normal(size=(n, n_targets))
    P, B = np.full((room, room), 9.0), np.full((room, n_targets), 9.0)
    P[:width, :width], B[:width] = np.diag(1.0 / precision), 0.0
    gain, mean = np.empty(room), np.empty(n_targets)
    for i in range(n):
        inverse, weights = naive.weighted_ridge(F[:i, :width], T[:i], forgetting, precision)
        c = predict_linear(width, F[i], P, B, gain, mean)
        assert_allclose(mean, weights.T @ F[i, :width], rtol=1e-8, atol=1e-10)
        assert c == pytest.approx(1.0 + F[i, :width] @ inverse @ F[i, :width], rel=1e-9)
        learn_linear(width, forgetting, c, gain, T[i] - mean, P, B)
    inverse, weights = naive.weighted_ridge(F[:, :width], T, forgetting, precision)
    assert_allclose(P[:width, :width], inverse, rtol=1e-7, atol=1e-10)
    assert_allclose(B[:width], weights, rtol=1e-7, atol=1e-10)
    # What is beyond the width is not its own.
    assert_array_equal(B[width:], 9.0)
    assert_array_equal(P[width:], 9.0)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_rows_of_lags_are_learnt_as_one_by_one_bit_for_bit(missing):
    rng = np.random.default_rng(13)
    X, Y = rng.normal(size=(30, 1)), rng.normal(size=(30, 2)).cumsum(axis=0)
    Y[1:][rng.random((29, 2)) < missing] = np.nan
    one, many = Autoregression(1, 2), Autoregression(1, 2)
    plane_rows = np.full((30, 2, 3, 2), np.nan)
    expected = plane_rows.copy()
    for lags in (one, many):
        lags.learn(X[0], Y[0])
    for i in range(1, 30):
        one.predict(X[i], expected[i, 0], expected[i, 1])
        one.learn(X[i], Y[i])
    # Features are cut from the ninth row on.
    many.learn_rows(X[1:9], Y[1:9], plane_rows[1:9])
    many.learn_rows(X[9:], Y[9:], plane_rows[9:])
    assert_array_equal(plane_rows, expected)
    for name in ("past_x", "past_y", "residuals", "P", "B", "_features", "_changes"):
        assert_array_equal(getattr(many, name)[:29], getattr(one, name)[:29], err_msg=name)


def test_spread_of_the_lags_follows_from_their_residuals():
    rng = np.random.default_rng(14)
    lags, location, spread = Autoregression(0, 1, discount=0.9), *np.full((2, 3, 1), np.nan)
    Y = rng.normal(size=25).cumsum()
    squares, mass = np.zeros(3), 0.0
    for i, y in enumerate(Y):
        lags.predict(np.empty(0), location, spread)
        c = np.append(lags._c, 1.0)
        if i >= 2:
            assert_allclose(spread[:, 0], np.sqrt(squares / mass * (1.0 + NU0 / mass) * c), rtol=1e-10)
            assert location[2, 0] == Y[i - 1]
        elif i == 1:
            assert np.all(np.isinf(spread))
        if i:
            squares = 0.9 * squares + (y - location[:, 0]) ** 2 / c
            mass = 0.9 * mass + 1.0
        lags.learn(np.empty(0), np.array([y]))


def test_an_output_that_comes_late_does_not_spoil_the_lags_of_the_others():
    # Fails while `lag_features` hands on the NaN of an output without a past, which stays in all residuals for good.
    lags, location, spread = Autoregression(1, 2), *np.empty((2, 3, 2))
    for t in range(40):
        lags.predict(np.zeros(1), location, spread)
        lags.learn(np.zeros(1), np.array([t, np.nan if t < 5 else 2.0 * t]))
        if lags.is_due:
            lags.refresh()
    assert np.all(np.isfinite(location)) and np.all(np.isfinite(spread)) and np.all(np.isfinite(lags.residuals))


# ---------------------------------------------------------------------------------------------- leaves


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("text", ["matern12", "matern52+linear"])
@pytest.mark.parametrize(("noise", "rtol"), [(0.02, 1e-5), (2e-4, 1e-8)], ids=["single", "double"])
def test_leaf_kernels_are_dense_algebra(text, missing, noise, rtol):
    """One history through all of them; tests/test_leaves.py has many."""
    rng = np.random.default_rng(15)
    covariance, theta = Covariance.parse(text), np.array([0.2, -0.1, math.log(noise), -1.0])[: 3 + ("+" in text)]
    rows = RowStore(1, 2)
    leaf = Leaf(rows, 0, np.arange(2), covariance, theta, 0.9, np.empty(0, dtype=np.int64))
    twin = naive.StreamLeaf(covariance.code, leaf.linear, leaf.noise, covariance.lengthscales(theta), 0.9, n_targets=2)
    location, spread = np.empty((2, 2))

    def check():
        x = rng.normal(size=2)
        leaf.predict(x, location, spread)
        for found, expected in zip((location, spread), twin.predict(x), strict=True):
            assert_allclose(found, expected, rtol=rtol, atol=0.1 * rtol)

    X, Y = rng.normal(size=(15, 2)), rng.normal(size=(15, 2))
    Y[:10][rng.random((10, 2)) < missing] = np.nan
    for x, y in zip(X[:10], Y[:10], strict=True):
        leaf.predict(x, location, spread)
        leaf.learn(rows.append(x, y), y)
        twin.learn(x, y)
    check()
    leaf.learn_rows(rows.extend(X[10:], Y[10:]), X[10:], Y[10:], *np.empty((2, 5, 2)))
    for x, y in zip(X[10:], Y[10:], strict=True):
        twin.learn(x, y)
    check()
    for _ in range(3):
        leaf.drop_oldest()
        twin.drop()
    check()
    leaf.evict()
    twin.refill()
    check()


# ---------------------------------------------------------------------------------------------- stacking


RATES = {
    "eta": stacking.ETA, "floor": stacking.LEAST_WEIGHT, "tail_step": stacking.TAIL_STEP,
    "tail_discount": stacking.TAIL_DISCOUNT, "scale_step": stacking.SCALE_STEP, "usual_step": stacking.USUAL_STEP,
    "sharpness": stacking.SHARPNESS,
}  # fmt: skip


def says(rng, n, K, P, odd=True):
    """Locations and spreads of experts of unequal skill, some without a spread now and then, and targets."""
    Y = rng.standard_t(4, size=(n, P)) * np.linspace(0.5, 3.0, P) + 10.0
    plane_rows = np.full((n, 5, K, P), np.nan)
    plane_rows[:, 0] = 10.0 + rng.normal(size=(n, K, P)) * np.linspace(0.1, 2.0, K)[:, None]
    plane_rows[:, 1] = rng.uniform(0.3, 3.0, size=(n, K, P))
    if odd:
        plane_rows[:, 1][rng.random((n, K, P)) < 0.15] = np.inf
        plane_rows[:, 1][rng.random((n, K, P)) < 0.05] = 0.0
        plane_rows[:, 1][rng.random((n, K, P)) < 0.05] = np.nan
        plane_rows[:, 0][~np.isfinite(plane_rows[:, 1])] = np.nan
        Y[rng.random(Y.shape) < 0.15] = np.nan
    return plane_rows, Y


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize(("K", "P"), [(1, 1), (3, 1), (4, 3)])
def test_stack_is_its_slow_twin(K, P, odd):
    rng = np.random.default_rng(6)
    stack = Stack(K, P)
    twins = [naive.StackedOutput(K, stacking.TAILS, stacking.FIRST_TAIL, RATES) for _ in range(P)]
    plane_rows, Y = says(rng, 20 if INTERPRETED else 60, K, P, odd)
    for planes, y in zip(plane_rows, Y, strict=True):
        stack.planes[:2] = planes[:2]
        mean = stack.predict().copy()
        for p, twin in enumerate(twins):
            scales, dofs, shares, expected = twin.predict(planes[0, :, p], planes[1, :, p])
            assert_allclose(stack.planes[2, :, p], scales, rtol=1e-9)
            assert_array_equal(stack.planes[3, :, p], dofs)
            assert_allclose(stack.planes[4, :, p], shares, rtol=1e-9, atol=1e-15)
            assert mean[p] == pytest.approx(expected, rel=1e-9)
        stack.learn(y)
        for p, twin in enumerate(twins):
            if np.isnan(y[p]):
                assert math.isnan(stack._scores[p])
                continue
            score = twin.learn(planes[0, :, p], planes[1, :, p], y[p])
            # Far out, where scores are cut anyway, the tables are coarser.
            tolerance = 2e-2 if abs(score) > 4.0 else 3e-3
            assert stack._scores[p] == pytest.approx(score, abs=tolerance, nan_ok=True)
    for p, twin in enumerate(twins):
        assert_allclose(stack.weights[:, p], twin.weights, rtol=1e-8)
        assert_allclose(stack.tails[0, :, p], twin.factors, rtol=1e-9)
        assert_allclose(stack.tails[1, :, p], twin.fits, rtol=1e-9)
        assert stack.outputs[0, p] == pytest.approx(twin.log_scale, rel=1e-8, abs=1e-12)
        assert_allclose(stack.outputs[1:, p], [len(twin.seen), np.mean(twin.seen), np.var(twin.seen)], rtol=1e-9)


@pytest.mark.parametrize(("K", "P"), [(1, 1), (3, 2), (2, 17)])
def test_many_rows_are_learnt_as_one_by_one_bit_for_bit(K, P):
    rng = np.random.default_rng(7)
    plane_rows, Y = says(rng, 10 if INTERPRETED else 50, K, P)
    one, many = Stack(K, P), Stack(K, P)
    found = []
    for planes, y in zip(plane_rows, Y, strict=True):
        one.planes[:2] = planes[:2]
        one.predict()
        found.append(one.planes.copy())
        one.learn(y)
    sizes = (1, 3)
    parts = plane_rows.copy()
    for rows in (slice(0, 1), slice(1, 4), slice(sum(sizes), len(Y))):
        many.learn_rows(np.ascontiguousarray(Y[rows]), parts[rows])
    assert_array_equal(parts, found)
    for name in ("mixing", "tails", "outputs", "moments", "pairs", "fit", "_R", "_factors", "_log_dets"):
        assert_array_equal(getattr(many, name), getattr(one, name), err_msg=name)
    assert many.n_rows == one.n_rows == len(Y)
    assert_array_equal(many.copula[0], one.copula[0])
    ahead, means = plane_rows.copy(), None
    means = many.predict_rows(ahead)
    for i, planes in enumerate(plane_rows):
        one.planes[:2] = planes[:2]
        assert_array_equal(one.predict(), means[i])
        assert_array_equal(one.planes, ahead[i])


def test_a_missing_target_leaves_its_output_as_it_is():
    rng = np.random.default_rng(8)
    plane_rows, Y = says(rng, 10, 3, 2, odd=False)
    stack = Stack(3, 2)
    stack.learn_rows(Y, plane_rows.copy())
    before = [a.copy() for a in (stack.mixing[..., 1], stack.tails[:, :, 1], stack.outputs[:, 1], stack.moments)]
    stack.planes[:2] = plane_rows[0, :2]
    stack.predict()
    stack.learn(np.array([9.0, np.nan]))
    after = (stack.mixing[..., 1], stack.tails[:, :, 1], stack.outputs[:, 1], stack.moments)
    for old, new in zip(before[:3], after[:3], strict=True):
        assert_array_equal(new, old)
    assert_array_equal(after[3][:, 1], before[3][:, 1])
    assert np.all(after[3][:, 0, 0] != before[3][:, 0, 0])


@pytest.mark.parametrize("spread", [np.inf, np.nan, 0.0])
def test_an_expert_without_a_spread_has_no_say(spread):
    stack = Stack(3, 1)
    for y in (1.0, 1.5, 0.5, 1.2, 0.9):
        stack.planes[0], stack.planes[1] = [[np.nan], [1.0], [3.0]], [[spread], [0.5], [0.5]]
        mean = stack.predict()
        assert stack.planes[4, 0, 0] == 0.0
        assert 1.0 <= mean[0] <= 3.0
        stack.learn(np.array([y]))
    assert np.all(np.isfinite(stack.mixing)) and np.all(np.isfinite(stack.tails))
    assert stack.weights.sum() == pytest.approx(1.0)
    assert stack.mixing[1, 0, 0] == UNKNOWN
    # When it comes back, it still has a weight.
    stack.planes[0], stack.planes[1] = 1.0, 0.5
    stack.predict()
    assert stack.planes[4, 0, 0] > 0.05


def test_no_expert_with_a_spread_teaches_nothing():
    """Before anyone has a say a row says nothing about scales, and nothing about how outputs go together."""
    # Fails while `stack_learn` takes experts without a say for distributions of location 0 and scale 1.
    stack = Stack(2, 2)
    for y in ([1000.0, 1000.0], [1010.0, 990.0], [1005.0, 1002.0], [1000.0, 1001.0]):
        stack.planes[0], stack.planes[1] = np.nan, np.inf
        stack.predict()
        stack.learn(np.array(y))
    assert np.all(np.isfinite(stack.mixing)) and np.all(np.isfinite(stack.outputs))
    assert_array_equal(stack.outputs[0], 0.0)
    assert_array_equal(stack.copula[0], np.eye(2))


@pytest.mark.parametrize("y", [1e-300, 1e60, -1e60])
# Fails for 1e-250 while `stack_learn` squares a residual in scales that it has not cut when it sums up `pull`.
@pytest.mark.parametrize("spread", [1e-250, 1e-20, 1.0, 1e100])
def test_wild_numbers_leave_no_nan(y, spread):
    rng = np.random.default_rng(9)
    stack = Stack(2, 2)
    for i in range(12):
        stack.planes[0], stack.planes[1] = rng.normal(size=(2, 2)), spread
        stack.predict()
        assert np.all(np.isfinite(stack.planes)) and np.all(stack.planes[2] > 0.0)
        stack.learn(np.array([y if i == 6 else 0.1 * i, 1.0]))
        for name in ("mixing", "tails", "outputs", "moments", "fit", "_R", "_factors"):
            assert np.all(np.isfinite(getattr(stack, name))), name


# ---------------------------------------------------------------------------------------------- the copula


@pytest.mark.parametrize("P", [2, 5])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_copula_is_its_slow_twin(P, missing):
    rng = np.random.default_rng(10)
    stack = Stack(1, P)
    n = 12 if INTERPRETED else 40
    A = rng.normal(size=(P, P))
    scores = 1.5 * rng.normal(size=(n, P)) @ A / np.linalg.norm(A, axis=0)
    scores[3] = 6.0
    scores[rng.random((n, P)) < missing] = np.nan
    fit = np.zeros_like(stack.fit)
    for row in scores:
        learn_copula(
            stacking._SPEEDS, stacking.COPULA_DISCOUNT, row, stacking._COPULA_TAILS, stack._norms,
            stacking._quantile_tables(), stack._factors, stack._log_dets, stack.moments, stack.pairs, stack.fit,
            stack._work,
        )  # fmt: skip
        if not np.isnan(row).any():
            for c, R in enumerate(stack._R):
                for v, dof in enumerate(stacking.COPULA_TAILS):
                    fit[c, v] = stacking.COPULA_DISCOUNT * fit[c, v] + naive.t_copula_log_density(row, R, dof)
        stack._refresh_copula()
        for R, L, log_det in zip(stack._R, stack._factors, stack._log_dets, strict=True):
            assert_allclose(np.tril(L) @ np.tril(L).T, R, atol=1e-13)
            assert log_det == pytest.approx(0.5 * np.linalg.slogdet(R)[1], abs=1e-10)
    assert_allclose(stack.fit, fit, rtol=2e-3, atol=2e-2)
    for c, speed in enumerate(stacking.SPEEDS):
        expected = naive.shrunk_correlation(scores, speed, stacking.PRIOR_ROWS * P, stacking.CORRELATION_FLOOR)
        if np.linalg.eigvalsh(expected)[0] > 1e-5:
            assert_allclose(stack._R[c], expected, rtol=1e-9, atol=1e-12)


def refresh(moments, pairs, prior=1.0, floor=1e-5):
    P = moments.shape[1]
    R, factors, log_dets = np.full((1, P, P), np.nan), np.zeros((1, P, P)), np.full(1, np.nan)
    repairs = refresh_copula(prior, floor, moments, pairs, R, factors, log_dets)
    return R[0], factors[0], log_dets[0], repairs


def test_an_indefinite_correlation_is_drawn_to_independence():
    R = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    assert np.linalg.eigvalsh(R)[0] < 0
    found, L, log_det, repairs = refresh(1000.0 * R[None], np.full((1, 3, 3), 1000.0))
    assert repairs > 0
    assert np.linalg.eigvalsh(found)[0] > 0
    assert_allclose(L @ L.T, found, atol=1e-12)
    assert log_det == pytest.approx(0.5 * np.linalg.slogdet(found)[1])
    # All pairs by the same share.
    shares = found[np.tril_indices(3, -1)] / R[np.tril_indices(3, -1)]
    assert_allclose(shares, shares[0], rtol=1e-9)
    assert 0.3 < shares[0] < 1.0


def test_a_perfect_correlation_keeps_a_factor():
    found, L, _, repairs = refresh(np.full((1, 2, 2), 1e6), np.full((1, 2, 2), 1e6))
    assert repairs == 0
    assert 0.9999 < found[0, 1] < 1.0
    assert L[1, 1] > 1e-3


def test_one_output_and_no_row():
    found, L, log_det, repairs = refresh(np.zeros((1, 1, 1)), np.zeros((1, 1, 1)))
    assert (found.item(), L.item(), log_det, repairs) == (1.0, 1.0, 0.0, 0)


# ---------------------------------------------------------------------------------------------- the resumable tuner


def problem(name, n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * [1.0, 10.0]
    if name == "smooth":
        R = np.column_stack([np.sin(2.0 * X[:, 0]), np.cos(X[:, 0])]) + 0.05 * rng.normal(size=(n, 2))
    elif name == "noise":
        R = rng.normal(size=(n, 1))
    elif name == "linear":
        R = X @ [[1.0], [0.05]] + 0.01 * rng.normal(size=(n, 1))
    elif name == "exact":
        R = np.sin(X[:, :1])
    else:
        R = np.sign(X[:, :1]) + 0.1 * np.sin(X[:, 1:])
    return X - X.mean(axis=0), (R - R.mean(axis=0)) / R.std(axis=0)


def tuner_for(text, name, max_evaluations, start=None, seed=0):
    covariance = Covariance.parse(text)
    X, R = problem(name, seed=seed)
    prior = covariance.prior(X.std(axis=0))
    return ResumableTuner(covariance, X, R, prior, prior.centre if start is None else start, max_evaluations)


def objective(tuner, theta):
    return tuning._objective(tuner.covariance, theta, tuner.X, tuner.R, tuner.prior)[0]


@compiled_only
@pytest.mark.parametrize("text", ["matern32", "rbf", "matern52+linear"])
# Where little is to be gained, it stops for little unless it is patient.
@pytest.mark.parametrize(
    ("name", "patient"),
    [("smooth", False), ("exact", False), *((name, True) for name in ("smooth", "noise", "linear", "exact", "steps"))],
)
@pytest.mark.parametrize("away", [0.0, 2.0])
def test_the_tuner_ends_where_lbfgs_does(text, name, away, patient, monkeypatch):
    if patient:
        monkeypatch.setattr(ResumableTuner, "ENOUGH", 1e-3)
    tuner = tuner_for(text, name, 200)
    tuner.theta = start = np.clip(tuner.theta + away, tuner.prior.lower, tuner.prior.upper)
    while tuner.n_left:
        tuner.advance()
    _, best = tune(tuner.covariance, start, tuner.X, tuner.R, tuner.prior, 200)
    assert objective(tuner, tuner.theta) <= best + 0.5


@compiled_only
@pytest.mark.parametrize("text", ["matern32", "rbf+linear"])
@pytest.mark.parametrize("name", ["smooth", "linear", "exact"])
def test_each_advance_is_one_gradient_and_never_goes_up(text, name, monkeypatch):
    calls = []
    real = tuning.log_likelihood

    def counted(covariance, theta, *rest):
        calls.append(theta.copy())
        return real(covariance, theta, *rest)

    monkeypatch.setattr(tuning, "log_likelihood", counted)
    rng = np.random.default_rng(11)
    tuner = tuner_for(text, name, 40)
    tuner.theta = np.clip(rng.normal(tuner.prior.centre, 3.0), tuner.prior.lower, tuner.prior.upper)
    values = []
    while tuner.n_left:
        before = tuner.n_left
        n = len(calls)
        tuner.advance()
        assert len(calls) == n + 1
        assert tuner.n_left < before
        assert np.all(calls[-1] >= tuner.prior.lower) and np.all(calls[-1] <= tuner.prior.upper)
        values.append(tuner._value)
    assert len(calls) <= 40
    assert np.all(np.diff(values) <= 0.0)
    assert values[-1] <= values[0]


@compiled_only
def test_the_tuner_stays_within_its_box():
    tuner = tuner_for("matern32", "smooth", 60, start=np.full(3, 100.0))
    box = tuner.prior.about(tuner.prior.centre, 1.0)
    tuner.prior = type(box)(box.centre, box.width, box.centre - 0.1, box.centre + 0.1)
    tuner.theta = np.clip(tuner.theta, tuner.prior.lower, tuner.prior.upper)
    while tuner.n_left:
        tuner.advance()
        assert np.all(tuner.theta >= tuner.prior.lower) and np.all(tuner.theta <= tuner.prior.upper)
    _, best = tune(tuner.covariance, tuner.prior.centre, tuner.X, tuner.R, tuner.prior, 100)
    assert objective(tuner, tuner.theta) <= best + 0.5


@compiled_only
@pytest.mark.parametrize("stop", [0, 1, 4, 9])
def test_a_tuner_goes_on_from_its_state_bit_for_bit(stop):
    tuner = tuner_for("matern32+linear", "smooth", 30)
    tuner.theta = tuner.theta + 1.5
    for _ in range(stop):
        if tuner.n_left:
            tuner.advance()
    again = ResumableTuner.from_state(tuner.state(), tuner.covariance)
    while tuner.n_left:
        tuner.advance()
        again.advance()
        assert_array_equal(again.theta, tuner.theta)
        assert (again.n_left, again._value, again._step) == (tuner.n_left, tuner._value, tuner._step)
    assert again.n_left == 0


@compiled_only
def test_a_tuner_with_rows_that_cannot_be_factorised_gives_up():
    tuner = tuner_for("rbf", "smooth", 10)
    tuner.R[0] = np.nan
    start = tuner.theta.copy()
    while tuner.n_left:
        tuner.advance()
    assert np.all(np.isfinite(tuner.theta))
    assert_array_equal(tuner.theta, start)
