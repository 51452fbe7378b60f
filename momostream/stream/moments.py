"""Running moments of columns, in the order in which rows come."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from momostream._checks import check_array
from momostream.kernels.lags import learn_moments

__all__ = ["RunningMoments"]

Array = NDArray[np.float64]


class RunningMoments:
    """Count, mean, sum of squared deviations and persistence of each column so far; NaN is skipped.

    Examples
    --------
    >>> moments = RunningMoments(2)
    >>> for row in ([1.0, 5.0], [3.0, np.nan]):
    ...     moments.learn(np.array(row))
    >>> moments.mean.tolist(), moments.count.tolist()
    ([2.0, 5.0], [2.0, 1.0])
    """

    def __init__(self, n_columns: int) -> None:
        self.moments = np.zeros((6, n_columns))

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

    @property
    def guess(self) -> Array:
        """Value of each column in the next row, if it is missing: between the last one and the mean.

        The share of the last value is the correlation of successive values, to the power of the rows since then.

        Examples
        --------
        >>> moments = RunningMoments(2)
        >>> rng = np.random.default_rng(0)
        >>> moments.learn_rows(np.column_stack([np.sin(np.arange(200.0) / 30.0), rng.normal(size=200)]))
        >>> moments.moments[3].round(1), moments.mean.round(1), moments.guess.round(1)
        (array([0.3, 0.6]), array([0., 0.]), array([0.3, 0. ]))
        """
        _, mean, squares, last, gap, products = self.moments
        persistence = np.clip(products / np.where(squares > 0.0, squares, 1.0), 0.0, 1.0)
        guess: Array = mean + persistence ** (1.0 + gap) * (last - mean)
        return guess

    def widen(self, first: Array) -> None:
        """Add columns whose mean is this until they are seen."""
        new = np.zeros((6, len(first)))
        new[1] = first
        self.moments = np.hstack([self.moments, new])

    @classmethod
    def from_state(cls, moments: Array, n_columns: int) -> RunningMoments:
        """Restore from `moments` of so many columns; those of earlier versions end with squared deviations."""
        restored = cls(n_columns)
        check_array("model / inputs", moments, (min(len(moments), len(restored.moments)), n_columns))
        restored.moments[: len(moments)] = moments
        return restored
