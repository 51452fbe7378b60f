"""Linear regressions of the change of each target on lags, with forgetting; and the last value itself.

Four experts in one. "full lags" predicts the change from the inputs, their change, the last targets, two older changes
of the targets and one of the inputs. "short lags" does without the older changes. To both is added what their errors
repeat from season to season, where they do. "last value" predicts no change, and so does "standing still", which has a
say only after a repetition and is as narrow as a reading.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.lags import (
    FINEST,
    add_up_lags,
    learn_lags,
    learn_lags_rows,
    predict_lags,
    predict_lags_rows,
    rebase_lags,
    short_width,
    solve_lags,
)
from momostream.kernels.scalar import OK
from momostream.stream.ridge import DiscountedRidge

__all__ = ["Autoregression"]

Array = NDArray[np.float64]

# Penalty, in rows, on a standardised weight of the full and of the short regression.
PENALTIES = (1.0, 3.0)
# Standard deviations at which features are cut, and at which they are cut as long as these are guesses: sums of fourth
# powers stay finite.
CLIP, YOUNG_CLIP = 6.0, 1e60
# Rows that may wait before their moments are added up and the weights refreshed.
BATCH = 256
# Longest season that is looked for, in rows; rows of errors that are kept for it.
LONGEST_SEASON, KEPT_ERRORS = 200, 256


class Autoregression(DiscountedRidge):
    """The experts that know the order of rows.

    Parameters
    ----------
    n_inputs, n_targets
        Columns.
    forgetting
        Weight of a row relative to the next newer one.
    discount
        The same for the residuals that the standard deviations come from.

    Notes
    -----
    Features are levels that may lie far from zero, so the moments are those of standardised features, moved to a new
    centre and unit at each refresh. `momostream.horizon.regressions.WideLags` has changes only, which lie around zero,
    and scales the penalty instead.

    Examples
    --------
    >>> lags = Autoregression(n_inputs=1, n_targets=1)
    >>> location, std = np.empty((2, 4, 1))
    >>> for t in range(60):
    ...     lags.predict(np.array([0.0]), location, std)
    ...     lags.learn(np.array([0.0]), np.array([2.0 * t]))
    ...     if lags.is_due:
    ...         lags.refresh()
    >>> print(location.ravel().round(1))
    [118. 118. 116. 116.]
    """

    EXPERTS = ("full lags", "short lags", "last value", "standing still")

    _ARRAYS = {
        "past_x": "past_x", "past_y": "past_y", "units": "units", "A": "A", "C": "C", "residuals": "residuals",
        "P": "P", "W": "B", "echo": "echo", "pattern": "pattern", "clock": "clock", "fits": "fits",
    }  # fmt: skip
    _PART, _TARGETS = "lags", "changes"

    def __init__(self, n_inputs: int, n_targets: int, forgetting: float = 0.998, discount: float = 0.99) -> None:
        super().__init__(_width(n_inputs, n_targets), n_targets, len(PENALTIES), forgetting, BATCH)
        self.discount = discount
        self.past_x, self.past_y = np.zeros((2, n_inputs)), np.full((3, n_targets), np.nan)
        self.units = np.vstack([np.zeros(self.width - 1), np.ones(self.width - 1)])
        self.residuals = _no_residuals(n_targets)
        self.echo, self.clock = np.zeros(LONGEST_SEASON + 1), np.zeros(5)
        self.pattern, self.fits = np.zeros((2, n_targets, KEPT_ERRORS)), np.zeros((2, n_targets, 6))
        self._next = 1
        self._scratch()

    def _scratch(self) -> None:
        """Set what follows from the columns: the width of the short regression, and arrays that kernels write."""
        n_targets = self.past_y.shape[1]
        self.short = short_width(self.past_x[0], self.past_y[0])
        self._f, self._gains = np.zeros(self.width), np.zeros((2, self.width))
        self._means, self._c, self._error = np.zeros((4, n_targets)), np.ones(2), np.zeros(n_targets)
        self._scale = np.empty((2, self.width))
        self._work = [np.empty((width, width)) for width in (self.width, self.short)]

    @property
    def clip(self) -> float:
        """Limit at which features are cut; they are not while their standard deviations are guesses."""
        return CLIP if self.n_rows > 8 else YOUNG_CLIP

    def predict(self, x: Array, location: Array, std: Array) -> None:
        """Set location and standard deviation ``(4, n_targets)`` of the experts."""
        predict_lags(
            x, self.past_x, self.past_y, self.units, self.clip, self.short, self.P, self.W, self.residuals,
            self.pattern, self.clock, self.fits, self._f, self._gains, self._means, self._c, location, std,
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
            at = self.n_waiting
            learn_lags(
                x, y, self.forgetting, self.discount, self.short, self._gains, self._means, self._c, self._f,
                self.past_x, self.past_y, self._error, self.P, self.W, self.residuals, self.echo, self.pattern,
                self.clock, self.fits, self._features[at], self._targets[at],
            )  # fmt: skip
            self.n_waiting = at + 1
        self.n_rows += 1

    def note_rows(self, n_rows: int) -> None:
        """Note that compiled code has learnt rows, which wait."""
        self.n_waiting += n_rows
        self.n_rows += n_rows

    @property
    def row_arrays(self) -> tuple[Array, ...]:
        """What rows change, in the order of `momostream.kernels.row`."""
        return (
            self.past_x, self.past_y, self.units, self.P, self.W, self.residuals, self.echo, self.pattern, self.clock,
            self.fits, self._f, self._gains, self._means, self._c, self._error, self._features, self._targets,
        )  # fmt: skip

    def learn_rows(self, X: Array, Y: Array, plane_rows: Array) -> None:
        """Predict and learn rows in order: no more than `room`, and not the very first one.

        ``plane_rows`` ``(n, 2, 4, n_targets)`` gets locations and standard deviations.
        """
        learn_lags_rows(
            X, Y, self.clip, self.forgetting, self.discount, self.short, self.past_x,
            self.past_y, self.units, self._f, self._gains, self._means, self._c, self._error, self.P, self.W,
            self.residuals, self.echo, self.pattern, self.clock, self.fits,
            self._features[self.n_waiting :], self._targets[self.n_waiting :], plane_rows,
        )  # fmt: skip
        self.note_rows(len(X))

    def predict_rows(self, X: Array, location: Array, std: Array) -> None:
        """Set location and standard deviation ``(n, 4, n_targets)`` of many rows, all given the rows learnt so far."""
        predict_lags_rows(
            X, self.past_x, self.past_y, self.units, self.clip, self.short, self.P, self.W, self.residuals,
            self.pattern, self.clock, self.fits, self._f, self._gains, self._means, self._c, location, std,
        )  # fmt: skip

    @property
    def room(self) -> int:
        """Rows until the weights should be refreshed."""
        return max(self._next - self.n_waiting, 0)

    @property
    def is_due(self) -> bool:
        """Whether the weights should be refreshed."""
        return self.n_waiting >= self._next

    def refresh(self) -> None:
        """Add up the rows that wait and solve for the weights.  O(width^3)."""
        add_up_lags(self.n_waiting, self.forgetting, self.W[0], self._features, self._targets, self.A, self.C)
        self.n_waiting = 0
        self._next = 1 if self.n_rows < 32 else min(1 + self.n_rows // 8, BATCH)
        rebase_lags(self._scale[0], self._scale[1], self.A, self.C, self.units)
        self._refresh_weights()

    def _refresh_weights(self) -> None:
        scratch = self._scale[0]
        for width, penalty, P, W, work in zip(
            (self.width, self.short), PENALTIES, self.P, self.W, self._work, strict=True
        ):
            if solve_lags(width, penalty, self.A, self.C, scratch, work, P, W) != OK:
                raise np.linalg.LinAlgError("the moments of the lags are not finite")

    # ------------------------------------------------------------------ columns that come later

    def widen(self, n_inputs: int, n_targets: int, fill: Array) -> None:
        """Take new columns into account; ``fill`` are the values that new inputs are taken to have had."""
        if self.n_waiting:
            self.refresh()
        D, P = self.past_x.shape[1], self.past_y.shape[1]
        blocks = [1, D, D, P, P, P, D]
        wider = [1, n_inputs, n_inputs, n_targets, n_targets, n_targets, n_inputs]
        starts = np.cumsum([0, *wider[:-1]])
        old = np.concatenate([start + np.arange(n) for start, n in zip(starts, blocks, strict=True)])
        A, C, units, residuals, pattern, fits = self.A, self.C, self.units, self.residuals, self.pattern, self.fits
        past_x, past_y = self.past_x, self.past_y
        self._allocate(_width(n_inputs, n_targets), n_targets)
        self.A[np.ix_(old, old)] = A
        self.C[old, :P] = C
        self.units = np.vstack([np.zeros(self.width - 1), np.ones(self.width - 1)])
        self.units[:, old[1:] - 1] = units
        self.units[0, D:n_inputs] = fill[D:]
        self.residuals = _no_residuals(n_targets)
        self.residuals[:, :P] = residuals
        self.pattern, self.fits = np.zeros((2, n_targets, KEPT_ERRORS)), np.zeros((2, n_targets, 6))
        self.pattern[:, :P], self.fits[:, :P] = pattern, fits
        self.past_x, self.past_y = np.tile(fill, (2, 1)), np.full((3, n_targets), np.nan)
        self.past_x[:, :D], self.past_y[:, :P] = past_x, past_y
        self._scratch()
        self._refresh_weights()

    # ------------------------------------------------------------------ as plain data

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {**super().state(), "next": self._next}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`, also from that of a version that knew no seasons and counted no gaps."""
        n_targets = state["C"].shape[1]
        if "pattern" not in state:
            fresh = Autoregression(state["past_x"].shape[1], n_targets)
            state = {**state, **{name: getattr(fresh, name) for name in ("echo", "pattern", "clock", "fits")}}
        residuals = _no_residuals(n_targets)
        residuals[: len(state["residuals"])] = state["residuals"]
        super().restore({**state, "residuals": residuals})
        self._next = state["next"]
        self._scratch()


def _no_residuals(n_targets: int) -> Array:
    """Squares and masses of no errors, and no change so far."""
    residuals = np.zeros((9, n_targets))
    residuals[FINEST] = np.inf
    return residuals


def _width(n_inputs: int, n_targets: int) -> int:
    """Features of the full regression."""
    return 1 + 3 * n_inputs + 3 * n_targets
