"""Linear regression of the change of each output on lags, with forgetting; and the last value itself.

Three experts in one: the change is predicted from the inputs, their change and the last outputs ("short"); from these
and two older changes of the outputs and one of the inputs ("full"); and as zero ("last"). Discounted moments of the
features are the truth. The weights that follow from them are refreshed now and then with the whole prior, so that
forgetting the data never forgets the prior, and moved by recursive least squares in between.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from momostream.kernels.lags import learn_lags, learn_lags_rows, predict_lags, predict_lags_rows

__all__ = ["Autoregression"]

Array = NDArray[np.float64]

# Prior precision, in rows, of a standardised weight in the full and in the short regression, and of the intercept.
RIDGES = (1.0, 3.0)
INTERCEPT_RIDGE = 1e-3
# Features are cut at so many spreads.
CLIP = 6.0
# Rows that may wait before their moments are added up and the weights refreshed.
BATCH = 256
# A feature that varies by less than this part of its distance from where it is measured counts as constant.
LEAST_SPREAD = 1e-7
# A feature is never measured in units below this part of its centre, which would be round-off.
LEAST_UNIT = 1e-12


class Autoregression:
    """The experts that know the order of rows.

    Parameters
    ----------
    n_inputs, n_targets
        Columns.
    forgetting
        Weight of a row relative to the next newer one.
    discount
        The same for the residuals behind the spread.

    Examples
    --------
    >>> lags = Autoregression(n_inputs=1, n_targets=1)
    >>> location, spread = np.empty((2, 3, 1))
    >>> for t in range(60):
    ...     lags.predict(np.array([0.0]), location, spread)
    ...     lags.learn(np.array([0.0]), np.array([2.0 * t]))
    ...     if lags.is_due:
    ...         lags.refresh()
    >>> print(location.ravel().round(1))
    [118. 118. 116.]
    """

    EXPERTS = ("full lags", "short lags", "last value")

    def __init__(self, n_inputs: int, n_targets: int, forgetting: float = 0.998, discount: float = 0.99) -> None:
        self.forgetting, self.discount = forgetting, discount
        self.n_rows = 0
        self._shape(n_inputs, n_targets)
        width = self.width
        self.past_x, self.past_y = np.zeros((2, n_inputs)), np.full((3, n_targets), np.nan)
        self.units = np.vstack([np.zeros(width - 1), np.ones(width - 1)])
        self.A, self.C = np.zeros((width, width)), np.zeros((width, n_targets))
        self.residuals = np.zeros((6, n_targets))
        # All zero, not the prior: the units of the features are not known before the first change.
        self.P, self.B = np.zeros((2, width, width)), np.zeros((2, width, n_targets))
        self._waiting, self._next = 0, 1

    def _shape(self, n_inputs: int, n_targets: int) -> None:
        self.short = 1 + 2 * n_inputs + n_targets
        self.width = 1 + 3 * n_inputs + 3 * n_targets
        self._features, self._changes = np.empty((BATCH, self.width)), np.empty((BATCH, n_targets))
        self._f, self._gains = np.zeros(self.width), np.zeros((2, self.width))
        self._means, self._c, self._error = np.zeros((2, n_targets)), np.ones(2), np.zeros(n_targets)

    @property
    def _clip(self) -> float:
        """Where features are cut: nowhere while their spreads are guesses."""
        return CLIP if self.n_rows > 8 else 1e300

    def predict(self, x: Array, location: Array, spread: Array) -> None:
        """Set location and spread ``(3, n_targets)`` of the full, the short and the last-value expert."""
        predict_lags(
            x, self.past_x, self.past_y, self.units, self._clip, self.short, self.P, self.B,
            self.residuals, self._f, self._gains, self._means, self._c, location, spread,
        )  # fmt: skip

    def learn(self, x: Array, y: Array) -> None:
        """Learn the row that was predicted last; NaN is a missing target."""
        if self.n_rows == 0:
            self.past_x[:] = x
            self.past_y[:] = y
            # Moments about zero would lose a small signal on a large offset.
            D, P = len(x), len(y)
            self.units[0, :D] = x
            self.units[0, 2 * D : 2 * D + P] = np.where(np.isnan(y), 0.0, y)
        else:
            at = self._waiting
            learn_lags(
                x, y, self.forgetting, self.discount, self.short, self._gains, self._means, self._c, self._f,
                self.past_x, self.past_y, self._error, self.P, self.B, self.residuals,
                self._features[at], self._changes[at],
            )  # fmt: skip
            self._waiting = at + 1
        self.n_rows += 1

    def learn_rows(self, X: Array, Y: Array, plane_rows: Array) -> None:
        """Predict and learn rows in order; ``plane_rows`` ``(n, 2, 3, n_targets)`` gets locations and spreads.

        No more rows than `room`, and not the very first one.
        """
        learn_lags_rows(
            X, Y, self._clip, self.forgetting, self.discount, self.short, self.past_x,
            self.past_y, self.units, self._f, self._gains, self._means, self._c, self._error, self.P, self.B,
            self.residuals, self._features[self._waiting :], self._changes[self._waiting :], plane_rows,
        )  # fmt: skip
        self._waiting += len(X)
        self.n_rows += len(X)

    def predict_rows(self, X: Array, location: Array, spread: Array) -> None:
        """Set location and spread ``(n, 3, n_targets)`` of many rows, all given the rows learnt so far."""
        predict_lags_rows(
            X, self.past_x, self.past_y, self.units, self._clip, self.short, self.P, self.B,
            self.residuals, self._f, self._gains, self._means, self._c, location, spread,
        )  # fmt: skip

    @property
    def room(self) -> int:
        """Rows until the weights should be refreshed."""
        return max(self._next - self._waiting, 0)

    @property
    def is_due(self) -> bool:
        """Whether the weights should be refreshed."""
        return self._waiting >= self._next

    def refresh(self) -> None:
        """Add up the rows that wait and solve for the weights anew.  O(width^3)."""
        n = self._waiting
        F, T = self._features[:n], self._changes[:n]
        # What a missing change would have been moves no weight.
        T = np.where(np.isnan(T), F @ self.B[0], T)
        decay = self.forgetting ** np.arange(n - 1, -1, -1.0)
        known = np.isfinite(F).all(axis=1) & np.isfinite(T).all(axis=1)
        F, T, decay = F[known], T[known], decay[known]
        self.A = self.forgetting**n * self.A + (F * decay[:, None]).T @ F
        self.C = self.forgetting**n * self.C + (F * decay[:, None]).T @ T
        self._waiting = 0
        self._next = 1 if self.n_rows < 32 else min(1 + self.n_rows // 8, BATCH)
        self._rebase()
        self._refresh_weights()

    def _rebase(self) -> None:
        """Express the moments in features of mean zero and deviation one."""
        mass = self.A[0, 0]
        if mass == 0.0:
            return
        mean = self.A[0, 1:] / mass
        size = np.sqrt(np.diag(self.A)[1:] / mass)
        # One row has no spread; its distance from the first one is a guess.
        spread = size if mass < 1.5 else np.sqrt(np.maximum(size**2 - mean**2, 0.0))
        centre, unit = self.units[0] + self.units[1] * mean, self.units[1] * spread
        varies = (spread > LEAST_SPREAD * size) & (unit > LEAST_UNIT * np.abs(centre)) & (unit > 1e-150)
        spread = np.where(varies, spread, 1.0)
        shift = np.r_[0.0, mean]
        A = self.A - np.outer(shift, self.A[0]) - np.outer(self.A[:, 0], shift) + mass * np.outer(shift, shift)
        size = np.r_[1.0, spread]
        self.A = A / np.outer(size, size)
        self.C = (self.C - np.outer(shift, self.C[0])) / size[:, None]
        self.units[0] = centre
        self.units[1] *= spread

    def _refresh_weights(self) -> None:
        for k, width in enumerate((self.width, self.short)):
            prior = np.full(width, RIDGES[k])
            prior[0] = INTERCEPT_RIDGE
            U, failed = lapack.dpotrf(self.A[:width, :width] + np.diag(prior))
            if failed:
                raise np.linalg.LinAlgError("the moments of the lags are not finite")
            inverse, _ = lapack.dpotri(U)
            inverse = np.triu(inverse) + np.triu(inverse, 1).T
            # Nothing is known of a feature that has not varied, not even its units: it has no weight until it does.
            still = np.diag(self.A)[:width] <= LEAST_SPREAD**2 * self.A[0, 0]
            inverse[still], inverse[:, still] = 0.0, 0.0
            self.P[k, :width, :width] = inverse
            self.B[k, :width] = inverse @ self.C[:width]

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return sum(getattr(self, name).nbytes for name in self._ARRAYS)

    # ------------------------------------------------------------------ columns that come later

    def widen(self, n_inputs: int, n_targets: int, fill: Array) -> None:
        """Take new columns into account; ``fill`` are the values that new inputs are taken to have had."""
        if self._waiting:
            self.refresh()
        D, P = self.past_x.shape[1], self.past_y.shape[1]
        blocks = [1, D, D, P, P, P, D]
        wider = [1, n_inputs, n_inputs, n_targets, n_targets, n_targets, n_inputs]
        starts = np.cumsum([0, *wider[:-1]])
        old = np.concatenate([start + np.arange(n) for start, n in zip(starts, blocks, strict=True)])
        A, C, units, residuals = self.A, self.C, self.units, self.residuals
        self._shape(n_inputs, n_targets)
        self.A, self.C = np.zeros((self.width, self.width)), np.zeros((self.width, n_targets))
        self.A[np.ix_(old, old)] = A
        self.C[old, :P] = C
        self.units = np.vstack([np.zeros(self.width - 1), np.ones(self.width - 1)])
        self.units[:, old[1:] - 1] = units
        self.units[0, D:n_inputs] = fill[D:]
        self.residuals = np.zeros((6, n_targets))
        self.residuals[:, :P] = residuals
        past_x, past_y = self.past_x, self.past_y
        self.past_x, self.past_y = np.tile(fill, (2, 1)), np.full((3, n_targets), np.nan)
        self.past_x[:, :D], self.past_y[:, :P] = past_x, past_y
        self.P, self.B = np.zeros((2, self.width, self.width)), np.zeros((2, self.width, n_targets))
        self._refresh_weights()

    # ------------------------------------------------------------------ as plain data

    _ARRAYS = ("past_x", "past_y", "units", "A", "C", "residuals", "P", "B")

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        n = self._waiting
        return {
            **{name: getattr(self, name).copy() for name in self._ARRAYS}, "n_rows": self.n_rows, "next": self._next,
            "features": self._features[:n].copy(), "changes": self._changes[:n].copy(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `state` was taken from."""
        self._shape(state["past_x"].shape[1], state["past_y"].shape[1])
        for name in self._ARRAYS:
            setattr(self, name, state[name].copy())
        self.n_rows, self._next, self._waiting = state["n_rows"], state["next"], len(state["features"])
        self._features[: self._waiting], self._changes[: self._waiting] = state["features"], state["changes"]
