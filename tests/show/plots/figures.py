"""Small fitted models, and texts read back from figures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from momostream import MOMoGPRegressor as StreamRegressor
from momostream.distributions.forecast import Forecast
from momostream.estimators.table import MOMoGPRegressor

ROOT = Path(__file__).resolve().parents[3]
INPUTS = ["wind", "pitch"]
OUTPUTS = ["power", "rotor", "moment"]


def frames(n_rows=120):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 4.0, size=(n_rows, 2))
    Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 0], np.sin(2 * X[:, 0]) + X[:, 1]])
    return pd.DataFrame(X, columns=INPUTS), pd.DataFrame(Y + 0.05 * rng.normal(size=Y.shape), columns=OUTPUTS)


def fitted(**settings):
    return MOMoGPRegressor(**{"max_iterations": 5, "random_state": 0, **settings}).fit(*frames())


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def words(labels):
    return [label.get_text() for label in labels]


def streamed(n_rows=200, names=("wind", "pitch"), **settings):
    rng = np.random.default_rng(0)
    model = StreamRegressor(**{"max_points": 32, "tuning_evaluations": 0, "seed": 0, **settings})
    for _ in range(n_rows):
        wind, pitch = rng.uniform(0.0, 9.0, size=2)
        model.learn_one(dict(zip(names, (wind, pitch), strict=True)), {"power": wind**2, "load": wind + pitch})
    return model


def forecast_of(names, times=None, zone=None):
    distribution = np.ones((5, 1, 6, len(names)))
    distribution[0] = np.arange(6.0)[:, None] + 10.0 * np.arange(len(names))
    distribution[3] = 5.0
    joint = SimpleNamespace(planes=distribution, between_steps=np.eye(6), between_series=np.eye(len(names)), means=None)
    return Forecast(joint, names, times=times, zone=zone)
