"""Rows for the tests of monitors: correlated columns that depend on their past."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def normal_rows(n: int, n_columns: int = 4, seed: int = 0) -> Array:
    """Autoregressive columns that share a disturbance."""
    rng = np.random.default_rng(seed)
    shared, own = rng.normal(size=(n, 1)), rng.normal(size=(n, n_columns))
    X = np.zeros((n, n_columns))
    for t in range(1, n):
        X[t] = 0.7 * X[t - 1] + shared[t] + 0.5 * own[t]
    return 10.0 + X * np.arange(1, n_columns + 1)


def as_dict(row: Array) -> dict[str, float | None]:
    """A row by names, None where it is NaN."""
    return {f"c{j}": None if np.isnan(value) else float(value) for j, value in enumerate(row)}
