"""Parts and sums of the series of a forecast: the arrays of a new joint distribution."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from momostream._numbers import as_number
from momostream.distributions.planes import DOF, LOCATION, SCALE, STD, WEIGHT

__all__ = ["JointArrays", "PartOfQuantiles", "joint_of_paths", "read_groups"]

Array = NDArray[np.float64]

# Parts of the mixture that stands for drawn values: each is a normal distribution for as many of them, in order. The
# outermost are halved this often, or a few far values would widen the distribution of all values near the ends.
N_PARTS, N_HALVED = 64, 5


class JointArrays(NamedTuple):
    """The arrays from which a forecast is made; see `momostream.distributions.forecast.JointPlanes`."""

    planes: Array
    between_steps: Array
    between_series: Array
    means: Array | None = None


class _Quantiles(Protocol):
    def scores(self, q: float) -> Array: ...


class PartOfQuantiles(NamedTuple):
    """Conformal quantiles of some of the series."""

    whole: _Quantiles
    columns: list[int]

    def scores(self, q: float) -> Array:
        """Normal scores of these series."""
        return self.whole.scores(q)[:, self.columns]


def read_groups(groups: Mapping[Hashable, Any], series: Sequence[Hashable], how: str) -> Array:
    """Weights of the series in each group, shape ``(n_series, n_groups)``.

    Examples
    --------
    >>> read_groups({"farm": ["a", "b"], "difference": {"a": 1, "b": -1}}, ["a", "b", "c"], "mean")
    array([[ 0.5,  1. ],
           [ 0.5, -1. ],
           [ 0. ,  0. ]])
    """
    if how not in ("sum", "mean"):
        raise ValueError(f"how={how!r} is not accepted: use 'sum' or 'mean'")
    if not isinstance(groups, Mapping) or not groups:
        raise TypeError(f"expected a dict of names and the series of each, got {groups!r}")
    weights = np.zeros((len(series), len(groups)))
    for column, (name, members) in enumerate(groups.items()):
        if isinstance(members, str) or not hasattr(members, "__iter__") or not len(list(members)):
            raise TypeError(f"group {name!r}: expected a list of series, or a dict of series and weights")
        for member in members:
            if member not in series:
                known = ", ".join(map(repr, series))
                raise ValueError(f"group {name!r}: unknown series {member!r}; the series are {known}")
            if isinstance(members, Mapping):
                weights[series.index(member), column] = as_number(member, members[member])
            else:
                weights[series.index(member), column] += 1.0 / (len(list(members)) if how == "mean" else 1)
    return weights


def joint_of_paths(paths: Array, mean: Array) -> JointArrays:
    """The joint distribution of drawn values, shape ``(n_paths, n_steps, n_series)``, with a known mean.

    Each value gets a mixture of normal distributions: one for each 64th of the draws in order, and for smaller parts at
    both ends, with their mean and their standard deviation, so that the mixture has the mean and the standard deviation
    of the draws. The correlation of two values is that between their steps times that between their series, each the
    mean over the other.
    """
    n_paths, n_steps, n_series = paths.shape
    inner, halves = np.arange(1, N_PARTS) / N_PARTS, 0.5 ** np.arange(1, N_HALVED + 1) / N_PARTS
    edges = np.unique((np.concatenate([[0.0], halves, inner, 1.0 - halves]) * n_paths).astype(np.intp))
    sizes = np.diff(edges, append=n_paths)[:, np.newaxis, np.newaxis]
    ordered = np.sort(paths, axis=0)
    planes = np.empty((5, len(edges), n_steps, n_series))
    planes[LOCATION] = np.add.reduceat(ordered, edges, axis=0) / sizes
    ordered -= np.repeat(planes[LOCATION], sizes.ravel(), axis=0)
    std = np.sqrt(np.add.reduceat(ordered**2, edges, axis=0) / sizes)
    planes[WEIGHT] = sizes / n_paths
    planes[LOCATION] += mean - (planes[WEIGHT] * planes[LOCATION]).sum(axis=0)
    # Values at a bound may all be the same.
    least = 1e-9 * np.maximum(np.abs(mean), np.maximum(paths.std(axis=0), 1e-30))
    planes[STD] = planes[SCALE] = np.maximum(std, least)
    planes[DOF] = np.inf
    ranks = paths.argsort(axis=0).argsort(axis=0)
    scores = ndtri((ranks + 0.5) / n_paths)
    scores /= np.sqrt((scores**2).mean(axis=0))
    steps = np.einsum("nsp,ntp->st", scores, scores) / (n_paths * n_series)
    series = np.einsum("nsp,nsq->pq", scores, scores) / (n_paths * n_steps)
    return JointArrays(planes, steps, series)
