"""The estimator for tables, after scikit-learn: a public door to `momostream.estimators.table`."""

from __future__ import annotations

from momostream.estimators.table import MOMoGPRegressor

__all__ = ["MOMoGPRegressor"]
