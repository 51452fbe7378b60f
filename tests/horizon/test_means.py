"""The forecast of least squared error, between the mean of a mixture and the blend."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from momostream.distributions.planes import LOCATION, WEIGHT
from momostream.horizon import means as module
from momostream.horizon.means import Means


def random_planes(rng, H, P, M=3):
    planes = rng.normal(size=(5, M, H * P))
    planes[WEIGHT] = rng.dirichlet(np.ones(M), H * P).T
    return planes


def naive(history, planes, rests, keep, variances):
    """Shares by sums over all forecasts so far; means of the newest."""
    H, P = history[0][0].shape
    mixture = (planes[WEIGHT] * planes[LOCATION]).sum(axis=0).reshape(H, P)
    far = np.zeros(2)
    for kind in range(2):
        square = product = rows = 0.0
        for values, old, rested in history:
            mean = (old[WEIGHT] * old[LOCATION]).sum(axis=0).reshape(H, P)
            std = np.sqrt(variances).reshape(H, P)
            way, error = (old[LOCATION, 0].reshape(H, P) - mean) / std, (values - mean) / std
            use = ~np.isnan(values) & (rested == kind)
            if use.any():
                square = keep * square + (way[use] ** 2).sum() / values.size
                product = keep * product + (way * error)[use].sum() / values.size
                rows = keep * rows + use.sum() / values.size
        share = product / square if square else module.GUESS
        far[kind] = (rows * share + module.GUESSED_ROWS * module.GUESS) / (rows + module.GUESSED_ROWS)
    return mixture + np.clip(far, 0.0, 1.0)[rests.astype(int)] * (planes[LOCATION, 0].reshape(H, P) - mixture)


def test_means_are_those_of_sums_over_all_forecasts():
    rng = np.random.default_rng(0)
    H, P, every = 3, 2, 2
    means, history, variances = Means(H, P, every), [], rng.uniform(0.5, 2.0, H * P)
    for n in range(60):
        planes, rests = random_planes(rng, H, P), rng.integers(0, 2, P).astype(float)
        if n:
            assert_allclose(
                means.between(planes, rests), naive(history, planes, rests, means._keep, variances), rtol=1e-9
            )
        values = np.where(rng.random((H, P)) < 0.2, np.nan, rng.normal(size=(H, P)))
        rested = rng.integers(0, 2, (H, P)).astype(float)
        means.learn(values, planes, rested, variances)
        history.append((values, planes, rested))
    copy = Means(H, P, every)
    copy.restore(means.state())
    assert_array_equal(copy.between(planes, rests), means.between(planes, rests))


def test_the_better_of_the_two_is_found_for_rest_and_for_motion():
    rng = np.random.default_rng(0)
    means = Means(1, 1)
    for n in range(4000):
        planes, rests = random_planes(rng, 1, 1), np.array([float(n % 2)])
        # At rest the blend is right, in motion the mixture.
        y = planes[LOCATION, 0] if n % 2 else (planes[WEIGHT] * planes[LOCATION]).sum(axis=0)
        means.learn(y[None], planes, rests[None], np.ones(1))
    planes = random_planes(rng, 1, 1)
    assert_allclose(means.between(planes, np.ones(1)), planes[LOCATION, 0, None], atol=0.1)
    mixture = (planes[WEIGHT] * planes[LOCATION]).sum()
    assert_allclose(means.between(planes, np.zeros(1)), mixture, atol=0.1)
