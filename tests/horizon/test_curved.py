"""The curved regression: it finds a curve that linear regressions miss, and resumes from its state."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.horizon.curved import FORGETTING, CurvedLags
from momostream.horizon.model import HorizonModel
from momostream.horizon.settings import CURVED, LINEAR, HorizonSettings

EXPERTS = ("own lags", "wide lags", CURVED)


def logistic(n_rows):
    """A series that no linear regression can predict, and an ordinary one."""
    Y, rng = np.empty((n_rows, 2)), np.random.default_rng(0)
    y = 0.3
    for row in Y:
        y = 3.9 * y * (1.0 - y)
        row[:] = y, rng.normal()
    return Y


def learnt(Y, horizon=2, **settings):
    model = HorizonModel(HorizonSettings(horizon=horizon, experts=EXPERTS, **settings), Y.shape[1], 0)
    errors = []
    for i, y in enumerate(Y):
        if i > 600:
            errors.append(y - model._forecast().located[:, 0])
        model.learn(y, np.empty(0))
    return model, np.sqrt(np.mean(np.square(errors), axis=0))


def test_a_curve_is_found():
    model, rmse = learnt(logistic(900), seasons=())
    at = model.expert_names.index(CURVED)
    heavy = model.expert_names.index("own lags, heavy")
    assert rmse[at, 0] < 0.3 * rmse[heavy, 0]
    # Where there is none, little is lost.
    assert rmse[at, 1] < 1.05 * rmse[heavy, 1]
    assert model.blend.weights[0, 0, at] > 0.8


def test_weights_solve_the_penalised_least_squares():
    rng = np.random.default_rng(0)
    curved = CurvedLags(3, 1, 0, 0, 0)
    F, left = rng.normal(size=(200, 1, curved.rows.shape[2])), rng.normal(size=(200, 3, 1))
    F[:, :, 0], F[:, :, 4] = 1.0, 0.0
    for f, target in zip(F, left, strict=True):
        curved.rows[0] = f
        curved.learn(0, target)
    curved._solve(0)
    decay = FORGETTING ** np.arange(199, -1, -1.0)[:, None]
    A, C = (decay * F[:, 0]).T @ F[:, 0], (decay * F[:, 0]).T @ left[:, :, 0]
    penalty = curved._penalty * np.diag(A) / A[0, 0]
    penalty[0], penalty[4] = curved._penalty[0], 1.0
    assert_allclose(curved.W[0], np.linalg.solve(A + np.diag(penalty), C), rtol=1e-6, atol=1e-8)
    assert_array_equal(curved.W[0, 4], 0.0)


def test_asking_changes_nothing_and_a_restored_model_continues_alike():
    Y = logistic(300)
    Y[150:153] = np.nan
    asked, silent = (HorizonModel(HorizonSettings(horizon=3, experts=EXPERTS), 2, 0) for _ in "ab")
    for i, y in enumerate(Y):
        for model in (asked, silent):
            model.learn(y, np.empty(0))
        asked.joint()
        # After a row with values, and after one without.
        if i in {152, 200}:
            silent = HorizonModel.from_state(silent.settings, silent.state(), 2, 0)
            assert_array_equal(asked.joint().planes, silent.joint().planes)
    assert_array_equal(asked.joint().planes, silent.joint().planes)
    for name, array in asked.experts.curved.state().items():
        assert_array_equal(array, silent.experts.curved.state()[name])


def test_constant_and_identical_series():
    Y = np.column_stack([np.full(650, 7.0), *np.tile(np.random.default_rng(0).normal(size=650), (2, 1))])
    model, _ = learnt(Y)
    located = model._forecast().located
    assert np.isfinite(located).all()
    assert_allclose(located[:, :, 0], 7.0)
    # Their weights are solved for at different rows.
    assert_allclose(located[:, :, 1], located[:, :, 2], atol=0.1)


def test_it_needs_the_regressions_that_it_corrects():
    with pytest.raises(ValueError, match="'curved lags' require 'own lags'"):
        HorizonSettings(experts=("wide lags", CURVED))
    assert CURVED not in LINEAR
