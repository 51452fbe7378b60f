"""The features of a row, for direct forecasts and for simulated paths, and their names.

The wide regression sees distances and changes, the circuits see the *point* of a row: its number, the values themselves
and their last change.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

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
    >>> series = np.zeros((1, 3, 4, 1))
    >>> series[0, :, 0, 0] = 1.0, 2.0, 4.0
    >>> f, point = features.rows(2.0, series, np.empty((3, 2, 0)), 0, 2, np.empty((1, 0, 1)))
    >>> f.tolist(), point.tolist()
    ([[1.0, 4.0, 2.0, 1.0]], [[2.0, 4.0, 2.0]])
    """

    def __init__(self, settings: HorizonSettings, n_series: int, n_inputs: int) -> None:
        self.n_lags = settings.lags or int(np.clip(MOST_FEATURES // max(n_series, 1) - 1, 1, MOST_LAGS))
        self.seasonal_lags = np.zeros(0, dtype=np.int64)
        if settings.seasons:
            season = settings.seasons[0]
            self.seasonal_lags = np.array([season, season - (settings.horizon - 1) % season - 1])
        shared = n_series + n_inputs + len(self.seasonal_lags) * n_series
        self.n_features = 1 + shared + self.n_lags * n_series
        self.n_coordinates = shared + n_series

    def rows(
        self, number: float, series: Array, inputs: Array, first: int, now: int, earlier: Array
    ) -> tuple[Array, Array]:
        """Features ``(n, n_features)`` and points ``(n, 1 + n_coordinates)`` of the newest row of ``n`` pasts.

        Parameters
        ----------
        number
            Of the row.
        series, inputs
            Rows as in `momostream.horizon.past.Past`, shape ``(n, n_rows, 4, n_series)``, and ``(n_rows, 2, n_inputs)``
            for all pasts together.
        first, now
            Positions of the oldest and of the newest row.
        earlier
            Values `seasonal_lags` rows ago, shape ``(n, n_seasonal_lags, n_series)``.
        """
        n = len(series)
        values, slow = series[:, now, 0], series[:, now, 1]
        x, slow_x = np.broadcast_to(inputs[now, :, None], (2, n, inputs.shape[2]))
        seasonal = (earlier - values[:, None]).reshape(n, -1)
        changes = self._changes(series[:, max(now - self.n_lags, first) : now + 1, 0])
        points = [np.full((n, 1), number), values, x, seasonal, changes[:, 0]]
        features = [np.ones((n, 1)), values - slow, x - slow_x, seasonal, changes.reshape(n, -1)]
        return np.concatenate(features, axis=1), np.concatenate(points, axis=1)

    def _changes(self, values: Array) -> Array:
        """Changes ``(n, n_lags, n_series)``, newest first, of values in order; zero before the first."""
        n, n_rows, n_series = values.shape
        changes = np.zeros((n, self.n_lags, n_series))
        changes[:, : n_rows - 1] = (values[:, 1:] - values[:, :-1])[:, ::-1]
        return changes

    def point_names(self, series: Sequence[Hashable], inputs: Sequence[Hashable]) -> list[Hashable]:
        """Names of the number of the row and of the coordinates of a point."""
        names: list[Hashable] = ["clock", *series, *inputs]
        if len(self.seasonal_lags):
            names += [f"{name} one season ago" for name in series] + [f"{name} ahead one season ago" for name in series]
        return names + [f"change of {name}" for name in series]
