"""Linear regressions of all steps ahead: of each series on its own past, and of all series on the past of all.

Both predict changes from the last value and keep discounted moments, from which the weights follow. A penalty is
counted in rows of its feature, so units do not matter; each regression comes with a light and with a heavy one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream._checks import MOST_ROWS, check_indices
from momostream.horizon.calendar import Ahead
from momostream.horizon.past import Past
from momostream.horizon.restoring import check_own, check_part
from momostream.kernels.forecasts import wide_learn
from momostream.kernels.horizon import ENOUGH_TO_CUT, N_BASIC, own_learn, own_predict, own_solve
from momostream.kernels.lags import LEVEL_PENALTY
from momostream.kernels.locate import expect_wide
from momostream.stream.ridge import DiscountedRidge

__all__ = ["OwnLags", "WideLags"]

Array = NDArray[np.float64]

# Features are cut at this many times their usual size.
REACH = 6.0
# Most rows after which the weights of one step and series are solved for again.
OWN_EVERY = 16
# Rows that may wait before their moments are added up; rows after which wide weights are refreshed at the latest.
BATCH, REFRESH = 64, 256


class OwnLags:
    """A small regression for each step and series, on the past of the series itself and on the inputs.

    Each step is learnt as soon as its value is there. Inputs that are known in advance act through these regressions.

    Parameters
    ----------
    horizon, n_series, n_inputs, n_terms
        Sizes: steps, series, inputs, and columns of the calendar, which come after the inputs.
    n_levels
        How many of the inputs, the first ones, act by their level too: a room is still getting warmer an hour after
        the heating was turned on.
    forgetting
        Weight of a row relative to the next newer one.
    penalties
        Of the light and the heavy regression.

    Notes
    -----
    Not a `momostream.stream.ridge.DiscountedRidge`: every step and series has features and moments of its own, so that
    one kernel adds up all of them row by row and another solves for some of the weights at each row. Nothing waits, and
    nothing moves the weights in between.
    """

    def __init__(
        self,
        horizon: int,
        n_series: int,
        n_inputs: int,
        n_terms: int = 0,
        n_levels: int = 0,
        forgetting: float = 0.999,
        penalties: tuple[float, float] = (3.0, 100.0),
    ) -> None:
        self.forgetting, self.penalties = forgetting, np.array(penalties)
        self.horizon, self.n_series, self.n_inputs, self.n_terms = horizon, n_series, n_inputs, n_terms
        self.n_levels = n_levels
        self.seasons = np.zeros(0, dtype=np.int64)
        self.n_rows = self._next = 0
        self._shape()

    def _shape(self) -> None:
        K = len(self.penalties)
        d = N_BASIC + 2 * len(self.seasons) + self.n_levels + self.n_inputs + self.n_terms
        H, P = self.horizon, self.n_series
        self.A, self.C, self.squares = np.zeros((H, P, d, d)), np.zeros((H, P, d)), np.zeros((H, P))
        self.W = np.zeros((K, H, P, d))
        # Seasons and kinds of days come late: few rows with them say less than their penalty.
        self._least = np.zeros(d)
        self._least[N_BASIC : N_BASIC + 2 * len(self.seasons)] = self._least[d - self.n_terms :] = (
            ENOUGH_TO_CUT + 2.0 * H
        )
        self._f, self._L = np.zeros(d), np.zeros((d, d))

    def set_seasons(self, seasons: tuple[int, ...]) -> None:
        """Change the seasons, in rows or `ALIKE`; the moments of all other features are kept."""
        old, A, C, squares = len(self.seasons), self.A, self.C, self.squares
        self.seasons = np.array(seasons, dtype=np.int64)
        self._shape()
        kept = np.r_[0:N_BASIC, N_BASIC + 2 * old : A.shape[2]]
        now = np.r_[0:N_BASIC, N_BASIC + 2 * len(seasons) : self.A.shape[2]]
        self.A[:, :, now[:, None], now] = A[:, :, kept[:, None], kept]
        self.C[:, :, now], self.squares = C[:, :, kept], squares
        own_solve(0, self.horizon * self.n_series, self.penalties, self._least, self.A, self.C, self._L, self.W)

    def learn(self, past: Past, alike: int = 0) -> None:
        """Learn the newest row of the past as the target of all rows before it; see `Ahead` for ``alike``."""
        own_learn(
            past.series, past.inputs, past.input_sizes, past.first, past.last, self.seasons, alike,
            past.observed[past.last], self.forgetting, REACH, self._f, self.A, self.C, self.squares,
        )  # fmt: skip
        self.n_rows += 1

    def work(self) -> None:
        """Solve for some of the weights."""
        n = self.horizon * self.n_series
        size = -(-n // max(min(OWN_EVERY, self.n_rows // 8), 1))
        stop = min(self._next + size, n)
        own_solve(self._next, stop, self.penalties, self._least, self.A, self.C, self._L, self.W)
        self._next = stop % n

    def predict(self, past: Past, ahead: Ahead, location: Array, slope: Array) -> None:
        """Set ``location`` ``(2, horizon, n_series)`` and its ``slope`` ``(2, horizon, n_series, n_inputs)``.

        The location holds if inputs stay as they are; the slope says how it moves with a change of each input.
        """
        self.predict_at(past.series, past.inputs, past.first, past.last, ahead, location, slope)

    def predict_at(
        self, series: Array, inputs: Array, first: int, now: int, ahead: Ahead, location: Array, slope: Array
    ) -> None:
        """As `predict`, for rows that are laid out as those of a past."""
        own_predict(
            series, inputs, first, now, self.seasons, ahead.alike[1:], ahead.terms[1:], REACH, self.A, self.W, self._f,
            location, slope,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return self.A.nbytes + self.C.nbytes + self.W.nbytes

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        arrays = {"A": self.A.copy(), "C": self.C.copy(), "W": self.W.copy(), "seasons": self.seasons.copy()}
        return {**arrays, "squares": self.squares.copy(), "n_rows": self.n_rows, "next": self._next}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`."""
        check_own(state, self.horizon * self.n_series)
        self.seasons = state["seasons"].copy()
        self._shape()
        state = self._with_levels(state)
        check_part("own", state, self.state(), {})
        self.A, self.C, self.W = state["A"].copy(), state["C"].copy(), state["W"].copy()
        self.squares = state["squares"].copy()
        self.n_rows, self._next = state["n_rows"], state["next"]

    def _with_levels(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state with the levels of inputs, which earlier versions did not have: nothing is known of them yet."""
        if not self.n_levels or np.shape(state["C"])[-1:] != (self.C.shape[2] - self.n_levels,):
            return state
        without = OwnLags(self.horizon, self.n_series, self.n_inputs, self.n_terms)
        without.set_seasons(tuple(self.seasons.tolist()))
        check_part("own", state, without.state(), {})
        at = np.full(self.n_levels, N_BASIC + 2 * len(self.seasons))
        longer = {name: np.insert(state[name], at, 0.0, axis=-1) for name in ("A", "C", "W")}
        return {**state, **longer, "A": np.insert(longer["A"], at, 0.0, axis=-2)}


class WideLags(DiscountedRidge):
    """One regression of all steps and series on the same features, the first of which is 1.

    Parameters
    ----------
    width, n_outputs
        Number of features, and of steps times series.
    least_rows
        Rows in which a feature must have varied before it counts, for all or for each.
    forgetting
        Weight of a row relative to the next newer one.
    penalties
        Of the light and the heavy regression.

    Notes
    -----
    A row is learnt when its last target is there. Features lie around zero, so that moments about zero will do, and the
    penalty is scaled by their mean squares. `momostream.stream.lags.Autoregression` has levels as features, and
    standardises them instead.
    """

    def __init__(
        self,
        width: int,
        n_outputs: int,
        least_rows: Array | float = 0.0,
        forgetting: float = 0.9995,
        penalties: tuple[float, float] = (1.0, 100.0),
    ) -> None:
        super().__init__(width, n_outputs, len(penalties), forgetting, BATCH)
        self.penalties, self._least_rows = penalties, least_rows
        # Discounted rows in which a feature was not zero.
        self.n_varied = np.zeros(width)
        # Of the changes that came, for their usual size.
        self.squares, self.masses = np.zeros((2, n_outputs))
        # Rows since the last refresh of each regression.
        self._since = [0] * len(penalties)
        self._gain, self._mean, self._error = np.zeros(width), np.zeros(n_outputs), np.zeros(n_outputs)
        self._measure()

    def cut(self, f: Array) -> Array:
        """Return the features, cut where they are far beyond their usual size."""
        return np.clip(f, -self._largest, self._largest)

    def _measure(self) -> None:
        squares = np.diag(self.A)
        # A feature that has not varied yet has no usual size.
        usual = np.sqrt(squares / np.maximum(self.n_varied, 1.0))
        self._largest = np.where(squares > 0.0, REACH * usual, np.inf)

    def learn(self, f: Array, changes: Array) -> Array:
        """Learn a row from its features and the changes that followed; NaN is missing and moves no weight.

        Returns the changes as they were learnt, cut where they are far beyond their usual size.
        """
        learnt = np.empty_like(changes)
        wide_learn(
            self.forgetting, REACH, f, changes, self.n_varied, self.squares, self.masses, self._gain, self._mean,
            self._error, self.P, self.W, self._features[self.n_waiting], self._targets[self.n_waiting], learnt,
        )  # fmt: skip
        self.n_waiting += 1
        self.n_rows += 1
        return learnt

    def work(self) -> None:
        """Refresh the weights where that is due, for one penalty at a time."""
        self._since = since = [n + 1 for n in self._since]
        oldest = since.index(max(since))
        if self.n_waiting == BATCH or self._since[oldest] > min(REFRESH, self.n_rows // 8):
            self._add_up()
            self._measure()
            self._refresh(oldest)

    def _refresh(self, k: int) -> None:
        # By the rows in which a feature was there: one that comes late, such as a season, would hardly be penalised.
        squares, rows = np.diag(self.A), np.maximum(self.n_varied, 1.0)
        usual = squares / self.A[0, 0]
        still = (usual <= 0.0) | (self.n_varied < self._least_rows)
        penalty = self.penalties[k] * np.where(still, 1.0, squares / rows)
        penalty[0] = LEVEL_PENALTY
        # The larger penalty is for features that follow from each other to the last digit.
        self._solve(k, still, penalty, penalty + 1e-6 * self.A[0, 0] * usual)
        self._since[k] = 0

    def expect(self, f: Array, cut: Array, expected: Array) -> None:
        """Set the features of a row as `cut` gives them, and the changes of `predict`."""
        expect_wide(f, self._largest, self.W, cut, expected)

    def predict(self, f: Array) -> Array:
        """Forecast changes, shape ``(2, horizon * n_series)``."""
        return f @ self.W

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            **super().state(), "since": list(self._since), "squares": self.squares.copy(), "masses": self.masses.copy(),
            "n_varied": self.n_varied.copy(), "largest": self._largest.copy(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`."""
        super().restore(state if "largest" in state else {**state, "largest": self._largest})
        check_indices("wide / since", state["since"], 0, MOST_ROWS)
        check_indices("wide / since", [len(state["since"])], len(self._since), len(self._since) + 1)
        self.squares, self.masses = state["squares"].copy(), state["masses"].copy()
        self._since, self.n_varied = list(state["since"]), state["n_varied"].copy()
        self._measure()
        # Measured at some rows only. Files of earlier versions have no such entry.
        if "largest" in state:
            self._largest = state["largest"].copy()
