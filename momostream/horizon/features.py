"""The features of a row, for direct forecasts and for simulated paths, and their names.

The wide regression sees distances and changes, the circuits see the *point* of a row: its number, the values themselves
and their last change.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from momostream.horizon.settings import HorizonSettings

__all__ = ["FeatureMap"]

Array = NDArray[np.float64]

# Features of the wide regression, at most, and changes of each series.
MOST_FEATURES, MOST_LAGS = 180, 9


class FeatureMap:
    """Which columns the wide regression and the circuits see.

    Parameters
    ----------
    settings
        Parameters of the model.
    n_series, n_inputs
        Columns.

    Attributes
    ----------
    n_lags
        Changes of each series among the features.
    n_features
        Features of the wide regression.
    n_coordinates
        Coordinates of a point, without the number of its row.
    seasonal_lags
        How many rows ago the last season had the phase of the newest row, and that of the last step ahead; empty if no
        season is set. Seasons that are found in the values come too late to be features.

    Examples
    --------
    >>> features = FeatureMap(HorizonSettings(horizon=2, lags=2), n_series=1, n_inputs=0)
    >>> features.point_names(["power"], [])
    ['clock', 'power', 'change of power']
    >>> series = np.zeros((3, 4, 1))
    >>> series[:, 0, 0] = 1.0, 2.0, 4.0
    >>> features.newest(2.0, series, np.empty((3, 2, 0)), 0, 2, np.empty((0, 1)))
    (array([1., 4., 2., 1.]), array([2., 4., 2.]))
    """

    def __init__(self, settings: HorizonSettings, n_series: int, n_inputs: int) -> None:
        self.n_lags = settings.lags or int(np.clip(MOST_FEATURES // max(n_series, 1) - 1, 1, MOST_LAGS))
        self.seasonal_lags = np.zeros(0, dtype=np.int64)
        if settings.seasons:
            season = settings.seasons[0]
            self.seasonal_lags = np.array([season, season - (settings.horizon - 1) % season - 1])
        n_seasonal = len(self.seasonal_lags) * n_series
        # Both begin with one column of their own, and end with changes of the series.
        self._series, self._inputs, self._seasonal, self._changes = (
            slice(*both) for both in pairwise(accumulate([1, n_series, n_inputs, n_seasonal, self.n_lags * n_series]))
        )
        self.n_features = self._changes.stop
        self.n_coordinates = self._changes.start + n_series - 1

    def newest(
        self, number: float, series: Array, inputs: Array, first: int, now: int, earlier: Array
    ) -> tuple[Array, Array]:
        """Features ``(..., n_features)`` and points ``(..., 1 + n_coordinates)`` of the newest row.

        The first axes, if any, are those of several pasts.

        Parameters
        ----------
        number
            Of the row.
        series, inputs
            Rows as in `momostream.horizon.past.Past`, shape ``(..., n_rows, 4, n_series)``, and ``(n_rows, 2,
            n_inputs)`` for all pasts together.
        first, now
            Positions of the oldest and of the newest row.
        earlier
            Values `seasonal_lags` rows ago, shape ``(..., n_seasonal_lags, n_series)``.
        """
        pasts, values, (x, slow_x) = series.shape[:-3], series[..., now, 0, :], inputs[now]
        f, points = np.zeros((*pasts, self.n_features)), np.empty((*pasts, 1 + self.n_coordinates))
        points[..., 0], f[..., 0] = number, 1.0
        points[..., self._series], f[..., self._series] = values, values - series[..., now, 1, :]
        if len(x):
            points[..., self._inputs], f[..., self._inputs] = x, x - slow_x
        if len(self.seasonal_lags):
            seasonal = (earlier - values[..., None, :]).reshape(*pasts, -1)
            points[..., self._seasonal], f[..., self._seasonal] = seasonal, seasonal
        # Newest first; zero before the first row.
        last = series[..., max(now - self.n_lags, first) : now + 1, 0, :][..., ::-1, :]
        changes = f[..., self._changes].reshape(*pasts, self.n_lags, -1)
        changes[..., : last.shape[-2] - 1, :] = last[..., :-1, :] - last[..., 1:, :]
        points[..., self._changes.start :] = changes[..., 0, :]
        return f, points

    def point_names(self, series: Sequence[Hashable], inputs: Sequence[Hashable]) -> list[Hashable]:
        """Names of the number of the row and of the coordinates of a point."""
        names: list[Hashable] = ["clock", *series, *inputs]
        if len(self.seasonal_lags):
            names += [f"{name} one season ago" for name in series] + [f"{name} ahead one season ago" for name in series]
        return names + [f"change of {name}" for name in series]
