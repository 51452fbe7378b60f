"""One compiled call for a row gives the bits of the calls for its parts, over histories of all kinds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from momostream.stream.model import StreamModel
from momostream.stream.settings import StreamSettings

N_INPUTS, N_TARGETS = 3, 2
KINDS = {
    "default": {},
    "small leaves": {"max_points": 32},
    "window": {"window": 60},
    "budget": {"memory_budget": 40_000, "max_points": 32},
    "mixtures": {"n_components": 2, "max_points": 40},
    "groups": {"n_groups": 2, "max_points": 40},
    "independent": {"coupling": "independent", "max_points": 60},
    "one circuit": {"experts": ("matern52+linear", "lags")},
    "no circuit": {"experts": ("lags",)},
    "three circuits": {"experts": ("clock rbf", "matern12", "rbf", "lags")},
    "exact": {"experts": ("rbf", "lags")},
}


def rows_of(kind, seed, n_rows=260):
    """Rows with gaps, repeated and far ones, and the time of each."""
    rng = np.random.default_rng(seed)
    X = np.cumsum(rng.normal(size=(n_rows, N_INPUTS)), axis=0) * 0.3
    noise = 1e-4 if kind == "exact" else 0.1
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]]) + noise * rng.normal(size=(n_rows, N_TARGETS))
    X[rng.random(X.shape) < 0.02] = np.nan
    Y[rng.random(Y.shape) < 0.03] = np.nan
    X[90:93], Y[90:93] = X[90], Y[90]
    X[150] *= 1e6
    return X, Y, np.cumsum(rng.exponential(size=n_rows))


def in_parts(model):
    """The same model without compiled rows."""
    model._fused = None
    return model


def model_of(kind):
    return StreamModel(StreamSettings(seed=0, **KINDS[kind]), N_INPUTS, N_TARGETS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_fused_row_has_the_bits_of_its_parts(kind, seed):
    fused, parts = model_of(kind), in_parts(model_of(kind))
    rng = np.random.default_rng(seed)
    for x, y, time in zip(*rows_of(kind, seed), strict=True):
        for _ in range(rng.integers(3)):
            # Predictions of other rows come in between.
            other = x + rng.normal(size=N_INPUTS)
            assert_array_equal(fused.predict(other, time), parts.predict(other, time))
        assert_array_equal(fused.predict(x, time), parts.predict(x, time))
        assert_array_equal(fused.stack.planes, parts.stack.planes)
        fused.learn(x, y, time)
        parts.learn(x, y, time)
        if rng.random() < 0.02:
            # Blocks, new columns of moments and other paths leave addresses behind.
            fused.react("widen")
            parts.react("widen")
    assert_array_equal(fused.stack.mixing, parts.stack.mixing)
    assert_array_equal(fused.lags.W, parts.lags.W)
    assert fused._fused is not None


def test_rows_are_fused_after_columns_have_come_and_after_a_state_was_restored():
    fused, parts = model_of("small leaves"), in_parts(model_of("small leaves"))
    X, Y, times = rows_of("default", 2)
    for i in range(len(X)):
        if i == 80:
            for model in (fused, parts):
                model.widen(np.array([0.5]), 1)
            in_parts(parts)
        if i == 170:
            shape = len(X[0]) + 1, Y.shape[1] + 1
            fused = StreamModel.from_state(fused.settings, fused.state(), *shape)
            parts = in_parts(StreamModel.from_state(parts.settings, parts.state(), *shape))
        x = X[i] if i < 80 else np.append(X[i], np.sin(i))
        y = Y[i] if i < 80 else np.append(Y[i], np.cos(i))
        assert_array_equal(fused.predict(x, times[i]), parts.predict(x, times[i]))
        fused.learn(x, y, times[i])
        parts.learn(x, y, times[i])


def test_most_rows_are_fused(monkeypatch):
    model = model_of("default")
    X, Y, times = rows_of("default", 3)
    complete = ~np.isnan(Y).any(axis=1)
    calls, real = [], model._learn_in_parts
    monkeypatch.setattr(model, "_learn_in_parts", lambda x, y, is_spoiled: (calls.append(y), real(x, y, is_spoiled)))
    for x, y, time in zip(X[complete], Y[complete], times[complete], strict=True):
        model.learn(x, y, time)
    # The first row has no row before it.
    assert len(calls) == 1
