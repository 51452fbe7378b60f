"""Figures: a public door to `momostream.show.plots`."""

from __future__ import annotations

from momostream.show.plots import (
    plot_backtest,
    plot_calibration,
    plot_circuit,
    plot_correlation,
    plot_forecast,
    plot_lengthscales,
    plot_lookback,
    plot_prediction,
    plot_relevance,
    plot_scores,
    plot_steps,
)

__all__ = [
    "plot_backtest",
    "plot_calibration",
    "plot_circuit",
    "plot_correlation",
    "plot_forecast",
    "plot_lengthscales",
    "plot_lookback",
    "plot_prediction",
    "plot_relevance",
    "plot_scores",
    "plot_steps",
]
