"""Plots of relevance: lengthscales by region, shares of inputs and experts over a run."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import FuncFormatter, LogLocator

from momostream.batch.experts import CircuitExpert
from momostream.batch.model import Model
from momostream.runs.scores import Track
from momostream.show.outline import Stream, core_of, counted, lock_of, named, names_of
from momostream.show.plots.figures import (
    MOST_CELLS,
    PALETTE,
    SLANTED,
    Array,
    figure_of,
    new_axes,
    percent_text,
    tick_text,
    write_cells,
)

if TYPE_CHECKING:
    import pandas as pd

    from momostream.estimators.forecaster import MOMoGPForecaster
    from momostream.estimators.regressor import MOMoGPRegressor as StreamRegressor
    from momostream.estimators.table import MOMoGPRegressor

__all__ = ["plot_lengthscales", "plot_relevance"]

# Rows of a heat map that are named one by one, and target names in such a row, at most.
MOST_ROWS, MOST_NAMES = 40, 3
# Shares of a drawing at most; the rest is summed up.
MOST_SHARES = 8


def plot_lengthscales(
    model: MOMoGPRegressor | StreamRegressor | MOMoGPForecaster | Model, ax: Axes | None = None
) -> Figure:
    """Draw how much each covariate matters to each region as a heat map.

    The relevance of a covariate is its standard deviation over the rows of the region divided by its lengthscale: it
    counts the lengthscales over which the rows vary. It has no unit, so covariates, regions and experts (also warped
    ones) can be compared: a tenth of the largest value in its row hardly matters, and more than 1 means that
    predictions bend within the region. A cell is empty if the covariate does not vary.

    Parameters
    ----------
    model
        A fitted `momostream.estimators.table.MOMoGPRegressor` or its core model, a `momostream.MOMoGPRegressor` or a
        `momostream.MOMoGPForecaster`.
    ax
        Axes to draw into; None makes a figure that fits the table.

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
    if ax is None:
        ax = new_axes(
            2.8 + (0.62 if n_columns <= MOST_CELLS else 0.3) * n_columns,
            1.6 + (0.3 * n_rows if n_rows <= MOST_ROWS else 6.0),
        )
    image = _draw_heat_map(ax, relevance)
    ax.set_xticks(range(n_columns), [named(name, 24) for name in inputs], **SLANTED)
    ax.set_yticks(*_region_labels(found, outputs, n_rows <= MOST_ROWS))
    for edge in np.cumsum([len(expert.relevance) for expert in found])[:-1]:
        ax.axhline(edge - 0.5, color="white", lw=3)
    if n_rows <= MOST_ROWS and n_columns <= MOST_CELLS:
        write_cells(ax, relevance, [[_brief(value) if value else "" for value in row] for row in relevance], image)
    ax.set_title("relevance of the covariates", size=10)
    return figure_of(ax)


def _draw_heat_map(ax: Axes, relevance: Array) -> AxesImage:
    """Colours on a log scale with a colour bar; cells of covariates that do not vary stay empty."""
    varying = relevance[relevance > 0.0] if (relevance > 0.0).any() else np.ones(1)
    # A log scale needs two different ends.
    norm = LogNorm(0.95 * float(varying.min()), 1.05 * float(varying.max()))
    image = ax.imshow(
        np.ma.masked_equal(relevance, 0.0), cmap="YlGnBu", norm=norm, aspect="auto", interpolation="nearest"
    )
    ticks = LogLocator(subs=(1.0, 2.0, 5.0))
    bar = figure_of(ax).colorbar(
        image, ax=ax, label="standard deviation / lengthscale", ticks=ticks, format=FuncFormatter(tick_text)
    )
    bar.ax.minorticks_off()
    return image


def _brief(value: float) -> str:
    """Two significant digits, without exponents."""
    return f"{value:.2g}" if value < 10.0 else f"{value:.0f}"


class _Relevance(NamedTuple):
    """An expert's table of regions and covariates, and the targets that each region predicts."""

    name: str
    relevance: Array
    owned: list[list[int]]


def _relevances(model: Any) -> tuple[list[_Relevance], list[Hashable], list[Hashable]]:
    """Tables of all GP experts, names of the covariates and of the targets."""
    found = []
    stream = Stream.of(model)
    if stream is None:
        core = core_of(model)
        experts = [expert for expert in core.experts if isinstance(expert, CircuitExpert)]
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
    """Standard deviation over lengthscale by covariate; 0 if it does not vary, and for columns before those of X."""
    found = np.zeros(n_columns)
    if len(X):
        varies = (X != X[:1]).any(axis=0)
        found[n_columns - X.shape[1] :] = np.where(varies, X.std(axis=0) * inverse_lengths, 0.0)
    return found


def _region_labels(experts: list[_Relevance], outputs: Sequence[Hashable], each: bool) -> tuple[list[float], list[str]]:
    """Positions and texts of the row labels: one per region, or one per expert."""
    positions: list[float] = []
    labels: list[str] = []
    above = 0
    for name, relevance, owners in experts:
        n_regions = len(relevance)
        if not each:
            positions.append(above + 0.5 * (n_regions - 1))
            labels.append(f"{name}\n{counted(n_regions, 'region')}")
        for number, owned in enumerate(owners if each else []):
            label = name if n_regions == 1 else f"{name}, region {number}"
            if len(owned) < len(outputs):
                names = ", ".join(named(outputs[p], 20, 1) for p in owned[:MOST_NAMES])
                label += f" ({names}{', …' if len(owned) > MOST_NAMES else ''})"
            positions.append(above + number)
            labels.append(label)
        above += n_regions
    return positions, labels


def plot_relevance(source: Track | pd.DataFrame, ax: Axes | None = None) -> Figure:
    """Draw how the shares of inputs or experts change over the rows, as stacked areas.

    Parameters
    ----------
    source
        Scores of a run, which record these shares; or a frame with a row for each time and a column for each
        name; or `MOMoGPForecaster.weights_history`, of which the mean over the series is drawn.
    ax
        Axes to draw into; None makes a figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure that holds the drawing. The largest shares lie at the bottom; with more than eight, the smallest are
        summed up.

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
    rows = ordered.index.to_numpy()
    if len(rows) == 1:
        # An area needs two ends.
        rows, values = rows[0] + np.array([-0.5, 0.5]), values.repeat(2, axis=0)
    if ax is None:
        ax = new_axes(8.0, 3.2)
    areas = ax.stackplot(rows, values.T, colors=colours, lw=0.4, edgecolor="white")
    # From the top down, as the areas are stacked.
    ax.legend(areas[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    ax.set(xlim=(rows[0], rows[-1]), ylim=(0.0, max(1.0, values.sum(axis=1).max())))
    ax.yaxis.set_major_formatter(FuncFormatter(percent_text))
    ax.set_ylabel("share")
    ax.set_xlabel(str(ordered.index.name or "row"))
    return figure_of(ax)
