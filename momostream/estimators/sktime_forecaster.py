"""`MOMoGPForecaster` for sktime: a `BaseForecaster` around the forecaster of momostream."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sktime.forecasting.base import BaseForecaster, ForecastingHorizon

from momostream.distributions.forecast import Forecast
from momostream.estimators.forecaster import MOMoGPForecaster as StreamForecaster
from momostream.horizon.settings import HorizonSettings

__all__ = ["MOMoGPForecaster"]


class MOMoGPForecaster(BaseForecaster):
    """Joint probabilistic forecasts of several series, in sktime's interface.

    Parameters
    ----------
    horizon
        Steps that are learnt; None: those that ``fh`` asks for in `fit`.
    strategy, lags, seasons, experts, conformal, max_points, window, seed
        As in `momostream.MOMoGPForecaster`.
    bounds, transforms
        As there, by column of ``y``; by position, from 0, if ``y`` is a series without a name.

    Notes
    -----
    `update` learns the new rows with ``update_params=False``, too: a model on a stream has nothing but its rows. Times
    of a regular index give the calendar; an index with gaps, or business days, is learnt as rows one after the other.
    `predict_proba` returns normal distributions with the means and variances of the forecast (sktime's default); the
    joint distribution is ``model_.forecast(n, with_dist=True)``.

    Examples
    --------
    >>> from sktime.datasets import load_airline  # doctest: +SKIP
    >>> from momostream.sktime import MOMoGPForecaster  # doctest: +SKIP
    >>> forecaster = MOMoGPForecaster(seasons=12, transforms={0: "log"})  # doctest: +SKIP
    >>> forecaster.fit(load_airline(), fh=[1, 2, 3]).predict_interval(coverage=0.9)  # doctest: +SKIP
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": "momostream developers",
        "y_inner_mtype": "pd.DataFrame",
        "X_inner_mtype": "pd.DataFrame",
        "capability:multivariate": True,
        "capability:exogenous": True,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:missing_values": True,
        "capability:update": True,
        "capability:categorical_in_X": False,
        "requires-fh-in-fit": True,
        "X-y-must-have-same-index": True,
    }

    def __init__(
        self,
        horizon: int | None = None,
        strategy: str = "direct",
        lags: int | None = None,
        seasons: int | tuple[int, ...] | None = None,
        experts: tuple[str, ...] = HorizonSettings.experts,
        conformal: bool = False,
        bounds: dict[Any, tuple[float | None, float | None]] | str | None = "auto",
        transforms: dict[Any, Any] | None = None,
        max_points: int = HorizonSettings.max_points,
        window: int | None = None,
        seed: int | None = None,
    ) -> None:
        self.horizon, self.strategy, self.lags, self.seasons = horizon, strategy, lags, seasons
        self.experts, self.conformal, self.bounds, self.transforms = experts, conformal, bounds, transforms
        self.max_points, self.window, self.seed = max_points, window, seed
        super().__init__()
        if horizon is not None or strategy == "recursive":
            self.set_tags(**{"requires-fh-in-fit": False})

    # ------------------------------------------------------------------ learning

    def _fit(self, y: pd.DataFrame, X: pd.DataFrame | None, fh: ForecastingHorizon | None) -> MOMoGPForecaster:
        steps = 1 if fh is None else max(int(np.max(fh.to_relative(self.cutoff).to_numpy())), 1)
        names = {column: f"y{j}" for j, column in enumerate(y.columns)}
        limits: dict[str, Any] = {}
        for name in ("bounds", "transforms"):
            given = getattr(self, name)
            named = isinstance(given, dict)
            limits[name] = {names.get(key, f"y{key}"): value for key, value in given.items()} if named else given
        self.model_ = StreamForecaster(
            horizon=steps if self.horizon is None else self.horizon, strategy=self.strategy, lags=self.lags,
            seasons=self.seasons, experts=tuple(self.experts), conformal=self.conformal, max_points=self.max_points,
            window=self.window, seed=self.seed, **limits,
        )  # fmt: skip
        self._is_timed = _is_regular(y.index)
        self._learn(y, X)
        return self

    def _update(self, y: pd.DataFrame, X: pd.DataFrame | None = None, update_params: bool = True) -> MOMoGPForecaster:
        # Windows may overlap what has been learnt.
        new = y.index > self._last
        self._learn(y[new], None if X is None else X.reindex(y.index[new]))
        return self

    def _learn(self, y: pd.DataFrame, X: pd.DataFrame | None) -> None:
        if not len(y):
            return
        columns = {f"y{j}": y.iloc[:, j].to_numpy(dtype=np.float64) for j in range(y.shape[1])}
        inputs = [] if X is None else [f"x{j}" for j in range(X.shape[1])]
        for j, name in enumerate(inputs):
            assert X is not None
            columns[name] = X.iloc[:, j].to_numpy(dtype=np.float64)
        frame = pd.DataFrame(columns, index=y.index)
        self.model_.learn_many(frame if self._is_timed else frame.reset_index(drop=True), inputs)
        self._last = y.index[-1]

    # ------------------------------------------------------------------ forecasts

    def _steps(self, fh: ForecastingHorizon) -> np.ndarray[Any, Any]:
        steps = np.asarray(fh.to_relative(self.cutoff).to_numpy(), dtype=np.int64)
        if (steps < 1).any():
            raise NotImplementedError("in-sample forecasts are not supported: all steps of fh must be ahead")
        return steps

    def _forecast(self, fh: ForecastingHorizon, X: pd.DataFrame | None) -> tuple[Forecast, np.ndarray[Any, Any]]:
        steps = self._steps(fh)
        n = int(steps.max())
        xs = None
        if X is not None:
            every = ForecastingHorizon(np.arange(1, n + 1), is_relative=True).to_absolute_index(self.cutoff)
            rows = X.reindex(every).to_numpy(dtype=np.float64)
            xs = [{f"x{j}": value for j, value in enumerate(row)} for row in rows.tolist()]
        forecast: Forecast = self.model_.forecast(n, xs, with_dist=True)
        order = [f"y{j}" for j in range(len(self._get_varnames()))]
        return forecast[order], steps - 1

    def _predict(self, fh: ForecastingHorizon, X: pd.DataFrame | None) -> pd.DataFrame:
        forecast, at = self._forecast(fh, X)
        return self._frame(forecast.mean.to_numpy()[at], fh)

    def _predict_quantiles(self, fh: ForecastingHorizon, X: pd.DataFrame | None, alpha: list[float]) -> pd.DataFrame:
        forecast, at = self._forecast(fh, X)
        columns = pd.MultiIndex.from_product([self._get_varnames(), alpha])
        values = forecast.quantile([float(level) for level in alpha]).to_numpy()[at]
        return pd.DataFrame(values, index=fh.to_absolute_index(self.cutoff), columns=columns)

    def _predict_var(self, fh: ForecastingHorizon, X: pd.DataFrame | None = None, cov: bool = False) -> pd.DataFrame:
        forecast, at = self._forecast(fh, X)
        if not cov:
            return self._frame(forecast.std.to_numpy()[at] ** 2, fh)
        n_series = len(forecast.series)
        pick = (at[:, np.newaxis] * n_series + np.arange(n_series)).ravel()
        index = fh.to_absolute_index(self.cutoff)
        labels = index if n_series == 1 else pd.MultiIndex.from_product([index, self._get_varnames()])
        return pd.DataFrame(forecast.cov[np.ix_(pick, pick)], index=labels, columns=labels)

    def _frame(self, values: Any, fh: ForecastingHorizon) -> pd.DataFrame:
        return pd.DataFrame(values, index=fh.to_absolute_index(self.cutoff), columns=self._get_varnames())

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Small models for sktime's own checks."""
        small = {"experts": ("last value", "own lags"), "seed": 0}
        return [small, {**small, "strategy": "recursive"}, {**small, "seasons": 4, "conformal": True}]


def _is_regular(index: pd.Index[Any]) -> bool:
    """Whether an index has times without gaps, so that a step of the feed is a step of the index."""
    if isinstance(index, pd.PeriodIndex):
        index = index.to_timestamp()
    if not isinstance(index, pd.DatetimeIndex) or len(index) < 4:
        return False
    steps = np.diff(index.asi8)
    usual = float(np.median(steps))
    return bool((np.abs(steps / usual - 1.0) < 0.5).all())
