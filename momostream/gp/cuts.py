"""Cuts of a full leaf or region: along one covariate, and into groups of outputs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

__all__ = ["dependence", "gate_cuts", "split_outputs"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Relative size below which variation is taken for round-off.
ROUND_OFF = 1e-12


def gate_cuts(values: Array, n_cells: int, shift: float = 0.0) -> Array:
    """Cuts at the quantiles of the rows, each halfway between two neighbouring distinct values.

    No cell is empty: ties move a cut to the nearest value that separates rows, and cuts that fall
    together are merged, so a covariate with two distinct values gives one cut.

    Parameters
    ----------
    values
        Covariate of the rows, at least two distinct values.
    n_cells
        Number of cells aimed at.
    shift
        In [0, 1): moves the quantiles by this share of a cell.

    Examples
    --------
    >>> gate_cuts(np.array([1.0, 2.0, 3.0, 4.0]), 2)
    array([2.5])
    >>> gate_cuts(np.array([1.0, 1.0, 1.0, 1.0, 7.0]), 2)
    array([4.])
    """
    distinct, counts = np.unique(values, return_counts=True)
    # Share of the rows at or below each gap between two neighbours.
    share = np.cumsum(counts)[:-1] / len(values)
    aims = (np.arange(1, n_cells) - 0.5 * shift) / n_cells
    gaps = np.unique([int(np.argmin(np.abs(share - aim))) for aim in aims])
    low, high = distinct[gaps], distinct[gaps + 1]
    middle = 0.5 * low + 0.5 * high
    # Two neighbouring floats have no middle: the lower one keeps its side.
    return np.where((middle >= low) & (middle < high), middle, low)


def split_outputs(X: Array, Y: Array, n_groups: int, by: str, rng: np.random.Generator) -> list[Rows]:
    """Split output positions ``0..n_outputs-1`` into groups.

    Parameters
    ----------
    X, Y
        Rows and targets of the node; NaN is missing.
    n_groups
        How many groups, at most the number of outputs.
    by
        ``"random"``: a random permutation in equal parts. ``"independence"``: outputs that depend most on each
        other given the covariates stay together (single linkage on the statistic of `dependence`).
    rng
        Source of randomness.
    """
    n_outputs = Y.shape[1]
    if by == "random":
        return [np.sort(part) for part in np.array_split(rng.permutation(n_outputs), n_groups)]
    strength, _ = dependence(X, Y, rng)
    groups = [[p] for p in rng.permutation(n_outputs)]
    while len(groups) > n_groups:
        pairs = [(i, j) for i in range(len(groups)) for j in range(i)]
        i, j = max(pairs, key=lambda pair: strength[np.ix_(groups[pair[0]], groups[pair[1]])].max())
        groups[j] += groups.pop(i)
    return [np.sort(np.array(group, dtype=np.intp)) for group in groups]


def dependence(
    X: Array,
    Y: Array,
    rng: np.random.Generator,
    n_features: int = 5,
    n_conditions: int = 60,
    max_rows: int = 2000,
) -> tuple[Array, Array]:
    """Randomised conditional correlation test of each pair of outputs given the covariates.

    Each output is mapped to a few random Fourier features, the part explained by random features of ``X`` is
    regressed out, and the squared cross-covariances of what is left are summed (Strobl et al., 2019). The null
    distribution is matched by a gamma distribution with the same first two moments.

    Returns
    -------
    statistic, p_value
        Both ``(n_outputs, n_outputs)``; the diagonal is meaningless. The statistic is per row, between 0 and about 1.
    """
    keep = ~np.isnan(Y).any(axis=1)
    X, Y = X[keep], Y[keep]
    if len(X) > max_rows:
        chosen = rng.choice(len(X), max_rows, replace=False)
        X, Y = X[chosen], Y[chosen]
    n, P = Y.shape
    if n < 4:
        return np.zeros((P, P)), np.ones((P, P))
    conditions = _fourier_features(X, n_conditions, rng)
    ridge = conditions.T @ conditions / n + 1e-6 * np.eye(conditions.shape[1])
    residuals = []
    for p in range(P):
        features = _fourier_features(Y[:, p : p + 1], n_features, rng)
        features = features - conditions @ np.linalg.solve(ridge, conditions.T @ features / n)
        features -= features.mean(axis=0)
        size = np.sqrt((features**2).mean(axis=0))
        # Only round-off is left of a constant output, which must not be blown up to size 1.
        residuals.append(np.where(size > ROUND_OFF, features / np.maximum(size, ROUND_OFF), 0.0))
    statistic, p_value = np.zeros((P, P)), np.ones((P, P))
    for i in range(P):
        for j in range(i):
            products = residuals[i][:, :, None] * residuals[j][:, None, :]
            products = products.reshape(n, -1)
            mean = products.mean(axis=0)
            covariance = np.cov(products, rowvar=False, bias=True)
            value = n * float(mean @ mean)
            # A sum of weighted chi-squares: mean tr(C), variance 2 tr(C C).
            first, second = float(np.trace(covariance)), 2.0 * float((covariance**2).sum())
            if second > 0:
                p_value[i, j] = p_value[j, i] = gammaincc(first**2 / second, value * first / second)
            statistic[i, j] = statistic[j, i] = value / n / len(mean)
    return statistic, p_value


def _fourier_features(A: Array, n_features: int, rng: np.random.Generator) -> Array:
    """Centred random cosines of standardised columns, with the median distance as bandwidth."""
    std = A.std(axis=0)
    varies = std > ROUND_OFF * np.abs(A).max(axis=0, initial=0.0)
    A = np.where(varies, (A - A.mean(axis=0)) / np.where(varies, std, 1.0), 0.0)
    sample = A[rng.choice(len(A), min(len(A), 200), replace=False)]
    distances = np.sqrt(((sample[:, None] - sample) ** 2).sum(axis=2))
    width = float(np.median(distances[distances > 0])) if np.any(distances > 0) else 1.0
    frequencies = rng.normal(size=(A.shape[1], n_features)) / width
    features = np.cos(A @ frequencies + rng.uniform(0.0, 2.0 * np.pi, n_features))
    return features - features.mean(axis=0)
