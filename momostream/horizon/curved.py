"""A curved regression of each series: what the regression on its own lags leaves, by a Gaussian process.

The process has a Matérn covariance with nu = 3/2, in weight space: its features are waves in random directions, whose
frequencies are drawn from the spectrum of that covariance (Rahimi and Recht, Random features for large-scale kernel
machines, 2007). So it learns from all rows, at a fixed cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from momostream.horizon.restoring import check_part
from momostream.kernels.curved import (
    N_OWN,
    curved_columns,
    curved_features,
    curved_learn,
    curved_note,
    curved_predict,
)

__all__ = ["CurvedLags"]

Array = NDArray[np.float64]

# Waves, and the seed they are drawn with: the same in all models.
N_WAVES, SEED = 80, 0
# Penalties in rows, of standardised columns and of waves; weight of a row relative to the next newer one.
PENALTY, WAVE_PENALTY, FORGETTING = 300.0, 100.0, 0.9998
# Targets are cut at this many times their usual size.
REACH = 6.0
# Rows that are learnt before the first weights, and rows after which the weights of one more series are found.
FIRST_SOLVED, EVERY_ROWS = 60, 12
LEVEL_PENALTY, LEAST_PIVOT = 1e-3, 1e-9


class CurvedLags:
    """Corrections of the forecasts of a regression, from the newest rows of each series and the calendar.

    Parameters
    ----------
    horizon, n_series
        Sizes.
    n_raw, n_bends, n_shown
        Inputs as they come, columns made of them, and how many inputs and terms of the calendar are seen, as in
        `momostream.horizon.features.FeatureMap`.

    Attributes
    ----------
    A, C
        Moments of the features ``(n_series, width, width)``, lower triangles, and of features and corrections
        ``(n_series, width, horizon)``.
    W
        Weights ``(n_series, width, horizon)``.
    means, squares
        Of the columns of each series, by which they are standardised.
    rows
        Features of the newest rows, ``(horizon, n_series, width)``, by the number of their row modulo the horizon.
    kept
        Number of the row whose features were kept last.
    """

    def __init__(self, horizon: int, n_series: int, n_raw: int, n_bends: int, n_shown: int) -> None:
        self.horizon, self.n_series = horizon, n_series
        self._sizes = n_raw, n_bends, n_shown
        d, rng = N_OWN + n_shown, np.random.default_rng(SEED)
        self.frequencies = rng.normal(size=(d, N_WAVES)) / np.sqrt(d * rng.chisquare(3, N_WAVES) / 3.0)
        self.phases = rng.uniform(0.0, 2.0 * np.pi, N_WAVES)
        width = 1 + d + N_WAVES
        self.A, self.C = np.zeros((n_series, width, width)), np.zeros((n_series, width, horizon))
        self.W = np.zeros((n_series, width, horizon))
        self.means, self.squares = np.zeros((2, n_series, d))
        self.target_squares, self.target_masses = np.zeros((2, horizon, n_series))
        self.rows = np.zeros((horizon, n_series, width))
        self.n_seen = self.n_rows = self._next = 0
        self.kept = -1
        self._penalty = np.r_[LEVEL_PENALTY, np.full(d, PENALTY), np.full(N_WAVES, WAVE_PENALTY)]
        self._Z, self._F, self._target = np.zeros((n_series, d)), np.zeros((n_series, width)), np.zeros(horizon)

    def correct(
        self,
        series: Array,
        inputs: Array,
        first: int,
        now: int,
        lags: NDArray[np.int64],
        own: Array,
        wide: Array,
        location: Array,
    ) -> None:
        """Add corrections to the forecasts ``location`` ``(horizon, n_series)`` at ``now``; rows as those of a past.

        ``own`` and ``wide`` ``(n_series,)`` are the changes that linear regressions expect until the last step.
        """
        curved_columns(series, inputs, first, now, lags, *self._sizes, own, wide, self._Z)
        n = max(self.n_seen, 1)
        curved_features(n, self._Z, self.means, self.squares, self.frequencies, self.phases, self._F)
        curved_predict(self._F, self.W, location)

    def correct_again(self, location: Array) -> None:
        """The same at the row that was kept last, as before it was kept: means have moved since."""
        curved_predict(self.rows[self.kept % self.horizon], self.W, location)

    def keep(self, row: int) -> None:
        """Keep the features of the row that was corrected last, number ``row``, until the values after it are there."""
        self.rows[row % self.horizon], self.kept = self._F, row
        self.n_seen += 1
        curved_note(self.n_seen, self._Z, self.means, self.squares)

    def learn(self, row: int, left: Array) -> None:
        """Learn what a regression has left ``(horizon, n_series)`` of the values after a row; NaN is missing."""
        curved_learn(
            FORGETTING, REACH, self.rows[row % self.horizon], left, self.W, self._target, self.target_squares,
            self.target_masses, self.A, self.C,
        )  # fmt: skip
        self.n_rows += 1

    def work(self) -> None:
        """Find the weights of one series, every few rows.  O(width^3)."""
        self._next += 1
        if self.n_rows >= FIRST_SOLVED and self._next % EVERY_ROWS == 0:
            self._solve(self._next // EVERY_ROWS % self.n_series)

    def _solve(self, p: int) -> None:
        A = self.A[p]
        penalty = self._penalty * np.diag(A) / A[0, 0] + LEAST_PIVOT
        penalty[0] = LEVEL_PENALTY
        # LAPACK reads columns, so that our lower triangle is its upper one.
        _, W, failed = lapack.dposv((A + np.diag(penalty)).T, self.C[p], lower=0)
        if not failed and np.isfinite(W).all():
            self.W[p] = W

    # ------------------------------------------------------------------ as plain data

    _ARRAYS = ("A", "C", "W", "means", "squares", "target_squares", "target_masses", "rows")

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return sum(getattr(self, name).nbytes for name in self._ARRAYS)

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        arrays = {name: getattr(self, name).copy() for name in self._ARRAYS}
        return {**arrays, "n_seen": self.n_seen, "n_rows": self.n_rows, "next": self._next}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`."""
        check_part("curved", state, self.state(), {})
        for name in self._ARRAYS:
            setattr(self, name, state[name].copy())
        self.n_seen, self.n_rows, self._next = state["n_seen"], state["n_rows"], state["next"]
