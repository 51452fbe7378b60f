"""Plots of backtests: scores and coverage by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from momostream.show.outline import named
from momostream.show.plots.figures import GREY, GRID, PALETTE, figure_of, legend_above, new_panels, percent_text
from momostream.show.plots.scores import ahead

if TYPE_CHECKING:
    import pandas as pd

    from momostream.estimators.backtest import Backtest

__all__ = ["plot_backtest"]

# Lines of a drawing at most; others are left out.
MOST_LINES = 8


def plot_backtest(result: Backtest, score: str = "MASE") -> Figure:
    """Draw a score of each series over the steps, and the coverage of the widest interval below it.

    Parameters
    ----------
    result
        The backtest.
    score
        ``"MASE"`` or ``"scaled CRPS"``, which have no unit; or, if there is one series, any score.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from momostream import MOMoGPForecaster, backtest
    >>> frame = pd.DataFrame({"power": np.sin(np.arange(90.0) / 3)})
    >>> found = backtest(MOMoGPForecaster(horizon=3, experts=("last value", "own lags")), frame, step=9)
    >>> [ax.get_ylabel() for ax in plot_backtest(found).axes]
    ['MASE', 'inside 90 %']
    """
    scores = result.scores
    names = list(scores.index.get_level_values("series").unique())
    allowed = [name for name in scores.columns if not name.startswith("coverage")]
    if len(names) > 1:
        allowed = [name for name in allowed if name in ("MASE", "scaled CRPS")]
    if score not in allowed:
        raise ValueError(f"score={score!r} is not accepted: use one of {', '.join(map(repr, allowed))}")
    level = max(result.levels, default=0.9)
    coverage = f"coverage {level:g}"
    rows = [score] + ([coverage] if coverage in scores else [])
    note = f"{len(names) - MOST_LINES} more series are not shown" if len(names) > MOST_LINES else ""
    axes = new_panels(len(rows), 1, 7.0, 1.9, note)
    steps = scores.index.get_level_values("step").unique()
    x, words = ahead(steps.to_numpy(), _step(result.forecasts))
    for column, ax in zip(rows, axes, strict=True):
        for name, colour in zip(names[:MOST_LINES], PALETTE, strict=False):
            line = scores[column].xs(name, level="series")
            ax.plot(x[steps.get_indexer(line.index)], line, ".-", color=colour, lw=1.2, label=named(name, 24))
        ax.grid(color=GRID, lw=0.6)
        ax.xaxis.set_major_locator(MaxNLocator(integer=words == "steps ahead"))
    axes[0].set_ylabel(score)
    axes[0].set_ylim(bottom=0.0)
    if len(rows) > 1:
        axes[1].axhline(level, color=GREY, lw=0.8, ls="--")
        axes[1].set_ylabel(f"inside {percent_text(level)}")
        axes[1].set_ylim(0.0, 1.02)
        axes[1].yaxis.set_major_formatter(FuncFormatter(percent_text))
    axes[-1].set_xlabel(words)
    legend_above(axes[0], 4)
    return figure_of(axes[0])


def _step(forecasts: pd.DataFrame) -> float | None:
    """Microseconds from one step to the next; None without dates, and for steps of different length, such as months."""
    if not all(forecasts[name].dtype.kind == "M" for name in ("origin", "time")):
        return None
    steps = (forecasts["time"] - forecasts["origin"]).dt.total_seconds() / forecasts["step"]
    return 1e6 * float(steps.median()) if steps.max() <= 1.001 * steps.min() else None
