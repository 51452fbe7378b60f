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
from momostream.kernels.stack import _normal_quantile, interpolate, learn_copula, learn_points, refresh_copula
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
    found = [interpolate(table, x, -1.0, 2.0) for x in (-9.0, -1.0, -0.75, -0.5, -0.25, 0.0, 5.0, math.inf)]
    assert_allclose(found, [1.0, 1.0, 2.0, 3.0, 2.5, 2.0, 2.0, 2.0])


RATES = {
    "eta": stacking.ETA, "floor": stacking.LEAST_WEIGHT, "tail_step": stacking.TAIL_STEP,
    "tail_discount": stacking.TAIL_DISCOUNT, "scale_step": stacking.SCALE_STEP, "usual_step": stacking.USUAL_STEP,
    "sharpness": stacking.SHARPNESS,
}  # fmt: skip


BLENDED_RATES = {
    "scale_step": stacking.BLENDED_SCALE_STEP, "middle": stacking.MIDDLE_STEP, "outer": stacking.OUTER_STEP,
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
@pytest.mark.parametrize(
    ("K", "P", "kind"), [(1, 1, ""), (3, 1, ""), (4, 3, ""), (4, 2, "blended"), (4, 2, "standing")]
)
def test_stack_is_its_slow_twin(K, P, kind, odd):
    rng = np.random.default_rng(6)
    blended, standing = kind != "", kind == "standing"
    stack = Stack(K, P, blended=blended, standing=standing)
    rates = {**RATES, **BLENDED_RATES} if blended else RATES
    # The part of a reading that an interval holds is read from coarse tables.
    rough = 1e-5 if standing else 1e-9
    twins = [naive.StackedOutput(K, stacking.TAILS, stacking.FIRST_TAIL, rates, standing) for _ in range(P)]
    plane_rows, Y = says(rng, 20 if INTERPRETED else 60, K, P, odd)
    for planes, y in zip(plane_rows, Y, strict=True):
        stack.planes[:2] = planes[:2]
        mean = stack.predict().copy()
        for p, twin in enumerate(twins):
            scales, dofs, shares, expected = twin.predict(planes[0, :, p], planes[1, :, p])
            assert_allclose(stack.planes[2, :, p], scales, rtol=rough)
            assert_array_equal(stack.planes[3, :, p], dofs)
            before = stack._told[:K] if blended else stack.planes[4]
            assert_allclose(before[:, p], shares, rtol=10.0 * rough, atol=1e-15)
            assert blended or mean[p] == pytest.approx(expected, rel=1e-9)
        tilted = stack.planes[4].copy()
        stack.learn(y)
        for p, twin in enumerate(twins):
            if np.isnan(y[p]):
                assert math.isnan(stack._scores[p])
                continue
            score = twin.learn(planes[0, :, p], planes[1, :, p], y[p], tilted[:, p])
            # Far out, where scores are cut anyway, the tables are coarser.
            tolerance = 2e-2 if abs(score) > 4.0 else 3e-3
            assert stack._scores[p] == pytest.approx(score, abs=tolerance, nan_ok=True)
    for p, twin in enumerate(twins):
        assert_allclose(stack.weights[:, p], twin.weights, rtol=10.0 * rough)
        if standing:
            assert_allclose(stack.mixing[3, :, p], twin.both_weights[1], rtol=10.0 * rough)
            assert stack.outputs[4, p] == pytest.approx(twin.log_scales[1], abs=rough)
        assert_allclose(stack.tails[0, :, p], twin.factors, rtol=1e-9)
        assert_allclose(stack.tails[1, :, p], twin.fits, rtol=1e-9)
        assert stack.outputs[0, p] == pytest.approx(twin.log_scale, rel=1e-8, abs=rough if standing else 1e-12)
        assert_allclose(stack.outputs[1:4, p], [len(twin.seen), np.mean(twin.seen), np.var(twin.seen)], rtol=1e-9)


@pytest.mark.parametrize("blended", [False, True])
@pytest.mark.parametrize(("K", "P"), [(1, 1), (3, 2), (2, 17)])
def test_many_rows_are_learnt_as_one_by_one_bit_for_bit(K, P, blended):
    rng = np.random.default_rng(7)
    plane_rows, Y = says(rng, 10 if INTERPRETED else 50, K, P)
    one, many = (Stack(K, P, blended=blended, standing=blended) for _ in range(2))
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
    for name in (*Stack._ARRAYS, "_R", "_factors", "_log_dets"):
        assert_array_equal(getattr(many, name), getattr(one, name), err_msg=name)
    assert many.n_rows == one.n_rows == len(Y)
    assert_array_equal(many.copula[0], one.copula[0])
    ahead, means = plane_rows.copy(), None
    means = many.predict_rows(ahead)
    for i, planes in enumerate(plane_rows):
        one.planes[:2] = planes[:2]
        assert_array_equal(one.predict(), means[i])
        assert_array_equal(one.planes, ahead[i])


def test_the_mean_is_tilted_to_the_blend():
    rng = np.random.default_rng(8)
    K, P = 4, 40
    stack = Stack(K, P, blended=True)
    stack.outputs[1:] = np.array([[100.0], [10.0], [4.0]])
    stack.mixing[0] = rng.dirichlet(np.ones(K), size=P).T
    stack.blend = rng.dirichlet(np.full(K + 1, 0.3), size=P)
    stack.planes[0], stack.planes[1] = rng.normal(10.0, 0.4, size=(K, P)), rng.uniform(0.5, 2.0, size=(K, P))
    stack.mixing[1] = np.log(rng.uniform(0.5, 2.0, size=(K, P)))
    tilted = stack.predict().copy()
    before, points = stack._told[:K], stack._told[K:]
    moved = 0
    for p in range(P):
        location, mean = stack.planes[0, :, p], before[:, p] @ stack.planes[0, :, p]
        gates = np.minimum(np.exp(stack.mixing[1, :, p]) / stack.planes[2, :, p], 1.0)
        assert_allclose(points[:, p], [*(mean + gates * (location - mean)), mean], rtol=1e-9)
        # An expert of no weight cannot be moved to, and no edge of the locations is reached.
        reach = 0.95 * np.ptp(location) / 2.0
        middle = (location.min() + location.max()) / 2.0
        most = 0.5 * before[:, p] @ (stack.planes[2, :, p] + np.abs(location - mean))
        target = np.clip(stack.blend[p] @ points[:, p], mean - most, mean + most)
        target = np.clip(target, middle - reach, middle + reach)
        if abs(target - mean) > 0.01:
            moved += 1
            assert abs(tilted[p] - target) <= 0.02 * abs(target - mean) + 1e-4
            assert_allclose(stack.planes[4, :, p], naive.tilted_weights(before[:, p], location, tilted[p]), rtol=1e-6)
        assert stack.planes[4, :, p].sum() == pytest.approx(1.0)
    assert moved > 20


def test_a_mean_among_locations_below_all_numbers_is_not_tilted():
    """One over their range is no number."""
    stack = Stack(2, 1, blended=True)
    stack.outputs[1:] = np.array([[100.0], [0.0], [0.0]])
    stack.planes[0], stack.planes[1] = [[0.0], [1e-320]], 1e-310
    stack.blend[0] = [0.0, 1.0, 0.0]
    stack.predict()
    stack.learn(np.array([0.0]))
    assert np.isfinite(stack.outputs).all() and np.isfinite(stack.planes[4]).all()


def test_no_blend_moves_a_mean_before_errors_are_known_or_by_more_than_half_of_its_width():
    stack = Stack(2, 1, blended=True)
    stack.planes[0], stack.planes[1] = [[0.0], [8.0]], 1.0
    stack.blend[0] = [0.0, 1.0, 0.0]
    stack.mixing[0] = [[0.9], [0.1]]
    assert stack.predict()[0] == pytest.approx(0.8)
    stack.outputs[1] = 100.0
    width = 0.9 * (1.0 + 0.8) + 0.1 * (1.0 + 7.2)
    assert stack.predict()[0] == pytest.approx(0.8 + 0.5 * width, rel=0.02)


def test_weights_of_the_blend_are_those_of_their_slow_twin():
    rng = np.random.default_rng(9)
    n, B, first = 40, 3, 9
    Y = rng.normal(size=(n, 1))
    points = Y[:, :, None] + rng.normal(size=(n, 1, B)) * [0.5, 1.0, 0.7]
    weights, moments, outputs = np.full((1, B), 1.0 / B), np.zeros((1, B, B)), np.zeros((4, 1))
    for y, row in zip(Y, points, strict=True):
        outputs[1] += 1.0
        learn_points(20.0, 0.02, y, outputs, np.ascontiguousarray(row.T), np.empty((2, B)), moments, weights)
    assert_allclose(weights[0], naive.blend_weights(Y - points[:, 0], 20.0, 0.02, first), rtol=1e-9)
    before = weights.copy()
    learn_points(20.0, 0.02, np.array([np.nan]), outputs, np.ones((B, 1)), np.empty((2, B)), moments, weights)
    assert_array_equal(weights, before)


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
