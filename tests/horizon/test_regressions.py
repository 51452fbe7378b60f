"""Linear regressions of all steps ahead: what they solve, gaps, units, features that stand still, state."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.horizon.calendar import Ahead
from momostream.horizon.past import Past
from momostream.horizon.regressions import BATCH, OWN_EVERY, REACH, OwnLags, WideLags
from momostream.kernels.horizon import own_solve
from momostream.kernels.lags import LEVEL_PENALTY
from tests import naive

NAN = np.nan


def wide_rows(n_rows, width=6, n_outputs=3, noise=0.1, gaps=0.0, seed=0):
    """Features, the first of which is 1, and changes that are linear in them."""
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(n_rows, width))
    F[:, 0] = 1.0
    T = F @ rng.normal(size=(width, n_outputs)) + noise * rng.normal(size=(n_rows, n_outputs))
    T[rng.random(T.shape) < gaps] = np.nan
    return F, T


def teach(wide, F, T):
    for f, t in zip(F, T, strict=True):
        wide.learn(f, t)
        wide.work()
    return wide


class Refreshes(WideLags):
    """Knows after which row the weights of each penalty were last solved for."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.at = [0] * len(self.penalties)

    def _refresh(self, k):
        super()._refresh(k)
        self.at[k] = self.n_rows


def precision(F, forgetting, penalty):
    """The penalty in rows of each feature, by what the rows say of its size."""
    discounts = forgetting ** np.arange(len(F) - 1, -1, -1.0)
    usual = discounts @ F**2 / discounts.sum()
    usual[0] = LEVEL_PENALTY / penalty
    return penalty * usual


# ---------------------------------------------------------------------------------------------- wide lags


@pytest.mark.parametrize("n_rows", [1, 2, 7, 100, 700])
def test_wide_weights_are_those_of_all_rows(n_rows):
    F, T = wide_rows(n_rows)
    wide = teach(Refreshes(6, 3), F, T)
    for k, penalty in enumerate(wide.penalties):
        at = wide.at[k]
        if not at:
            assert_array_equal(wide.W[k], 0.0)
            continue
        # Since the last refresh the penalty has been forgotten like any row; all else is exact.
        held = wide.forgetting ** (n_rows - at) * precision(F[:at], wide.forgetting, penalty)
        assert_allclose(wide.W[k], naive.discounted_ridge(F, T, wide.forgetting, held), rtol=1e-7, atol=1e-9)


def test_wide_weights_are_solved_for_at_refreshes():
    F, T = wide_rows(900)
    wide = Refreshes(6, 3)
    seen = [set(), set()]
    for i in range(len(F)):
        teach(wide, F[i : i + 1], T[i : i + 1])
        for k, penalty in enumerate(wide.penalties):
            if wide.at[k] == i + 1:
                seen[k].add(i + 1)
                if i > 10 and len(seen[k]) % 5 == 0:
                    held = precision(F[: i + 1], wide.forgetting, penalty)
                    expected = naive.discounted_ridge(F[: i + 1], T[: i + 1], wide.forgetting, held)
                    assert_allclose(wide.W[k], expected, rtol=1e-8, atol=1e-10)
    # Both penalties have their turn, often at first, and later at least whenever the batch of rows is full.
    for rows in seen:
        assert min(rows) <= 2
        assert max(np.diff(sorted(rows))) <= 2 * BATCH


@pytest.mark.parametrize("n_rows", [80, 500])
def test_wide_weights_stay_close_between_refreshes(n_rows):
    F, T = wide_rows(n_rows)
    wide = teach(Refreshes(6, 3), F, T)
    for k, penalty in enumerate(wide.penalties):
        held = precision(F, wide.forgetting, penalty)
        exact = naive.discounted_ridge(F, T, wide.forgetting, held)
        assert_allclose(wide.W[k], exact, atol=0.1 if k else 0.01)


def test_wide_lags_learn_a_linear_relation():
    F, T = wide_rows(400, noise=0.0)
    wide = teach(WideLags(6, 3, penalties=(1e-6, 1e-6)), F, T)
    assert_allclose(wide.predict(F[0]), [T[0], T[0]], atol=1e-4)


def test_the_heavy_penalty_holds_back_more():
    F, T = wide_rows(60)
    light, heavy = teach(WideLags(6, 3), F, T).W[:, 1:]
    assert np.linalg.norm(heavy) < 0.7 * np.linalg.norm(light)


def test_missing_targets_move_no_weight():
    F, T = wide_rows(100)
    wide = teach(WideLags(6, 3), F, T)
    before = wide.W.copy()
    wide.learn(F[0], np.array([5.0, np.nan, np.nan]))
    assert_array_equal(wide.W[:, :, 1:], before[:, :, 1:])
    assert (wide.W[:, :, 0] != before[:, :, 0]).any()


def test_missing_targets_of_one_output_do_not_touch_the_others():
    F, T = wide_rows(150)
    gaps = T.copy()
    gaps[np.random.default_rng(1).random(150) < 0.1, 1] = np.nan
    whole, holed = teach(WideLags(6, 3), F, T), teach(WideLags(6, 3), F, gaps)
    assert_array_equal(whole.W[:, :, [0, 2]], holed.W[:, :, [0, 2]])
    assert_allclose(whole.W[0, :, 1], holed.W[0, :, 1], atol=0.1)
    assert np.isfinite(holed.W).all()


def test_features_that_never_varied_have_no_weight_until_they_do():
    F, T = wide_rows(200)
    T -= F[:, [4]] * 0.5
    still = F.copy()
    still[:, 4] = 0.0
    wide = teach(WideLags(6, 3), still, T)
    assert_array_equal(wide.W[:, 4], 0.0)
    narrow = teach(WideLags(5, 3), np.delete(still, 4, axis=1), T)
    assert_allclose(np.delete(wide.W, 4, axis=1), narrow.W, rtol=1e-8, atol=1e-10)
    later, targets = wide_rows(300, seed=0)
    teach(wide, later, targets)
    assert (np.abs(wide.W[0, 4]) > 0.01).all()


def test_features_that_say_the_same_share_the_weight():
    F, T = wide_rows(150, width=4)
    wide = teach(WideLags(6, 3), np.column_stack([F, F[:, 3], 1e-8 * F[:, 2]]), T)
    assert np.isfinite(wide.W).all()
    assert_allclose(wide.W[0, 3], wide.W[0, 4], rtol=1e-6)
    assert_allclose(wide.predict(np.r_[F[0], F[0, 3], 1e-8 * F[0, 2]])[0], T[0], atol=0.4)


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**40])
def test_units_of_the_features_do_not_matter(unit):
    F, T = wide_rows(300, gaps=0.1)
    # Which are not known as long as a feature stands still.
    F[:100, 4] = 0.0
    units = np.array([1.0, unit, 1.0, 8.0, 1.0 / unit, 0.5])
    one, other = WideLags(6, 3), WideLags(6, 3)
    for f, t in zip(F, T, strict=True):
        assert_allclose(other.predict(other.cut(f * units)), one.predict(one.cut(f.copy())), rtol=1e-12, atol=1e-15)
        one.learn(f, t)
        other.learn(f * units, t)
        one.work()
        other.work()


def test_units_of_the_targets_do_not_matter():
    F, T = wide_rows(200, gaps=0.1)
    one, other = teach(WideLags(6, 3), F, T), teach(WideLags(6, 3), F, T * 2.0**30)
    assert_array_equal(other.W, one.W * 2.0**30)


def test_features_are_cut_at_many_times_their_usual_size():
    F, T = wide_rows(200)
    F[:, 5] = 0.0
    wide = teach(WideLags(6, 3), F, T)
    f = wide.cut(np.array([1.0, 1e9, -1e9, 0.5, -0.5, 1e9]))
    usual = np.sqrt(np.diag(wide.A) / wide.A[0, 0])
    assert_allclose(f[1:3], [REACH * usual[1], -REACH * usual[2]], rtol=1e-12)
    # Nothing is known of what has not varied.
    assert_array_equal(f[[0, 3, 4, 5]], [1.0, 0.5, -0.5, 1e9])


def test_a_jump_of_a_target_is_cut():
    F, T = wide_rows(200)
    wide, jumped = teach(WideLags(6, 3), F, T), teach(WideLags(6, 3), F, T)
    usual = np.sqrt(wide.squares / wide.masses)
    wide.learn(F[0], 1e9 * np.array([1.0, -1.0, 0.0]))
    jumped.learn(F[0], 2.0 * REACH * usual * [1.0, -1.0, 0.0])
    assert_allclose(wide.W, jumped.W, rtol=1e-9)


def test_a_target_that_stood_still_may_move():
    F, T = wide_rows(150)
    still = T.copy()
    still[:100] = 0.0
    wide = teach(WideLags(6, 3), F, still)
    expected = naive.discounted_ridge(F, still, wide.forgetting, precision(F, wide.forgetting, 1.0))
    assert_allclose(wide.W[0], expected, atol=0.01)


def test_stand_ins_for_missing_values_are_not_larger_than_usual():
    F, T = wide_rows(100)
    wide = teach(WideLags(6, 3), F, T)
    wide.learn(100.0 * F[0], np.full(3, NAN))
    usual = np.sqrt(wide.squares / wide.masses)
    assert_allclose(np.abs(wide._targets[wide.n_waiting - 1]), usual, rtol=1e-12)


def test_moments_that_are_not_finite_are_named():
    wide = WideLags(2, 1)
    wide.learn(np.array([1.0, NAN]), np.zeros(1))
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        wide.work()


def test_nothing_is_cut_before_the_first_row():
    f = np.array([1.0, 1e9, -1e9])
    assert_array_equal(WideLags(3, 1).cut(f.copy()), f)
    assert_array_equal(WideLags(3, 1).predict(f), np.zeros((2, 1)))


def test_only_the_level():
    wide = teach(WideLags(1, 2), np.ones((50, 1)), np.tile([3.0, -1.0], (50, 1)))
    assert_allclose(wide.predict(np.ones(1)), [[3.0, -1.0]] * 2, rtol=1e-3)


@pytest.mark.parametrize("n_rows", [0, 1, 63, 64, 130, 517])
def test_restored_wide_lags_resume_bit_for_bit(n_rows):
    F, T = wide_rows(600, gaps=0.1)
    wide = teach(WideLags(6, 3), F[:n_rows], T[:n_rows])
    state = wide.state()
    copy = WideLags(6, 3)
    copy.restore(state)
    kept = {name: np.copy(value) for name, value in state.items()}
    for i in range(n_rows, min(n_rows + 80, len(F))):
        teach(wide, F[i : i + 1], T[i : i + 1])
        teach(copy, F[i : i + 1], T[i : i + 1])
        assert_array_equal(copy.W, wide.W)
    assert_array_equal(copy.A, wide.A)
    # The state is a picture of its time.
    for name, value in kept.items():
        assert_array_equal(state[name], value)


# ---------------------------------------------------------------------------------------------- own lags


def own_pair(n_rows, horizon=3, n_series=2, n_inputs=1, seasons=(), gaps=0.1, seed=0):
    rng = np.random.default_rng(seed)
    Y, X = rng.normal(size=(n_rows, n_series)).cumsum(axis=0), rng.normal(size=(n_rows, n_inputs))
    Y += X @ np.ones((n_inputs, n_series))
    Y[rng.random(Y.shape) < gaps] = np.nan
    past, own = Past(n_series, n_inputs, 400), OwnLags(horizon, n_series, n_inputs)
    if seasons:
        own.set_seasons(seasons)
    return past, own, Y, X


def run_own(past, own, Y, X):
    for y, x in zip(Y, X, strict=True):
        past.append(y, x)
        own.learn(past)
        own.work()


def no_calendar(horizon):
    return Ahead(np.zeros((1 + horizon, 0)), np.zeros(1 + horizon, dtype=np.int64))


def ask(past, own):
    location = np.full((2, own.horizon, own.n_series), np.nan)
    slope = np.full((2, own.horizon, own.n_series, own.n_inputs), np.nan)
    own.predict(past, no_calendar(own.horizon), location, slope)
    return location, slope


def test_own_weights_are_solved_for_in_turn():
    past, own, Y, X = own_pair(300)
    run_own(past, own, Y, X)
    # No weight is older than so many rows: after that many calls all are up to date.
    for _ in range(OWN_EVERY):
        own.work()
    solved = own.W.copy()
    n = own.horizon * own.n_series
    own_solve(0, n, own.penalties, own._least, own.A, own.C, np.zeros(own.A.shape[2:]), own.W)
    assert_array_equal(own.W, solved)


def test_own_lags_find_what_an_input_does():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)).cumsum(axis=0)
    Y = X @ np.array([[2.0], [-0.5]]) + 0.01 * rng.normal(size=(400, 1))
    past, own = Past(1, 2, 400), OwnLags(4, 1, 2)
    run_own(past, own, Y, X)
    _, slope = ask(past, own)
    assert_allclose(slope[0, :, 0], np.tile([2.0, -0.5], (4, 1)), atol=0.1)


def heated(n_rows):
    """A room that takes on a tenth of the distance to its heating at each row; the heating changes now and then."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(n_rows // 20 + 1, 1)), 20, axis=0)[:n_rows]
    Y = np.zeros((n_rows, 1))
    for t in range(1, n_rows):
        Y[t] = Y[t - 1] + 0.1 * (X[t] - Y[t - 1])
    return Y + 0.03 * rng.normal(size=Y.shape), X


def test_own_lags_know_the_level_of_an_input_after_its_change():
    Y, X = heated(600)
    errors = []
    for n_levels in (0, 1):
        past, own = Past(1, 1, 700), OwnLags(5, 1, 1, n_levels=n_levels)
        run_own(past, own, Y[:581], X[:581])
        # The input has just changed, and stays: what it will do shows in its level only.
        errors.append(np.abs(ask(past, own)[0][0, :, 0] - Y[581:586, 0]).max())
    assert errors[1] < 0.5 * errors[0]


def test_own_lags_without_levels_in_an_earlier_file_learn_them():
    Y, X = heated(400)
    past, before = Past(1, 1, 500), OwnLags(3, 1, 1)
    before.set_seasons((5,))
    run_own(past, before, Y[:200], X[:200])
    own = OwnLags(3, 1, 1, n_levels=1)
    own.restore(before.state())
    assert_allclose(ask(past, own)[0], ask(past, before)[0], rtol=1e-12)
    run_own(past, own, Y[200:], X[200:])
    assert (own.A[:, :, 9, 9] > 0.0).all()
    assert np.abs(own.W[:, :, :, 9]).max() > 0.02


def test_other_seasons_keep_what_was_learnt_about_the_rest():
    past, own, Y, X = own_pair(200, seasons=(5, 10))
    run_own(past, own, Y, X)
    A, C = own.A, own.C
    own.set_seasons((7,))
    rest, now = np.r_[0:7, 11], np.r_[0:7, 9]
    assert own.A.shape[2] == 10
    assert_array_equal(own.A[:, :, now[:, None], now], A[:, :, rest[:, None], rest])
    assert_array_equal(own.C[:, :, now], C[:, :, rest])
    assert_array_equal(own.A[:, :, 7:9], 0.0)
    assert np.isfinite(ask(past, own)[0]).all()
    run_own(past, own, Y, X)
    assert (own.A[:, :, 7, 7] > 0.0).all()


def test_to_forget_a_season_is_as_never_to_have_had_one():
    past, own, Y, X = own_pair(150, seasons=(5,))
    plain_past, plain, _, _ = own_pair(150)
    run_own(past, own, Y, X)
    run_own(plain_past, plain, Y, X)
    own.set_seasons(())
    plain.set_seasons(())
    assert_array_equal(own.A, plain.A)
    assert_array_equal(ask(past, own)[0], ask(plain_past, plain)[0])


@pytest.mark.parametrize("n_rows", [0, 1, 5, 90, 217])
def test_restored_own_lags_resume_bit_for_bit(n_rows):
    past, own, Y, X = own_pair(240, seasons=(6,))
    run_own(past, own, Y[:n_rows], X[:n_rows])
    copy = OwnLags(3, 2, 1)
    copy.restore(own.state())
    for y, x in zip(Y[n_rows:][:30], X[n_rows:][:30], strict=True):
        past.append(y, x)
        for one in (own, copy):
            one.learn(past)
            one.work()
        for mine, other in zip(ask(past, own), ask(past, copy), strict=True):
            assert_array_equal(mine, other)


def test_own_forecasts_scale_with_the_series():
    past, own, Y, X = own_pair(150)
    other_past, other, _, _ = own_pair(150)
    run_own(past, own, Y, X)
    run_own(other_past, other, Y * 2.0**20, X * 2.0**-10)
    (location, slope), (large, steep) = ask(past, own), ask(other_past, other)
    assert_allclose(large, location * 2.0**20, rtol=1e-12)
    assert_allclose(steep, slope * 2.0**30, rtol=1e-9)
