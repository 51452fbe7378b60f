"""Kernels of the stack: same answers as slow, obvious twins, compiled or interpreted."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from momostream.distributions import planes as names
from momostream.kernels import stack as kernel
from momostream.kernels.scalar import UNKNOWN
from momostream.kernels.stack import _interpolate, _normal_quantile, learn_copula, refresh_copula
from momostream.stream import stack as stacking
from momostream.stream.stack import Stack
from tests import naive

INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
# Interpreted code says what compiled code keeps to itself.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")


def test_planes_have_the_same_names_in_kernels_and_in_distributions():
    for name in names.__all__:
        assert getattr(kernel, name) == getattr(names, name)


def test_normal_quantile():
    for u in np.concatenate([10 ** np.linspace(-9, -0.31, 60), 1 - 10 ** np.linspace(-9, -0.31, 60)]):
        assert _normal_quantile(u) == pytest.approx(norm.ppf(u), abs=5e-4)


def test_interpolation_at_between_and_beyond_the_entries():
    table = np.array([1.0, 3.0, 2.0])
    found = [_interpolate(table, x, -1.0, 2.0) for x in (-9.0, -1.0, -0.75, -0.5, -0.25, 0.0, 5.0, math.inf)]
    assert_allclose(found, [1.0, 1.0, 2.0, 3.0, 2.5, 2.0, 2.0, 2.0])


RATES = {
    "eta": stacking.ETA, "floor": stacking.LEAST_WEIGHT, "tail_step": stacking.TAIL_STEP,
    "tail_discount": stacking.TAIL_DISCOUNT, "scale_step": stacking.SCALE_STEP, "usual_step": stacking.USUAL_STEP,
    "sharpness": stacking.SHARPNESS,
}  # fmt: skip


def says(rng, n, K, P, odd=True):
    """Locations and deviations of experts of unequal skill, some without one now and then, and targets."""
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


@pytest.mark.parametrize("std", [np.inf, np.nan, 0.0])
def test_an_expert_without_a_deviation_has_no_say(std):
    stack = Stack(3, 1)
    for y in (1.0, 1.5, 0.5, 1.2, 0.9):
        stack.planes[0], stack.planes[1] = [[np.nan], [1.0], [3.0]], [[std], [0.5], [0.5]]
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


def test_no_expert_with_a_deviation_teaches_nothing():
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
@pytest.mark.parametrize("std", [1e-250, 1e-20, 1.0, 1e100])
def test_wild_numbers_leave_no_nan(y, std):
    rng = np.random.default_rng(9)
    stack = Stack(2, 2)
    for i in range(12):
        stack.planes[0], stack.planes[1] = rng.normal(size=(2, 2)), std
        stack.predict()
        assert np.all(np.isfinite(stack.planes)) and np.all(stack.planes[2] > 0.0)
        stack.learn(np.array([y if i == 6 else 0.1 * i, 1.0]))
        for name in ("mixing", "tails", "outputs", "moments", "fit", "_R", "_factors"):
            assert np.all(np.isfinite(getattr(stack, name))), name


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
