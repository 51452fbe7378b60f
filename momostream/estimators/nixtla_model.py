"""`MOMoGP`: the forecaster with the methods that `StatsForecast(models=[...])` calls."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.distributions.forecast import Forecast
from momostream.estimators.forecaster import MOMoGPForecaster
from momostream.horizon.settings import HorizonSettings

__all__ = ["MOMoGP"]

Array = NDArray[np.float64]
NAME = "y"


class MOMoGP:
    """A model of one series for Nixtla's ``StatsForecast``, with intervals of its own.

    Parameters
    ----------
    horizon
        Steps that `fit` learns, for ``StatsForecast.fit`` and ``predict``; ``forecast`` and ``cross_validation`` bring
        their own.
    season_length
        Rows after which the series repeats itself; 1 for none.
    experts, conformal, seed
        As in `momostream.MOMoGPForecaster`.
    bounds, transform
        Limits of the values, ``(lower, upper)``, and the scale on which they are modelled; as there, for one series.
    alias
        Name of the column of forecasts.

    Notes
    -----
    Every series gets a model of its own. For one joint model of all series, hand the long frame to
    `momostream.MOMoGPForecaster`. ``cross_validation(refit=False)`` learns the rows between two windows only.

    Examples
    --------
    >>> y = 10.0 + np.tile([0.0, 1.0, 2.0, 1.0], 20)
    >>> model = MOMoGP(season_length=4, seed=0)
    >>> forecast = model.forecast(y, h=4, level=[90])
    >>> sorted(forecast), forecast["mean"].round().tolist()
    (['hi-90', 'lo-90', 'mean'], [10.0, 11.0, 12.0, 11.0])
    """

    uses_exog = True

    def __init__(
        self,
        horizon: int = 24,
        season_length: int = 1,
        experts: tuple[str, ...] = HorizonSettings.experts,
        conformal: bool = False,
        bounds: tuple[float | None, float | None] | str | None = "auto",
        transform: str | tuple[str, float] | None = None,
        seed: int | None = None,
        alias: str = "MOMoGP",
    ) -> None:
        self.horizon, self.season_length, self.experts, self.conformal = horizon, season_length, experts, conformal
        self.bounds, self.transform, self.seed, self.alias = bounds, transform, seed, alias
        # Set by StatsForecast: intervals come from the model itself.
        self.prediction_intervals: Any = None
        self._make(horizon)

    def __repr__(self) -> str:
        return self.alias

    def new(self) -> MOMoGP:
        """A copy, which may be fitted apart from this one."""
        return deepcopy(self)

    def fit(self, y: Array, X: Array | None = None) -> MOMoGP:
        """Learn a series and its inputs, shapes ``(n,)`` and ``(n, n_inputs)``."""
        self.model_ = self._make(self.horizon)
        self._y = np.empty(0)
        self._learn(self.model_, np.asarray(y, dtype=np.float64), X)
        self._y = np.array(y, dtype=np.float64)
        return self

    def predict(self, h: int, X: Array | None = None, level: Sequence[float] | None = None) -> dict[str, Array]:
        """Forecast ``h`` steps with their inputs ``X``, shape ``(h, n_inputs)``; ``level`` is in percent."""
        return _columns(self.model_.forecast(h, _dicts(X), with_dist=True), level)

    def predict_in_sample(self, level: Sequence[float] | None = None) -> dict[str, Array]:
        """Forecasts of each row of `fit` from the rows before it, one step ahead; the first are missing."""
        if level:
            raise NotImplementedError("intervals of rows in the sample are not available: use cross_validation")
        return {"fitted": self._one_ahead(self._y, None)}

    def forecast(
        self,
        y: Array,
        h: int,
        X: Array | None = None,
        X_future: Array | None = None,
        level: Sequence[float] | None = None,
        fitted: bool = False,
    ) -> dict[str, Array]:
        """Learn a series and forecast ``h`` steps; nothing is kept."""
        model = self._make(h)
        self._learn(model, np.asarray(y, dtype=np.float64), X)
        found = _columns(model.forecast(h, _dicts(X_future), with_dist=True), level)
        return {**found, "fitted": self._one_ahead(np.asarray(y, dtype=np.float64), X)} if fitted else found

    def forward(
        self,
        y: Array,
        h: int,
        X: Array | None = None,
        X_future: Array | None = None,
        level: Sequence[float] | None = None,
        fitted: bool = False,
    ) -> dict[str, Array]:
        """Forecast ``h`` steps after ``y``; rows that follow those of `fit` are learnt on top of them."""
        y, n = np.asarray(y, dtype=np.float64), len(self._y)
        if fitted or h > self.horizon or len(y) < n or not np.array_equal(y[:n], self._y, equal_nan=True):
            return self.forecast(y, h, X, X_future, level, fitted)
        model = deepcopy(self.model_)
        self._learn(model, y[n:], None if X is None else X[n:])
        return _columns(model.forecast(h, _dicts(X_future), with_dist=True), level)

    # ------------------------------------------------------------------ the model inside

    def _make(self, horizon: int) -> MOMoGPForecaster:
        limits: dict[str, Any] = {
            "bounds": {NAME: self.bounds} if isinstance(self.bounds, tuple | list) else self.bounds,
            "transforms": None if self.transform is None else {NAME: self.transform},
        }
        seasons: Any = self.season_length if self.season_length > 1 else ()
        return MOMoGPForecaster(
            horizon, seasons=seasons, experts=self.experts, conformal=self.conformal, seed=self.seed, **limits
        )

    @staticmethod
    def _learn(model: MOMoGPForecaster, y: Array, X: Array | None) -> None:
        for value, x in zip(y.tolist(), _rows(X, len(y)), strict=True):
            model.learn_one({NAME: value}, x)

    def _one_ahead(self, y: Array, X: Array | None) -> Array:
        model, found = self._make(1), np.full(len(y), np.nan)
        for i, (value, x) in enumerate(zip(y.tolist(), _rows(X, len(y)), strict=True)):
            if model.series:
                found[i] = model.forecast(1, None if x is None else [x])[0][NAME]
            model.learn_one({NAME: value}, x)
        return found


def _dicts(X: Array | None) -> list[dict[str, float]] | None:
    if X is None:
        return None
    return [{f"x{j}": float(value) for j, value in enumerate(row)} for row in np.asarray(X)]


def _rows(X: Array | None, n: int) -> list[dict[str, float] | None]:
    """Inputs of each row; None where there are none."""
    return [None] * n if X is None else [*(_dicts(X) or ())]


def _columns(forecast: Forecast, level: Sequence[float] | None) -> dict[str, Array]:
    """Means and ends of intervals under the names that Nixtla's libraries use."""
    found = {"mean": forecast.arrays.mean[:, 0]}
    for each in sorted(level or ()):
        lower, upper = forecast.interval(each / 100.0).to_numpy().T
        found |= {f"lo-{each:g}": lower, f"hi-{each:g}": upper}
    return found
