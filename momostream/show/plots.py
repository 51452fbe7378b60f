"""Pictures of what the library returns: circuits, predictions, forecasts, correlations, scores of a run and more.

Every function draws into ``ax`` if one is given, else into a figure of its own, and returns the figure. Figures are
made without pyplot: nothing stays open, and no backend is chosen.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from momostream.batch.experts import CircuitExpert
from momostream.batch.model import Model
from momostream.distributions.forecast import Forecast
from momostream.distributions.joint import Distribution
from momostream.distributions.prediction import Prediction
from momostream.runs.scores import N_BINS, Track
from momostream.show.circuits import figure_of, new_axes, plot_circuit
from momostream.show.outline import Stream, core_of, counted, lock_of, named, names_of

if TYPE_CHECKING:
    import pandas as pd

    from momostream.estimators.forecaster import MOMoGPForecaster
    from momostream.estimators.regressor import MOMoGPRegressor as StreamRegressor
    from momostream.estimators.table import MOMoGPRegressor

__all__ = [
    "plot_calibration",
    "plot_circuit",
    "plot_correlation",
    "plot_forecast",
    "plot_lengthscales",
    "plot_prediction",
    "plot_relevance",
    "plot_scores",
    "plot_steps",
]

Array = NDArray[np.float64]

# Rows of a heat map that are named one by one, and output names in such a row, at most.
MOST_ROWS, MOST_NAMES = 40, 3
# Columns of a table with numbers in its cells, panels of a figure, lines and shares of a drawing, at most.
MOST_CELLS, MOST_PANELS, MOST_LINES, MOST_SHARES = 16, 12, 6, 8
# Errors so many times above their median call for a log scale.
STEEP = 10.0

# Okabe and Ito's colours, which people who see few colours can tell apart.
PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#999999"]
GREY, GRID = "#666666", "#dddddd"
SLANTED: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}

NOTHING_SCORED = "nothing has been scored yet: a prediction is scored when the rows that it looks at have come"


# ---------------------------------------------------------------------------------------------------------------
# Lengthscales


def plot_lengthscales(
    model: MOMoGPRegressor | StreamRegressor | MOMoGPForecaster | Model, ax: Axes | None = None
) -> Figure:
    """Draw how much each covariate matters to each region as a heat map.

    The relevance of a covariate is its spread over the rows of the region divided by its lengthscale: by how many
    lengthscales the rows vary along it. It has no unit, so covariates, regions and experts (warped ones too) can be
    compared: one tenth of the largest in the row hardly matters, and more than 1 means that predictions bend within
    the region. A cell stays empty where the covariate does not vary.

    Parameters
    ----------
    model
        A fitted `momostream.estimators.table.MOMoGPRegressor` or its core model, a `momostream.MOMoGPRegressor` or a
        `momostream.MOMoGPForecaster`.
    ax
        Axes to draw into; None makes a figure of the size that the table needs.

    Returns
    -------
    matplotlib.figure.Figure
        The figure that holds the drawing. One row per region, one column per covariate, colours on a log scale.

    Examples
    --------
    >>> from momostream.estimators.table import MOMoGPRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(80, 2))
    >>> model = MOMoGPRegressor(("matern32", "linear"), random_state=0).fit(X, np.sin(X[:, 0]))
    >>> figure = plot_lengthscales(model)
    >>> first, second = figure.axes[0].images[0].get_array()[0]
    >>> print(bool(first > 10 * second))
    True
    """
    with lock_of(model):
        found, inputs, outputs = _relevances(model)
    if not found:
        raise ValueError("the model has no Gaussian process expert, so there are no lengthscales to draw")
    relevance = np.vstack([expert.relevance for expert in found])
    n_rows, n_columns = relevance.shape
    with_numbers = n_rows <= MOST_ROWS and n_columns <= MOST_CELLS
    if ax is None:
        ax = new_axes(
            2.8 + (0.62 if n_columns <= MOST_CELLS else 0.3) * n_columns,
            1.6 + (0.3 * n_rows if n_rows <= MOST_ROWS else 6.0),
        )
    varying = relevance[relevance > 0.0] if (relevance > 0.0).any() else np.ones(1)
    # A log scale needs two different ends.
    norm = LogNorm(0.95 * float(varying.min()), 1.05 * float(varying.max()))
    image = ax.imshow(
        np.ma.masked_equal(relevance, 0.0), cmap="YlGnBu", norm=norm, aspect="auto", interpolation="nearest"
    )
    ticks = LogLocator(subs=(1.0, 2.0, 5.0))
    bar = figure_of(ax).colorbar(
        image, ax=ax, label="spread / lengthscale", ticks=ticks, format=FuncFormatter(_tick_text)
    )
    bar.ax.minorticks_off()
    ax.set_xticks(range(n_columns), [named(name, 24) for name in inputs], **SLANTED)
    ax.set_yticks(*_region_labels(found, outputs, n_rows <= MOST_ROWS))
    for edge in np.cumsum([len(expert.relevance) for expert in found])[:-1]:
        ax.axhline(edge - 0.5, color="white", lw=3)
    if with_numbers:
        _number_cells(ax, relevance, [[_brief(value) if value else "" for value in row] for row in relevance], image)
    ax.set_title("relevance of the covariates", size=10)
    return figure_of(ax)


class _Relevance(NamedTuple):
    """An expert's table of regions and covariates, and the outputs that each region owns."""

    name: str
    relevance: Array
    owned: list[list[int]]


def _relevances(model: Any) -> tuple[list[_Relevance], list[Hashable], list[Hashable]]:
    """Tables of all GP experts, names of the covariates and of the outputs."""
    found = []
    stream = Stream.of(model)
    if stream is None:
        core = core_of(model)
        experts = [member for member in core.experts if isinstance(member, CircuitExpert)]
        for expert in experts:
            rows = [
                _relevance(region.X, region.covariance.inverse_lengths(region.theta), region.X.shape[1])
                for region in expert.regions
            ]
            found.append(_Relevance(expert.name, np.array(rows), [list(owned) for owned in expert.outputs]))
        n_columns = found[0].relevance.shape[1] if found else 0
        inputs: Sequence[Hashable] = names_of(model, "_input_names") or [f"x{j}" for j in range(n_columns)]
        outputs: Sequence[Hashable] = names_of(model, "_target_names") or [f"y{p}" for p in range(core.n_targets)]
        return found, list(inputs), list(outputs)
    first = min((tree.start for tree in stream.trees.values()), default=0)
    inputs = stream.inputs[first:]
    for name, tree in stream.trees.items():
        leaves = list(tree.leaves())
        rows = [_relevance(leaf.data()[0], leaf.inputs[1], len(inputs)) for leaf in leaves]
        found.append(_Relevance(name, np.array(rows), [leaf.targets.tolist() for leaf in leaves]))
    return found, list(inputs), stream.outputs


def _relevance(X: Array, inverse_lengths: Array, n_columns: int) -> Array:
    """Spread over lengthscale of each covariate; 0 where nothing varies, and for columns before those of the rows."""
    found = np.zeros(n_columns)
    if len(X):
        varies = (X != X[:1]).any(axis=0)
        found[n_columns - X.shape[1] :] = np.where(varies, X.std(axis=0) * inverse_lengths, 0.0)
    return found


def _region_labels(experts: list[_Relevance], outputs: Sequence[Hashable], each: bool) -> tuple[list[float], list[str]]:
    """Places and texts of the row labels: one per region, or one per expert."""
    places: list[float] = []
    labels: list[str] = []
    above = 0
    for name, relevance, owners in experts:
        n_regions = len(relevance)
        if not each:
            places.append(above + 0.5 * (n_regions - 1))
            labels.append(f"{name}\n{counted(n_regions, 'region')}")
        for number, owned in enumerate(owners if each else []):
            label = name if n_regions == 1 else f"{name}, region {number}"
            if len(owned) < len(outputs):
                names = ", ".join(named(outputs[p], 20, 1) for p in owned[:MOST_NAMES])
                label += f" ({names}{', …' if len(owned) > MOST_NAMES else ''})"
            places.append(above + number)
            labels.append(label)
        above += n_regions
    return places, labels


# ---------------------------------------------------------------------------------------------------------------
# Predictions


def plot_prediction(
    distribution: Distribution,
    y: ArrayLike | None = None,
    target: Hashable = 0,
    x: ArrayLike | None = None,
    levels: Sequence[float] = (0.5, 0.9),
    ax: Axes | None = None,
) -> Figure:
    """Draw one output over the rows: a fan of central intervals, the median, and the truth.

    Parameters
    ----------
    distribution
        What `predict_distribution` returns.
    y
        True values, shape (n_rows,) for this output or (n_rows, n_targets); NaN leaves a gap.
    target
        Name or position of the output.
    x
        Where the rows stand on the horizontal axis, shape (n_rows,), for example times; None numbers them.
    levels
        Probabilities inside the intervals.
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
    places = np.arange(distribution.n_rows) if x is None else np.asarray(x)
    if places.shape != (distribution.n_rows,):
        raise ValueError(f"x must have shape ({distribution.n_rows},), one value per row, not {places.shape}")
    if not len(levels):
        raise ValueError("levels is empty: name at least one probability between 0 and 1")
    if ax is None:
        ax = new_axes(8.0, 3.2)
    # Lines and bands follow the axis, whatever the order of the rows.
    order = np.argsort(places, kind="stable")
    intervals = {level: [side[order, position] for side in distribution.interval(level)] for level in levels}
    _draw_fan(ax, places[order], intervals, distribution.quantile(0.5)[order, position])
    if y is not None:
        ax.plot(places, _truth(y, distribution, position), "k.", ms=3, label="truth")
    names = distribution.targets
    ax.set_ylabel(f"y{position}" if names is None else named(names[position], 30))
    ax.set_xlabel("row" if x is None else str(getattr(x, "name", None) or ""))
    ax.margins(x=0.01)
    _tell_time(ax, places)
    _legend_above(ax)
    return figure_of(ax)


def _draw_fan(ax: Axes, places: NDArray[Any], intervals: Mapping[float, Sequence[Array]], median: Array) -> None:
    # Wide intervals first, pale: the narrow ones lie on top of them.
    for level, (lower, upper) in sorted(intervals.items(), reverse=True):
        shade = 0.62 - 0.5 * level
        ax.fill_between(places, lower, upper, color="C0", alpha=shade, lw=0, label=f"{100 * level:.4g} %")
    ax.plot(places, median, color="C0", lw=1.2, label="median")


def _legend_above(ax: Axes, most_columns: int = 8) -> None:
    n_columns = min(len(ax.get_legend_handles_labels()[1]), most_columns)
    ax.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=n_columns, frameon=False, fontsize=8, columnspacing=1.2
    )


def _truth(y: ArrayLike, distribution: Distribution, position: int) -> Array:
    values = np.asarray(y, dtype=np.float64)
    n_rows, n_targets = distribution.n_rows, distribution.n_targets
    if values.shape == (n_rows, n_targets):
        return np.asarray(values[:, position])
    if values.shape != (n_rows,):
        raise ValueError(f"y must have shape ({n_rows},) or ({n_rows}, {n_targets}), not {values.shape}")
    return values


# ---------------------------------------------------------------------------------------------------------------
# Forecasts


def plot_forecast(
    forecast: Forecast,
    history: pd.DataFrame | None = None,
    levels: Sequence[float] = (0.5, 0.9),
    ax: Axes | Sequence[Axes] | None = None,
) -> Figure:
    """Draw each series of a forecast: its past, a fan of central intervals, and the median.

    Parameters
    ----------
    forecast
        What ``forecast(horizon, with_dist=True)`` returns.
    history
        Rows before the forecast, columns by series; series without one are drawn without a past. Where steps are
        numbered, the rows are counted backwards from 0, else their index must hold times as the forecast has.
    levels
        Probabilities inside the intervals.
    ax
        Axes to draw into, one for each series; None makes a figure, of the first 12 series where there are more.

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
    if not len(levels):
        raise ValueError("levels is empty: name at least one probability between 0 and 1")
    names, note = forecast.series, ""
    n_columns = 1
    if ax is None:
        names, note = names[:MOST_PANELS], _left_out(len(names), "series")
        n_columns = 1 if len(names) <= 4 else 2
        height = 2.0 if n_columns == 1 else 1.6
        axes = _panels(len(names), n_columns, 8.0, height, note)
    else:
        axes = [ax] if isinstance(ax, Axes) else list(ax)
    if len(axes) != len(names):
        raise ValueError(f"got {len(axes)} axes for {len(names)} series")
    places, medians = np.asarray(forecast.index), forecast.median.to_numpy()
    intervals = {level: forecast.interval(level).to_numpy() for level in levels}
    for j, (name, axis) in enumerate(zip(names, axes, strict=True)):
        sides = {level: [both[:, 2 * j], both[:, 2 * j + 1]] for level, both in intervals.items()}
        _draw_fan(axis, places, sides, medians[:, j])
        if history is not None and name in history.columns:
            numbered = forecast.index.name == "step"
            before = np.arange(1 - len(history), 1) if numbered else np.asarray(history.index)
            axis.plot(before, history[name].to_numpy(dtype=np.float64), "k-", lw=0.8, label="history")
        axis.set_ylabel(named(name, 20) if n_columns == 1 else named(name, 18, 3), size=10 if n_columns == 1 else 8)
        axis.margins(x=0.01)
        _tell_time(axis, places)
    for axis in axes[-n_columns:]:
        axis.set_xlabel(str(forecast.index.name))
    _legend_above(axes[0])
    return figure_of(axes[0])


# ---------------------------------------------------------------------------------------------------------------
# Correlations


def plot_correlation(
    distribution: Distribution | Prediction | Forecast | ArrayLike,
    row: int = 0,
    ax: Axes | None = None,
    names: Sequence[Hashable] | None = None,
) -> Figure:
    """Draw the correlation between the outputs at one row, or between the series at one step of a forecast.

    Parameters
    ----------
    distribution
        What `predict_distribution`, ``predict_one(x, with_dist=True)`` or ``forecast(n, with_dist=True)`` returns; or a
        covariance or correlation matrix, shape (n_targets, n_targets), or one per row, shape (n_rows, n_targets,
        n_targets).
    row
        Which row, or step, to draw, counted from 0.
    ax
        Axes to draw into; None makes a figure.
    names
        Names of the outputs; None takes those of the distribution, or of the data frame.

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
        raise ValueError(f"got {len(labels)} names for {n_targets} outputs")
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
        _number_cells(ax, found, numbers, image)
    if isinstance(distribution, Distribution):
        ax.set_title(f"row {row}", size=10)
    elif isinstance(distribution, Forecast):
        ax.set_title(f"step {distribution.steps[row]}", size=10)
    return figure_of(ax)


def _correlation(source: Any, row: int) -> tuple[Array, list[Hashable] | None]:
    """Correlation matrix at a row, NaN where a variance is zero or infinite, and the names that came with it."""
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
    spread = np.sqrt(np.diag(covariance))
    scale = np.outer(spread, spread)
    usable = (scale > 0.0) & np.isfinite(scale)
    found = np.where(usable, covariance / np.where(usable, scale, 1.0), np.nan)
    return found, None if names is None else list(names)


# ---------------------------------------------------------------------------------------------------------------
# Scores of a run


def plot_scores(track: Track) -> Figure:
    """Draw how well the predictions of a run have done over time: their error, and the coverage of their intervals.

    With one target the root mean square error is drawn in its units, beside that of the last value; with several, each
    as a multiple of the error of the last value: below 1 is better than to expect no change. With more than six, the
    mean over the targets stands out.

    Parameters
    ----------
    track
        Scores of the run.

    Returns
    -------
    matplotlib.figure.Figure
        The figure: errors above, coverages below, one point for each block of rows; a last block that has only begun is
        left out.

    Examples
    --------
    >>> from momostream.distributions.values import PredictedValues
    >>> from momostream import MOMoGPRegressor
    >>> model, track = MOMoGPRegressor(experts=("lags",), seed=0), Track(["power"])
    >>> for row in range(1, 101):
    ...     distribution = model.predict_one({}, with_dist=True)
    ...     if distribution:
    ...         track.expect(PredictedValues.of(distribution, track.targets, track.level))
    ...     y = {"power": np.sin(row / 5)}
    ...     _ = track.observe(row, y)
    ...     model.learn_one({}, y)
    >>> error, coverage = plot_scores(track).axes
    >>> print([text.get_text() for text in error.get_legend().get_texts()])
    ['power', 'last value']
    """
    blocks, times = track.by_block, track.block_times
    if not track.n_scored or not len(blocks):
        raise ValueError(NOTHING_SCORED)
    sizes = np.diff(blocks.index, prepend=0)
    if len(blocks) > 2 and 2 * sizes[-1] < sizes[-2]:
        blocks, times = blocks[:-1], None if times is None else times[:-1]
    if times is None:
        return _draw_scores(track, blocks, np.asarray(blocks.index), "row")
    zone = getattr(times, "tz", None)
    places = np.asarray(times) if zone is None else np.asarray(times, dtype="datetime64[us]")
    return _draw_scores(track, blocks, places, "time" if zone is None else f"time ({zone})")


def plot_steps(track: Track) -> Figure:
    """Draw the error of forecasts and the coverage of their intervals by the number of steps ahead.

    Parameters
    ----------
    track
        Scores of a run of forecasts of more than one step.

    Returns
    -------
    matplotlib.figure.Figure
        The figure: errors above, coverages below; read as those of `plot_scores`.
    """
    if track.n_steps < 2:
        raise ValueError("the predictions of this track look one step ahead: there are no steps to compare")
    if not track.n_scored:
        raise ValueError(NOTHING_SCORED)
    return _draw_scores(track, track.by_step, np.asarray(track.by_step.index), "steps ahead")


def _draw_scores(track: Track, scores: pd.DataFrame, places: NDArray[Any], x_label: str) -> Figure:
    names = [named(name, 24, 1) for name in track.targets]
    upper, lower = _panels(2, 1, 8.0, 2.2)
    error, naive, coverage = (scores[[score]].droplevel(0, axis=1) for score in ("rmse", "naive", "coverage"))
    if len(names) == 1:
        _draw_lines(upper, places, error, names)
        upper.plot(places, naive, color=GREY, ls="--", lw=1.2, marker=_marker(places), ms=3, label="last value")
        upper.set_ylabel("root mean square error")
        _fit_scale(upper, [error, naive])
    else:
        ratio = error / naive.where(naive > 0.0)
        _draw_lines(upper, places, ratio, names)
        upper.axhline(1.0, color=GREY, ls="--", lw=1.2, label="last value")
        upper.set_ylabel("error relative to\nthe last value's")
        _fit_scale(upper, [ratio])
    _draw_lines(lower, places, coverage, names)
    lower.axhline(track.level, color=GREY, ls="--", lw=1.2)
    lower.set_ylim(min(track.level - 0.1, coverage.min().min()) - 0.03, 1.02)
    lower.yaxis.set_major_formatter(FuncFormatter(_percent_text))
    lower.set_ylabel(f"values inside the\n{100 * track.level:.4g} % interval")
    lower.set_xlabel(x_label)
    for ax in (upper, lower):
        ax.margins(x=0.02)
        ax.grid(axis="y", color=GRID, lw=0.6)
        ax.set_axisbelow(True)
    _tell_time(lower, places)
    _legend_above(upper, 4)
    return figure_of(upper)


def _draw_lines(ax: Axes, places: NDArray[Any], values: pd.DataFrame, names: list[str]) -> None:
    """One line per target, or their mean with thin lines behind it where there are many."""
    marker = _marker(places)
    if len(names) <= MOST_LINES:
        for (_, line), name, colour in zip(values.items(), names, PALETTE, strict=False):
            ax.plot(places, line, color=colour, lw=1.5, marker=marker, ms=4, label=name)
        return
    for k, (_, line) in enumerate(values.items()):
        ax.plot(places, line, color=PALETTE[0], lw=0.6, alpha=0.35, label="" if k else "each target")
    ax.plot(
        places, values.mean(axis=1), color=PALETTE[0], lw=2, marker=marker, ms=4, label=f"mean of {len(names)} targets"
    )


def _marker(places: NDArray[Any]) -> str:
    """Points between gaps have no line."""
    return "o" if len(places) <= 40 else ""


def _fit_scale(ax: Axes, values: Sequence[pd.DataFrame]) -> None:
    """Zero at the bottom, or a log scale where a few large values would press all others down to it."""
    known = np.concatenate([frame.to_numpy().ravel() for frame in values])
    known = known[np.isfinite(known) & (known > 0.0)]
    if len(known) and known.max() > STEEP * np.median(known):
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(FuncFormatter(_tick_text))
        ax.yaxis.set_minor_formatter(NullFormatter())
    else:
        ax.set_ylim(bottom=0.0)


# ---------------------------------------------------------------------------------------------------------------
# Calibration


def plot_calibration(source: Track | pd.DataFrame | ArrayLike, ax: Axes | None = None) -> Figure:
    """Draw how often values fell into each twentieth of their predicted distributions.

    All bars are equally high, up to chance, where predictions are honest. A hump in the middle: the distributions are
    too wide; a trough: too narrow; a slope: they lie to one side. The band holds 95 of 100 bars of an honest forecaster
    whose errors are independent; forecasts of many steps overlap, and so do their errors.

    Parameters
    ----------
    source
        Scores of a run; or counts, a row for each of equal bins and a column for each target; or values of the
        predicted distribution functions at what was observed (``distribution.cdf(y)``), shape (n,) or (n, n_targets),
        NaN where nothing was.
    ax
        Axes to draw into, for one target; None makes a figure, of the first 12 targets where there are more.

    Returns
    -------
    matplotlib.figure.Figure
        The figure that holds the drawing.

    Examples
    --------
    >>> figure = plot_calibration(np.random.default_rng(0).uniform(size=1000))
    >>> heights = [bar.get_height() for bar in figure.axes[0].patches if bar.get_width() < 0.1]
    >>> print(len(heights), round(sum(heights) / 20, 6))
    20 1.0
    """
    names, counts = _pit_counts(source)
    if not counts.sum():
        raise ValueError("there are no values yet whose probabilities could be counted")
    if ax is not None and len(names) > 1:
        raise ValueError(f"got one axes for {len(names)} targets")
    shown = names[:MOST_PANELS]
    n_columns = min(len(shown), 3)
    width, height = ((5.0, 2.6), (7.0, 2.3), (9.0, 2.0))[n_columns - 1]
    axes = [ax] if ax is not None else _panels(len(shown), n_columns, width, height, _left_out(len(names), "targets"))
    for axis, name, column in zip(axes, shown, counts.T, strict=False):
        _draw_histogram(axis, column)
        title = [named(name, 26, 1), counted(int(column.sum()), "value")]
        axis.set_title("\n".join(filter(None, title)), size=8.5)
    for axis in axes[-n_columns:]:
        axis.set_xlabel("probability below the value" if n_columns > 1 else "predicted probability below the value")
    for axis in axes[::n_columns]:
        axis.set_ylabel("relative frequency")
    return figure_of(axes[0])


def _pit_counts(source: Any) -> tuple[list[Hashable], Array]:
    """Names of targets, and counts ``(n_bins, n_targets)``."""
    if isinstance(source, Track):
        return list(source.targets), source.pit.to_numpy(dtype=np.float64)
    if hasattr(source, "columns"):
        counts = source.to_numpy(dtype=np.float64)
        if not (counts >= 0.0).all() or not (counts == np.round(counts)).all():
            raise ValueError("a frame must hold counts: whole numbers of at least 0")
        return list(source.columns), counts
    values = np.asarray(source, dtype=np.float64)
    if values.ndim not in (1, 2) or (np.abs(values - 0.5) > 0.5).any():
        raise ValueError(f"expected probabilities of shape (n,) or (n, n_targets), got shape {values.shape}")
    columns = values[:, np.newaxis] if values.ndim == 1 else values
    edges = np.linspace(0.0, 1.0, N_BINS + 1)
    counts = np.stack([np.histogram(column[~np.isnan(column)], edges)[0] for column in columns.T], axis=1)
    return [""] if values.ndim == 1 else [f"y{p}" for p in range(columns.shape[1])], counts.astype(np.float64)


def _draw_histogram(ax: Axes, counts: Array) -> None:
    n_bins, total = len(counts), counts.sum()
    ax.set(xlim=(0.0, 1.0), xticks=(0.0, 0.5, 1.0))
    if not total:
        ax.text(0.5, 0.5, "no values", ha="center", va="center", transform=ax.transAxes, color=GREY)
        return
    expected = total / n_bins
    low, high = binom.ppf([0.025, 0.975], total, 1.0 / n_bins) / expected
    places = (np.arange(n_bins) + 0.5) / n_bins
    ax.bar(places, counts / expected, width=0.9 / n_bins, color=PALETTE[0], alpha=0.7)
    # Above the bars, which would hide its lower half.
    ax.axhspan(low, high, color=GREY, alpha=0.3, lw=0, zorder=3)
    ax.axhline(1.0, color=GREY, lw=1, ls="--", zorder=3)


# ---------------------------------------------------------------------------------------------------------------
# Relevance


def plot_relevance(source: Track | pd.DataFrame, ax: Axes | None = None) -> Figure:
    """Draw how the shares of inputs or experts have changed over the rows, stacked.

    Parameters
    ----------
    source
        Scores of a run, which keep such shares along the way; or a frame with a row for each time and a column for each
        name; or `MOMoGPForecaster.weights_history`, of which the mean over the series is drawn.
    ax
        Axes to draw into; None makes a figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure that holds the drawing. The largest shares lie at the bottom; beyond seven, the rest is summed up.

    Examples
    --------
    >>> import pandas as pd
    >>> shares = pd.DataFrame({"wind": [0.2, 0.7], "clock": [0.8, 0.3]}, index=pd.Index([64, 128], name="row"))
    >>> ax = plot_relevance(shares).axes[0]
    >>> print([text.get_text() for text in ax.get_legend().get_texts()])
    ['wind', 'clock']
    """
    shares: pd.DataFrame = source.relevance if isinstance(source, Track) else source
    if {"row", "expert", "weight"} <= set(shares.columns):
        shares = shares.pivot_table(index="row", columns="expert", values="weight", aggfunc="mean", sort=False)
    if shares.empty:
        raise ValueError("there are no shares to draw yet")
    ordered = shares.fillna(0.0)[shares.mean().sort_values(ascending=False, kind="stable").index]
    names, values = list(ordered.columns), ordered.to_numpy(dtype=np.float64)
    labels = [named(name, 24) for name in names]
    colours = PALETTE
    if len(names) > MOST_SHARES:
        values = np.column_stack([values[:, : MOST_SHARES - 1], values[:, MOST_SHARES - 1 :].sum(axis=1)])
        labels = [*labels[: MOST_SHARES - 1], f"{len(names) - MOST_SHARES + 1} others"]
        colours = [*PALETTE[: MOST_SHARES - 1], "#dddddd"]
    places = ordered.index.to_numpy()
    if len(places) == 1:
        # An area needs two ends.
        places, values = places[0] + np.array([-0.5, 0.5]), values.repeat(2, axis=0)
    if ax is None:
        ax = new_axes(8.0, 3.2)
    areas = ax.stackplot(places, values.T, colors=colours, lw=0.4, edgecolor="white")
    # In the order of the stack, from the top down.
    ax.legend(areas[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    ax.set(xlim=(places[0], places[-1]), ylim=(0.0, max(1.0, values.sum(axis=1).max())))
    ax.yaxis.set_major_formatter(FuncFormatter(_percent_text))
    ax.set_ylabel("share")
    ax.set_xlabel(str(ordered.index.name or "row"))
    return figure_of(ax)


# ---------------------------------------------------------------------------------------------------------------
# What the drawings share


def _panels(n: int, n_columns: int, width: float, height: float, note: str = "") -> list[Axes]:
    """Axes of a new figure, in rows of this height in inches, with a note below them."""
    n_rows = -(-n // n_columns)
    figure = Figure(figsize=(width, 0.8 + height * n_rows), layout="constrained", dpi=150)
    grid = list(figure.subplots(n_rows, n_columns, sharex=True, squeeze=False).ravel())
    for spare in grid[n:]:
        spare.remove()
    for lowest in grid[max(n - n_columns, 0) : n]:
        lowest.tick_params(labelbottom=True)
    if note:
        figure.supxlabel(note, size=8, color=GREY)
    return grid[:n]


def _left_out(n: int, what: str) -> str:
    return f"{n - MOST_PANELS} more {what} are not shown" if n > MOST_PANELS else ""


def _tell_time(ax: Axes, places: NDArray[Any]) -> None:
    """Short dates that do not run into each other, where places are times."""
    if places.dtype.kind in "MO":
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _number_cells(ax: Axes, values: Array, texts: list[list[str]], image: Any) -> None:
    """Write into each cell, in a colour that stands out from the cell's."""
    for (i, j), value in np.ndenumerate(values):
        if not texts[i][j]:
            continue
        red, green, blue, _ = image.cmap(image.norm(value))
        dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.55
        ax.text(j, i, texts[i][j], ha="center", va="center", size=8, color="white" if dark else "black")


def _brief(value: float) -> str:
    """Two digits that matter, without exponents where they are not needed."""
    return f"{value:.2g}" if value < 10.0 else f"{value:.0f}"


def _percent_text(value: float, position: int | None = None) -> str:
    return f"{100 * value:.4g} %"


def _tick_text(value: float, position: int | None = None) -> str:
    return f"{value:g}"
