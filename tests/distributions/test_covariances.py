"""Covariances and standard deviations are those of samples: random distributions, and those of real feeds."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream import MOMoGPForecaster, MOMoGPRegressor
from momostream.distributions.bounded import Target, TargetMap
from momostream.distributions.copula import CopulaDistribution
from momostream.distributions.joint import MixtureDistribution
from momostream.distributions.limited import LimitedMarginals
from momostream.distributions.marginals import Marginals
from momostream.distributions.mixtures import Mixture, Product, StudentT
from momostream.distributions.moments import PLAIN, mixture_moments
from momostream.distributions.student import correlation_of
from tests import naive
from tests.distributions.drawn import random_correlation, random_scale


def as_learnt(rng, n_targets, n_components=5):
    """Mixtures as forecasts have them: few degrees of freedom, rare wide components, narrow lumps."""
    shape = (1, n_components, n_targets)
    weights = rng.dirichlet(np.full(n_components, 0.5), size=(1, n_targets)).transpose(0, 2, 1)
    scales = 10.0 ** rng.uniform(-3.0, 0.5, shape)
    return Marginals(weights, rng.normal(size=shape), scales, rng.choice([2.5, 4.0, 8.0, 100.0], shape))


def agree(std, cov, draws, correlation=0.04, deviation=0.04):
    """Compare with samples: the worst correlation, the worst deviation of values that no rare lump rules."""
    found = np.cov(draws.T)
    assert_allclose(correlation_of(cov), correlation_of(found), rtol=0, atol=correlation)
    noise = np.sqrt((np.mean((draws - draws.mean(axis=0)) ** 4, axis=0) / draws.var(axis=0) ** 2 - 1.0) / len(draws))
    assert (np.abs(np.sqrt(np.diag(found)) / std - 1.0) < deviation + 2.0 * noise).all()
    assert_allclose(np.diag(cov), std**2, rtol=1e-12)


@pytest.mark.parametrize("dof", [4.0, 20.0, np.inf])
@pytest.mark.parametrize("bounded", [False, True])
def test_random_distributions(dof, bounded):
    rng = np.random.default_rng(3)
    for _ in range(2):
        marginals = as_learnt(rng, 4)
        if bounded:
            kinds = [Target(0.0, None), Target(-0.2, 0.4), Target(None, 1.0), Target(-9.0, 9.0, "logit")]
            marginals = TargetMap(kinds).wrap(marginals)
        d = CopulaDistribution(marginals, random_correlation(rng, 4), dof)
        agree(d.std[0], d.cov[0], d.sample(20_000, seed=1)[:, 0])
        given = d.condition({1: d.quantile(0.7)[:, 1]})
        agree(given.std[0], given.cov[0], given.sample(20_000, seed=2)[:, 0])


def test_variance_of_heavy_tails_is_that_of_the_cut_distribution():
    m = as_learnt(np.random.default_rng(1), 6)
    heavy = m.tail_index[0] < 3.0
    assert heavy.any()
    assert_allclose(m.variance[0, heavy], naive.cut_variance(m)[0, heavy], rtol=2e-3)


def test_mixtures_with_heavy_tails():
    rng = np.random.default_rng(5)
    parts = [StudentT(rng.normal(size=(1, 3)), random_scale(rng, 3), dof) for dof in (2.5, 2.8, 9.0)]
    d = MixtureDistribution(Mixture(np.log([0.2, 0.3, 0.5]), parts))
    draws = d.sample(100_000, seed=0)[:, 0]
    assert_allclose(draws.std(axis=0), d.std[0], rtol=0.04)
    assert_allclose(np.diagonal(d.cov[0]), d.std[0] ** 2)
    assert_allclose(correlation_of(d.cov[0]), np.corrcoef(draws.T), atol=0.08)


def test_one_bad_tail_does_not_hide_the_correlation():
    """As found on wind turbines: a rare component at 2.5 degrees of freedom made all correlations zero."""
    m = Marginals([[[0.995], [0.005]]], np.zeros((1, 2, 3)), [[[1.0], [10.0]]], [[[100.0], [2.5]]])
    R = np.full((3, 3), 0.7) + 0.3 * np.eye(3)
    d = CopulaDistribution(m, R, 20.0)
    assert_allclose(correlation_of(d.cov[0]), correlation_of(np.cov(d.sample(100_000, seed=0)[:, 0].T)), atol=0.03)


def with_a_far_component(rng, n_targets):
    """One component of weight 1e-4 to 1e-2 and 10 to 3,000 times the width of the others, as of a losing expert."""
    m = as_learnt(rng, n_targets)
    weights, means, scales, dofs = (array.copy() for array in m.arrays)
    rare, widest = 10.0 ** rng.uniform(-4.0, -2.0, n_targets), scales.max(axis=1)
    weights *= (1.0 - rare) / np.delete(weights, 0, axis=1).sum(axis=1, keepdims=True)
    weights[:, 0], dofs[:, 0] = rare, rng.choice([4.0, 8.0, 100.0], n_targets)
    scales[:, 0] = widest * 10.0 ** rng.uniform(1.0, 3.5, n_targets)
    return Marginals(weights, means, scales, dofs)


@pytest.mark.parametrize("kind", ["plain", "bounded", "limited"])
def test_rare_components_do_not_rule_second_moments(kind):
    """Second moments settle within 200,000 samples, to 3 % and .03, with no allowance for chance."""
    rng, n_cut = np.random.default_rng(5), 0
    for dof in (20.0, np.inf):
        marginals = with_a_far_component(rng, 3)
        if kind == "bounded":
            marginals = TargetMap([Target(-5.0, None), Target(-9.0, 9.0), Target(None, 99.0)]).wrap(marginals)
        elif kind == "limited":
            marginals = LimitedMarginals(marginals, np.full((1, 3), -1.0), np.array([[np.inf, 1e3, 2.0]]))
        d = CopulaDistribution(marginals, random_correlation(rng, 3), dof)
        if dof == np.inf:
            d = d.condition({1: d.quantile(0.6)[:, 1]})
        n_cut += int((d.cut > 1e-4).sum())
        draws = d.sample(200_000, seed=1)[:, 0]
        assert_allclose(draws.std(axis=0), d.std[0], rtol=0.03)
        assert_allclose(np.corrcoef(draws.T), correlation_of(d.cov[0]), rtol=0, atol=0.03)
        assert_allclose(np.diag(d.cov[0]), d.std[0] ** 2, rtol=1e-12)
    assert n_cut >= 2


def test_a_limit_that_nearly_all_is_beyond_leaves_a_constant():
    base = Marginals([[[0.9999], [0.0001]]], [[[5.0], [0.0]]], [[[0.1], [10.0]]], [[[8.0], [8.0]]])
    limited = LimitedMarginals(base, np.array([[-1.0]]), np.array([[2.0]]))
    assert limited.cut == 1e-4
    assert_allclose(limited.variance, 0.0, atol=1e-12)


def test_rare_children_do_not_rule_the_second_moments_of_mixtures():
    rng = np.random.default_rng(6)
    near = [StudentT(rng.normal(size=(2, 3)), random_scale(rng, 3), dof) for dof in (8.0, np.inf)]
    far = Product([StudentT(np.zeros((2, 1)), 1e6 * np.eye(1), 8.0), StudentT(np.zeros((2, 2)), 1e4 * np.eye(2), 8.0)],
                  [[1], [0, 2]])  # fmt: skip
    weights = np.array([[0.5, 0.4995, 0.0005], [0.3, 0.3, 0.4]])
    d = MixtureDistribution(Mixture(np.log(weights), [*near, far]))
    assert (d.marginals.cut[0] > 1e-4).all() and not d.marginals.cut[1].any()
    draws = d.sample(200_000, seed=0)
    for row in range(2):
        assert_allclose(draws[:, row].std(axis=0), d.std[row], rtol=0.03)
        assert_allclose(np.corrcoef(draws[:, row].T), correlation_of(d.cov[row]), rtol=0, atol=0.03)


def test_a_cut_is_the_least_that_will_do():
    """A component that is wide and not rare is not a tail, and nothing is cut."""
    scales, dofs = [[[1.0], [100.0]]], [[[8.0], [8.0]]]
    for weight, cut in ((0.1, 0.0), (0.003, 3e-3), (3e-5, 1e-4)):
        m = Marginals([[[1.0 - weight], [weight]]], np.zeros((1, 2, 1)), scales, dofs)
        assert m.cut == cut
        assert_allclose(m.variance, naive.cut_variance(m) if cut else 0.9 * 8 / 6 + 0.1 * 1e4 * 8 / 6, rtol=2e-3)


def test_rows_do_not_depend_on_each_other():
    rng = np.random.default_rng(0)
    one, other = as_learnt(rng, 3), as_learnt(rng, 3)
    both = Marginals(*(np.concatenate(pair) for pair in zip(one.arrays, other.arrays, strict=True)))
    R = random_correlation(rng, 3)
    assert_array_equal(CopulaDistribution(both, R, 8.0).cov[0], CopulaDistribution(one, R, 8.0).cov[0])


FEEDS = ["windturbine", "etth1", "turkey_wind_scada", "openfast_5mw_land_wturb", "gas_turbine", "tetouan_power",
         "schunk_robot_arm", "beijing_pm25_12sites", "skab_valve1", "jena_weather", "etth2", "bike_hourly",
         "air_quality", "exchange_rate"]  # fmt: skip


@pytest.mark.parametrize("feed", FEEDS)
def test_distributions_of_real_feeds(feed, data_dir):
    described = json.loads((data_dir / "columns.json").read_text())[feed]
    frame = pd.read_csv(data_dir / described["file"], nrows=360)[described["inputs"] + described["targets"]]
    frame = frame.select_dtypes("number").iloc[:, -5:]
    rows = [{name: value for name, value in row.items() if value == value} for row in frame.to_dict("records")]
    for strategy in ("direct", "recursive"):
        model = MOMoGPForecaster(horizon=3, strategy=strategy, experts=("own lags", "wide lags"), seed=0)
        for row in rows:
            model.learn_one(row)
        forecast = model.forecast(3, with_dist=True)
        draws = forecast.sample(40_000, seed=0).reshape(40_000, -1)
        agree(forecast.std.to_numpy().ravel(), forecast.cov, draws)
    model = MOMoGPRegressor(experts=("lags",), seed=0)
    for row in rows:
        model.learn_one({}, row)
    prediction = model.predict_one({}, with_dist=True)
    draws = prediction.distribution.sample(40_000, seed=0)[:, 0]
    agree(prediction.distribution.std[0], prediction.cov, draws)


def test_limits_that_coincide_have_all_mass():
    components = tuple(np.tile(part, (2, 1)) for part in ([0.3, 0.7], [1.0, 5.0], [2.0, 1e-3], [2.5, np.inf]))
    mean, variance, _ = mixture_moments(PLAIN, components, np.array([[4.0], [-9.0]]), np.array([[4.0], [9.0]]))
    assert_allclose(mean[0], 4.0, rtol=1e-12)
    assert_allclose(variance[0], 0.0, atol=1e-12)
    assert -9.0 < mean[1] < 9.0 < 9.0 + variance[1]
