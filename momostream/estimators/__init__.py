"""The faces that people use: river, forecasts, scikit-learn, backtests, metrics, presets."""

from __future__ import annotations
