"""Pictures of what the library returns: circuits, lengthscales, predictions, forecasts, correlations.

Every function draws into ``ax`` if one is given, else into a figure of its own, and returns the figure. Figures are
made without pyplot: nothing stays open, and no backend is chosen.
"""

from __future__ import annotations

import textwrap
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator
from numpy.typing import ArrayLike, NDArray

from momostream.distribution import Distribution
from momostream.experts import CircuitExpert, LinearMember
from momostream.model import Model
from momostream.nodes import GATE, KINDS, OUTPUTS, REGION, SUM, Circuit

if TYPE_CHECKING:
    import pandas as pd

    from momostream.forecast import Forecast
    from momostream.sklearn import MOMoGPRegressor

__all__ = ["plot_circuit", "plot_correlation", "plot_forecast", "plot_lengthscales", "plot_prediction"]

Array = NDArray[np.float64]

COLOURS = {"sum": "#fde7c8", "gate": "#d6e6f5", "outputs": "#e6dcf2", "region": "#dcefd9", "more": "#f0f0f0"}
LINE = "#555555"

FONT_SIZE = 9.0
# Inches of a letter at that size, of the frame and the gap between two boxes, and from one level to the next.
LETTER_WIDTH, GAP_WIDTH, LEVEL_HEIGHT = 0.072, 0.25, 0.95
# Letters of output names in one line on an edge.
EDGE_LETTERS = 16
# Rows of a heat map that are named one by one, and output names in such a row, at most.
MOST_ROWS, MOST_NAMES = 40, 3


# ---------------------------------------------------------------------------------------------------------------
# Circuits


def plot_circuit(
    model: MOMoGPRegressor | Model,
    expert: str | int | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    ax: Axes | None = None,
    max_nodes: int = 40,
) -> Figure:
    """Draw the circuit of a fitted model from the top down.

    Sums are circles with a plus and their weights on the edges (the mean over the outputs where each has its own);
    gates are boxes with the name of the covariate and the cuts on the edges; output splits are circles with a cross
    and the names of the outputs on the edges; regions say how many rows they hold.

    Parameters
    ----------
    model
        A fitted `MOMoGPRegressor`, or the core model.
    expert
        Name or position of one expert; None draws all of them below the root sum.
    inputs, outputs
        Names to use instead of those of the training data.
    ax
        Axes to draw into; None makes a figure of the size that the circuit needs.
    max_nodes
        Nodes drawn at most, upper levels first; the rest is counted in nodes with an ellipsis.

    Returns
    -------
    matplotlib.figure.Figure
        The figure that holds the drawing.

    Examples
    --------
    >>> from momostream.sklearn import MOMoGPRegressor
    >>> x = np.linspace(0, 6, 40)
    >>> model = MOMoGPRegressor(("matern32",), n_components=1, max_points=20, random_state=0).fit(x[:, None], x**2)
    >>> figure = plot_circuit(model, inputs=["wind"])
    >>> print([text.get_text().replace(chr(10), ", ") for text in figure.axes[0].texts])
    ['wind', '≤ 3', '> 3', 'region 0, 20 rows', 'region 1, 20 rows']
    >>> figure.savefig("circuit.png")  # doctest: +SKIP
    """
    if max_nodes < 1:
        raise ValueError(f"max_nodes={max_nodes!r} is not accepted: use a whole number of at least 1")
    core = _core(model)
    names_in = _names(model, "_input_names") if inputs is None else inputs
    names_out = _names(model, "_target_names") if outputs is None else outputs
    tree = _cut_off(_tree_of(core, expert, names_in, names_out), max_nodes)
    _lay_out(tree)
    boxes = tree.walk()
    # Coordinates are inches from here on, so that letters and places can be compared.
    unit = _leaf_distance(boxes)
    left = min(unit * box.x - 0.5 * box.width for box in boxes)
    right = max(unit * box.x + 0.5 * box.width for box in boxes)
    for box in boxes:
        box.x, box.y = unit * box.x, -LEVEL_HEIGHT * box.level
    bottom = min(box.y for box in boxes) - 0.45 * LEVEL_HEIGHT
    top = 0.3 * LEVEL_HEIGHT
    shrink = 1.0
    if ax is None:
        ax = _new_axes(max(right - left, 2.0), max(top - bottom, 1.0))
    else:
        # Letters shrink with the room that is given, so that neighbours do not overlap.
        room = ax.get_position().size * _figure_of(ax).get_size_inches()
        shrink = min(1.0, room[0] / (right - left), room[1] / (top - bottom))
    ax.set_axis_off()
    ax.set(xlim=(left, right), ylim=(bottom, top))
    _draw_tree(ax, boxes, FONT_SIZE * shrink)
    return _figure_of(ax)


@dataclass
class _Box:
    """A node as it is drawn: what is written in it, and on the edge that leads to it."""

    kind: str
    text: str
    edge: str = ""
    children: list[_Box] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    level: int = 0

    @property
    def width(self) -> float:
        """Inches that the texts need, with a gap to the next box."""
        return LETTER_WIDTH * max(map(len, f"{self.text}\n{self.edge}".split("\n"))) + GAP_WIDTH

    def walk(self) -> list[_Box]:
        """Return this box and all below it, upper levels first."""
        found, queue = [], deque([self])
        while queue:
            box = queue.popleft()
            found.append(box)
            queue.extend(box.children)
        return found


def _tree_of(
    core: Model, expert: str | int | None, inputs: Sequence[str] | None, outputs: Sequence[str] | None
) -> _Box:
    if expert is not None:
        return _expert_tree(_member(core, expert), inputs, outputs)
    if len(core.members) == 1:
        return _expert_tree(core.members[0], inputs, outputs)
    weights = np.exp(core.log_weights).reshape(len(core.members), -1).mean(axis=1)
    root = _Box("sum", "+")
    for member, weight in zip(core.members, weights, strict=True):
        box = _expert_tree(member, inputs, outputs)
        box.edge = f"{member.name}\n{weight:.2f}"
        root.children.append(box)
    return root


def _member(core: Model, expert: str | int) -> CircuitExpert | LinearMember:
    names = [member.name for member in core.members]
    if expert in names:
        return core.members[names.index(str(expert))]
    if isinstance(expert, int) and not isinstance(expert, bool) and 0 <= expert < len(names):
        return core.members[expert]
    raise ValueError(f"unknown expert {expert!r}: the experts are {', '.join(map(repr, names))}")


def _expert_tree(
    member: CircuitExpert | LinearMember, inputs: Sequence[str] | None, outputs: Sequence[str] | None
) -> _Box:
    if isinstance(member, LinearMember):
        return _Box("region", "linear\nmodel")
    circuit, rows = member.described(), [region.n_rows for region in member.regions]

    def box_of(number: int) -> _Box:
        node = circuit[number]
        box = _Box(KINDS[node.kind], "")
        if node.kind == REGION:
            box.text = f"region {node.region}\n{_counted(rows[node.region], 'row')}"
        elif node.kind == GATE:
            box.text = f"x{node.column}" if inputs is None else str(inputs[node.column])
        else:
            box.text = "+" if node.kind == SUM else "×"
        for k, child in enumerate(node.children):
            below = box_of(child)
            below.edge = _edge_text(circuit, number, k, outputs)
            box.children.append(below)
        return box

    return box_of(circuit.root)


def _edge_text(circuit: Circuit, number: int, k: int, outputs: Sequence[str] | None) -> str:
    """What stands on the edge to child k; the gate itself names its covariate, so a cut needs no name."""
    node = circuit[number]
    if node.kind == SUM:
        assert node.log_weights is not None
        return f"{float(np.exp(node.log_weights[k]).mean()):.2f}"
    if node.kind == OUTPUTS:
        owned = [f"y{p}" if outputs is None else str(outputs[p]) for p in circuit[node.children[k]].outputs]
        lines = textwrap.wrap(", ".join(owned), EDGE_LETTERS)
        return "\n".join(lines if len(lines) <= 2 else [f"{lines[0]} …", _counted(len(owned), "output")])
    cuts = [f"{cut:.4g}" for cut in node.cuts]
    if k == 0:
        return f"≤ {cuts[0]}"
    return f"> {cuts[-1]}" if k == len(cuts) else f"{cuts[k - 1]} to\n{cuts[k]}"


def _cut_off(root: _Box, max_nodes: int) -> _Box:
    """Keep the first boxes, upper levels first; what is left out below a box becomes one box that counts it."""
    every = root.walk()
    kept = {id(box) for box in every[:max_nodes]}
    for box in every[:max_nodes]:
        hidden = [child for child in box.children if id(child) not in kept]
        if hidden:
            count = sum(len(child.walk()) for child in hidden)
            box.children = [child for child in box.children if id(child) in kept]
            box.children.append(_Box("more", f"…\n{count} more"))
    return root


def _lay_out(root: _Box) -> None:
    """Set levels and places: leaves side by side at distance 1, parents above the middle of their children."""
    n_leaves = 0

    def place(box: _Box, level: int) -> None:
        nonlocal n_leaves
        box.level = level
        for child in box.children:
            place(child, level + 1)
        if box.children:
            box.x = 0.5 * (box.children[0].x + box.children[-1].x)
        else:
            box.x = float(n_leaves)
            n_leaves += 1

    place(root, 0)


def _leaf_distance(boxes: list[_Box]) -> float:
    """Inches between leaves such that no two neighbours on a level overlap. Boxes come level by level."""
    neighbours = [pair for pair in pairwise(boxes) if pair[0].level == pair[1].level]
    return max((0.5 * (a.width + b.width) / (b.x - a.x) for a, b in neighbours), default=1.0)


def _draw_tree(ax: Axes, boxes: list[_Box], font_size: float) -> None:
    text: dict[str, Any] = {"ha": "center", "va": "center", "linespacing": 1.15}
    for box in boxes:
        symbol = box.text in ("+", "×")
        frame = {"boxstyle": "circle,pad=0.2" if symbol else "round,pad=0.35", "fc": COLOURS[box.kind], "ec": LINE}
        size = 1.3 * font_size if symbol else font_size
        ax.text(box.x, box.y, box.text, size=size, bbox={**frame, "lw": 0.8}, **text)
        for child in box.children:
            # Bent edges: labels stand above their child, as far from each other as the children are.
            turn = box.y - 0.38 * LEVEL_HEIGHT
            ax.plot([box.x, box.x, child.x, child.x], [box.y, turn, turn, child.y], color=LINE, lw=0.8)
            if child.edge:
                blank = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}
                place = child.x, child.y + 0.43 * LEVEL_HEIGHT
                ax.text(*place, child.edge, size=0.9 * font_size, bbox=blank, **text)


# ---------------------------------------------------------------------------------------------------------------
# Lengthscales


def plot_lengthscales(model: MOMoGPRegressor | Model, ax: Axes | None = None) -> Figure:
    """Draw how much each covariate matters to each region as a heat map.

    The relevance of a covariate is its spread over the rows of the region divided by its lengthscale: by how many
    lengthscales the rows vary along it. It has no unit, so covariates, regions and experts (warped ones too) can be
    compared: one tenth of the largest in the row hardly matters, and more than 1 means that predictions bend within
    the region. A cell stays empty where the covariate does not vary.

    Parameters
    ----------
    model
        A fitted `MOMoGPRegressor`, or the core model.
    ax
        Axes to draw into; None makes a figure of the size that the table needs.

    Returns
    -------
    matplotlib.figure.Figure
        The figure that holds the drawing. One row per region, one column per covariate, colours on a log scale.

    Examples
    --------
    >>> from momostream.sklearn import MOMoGPRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(80, 2))
    >>> model = MOMoGPRegressor(("matern32", "linear"), random_state=0).fit(X, np.sin(X[:, 0]))
    >>> figure = plot_lengthscales(model)
    >>> first, second = figure.axes[0].images[0].get_array()[0]
    >>> print(bool(first > 10 * second))
    True
    """
    core = _core(model)
    experts = [member for member in core.members if isinstance(member, CircuitExpert)]
    if not experts:
        raise ValueError("the model has no Gaussian process expert, so there are no lengthscales to draw")
    relevance = np.vstack([_relevance(expert) for expert in experts])
    n_rows, n_columns = relevance.shape
    inputs = _names(model, "_input_names") or [f"x{j}" for j in range(n_columns)]
    if ax is None:
        ax = _new_axes(2.8 + 0.62 * n_columns, 1.6 + (0.3 * n_rows if n_rows <= MOST_ROWS else 6.0))
    varying = relevance[relevance > 0.0] if (relevance > 0.0).any() else np.ones(1)
    # A log scale needs two different ends.
    norm = LogNorm(0.95 * float(varying.min()), 1.05 * float(varying.max()))
    image = ax.imshow(
        np.ma.masked_equal(relevance, 0.0), cmap="YlGnBu", norm=norm, aspect="auto", interpolation="nearest"
    )
    ticks = LogLocator(subs=(1.0, 2.0, 5.0))
    bar = _figure_of(ax).colorbar(
        image, ax=ax, label="spread / lengthscale", ticks=ticks, format=FuncFormatter(_tick_text)
    )
    bar.ax.minorticks_off()
    ax.set_xticks(range(n_columns), inputs, rotation=40, ha="right", rotation_mode="anchor")
    places, labels = _region_labels(experts, _names(model, "_target_names"), core.n_outputs, n_rows <= MOST_ROWS)
    ax.set_yticks(places, labels)
    for edge in np.cumsum([len(expert.regions) for expert in experts])[:-1]:
        ax.axhline(edge - 0.5, color="white", lw=3)
    if n_rows <= MOST_ROWS:
        _number_cells(ax, relevance, [[_brief(value) if value else "" for value in row] for row in relevance], image)
    ax.set_title("relevance of the covariates", size=10)
    return _figure_of(ax)


def _relevance(expert: CircuitExpert) -> Array:
    """Spread over lengthscale of each region and covariate, in the view of the expert; 0 where nothing varies."""
    found = []
    for region in expert.regions:
        if not region.n_rows:
            found.append(np.zeros(region.X.shape[1]))
            continue
        varies = (region.X != region.X[:1]).any(axis=0)
        found.append(np.where(varies, region.X.std(axis=0) * region.covariance.inverse_lengths(region.theta), 0.0))
    return np.array(found)


def _region_labels(
    experts: list[CircuitExpert], outputs: list[str] | None, n_outputs: int, each: bool
) -> tuple[list[float], list[str]]:
    """Places and texts of the row labels: one per region, or one per expert."""
    places: list[float] = []
    labels: list[str] = []
    above = 0
    for expert in experts:
        n_regions = len(expert.regions)
        if not each:
            places.append(above + 0.5 * (n_regions - 1))
            labels.append(f"{expert.name}\n{_counted(n_regions, 'region')}")
        for number, owned in enumerate(expert.outputs if each else []):
            label = expert.name if n_regions == 1 else f"{expert.name}, region {number}"
            if len(owned) < n_outputs:
                names = [f"y{p}" if outputs is None else outputs[p] for p in owned[:MOST_NAMES]]
                label += f" ({', '.join(names)}{', …' if len(owned) > MOST_NAMES else ''})"
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
    >>> from momostream.sklearn import MOMoGPRegressor
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
        ax = _new_axes(8.0, 3.2)
    # Lines and bands follow the axis, whatever the order of the rows.
    order = np.argsort(places, kind="stable")
    intervals = {level: [side[order, position] for side in distribution.interval(level)] for level in levels}
    _draw_fan(ax, places[order], intervals, distribution.quantile(0.5)[order, position])
    if y is not None:
        ax.plot(places, _truth(y, distribution, position), "k.", ms=3, label="truth")
    names = distribution.targets
    ax.set_ylabel(f"y{position}" if names is None else str(names[position]))
    ax.set_xlabel("row" if x is None else str(getattr(x, "name", None) or ""))
    ax.margins(x=0.01)
    _legend_above(ax)
    return _figure_of(ax)


def _draw_fan(ax: Axes, places: NDArray[Any], intervals: Mapping[float, Sequence[Array]], median: Array) -> None:
    # Wide intervals first, pale: the narrow ones lie on top of them.
    for level, (lower, upper) in sorted(intervals.items(), reverse=True):
        shade = 0.62 - 0.5 * level
        ax.fill_between(places, lower, upper, color="C0", alpha=shade, lw=0, label=f"{100 * level:.4g} %")
    ax.plot(places, median, color="C0", lw=1.2, label="median")


def _legend_above(ax: Axes) -> None:
    n_columns = len(ax.get_legend_handles_labels()[1])
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
        Axes to draw into, one for each series; None makes a figure.

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
    names, places = forecast.series, np.asarray(forecast.index)
    if ax is None:
        figure = Figure(figsize=(8.0, 0.8 + 2.0 * len(names)), layout="constrained", dpi=150)
        axes = [*figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]]
    else:
        axes = [ax] if isinstance(ax, Axes) else list(ax)
    if len(axes) != len(names):
        raise ValueError(f"got {len(axes)} axes for {len(names)} series")
    intervals, medians = {level: forecast.interval(level).to_numpy() for level in levels}, forecast.median.to_numpy()
    for j, (name, axis) in enumerate(zip(names, axes, strict=True)):
        sides = {level: [both[:, 2 * j], both[:, 2 * j + 1]] for level, both in intervals.items()}
        _draw_fan(axis, places, sides, medians[:, j])
        if history is not None and name in history.columns:
            numbered = forecast.index.name == "step"
            before = np.arange(1 - len(history), 1) if numbered else np.asarray(history.index)
            axis.plot(before, history[name].to_numpy(dtype=np.float64), "k-", lw=0.8, label="history")
        axis.set_ylabel(str(name))
        axis.margins(x=0.01)
    axes[-1].set_xlabel(str(forecast.index.name))
    _legend_above(axes[0])
    return _figure_of(axes[0])


# ---------------------------------------------------------------------------------------------------------------
# Correlations


def plot_correlation(
    distribution: Distribution | ArrayLike, row: int = 0, ax: Axes | None = None, names: Sequence[str] | None = None
) -> Figure:
    """Draw the correlation between the outputs at one row.

    Parameters
    ----------
    distribution
        What `predict_distribution` returns; or a covariance or correlation matrix, shape (n_targets, n_targets), or
        one per row, shape (n_rows, n_targets, n_targets).
    row
        Which row to draw.
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
    labels = labels if names is None else [str(name) for name in names]
    if len(labels) != n_targets:
        raise ValueError(f"got {len(labels)} names for {n_targets} outputs")
    if ax is None:
        side = 1.6 + 0.6 * n_targets
        ax = _new_axes(side + 0.9, side)
    image = ax.imshow(found, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    _figure_of(ax).colorbar(image, ax=ax, label="correlation", shrink=0.8)
    ax.set_xticks(range(n_targets), labels, rotation=40, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(n_targets), labels)
    if n_targets <= MOST_ROWS:
        # Adding zero turns -0.00 into 0.00.
        numbers = [["–" if np.isnan(r) else f"{np.round(r, 2) + 0.0:.2f}" for r in line] for line in found]
        _number_cells(ax, found, numbers, image)
    if isinstance(distribution, Distribution):
        ax.set_title(f"row {row}", size=10)
    return _figure_of(ax)


def _correlation(source: Distribution | ArrayLike, row: int) -> tuple[Array, list[str] | None]:
    """Correlation matrix at a row, NaN where a variance is zero or infinite, and the names that came with it."""
    names: Any = getattr(source, "targets", getattr(source, "columns", None))
    if isinstance(source, Distribution):
        row = range(source.n_rows)[row]
        covariance = source[row].cov[0]
    else:
        covariance = np.asarray(source, dtype=np.float64)
        covariance = covariance[row] if covariance.ndim == 3 else covariance
        if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1] or not len(covariance):
            raise ValueError(f"a matrix must have shape (n_targets, n_targets), not {np.shape(source)}")
    spread = np.sqrt(np.diag(covariance))
    scale = np.outer(spread, spread)
    usable = (scale > 0.0) & np.isfinite(scale)
    found = np.where(usable, covariance / np.where(usable, scale, 1.0), np.nan)
    return found, None if names is None else [str(name) for name in names]


# ---------------------------------------------------------------------------------------------------------------
# What the drawings share


def _core(model: Any) -> Model:
    """The fitted core model of a facade, or the one given."""
    core = getattr(model, "model_", model)
    if not isinstance(core, Model) or not core.members:
        raise ValueError(f"this {type(model).__name__} is not fitted: call fit first")
    return core


def _names(model: Any, getter: str) -> list[str] | None:
    """Names that the facade knows; the core model has none."""
    names: list[str] | None = getattr(model, getter)() if hasattr(model, getter) else None
    return names


def _new_axes(width: float, height: float) -> Axes:
    # Not by pyplot: it would keep the figure alive until someone closes it.
    return Figure(figsize=(width, height), layout="constrained", dpi=150).add_subplot()


def _figure_of(ax: Axes) -> Figure:
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


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


def _tick_text(value: float, position: int | None = None) -> str:
    return f"{value:g}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
