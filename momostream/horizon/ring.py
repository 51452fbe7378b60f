"""Forecasts as they were made, kept until all their values have come."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momostream.horizon.past import Past
from momostream.kernels.forecasts import keep_forecast, keep_scores
from momostream.kernels.horizon import recall

__all__ = ["MadeForecast", "Recalled", "Ring"]

Array = NDArray[np.float64]


class MadeForecast(NamedTuple):
    """A forecast for inputs that stay as they are.

    Parameters
    ----------
    located
        Of each expert, shape ``(n_experts, horizon, n_series)``.
    slopes
        By how much those of the regressions on own lags move with each input, shape ``(2, horizon, n_series,
        n_inputs)``.
    planes
        Of the mixture around the blend, shape ``(5, n_components, horizon * n_series)``.
    blend_slope
        By how much the blend moves with each input, shape ``(horizon, n_series, n_inputs)``.
    rough
        The blend before it was smoothed, shape ``(horizon, n_series)``.
    rests
        Which series were at rest, shape ``(n_series,)``.
    """

    located: Array
    slopes: Array
    planes: Array
    blend_slope: Array
    rough: Array
    rests: Array


class Recalled(NamedTuple):
    """Forecasts of the newest row, those made one row ago first; arrays that are written over at the next row.

    Parameters
    ----------
    values
        The values of the row, NaN where there was no forecast, shape ``(horizon, n_series)``.
    errors
        Of each expert, shape ``(n_experts, horizon, n_series)``.
    planes
        Of the mixtures, shape ``(5, n_components, horizon * n_series)``.
    """

    values: Array
    errors: Array
    planes: Array


class Ring:
    """The newest ``horizon`` forecasts, and the features they were made from, by slot: their row modulo the horizon.

    Parameters
    ----------
    horizon, n_series, n_inputs, n_experts, n_components
        Sizes of a forecast.
    n_coordinates, n_features, n_wide
        Sizes of a point and of its features, and number of regressions that predict from these.
    every
        One forecast in this many is learnt from: those between overlap by much and have much the same errors.

    Attributes
    ----------
    located, slopes, blend_slope, planes
        As in `MadeForecast`, with axes ``(slot, step, ...)``.
    scores
        Normal scores of the values that have come, shape ``(horizon, horizon, n_series)``.
    points, features
        Those that the experts saw.
    rests
        Which series were at rest, shape ``(horizon, n_series)``.
    kept, seen
        The rows whose forecasts and whose features the slots hold; -1 where there are none.
    expected
        Changes that the wide regressions predicted, shape ``(horizon, n_wide, horizon * n_series)``.
    """

    #: Attributes that a state holds, and their keys.
    _KEYS = {
        "located": "located", "slopes": "sloped", "blend_slope": "blend_slope", "planes": "laws", "scores": "scores",
        "points": "points", "features": "features", "expected": "expected", "rests": "rests", "kept": "kept",
        "seen": "seen",
    }  # fmt: skip
    #: Attributes with axes (slot, step) that are read once, when the value of that step comes; the forecasts of experts
    #: are read again when the last step has come, by `Smoothing` and `CurvedLags`.
    _FORECASTS = ("blend_slope", "planes")

    def __init__(
        self,
        *,
        horizon: int,
        n_series: int,
        n_inputs: int,
        n_experts: int,
        n_components: int,
        n_coordinates: int,
        n_features: int,
        n_wide: int,
        every: int,
    ) -> None:
        H, P, D, K, M = horizon, n_series, n_inputs, n_experts, n_components
        self.horizon, self.every = horizon, every
        self.located = np.zeros((H, H, K, P))
        self.slopes = np.zeros((H, H, 2, P, D))
        self.blend_slope = np.zeros((H, H, P, D))
        self.planes = np.zeros((H, H, 5, M, P))
        self.scores = np.full((H, H, P), np.nan)
        self.points = np.zeros((H, 1 + n_coordinates))
        self.features, self.expected = np.zeros((H, n_features)), np.zeros((H, n_wide, H * P))
        self.rests = np.zeros((H, P))
        self.kept, self.seen = np.full((2, H), -1)
        self._steps = np.arange(1, H + 1)
        # Of forecasts one, two... rows ago, by the slot of a row.
        self._slots = (np.arange(H)[:, None] - self._steps) % H
        self._recalled = Recalled(np.empty((H, P)), np.empty((K, H, P)), np.zeros((5, M, H * P)))

    def is_kept(self, row: int) -> bool:
        """Whether the forecast of a row is learnt from.

        Which ones are changes after ``horizon`` rows, so that all steps learn from a sensor that reports at every
        second row.
        """
        return row % self.every == row // self.horizon % self.every

    def keep(self, row: int, made: MadeForecast) -> None:
        """Keep the forecast of a row until all its values are there, and which series were at rest."""
        slot = row % self.horizon
        self.kept[slot], self.scores[slot] = row, np.nan
        self.rests[slot] = made.rests
        keep_forecast(made.located, made.slopes, made.planes, self.located[slot], self.slopes[slot], self.planes[slot])
        self.blend_slope[slot] = made.blend_slope

    def recall(
        self, row: int, y: Array, past: Past, reach: tuple[Array, Array], own: slice, stands_still: Array
    ) -> Recalled:
        """The forecasts of a row that has just come with values ``y``, given the inputs that came.

        ``own`` are the experts that move with the inputs, with the slopes of the first and of the second; a third moves
        as the second, none beyond ``reach``, see `Past.reach`. ``stands_still`` marks the components that do not move
        while a series is at rest.
        """
        recall(
            row, past.last, self.kept, y, *reach, past.inputs, own.start, own.stop - own.start, stands_still,
            self.rests, self.located, self.slopes, self.blend_slope, self.planes, *self._recalled,
        )  # fmt: skip
        return self._recalled

    def rests_of(self, row: int) -> Array:
        """Which series were at rest when the forecasts of a row were made, ``(horizon, n_series)``."""
        return self.rests.take(self._slots[row % self.horizon], axis=0)

    def add_scores(self, row: int, scores: Array) -> None:
        """Keep the normal scores ``(horizon, n_series)`` of a row under the forecasts of it."""
        keep_scores(row, scores, self.scores)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(getattr(self, name).nbytes for name in self._KEYS)

    def state(self, n_rows: int) -> dict[str, Any]:
        """Everything as plain data after so many rows.

        A forecast whose value has come is not read again. It is zero here: in a store, zeros take no room.
        """
        state = {key: getattr(self, name).copy() for name, key in self._KEYS.items()}
        has_come = self.kept[:, None] + self._steps < n_rows
        for name in self._FORECASTS:
            state[self._KEYS[name]][has_come] = 0.0
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`."""
        for name, key in self._KEYS.items():
            setattr(self, name, state[key].copy())
