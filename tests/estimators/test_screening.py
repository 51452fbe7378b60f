"""Screening: a row in one compiled call is judged as by the parts."""

from __future__ import annotations

import copy

import numpy as np

from momostream import MOMoGPRegressor
from momostream.estimators._screening import Screening


def rows(n, n_columns, seed):
    """Readings with spikes, codes, gaps and a sensor that is stuck for a while."""
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.normal(size=(n, n_columns)), axis=0)
    values[rng.random(values.shape) < 0.01] *= 100.0
    values[rng.random(values.shape) < 0.01] = -9999.0
    values[rng.random(values.shape) < 0.02] = np.nan
    values[n // 2 : n // 2 + 90, 0] = values[0, 0]
    return values


def screening(n_inputs, n_targets):
    found = Screening()
    found.widen(n_inputs, n_targets)
    return found


def test_one_call_judges_as_the_parts_do():
    for n_inputs in (0, 3):
        whole, parts = screening(n_inputs, 2), screening(n_inputs, 2)
        for x, y in zip(rows(400, 4, 0)[:, :n_inputs], rows(400, 2, 1), strict=True):
            whole.doubt(x.copy())
            X, Y = x[None].copy(), y[None].copy()
            parts.screen(X, Y)
            parts.shown.show(Y)
            # A copy has arrays of its own.
            copy.deepcopy(whole).screen_row(x.copy(), y.copy())
            whole.screen_row(x, y)
            np.testing.assert_array_equal(x, X[0])
            np.testing.assert_array_equal(y, Y[0])
        for name, value in parts.state().items():
            np.testing.assert_equal(whole.state()[name], value)
        assert parts.targets.counts[:2].any() and parts.targets.counts[2].any()
        assert whole.rejected("abc"[:n_inputs], "de") == parts.rejected("abc"[:n_inputs], "de")


def test_columns_that_join_have_a_door_of_their_own():
    whole, parts = screening(1, 1), screening(1, 1)
    for n_columns in (1, 2):
        for each in (whole, parts):
            each.widen(n_columns, n_columns)
        for values in rows(120, n_columns, 2)[:, None]:
            given = values.copy()
            whole.screen_row(values[0], values[0].copy())
            parts.screen(given, Y := given.copy())
            parts.shown.show(Y)
    np.testing.assert_equal(whole.state()["targets"], parts.state()["targets"])


def test_rows_that_are_screened_and_learnt_in_one_call_are_judged_as_by_the_parts():
    n = 500
    whole, parts = MOMoGPRegressor(seed=0), MOMoGPRegressor(seed=0)
    for i, (x, y) in enumerate(zip(rows(n, 3, 3), rows(n, 2, 4), strict=True)):
        inputs, targets = dict(zip("abc", x, strict=True)), dict(zip("de", y, strict=True))
        # Some rows are learnt without a prediction, and some predictions are about other rows.
        other = {name: value + (i % 7 == 0) for name, value in inputs.items()}
        if i % 5:
            assert whole.predict_one(other) == parts.predict_one(other)
        parts._is_plain = False
        whole.learn_one(inputs, targets)
        parts.learn_one(inputs, targets)
    assert whole.predict_one(inputs) == parts.predict_one(inputs)
    assert whole.n_rows == parts.n_rows
    assert whole.rejected_readings == parts.rejected_readings != {}
    assert whole.stuck_readings == parts.stuck_readings != {}
    np.testing.assert_equal(whole._screening.state(), parts._screening.state())
