"""Inputs known in advance that act along curves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.distributions.planes import LOCATION
from momostream.horizon.calendar import Ahead
from momostream.horizon.inputs import MOST_BENDS, BentInputs
from momostream.horizon.model import HorizonModel
from momostream.horizon.reasons import reasons_of
from momostream.horizon.settings import LINEAR, HorizonSettings


@pytest.mark.parametrize(
    ("n_inputs", "n_terms", "n_bends"),
    [(0, 4, 0), (2, 0, 2), (2, 1, 4), (2, 9, 6), (9, 4, 9), (MOST_BENDS + 1, 4, 0)],
)
def test_many_inputs_have_fewer_columns_of_each(n_inputs, n_terms, n_bends):
    inputs = BentInputs(n_inputs, n_terms)
    x, terms = np.arange(1.0, n_inputs + 1.0), np.full(n_terms, 2.0)
    inputs.see(np.zeros(n_inputs))
    assert inputs.n_bends == n_bends == len(inputs.bend(x, terms))
    assert inputs.n_columns == n_inputs + n_bends
    assert inputs.bend(np.tile(x, (3, 1)), np.tile(terms, (3, 1))).shape == (3, n_bends)


def test_the_first_value_is_the_origin_and_missing_inputs_are_missing():
    inputs = BentInputs(2, 4)
    inputs.see(np.array([np.nan, 5.0]))
    inputs.see(np.array([3.0, 9.0]))
    assert_array_equal(inputs.centre, [3.0, 5.0])
    bent = inputs.bend(np.array([np.nan, 7.0]), np.array([0.5, -1.0, 0.0, 0.0]))
    assert_array_equal(bent, [np.nan, 4.0, np.nan, 1.0, np.nan, -2.0])


def test_slopes_are_those_of_small_changes():
    inputs, rng = BentInputs(2, 4), np.random.default_rng(0)
    inputs.see(rng.normal(size=2))
    x, terms = rng.normal(size=2), rng.normal(size=4)
    for j, step in enumerate(1e-6 * np.eye(2)):
        columns = [np.concatenate([value, inputs.bend(value, terms)]) for value in (x + step, x - step)]
        assert_allclose((columns[0] - columns[1]) / 2e-6, inputs.slopes(x, terms)[:, j], atol=1e-6)


def taught(n_rows, day=8, seed=0):
    """A model of a load that is high in heat and in cold, and that the wind lowers at one time of the day only."""
    rng = np.random.default_rng(seed)
    model = HorizonModel(HorizonSettings(horizon=2, experts=LINEAR, seasons=(day,)), 1, 2, n_terms=4)
    X, turns = rng.normal(size=(n_rows + 2, 2)), 2.0 * np.pi * np.arange(n_rows + 4) / day
    waves = np.stack([np.sin(turns), np.cos(turns), np.sin(2 * turns), np.cos(2 * turns)], axis=1)
    Y = (X[:, 0] ** 2 + X[:, 1] * waves[: n_rows + 2, 0])[:, None]
    for i in range(n_rows):
        ahead = Ahead(waves[i : i + 3], np.zeros(3, dtype=np.int64))
        model.learn(Y[i], X[i], ahead)
    return model, X[n_rows:], Y[n_rows:]


def test_forecasts_follow_curves_of_inputs():
    errors, linear = [], []
    for seed in range(6):
        model, X, Y = taught(600, seed=seed)
        errors.append(model.joint(X).planes[0, 0] - Y)
        linear.append(Y - 1.0)
    # What is left of the deviation of the values, 1.7.
    assert np.sqrt(np.mean(np.square(errors))) < 0.3 * np.sqrt(np.mean(np.square(linear)))


def test_forecasts_with_inputs_stay_in_reach():
    model, X, _ = taught(300)
    lowest, highest = model.past.reach()
    locations = model.joint(1e6 * X).planes[LOCATION]
    assert (locations >= lowest).all() and (locations <= highest).all()
    assert (locations == lowest).any() or (locations == highest).any()


def test_reasons_tell_the_slope_where_the_input_is():
    model, _, _ = taught(600)
    now = model.past.inputs[model.past.last, 0, :2]
    slopes = reasons_of(model, 1, 0).slopes
    assert slopes.shape == (2, 1)
    assert slopes[0, 0] == pytest.approx(2.0 * now[0], abs=0.4)


def test_a_restored_model_bends_alike():
    model, X, _ = taught(100)
    copy = HorizonModel.from_state(model.settings, model.state(), model.n_series, model.n_inputs, n_terms=4)
    assert_array_equal(copy.joint(X).planes, model.joint(X).planes)


def test_an_input_that_stays_acts_as_it_does_at_that_time_of_the_day():
    model, X, _ = taught(600)
    now = np.tile(model.past.inputs[model.past.last, 0, :2], (2, 1))
    assert_array_equal(model.joint().planes, model.joint(now).planes)
    assert_array_equal(model.joint(np.full((2, 2), np.nan)).planes, model.joint(now).planes)
    assert (model.joint().planes != model.joint(X).planes).any()
