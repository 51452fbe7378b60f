"""Kernels of forecasts: same answers as slow, obvious twins, compiled or interpreted."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.horizon.regressions import REACH
from momostream.kernels.blend import LEAST_BLEND, blend_common, blend_learn, blend_solve, blend_trials
from momostream.kernels.horizon import (
    components_learn,
    exchange,
    iterate,
    level_factors,
    level_learn,
    own_learn,
    own_predict,
    own_solve,
    past_append,
    recall,
)
from tests import naive

PENALTIES = np.array([3.0, 100.0])
FORGETTING = 0.995
# Enough for the blend to arrive.
STEPS = 2000

# Steps, series, inputs, seasons, share of gaps, rows.
HISTORIES = {
    "one of each": (1, 1, 0, (), 0.0, 30),
    "few rows": (3, 2, 1, (4,), 0.0, 5),
    "gaps": (3, 2, 0, (), 0.3, 60),
    "seasons": (5, 1, 0, (4, 7), 0.1, 60),
    "inputs": (2, 2, 3, (), 0.2, 60),
    "everything": (4, 2, 2, (3, 6), 0.2, 90),
    "days of a kind": (4, 2, 1, (3, -1), 0.1, 90),
}
each_history = pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES.keys())


def wander(n_rows, n_series, n_inputs, gaps, seed=0):
    """Random walks with a jump, gaps and inputs."""
    rng = np.random.default_rng(seed)
    Y = rng.normal(size=(n_rows, n_series)).cumsum(axis=0) + 5.0
    Y[-15:] += 1000.0
    Y[rng.random(Y.shape) < gaps] = np.nan
    return Y, rng.normal(size=(n_rows, n_inputs)).cumsum(axis=0)


def alike(row):
    """Rows since the last day of the kind of a row; 0 at times."""
    return (5, 0, 12, 7)[row // 3 % 4]


class Learnt:
    """The arrays of the kernels, and a dense regression for each step and series beside them."""

    def __init__(self, H, P, D, seasons, before=0):
        d = 7 + 2 * len(seasons) + D
        # Seasons count when they were there in so many rows.
        self.least = np.zeros(d)
        self.least[7 : 7 + 2 * len(seasons)] = 40.0
        self.seasons = np.array(seasons, dtype=np.int64)
        # Rows before the first do not exist: whatever they hold must not matter.
        self.first = before
        self.A, self.C, self.W = np.zeros((H, P, d, d)), np.zeros((H, P, d)), np.zeros((2, H, P, d))
        self.squares = np.zeros((H, P))
        self.f, self.L = np.zeros(d), np.zeros((d, d))
        self.dense = [[naive.OwnRegression(d, FORGETTING, REACH) for _ in range(P)] for _ in range(H)]

    def feed(self, Y, X):
        H, P = self.C.shape[:2]
        self.past = np.concatenate([np.random.default_rng(9).normal(size=(self.first, 4, P)), naive.kept_rows(Y)])
        self.inputs = np.zeros((len(self.past), 2, X.shape[1]))
        self.inputs[self.first :, 0] = X
        sizes = np.abs(X).max(axis=0)
        for now in range(len(Y)):
            own_learn(
                self.past, self.inputs, sizes, self.first, self.first + now, self.seasons, alike(now), Y[now],
                FORGETTING, REACH, self.f, self.A, self.C, self.squares,
            )  # fmt: skip
            for h in range(min(H, now)):
                for p in range(P):
                    if not np.isnan(Y[now, p]):
                        values = self.past[self.first :, 0, p]
                        origin = now - h - 1
                        self.dense[h][p].learn(self.say(origin, h, p, X[now] - X[origin]), Y[now, p] - values[origin])

    def say(self, origin, h, p, moved):
        values, slow = self.past[self.first :, 0, p], self.past[self.first :, 1, p]
        return naive.own_features(values, slow, origin, h + 1, tuple(self.seasons), moved, alike(origin + h + 1))

    def solve(self, penalties=PENALTIES):
        H, P = self.C.shape[:2]
        own_solve(0, H * P, penalties, self.least, self.A, self.C, self.L, self.W)


def learnt_from(history, before=0):
    H, P, D, seasons, gaps, n_rows = history
    learnt = Learnt(H, P, D, seasons, before)
    Y, X = wander(n_rows, P, D, gaps)
    learnt.feed(Y, X)
    return learnt, Y, X


# ---------------------------------------------------------------------------------------------- the past


@pytest.mark.parametrize("gaps", [0.0, 0.4])
@pytest.mark.parametrize("first", [0, 4])
def test_past_rows_are_those_of_all_values(gaps, first):
    Y, X = wander(45, 2, 2, gaps)
    Y[:6, 1], X[:5, 0] = np.nan, np.nan
    P, D = Y.shape[1], X.shape[1]
    series, inputs, observed = (np.full((60, *shape), -7.0) for shape in ((4, P), (2, D), (P,)))
    series[first], inputs[first] = 0.0, 0.0
    is_known, knows_input, n_missing = np.zeros(P), np.zeros(D), np.zeros(P)
    for i, (y, x) in enumerate(zip(Y, X, strict=True)):
        step = max(0.002, 1.0 / (i + 1))
        past_append(
            first, first + i, y, x, step, is_known, knows_input, n_missing, series, inputs, observed
        )  # fmt: skip
        rows = slice(first, first + i + 1)
        if i % 11 in (0, 5, 6):
            assert_allclose(series[rows], naive.kept_rows(Y[: i + 1]), rtol=1e-12, atol=1e-11)
            assert_allclose(inputs[rows], naive.kept_rows(X[: i + 1])[:, :2], rtol=1e-12, atol=1e-12)
    assert_array_equal(observed[rows], Y)
    seen = [np.flatnonzero(~np.isnan(column)) for column in Y.T]
    assert_array_equal(n_missing, [len(Y) - 1 - rows[-1] for rows in seen])
    # Nothing is written outside.
    assert_array_equal(series[:first], -7.0)
    assert_array_equal(series[first + 45 :], -7.0)


# ---------------------------------------------------------------------------------------------- own lags


@each_history
@pytest.mark.parametrize("before", [0, 3])
def test_own_moments_are_those_of_all_rows(history, before):
    learnt, _, _ = learnt_from(history, before)
    for h, row in enumerate(learnt.dense):
        for p, dense in enumerate(row):
            A, c, counts = dense.moments()
            assert_allclose(np.tril(learnt.A[h, p]), np.tril(A), rtol=1e-9, atol=1e-9)
            assert_allclose(learnt.C[h, p], c, rtol=1e-9, atol=1e-9)
            assert_allclose(learnt.A[h, p, 0, 1:], counts[1:], rtol=1e-12)
            squares = FORGETTING ** np.arange(len(dense.changes) - 1, -1, -1.0) @ dense.changes**2
            assert_allclose(learnt.squares[h, p], squares, rtol=1e-9, atol=1e-12)


def test_a_jump_is_cut():
    learnt, _, _ = learnt_from(HISTORIES["everything"])
    # The size of the jump is a thousand, that of all else about one.
    assert np.sqrt(learnt.A[0, :, 2, 2]).max() < 40.0
    assert np.sqrt(learnt.squares).max() < 400.0


def test_a_series_that_stood_still_may_move():
    learnt = Learnt(1, 1, 0, ())
    Y = np.full((80, 1), 3.0)
    Y[60:] += np.random.default_rng(0).normal(size=(20, 1))
    learnt.feed(Y, np.zeros((80, 0)))
    assert learnt.squares[0, 0] > 5.0
    assert_allclose(learnt.C[0, 0], learnt.dense[0][0].moments()[1], rtol=1e-9, atol=1e-9)


@each_history
def test_own_weights_solve_the_penalised_least_squares(history):
    learnt, _, _ = learnt_from(history)
    learnt.solve()
    for k, penalty in enumerate(PENALTIES):
        for h, row in enumerate(learnt.dense):
            for p, dense in enumerate(row):
                assert_allclose(learnt.W[k, h, p], dense.solve(penalty, learnt.least), rtol=1e-6, atol=1e-8)


@each_history
def test_own_forecasts_and_slopes(history):
    H, P, D, _, _, n_rows = history
    learnt, Y, X = learnt_from(history, before=2)
    learnt.solve()
    # The last of the inputs, if there are any, is known at each step.
    n_terms = min(D, 1)
    ahead = np.random.default_rng(1).normal(size=(H, n_terms))
    location, slope = np.full((2, H, P), np.nan), np.full((2, H, P, D - n_terms), np.nan)
    now = learnt.first + n_rows - 1
    kinds = np.array([alike(n_rows + h) for h in range(H)])
    own_predict(
        learnt.past, learnt.inputs, learnt.first, now, learnt.seasons, kinds, ahead, REACH, learnt.A, learnt.W,
        learnt.f, location, slope,
    )  # fmt: skip
    for k, penalty in enumerate(PENALTIES):
        for h, row in enumerate(learnt.dense):
            for p, dense in enumerate(row):
                moved = np.append(np.zeros(D - n_terms), ahead[h] - X[-1, D - n_terms :])
                w, f = dense.solve(penalty, learnt.least), dense.cut(learnt.say(n_rows - 1, h, p, moved), 0.0)
                assert location[k, h, p] == pytest.approx(learnt.past[now, 0, p] + w @ f, rel=1e-8)
                assert_allclose(slope[k, h, p], w[len(w) - D : len(w) - n_terms], rtol=1e-6, atol=1e-8)


def test_a_part_of_the_weights_leaves_the_others_alone():
    learnt, _, _ = learnt_from(HISTORIES["everything"])
    learnt.solve()
    expected = learnt.W.copy()
    learnt.W[:] = -7.0
    own_solve(2, 5, PENALTIES, learnt.least, learnt.A, learnt.C, learnt.L, learnt.W)
    flat, whole = (W.reshape(2, 8, -1) for W in (learnt.W, expected))
    assert_array_equal(flat[:, 2:5], whole[:, 2:5])
    assert_array_equal(flat[:, :2], -7.0)
    assert_array_equal(flat[:, 5:], -7.0)


def test_no_rows_no_weights():
    learnt = Learnt(2, 2, 1, ())
    learnt.feed(np.full((3, 2), np.nan), np.zeros((3, 1)))
    learnt.solve()
    assert_array_equal(learnt.A, 0.0)
    assert_array_equal(learnt.W, 0.0)


def test_features_that_follow_from_others_have_no_weight():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(50, 7))
    F[:, 0], F[:, 4], F[:, 6] = 1.0, F[:, 2] - F[:, 3], 0.0
    target = F @ np.arange(7.0)
    W = np.zeros((1, 1, 1, 7))
    # Nothing but round-off is left of the sixth, and nothing holds its weight back.
    A = F.T @ F
    A[0, 1:] = 50.0
    own_solve(
        0, 1, np.zeros(1), np.zeros(7), A[None, None], (F.T @ target)[None, None], np.zeros((7, 7)), W
    )  # fmt: skip
    w = W[0, 0, 0]
    assert w[4] == 0.0
    assert w[6] == 0.0
    assert_allclose(F @ w, target, atol=1e-3)


def test_round_off_is_not_a_feature():
    # Means of the same values differ from these in the last digit.
    Y = np.full((40, 1), 1e6 + 0.1)
    learnt = Learnt(2, 1, 1, (5,))
    learnt.feed(Y, np.full((40, 1), 0.3) + 1e-14 * np.random.default_rng(0).normal(size=(40, 1)))
    learnt.solve()
    assert_array_equal(learnt.A[:, :, 1:], 0.0)
    assert_array_equal(learnt.W[..., 1:], 0.0)


# ---------------------------------------------------------------------------------------------- the blend


@pytest.mark.parametrize(("K", "H", "P", "gaps"), [(1, 1, 1, 0.0), (3, 2, 2, 0.0), (4, 3, 1, 0.4)])
def test_blend_moments(K, H, P, gaps):
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(60, K, H, P))
    errors[45] *= 1e4
    errors[np.repeat(rng.random((60, 1, H, P)) < gaps, K, axis=1)] = np.nan
    moments = np.zeros((H, P, K, K))
    for n, row in enumerate(errors, start=1):
        blend_learn(n, 0.9, row, np.empty(K), moments)
    for h in range(H):
        for p in range(P):
            assert_allclose(moments[h, p], naive.blend_moments(errors[:, :, h, p], 0.9, h + 1), rtol=1e-10, atol=1e-12)


def test_trials_that_are_believed():
    trials, caution = np.empty((2, 2))
    blend_trials(101, 0.9995, 15.0, 2.0, 10.0, 0.3, trials, caution)
    # A hundred rows under weights of power 4, and ninety-nine under those of power 2 + sqrt(2), which overlap by half.
    power = 2.0 + np.sqrt(2.0)
    rows = np.array([100.0 * 9.0 / 25.0, 99.0 * (2.0 * power + 1.0) / (power + 1.0) ** 2 * 6.0 / 9.0])
    assert_allclose(trials, rows * (1.0 + (rows / 15.0) ** 2) / 2.0, rtol=1e-12)
    assert_allclose(caution, np.minimum(10.0 / rows, 0.3), rtol=1e-12)
    # In the end two memories.
    blend_trials(10**9, 0.9995, 15.0, 2.0, 10.0, 0.3, trials, caution)
    assert_allclose(caution, 10.0 / (4000.0 * np.array([1.0, 6.0 / 9.0])))
    blend_trials(10, 0.9995, 15.0, 2.0, 10.0, 0.3, trials[1:], caution[1:])
    assert caution[1] == 0.3
    assert trials[0] == pytest.approx(4000.0 * (1.0 + (4000.0 / 15.0) ** 2) / 2.0)


def random_moments(rng, K, sign=1.0):
    """Of experts that are good and bad, all surprised by the same; with a negative sign also by the contrary."""
    mixing = rng.uniform(min(sign, 0.0), 1.0, size=(K, 3)) * rng.uniform(0.2, 3.0, size=(K, 1))
    return mixing @ mixing.T + np.diag(rng.uniform(0.05, 1.0, K))


def solve_blend(n_steps, moments, found, trials=np.inf, start=0, stop=None, shrinkage=0.0):
    """Move the weights that are found; returns those that count."""
    H, P, K = found.shape
    common, scratch, trials = np.empty((H, K, K)), np.empty((2, H, K, K)), np.broadcast_to(trials, H).copy()
    rows = np.empty((K, K, H)), np.empty((3, K + 3, H))
    weights = np.full((H, P, K), np.nan)
    blend_common(moments, common)
    blend_solve(
        start, P if stop is None else stop, n_steps, np.full(H, 0.1), trials, shrinkage, common, moments, *scratch,
        *rows, found, weights,
    )  # fmt: skip
    return weights


def test_moments_common_to_all_series():
    rng = np.random.default_rng(0)
    moments = np.array([[scale * random_moments(rng, 3) for scale in (1.0, 1e6, 0.0)] for _ in range(2)])
    moments[1] = 0.0
    common = np.empty((2, 3, 3))
    blend_common(moments, common)
    assert_allclose(common, naive.common_moments(moments), rtol=1e-12)
    assert_array_equal(common[1], 0.0)


@pytest.mark.parametrize("shrinkage", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("trials", [np.inf, np.array([np.inf, 30.0, 4.0, 0.5])])
@pytest.mark.parametrize("K", [1, 2, 5])
@pytest.mark.parametrize("unit", [1.0, 1e-200, 1e200])
def test_blend_finds_the_mixture_of_least_square_error(K, unit, trials, shrinkage):
    rng = np.random.default_rng(K)
    moments = unit * np.array([[random_moments(rng, K) for _ in range(3)] for _ in range(4)])
    weights = np.full((4, 3, K), 1.0 / K)
    counting = solve_blend(STEPS, moments, weights, trials, shrinkage=shrinkage)
    common = naive.common_moments(moments)
    for p in range(3):
        size = np.einsum("hkk->h", moments[:, p])[:, None, None]
        drawn = (1.0 - shrinkage) * moments[:, p] + shrinkage * size * common
        for h, M in enumerate(naive.pooled_moments(drawn)):
            n, least, moved = np.broadcast_to(trials, 4)[h], np.diag(M).min(), np.arange(K) > 0
            w = weights[h, p]
            assert_allclose(counting[h, p], naive.trusted(w, M, n), rtol=1e-9, atol=1e-12)
            M = M + 0.1 * least * np.eye(K) + least / n * np.outer(moved, moved)
            best = naive.best_mixture(M)
            # No expert is forgotten altogether, which costs a little.
            assert w @ M @ w <= (best @ M @ best) * 1.002
            assert_allclose(w, best, atol=0.005)


def test_blend_of_contrary_experts_is_better_than_the_best_of_them():
    rng = np.random.default_rng(0)
    moments = np.array([[random_moments(rng, 4, sign=-1.0) for _ in range(10)]])
    weights = np.full((1, 10, 4), 0.25)
    solve_blend(STEPS, moments, weights)
    assert (
        np.einsum("hpk,hpkl,hpl->hp", weights, moments, weights) < np.einsum("hpkk->hpk", moments).min(axis=2)
    ).all()


def test_blend_starts_anywhere_and_stays_positive_with_sum_one():
    rng = np.random.default_rng(0)
    moments = random_moments(rng, 4)[None, None]
    ends = []
    for _ in range(5):
        weights = rng.dirichlet(np.full(4, 0.2), size=(1, 1))
        for _ in range(STEPS):
            solve_blend(1, moments, weights)
            # Halved at most where all others have doubled.
            assert (weights >= 0.5 * LEAST_BLEND).all()
            assert weights.sum() == pytest.approx(1.0, abs=1e-12)
        ends.append(weights)
    assert_allclose(ends, np.broadcast_to(ends[0], np.shape(ends)), atol=2e-3)


def test_blend_keeps_its_weights_while_the_last_value_has_not_erred():
    # No errors yet, or a sensor that is stuck: nothing to choose from.
    moments = np.zeros((2, 1, 3, 3))
    moments[1, 0] = np.diag([0.0, 1.0, 2.0])
    weights = np.tile([0.5, 0.3, 0.2], (2, 1, 1))
    solve_blend(10, moments, weights)
    assert_array_equal(weights, np.tile([0.5, 0.3, 0.2], (2, 1, 1)))


def test_blend_trusts_an_expert_that_never_erred():
    moments = np.diag([1.0, 0.0, 2.0])[None, None]
    weights = np.array([[[0.9, 0.05, 0.05]]])
    solve_blend(STEPS, moments, weights)
    assert weights[0, 0, 1] > 0.99


def test_blend_of_some_series_leaves_the_others_alone():
    rng = np.random.default_rng(0)
    moments = np.array([[random_moments(rng, 3) for _ in range(4)] for _ in range(2)])
    weights = np.full((2, 4, 3), 1.0 / 3.0)
    counting = solve_blend(5, moments, weights, start=1, stop=3)
    assert_array_equal(weights[:, [0, 3]], 1.0 / 3.0)
    assert (weights[:, 1:3] != 1.0 / 3.0).any(axis=2).all()
    assert_array_equal(np.isnan(counting).all(axis=(0, 2)), [True, False, False, True])


def test_experts_count_once_they_have_gained_more_than_chance_does():
    # The second is better by a fifth in the square.
    moments = np.diag([1.0, 0.8])[None, None] + 9.0
    trust = []
    for trials in (1.0, 10.0, 30.0, 1000.0):
        found = np.array([[[0.5, 0.5]]])
        weights = solve_blend(STEPS, moments, found, trials)
        trust.append(weights[0, 0, 1] / found[0, 0, 1])
    assert trust[:2] == [0.0, 0.0]
    assert 0.3 < trust[2] < 0.6
    assert 0.97 < trust[3] < 1.0


# ---------------------------------------------------------------------------------------------- iterated regressions


@pytest.mark.parametrize(
    ("P", "n_changes", "n_terms", "n_rows"), [(1, 0, 0, 4), (2, 3, 0, 9), (2, 2, 3, 2), (3, 1, 1, 1)]
)
def test_iterated_steps_are_those_of_rows_that_came(P, n_changes, n_terms, n_rows):
    rng = np.random.default_rng(0)
    first, d, H = 2, 1 + P * (1 + n_changes) + n_terms, 6
    past = rng.normal(size=(first + n_rows, 4, P))
    terms, W, centre = rng.normal(size=(H, n_terms)), 0.4 * rng.normal(size=(2, d, P)), rng.normal(size=P)
    lowest, highest, largest = np.full(P, -2.0), np.full(P, 2.5), rng.uniform(0.5, 2.0, d)
    location = np.empty((2, H, P))
    iterate(
        past, first, len(past) - 1, n_changes, terms, centre, lowest, highest, largest, W, np.empty(d),
        np.empty((P + 1, d)), location,
    )  # fmt: skip
    for k in range(2):
        expected = naive.iterated(past[first:, 0], n_changes, terms, centre, lowest, highest, largest, W[k])
        assert_allclose(location[k], expected, rtol=1e-12, atol=1e-12)
    assert location.min() >= -2.0
    assert location.max() <= 2.5


# ---------------------------------------------------------------------------------------------- rest and motion


def test_what_belongs_to_rest_is_exchanged_where_series_rest():
    rng = np.random.default_rng(0)
    M, H, P, T = 3, 2, 4, 5
    shapes = [(2, M, H, P), (2, M, H, P), (2, 3, M, H * P), (2, 2, M, H * P, T), (2, 4, H * P)]
    arrays = [rng.normal(size=shape) for shape in shapes]
    before = [array.copy() for array in arrays]
    rests = rng.integers(0, 2, (H, P)).astype(float)
    exchange(rests, *arrays)
    for k, (array, old) in enumerate(zip(arrays, before, strict=True)):
        # Steps and series are two axes of the first arrays, and one of the others.
        at = rests > 0.0 if k < 2 else (rests.ravel() > 0.0)[:, None] if k == 3 else rests.ravel() > 0.0
        assert_array_equal(array, np.where(at, old[::-1], old))
    exchange(rests, *arrays)
    for array, old in zip(arrays, before, strict=True):
        assert_array_equal(array, old)


# ---------------------------------------------------------------------------------------------- levels


def test_factors_are_interpolated_between_the_knots():
    rng = np.random.default_rng(0)
    knots, logs = np.sort(rng.normal(size=(2, 5)), axis=1), rng.normal(size=(2, 5))
    location, factors = rng.normal(scale=2.0, size=(30, 2)), np.empty((30, 2))
    level_factors(location, knots, logs, factors)
    for p in range(2):
        assert_allclose(factors[:, p], np.exp(np.interp(location[:, p], knots[p], logs[p])), rtol=1e-12)


def test_squares_belong_to_the_knots_around_them():
    rng = np.random.default_rng(0)
    H, B = 3, 4
    knots, sums = np.array([[0.0, 1.0, 2.0, 4.0]]), np.zeros((2, 1, B))
    expected = np.zeros((2, B))
    for _ in range(20):
        location, errors, usual = rng.uniform(-1.0, 5.0, (H, 1)), rng.normal(size=(H, 1)), rng.uniform(0.1, 2.0, (H, 1))
        errors[rng.random((H, 1)) < 0.3] = np.nan
        level_learn(0.9, 4.0, location, errors, usual, knots, sums)
        known = np.flatnonzero(~np.isnan(errors[:, 0]))
        if len(known):
            expected *= 0.9
        for h in known:
            # Hats around the knots.
            shares = np.array([np.interp(location[h, 0], knots[0], np.eye(B)[b]) for b in range(B)])
            expected += np.outer([min(errors[h, 0] ** 2 / usual[h, 0], 4.0), 1.0], shares) / len(known)
    assert_allclose(sums[:, 0], expected, rtol=1e-12)


# ---------------------------------------------------------------------------------------------- components


def test_components_learn_as_one_by_one():
    rng = np.random.default_rng(0)
    forgetting = np.array([0.5, 0.9, 0.9998])
    errors = rng.normal(size=(60, 3, 2, 2))
    errors[rng.random(errors.shape) < 0.2] = np.nan
    squares, masses = np.zeros((2, 3, 2, 2))
    for row in errors:
        components_learn(forgetting, row, squares, masses)
    for m, h, p in np.ndindex(3, 2, 2):
        square, mass = naive.component_moments(errors[:, m, h, p], forgetting[m])
        assert squares[m, h, p] == pytest.approx(square, rel=1e-12)
        assert masses[m, h, p] == pytest.approx(mass, rel=1e-12)


# ---------------------------------------------------------------------------------------------- forecasts as they were


@pytest.mark.parametrize(
    ("H", "P", "D", "own"),
    [
        (1, 1, 0, slice(0, 0)),
        (1, 1, 1, slice(2, 4)),
        (4, 2, 0, slice(2, 5)),
        (3, 2, 2, slice(0, 0)),
        (4, 3, 2, slice(2, 4)),
        (4, 3, 2, slice(2, 5)),
    ],
)
@pytest.mark.parametrize("every", [1, 3])
def test_recall_finds_the_forecasts_of_a_row(H, P, D, own, every):
    rng = np.random.default_rng(0)
    K, stands_still = 5, np.array([False, True, False])
    rings = {
        "located": np.zeros((H, H, K, P)), "sloped": np.zeros((H, H, 2, P, D)), "blend_slope": np.zeros((H, H, P, D)),
        "law": np.zeros((H, H, 5, 3, P)),
    }  # fmt: skip
    kept, rests, all_rests = np.full(H, -1), np.zeros((H, P)), np.zeros((0, P))
    made, X = [], np.zeros((0, D))
    # Normal locations: some lie beyond.
    reach = np.linspace(-1.0, -0.5, P), np.linspace(0.5, 1.0, P)
    for now in range(3 * H + 2):
        y = np.where(rng.random(P) < 0.2, np.nan, rng.normal(size=P))
        X = np.vstack([X, rng.normal(size=(1, D))])
        if now:
            inputs = np.stack([X, np.full_like(X, np.nan)], axis=1)
            values, errors, planes = np.empty((H, P)), np.empty((K, H, P)), np.empty((5, 3, H * P))
            recall(
                now, now, kept, y, *reach, inputs, own.start, own.stop - own.start, stands_still.astype(float), rests,
                *rings.values(), values, errors, planes,
            )  # fmt: skip
            expected, plane_ring = naive.recall(now, every, y, reach, X, own, stands_still, all_rests, made)
            said = ~np.isnan(plane_ring[0, 0])
            assert_array_equal(values, np.where(said, y, np.nan))
            assert_allclose(errors, expected, rtol=1e-12, atol=1e-12)
            assert_allclose(planes.reshape(5, 3, H, P)[:, :, said], plane_ring[:, :, said], rtol=1e-12, atol=1e-12)
        made.append({name: rng.normal(size=ring.shape[1:]) for name, ring in rings.items()})
        all_rests = np.vstack([all_rests, rng.integers(0, 2, (1, P)).astype(float)])
        if now % every == now // H % every:
            kept[now % H], rests[now % H] = now, all_rests[-1]
            for name, ring in rings.items():
                ring[now % H] = made[-1][name]
