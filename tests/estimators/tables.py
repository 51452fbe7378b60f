"""Tables for tests of the estimator of scikit-learn, and quick models of them."""

from __future__ import annotations

import numpy as np

from momostream.estimators.table import MOMoGPRegressor

INPUTS, TARGETS = ["wind", "pitch", "yaw"], ["power", "load"]


def toy(n=60, n_outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 3))
    common = rng.normal(size=(n, 1))
    Y = (
        np.sin(1.5 * X[:, :1] + np.arange(n_outputs))
        + 0.5 * X[:, 1:2]
        + 0.1 * (common + rng.normal(size=(n, n_outputs)))
    )
    return X, Y


def quick(**parameters):
    return MOMoGPRegressor(**{"max_iterations": 3, "random_state": 0, **parameters})
