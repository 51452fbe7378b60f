"""Forecasts of a streaming DataFrame on Spark: a public door to `momostream.engines.spark`."""

from __future__ import annotations

from momostream.engines.spark import METRICS, SETTINGS, dead_letters, forecast_stream, forecasts, models

__all__ = ["METRICS", "SETTINGS", "dead_letters", "forecast_stream", "forecasts", "models"]
