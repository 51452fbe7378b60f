"""Quantiles that are tracked row by row, whatever the distributions say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtri

from momostream.horizon.conformal import GAMMA, HORIZON_POWER, LEVELS, NORMAL, TAIL_POWER, Conformal


def regimes(rng, n_rows, steps, n_series):
    """Scores of forecasts ``steps`` ahead, ``n_rows`` of each: right, too narrow, a shift, tails, too wide."""
    n = 5 * n_rows
    shocks = rng.normal(size=(n + steps, n_series))
    # Errors of forecasts h steps ahead are sums of the shocks of h rows, so that neighbours go together.
    sums = np.lib.stride_tricks.sliding_window_view(shocks, steps, axis=0)[:n].sum(axis=2) / np.sqrt(steps)
    z = sums.reshape(5, n_rows, n_series)
    z[1] *= 2.0
    z[2] += 1.0
    z[3] = np.sinh(z[3])
    z[4] *= 0.5
    return z.reshape(n, n_series)


def coverage(z, step, levels, n_rows):
    """Share inside the intervals as they were forecast, for each level and stretch of rows."""
    conformal = Conformal(step, z.shape[1])
    forecasts, inside = [], []
    for t, row in enumerate(z):
        now = conformal.snapshot()
        forecasts.append([[now.scores(0.5 + side * level)[-1] for side in (-0.5, 0.5)] for level in levels])
        inside.append([(lower < row) & (row <= upper) for lower, upper in forecasts[max(t + 1 - step, 0)]])
        scores = np.full((step, z.shape[1]), np.nan)
        scores[-1] = row
        conformal.learn(scores)
    return np.mean(np.reshape(inside, (-1, n_rows, len(levels), z.shape[1])), axis=(1, 3)).T


def test_one_step_ahead_every_stretch_is_covered():
    z = regimes(np.random.default_rng(0), 2000, 1, 3)
    levels = np.array([[0.5], [0.9], [0.99]])
    assert_allclose(coverage(z, 1, levels[:, 0], 2000), np.repeat(levels, 5, axis=1), atol=0.02)
    # The distributions themselves are far off.
    plain = np.mean(np.abs(z).reshape(5, -1) < ndtri(0.5 + 0.5 * levels)[..., None], axis=2)
    assert (np.abs(plain - levels).max(axis=1) > 0.1).all()


@pytest.mark.parametrize("step", [6, 24])
def test_far_ahead_coverage_holds_although_errors_go_together(step):
    z = regimes(np.random.default_rng(1), 2000, step, 4)
    found = coverage(z, step, (0.5, 0.9, 0.99), 2000)
    for shares, level, spare in zip(found, (0.5, 0.9, 0.99), (0.07, 0.07, 0.025), strict=True):
        assert_allclose(shares, level, atol=spare)


def test_right_laws_stay_as_they_are():
    """What tracking costs where there is nothing to find."""
    rng = np.random.default_rng(2)
    conformal = Conformal(2, 30)
    found = []
    for row in range(3000):
        conformal.learn(rng.normal(size=(2, 30)))
        if row >= 1000:
            found.append(conformal.scores(0.9).mean())
    assert_allclose(np.mean(found), ndtri(0.9), atol=0.05)


def test_a_value_is_compared_with_the_score_of_its_forecast():
    """As the slow and obvious way: keep all scores of the past."""
    rng = np.random.default_rng(3)
    H, P = 3, 2
    conformal = Conformal(H, P)
    history = [np.broadcast_to(NORMAL[:, None], (H, len(NORMAL), P))]
    for _ in range(40):
        z = rng.normal(size=(H, P))
        z[rng.random((H, P)) < 0.2] = np.nan
        after = history[-1].copy()
        for h in range(H):
            # The forecast of this row was made h + 1 rows ago, with the scores after that row.
            then = history[max(len(history) - 1 - h, 0)]
            for g, level in enumerate(LEVELS):
                for p in range(P):
                    if not np.isnan(z[h, p]):
                        gamma = GAMMA * (h + 1) ** HORIZON_POWER * np.exp(0.5 * NORMAL[g] ** 2) ** TAIL_POWER
                        after[h, g, p] += gamma * (level - float(z[h, p] <= then[h, g, p]))
        history.append(after)
        conformal.learn(z)
        for g, level in enumerate(LEVELS):
            assert_allclose(conformal.scores(level), np.sort(after, axis=1)[:, g], atol=1e-12)


def test_nothing_known_is_nothing_learnt():
    conformal = Conformal(4, 2)
    for _ in range(9):
        conformal.learn(np.full((4, 2), np.nan))
    assert_allclose(conformal.scores(0.37), ndtri(0.37))
    scores = np.full((4, 2), np.nan)
    scores[1, 0] = 3.0
    conformal.learn(scores)
    moved = conformal.scores(0.9) != ndtri(0.9)
    assert moved[1, 0]
    assert moved.sum() == 1


def test_scores_grow_with_the_probability():
    rng = np.random.default_rng(4)
    conformal = Conformal(2, 3)
    q = np.concatenate([[1e-9, 1e-4], np.linspace(0.001, 0.999, 500), [1 - 1e-9]])
    for _ in range(200):
        conformal.learn(np.sign(rng.normal(size=(2, 3))))
        found = np.array([conformal.scores(level) for level in q[::50]])
        assert (np.diff(found, axis=0) >= 0.0).all()
    found = np.array([conformal.scores(level) for level in q])
    assert (np.diff(found, axis=0) >= 0.0).all()


def test_between_and_beyond_the_tracked_levels():
    rng = np.random.default_rng(5)
    conformal = Conformal(1, 1)
    for _ in range(300):
        conformal.learn(1.0 + 2.0 * rng.normal(size=(1, 1)))
    a, b, between = (conformal.scores(q)[0, 0] for q in (0.75, 0.9, 0.8))
    share = (ndtri(0.8) - ndtri(0.75)) / (ndtri(0.9) - ndtri(0.75))
    assert_allclose(between, (1.0 - share) * a + share * b)
    for end, beyond in ((0.005, 1e-5), (0.995, 1 - 1e-5)):
        assert_allclose(conformal.scores(beyond) - conformal.scores(end), ndtri(beyond) - ndtri(end))
    assert_array_equal(conformal.scores(0.0), -np.inf)
    assert_array_equal(conformal.scores(1.0), np.inf)


@pytest.mark.parametrize("q", [-0.1, 1.1, np.nan])
def test_a_number_that_is_not_a_probability_is_rejected(q):
    with pytest.raises(ValueError, match="probability"):
        Conformal(1, 1).scores(q)


def test_a_stuck_sensor_and_values_out_of_reach_leave_finite_scores():
    conformal = Conformal(2, 2)
    for value in (0.0, np.inf, -np.inf):
        for _ in range(500):
            conformal.learn(np.full((2, 2), value))
        assert np.isfinite(conformal.scores(0.99)).all()


def test_a_snapshot_stays_as_it_is():
    conformal = Conformal(2, 1)
    now = conformal.snapshot()
    conformal.learn(np.full((2, 1), 5.0))
    assert_allclose(now.scores(0.9), ndtri(0.9))
    assert (conformal.scores(0.9) > now.scores(0.9)).all()


def test_restored_scores_resume_bit_for_bit():
    rng = np.random.default_rng(6)
    one, other = Conformal(5, 2), Conformal(5, 2)
    for _ in range(33):
        one.learn(rng.normal(size=(5, 2)))
    state = one.state()
    other.restore(state)
    for _ in range(7):
        z = rng.normal(size=(5, 2))
        one.learn(z)
        other.learn(z)
    assert_array_equal(one.scores(0.9), other.scores(0.9))
    # The state is a copy.
    assert state["n_rows"] == 33
    third = Conformal(5, 2)
    third.restore(state)
    assert not np.array_equal(third.scores(0.9), one.scores(0.9))
