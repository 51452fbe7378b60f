"""Distributions held within limits: as samples that were clipped."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from momostream.distributions.copula import CopulaDistribution
from momostream.distributions.limited import LimitedMarginals, carried, held, limits_at, no_limits
from momostream.distributions.marginals import Marginals

N = 200_000


def random_marginals(seed: int) -> tuple[Marginals, LimitedMarginals]:
    """Mixtures of three components for two rows and two targets, with limits on one side or both."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(3), size=(2, 2)).swapaxes(1, 2)
    means, scales = 2.0 * rng.normal(size=(2, 3, 2)), np.exp(rng.normal(size=(2, 3, 2)))
    base = Marginals(weights, means, scales, rng.choice([4.0, 8.0, np.inf], size=(2, 3, 2)))
    low = base.mean - rng.uniform(-0.5, 2.0, size=(2, 2))
    high = np.where(rng.random((2, 2)) < 0.5, np.inf, low + rng.uniform(0.5, 4.0, size=(2, 2)))
    return base, LimitedMarginals(base, low, high)


@pytest.mark.parametrize("seed", range(6))
def test_is_the_distribution_of_clipped_samples(seed: int) -> None:
    base, limited = random_marginals(seed)
    drawn = np.clip(base.sample(N, np.random.default_rng(seed)), limited.low, limited.high)
    p = np.where(limited.cut > 0.0, limited.cut, 1e-9)
    ends = (base.tail_quantile(p, p < side) for side in (0.0, 1.0))
    assert_allclose(np.sqrt(limited.variance), np.clip(drawn, *ends).std(axis=0), rtol=0.02)
    y = drawn[0]
    assert_allclose(limited.cdf(y), (drawn <= y).mean(axis=0), atol=0.005)
    other = np.random.default_rng(seed + 1).permuted(drawn, axis=0)
    naive = np.abs(drawn - y).mean(axis=0) - 0.5 * np.abs(drawn - other).mean(axis=0)
    assert_allclose(limited.crps(y), naive, atol=0.01 * np.sqrt(limited.variance).max())
    lower, upper = limited.lumps
    assert_allclose(lower, (drawn == limited.low).mean(axis=0), atol=0.005)
    assert_allclose(upper, (drawn == limited.high).mean(axis=0), atol=0.005)
    half = np.full((2, 2), 0.3)
    assert_allclose(limited.tail_quantile(half, half > 0.5), np.quantile(drawn, 0.3, axis=0), atol=0.03)


@pytest.mark.parametrize("seed", range(3))
def test_covariance_is_that_of_samples(seed: int) -> None:
    _, limited = random_marginals(seed)
    joint = CopulaDistribution(limited, [[1.0, 0.7], [0.7, 1.0]], 20.0)
    drawn = joint.sample(N, np.random.default_rng(seed))
    for row in range(2):
        std = drawn[:, row].std(axis=0)
        assert_allclose(joint.cov[row], np.cov(drawn[:, row].T), atol=0.03 * std.max() ** 2)
        assert (drawn[:, row] >= limited.low[row]).all() and (drawn[:, row] <= limited.high[row]).all()


def test_a_limit_never_costs_where_values_keep_to_it() -> None:
    for seed in range(10):
        base, limited = random_marginals(seed)
        y = np.clip(base.sample(1, np.random.default_rng(seed))[0], limited.low, limited.high)
        assert (limited.crps(y) <= base.crps(y) + 1e-6).all()


def test_values_beyond_a_limit_score_their_distance_more() -> None:
    base = Marginals(1.0, [[[1.0]]], [[[1.0]]], np.inf)
    limited = LimitedMarginals(base, np.array([[0.0]]), np.array([[np.inf]]))
    assert_allclose(limited.crps([[-2.0]]), limited.crps([[0.0]]) + 2.0)
    assert np.isnan(limited.crps([[np.nan]])).all()
    assert np.isfinite(limited.log_pdf([[-2.0]])).all()


def test_limits_that_are_far_away_change_nothing() -> None:
    base, _ = random_marginals(0)
    far = LimitedMarginals(base, np.full((2, 2), -1e9), np.full((2, 2), 1e9))
    y = base.mean
    assert_allclose(far.crps(y), base.crps(y), rtol=0, atol=0)
    assert_allclose(far.variance, base.variance, rtol=0, atol=0)
    assert carried(None, no_limits(2), base) is base


def test_rooms_give_way_to_means_and_firm_limits_do_not() -> None:
    limits = np.array([[0.0, 0.0], [100.0, 105.0], [0.0, 0.0], [0.0, 5.0]])
    for mean in (-3.0, 50.0, 99.0, 103.0, 140.0):
        at = np.full((1, 2), mean)
        low, high = limits_at(limits, at)
        assert (low == 0.0).all() and high[0, 0] == 100.0
        assert high[0, 1] == max(105.0, 100.0 + 1.5 * (mean - 100.0))
        assert_allclose(held(limits, at), [[min(max(mean, 0.0), 100.0), max(mean, 0.0)]])


def test_limits_must_have_the_shape_of_the_distribution() -> None:
    base, _ = random_marginals(0)
    with pytest.raises(ValueError, match="expected limits of shape"):
        LimitedMarginals(base, np.zeros((1, 2)), np.ones((1, 2)))


def test_means_within_limits_and_missing_ones_stay():
    limits = np.array([[0.0, 0.0], [100.0, 100.0], [0.0, 0.0], [0.0, 5.0]])
    assert_allclose(held(limits, np.array([3.0, np.nan])), [3.0, np.nan])
    assert_allclose(held(limits, np.array([103.0, np.nan])), [100.0, np.nan])


def test_a_mean_does_not_need_the_variance(monkeypatch):
    base = Marginals(1.0, [[[-1.0, 5.0]]], [[[1.0, 1.0]]], np.inf)
    marginals = LimitedMarginals(base, np.zeros((1, 2)), np.full((1, 2), np.inf))
    d = CopulaDistribution(marginals, np.eye(2)[None], 10.0)
    monkeypatch.setattr(LimitedMarginals, "_line_settled", lambda *_: pytest.fail("a quadrature"))
    assert_allclose(d.mean, [[0.0, 5.0]])
