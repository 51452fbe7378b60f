"""Factors of deviations by the level that is forecast."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from momostream.horizon.levels import EVERY_ROWS, N_KNOTS, N_SAMPLE, LevelScale
from momostream.horizon.past import Past


def look_at(levels, values):
    past = Past(values.shape[1], 0, 10)
    for y in values:
        past.append(y, np.empty(0))
        levels.look(past)
    return past


def test_all_levels_are_alike_before_rows_have_come():
    levels = LevelScale(2, 1)
    levels.learn(np.zeros((2, 1)), np.full((2, 1), 9.0), np.ones((2, 1)))
    assert_array_equal(levels.factors(np.array([[5.0], [-5.0]])), 1.0)


def test_knots_are_quantiles_of_rows_spread_over_the_past():
    values = np.random.default_rng(0).normal(size=(5000, 2)) * [1.0, 100.0]
    levels = LevelScale(1, 2)
    look_at(levels, values)
    assert levels.sample.shape == (N_SAMPLE, 2)
    assert_allclose(levels.knots[:, N_KNOTS // 2] / [1.0, 100.0], 0.0, atol=0.5)
    assert (np.diff(levels.knots, axis=1) > 0.0).all()
    # The sample reaches back a thousand rows.
    later = LevelScale(1, 2)
    look_at(later, np.concatenate([values[:3000] + 1e6, values[3000:]]))
    assert later.knots.max() < 1e4


def test_constant_series_have_knots_apart():
    for value in (0.0, 7.0, -1e9):
        levels = LevelScale(1, 1)
        look_at(levels, np.full((EVERY_ROWS, 1), value))
        assert (np.diff(levels.knots[0]) > 0.0).all()
        assert np.isfinite(levels.factors(np.full((1, 1), value))).all()


def test_errors_that_grow_with_the_level_are_learnt():
    rng = np.random.default_rng(0)
    levels = LevelScale(2, 1)
    look_at(levels, rng.uniform(0.0, 10.0, (EVERY_ROWS, 1)))
    for _ in range(1500):
        location = rng.uniform(0.0, 10.0, (2, 1))
        levels.learn(location, (0.2 + 0.2 * location) * rng.normal(size=(2, 1)), np.full((2, 1), 1.2**2))
    low, high = levels.factors(np.array([[1.0], [9.0]]))[:, 0]
    # Five times as large; few errors are not believed altogether.
    assert 2.0 < high / low < 6.0
    assert low < 1.0 < high


def test_restored_levels_resume_bit_for_bit():
    rng = np.random.default_rng(0)
    levels, copy = LevelScale(1, 1), LevelScale(1, 1)
    look_at(levels, rng.normal(size=(150, 1)))
    copy.restore(levels.state())
    errors = rng.normal(size=(30, 1, 1))
    for error in errors:
        for one in (levels, copy):
            one.learn(error, error, np.ones((1, 1)))
    assert_array_equal(copy.log_factors, levels.log_factors)
    assert_array_equal(copy.sums, levels.sums)
