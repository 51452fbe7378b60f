"""Kernels of the lags: same answers as slow, obvious twins, compiled or interpreted."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.kernels import lags as kernel
from momostream.kernels.lags import fill_missing, find_season, lag_features, learn_linear, predict_linear, remember
from momostream.kernels.scalar import NOT_POSITIVE_DEFINITE, NU0, OK
from momostream.stream import lags as stream_lags
from momostream.stream.lags import Autoregression
from tests import naive

# Interpreted code says what compiled code keeps to itself.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")


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


def test_a_missing_target_is_taken_to_have_been_as_predicted():
    # The second regression has the least errors of the first target, no change those of the second, and the third has
    # been missing for too long.
    residuals = np.zeros((9, 3))
    residuals[:3] = [[3.0, 3.0, 1.0], [1.0, 2.0, 2.0], [2.0, 1.0, 3.0]]
    residuals[kernel.MISSED] = [0.0, 0.0, kernel.MOST_FILLED]
    means = np.arange(12.0).reshape(4, 3)
    filled = np.empty(3)
    fill_missing(np.full(3, np.nan), means, np.full((3, 3), 100.0), residuals, filled)
    assert_array_equal(filled, [109.0, 100.0, np.nan])
    fill_missing(np.array([7.0, np.nan, 8.0]), means, np.full((3, 3), 100.0), residuals, filled)
    assert_array_equal(filled, [7.0, 100.0, 8.0])


def test_the_first_reading_after_a_gap_is_learnt_with_caution():
    rng = np.random.default_rng(17)
    lags, location, std = Autoregression(0, 1), *np.empty((2, 4, 1))
    y = np.sin(np.arange(200.0) / 5.0) + 0.01 * rng.normal(size=200)
    for t, value in enumerate(y):
        lags.predict(np.empty(0), location, std)
        if t == 160:
            # Ten values were filled: the prediction has kept to the wave.
            assert abs(location[0, 0] - value) < 0.3 < abs(y[149] - value)
            deviation, expected = np.sqrt(lags.residuals[0, 0] / lags.residuals[3, 0]), lags._means[0, 0]
        lags.learn(np.empty(0), np.array([np.nan if 150 <= t < 160 else value + 9.0 * (t == 160)]))
        if t == 160:
            learnt = lags._targets[lags.n_waiting - 1, 0]
            assert learnt == pytest.approx(expected + kernel.GAP_CUT * deviation)
            assert lags.past_y[0, 0] == value + 9.0
        if lags.is_due:
            lags.refresh()


def test_a_target_that_leaves_its_rest_after_a_gap_is_learnt_in_full():
    lags, location, std = Autoregression(0, 1), *np.empty((2, 4, 1))
    for t, value in enumerate([0.0] * 100 + [np.nan, 3.0, 2.0]):
        lags.predict(np.empty(0), location, std)
        lags.learn(np.empty(0), np.array([value]))
        if t == 101:
            assert lags._targets[lags.n_waiting - 1, 0] == 3.0
        if lags.is_due:
            lags.refresh()
    assert 0.0 < std[2, 0] < np.inf


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
    plane_rows = np.full((30, 2, 4, 2), np.nan)
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
    for name in ("past_x", "past_y", "residuals", "P", "W", "_features", "_targets"):
        assert_array_equal(getattr(many, name)[:29], getattr(one, name)[:29], err_msg=name)


def test_deviation_of_the_lags_follows_from_their_residuals():
    rng = np.random.default_rng(14)
    lags, location, spread = Autoregression(0, 1, discount=0.9), *np.full((2, 4, 1), np.nan)
    Y = rng.normal(size=25).cumsum()
    squares, mass = np.zeros(3), 0.0
    for i, y in enumerate(Y):
        lags.predict(np.empty(0), location, spread)
        c = np.append(lags._c, 1.0)
        if i >= 2:
            assert_allclose(spread[:3, 0], np.sqrt(squares / mass * (1.0 + NU0 / mass) * c), rtol=1e-10)
            assert location[2, 0] == Y[i - 1]
        elif i == 1:
            assert np.all(np.isinf(spread))
        if i:
            squares = 0.9 * squares + (y - location[:3, 0]) ** 2 / c
            mass = 0.9 * mass + 1.0
        lags.learn(np.empty(0), np.array([y]))


def test_an_output_that_comes_late_does_not_spoil_the_lags_of_the_others():
    # Fails while `lag_features` hands on the NaN of an output without a past, which stays in all residuals for good.
    lags, location, spread = Autoregression(1, 2), *np.empty((2, 4, 2))
    for t in range(40):
        lags.predict(np.zeros(1), location, spread)
        lags.learn(np.zeros(1), np.array([t, np.nan if t < 5 else 2.0 * t]))
        if lags.is_due:
            lags.refresh()
    assert np.all(np.isfinite(location)) and np.all(np.isfinite(spread[:3])) and np.all(np.isfinite(lags.residuals))


@pytest.mark.parametrize(("season", "missing"), [(7, 0.0), (15, 0.1), (0, 0.0)])
def test_the_pattern_of_errors_is_its_slow_twin(season, missing, monkeypatch):
    rng = np.random.default_rng(15)
    n, P = 320, 2
    Y = rng.normal(scale=0.3, size=(n, P)).cumsum(axis=0)
    if season:
        Y[3::season] += 3.0
    Y[rng.random((n, P)) < missing] = np.nan
    monkeypatch.setattr(stream_lags, "LONGEST_SEASON", 110)
    monkeypatch.setattr(stream_lags, "KEPT_ERRORS", 128)
    lags, location, std = Autoregression(0, P), *np.empty((2, 4, P))
    twin = naive.SeasonalErrors(P, 110, 128)
    last = None
    for y in Y:
        lags.predict(np.empty(0), location, std)
        if last is not None:
            shifts = lags._means[2:] - lags._means[:2]
            assert_allclose(shifts[0], [twin.shift(p) for p in range(P)], rtol=1e-6, atol=1e-9)
            means = lags._means[0].copy()
        lags.learn(np.empty(0), y)
        if last is not None:
            squares, mass = lags.residuals[0], lags.residuals[3]
            with np.errstate(invalid="ignore"):
                # The change since a value that was filled, cut, is what is learnt.
                twin.learn(lags._targets[lags.n_waiting - 1], means, np.sqrt(squares / mass), mass > 4)
        last = y
        if lags.is_due:
            lags.refresh()
    assert_allclose(lags.echo, twin.echo(), rtol=1e-7, atol=1e-9)
    assert lags.clock[kernel.SEASON] == twin.season == season


def test_the_first_of_several_peaks_is_the_season():
    echo = np.zeros(60)
    echo[[12, 24, 36, 48]] = [70.0, 75.0, 72.0, 71.0]
    assert find_season(echo, 200.0, 0) == 12
    # One that was found before stays as long as it is nearly as good.
    assert find_season(echo, 200.0, 24) == 24
    # It must have been seen three times, and be clear.
    assert find_season(echo, 30.0, 0) == 0
    assert find_season(0.01 * echo, 200.0, 0) == 0
    assert find_season(np.random.default_rng(0).normal(scale=14.0, size=60), 200.0, 0) == 0


def test_a_season_makes_its_predictions_better():
    rng = np.random.default_rng(16)
    Y = rng.normal(scale=0.2, size=(600, 1)).cumsum(axis=0)
    Y[7::24] += 2.0
    Y[18::24] += 3.0
    lags, location, std = Autoregression(0, 1), *np.empty((2, 4, 1))
    errors = []
    for y in Y:
        lags.predict(np.empty(0), location, std)
        errors.append([y[0] - location[0, 0], y[0] - Y[len(errors) - 1, 0] - lags._means[0, 0]])
        lags.learn(np.empty(0), y)
        if lags.is_due:
            lags.refresh()
    with_pattern, without = np.sqrt(np.mean(np.square(errors[300:]), axis=0))
    assert with_pattern < 0.5 * without


def test_an_expert_that_stands_still_speaks_after_a_repetition_only():
    lags, location, std = Autoregression(0, 1), *np.empty((2, 4, 1))
    said = []
    for y in [1.0, 1.0, 1.0, 1.5, 1.5, 1.75, 2.5, np.nan, 2.5, 3.0]:
        lags.predict(np.empty(0), location, std)
        said.append(std[3, 0])
        assert said[-1] == np.inf or location[3, 0] == lags.past_y[0, 0]
        lags.learn(np.empty(0), np.array([y]))
    # As narrow as an eighth of the least change so far; none has been seen at first.
    assert_array_equal(said, [np.inf] * 5 + [0.5 / 8] + [np.inf] * 3 + [0.25 / 8])


@pytest.mark.parametrize("n", [1, 3, 4, 9])
@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_rows_of_lags_are_added_up(n, forgetting):
    rng = np.random.default_rng(n)
    F, T, W = rng.normal(size=(n + 2, 6)), rng.normal(size=(n + 2, 2)), rng.normal(size=(6, 2))
    F[:, 0] = 1.0
    T[0, 1] = np.nan
    if n > 3:
        F[2, 3], T[3, 0] = np.nan, np.inf
    A, C = rng.normal(size=(6, 6)), rng.normal(size=(6, 2))
    A = A + A.T
    expected = naive.lag_moments(forgetting, W, F[:n], T[:n], A, C)
    kernel.add_up_lags(n, forgetting, W, F, T, A, C)
    assert_allclose(A, expected[0], rtol=1e-12, atol=1e-13)
    assert_allclose(C, expected[1], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("mass", [1.0, 12.0])
def test_moments_of_lags_move_to_new_units(mass):
    rng = np.random.default_rng(3)
    F, T = rng.normal(size=(int(mass), 6)), rng.normal(size=(int(mass), 2))
    # A feature that does not vary, one far from its origin, and one that varies by round-off only.
    F[:, 0], F[:, 2], F[:, 3] = 1.0, 5.0, F[:, 3] + 1e3
    F[:, 4] = 7.0 + 1e-9 * F[:, 4]
    units = np.vstack([rng.normal(size=5), rng.uniform(0.5, 2.0, 5)])
    A, C = F.T @ F, F.T @ T
    expected = naive.rebased_lags(A, C, units, kernel.LEAST_STD, kernel.LEAST_UNIT)
    scratch = np.empty((2, 6))
    kernel.rebase_lags(scratch[0], scratch[1], A, C, units)
    for ours, theirs in zip((A, C, units), expected, strict=True):
        assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("width", [6, 4])
def test_weights_of_lags_are_those_of_a_ridge(width):
    rng = np.random.default_rng(4)
    F, T = rng.normal(size=(30, 6)), rng.normal(size=(30, 2))
    F[:, 0], F[:, 2] = 1.0, 0.0
    A, C = F.T @ F, F.T @ T
    P, B = np.full((6, 6), 9.0), np.full((6, 2), 9.0)
    assert kernel.solve_lags(width, 3.0, A, C, np.empty(6), np.empty((width, width)), P, B) == OK
    used = [k for k in range(width) if k != 2]
    penalty = np.diag([kernel.LEVEL_PENALTY if k == 0 else 3.0 for k in used])
    inverse = np.linalg.inv(A[np.ix_(used, used)] + penalty)
    assert_allclose(P[np.ix_(used, used)], inverse, rtol=1e-10, atol=1e-13)
    assert_allclose(B[used], inverse @ C[used], rtol=1e-10, atol=1e-13)
    # The one that has not varied has no weight; the others are not touched.
    assert_array_equal(P[2, :width], 0.0)
    assert_array_equal(B[2], 0.0)
    assert_array_equal(P[width:], 9.0)
    A[1, 1] = np.nan
    assert kernel.solve_lags(width, 3.0, A, C, np.empty(6), np.empty((width, width)), P, B) == NOT_POSITIVE_DEFINITE
