"""Toy data and fitted models for the tests of the table model."""

from __future__ import annotations

import numpy as np
import pytest

from momostream.batch.experts import CircuitExpert
from momostream.batch.model import Model
from momostream.batch.nodes import SUM, Circuit
from momostream.batch.settings import Settings
from momostream.estimators.presets import PRESETS

DEFAULT = ("matern32", "warped matern12", "linear")


def toy(n=60, n_inputs=2, n_outputs=2, seed=0, noise=0.1):
    """Smooth functions of the first covariates, with noise that the targets share in part."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, n_inputs))
    common = rng.normal(size=(n, 1))
    phase = np.arange(n_outputs)
    Y = np.sin(X[:, :1] * 1.5 + phase) + 0.5 * X[:, -1:] * phase + noise * (common + rng.normal(size=(n, n_outputs)))
    return X, Y


def fitted(X, Y, **settings):
    return Model(Settings(**{"seed": 0, "max_iterations": 3, **settings})).fit(X, Y)


def answers(model, X):
    """Everything that a prediction says about its marginals and joint distribution, as one array."""
    distribution = model.predict(X)
    parts = [
        distribution.mean,
        distribution.std,
        distribution.quantile(0.05),
        distribution.log_pdf_each(distribution.mean),
        distribution.cov.reshape(len(X), -1),
    ]
    return np.column_stack([*parts, distribution.log_pdf(distribution.mean + 0.5 * distribution.std)])


def circuits(model):
    return [expert for expert in model.experts if isinstance(expert, CircuitExpert)]


def sums(expert):
    return [node for _, node in expert.circuit.walk() if node.kind == SUM]


def by_hand(cut=0.5, n_outputs=2, column=1):
    """A gate on one covariate above two regions."""
    circuit = Circuit()
    outputs = list(range(n_outputs))
    circuit.add_gate(column, [cut], [circuit.add_region(5, outputs), circuit.add_region(5, outputs)])
    return circuit


FAMILY = [
    pytest.param({}, id="default"),
    pytest.param({"max_points": 25}, id="gates"),
    pytest.param({"max_points": 25, "weights": "uniform", "experts": ("rbf+linear", "residual matern32")}, id="linear"),
    # Not by variance while units change: which covariate varies most is a matter of units.
    pytest.param({**PRESETS["momogp"], "max_points": 25, "n_groups": 1, "split_by": "relevance"}, id="posterior"),
    pytest.param({"coupling": "independent", "stacking": "blocks", "max_points": 25}, id="blocks"),
]
