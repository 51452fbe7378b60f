"""The search that stops after every gradient: it ends where L-BFGS does, within its box, and resumes bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from momostream.gp import tuning
from momostream.gp.covariance import Covariance
from momostream.gp.tuning import ResumableTuner, tune


def problem(name, n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * [1.0, 10.0]
    if name == "smooth":
        R = np.column_stack([np.sin(2.0 * X[:, 0]), np.cos(X[:, 0])]) + 0.05 * rng.normal(size=(n, 2))
    elif name == "noise":
        R = rng.normal(size=(n, 1))
    elif name == "linear":
        R = X @ [[1.0], [0.05]] + 0.01 * rng.normal(size=(n, 1))
    elif name == "exact":
        R = np.sin(X[:, :1])
    else:
        R = np.sign(X[:, :1]) + 0.1 * np.sin(X[:, 1:])
    return X - X.mean(axis=0), (R - R.mean(axis=0)) / R.std(axis=0)


def tuner_for(text, name, max_evaluations, start=None, seed=0):
    covariance = Covariance.parse(text)
    X, R = problem(name, seed=seed)
    prior = covariance.prior(X.std(axis=0))
    return ResumableTuner(covariance, X, R, prior, prior.centre if start is None else start, max_evaluations)


def objective(tuner, theta):
    return tuning._objective(tuner.covariance, theta, tuner.X, tuner.R, tuner.prior)[0]


@pytest.mark.parametrize("text", ["matern32", "rbf", "matern52+linear"])
# Where little is to be gained, it stops for little unless it is patient.
@pytest.mark.parametrize(
    ("name", "patient"),
    [("smooth", False), ("exact", False), *((name, True) for name in ("smooth", "noise", "linear", "exact", "steps"))],
)
@pytest.mark.parametrize("away", [0.0, 2.0])
def test_the_tuner_ends_where_lbfgs_does(text, name, away, patient, monkeypatch):
    if patient:
        monkeypatch.setattr(ResumableTuner, "ENOUGH", 1e-3)
    tuner = tuner_for(text, name, 200)
    tuner.theta = start = np.clip(tuner.theta + away, tuner.prior.lower, tuner.prior.upper)
    while tuner.n_left:
        tuner.advance()
    _, best = tune(tuner.covariance, start, tuner.X, tuner.R, tuner.prior, 200)
    assert objective(tuner, tuner.theta) <= best + 0.5


@pytest.mark.parametrize("text", ["matern32", "rbf+linear"])
@pytest.mark.parametrize("name", ["smooth", "linear", "exact"])
def test_each_advance_is_one_gradient_and_never_goes_up(text, name, monkeypatch):
    calls = []
    real = ResumableTuner._evaluate

    def counted(tuner, theta):
        calls.append(theta.copy())
        return real(tuner, theta)

    monkeypatch.setattr(ResumableTuner, "_evaluate", counted)
    rng = np.random.default_rng(11)
    tuner = tuner_for(text, name, 40)
    tuner.theta = np.clip(rng.normal(tuner.prior.centre, 3.0), tuner.prior.lower, tuner.prior.upper)
    values = []
    while tuner.n_left:
        before = tuner.n_left
        n = len(calls)
        tuner.advance()
        assert len(calls) == n + 1
        assert tuner.n_left < before
        assert np.all(calls[-1] >= tuner.prior.lower) and np.all(calls[-1] <= tuner.prior.upper)
        values.append(tuner._value)
    assert len(calls) <= 40
    assert np.all(np.diff(values) <= 0.0)
    assert values[-1] <= values[0]


def test_the_tuner_stays_within_its_box():
    tuner = tuner_for("matern32", "smooth", 60, start=np.full(3, 100.0))
    box = tuner.prior.about(tuner.prior.centre, 1.0)
    tuner.prior = type(box)(box.centre, box.width, box.centre - 0.1, box.centre + 0.1)
    tuner.theta = np.clip(tuner.theta, tuner.prior.lower, tuner.prior.upper)
    while tuner.n_left:
        tuner.advance()
        assert np.all(tuner.theta >= tuner.prior.lower) and np.all(tuner.theta <= tuner.prior.upper)
    _, best = tune(tuner.covariance, tuner.prior.centre, tuner.X, tuner.R, tuner.prior, 100)
    assert objective(tuner, tuner.theta) <= best + 0.5


@pytest.mark.parametrize("stop", [0, 1, 4, 9])
def test_a_tuner_resumes_from_its_state_bit_for_bit(stop):
    tuner = tuner_for("matern32+linear", "smooth", 30)
    tuner.theta = tuner.theta + 1.5
    for _ in range(stop):
        if tuner.n_left:
            tuner.advance()
    again = ResumableTuner.from_state(tuner.state(), tuner.covariance)
    while tuner.n_left:
        tuner.advance()
        again.advance()
        assert_array_equal(again.theta, tuner.theta)
        assert (again.n_left, again._value, again._step) == (tuner.n_left, tuner._value, tuner._step)
    assert again.n_left == 0


def test_a_tuner_with_rows_that_cannot_be_factorised_gives_up():
    given = tuner_for("rbf", "smooth", 10)
    given.R[0] = np.nan
    tuner = ResumableTuner(given.covariance, given.X, given.R, given.prior, given.theta, 10)
    start = tuner.theta.copy()
    while tuner.n_left:
        tuner.advance()
    assert np.all(np.isfinite(tuner.theta))
    assert_array_equal(tuner.theta, start)
