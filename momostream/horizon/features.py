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
from momostream.kernels.forecasts import row_features

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
    n_terms
        Further inputs, those of the calendar.
    n_bends
        Columns between inputs and calendar that are made of inputs; neither regression nor circuits see them.
    kind
        Which of the terms is the kind of day; the circuits see it, those before it, and the kind at the last step.

    Attributes
    ----------
    n_lags
        Changes of each series among the features.
    n_features
        Features of the wide regression.
    seasonal_lags
        How many rows ago the last season had the phase of the newest row, and that of the last step ahead; empty as
        long as no season is known.
    season
        The season in rows; None as long as none is known.
    is_late
        Which features come only with a season.

    Examples
    --------
    >>> features = FeatureMap(HorizonSettings(horizon=2, lags=2), n_series=1, n_inputs=0)
    >>> features.point_names(["power"], [])
    ['clock', 'power', 'change of power']
    >>> series = np.zeros((3, 4, 1))
    >>> series[:, 0, 0] = 1.0, 2.0, 4.0
    >>> features.newest(2.0, series, np.empty((3, 2, 0)), 0, 2, np.empty((0, 1)), np.empty(0))
    (array([1., 4., 0., 0., 2., 1.]), array([2., 4., 2.]))
    """

    def __init__(
        self,
        settings: HorizonSettings,
        n_series: int,
        n_inputs: int,
        n_terms: int = 0,
        kind: int | None = None,
        n_bends: int = 0,
    ) -> None:
        self.horizon, self.n_series, self.n_inputs, self.kind = settings.horizon, n_series, n_inputs, kind
        self.n_bends = n_bends
        self.n_lags = settings.lags or int(np.clip(MOST_FEATURES // max(n_series, 1) - 1, 1, MOST_LAGS))
        # Room for the values of a season, unless there is to be none.
        n_seasonal = 0 if settings.seasons == () else 2 * n_series
        # The kind of day bends what other columns do; in a regression on all of them it costs more than it explains.
        self._n_waves = n_inputs + (n_terms if kind is None else kind)
        sizes = [1, n_series, self._n_waves, n_seasonal, self.n_lags * n_series]
        self._series, self._inputs, self._seasonal, self._changes = (
            slice(*both) for both in pairwise(accumulate(sizes))
        )
        self.n_features = self._changes.stop
        self.is_late = np.zeros(self.n_features, dtype=bool)
        self.is_late[self._seasonal] = True
        self.n_shown = n_inputs + (n_terms if kind is None else kind + 1)
        self.set_season(settings.seasons[0] if settings.seasons else None)

    def set_season(self, season: int | None) -> None:
        """Set the season, in rows; None if it is not known."""
        self.season, self.seasonal_lags = season, np.zeros(0, dtype=np.int64)
        if season is not None:
            self.seasonal_lags = np.array([season, season - (self.horizon - 1) % season - 1])

    @property
    def n_coordinates(self) -> int:
        """Coordinates of a point, without the number of its row."""
        return self.n_series * (2 + len(self.seasonal_lags)) + self.n_shown + (self.kind is not None)

    @property
    def most_coordinates(self) -> int:
        """Coordinates of a point when a season is known."""
        return self.n_coordinates + self.n_series * (2 - len(self.seasonal_lags))

    def newest(
        self, number: float, series: Array, inputs: Array, first: int, now: int, earlier: Array, last_terms: Array
    ) -> tuple[Array, Array]:
        """Features ``(..., n_features)`` and points ``(..., 1 + n_coordinates)`` of the newest row.

        The first axes, if any, are those of several pasts.

        Parameters
        ----------
        number
            Of the row.
        series, inputs
            Rows as in `momostream.horizon.past.Past`, shape ``(..., n_rows, 4, n_series)``, and ``(n_rows, 2,
            n_inputs + n_bends + n_terms)`` for all pasts together.
        first, now
            Positions of the oldest and of the newest row.
        earlier
            Values `seasonal_lags` rows ago, shape ``(..., n_seasonal_lags, n_series)``.
        last_terms
            The calendar at the last step ahead.
        """
        pasts, values = series.shape[:-3], series[..., now, 0, :]
        x, slow_x = np.delete(inputs[now], np.s_[self.n_inputs : self.n_inputs + self.n_bends], axis=1)
        f = np.zeros((*pasts, self.n_features))
        f[..., 0] = 1.0
        f[..., self._series] = values - series[..., now, 1, :]
        f[..., self._inputs] = (x - slow_x)[: self._n_waves]
        seasonal = (earlier - values[..., None, :]).reshape(*pasts, -1)
        if len(self.seasonal_lags):
            f[..., self._seasonal] = seasonal
        # Newest first; zero before the first row.
        last = series[..., max(now - self.n_lags, first) : now + 1, 0, :][..., ::-1, :]
        changes = f[..., self._changes].reshape(*pasts, self.n_lags, -1)
        changes[..., : last.shape[-2] - 1, :] = last[..., :-1, :] - last[..., 1:, :]
        shown = np.empty((*pasts, 1 + self.n_shown + (self.kind is not None)))
        shown[..., 0] = number
        shown[..., 1 : 1 + self.n_shown] = x[: self.n_shown]
        if self.kind is not None:
            shown[..., -1] = last_terms[self.kind]
        points = [shown[..., :1], values, shown[..., 1:], seasonal, changes[..., 0, :]]
        return f, np.concatenate(points, axis=-1)

    def of_row(
        self, number: float, series: Array, inputs: Array, first: int, now: int, last_terms: Array
    ) -> tuple[Array, Array]:
        """As `newest`, for one past, in one compiled call; it looks up the seasonal values itself."""
        f, point = np.empty(self.n_features), np.empty(1 + self.n_coordinates)
        row_features(
            number, series, inputs, first, now, self.seasonal_lags, self.n_lags, self.n_inputs, self.n_bends,
            self._n_waves, self._seasonal.stop - self._seasonal.start, self.n_shown,
            -1 if self.kind is None else self.kind, last_terms, f, point,
        )  # fmt: skip
        return f, point

    def point_names(
        self, series: Sequence[Hashable], inputs: Sequence[Hashable], terms: Sequence[str] = ()
    ) -> list[Hashable]:
        """Names of the number of the row and of the coordinates of a point."""
        names: list[Hashable] = ["clock", *series, *[*inputs, *terms][: self.n_shown]]
        if self.kind is not None:
            names.append(f"{terms[self.kind]} at the last step")
        if len(self.seasonal_lags):
            names += [f"{name} one season ago" for name in series] + [f"{name} ahead one season ago" for name in series]
        return names + [f"change of {name}" for name in series]
