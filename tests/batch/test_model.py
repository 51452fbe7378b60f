"""The table model as a whole: one region, odd data, covariance between rows, progress."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.batch.experts import CircuitExpert, LinearExpert
from momostream.distributions.copula import CopulaDistribution
from momostream.distributions.joint import MixtureDistribution
from momostream.distributions.student import t_variance
from momostream.estimators.presets import PRESETS
from tests.batch.fitting import FAMILY, circuits, fitted, toy


@pytest.mark.parametrize("weights", ["uniform", "posterior"])
def test_one_expert_with_one_region_predicts_as_the_region(weights):
    X, Y = toy()
    model = fitted(X, Y, experts=("matern52",), weights=weights)
    (expert,) = model.experts
    (region,) = expert.regions
    assert_array_equal(region.X, X)
    assert_array_equal(region.Y, Y)
    T = toy(9, seed=1)[0]
    distribution, answer = model.predict(T), region.predict(T)
    assert_array_equal(distribution.mean, answer.mean)
    assert_allclose(distribution.cov, answer.variance[:, None, None] * answer.S * t_variance(answer.dof))
    mean, cov = model.covariance_between_rows(T)
    assert_allclose(mean, answer.mean)
    variance = np.diag(answer.S) * t_variance(answer.dof)
    assert_allclose(cov, region.posterior_covariance(T)[:, :, None] * variance)


def test_independent_coupling_is_one_gaussian_region_per_target():
    X, Y = toy(n_outputs=3)
    model = fitted(X, Y, experts=("rbf",), weights="uniform", coupling="independent")
    (expert,) = model.experts
    T = toy(9, seed=1)[0]
    distribution = model.predict(T)
    assert [list(outputs) for outputs in expert.outputs] == [[0], [1], [2]]
    for p, region in enumerate(expert.regions):
        answer = region.predict(T)
        assert answer.dof == np.inf
        assert_array_equal(distribution.mean[:, p], answer.mean[:, 0])
        assert_allclose(distribution.std[:, p], answer.scale[:, 0])
    assert_array_equal(distribution.cov, distribution.cov * np.eye(3))


def test_stacking_one_expert_leaves_it_all_the_weight_and_the_region_s_mean():
    X, Y = toy()
    model = fitted(X, Y, experts=("matern32",))
    assert_array_equal(model.log_weights, np.zeros((1, 2)))
    T = toy(9, seed=1)[0]
    assert_allclose(model.predict(T).mean, circuits(model)[0].regions[0].predict(T).mean)


def test_stacking_gives_a_copula_and_other_weights_a_mixture():
    X, Y = toy(30)
    assert isinstance(fitted(X, Y).predict(X), CopulaDistribution)
    assert isinstance(fitted(X, Y, weights="uniform").predict(X), MixtureDistribution)
    distribution = fitted(X, Y).predict(X[:4], targets=["a", "b"])
    assert distribution.targets == ("a", "b")


def test_no_iterations_keep_the_centre_of_the_prior():
    X, Y = toy()
    model = fitted(X, Y, experts=("matern32",), max_iterations=0)
    (region,) = circuits(model)[0].regions
    assert_allclose(region.covariance.lengthscales(region.theta), X.std(axis=0) * np.sqrt(2))


@pytest.mark.parametrize("settings", [{"coupling": "independent"}, {"n_cells": 1, "n_components": 2}])
def test_regions_start_at_a_prior_that_knows_the_units(settings):
    """Also where several regions share all rows, so that no hyper-parameters of a root are found first."""
    X, Y = toy()
    model = fitted(X * [1e6, 1e-6], Y, experts=("matern32",), weights="uniform", max_iterations=0, **settings)
    assert len(circuits(model)[0].regions) > 1
    for region in circuits(model)[0].regions:
        assert_allclose(region.covariance.lengthscales(region.theta), X.std(axis=0) * [1e6, 1e-6] * np.sqrt(2))


@pytest.mark.parametrize(
    "settings", [{}, {"max_points": 2}, {"weights": "uniform"}, *(dict(p) for p in PRESETS.values())]
)
def test_hardly_any_rows(settings):
    for n in (1, 2, 3):
        X, Y = toy(n)
        distribution = fitted(X, Y, **settings).predict(X)
        assert np.isfinite(distribution.mean).all()
        assert_allclose(distribution.mean, Y, atol=3 * np.abs(Y).max())
        assert (distribution.quantile(0.9) > distribution.quantile(0.1)).all()


@pytest.mark.parametrize(
    "settings", [{}, {"max_points": 20}, {"weights": "uniform"}, *(dict(p) for p in PRESETS.values())]
)
def test_constant_targets_and_covariates(settings):
    X, Y = toy(50)
    X[:, 1] = 7.0
    Y[:, 0] = 1e6
    model = fitted(X, Y, **settings)
    distribution = model.predict(X[:9])
    assert_allclose(distribution.mean[:, 0], 1e6, rtol=1e-6)
    # It may move one day: about a thousandth of its size, not less and not much more.
    assert ((distribution.std[:, 0] > 10) & (distribution.std[:, 0] < 2000)).all()
    assert (distribution.log_pdf_each(distribution.mean + [5000.0, 0.0])[:, 0] > -100).all()
    model.learn(X[:5], Y[:5])
    assert np.isfinite(model.predict(X[:9]).mean).all()


@pytest.mark.parametrize("settings", [{}, {"max_points": 20}, {"weights": "uniform"}])
def test_all_rows_equal(settings):
    X, Y = np.full((40, 2), 3.0), np.arange(80.0).reshape(40, 2)
    distribution = fitted(X, Y, **settings).predict(X[:1])
    assert_allclose(distribution.mean[0], Y.mean(axis=0), rtol=0.1)
    assert_allclose(distribution.std[0], Y.std(axis=0), rtol=0.35)


@pytest.mark.parametrize("settings", [{}, {"max_points": 20}, {"weights": "uniform"}])
def test_collinear_targets(settings):
    X, Y = toy(50)
    Y = np.column_stack([Y, 2 * Y[:, 0], Y.sum(axis=1)])
    distribution = fitted(X, Y, **settings).predict(X[:9])
    assert np.isfinite(distribution.log_pdf(distribution.mean)).all()
    assert (np.linalg.eigvalsh(distribution.cov) > -1e-9).all()
    assert_allclose(distribution.mean[:, 2], 2 * distribution.mean[:, 0], atol=0.05)


def test_no_covariates():
    Y = toy(30)[1]
    distribution = fitted(np.empty((30, 0)), Y).predict(np.empty((2, 0)))
    assert_allclose(distribution.mean, np.tile(Y.mean(axis=0), (2, 1)), atol=0.1)
    assert_allclose(distribution.std, np.tile(Y.std(axis=0), (2, 1)), rtol=0.3)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("settings", FAMILY)
def test_covariance_between_rows_agrees_with_the_distribution(settings, gaps):
    X, Y = toy(n_inputs=3)
    if gaps:
        Y[::4, 1] = np.nan
    model = fitted(X, Y, **settings)
    T = toy(12, n_inputs=3, seed=1)[0]
    distribution = model.predict(T)
    mean, cov = model.covariance_between_rows(T)
    assert cov.shape == (12, 12, 2)
    assert_allclose(mean, distribution.mean)
    for p in range(2):
        assert_allclose(cov[:, :, p], cov[:, :, p].T, atol=1e-12)
        assert_allclose(np.diag(cov[:, :, p]), distribution.std[:, p] ** 2)
        assert np.linalg.eigvalsh(cov[:, :, p])[0] > -1e-9


def test_warped_residual_and_linear_term_work_together():
    X, Y = toy()
    model = fitted(X, Y, experts=("warped residual matern52+linear", "rbf+linear", "linear"), max_points=40)
    assert [type(expert) for expert in model.experts] == [CircuitExpert, CircuitExpert, LinearExpert]
    assert np.sqrt(np.mean((model.predict(X).mean - Y) ** 2)) < 0.3


def test_a_discount_makes_the_last_rows_count_most():
    """The noise grows fourfold over the rows; the predicted deviation follows the end with a discount only."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(200, 1))
    Y = np.linspace(0.1, 2.0, 200)[:, None] ** 2 * rng.normal(size=(200, 1))
    wide, narrow = (
        fitted(X, Y, experts=("rbf",), weights="uniform", discount=discount).predict(X[:20]).std.mean()
        for discount in (0.95, 1.0)
    )
    assert wide > 1.4 * narrow


def test_progress_bars_when_asked(capsys):
    X, Y = toy(20)
    fitted(X, Y, experts=("matern32",), max_points=12, max_iterations=1, verbose=2)
    shown = capsys.readouterr().err
    assert "tuning regions" in shown
    assert "held-out densities" in shown
    fitted(X, Y, experts=("matern32",), max_points=12, max_iterations=1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("settings", [{}, {"weights": "uniform"}, {"coupling": "independent", "weights": "uniform"}])
def test_a_target_that_saturates_in_one_cell_does_not_explode(settings):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, size=(400, 1))
    Y = np.minimum(X, 0.4)
    model = fitted(X, Y, max_points=100, experts=("matern32",), max_iterations=10, **settings)
    new = rng.uniform(0, 1, size=(200, 1))
    density = model.predict(new).log_pdf(np.minimum(new, 0.4))
    assert density.mean() > 2.0
    assert density.min() > -300.0


@pytest.mark.parametrize("level", [0.0, 7.0])
def test_a_constant_target_may_move(level):
    X, _ = toy(60)
    model = fitted(X, np.full((60, 1), level))
    assert (model.predict(X[:5]).log_pdf(np.full((5, 1), level + 0.1)) > -200).all()


@pytest.mark.parametrize("settings", [*FAMILY, {**PRESETS["momogp"], "max_points": 20, "n_groups": 2}])
def test_means_alone_are_those_of_the_distribution(settings):
    X, Y = toy(70, n_outputs=3)
    if settings.get("weights") != "posterior":
        Y[7, 1] = np.nan
    T = toy(9, seed=1)[0]
    T[2, 1] = np.nan
    model = fitted(X[:60], Y[:60], **settings)
    assert_allclose(model.means(T), model.predict(T).mean, rtol=1e-9, atol=1e-11)
    model.learn(X[60:], Y[60:])
    assert_allclose(model.means(T), model.predict(T).mean, rtol=1e-9, atol=1e-11)
