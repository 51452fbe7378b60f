"""Missing covariates and targets in the table model."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.batch.fitting import FAMILY, answers, by_hand, circuits, fitted, toy


def test_missing_inputs_are_replaced_by_the_mean_of_their_column():
    X, Y = toy()
    gaps = X.copy()
    gaps[3, 0] = gaps[7, 1] = np.nan
    filled = gaps.copy()
    filled[3, 0], filled[7, 1] = np.nanmean(gaps[:, 0]), np.nanmean(gaps[:, 1])
    model = fitted(gaps, Y)
    assert_allclose(model.input_means, np.nanmean(gaps, axis=0))
    assert_allclose(answers(model, X[:9]), answers(fitted(filled, Y), X[:9]), rtol=1e-6, atol=1e-8)
    asked = np.array([[np.nan, 0.3]])
    assert_array_equal(model.predict(asked).mean, model.predict(np.array([[model.input_means[0], 0.3]])).mean)
    model.learn(asked, Y[:1])
    assert_array_equal(circuits(model)[0].regions[0].X[-1], [model.input_means[0], 0.3])


def test_a_column_that_is_never_there():
    X, Y = toy()
    X[:, 1] = np.nan
    model = fitted(X, Y)
    assert np.isfinite(model.predict(X).mean).all()
    assert model.input_means[1] == 0.0


def test_rows_without_any_target_are_left_out():
    X, Y = toy()
    more_X, more_Y = np.vstack([X, X[:4] + 9]), np.vstack([Y, np.full((4, 2), np.nan)])
    assert_array_equal(answers(fitted(more_X, more_Y), X[:9]), answers(fitted(X, Y), X[:9]))


def test_no_target_at_all_is_rejected():
    X, Y = toy(5)
    with pytest.raises(ValueError, match="no row has a target"):
        fitted(X, np.full_like(Y, np.nan))


@pytest.mark.parametrize("settings", FAMILY)
def test_missing_targets_do_not_spoil_their_column(settings):
    X, Y = toy(n_inputs=3)
    gaps = Y.copy()
    gaps[::3, 1] = np.nan
    distribution = fitted(X, gaps, **settings).predict(X)
    assert np.isfinite(distribution.mean).all()
    assert np.isfinite(distribution.std).all()
    assert np.sqrt(np.mean((distribution.mean[:, 1] - Y[:, 1]) ** 2)) < 0.7 * Y[:, 1].std()


def test_independent_regions_hold_only_rows_with_their_target():
    X, Y = toy()
    gaps = Y.copy()
    gaps[10:30, 1] = np.nan
    settings = {"experts": ("matern32",), "coupling": "independent", "weights": "uniform", "max_iterations": 100}
    model = fitted(X, gaps, **settings)
    (expert,) = model.experts
    assert [region.n_rows for region in expert.regions] == [60, 40]
    seen = ~np.isnan(gaps[:, 1])
    alone = fitted(X[seen], Y[seen, 1:], **settings)
    assert_allclose(model.predict(X[:9]).mean[:, 1:], alone.predict(X[:9]).mean, atol=1e-3)


def test_rows_without_a_target_teach_nothing_about_it():
    X, Y = toy()
    far_X, far_Y = toy(40, seed=1)
    far_X += 6.0
    model = fitted(X, Y, experts=("matern32",))
    before = model.predict(far_X)
    gap = np.column_stack([far_Y[:, 0], np.full(40, np.nan)])
    model.learn(far_X, gap)
    at_once = fitted(np.vstack([X, far_X]), np.vstack([Y, gap]), experts=("matern32",)).predict(far_X)
    after = model.predict(far_X)
    assert_allclose(after.mean[:, 1], before.mean[:, 1], rtol=1e-6)
    assert_allclose(after.std[:, 1], before.std[:, 1], rtol=1e-6)
    for distribution in (after, at_once):
        assert (distribution.std[:, 0] < 0.6 * before.std[:, 0]).all()
        assert (distribution.std[:, 1] > 0.7 * before.std[:, 1]).all()


@pytest.mark.parametrize("coupling", ["shared", "independent"])
def test_a_target_that_a_cell_never_saw_is_predicted_in_its_own_units(coupling):
    X, Y = toy()
    Y[:, 1] = 1e6 + 1e3 * Y[:, 1]
    Y[X[:, 1] > 0.5, 1] = np.nan
    known = Y[~np.isnan(Y[:, 1]), 1]
    model = fitted(X, Y, experts=("matern32",), coupling=coupling, weights="uniform", structure=by_hand())
    distribution = model.predict(np.array([[0.0, 1.5]]))
    assert_allclose(distribution.mean[0, 1], known.mean())
    lower, upper = distribution.interval(0.9)
    assert known.std() < upper[0, 1] - lower[0, 1] < 20 * known.std()


def test_missing_inputs_follow_the_running_mean():
    X, Y = toy(40)
    model = fitted(X[:20], Y[:20])
    model.learn(X[20:] + 3.0, Y[20:])
    mean = np.concatenate([X[:20], X[20:] + 3.0]).mean(axis=0)
    assert_allclose(model.input_means, mean)
    asked = X[:1].copy()
    asked[0, 1] = np.nan
    filled = X[:1].copy()
    filled[0, 1] = mean[1]
    assert_allclose(model.predict(asked).mean, model.predict(filled).mean, rtol=1e-9)


def test_a_target_that_is_never_there_does_not_touch_the_others():
    X, Y = toy(80)
    alone = fitted(X, Y).predict(X[:9])
    beside = fitted(X, np.column_stack([Y, np.full(80, np.nan)])).predict(X[:9])
    assert_allclose(beside.std[:, :2], alone.std, rtol=0.2)
    assert np.isfinite(beside.mean).all()
