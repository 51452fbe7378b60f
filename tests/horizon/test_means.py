"""The forecast of least squared error, between the mean of a mixture and the blend."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from momostream.distributions.planes import LOCATION, STD, WEIGHT
from momostream.horizon import means as module
from momostream.horizon.means import Means
from momostream.kernels.forecasts import FAR


def random_planes(rng, H, P, M=3):
    planes = rng.normal(size=(5, M, H * P))
    planes[STD] = rng.uniform(0.5, 2.0, size=(M, H * P))
    planes[WEIGHT] = rng.dirichlet(np.ones(M), H * P).T
    return planes


def naive(history, planes, rests):
    """Weights by sums over all forecasts so far; means of the newest."""
    H, P = history[0][0].shape
    mixture = (planes[WEIGHT] * planes[LOCATION]).sum(axis=0).reshape(H, P)
    weights, keep = np.zeros(2), 1.0 - 1.0 / module.MEMORY
    for kind in range(2):
        square = product = number = 0.0
        for values, old, rested in history:
            mean = (old[WEIGHT] * old[LOCATION]).sum(axis=0).reshape(H, P)
            std = old[STD, 0].reshape(H, P)
            away, error = (old[LOCATION, 0].reshape(H, P) - mean) / std, np.clip((values - mean) / std, -FAR, FAR)
            use = ~np.isnan(values) & (rested == kind)
            kept = keep ** (use.sum() / values.size)
            square = kept * square + (away[use] ** 2).sum() / values.size
            product = kept * product + (away * error)[use].sum() / values.size
            number = kept * number + use.sum() / values.size
        weight = product / square if square else module.GUESS
        weights[kind] = (number * weight + module.N_GUESSED * module.GUESS) / (number + module.N_GUESSED)
    return mixture + np.clip(weights, 0.0, 1.0)[rests.astype(int)] * (planes[LOCATION, 0].reshape(H, P) - mixture)


def test_means_are_those_of_sums_over_all_forecasts():
    rng = np.random.default_rng(0)
    H, P = 3, 2
    means, history = Means(H, P), []
    for n in range(60):
        planes, rests = random_planes(rng, H, P), rng.integers(0, 2, P).astype(float)
        if n:
            assert_allclose(means.between(planes, rests), naive(history, planes, rests), rtol=1e-9)
        values = np.where(rng.random((H, P)) < 0.2, np.nan, rng.normal(size=(H, P)))
        values[rng.random((H, P)) < 0.05] = 1e6
        rested = rng.integers(0, 2, (H, P)).astype(float)
        means.learn(values, planes, rested)
        history.append((values, planes, rested))
    copy = Means(H, P)
    copy.restore(means.state())
    assert_array_equal(copy.between(planes, rests), means.between(planes, rests))


def weight_of_blend(means, rests=0.0):
    """The weight in force, by forecasts of 0 and 1."""
    H, P = means._shape
    planes = np.zeros((5, 2, H * P))
    planes[LOCATION, 0], planes[WEIGHT, 1] = 1.0, 1.0
    return means.between(planes, np.full(P, rests)).mean()


def test_the_better_of_the_two_is_found_for_rest_and_for_motion():
    rng = np.random.default_rng(0)
    means = Means(1, 1)
    for n in range(4000):
        planes, rests = random_planes(rng, 1, 1), np.array([float(n % 2)])
        # At rest the blend is right, in motion the mixture.
        y = planes[LOCATION, 0] if n % 2 else (planes[WEIGHT] * planes[LOCATION]).sum(axis=0)
        means.learn(y[None], planes, rests[None])
    assert weight_of_blend(means, 1.0) > 0.95
    assert weight_of_blend(means, 0.0) < 0.05


def test_few_values_at_a_time_count_as_parts_of_forecasts():
    # One value of forty comes at each row: of long forecasts, or of the one machine of many that rests.
    rng = np.random.default_rng(0)
    means = Means(8, 5)
    for n in range(40 * 1000):
        planes, values = random_planes(rng, 8, 5, 2), np.full(40, np.nan)
        values[n % 40] = planes[LOCATION, 0, n % 40]
        means.learn(values.reshape(8, 5), planes, np.zeros((8, 5)))
    assert weight_of_blend(means) > 0.95


def test_one_event_does_not_decide():
    rng = np.random.default_rng(0)
    means = Means(1, 1)
    for _ in range(3000):
        planes = random_planes(rng, 1, 1)
        means.learn((planes[WEIGHT] * planes[LOCATION]).sum(axis=0)[None], planes, np.zeros((1, 1)))
    before = weight_of_blend(means)
    for value in (1e6, -1e6, np.inf, np.nan):
        means.learn(np.array([[value]]), random_planes(rng, 1, 1), np.zeros((1, 1)))
    assert abs(weight_of_blend(means) - before) < 0.05
