"""Running moments of columns, in the order in which rows come."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.lags import learn_moments

__all__ = ["RunningMoments"]

Array = NDArray[np.float64]


class RunningMoments:
    """Count, mean and sum of squared deviations of each column so far; NaN is skipped.

    Examples
    --------
    >>> moments = RunningMoments(2)
    >>> for row in ([1.0, 5.0], [3.0, np.nan]):
    ...     moments.learn(np.array(row))
    >>> moments.mean.tolist(), moments.count.tolist()
    ([2.0, 5.0], [2.0, 1.0])
    """

    def __init__(self, n_columns: int) -> None:
        self.moments = np.zeros((3, n_columns))

    def learn(self, row: Array) -> None:
        """Take a row in."""
        learn_moments(row[None], self.moments)

    def learn_rows(self, rows: Array) -> None:
        """Take rows in, one after the other."""
        learn_moments(rows, self.moments)

    @property
    def count(self) -> Array:
        """Values seen in each column."""
        return self.moments[0]

    @property
    def mean(self) -> Array:
        """Mean of each column."""
        return self.moments[1]

    def widen(self, first: Array) -> None:
        """Add columns whose mean is this until they are seen."""
        new = np.zeros((3, len(first)))
        new[1] = first
        self.moments = np.hstack([self.moments, new])
