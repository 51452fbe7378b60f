"""Plots of predictions: rows of a table, forecasts, correlations between targets."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from momostream.distributions.forecast import Forecast
from momostream.distributions.joint import Distribution
from momostream.distributions.prediction import Prediction
from momostream.estimators._frames import as_frame
from momostream.runs.scores import Track
from momostream.show.outline import named
from momostream.show.plots.figures import (
    MOST_CELLS,
    MOST_PANELS,
    SLANTED,
    Array,
    figure_of,
    format_times,
    left_out,
    legend_above,
    new_axes,
    new_panels,
    write_cells,
)

if TYPE_CHECKING:
    import pandas as pd

    from momostream.distributions.circular import Circle


__all__ = ["plot_correlation", "plot_forecast", "plot_lookback", "plot_prediction"]

# History is drawn this many times as far as the fan, and at least so many rows of it.
PAST, LEAST_PAST = 3, 12
# Parts of a row that is compared with its forecast.
COMPARED = ("actual", "mean", "lower", "upper")


def plot_prediction(
    distribution: Distribution,
    y: ArrayLike | None = None,
    target: Hashable = 0,
    x: ArrayLike | None = None,
    levels: Sequence[float] = (0.5, 0.9),
    ax: Axes | None = None,
) -> Figure:
    """Draw one target over the rows: a fan of central intervals, the median, and the truth.

    Parameters
    ----------
    distribution
        The result of `predict_distribution`.
    y
        True values, shape (n_rows,) for this target or (n_rows, n_targets); NaN leaves a gap.
    target
        Name or position of the target.
    x
        Positions of the rows on the horizontal axis, shape (n_rows,), for example times; None numbers the rows.
    levels
        Probabilities of the intervals.
    ax
        Axes to draw into; None makes a figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure that holds the drawing.

    Examples
    --------
    >>> from momostream.estimators.table import MOMoGPRegressor
    >>> t = np.linspace(0, 6, 60)
    >>> model = MOMoGPRegressor(("matern32",), random_state=0).fit(t[:, None], np.sin(t))
    >>> figure = plot_prediction(model.predict_distribution(t[:, None]), np.sin(t), x=t)
    >>> print([text.get_text() for text in figure.axes[0].get_legend().get_texts()])
    ['90 %', '50 %', 'median', 'truth']
    """
    position = distribution._position(target)
    at = np.arange(distribution.n_rows) if x is None else np.asarray(x)
    if at.shape != (distribution.n_rows,):
        raise ValueError(f"x must have shape ({distribution.n_rows},), one value per row, not {at.shape}")
    _check_levels(levels)
    if ax is None:
        ax = new_axes(8.0, 3.2)
    # Lines and bands follow the axis, whatever the order of the rows.
    order = np.argsort(at, kind="stable")
    intervals = {level: [side[order, position] for side in distribution.interval(level)] for level in levels}
    _draw_fan(ax, at[order], intervals, distribution.quantile(0.5)[order, position])
    if y is not None:
        ax.plot(at, _truth(y, distribution, position), "k.", ms=3, label="truth")
    names = distribution.targets
    ax.set_ylabel(f"y{position}" if names is None else named(names[position], 30))
    ax.set_xlabel("row" if x is None else str(getattr(x, "name", None) or ""))
    ax.margins(x=0.01)
    format_times(ax, at, _zone(x))
    legend_above(ax)
    return figure_of(ax)


def _draw_fan(
    ax: Axes, x: NDArray[Any], intervals: Mapping[float, Sequence[Array]], median: Array, circle: Circle | None = None
) -> None:
    # Wide intervals first, in a pale shade: narrow ones lie on top of them.
    for level, (lower, upper) in sorted(intervals.items(), reverse=True):
        shade = 0.62 - 0.5 * level
        label = f"{100 * level:.4g} %"
        if circle is not None and (lower > upper).any():
            # Across the end of the range: from the lower end up to it, and from its beginning on.
            crosses = lower > upper
            ax.fill_between(x, lower, circle.low + circle.period, where=crosses, color="C0", alpha=shade, lw=0)
            lower = np.where(crosses, circle.low, lower)
        ax.fill_between(x, lower, upper, color="C0", alpha=shade, lw=0, label=label)
    ax.plot(x, median, color="C0", lw=1.2, label="median")


def _truth(y: ArrayLike, distribution: Distribution, position: int) -> Array:
    values = np.asarray(y, dtype=np.float64)
    n_rows, n_targets = distribution.n_rows, distribution.n_targets
    if values.shape == (n_rows, n_targets):
        return np.asarray(values[:, position])
    if values.shape != (n_rows,):
        raise ValueError(f"y must have shape ({n_rows},) or ({n_rows}, {n_targets}), not {values.shape}")
    return values


def plot_forecast(
    forecast: Forecast,
    history: pd.DataFrame | None = None,
    levels: Sequence[float] = (0.5, 0.9),
    ax: Axes | Sequence[Axes] | None = None,
    actual: pd.DataFrame | None = None,
) -> Figure:
    """Draw each series of a forecast: its past, a fan of central intervals, the median, and the values that came.

    Parameters
    ----------
    forecast
        The result of ``forecast(horizon, with_dist=True)``.
    history
        Rows before the forecast, one column per series; a series without a column is drawn without its past. If steps
        are numbered, the rows are counted backwards from 0, else their index must hold times, as the forecast does. The
        last part is drawn, three times as long as the fan.
    levels
        Probabilities of the intervals.
    ax
        Axes to draw into, one for each series; None makes a figure of at most 12 series.
    actual
        Rows that came: one for each step, in order, or with the times of the steps in the index.

    Returns
    -------
    matplotlib.figure.Figure
        The figure that holds the drawing.

    Examples
    --------
    >>> import pandas as pd
    >>> from momostream import MOMoGPForecaster
    >>> frame = pd.DataFrame({"power": np.sin(np.arange(60.0) / 3)})
    >>> model = MOMoGPForecaster(horizon=5, experts=("last value", "own lags")).fit(frame)
    >>> figure = plot_forecast(model.forecast(5, with_dist=True), frame[-20:])
    >>> print([text.get_text() for text in figure.axes[0].get_legend().get_texts()])
    ['90 %', '50 %', 'median', 'history']
    """
    _check_levels(levels)
    names, axes, n_columns = _axes_by_series(forecast.series, ax)
    index = _as_times(forecast.index)
    x, medians = np.asarray(index), forecast.median.to_numpy()
    past = None if history is None else _last_part(_table(history), index)
    came = None if actual is None else _beside(_table(actual), index)
    intervals = {level: forecast.interval(level).to_numpy() for level in levels}
    for j, (name, axis) in enumerate(zip(names, axes, strict=True)):
        sides = {level: [both[:, 2 * j], both[:, 2 * j + 1]] for level, both in intervals.items()}
        _draw_fan(axis, x, sides, medians[:, j], forecast.circles.ranges.get(j))
        if past is not None and name in past.columns:
            axis.plot(past.index.to_numpy(), past[name].to_numpy(dtype=np.float64), "k-", lw=0.8, label="history")
        if came is not None and name in came.columns:
            values = came[name].to_numpy(dtype=np.float64)
            axis.plot(came.index.to_numpy(), values, "k.", ms=4, label="actual")
        axis.set_ylabel(named(name, 20) if n_columns == 1 else named(name, 18, 3), size=10 if n_columns == 1 else 8)
        axis.margins(x=0.01)
        format_times(axis, x, _zone(index))
    for axis in axes[-n_columns:]:
        axis.set_xlabel(str(forecast.index.name))
    legend_above(axes[0])
    return figure_of(axes[0])


def _axes_by_series(
    names: Sequence[Hashable], ax: Axes | Sequence[Axes] | None
) -> tuple[Sequence[Hashable], list[Axes], int]:
    """Series to draw, axes for each of them, and the number of columns in which they are arranged."""
    if ax is None:
        shown = names[:MOST_PANELS]
        n_columns, height = (1, 2.0) if len(shown) <= 4 else (2, 1.6)
        return shown, new_panels(len(shown), n_columns, 8.0, height, left_out(len(names), "series")), n_columns
    axes = [ax] if isinstance(ax, Axes) else list(ax)
    if len(axes) != len(names):
        raise ValueError(f"got {len(axes)} axes for {len(names)} series")
    return names, axes, 1


def _check_levels(levels: Sequence[float]) -> None:
    if not len(levels):
        raise ValueError("levels is empty: name at least one probability between 0 and 1")


def _table(rows: Any) -> pd.DataFrame:
    """Rows as a frame whose times, if it has any, can be drawn."""
    frame = as_frame(rows, "rows", "y")
    return frame.set_axis(_as_times(frame.index), axis=0)


def _as_times(index: pd.Index[Any]) -> pd.Index[Any]:
    """Periods as their beginnings; all else as it is."""
    return index.to_timestamp() if hasattr(index, "to_timestamp") else index


def _zone(times: Any) -> Any:
    """Time zone of an index, None if it has none: its hours are written, but arrays hold times in UTC."""
    return getattr(times, "tz", None)


def _last_part(history: pd.DataFrame, steps: pd.Index[Any]) -> pd.DataFrame:
    """The last rows, over a stretch that is PAST times as long as the steps; numbered up to 0 if steps are numbers."""
    if steps.name == "step":
        return history.set_axis(np.arange(1 - len(history), 1), axis=0)[-max(PAST * len(steps), LEAST_PAST) :]
    if not len(history) or not isinstance(history.index, type(steps)):
        return history
    step = (steps[-1] - steps[0]) / max(len(steps) - 1, 1) if len(steps) > 1 else steps[0] - history.index[-1]
    begin = steps[0] - max(PAST * len(steps), LEAST_PAST) * step
    # Times of different zones, or none, cannot be compared; all is drawn then.
    same = getattr(history.index, "tz", None) is None or getattr(steps, "tz", None) is not None
    return history[history.index >= begin] if same else history


def _beside(actual: pd.DataFrame, steps: pd.Index[Any]) -> pd.DataFrame:
    """Values that came, at the times of the steps; by their order if they have no times."""
    if isinstance(actual.index, type(steps)) and steps.name == "time":
        return actual[(actual.index >= steps[0]) & (actual.index <= steps[-1])]
    return actual[: len(steps)].set_axis(steps[: len(actual)], axis=0)


def plot_lookback(track: Track) -> Figure:
    """Draw the newest values of a run beside what was forecast for them, each by the last step of its forecast.

    Parameters
    ----------
    track
        Scores of the run.

    Returns
    -------
    matplotlib.figure.Figure
        The figure: values, means and intervals of at most 12 targets.
    """
    rows = list(track.lookback.rows)
    if not rows:
        raise ValueError(
            "nothing has been scored yet: a forecast is compared when the rows that it predicts have arrived"
        )
    names, axes, n_columns = _axes_by_series(track.targets, None)
    actual, mean, lower, upper = (np.array([getattr(row, part) for row in rows]) for part in COMPARED)
    times = track.as_index(np.array([row.time for row in rows]))
    x = np.array([row.row for row in rows]) if times is None else np.asarray(times, dtype=_plain_times(times))
    for j, (name, axis) in enumerate(zip(names, axes, strict=True)):
        label = f"{100 * track.level:.4g} %"
        axis.fill_between(x, lower[:, j], upper[:, j], color="C0", alpha=0.2, lw=0, label=label)
        axis.plot(x, mean[:, j], color="C0", lw=1.2, label="forecast")
        axis.plot(x, actual[:, j], "k.", ms=2.5, label="value")
        axis.set_ylabel(named(name, 20) if n_columns == 1 else named(name, 18, 3), size=10 if n_columns == 1 else 8)
        axis.margins(x=0.01)
        format_times(axis, x)
    for axis in axes[-n_columns:]:
        axis.set_xlabel("row" if times is None else "time")
    legend_above(axes[0])
    return figure_of(axes[0])


def _plain_times(times: pd.Index[Any]) -> Any:
    """Type of the times on an axis: matplotlib does not know zones of pandas."""
    return "datetime64[us]" if hasattr(times, "tz") else None


def plot_correlation(
    distribution: Distribution | Prediction | Forecast | ArrayLike,
    row: int = 0,
    ax: Axes | None = None,
    names: Sequence[Hashable] | None = None,
) -> Figure:
    """Draw the correlation between the targets at one row, or between the series at one step of a forecast.

    Parameters
    ----------
    distribution
        The result of `predict_distribution`, ``predict_one(x, with_dist=True)`` or ``forecast(n, with_dist=True)``; or
        a covariance or correlation matrix, shape (n_targets, n_targets), or one per row, shape (n_rows, n_targets,
        n_targets).
    row
        Row or step to draw, counted from 0.
    ax
        Axes to draw into; None makes a figure.
    names
        Names of the targets; None takes those of the distribution, or of the data frame.

    Returns
    -------
    matplotlib.figure.Figure
        The figure that holds the drawing.

    Examples
    --------
    >>> figure = plot_correlation([[4.0, 1.0], [1.0, 1.0]], names=["power", "rotor"])
    >>> print([text.get_text() for text in figure.axes[0].texts])
    ['1.00', '0.50', '0.50', '1.00']
    """
    found, labels = _correlation(distribution, row)
    n_targets = len(found)
    labels = [f"y{p}" for p in range(n_targets)] if labels is None else labels
    labels = labels if names is None else list(names)
    if len(labels) != n_targets:
        raise ValueError(f"got {len(labels)} names for {n_targets} targets")
    with_numbers = n_targets <= MOST_CELLS
    if ax is None:
        side = 1.6 + (0.6 if with_numbers else 0.3) * n_targets
        ax = new_axes(side + 0.9, side)
    image = ax.imshow(found, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    figure_of(ax).colorbar(image, ax=ax, label="correlation", shrink=0.8)
    texts = [named(name, 24) for name in labels]
    ax.set_xticks(range(n_targets), texts, **SLANTED)
    ax.set_yticks(range(n_targets), texts)
    if with_numbers:
        # Adding zero turns -0.00 into 0.00.
        numbers = [["–" if np.isnan(r) else f"{np.round(r, 2) + 0.0:.2f}" for r in line] for line in found]
        write_cells(ax, found, numbers, image)
    if isinstance(distribution, Distribution):
        ax.set_title(f"row {row}", size=10)
    elif isinstance(distribution, Forecast):
        ax.set_title(f"step {distribution.steps[row]}", size=10)
    return figure_of(ax)


def _correlation(source: Any, row: int) -> tuple[Array, list[Hashable] | None]:
    """Correlation matrix at a row, NaN if a variance is zero or infinite; names of the targets, None if unknown."""
    names: Any = getattr(source, "targets", getattr(source, "columns", None))
    distribution = source
    if isinstance(source, Forecast):
        # Each step on its own: the distribution of all values together is far larger.
        names, distribution = source.series, source.each_step
    elif isinstance(source, Prediction):
        distribution = source.distribution
    if isinstance(distribution, Distribution):
        covariance = distribution[range(distribution.n_rows)[row]].cov[0]
    else:
        covariance = np.asarray(source, dtype=np.float64)
        covariance = covariance[row] if covariance.ndim == 3 else covariance
        if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1] or not len(covariance):
            raise ValueError(f"a matrix must have shape (n_targets, n_targets), not {np.shape(source)}")
    std = np.sqrt(np.diag(covariance))
    scale = np.outer(std, std)
    usable = (scale > 0.0) & np.isfinite(scale)
    found = np.where(usable, covariance / np.where(usable, scale, 1.0), np.nan)
    return found, None if names is None else list(names)
