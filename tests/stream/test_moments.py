"""Running moments: those of the values seen so far."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from momostream.stream.moments import RunningMoments


def test_moments_are_those_of_the_values_seen(rng):
    values = rng.normal(size=(50, 3)) * [1.0, 1e-3, 1e4] + [0.0, 5.0, 1e6]
    values[rng.random(values.shape) < 0.3] = np.nan
    moments = RunningMoments(3)
    for row in values:
        moments.learn(row)
    assert_array_equal(moments.count, (~np.isnan(values)).sum(axis=0))
    assert_allclose(moments.mean, np.nanmean(values, axis=0), rtol=1e-12)
    assert_allclose(moments.moments[2] / moments.count, np.nanvar(values, axis=0), rtol=1e-8)


def test_moments_of_columns_that_have_not_varied():
    moments = RunningMoments(2)
    for _ in range(20):
        moments.learn(np.array([0.1, np.nan]))
    assert_array_equal(moments.mean, [0.1, 0.0])


def test_moments_of_columns_that_come_later():
    moments = RunningMoments(1)
    moments.learn(np.array([3.0]))
    moments.widen(np.array([7.0, 8.0]))
    assert_array_equal(moments.mean, [3.0, 7.0, 8.0])
    moments.learn(np.array([5.0, 1.0, np.nan]))
    assert_array_equal(moments.mean, [4.0, 1.0, 8.0])
    assert_array_equal(moments.count, [2.0, 1.0, 0.0])


def test_moments_of_no_columns():
    moments = RunningMoments(0)
    moments.learn(np.empty(0))
    assert moments.mean.shape == (0,)


def test_a_missing_value_is_guessed_from_the_last_one_as_far_as_values_persist(rng):
    wave, noise = 5.0 + np.sin(np.arange(300.0) / 20.0), 5.0 + rng.normal(size=300)
    moments = RunningMoments(3)
    moments.learn_rows(np.column_stack([wave, noise, np.full(300, 2.0)]))
    assert abs(moments.guess[0] - wave[-1]) < 0.01
    assert abs(moments.guess[1] - noise.mean()) < 0.2 * abs(noise[-1] - noise.mean())
    assert moments.guess[2] == 2.0
    for _ in range(5000):
        moments.learn(np.full(3, np.nan))
    assert_allclose(moments.guess, moments.mean, atol=1e-3)


def test_moments_of_earlier_versions_are_restored():
    earlier = np.array([[2.0], [3.0], [1.0]])
    moments = RunningMoments.from_state(earlier, earlier.shape[1])
    assert_array_equal(moments.moments[:3], earlier)
    assert_array_equal(moments.guess, [3.0])
    moments.learn(np.array([4.0]))
    assert moments.mean == [10.0 / 3.0]
