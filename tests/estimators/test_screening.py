"""Screening: a row in one compiled call is judged as by the parts."""

from __future__ import annotations

import copy

import numpy as np

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
