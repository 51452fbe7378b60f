"""Plots of what the library returns: circuits, predictions, forecasts, correlations, scores of a run and more.

Every function draws into ``ax`` if one is given, else into a new figure, and returns the figure. Figures are made
without pyplot: nothing stays open, and no backend is chosen. The methods ``forecast.plot()`` and ``backtest.plot()`` do
use it, so that ``plt.show()`` and ``plt.savefig()`` work after them.
"""

from __future__ import annotations

from momostream.show.plots.backtests import plot_backtest
from momostream.show.plots.circuits import plot_circuit
from momostream.show.plots.predictions import plot_correlation, plot_forecast, plot_lookback, plot_prediction
from momostream.show.plots.relevance import plot_lengthscales, plot_relevance
from momostream.show.plots.scores import plot_calibration, plot_scores, plot_steps

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
