"""Rows that arrive after the fit: appended, split, weighed; residual experts."""

from __future__ import annotations

import copy
import logging

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.batch.nodes import REGION, SUM
from momostream.batch.weights import LEAST_WEIGHT
from momostream.estimators.presets import PRESETS
from tests.batch.fitting import answers, circuits, fitted, toy
from tests.batch.test_passes import induced_trees, regions_of


@pytest.mark.parametrize("settings", [{}, {"max_points": 50}])
def test_learning_appends_rows_to_the_regions_they_fall_into(settings):
    X, Y = toy(70)
    model = fitted(X[:60], Y[:60], experts=("matern32", "warped rbf"), weights="uniform", **settings)
    twins = copy.deepcopy(circuits(model))
    model.learn(X[60:], Y[60:])
    for expert, twin in zip(circuits(model), twins, strict=True):
        assert len(expert.regions) == len(twin.regions) == (1 if not settings else 4)
        for x, y in zip(twin.view(X[60:]), Y[60:], strict=True):
            for tree in induced_trees(twin.circuit):
                for node in regions_of(twin.circuit, tree, x):
                    # Both trees of the sum; a gate below reaches one region.
                    region = twin.regions[node.region]
                    if not any((row == x).all() for row in region.X):
                        region.append(x, y[node.outputs])
        for region, expected in zip(expert.regions, twin.regions, strict=True):
            assert_array_equal(region.X, expected.X)
            assert_array_equal(region.theta, expected.theta)
            assert_array_equal(region.predict(X[:5]).mean, expected.predict(X[:5]).mean)
    assert model.n_rows == 70


def test_calls_of_learn_can_be_cut_anywhere():
    X, Y = toy(80)
    models = [fitted(X[:50], Y[:50], experts=("matern32", "rbf"), weights="uniform") for _ in range(2)]
    models[0].learn(X[50:], Y[50:])
    for start, stop in ((50, 51), (51, 51), (51, 67), (67, 80)):
        models[1].learn(X[start:stop], Y[start:stop])
    assert_array_equal(answers(models[0], X[:9]), answers(models[1], X[:9]))


@pytest.mark.parametrize("coupling", ["shared", "independent"])
def test_learning_equals_fitting_where_offsets_and_hyper_parameters_are_the_same(coupling):
    """Promised for one region without tuning only: the mirror image of all rows keeps their mean and deviation."""
    X, Y = toy(30)
    X2, Y2 = 2 * X.mean(axis=0) - X, 2 * Y.mean(axis=0) - Y
    settings = {"experts": ("matern32",), "weights": "uniform", "max_iterations": 0, "coupling": coupling}
    at_once = fitted(np.vstack([X, X2]), np.vstack([Y, Y2]), **settings)
    in_turn = fitted(X, Y, **settings)
    in_turn.learn(X2, Y2)
    T = toy(9, seed=1)[0]
    assert_allclose(answers(in_turn, T), answers(at_once, T), rtol=1e-7, atol=1e-9)


def test_regions_above_m_rows_are_split_as_they_grow(caplog):
    X, Y = toy(200)
    model = fitted(X[:15], Y[:15], max_points=20, experts=("matern32", "linear"), max_iterations=1)
    (expert,) = circuits(model)
    assert expert.circuit.describe() == "region 0"
    with caplog.at_level(logging.INFO, logger="momostream"):
        for start in range(15, 200, 10):
            model.learn(X[start : start + 10], Y[start : start + 10])
            distribution = model.predict(X)
            assert np.isfinite(distribution.mean).all()
            assert np.isfinite(distribution.std).all()
            assert max(region.n_rows for region in expert.regions) <= 20
    assert "was split" in caplog.text
    # The first split mixes, deeper ones are single gates.
    assert expert.circuit.count(SUM) == 1
    assert expert.circuit[expert.circuit.root].kind == SUM
    for tree in induced_trees(expert.circuit):
        rows = np.vstack([expert.regions[node.region].X for node in regions_of(expert.circuit, tree)])
        assert_array_equal(np.unique(rows, axis=0), np.unique(X, axis=0))
        assert len(rows) == 200
        for x in X[:20]:
            (node,) = regions_of(expert.circuit, tree, x)
            assert (expert.regions[node.region].X == x).all(axis=1).any()
    assert len({node.region for _, node in expert.circuit.walk() if node.kind == REGION}) == len(expert.regions)
    # What was learnt is used: errors are of the size of the noise.
    assert np.sqrt(np.mean((model.predict(X).mean - Y) ** 2)) < 0.3


def test_children_of_a_split_inherit_the_hyper_parameters():
    X, Y = toy(60)
    model = fitted(X[:30], Y[:30], max_points=30, experts=("matern32",), weights="uniform")
    theta = circuits(model)[0].regions[0].theta
    model.learn(X[30:], Y[30:])
    assert len(circuits(model)[0].regions) > 2
    for region in circuits(model)[0].regions:
        assert_array_equal(region.theta, theta)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_learn_through_splits(name):
    X, Y = toy(70, n_outputs=3)
    model = fitted(X[:30], Y[:30], **{**PRESETS[name], "max_points": 20, "max_iterations": 1})
    for start in range(30, 70, 20):
        model.learn(X[start : start + 20], Y[start : start + 20])
    distribution = model.predict(X)
    assert np.isfinite(distribution.mean).all()
    assert np.isfinite(distribution.std).all()
    assert_allclose(np.exp(model.log_weights).sum(), 1)
    assert np.sqrt(np.mean((distribution.mean - Y) ** 2)) < 0.5 * Y.std()


def test_equal_rows_above_m_do_not_split_for_ever():
    X, Y = np.ones((10, 2)), np.arange(10.0)[:, None]
    model = fitted(X, Y, max_points=10, experts=("matern32",), weights="uniform")
    for _ in range(5):
        model.learn(X, Y)
    (expert,) = circuits(model)
    assert [region.n_rows for region in expert.regions] == [10]
    assert expert.circuit.describe() == "region 0"
    assert_allclose(model.predict(X[:1]).mean, 4.5, atol=0.6)


def test_stacking_weights_follow_the_shares_of_new_rows():
    X, Y = toy(70)
    model = fitted(X[:60], Y[:60])
    log_weights = model.log_weights
    each = np.stack([expert.components(X[60:]).marginals().log_pdf(Y[60:]) for expert in model.experts])
    joint = np.exp(log_weights[:, None] + each)
    share = joint / joint.sum(axis=0)
    model.learn(X[60:], Y[60:])
    expected = np.maximum((60 * np.exp(log_weights) + share.sum(axis=1)) / 70, LEAST_WEIGHT)
    assert_allclose(np.exp(model.log_weights), expected / expected.sum(axis=0))
    assert_allclose(np.exp(model.log_weights).sum(axis=0), 1)


def test_missing_targets_do_not_move_stacking_weights():
    X, Y = toy(70)
    model = fitted(X[:60], Y[:60])
    before = model.log_weights
    gap = Y[60:].copy()
    gap[:, 1] = np.nan
    model.learn(X[60:], gap)
    # Up to the floor, which is applied after the weights were made to sum to one.
    assert_allclose(np.exp(model.log_weights[:, 1]), np.exp(before[:, 1]), atol=2 * LEAST_WEIGHT**2)
    assert np.abs(model.log_weights[:, 0] - before[:, 0]).max() > 1e-6


def test_weights_move_to_the_expert_that_predicts_better():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(40, 1))
    model = fitted(X, 2 * X + 0.1 * rng.normal(size=X.shape), experts=("matern32", "linear"))
    far = rng.uniform(3, 6, size=(60, 1))
    model.log_weights = np.log([[0.5], [0.5]])
    model.learn(far, 2 * far + 0.1 * rng.normal(size=far.shape))
    # 40 rows count for the old weights, 60 for the new ones.
    assert_allclose(np.exp(model.log_weights[1, 0]), 0.8, atol=0.05)


def test_rows_without_targets_teach_nothing():
    X, Y = toy()
    model = fitted(X, Y)
    before = answers(model, X[:9])
    model.learn(X[:5], np.full((5, 2), np.nan))
    model.learn(X[:0], Y[:0])
    assert_array_equal(answers(model, X[:9]), before)
    assert model.n_rows == 60


def test_residual_circuits_learn_what_the_linear_expert_left_before_it_learnt():
    X, Y = toy(70)
    for experts in (("residual matern32",), ("linear", "residual matern32")):
        model = fitted(X[:60], Y[:60], experts=experts, weights="uniform")
        (expert,) = circuits(model)
        left = Y[60:] - expert.base.predict(X[60:]).mean
        model.learn(X[60:], Y[60:])
        assert_array_equal(expert.regions[0].Y[60:], left)
        assert expert.base.n_rows == 70


def test_residual_expert_is_trained_on_held_out_residuals_and_adds_the_linear_mean():
    X, Y = toy()
    model = fitted(X, Y, experts=("residual matern32",), weights="uniform")
    (expert,) = circuits(model)
    assert_allclose(expert.regions[0].Y, Y - expert.base.held_out(X, Y).mean)
    T = toy(9, seed=1)[0]
    assert_allclose(model.predict(T).mean, expert.base.predict(T).mean + expert.regions[0].predict(T).mean)


def test_residual_expert_extrapolates_a_trend():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 5, size=(80, 1))
    Y = 3 * X + np.sin(3 * X) + 0.05 * rng.normal(size=X.shape)
    far = np.array([[12.0]])
    residual = fitted(X, Y, experts=("residual matern32",)).predict(far)
    plain = fitted(X, Y, experts=("matern32",)).predict(far)
    assert abs(residual.mean[0, 0] - 36) < 3
    assert abs(plain.mean[0, 0] - 36) > 6
