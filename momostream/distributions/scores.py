"""Elementary scores of predictions, used by metrics, runs, backtests and benchmarks alike.

Each function scores values one by one and returns what it is given: numbers, arrays, or pandas Series. Means, roots and
the handling of missing values are up to the caller. Distributions compute their own density (``log_pdf``), probability
below a value (``cdf``) and continuous ranked probability score (``crps``).

Examples
--------
>>> y, mean, lower, upper = np.array([1.0, 4.0]), np.array([2.0, 2.0]), np.zeros(2), np.full(2, 3.0)
>>> squared_error(y, mean), absolute_error(y, mean), is_inside(y, lower, upper)
(array([1., 4.]), array([1., 2.]), array([ True, False]))
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["absolute_error", "energy_score", "error_ratio", "is_inside", "means", "pit_bins", "squared_error"]

Array = NDArray[np.float64]


def squared_error(y: Any, mean: Any) -> Any:
    """Square of the error."""
    return (y - mean) ** 2


def absolute_error(y: Any, mean: Any) -> Any:
    """Size of the error."""
    return abs(y - mean)


def is_inside(y: Any, lower: Any, upper: Any) -> Any:
    """Whether a value lies inside its interval, ends included; its mean is the coverage. False for NaN."""
    return (lower <= y) & (y <= upper)


def pit_bins(pit: Array, n_bins: int) -> NDArray[np.intp]:
    """Bin of each probability integral transform, the probability below a value; a calibrated forecast fills all alike.

    Examples
    --------
    >>> pit_bins(np.array([0.0, 0.26, 1.0]), 4).tolist()
    [0, 1, 3]
    """
    return np.minimum(pit * n_bins, n_bins - 1.0).astype(np.intp)


def means(sums: Array, counts: Any) -> Array:
    """Means from sums and how many values each has; NaN where there is none.

    Examples
    --------
    >>> means(np.array([6.0, 0.0]), np.array([3, 0]))
    array([ 2., nan])
    """
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def error_ratio(error: Array, reference: Array) -> float:
    """Errors over those of a reference, as one number: the geometric mean of the ratios, whatever the units.

    Targets without an error, or whose reference has none, do not count; NaN if none is left.

    Examples
    --------
    >>> error_ratio(np.array([1.0, 8.0, np.nan]), np.array([2.0, 4.0, 1.0]))
    1.0
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = error / reference
    ratios = ratios[np.isfinite(ratios) & (ratios > 0.0)]
    return float(np.exp(np.log(ratios).mean())) if len(ratios) else float("nan")


def energy_score(draws: Array, y: Array) -> float:
    """E|Y - y| - E|Y - Y'| / 2 from draws of Y, without bias: the CRPS of a joint distribution.

    Parameters
    ----------
    draws
        Shape ``(n_samples, n_targets)``, at least two.
    y
        Shape ``(n_targets,)``.

    Examples
    --------
    >>> energy_score(np.array([[0.0], [2.0]]), np.array([1.0]))
    0.0
    """
    # Here and not above: runs import this module too.
    from scipy.spatial.distance import pdist

    distance = np.linalg.norm(draws - y, axis=1).mean()
    return float(distance - 0.5 * pdist(draws).mean())
