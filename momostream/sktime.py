"""The forecaster for sktime: a public door to `momostream.estimators.sktime_forecaster`."""

from __future__ import annotations

from momostream.estimators.sktime_forecaster import MOMoGPForecaster

__all__ = ["MOMoGPForecaster"]
