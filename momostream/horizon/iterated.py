"""Regressions of one step that are iterated: each step is predicted from the steps before it, as if these had come.

They never forget: a feed that reverts to its mean over hours shows that mean over all its rows. One regression sees all
series (a vector autoregression), the other each series on its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from momostream.horizon.calendar import Ahead
from momostream.horizon.past import Past
from momostream.horizon.restoring import check_part
from momostream.kernels.forecasts import iterated_learn, largest_features
from momostream.kernels.horizon import ENOUGH_TO_SOLVE, iterate
from momostream.kernels.lags import LEVEL_PENALTY

__all__ = ["IteratedLags"]

Array = NDArray[np.float64]

# Rows that the next row is predicted from, at most, and features of all series at most.
MOST_ROWS, MOST_FEATURES = 6, 72
# The penalty, in rows of its feature; features and changes are cut at this many times their usual size.
PENALTY, REACH = 0.3, 6.0
# Most rows that are learnt again at once, so that there is no pause.
MOST_AGAIN = 512
# Rows after which weights are refreshed at the latest.
REFRESH = 64
# A correlation matrix with a smaller pivot than this is not solved: the features follow from each other.
LEAST_PIVOT = 1e-10


class IteratedLags:
    """The next change of each series from its level, newest changes and calendar; of all series, and of each alone.

    Parameters
    ----------
    n_series, n_terms
        Series, and columns of the calendar.

    Attributes
    ----------
    A, C
        Moments of the features ``(d, d)``, and of features and changes ``(d, n_series)``.
    W
        Weights ``(2, d, n_series)``: those on all series, and those on the series itself.
    centre
        The first value of each series, from which levels are measured; NaN before it.

    Examples
    --------
    >>> lags, past = IteratedLags(n_series=1, n_terms=0), Past(1, 0, 50)
    >>> ahead = Ahead(np.empty((4, 0)), np.zeros(4, dtype=np.int64))
    >>> for t in range(200):  # values that fall by half at each row, and start again
    ...     past.append(np.array([0.5 ** (t % 4)]), np.empty(0))
    ...     lags.learn(past, ahead)
    >>> location = np.empty((2, 3, 1))
    >>> lags.predict(past, ahead, location)
    >>> location[0, :, 0].round(2)
    array([1.  , 0.5 , 0.25])
    """

    def __init__(self, n_series: int, n_terms: int) -> None:
        self.n_series, self.n_terms = n_series, n_terms
        self.n_changes = int(np.clip(MOST_FEATURES // max(n_series, 1), 1, MOST_ROWS)) - 1
        d = 1 + n_series * (1 + self.n_changes) + n_terms
        self.A, self.C = np.zeros((d, d)), np.zeros((d, n_series))
        self.W = np.zeros((2, d, n_series))
        self.centre, self.squares = np.full(n_series, np.nan), np.zeros(n_series)
        self._find_origin()
        self.n_rows = self._since = 0
        self._f, self._change, self._turned = np.zeros(d), np.zeros(n_series), np.zeros((n_series + 1, d))
        self._own = [
            np.r_[0, 1 + p + n_series * np.arange(1 + self.n_changes), d - n_terms : d] for p in range(n_series)
        ]

    def learn(self, past: Past, ahead: Ahead) -> None:
        """Learn the newest row of the past from the rows before it."""
        if not self._is_complete:
            self.centre = np.where(np.isnan(self.centre) & (past.is_known > 0.0), past.values, self.centre)
            self._find_origin()
        if not self._learn_row(past, past.last, ahead.terms[0]):
            return
        self.n_rows += 1
        self._since += 1
        if self.n_rows >= ENOUGH_TO_SOLVE and self._since >= min(REFRESH, 1 + self.n_rows // 8):
            self._solve()

    def _learn_row(self, past: Past, row: int, terms: Array) -> int:
        """Add a row of the past, whose calendar is ``terms``; returns whether there was anything to learn."""
        return iterated_learn(
            past.series, past.first, row, self.n_changes, terms, self._origin, past.observed[row], self.n_rows, REACH,
            self.W[0], self._f, self._change, self.squares, self.A, self.C,
        )  # fmt: skip

    def learn_again(self, past: Past) -> None:
        """Forget all, and learn the newest rows of the past again: their calendar has become known."""
        self.A[:], self.C[:], self.squares[:], self.n_rows = 0.0, 0.0, 0.0, 0
        for row in range(max(past.first, past.last + 1 - MOST_AGAIN), past.last + 1):
            self.n_rows += self._learn_row(past, row, past.inputs[row, 0, past.inputs.shape[2] - self.n_terms :])
        if self.n_rows >= ENOUGH_TO_SOLVE:
            self._solve()

    def _find_origin(self) -> None:
        """Measure levels of series without a value yet from zero."""
        self._origin, self._is_complete = np.nan_to_num(self.centre), not np.isnan(self.centre).any()

    def _features(self, series: Array, first: int, now: int, terms: Array) -> Array:
        """Features of the row after ``now``, whose calendar is ``terms``."""
        f, P = np.zeros(len(self._f)), self.n_series
        f[0], f[1 : 1 + P] = 1.0, series[now, 0] - self._origin
        rows = series[np.maximum(np.arange(now, now - self.n_changes - 1, -1), first), 0]
        f[1 + P : 1 + P * (1 + self.n_changes)] = (rows[:-1] - rows[1:]).ravel()
        f[len(f) - self.n_terms :] = terms
        return f

    def _largest(self) -> Array:
        """Up to which size features count; one that has not varied has no usual size."""
        largest = np.empty(len(self.A))
        largest_features(REACH, self.n_rows, self.A, largest)
        return largest

    def _solve(self) -> None:
        """Set the weights from the moments.  O(d^3)."""
        self._since = 0
        squares = np.diag(self.A)
        # About the mean, except for the level itself: its offset is no size.
        variance = np.maximum(squares - self.A[0] ** 2 / self.A[0, 0], 1e-12 * squares)
        size = np.sqrt(np.where(variance > 0.0, variance, 1.0))
        size[0] = np.sqrt(squares[0])
        moments = self.A / np.outer(size, size)
        penalty = np.full(len(size), PENALTY / self.A[0, 0])
        penalty[0] = LEVEL_PENALTY / self.A[0, 0]
        cross = self.C / size[:, None]
        moments += np.diag(penalty + LEAST_PIVOT)
        every = np.arange(len(size))
        self._solve_part(moments, cross, size, every, slice(None), 0)
        for p, own in enumerate(self._own):
            self._solve_part(moments, cross, size, own, slice(p, p + 1), 1)

    def _solve_part(self, moments: Array, cross: Array, size: Array, used: Any, series: slice, k: int) -> None:
        """Set weights of regression ``k`` for these series on these features; they stay if that is impossible."""
        _, w, failed = lapack.dposv(moments[np.ix_(used, used)], cross[used, series])
        if not failed and np.isfinite(w).all():
            self.W[k, used, series] = w / size[used, None]

    def predict(self, past: Past, ahead: Ahead, location: Array) -> None:
        """Set ``location`` ``(2, horizon, n_series)``."""
        if self.n_rows < ENOUGH_TO_SOLVE:
            location[:] = past.values
            return
        iterate(
            past.series, past.first, past.last, self.n_changes, ahead.terms[1:], self._origin,
            *past.reach(), self._largest(), self.W, self._f, self._turned, location,
        )  # fmt: skip

    def predict_next(self, series: Array, now: int, terms: Array) -> Array:
        """The next values ``(2, n_paths, n_series)`` of pasts ``(n_paths, n_rows, 4, n_series)``."""
        if self.n_rows < ENOUGH_TO_SOLVE:
            return np.broadcast_to(series[:, now, 0], (2, *series[:, now, 0].shape))
        largest = self._largest()
        F = np.stack([np.clip(self._features(past, 0, now, terms), -largest, largest) for past in series])
        return np.asarray(series[:, now, 0] + F @ self.W)

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return self.A.nbytes + self.C.nbytes + self.W.nbytes

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "A": self.A.copy(), "C": self.C.copy(), "W": self.W.copy(), "centre": self.centre.copy(),
            "squares": self.squares.copy(), "n_rows": self.n_rows, "since": self._since,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`."""
        check_part("iterated", state, self.state(), {})
        self.A, self.C, self.W = (state[name].copy() for name in ("A", "C", "W"))
        self.centre, self.squares = state["centre"].copy(), state["squares"].copy()
        self.n_rows, self._since = state["n_rows"], state["since"]
        self._find_origin()
